//! Configuration space of a PCI function.
//!
//! The device may be gone, broken or hostile: walks are bounded, offsets are checked, and an all-ones read is an error.

use fpga_registers::pci::{VENDOR_NONE, bar, capability, command, header, power, status};

use crate::{BarKind, ConfigSpaceError};

mod msix;

pub use msix::{MsixCapability, find_msix};

/// First possible capability offset, behind the header of 64 bytes.
const FIRST_CAPABILITY: u16 = 0x40;
/// Maximum number of capabilities: they start at multiples of 4 between 0x40 and 0xFF.
const MAX_CAPABILITIES: u8 = 48;

/// Source of configuration space: a backend, or the 256 (or 4096) bytes in a test or a dump.
pub trait ConfigSpace {
    /// Reads bytes from `at` on.
    ///
    /// # Errors
    /// See [`ConfigSpaceError`].
    fn read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError>;
}

impl ConfigSpace for [u8] {
    fn read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        let start = usize::from(at);
        let from = start
            .checked_add(into.len())
            .and_then(|end| self.get(start..end))
            .ok_or(ConfigSpaceError::OutOfRange { at, length: into.len(), size: self.len() })?;
        into.copy_from_slice(from);
        Ok(())
    }
}

/// Reads an 8-bit register.
///
/// # Errors
/// See [`ConfigSpaceError`].
pub fn read_u8<C: ConfigSpace + ?Sized>(space: &C, at: u16) -> Result<u8, ConfigSpaceError> {
    let mut byte = [0];
    space.read(at, &mut byte)?;
    Ok(byte[0])
}

