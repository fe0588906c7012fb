//! Clock of a host that runs at a rate of its own.

use std::sync::Arc;

use fpga_pci::Backend;
use fpga_sim::SimBackend;

/// Backend whose clock runs faster or slower than that of the network and the cards.
#[derive(Debug)]
pub(crate) struct OwnClock {
    pub(crate) inner: Arc<SimBackend>,
    /// Rate in thousandths of that of the network.
    pub(crate) rate: u64,
}

impl Backend for OwnClock {
    fpga_pci::forward_backend!(
        inner: work_unattended, name, config_read, config_write, bars, open_bar, map_dma, unmap_dma, iova_ranges, dma_page_size,
        memory_kind, interrupt_vectors, enable_interrupts, disable_interrupts, events, reset, claim_stream, release_stream, clock, relax,
        pause, wait_interrupt, counters, timing, set_bus_master,
    );

    fn now(&self) -> u64 {
        self.inner.now() / 1000 * self.rate + self.inner.now() % 1000 * self.rate / 1000
    }
}
