//! Where engine and memory meet: the engine's descriptor ring writes through here into DMA memory.
//!
//! `fpga-core` knows descriptors but no memory, `fpga-pci` knows memory but no descriptors.

use fpga_core::ring::{DescriptorMemory, HostRange};
use fpga_pci::{DmaArea, DmaRun, SharedSlice};

/// Bytes of one descriptor (PG195, descriptor format).
const DESCRIPTOR_BYTES: usize = 32;

/// The part of a channel's DMA area that holds its descriptors.
#[derive(Debug)]
pub(crate) struct RingMemory<'a>(SharedSlice<'a>);

impl<'a> RingMemory<'a> {
    #[inline]
    pub(crate) fn new(area: &'a DmaArea) -> Self {
        Self(area.memory())
    }
}

impl DescriptorMemory for RingMemory<'_> {
    #[inline]
    fn write(&mut self, index: u32, words: [u64; 4]) {
        let stored = self.0.store_descriptor(index as usize * DESCRIPTOR_BYTES, words);
        // The ring was built for this area, so it never names an entry outside it.
        debug_assert!(stored.is_ok(), "descriptor {index} outside the ring's memory");
    }
}

/// A contiguous run of DMA memory as the engine's rings take it.
#[inline]
pub(crate) fn host_range(run: DmaRun) -> HostRange {
    HostRange::new(run.iova, run.length)
}
