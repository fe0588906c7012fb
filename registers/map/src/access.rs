//! Access to the registers of a map by name, through any register backend.

use fpga_registers::{AccessKind, RegisterIo};

use crate::error::NameError;
use crate::map::{MapField, Named, RegisterMap, fit};

/// Reason why an access by name was refused by the map, or failed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError<E: std::fmt::Debug + std::fmt::Display> {
    /// The map does not permit the access. Nothing was accessed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The access failed.
    #[error("{name}: {source}")]
    Io {
        /// The register.
        name: String,
        /// Cause.
        r#source: E,
    },
}

/// Registers of a map, accessed through `io`.
///
/// ```
/// use std::cell::Cell;
/// use fpga_register_map::{Registers, RegisterMap};
/// # use fpga_registers::{BarOffset, RegisterIo};
/// # struct OneWord(Cell<u32>);
/// # impl RegisterIo for OneWord {
/// #     type Error = std::convert::Infallible;
/// #     fn read32(&self, _: BarOffset) -> Result<u32, Self::Error> { Ok(self.0.get()) }
/// #     fn write32(&self, _: BarOffset, value: u32) -> Result<(), Self::Error> { self.0.set(value); Ok(()) }
/// # }
/// # let bar = OneWord(Cell::new(0x100));
/// let map = RegisterMap::parse("scaler.yaml".as_ref(), "
/// schema_version: 1
/// name: scaler
/// enums:
///   - {name: Mode, variants: [{name: idle, value: 0}, {name: run, value: 1}, {name: drain, value: 2}]}
/// blocks:
///   - name: scaler
///     offset: 0x1000
///     registers:
///       - {name: control, offset: 0, fields: [{name: mode, bits: '2:1', enum: Mode}]}
/// ")?;
/// let registers = Registers::new(&map, &bar);
/// registers.set("scaler.control.mode", "run")?;
/// assert_eq!(registers.read("scaler.control.mode")?, 1);
/// assert_eq!(registers.read("scaler.control")?, 0x102); // the other bits are as they were
/// let refused = registers.write("scaler.control.mode", 4).unwrap_err().to_string();
/// assert_eq!(refused, "scaler.control.mode: 0x4 does not fit: it has 2 bits, so the maximum is 0x3");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Registers<'a, I: ?Sized> {
    map: &'a RegisterMap,
    io: &'a I,
}

impl<'a, I: RegisterIo + ?Sized> Registers<'a, I>
where
    I::Error: std::fmt::Debug + std::fmt::Display,
{
    /// Creates the access to the registers of `map` through `io`, the BAR that it describes.
    #[must_use]
    pub const fn new(map: &'a RegisterMap, io: &'a I) -> Self {
        Self { map, io }
    }

    /// The map.
    #[must_use]
    pub const fn map(&self) -> &'a RegisterMap {
        self.map
    }

    /// Reads a register, or a field moved to bit 0.
    ///
    /// # Errors
    /// [`AccessError`]; a register with a read side effect is refused: see [`take`](Self::take).
    pub fn read(&self, name: &str) -> Result<u32, AccessError<I::Error>> {
        let named = self.map.find(name)?;
        if self.map.read_has_side_effect(named.register) {
            return Err(refused(named, "a read has side effects: read it with `take`").into());
        }
        self.fetch(named)
    }

    /// Reads a register with a read side effect: its bits are returned once, to this caller.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn take(&self, name: &str) -> Result<u32, AccessError<I::Error>> {
        self.fetch(self.map.find(name)?)
    }

    /// Writes a register, or a field; [`rest`] defines the register's other bits.
    ///
    /// # Errors
    /// [`AccessError`]; a field whose register has a read side effect cannot be written alone.
    pub fn write(&self, name: &str, value: u32) -> Result<(), AccessError<I::Error>> {
        let named = self.map.find(name)?;
        self.store(named, fit(named, value.into())?)
    }

    /// Same as [`write`](Self::write), with a value's name or a number as text.
    ///
    /// # Errors
    /// Same as [`write`](Self::write).
    pub fn set(&self, name: &str, text: &str) -> Result<(), AccessError<I::Error>> {
        let named = self.map.find(name)?;
        self.store(named, self.map.number(named, text)?)
    }

    fn store(&self, named: Named<'_>, value: u32) -> Result<(), AccessError<I::Error>> {
        let Named { register, field } = named;
        let kept = match field {
            None if register.access.is_writable() => 0,
            None => return Err(refused(named, "only the card sets it").into()),
            Some(field) => {
                let kept = rest(named.register.access, self.map.fields(register), field)
                    .map_err(|why| refused(named, why))?;
                if kept != 0 && self.map.read_has_side_effect(register) {
                    let why = "the rest of its register has to be read first, and this read has side effects: write the whole register";
                    return Err(refused(named, why).into());
                }
                if kept == 0 { 0 } else { self.fetch(Named { field: None, ..named })? & kept }
            }
        };
        let fail = |source| AccessError::Io { name: register.name.clone(), source };
        self.io.write32(register.address, named.bits().insert(kept, value)).map_err(fail)
    }

    fn fetch(&self, named: Named<'_>) -> Result<u32, AccessError<I::Error>> {
        if !named.access().is_readable() {
            return Err(refused(named, "it cannot be read").into());
        }
        let fail = |source| AccessError::Io { name: named.register.name.clone(), source };
        let word = self.io.read32(named.register.address).map_err(fail)?;
        Ok(named.bits().extract(word))
    }
}

/// Mask of the register bits that must be read and written back when `field` alone is written: bits that keep the written value. Write-one
/// bits and bits that only the card sets are written as zero. The mask is zero if nothing has to be read.
///
/// # Errors
/// The reason why the field cannot be written, or not alone.
pub fn rest(register: AccessKind, fields: &[MapField], field: &MapField) -> Result<u32, &'static str> {
    if !field.access.is_writable() {
        return Err("only the card sets it");
    }
    let mut kept = 0;
    let mut named = field.bits.mask();
    let others = fields.iter().filter(|other| other.bits != field.bits);
    let parts = others.map(|other| {
        named |= other.bits.mask();
        (other.bits.mask(), other.access)
    });
    let mut parts: Vec<(u32, AccessKind)> = parts.collect();
    parts.push((!named, register));
    for (bits, access) in parts.into_iter().filter(|(bits, _)| *bits != 0) {
        match access {
            AccessKind::ReadWrite => kept |= bits,
            AccessKind::WriteOnly => {
                return Err("the rest of its register cannot be read, so write the whole register");
            }
            _ => {}
        }
    }
    Ok(kept)
}

fn refused(named: Named<'_>, why: &'static str) -> NameError {
    NameError::Access { name: named.to_string(), access: named.access().abbreviation(), reason: why }
}
