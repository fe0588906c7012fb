//! How to wait, and the shape of a channel's ring.

use core::time::Duration;

use crate::setters::setters;

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WaitMode {
    /// Read the completed count that the engine writes to host memory: no register access, lowest latency, one busy core.
    #[default]
    Poll,
    /// Sleep until the channel's interrupt. Needs [`Card::enable_interrupts`](crate::Card::enable_interrupts).
    Interrupt,
    /// Poll for `spin`, then sleep: short transfers are as fast as by polling, long ones free the core.
    Hybrid {
        /// How long to poll.
        spin: Duration,
    },
}

/// Options of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitOptions {
    /// How to wait.
    pub mode: WaitMode,
    /// How long at most, on the card's clock ([`Backend::clock`](fpga_pci::Backend::clock)). Where that clock is virtual, a wait ends
    /// as well after the same wall-clock time, or a minute if that is longer.
    pub timeout: Duration,
    /// How long all waits of one call may take together, on the same clock: for calls that wait several times ([`bulk`](crate::bulk)).
    /// Default: no limit.
    pub total: Duration,
}

impl Default for WaitOptions {
    /// Polling, 10 s: the limit that users of the vendor's driver know.
    fn default() -> Self {
        Self { mode: WaitMode::Poll, timeout: Duration::from_secs(10), total: Duration::MAX }
    }
}

impl WaitOptions {
    /// Waits by `mode`.
    #[must_use]
    pub const fn mode(mut self, mode: WaitMode) -> Self {
        self.mode = mode;
        self
    }

    /// Waits at most `timeout`.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits all waits of one call together to `total`.
    #[must_use]
    pub const fn total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }
}

/// How a ring is kept running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RunMode {
    /// What has queued up becomes one run that ends in a Stop descriptor; the next one starts when it is done. Every card can
    /// do it; a run costs three to five posted writes.
    #[default]
    Batch,
    /// One endless run whose descriptors are released by credits (PG195, descriptor credit mode): no pause between batches,
    /// one posted write each. Documented, but used by few drivers: take it where `fpgactl validate` has shown that it works.
    Credit,
}

/// Shape of a channel's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// Descriptors in the ring: a power of two, 2 to 65536. Default 1024. Twice the transfers in flight is a good number: what
    /// is being queued then lies apart from what is being fetched.
    pub descriptors: u32,
    /// Transfers in flight at most: a power of two. Default 256.
    pub transfers: u32,
    /// Longest descriptor in bytes, a multiple of 4 KiB. 4096 avoids the quirk of IP builds that mishandle several blocks
    /// of longer ones, at the price of one descriptor per page. Default: the longest there is.
    pub max_descriptor_length: u32,
    /// How the ring is kept running. Default: stop runs.
    pub run_mode: RunMode,
    /// The card is known to handle several adjacent blocks of descriptors above 4 KiB; default false. Without this a run that
    /// contains one is a single block of 16.
    pub long_blocks: bool,
    /// Every descriptor names the same card address, as for a FIFO behind one address (channel control bit 25). Addresses and
    /// lengths must be multiples of the data path's width. Default false.
    pub fixed_address: bool,
    /// Report every transfer as it ends, not only the last of a batch: a waiter sees the first transfer of a long batch
    /// earlier, at one write-back each. Default false.
    pub report_each: bool,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            descriptors: 1024,
            transfers: 256,
            max_descriptor_length: fpga_ring::ring::MAX_DESCRIPTOR_LENGTH,
            run_mode: RunMode::Batch,
            long_blocks: false,
            fixed_address: false,
            report_each: false,
        }
    }
}

setters! {
    impl ChannelOptions {
        /// A ring of so many descriptors.
        descriptors: u32;
        /// At most so many transfers in flight.
        transfers: u32;
        /// Descriptors of at most so many bytes.
        max_descriptor_length: u32;
        /// Keeps the ring running this way.
        run_mode: RunMode;
        /// Whether the card is known to handle several blocks of long descriptors.
        long_blocks: bool;
        /// Whether the card address stays the same.
        fixed_address: bool;
        /// Whether every transfer reports.
        report_each: bool;
    }
}
