//! What the card reaches of its host: memory by IOVA, and interrupts.

use fpga_registers::Iova;

/// Host memory as the card reaches it through the IOMMU.
///
/// Every access goes through the live map: an implementation looks the address up each time, walks neighbouring
/// mappings (one access may span many), checks permissions, and refuses what is not mapped.
pub trait DmaSpace {
    /// Copies host memory at `at` into `into`: a memory read request.
    ///
    /// # Errors
    /// [`DmaFault`] at the first byte that the card may not read; `into` is then partly filled.
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault>;

    /// Copies `from` into host memory at `at`: a memory write request.
    ///
    /// # Errors
    /// [`DmaFault`] at the first byte that the card may not write; bytes before it are written.
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault>;
}

/// The host side of one card: memory and message-signalled interrupts.
pub trait HostPort: DmaSpace {
    /// Delivers MSI-X message `vector`.
    fn interrupt(&mut self, vector: u16);
}

// A reference is as good as what it refers to: `&mut dyn HostPort` can be given where a type is asked for.
impl<T: DmaSpace + ?Sized> DmaSpace for &mut T {
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        (**self).read(at, into)
    }

    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        (**self).write(at, from)
    }
}

impl<T: HostPort + ?Sized> HostPort for &mut T {
    fn interrupt(&mut self, vector: u16) {
        (**self).interrupt(vector);
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
    fn interrupt(&mut self, _vector: u16) {}
}
