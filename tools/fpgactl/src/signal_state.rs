//! Signals received so far, and the sockets to remove at the end.

use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use fpga_driver::Cancellation;
use fpga_pci::lock;
use fpga_sim::served::SocketFile;

/// Sockets to remove before a signal ends the process.
pub(crate) static SOCKETS: Mutex<Vec<SocketFile>> = Mutex::new(Vec::new());

#[derive(Debug)]
pub(crate) struct SignalState {
    pub(crate) flag: Arc<AtomicBool>,
    /// Becomes readable at a signal. The byte is never read, so that it stays readable.
    pub(crate) signalled: PipeReader,
}

/// One per process, as signals are per process.
pub(crate) static ASKED: OnceLock<SignalState> = OnceLock::new();

/// Removes the sockets registered by [`remove_on_exit`](crate::stop::remove_on_exit), because the process ends.
pub(crate) fn remove_sockets() {
    lock(&SOCKETS).drain(..).for_each(|file| file.remove());
}

/// Returns whether the handlers are installed, so that the first signal does not end the process.
#[must_use]
pub(crate) fn is_active() -> bool {
    ASKED.get().is_some()
}

/// Returns whether a signal has arrived.
#[must_use]
pub fn is_asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.flag.load(Ordering::Relaxed))
}

/// The flag of [`is_asked`], for waits of the driver. `None` if the handlers are not installed.
#[must_use]
pub(crate) fn cancellation() -> Option<Cancellation> {
    ASKED.get().map(|asked| Cancellation::new(&asked.flag))
}

/// Descriptor that becomes readable at a signal. It is for waiting only and must not be read. `None` if the handlers are not installed.
#[must_use]
pub fn signalled() -> Option<BorrowedFd<'static>> {
    ASKED.get().map(|asked| asked.signalled.as_fd())
}
