//! The instances of `fpga_xdma` in one simulation, which agree on when simulated time stands still.
//!
//! Time stands still while all of them rest. An instance that has work then begins a batch; the others let time pass, and begin theirs when
//! all rest again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use fpga_pci::lock;

use super::Ports;

static MEMBERS: Mutex<Vec<Weak<Ports>>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether there may be work, for the simulator's thread.
static RUNG: Mutex<bool> = Mutex::new(false);
static BELL: Condvar = Condvar::new();
/// An instance has called `$finish`.
static IS_FINISHED: AtomicBool = AtomicBool::new(false);

/// Adds an instance.
pub(crate) fn join(ports: &Arc<Ports>) {
    let mut members = lock(&MEMBERS);
    members.push(Arc::downgrade(ports));
    COUNT.store(members.len(), Ordering::Release);
}

/// Returns whether there are several instances.
pub(crate) fn is_shared() -> bool {
    COUNT.load(Ordering::Acquire) > 1
}

/// Returns whether `test` holds for an instance other than `own`.
fn is_any_other(own: &Ports, test: impl Fn(&Ports) -> bool) -> bool {
    let members = lock(&MEMBERS);
    let mut others =
        members.iter().filter_map(Weak::upgrade).filter(|ports| !std::ptr::eq(&raw const **ports, own));
    others.any(|ports| test(&ports))
}

/// Returns whether another instance is in a batch, except a long one: an access of it may have no response.
pub(crate) fn is_other_in_batch(own: &Ports) -> bool {
    is_shared() && is_any_other(own, |ports| !ports.is_resting() && !ports.is_batch_long())
}

/// Returns whether another instance needs time to pass.
pub(crate) fn is_other_at_work(own: &Ports) -> bool {
    is_shared() && is_any_other(own, |ports| !ports.is_resting() || ports.has_work())
}

/// Returns whether the caller calls `$finish`: a second call would end the simulator before its final blocks.
pub(crate) fn finishes() -> bool {
    !IS_FINISHED.swap(true, Ordering::Relaxed)
}

/// Wakes the simulator's thread, whichever instance it is in.
pub(crate) fn ring() {
    if is_shared() {
        *lock(&RUNG) = true;
        BELL.notify_all();
    }
}

/// Waits for [`ring`], at most `limit`.
pub(crate) fn wait(limit: Duration) {
    let rung = BELL.wait_timeout_while(lock(&RUNG), limit, |rung| !*rung);
    *rung.unwrap_or_else(PoisonError::into_inner).0 = false;
}