/// Reads a 16-bit register.
///
/// # Errors
/// See [`ConfigSpaceError`].
pub fn read_u16<C: ConfigSpace + ?Sized>(space: &C, at: u16) -> Result<u16, ConfigSpaceError> {
    let mut bytes = [0; 2];
    space.read(at, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

/// Reads a 32-bit register.
///
/// # Errors
/// See [`ConfigSpaceError`].
pub fn read_u32<C: ConfigSpace + ?Sized>(space: &C, at: u16) -> Result<u32, ConfigSpaceError> {
    let mut bytes = [0; 4];
    space.read(at, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Vendor and device id.
///
/// # Errors
/// [`ConfigSpaceError::Gone`] if they read as all ones, which no device has.
pub fn identity<C: ConfigSpace + ?Sized>(space: &C) -> Result<(u16, u16), ConfigSpaceError> {
    let vendor = read_u16(space, header::VENDOR_ID)?;
    let device = read_u16(space, header::DEVICE_ID)?;
    if vendor == VENDOR_NONE { Err(ConfigSpaceError::Gone) } else { Ok((vendor, device)) }
}

/// Returns whether the function decodes its memory BARs at the moment (memory space enable).
///
/// # Errors
/// [`ConfigSpaceError::Gone`] if the device does not answer.
pub fn memory_enabled<C: ConfigSpace + ?Sized>(space: &C) -> Result<bool, ConfigSpaceError> {
    identity(space)?;
    Ok(read_u16(space, header::COMMAND)? & command::MEMORY_SPACE != 0)
}

/// Whether the function answers at its memory BARs: memory decoding is enabled ([`memory_enabled`]), and the power state is D0 (PCI power
/// management 3.2.4) if it has the power management capability.
///
/// # Errors
/// [`ConfigSpaceError`].
pub fn answers<C: ConfigSpace + ?Sized>(space: &C) -> Result<bool, ConfigSpaceError> {
    Ok(memory_enabled(space)?
        && match power_control(space) {
            Some(at) => read_u16(space, at)? & power::STATE_MASK == 0,
            None => true,
        })
}

/// Offset of the power management control and status register. `None` also if the capability list cannot be read.
pub(crate) fn power_control<C: ConfigSpace + ?Sized>(space: &C) -> Option<u16> {
    let found = capabilities(space).ok()?.into_iter().find(|found| found.id == capability::POWER_MANAGEMENT);
    found?.at.checked_add(power::CONTROL)
}

/// One entry of the capability list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capability {
    /// Capability id (PCI Code and ID Assignment, section 2).
    pub id: u8,
    /// Offset in configuration space.
    pub at: u16,
}

/// Reads the capability list (not the extended one), in its order.
///
/// # Errors
/// [`ConfigSpaceError::BadCapabilityList`] if it loops or leaves its area; [`ConfigSpaceError::Gone`].
pub fn capabilities<C: ConfigSpace + ?Sized>(space: &C) -> Result<Vec<Capability>, ConfigSpaceError> {
    identity(space)?;
    let mut found = Vec::new();
    if read_u16(space, header::STATUS)? & status::CAPABILITIES == 0 {
        return Ok(found);
    }
    let mut seen = 0;
    let mut pointer = read_u8(space, header::CAPABILITIES)?;
    loop {
        // The two low bits are reserved and to be masked (PCI Local Bus 3.0, section 6.7).
        let at = u16::from(pointer & !3);
        if at == 0 {
            return Ok(found);
        }
        // More entries than possible offsets: the list loops.
        if at < FIRST_CAPABILITY || seen == MAX_CAPABILITIES {
            return Err(ConfigSpaceError::BadCapabilityList { at, seen });
        }
        let id = read_u8(space, at)?;
        if id == 0xFF {
            return Err(ConfigSpaceError::BadCapabilityList { at, seen });
        }
        found.push(Capability { id, at });
        pointer = read_u8(space, at + 1)?;
        seen += 1;
    }
}

/// One BAR register as configuration space shows it. Its size cannot be read without writing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BarRegister {
    /// BAR number, 0 to 5.
    pub index: u8,
    /// Kind of the BAR.
    pub kind: BarKind,
    /// Reads have no side effects.
    pub prefetchable: bool,
    /// Address on the bus.
    pub address: u64,
}

/// Reads the BAR registers of a type 0 header. An all-zero register counts as not implemented, and so does a BAR of a reserved type.
/// Bridges (other header types) yield none.
///
/// # Errors
/// See [`ConfigSpaceError`].
pub fn bar_registers<C: ConfigSpace + ?Sized>(
    space: &C,
) -> Result<[Option<BarRegister>; 6], ConfigSpaceError> {
    identity(space)?;
    let mut registers = [None; 6];
    if read_u8(space, header::HEADER_TYPE)? & 0x7F != 0 {
        return Ok(registers);
    }
    let mut words = [0_u32; 6];
    for (word, at) in words.iter_mut().zip((header::BAR0..).step_by(4)) {
        *word = read_u32(space, at)?;
    }
    let mut index = 0_u8;
    while let Some(&low) = words.get(usize::from(index)) {
        let next = words.get(usize::from(index) + 1).copied();
        let (register, used) = decode_bar(index, low, next);
        if let Some(place) = registers.get_mut(usize::from(index)) {
            *place = register;
        }
        index += used;
    }
    Ok(registers)
}

/// Decodes a BAR register (PCI Local Bus 3.0, section 6.2.5.1). Also returns the number of registers that it uses.
fn decode_bar(index: u8, low: u32, next: Option<u32>) -> (Option<BarRegister>, u8) {
    use BarKind::{Io, Memory32, Memory64};
    if low == 0 {
        return (None, 1);
    }
    if low & bar::IO != 0 {
        let address = u64::from(low & !3);
        return (Some(BarRegister { index, kind: Io, prefetchable: false, address }), 1);
    }
    let prefetchable = low & bar::PREFETCHABLE != 0;
    let base = u64::from(low & bar::MEMORY_MASK);
    match (low & bar::TYPE_MASK, next) {
        (0, _) => (Some(BarRegister { index, kind: Memory32, prefetchable, address: base }), 1),
        (bar::TYPE_64, Some(high)) => {
            let address = u64::from(high) << 32 | base;
            (Some(BarRegister { index, kind: Memory64, prefetchable, address }), 2)
        }
        _ => (None, 1),
    }
}

#[cfg(test)]
mod tests;
