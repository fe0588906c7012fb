//! MSI-X table and pending bits (PG195 "MSI-X Vector Table and PBA (0x8)").
//!
//! MSI-X must be enabled in configuration space *before* the table is written, otherwise the table does not work (PG195). With VFIO the
//! kernel owns the table and uses this order.

use core::mem::offset_of;

use crate::addr::BarOffset;
use crate::xdma::MSIX_TABLE_BASE;

/// Number of table entries; fixed, even if the capability announces fewer.
pub const VECTOR_COUNT: u8 = 32;

register_block! {
    /// One entry of the MSI-X table. See [`entry_base`].
    pub struct MsixEntry [0x10] {
        /// Low word of the message address.
        0x00 address_low ADDRESS_LOW: Rw<u32> = 0;
        /// High word of the message address.
        0x04 address_high ADDRESS_HIGH: Rw<u32> = 0;
        /// Message data.
        0x08 data DATA: Rw<u32> = 0;
        /// Mask bit.
        0x0C control CONTROL: Rw<VectorControl> = 0xFFFF_FFFF;
    }
}

register_block! {
    /// Pending bits of the 32 vectors, at [`MSIX_PBA_BASE`](super::MSIX_PBA_BASE).
    pub struct PendingBlock [0x04] {
        /// Bit n for vector n. Read-only by the PCI specification: see X11 of [`errata`](crate::errata).
        0x00 pending PENDING: Ro<u32> = 0;
    }
}

/// Page of the DMA BAR that holds the MSI-X structures.
#[repr(C)]
#[derive(Debug)]
pub struct MsixBlock {
    /// The vector table.
    pub table: [MsixEntry; 32],
    _reserved_200: [u32; 0x378],
    /// The pending bits.
    pub pending: PendingBlock,
    _reserved_fe4: [u32; 7],
}

const _: () = {
    assert!(size_of::<MsixBlock>() == 0x1000);
    assert!(offset_of!(MsixBlock, table) == 0);
    assert!(offset_of!(MsixBlock, pending) == 0xFE0);
};

register_value! {
    /// Vector control (PCI "MSI-X Table Structure"). PG195 gives all ones as its reset value, which masks the vector.
    pub struct VectorControl {
        /// The vector sends nothing.
        1 masked: bool;
        31 _reserved_1: u32;
    }
}

/// Offset of entry `vector` (below [`VECTOR_COUNT`]) of the table: a [`MsixEntry`].
#[must_use]
pub const fn entry_base(vector: u8) -> BarOffset {
    let vector = vector as u32;
    MSIX_TABLE_BASE.offset_by(MsixEntry::SIZE * vector)
}
