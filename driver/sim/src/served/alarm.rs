//! Alarm of a server: another thread worked on the network while the server sleeps, and a timer expires before its sleep ends.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fpga_pci::{Interrupt, InterruptError, InterruptTrigger};
use fpga_protocol::time::Nanos;

/// Clock of a server, and its alarm.
#[derive(Debug)]
pub(crate) struct ServerAlarm {
    began: Instant,
    base: Nanos,
    /// Deadline that the server knows; the maximum without one. Changed with the network's lock held.
    until: AtomicU64,
    signal: (Interrupt, InterruptTrigger),
}

impl ServerAlarm {
    /// The alarm of a server that begins at `base` of the network's time.
    pub(super) fn new(base: Nanos) -> Result<Self, InterruptError> {
        let until = AtomicU64::new(u64::MAX);
        Ok(Self { began: Instant::now(), base, until, signal: Interrupt::pair()? })
    }

    /// Time of the network.
    pub(crate) fn now(&self) -> Nanos {
        self.base.saturating_add(Nanos::from(self.began.elapsed()))
    }

    /// Notes that the server sleeps until `deadline`.
    pub(crate) fn sleeps_until(&self, deadline: Option<Nanos>) {
        self.until.store(deadline.map_or(u64::MAX, Nanos::get), Ordering::Relaxed);
    }

    /// Wakes the server if it sleeps beyond `deadline`.
    pub(crate) fn wake_before(&self, deadline: Nanos) {
        if self.until.fetch_min(deadline.get(), Ordering::Relaxed) > deadline.get() {
            self.signal.1.signal();
        }
    }

    /// Takes the signal.
    pub(super) fn take(&self) {
        let _ = self.signal.0.try_take();
    }

    /// Readable after a signal.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.0.as_fd()
    }
}
