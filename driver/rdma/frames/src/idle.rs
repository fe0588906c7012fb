//! Backoff of polling loops that find nothing.

use std::time::Duration;

use fpga_pci::Backoff;
use fpga_rdma::Endpoint;

/// Maximum sleep between two polls. An idle stream costs little CPU time, and a frame is delayed by at most this time.
const MAX_SLEEP: Duration = Duration::from_micros(50);

/// Time after which a loop sleeps between two polls; transfers in flight through a card have completed by then.
const SLEEP_AFTER_NS: u64 = 100_000;

/// Backoff of one loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleBackoff(Backoff);

impl Default for IdleBackoff {
    fn default() -> Self {
        Self(Backoff::new().sleep_after(SLEEP_AFTER_NS).max_sleep(MAX_SLEEP))
    }
}

impl IdleBackoff {
    /// Records that a poll has handled `work` items.
    pub(crate) const fn record_work(&mut self, work: usize) {
        if work > 0 {
            self.0.reset();
        }
    }

    pub(crate) fn back_off(&mut self, endpoint: &Endpoint) {
        endpoint.card().back_off(&mut self.0);
    }
}
