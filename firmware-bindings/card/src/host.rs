//! What the card reaches of its host: memory by IOVA, interrupts, error messages.

use fpga_registers::Iova;

/// Host memory as the card reaches it through the IOMMU.
///
/// Every access goes through the live map: an implementation looks the address up each time, walks neighbouring
/// mappings (one access may span many), checks permissions, and refuses what is not mapped.
pub trait DmaSpace {
    /// Copies host memory at `at` into `into`: a memory read request.
    ///
    /// # Errors
    /// [`DmaFault`] at the first byte that the card may not read; the bytes before it have arrived.
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault>;

    /// Copies `from` into host memory at `at`: a memory write request.
    ///
    /// # Errors
    /// [`DmaFault`] at the first byte that the card may not write; bytes before it are written.
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault>;

    /// [`read`](Self::read) of every part, in order: data of kilobytes, of which an implementation may know how to move much
    /// at a time. Parts outside of `memory` have no bytes there.
    ///
    /// # Errors
    /// The number of the first part that fails, and how; those before it have arrived, those after it were not tried.
    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        parts.iter().enumerate().try_for_each(|(index, part)| {
            let into = memory.get_mut(part.range()).unwrap_or_default();
            self.read(part.at, into).map_err(|fault| (index, fault))
        })
    }

    /// [`write`](Self::write) of every part, in order; as [`read_parts`](Self::read_parts).
    ///
    /// # Errors
    /// As there.
    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        parts.iter().enumerate().try_for_each(|(index, part)| {
            let from = memory.get(part.range()).unwrap_or_default();
            self.write(part.at, from).map_err(|fault| (index, fault))
        })
    }
}

/// One of many accesses in a row: where in host memory, and which bytes of the other memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaPart {
    /// First byte in host memory.
    pub at: Iova,
    /// First byte in the other memory.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
}

impl DmaPart {
    /// Its bytes in the other memory, as an index.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset.saturating_add(self.length)
    }
}

/// An interrupt on its way to the host, by the method that software has enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interrupt {
    /// The MSI-X message of this entry of the table.
    Msix(u16),
    /// This MSI message; below the number of messages that software has enabled.
    Msi(u16),
    /// The legacy line of the pin that configuration space names rises (`true`) or falls: a level, reported when it
    /// changes ([`crate::Card::line_asserted`] says what it is).
    Line(bool),
}

/// An error message to the root complex (PCIe 6.2), which on a host becomes an AER event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorMessage {
    /// ERR_COR.
    Correctable,
    /// ERR_NONFATAL.
    NonFatal,
    /// ERR_FATAL: the link is not to be trusted any more.
    Fatal,
}

/// The host side of one card: memory, interrupts and error messages.
pub trait HostPort: DmaSpace {
    /// Delivers an interrupt.
    fn interrupt(&mut self, interrupt: Interrupt);

    /// Delivers an error message. A host without error reporting lets it pass.
    fn error(&mut self, message: ErrorMessage) {
        let _ = message;
    }
}

// A reference is as good as what it refers to: `&mut dyn HostPort` can be given where a type is asked for.
impl<T: DmaSpace + ?Sized> DmaSpace for &mut T {
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        (**self).read(at, into)
    }

    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        (**self).write(at, from)
    }

    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        (**self).read_parts(parts, memory)
    }

    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        (**self).write_parts(parts, memory)
    }
}

impl<T: HostPort + ?Sized> HostPort for &mut T {
    fn interrupt(&mut self, interrupt: Interrupt) {
        (**self).interrupt(interrupt);
    }

    fn error(&mut self, message: ErrorMessage) {
        (**self).error(message);
    }
}

/// An access that the IOMMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the card may not {} host memory at {at}", if *write { "write" } else { "read" })]
pub struct DmaFault {
    /// First refused address.
    pub at: Iova,
    /// The access was a write.
    pub write: bool,
}

/// A host without any mapping; interrupts vanish. For tests of registers alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl DmaSpace for NoHost {
    fn read(&mut self, at: Iova, _into: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { at, write: false })
    }

    fn write(&mut self, at: Iova, _from: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { at, write: true })
    }
}

impl HostPort for NoHost {
    fn interrupt(&mut self, _interrupt: Interrupt) {}
}
