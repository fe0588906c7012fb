//! Adapter between descriptor ring and DMA memory: the ring writes its descriptors through it.
//!
//! `fpga-protocol` knows descriptors but no memory, `fpga-pci` knows memory but no descriptors.

use fpga_pci::{IovaRange, RegisteredMemory, SharedSlice};
use fpga_ring::ring::{DescriptorMemory, HostRange, MetadataMemory};

/// Bytes of one descriptor (PG195, descriptor format).
const DESCRIPTOR_BYTES: usize = 32;

/// Part of a channel's DMA memory that holds its descriptors.
#[derive(Debug)]
pub(crate) struct RingMemory<'a>(SharedSlice<'a>);

impl<'a> RingMemory<'a> {
    #[inline]
    pub(crate) fn new(area: &'a RegisteredMemory) -> Self {
        Self(area.memory())
    }
}

impl DescriptorMemory for RingMemory<'_> {
    #[inline]
    fn write(&mut self, index: u32, words: [u64; 4]) {
        let stored = self.0.store_descriptor(index as usize * DESCRIPTOR_BYTES, words);
        // The ring was built for this memory, so it never names an entry outside it.
        debug_assert!(stored.is_ok(), "descriptor {index} outside the ring's memory");
    }
}

/// Distance between two metadata slots in bytes.
pub(crate) const METADATA_BYTES: usize = 32;

/// Part of a C2H stream's DMA memory to which its engine writes metadata.
#[derive(Debug)]
pub(crate) struct StreamMetadata<'a>(pub(crate) SharedSlice<'a>);

impl MetadataMemory for StreamMetadata<'_> {
    #[inline]
    fn read(&self, index: u32) -> [u32; 2] {
        // An entry outside reads as never written.
        let word = |offset| self.0.load_u32(index as usize * METADATA_BYTES + offset).unwrap_or(0);
        [word(0), word(4)]
    }

    #[inline]
    fn clear(&mut self, index: u32) {
        let cleared = self.0.store_u64(index as usize * METADATA_BYTES, 0);
        debug_assert!(cleared.is_ok(), "metadata slot {index} outside the ring's memory");
    }
}

/// Converts a contiguous run of DMA memory to the type that the rings use.
#[inline]
pub(crate) fn host_range(run: IovaRange) -> HostRange {
    HostRange::new(run.iova, run.length)
}
