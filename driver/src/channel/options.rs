//! Options of waits and of a channel's ring.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

/// Maximum sleep of a wait that can be cancelled, in nanoseconds.
const CANCEL_CHECK_NS: u64 = 10_000_000;

/// Wait mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WaitMode {
    /// Poll the completed count that the engine writes to host memory: no register access, lowest latency, one busy core.
    #[default]
    Poll,
    /// Sleep until the channel's interrupt. Requires [`Card::enable_interrupts`](crate::Card::enable_interrupts).
    Interrupt,
    /// Poll for `spin`, then sleep: short transfers have the latency of polling, long ones free the core.
    Hybrid {
        /// Time to poll before sleeping.
        spin: Duration,
    },
}

/// Request to end waits early, such as the flag that a signal handler sets. Waits see it within some milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Cancellation(Request);

#[derive(Debug, Clone, Copy)]
enum Request {
    Flag(&'static AtomicBool),
    Function(fn() -> bool),
}

impl Cancellation {
    /// Creates a cancellation: waits end as soon as `flag` is set.
    #[must_use]
    pub const fn new(flag: &'static AtomicBool) -> Self {
        Self(Request::Flag(flag))
    }

    /// Creates a cancellation: waits end as soon as `is_requested` returns true. A wait that polls calls it in its own thread after every
    /// poll without result, so it has to be quick.
    #[must_use]
    pub const fn from_function(is_requested: fn() -> bool) -> Self {
        Self(Request::Function(is_requested))
    }

    /// Maximum time that a wait with a cancellation sleeps before it looks again.
    pub const CHECK_INTERVAL: Duration = Duration::from_nanos(CANCEL_CHECK_NS);

    /// Returns whether waits are to end.
    #[must_use]
    #[inline]
    pub fn is_requested(&self) -> bool {
        match self.0 {
            Request::Flag(flag) => flag.load(Ordering::Relaxed),
            Request::Function(is_requested) => is_requested(),
        }
    }
}

impl PartialEq for Cancellation {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Request::Flag(one), Request::Flag(other)) => core::ptr::eq(one, other),
            (Request::Function(one), Request::Function(other)) => core::ptr::fn_addr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Cancellation {}

/// Options of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitOptions {
    /// Wait mode.
    pub mode: WaitMode,
    /// Maximum time of one wait, on the card's clock ([`Backend::clock`](fpga_pci::Backend::clock)). If that clock is virtual, a wait also
    /// ends after the same wall-clock time, or after a minute if that is longer.
    pub timeout: Duration,
    /// Maximum total time of all waits of one call, on the same clock, for calls that wait several times ([`bulk`](crate::bulk)). Default:
    /// no limit.
    pub total: Duration,
    /// Ends the wait with [`ChannelError::Cancelled`](crate::ChannelError::Cancelled), or `Cancelled` of the ring's error.
    /// A blocking transfer and a copy ([`bulk`](crate::bulk)) stop the engine after that, for which they wait 25 ms, or the time that the
    /// transfers need on the slowest link if that is longer: then the engine [is stopping](crate::H2cChannel::is_stopping). Default: none.
    pub cancel: Option<Cancellation>,
}

impl Default for WaitOptions {
    /// Polling, with a timeout of 10 s as in the vendor's driver.
    fn default() -> Self {
        Self { mode: WaitMode::Poll, timeout: Duration::from_secs(10), total: Duration::MAX, cancel: None }
    }
}

impl WaitOptions {
    /// Maximum sleep in nanoseconds: a cancellation does not wake a thread.
    pub(crate) fn max_sleep(&self) -> u64 {
        self.cancel.map_or(u64::MAX, |_| CANCEL_CHECK_NS)
    }
}

fpga_registers::setters! {
    impl WaitOptions {
        /// Sets the wait mode.
        mode: WaitMode;
        /// Sets the maximum time of one wait.
        timeout: Duration;
        /// Sets the maximum total time of all waits of one call.
        total: Duration;
        /// Sets the request that ends the wait early.
        cancel: Cancellation => Some;
    }
}

/// Way to keep a ring running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RunMode {
    /// Batch mode: queued transfers become one run that ends in a descriptor with the Stop bit. The next batch starts when that run has
    /// ended. Works on every card. A run costs three to five posted writes.
    #[default]
    Batch,
    /// Credit mode: one run of a circular ring whose descriptors are released by credits (PG195, descriptor credit mode). There is no pause
    /// between batches, and a batch costs one posted write. Documented, but used by few drivers: use it if `fpgactl validate` has shown
    /// that it works.
    Credit,
}

/// Options of a channel and its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// Number of descriptors in the ring: a power of two, 2 to 65536. Default 1024. Recommended: twice the transfers in flight, so that
    /// descriptors being written are not near those being fetched.
    pub descriptors: u32,
    /// Maximum number of transfers in flight: a power of two. Default 256.
    pub transfers: u32,
    /// Maximum length of a descriptor in bytes, a multiple of 4 KiB. 4096 avoids the quirk of IP builds that mishandle several blocks of
    /// longer descriptors, at the cost of one descriptor per page. Default: the maximum that the core supports.
    pub max_descriptor_length: u32,
    /// Way to keep the ring running. Default: batch mode.
    pub run_mode: RunMode,
    /// The card handles several adjacent blocks of descriptors longer than 4 KiB; default false. If false, a run that contains such a
    /// descriptor is a single block of 16.
    pub long_blocks: bool,
    /// Use the same card address for every beat, as for a FIFO behind one address (channel control bit 25). Addresses and lengths must be
    /// multiples of the data path's width. Default false.
    pub fixed_address: bool,
    /// Report every transfer as it ends, not only the last one of a batch. A waiter sees the first transfer of a long batch earlier, at the
    /// cost of one write-back per transfer. Default false.
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

fpga_registers::setters! {
    impl ChannelOptions {
        /// Sets the number of descriptors in the ring.
        descriptors: u32;
        /// Sets the maximum number of transfers in flight.
        transfers: u32;
        /// Sets the maximum length of a descriptor in bytes.
        max_descriptor_length: u32;
        /// Sets the way to keep the ring running.
        run_mode: RunMode;
        /// Sets whether the card handles several blocks of long descriptors.
        long_blocks: bool;
        /// Sets whether every beat uses the same card address.
        fixed_address: bool;
        /// Sets whether every transfer is reported as it ends.
        report_each: bool;
    }
}
