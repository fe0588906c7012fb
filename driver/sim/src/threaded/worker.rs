//! The worker: its loop, and the handle that ends it.

use super::{Shared, ThreadOptions, WorkerState};
use crate::error::SimNetworkError;
use crate::state::State;
use fpga_pci::OsError;
use fpga_pci::lock;
use fpga_pci::wait::Contention;
use fpga_protocol::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of rounds between two reads of the clock, which takes as long as several descriptors.
const ROUNDS_PER_CLOCK_READ: u32 = 16;
/// Number of rounds between two reads of the clock while there is nothing to do and a round takes nanoseconds: a doorbell should not find
/// the worker reading the clock.
const IDLE_ROUNDS_PER_CLOCK_READ: u32 = 64;
/// Time without work after which the CPU is yielded to other threads in between: the work that is waited for may depend on them. A driver
/// that uses a card in a loop issues its next access well before, and does not pay for this.
const YIELD_AFTER: Nanos = Nanos::from_micros(10);
/// Maximum sleep. Correctness does not depend on it: tests, which would otherwise not notice a lost wake-up, do without.
const SLEEP: Duration = if cfg!(test) { Duration::MAX } else { Duration::from_millis(1) };

/// Time between two looks for work that other threads have not done ([`ThreadOptions::attended`]).
const ATTENDED_SLEEP: Duration = Duration::from_millis(10);

/// Maximum sleep of a simulated network with a link: arriving datagrams do not wake the thread.
const LINK_SLEEP: Duration = Duration::from_micros(100);

/// Joins the thread when the last handle of the simulated network is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread of `shared`, if there is to be one.
    pub(crate) fn start(shared: &Arc<Shared>, options: ThreadOptions) -> Result<Self, SimNetworkError> {
        let (ready, answer) = sync_channel(1);
        let theirs = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("fpga-sim".into()).spawn(move || {
            let pinned = options.cpu.map_or(Ok(()), pin);
            let is_pinned = pinned.is_ok();
            let _ = ready.send(pinned);
            if let Some(threaded) = theirs.threaded.as_ref().filter(|_| is_pinned) {
                run(&theirs, threaded, options.spin);
            }
        });
        let thread = thread.map_err(|error| SimNetworkError::Thread { source: error.into() })?;
        #[cfg(not(loom))]
        if let Some(threaded) = &shared.threaded {
            threaded.gate.set_worker(thread.thread().clone());
        }
        let worker = Self { shared: Arc::clone(shared), thread: Some(thread) };
        // A thread that ends without an answer is noticed where its work is waited for.
        answer.recv().unwrap_or(Ok(()))?;
        Ok(worker)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // The thread is the parent's.
            core::mem::forget(self.thread.take());
            return;
        }
        if let Some(threaded) = &self.shared.threaded {
            threaded.gate.stop();
        }
        if let Some(thread) = self.thread.take()
            // The last handle may have been kept by an object that only the simulated network itself owned, such as an access log.
            && thread.thread().id() != std::thread::current().id()
        {
            // A card's panic was reported when it occurred.
            let _ = thread.join();
        }
    }
}

fn pin(cpu: usize) -> Result<(), SimNetworkError> {
    let refused = |source: OsError| SimNetworkError::Affinity { cpu, source };
    if cpu >= CpuSet::MAX_CPU {
        return Err(refused(rustix::io::Errno::INVAL.into()));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| refused(errno.into()))
}

/// Marks the worker as ended when dropped, also by a panic.
struct WorkerGuard<'a>(&'a WorkerState);

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.0.gate.set_dead();
    }
}

fn run(shared: &Shared, threaded: &WorkerState, spin: Duration) {
    let _alive = WorkerGuard(threaded);
    let lock = || lock(&shared.state);
    let gate = &threaded.gate;
    let spin = if threaded.is_attended() { Nanos::ZERO } else { Nanos::from(spin) };
    let mut state = lock();
    let mut served = gate.served();
    // No work remained, and only a write, a thread with the lock or the passage of time can change that.
    let mut quiet = false;
    let mut until_look = 0;
    let single = threaded.single_cpu;
    // With a single CPU, threads that produce work for the cards need it.
    let courtesy = if single { Nanos::ZERO } else { YIELD_AFTER };
    let mut contention = Contention::new();
    // Time of the last work, as of the last read of the clock.
    let mut worked = Nanos::ZERO;
    loop {
        if gate.asked() != served {
            if gate.is_stopping() {
                return;
            }
            drop(state);
            state = gate.reacquire(lock);
            served = gate.served();
            quiet = false;
        }
        let looked = until_look == 0;
        if looked {
            until_look = if quiet { IDLE_ROUNDS_PER_CLOCK_READ } else { ROUNDS_PER_CLOCK_READ };
            state.now = state.now.max(threaded.elapsed());
        }
        until_look -= 1;
        let applied = threaded.apply(&mut state);
        if quiet && applied == 0 && !looked {
            gate.worker_idle();
            continue;
        }
        if state.burst() + applied != 0 {
            quiet = false;
            until_look = until_look.min(ROUNDS_PER_CLOCK_READ);
            worked = state.now;
            continue;
        }
        quiet = true;
        gate.worker_idle();
        // Only with the current time is it certain that no timer is due.
        if looked && (contention.is_contended() || state.now.saturating_sub(worked) >= spin) {
            contention.slept();
            let woken;
            (state, woken) = sleep(threaded, state, lock);
            served = gate.served();
            quiet = false;
            until_look = 0;
            if woken {
                worked = threaded.elapsed();
            }
        } else if looked && state.now.saturating_sub(worked) >= courtesy {
            drop(state);
            let before = Instant::now();
            std::thread::yield_now();
            if !single {
                contention.yielded(before.elapsed());
            }
            state = lock();
            served = gate.served();
            // Another thread may have had the lock.
            quiet = false;
            until_look = 0;
        } else if spin == Nanos::ZERO {
            until_look = 0;
        }
    }
}

/// Sleeps until there is something to do, or a timeout has passed: the flag tells which. The caller has just found nothing to do in
/// `state`.
fn sleep<'a>(
    threaded: &WorkerState,
    state: MutexGuard<'a, State>,
    lock: impl FnOnce() -> MutexGuard<'a, State>,
) -> (MutexGuard<'a, State>, bool) {
    let now = state.now;
    // A deadline in the past that causes no work is not waited for.
    let timeout = state
        .next_deadline()
        .filter(|deadline| *deadline > now)
        .map_or(SLEEP, |deadline| Duration::from(deadline.saturating_sub(now)).min(SLEEP));
    let timeout = if threaded.is_attended() { timeout.min(ATTENDED_SLEEP) } else { timeout };
    let timeout = if state.link.is_some() { timeout.min(LINK_SLEEP) } else { timeout };
    let taken = state.taken();
    threaded.gate.prepare_to_sleep();
    drop(state);
    let woken = threaded.gate.park(timeout, || threaded.tickets() == taken);
    (lock(), woken)
}
