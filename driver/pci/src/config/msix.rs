//! MSI-X capability: location of the vector table and of the pending bit array.

use fpga_registers::pci::capability::MSIX;
use fpga_registers::pci::msix;

use super::{ConfigSpace, capabilities, read_u16, read_u32};
use crate::ConfigSpaceError;

/// Location of a function's MSI-X table and pending bit array. PCI Local Bus 3.0, section 6.8.2.
///
/// XDMA has both in its DMA BAR, at 0x8000 and 0x8FE0 (PG195); the DMA BAR is recognised by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MsixCapability {
    /// Offset of the capability in configuration space.
    pub at: u16,
    /// Number of vectors, 1 to 2048.
    pub vectors: u16,
    /// BAR of the table.
    pub table_bar: u8,
    /// Start of the table, in bytes from the start of its BAR. 16 bytes per vector.
    pub table_offset: u32,
    /// BAR of the pending bit array.
    pub pba_bar: u8,
    /// Start of the pending bit array, in bytes from the start of its BAR.
    pub pba_offset: u32,
}

impl MsixCapability {
    /// Length of the table in bytes.
    #[must_use]
    pub fn table_length(&self) -> u32 {
        u32::from(self.vectors) * u32::from(msix::ENTRY_SIZE)
    }
}

/// Finds the MSI-X capability.
///
/// # Errors
/// See [`capabilities`].
pub fn find_msix<C: ConfigSpace + ?Sized>(space: &C) -> Result<Option<MsixCapability>, ConfigSpaceError> {
    let Some(found) = capabilities(space)?.into_iter().find(|capability| capability.id == MSIX) else {
        return Ok(None);
    };
    let at = found.at;
    let control = read_u16(space, at + msix::CONTROL)?;
    let table = read_u32(space, at + msix::TABLE)?;
    let pba = read_u32(space, at + msix::PENDING)?;
    // Bits 2:0 select the BAR, the rest is the offset. The reserved values 6 and 7 fail in the caller's BAR lookup.
    let bar = |word: u32| (word & msix::BAR_MASK) as u8;
    Ok(Some(MsixCapability {
        at,
        vectors: (control & msix::TABLE_SIZE_MASK) + 1,
        table_bar: bar(table),
        table_offset: table & msix::OFFSET_MASK,
        pba_bar: bar(pba),
        pba_offset: pba & msix::OFFSET_MASK,
    }))
}
