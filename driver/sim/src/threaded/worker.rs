//! The worker: its loop, and the handle that ends it.

use super::{Shared, ThreadOptions, WorkerState};
use crate::network::SimNetworkError;
use crate::state::State;
use fpga_pci::OsError;
use fpga_pci::wait::Contention;
use fpga_protocol::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rounds between two looks at the clock, which takes as long as several descriptors.
const ROUNDS_PER_CLOCK_READ: u32 = 16;
/// The same while there is nothing to do, and a round takes nanoseconds: a doorbell is not to find the worker at the clock.
const IDLE_ROUNDS_PER_CLOCK_READ: u32 = 64;
/// After so long without work others who wait for this CPU get it in between: what they would do may be what is waited for here. Whoever
/// drives a card in a loop is back long before, and does not pay for it.
const YIELD_AFTER: Nanos = Nanos::from_micros(10);
/// Longest sleep. Nothing rests on it: tests, which would not notice a wake-up that is lost, do without.
const SLEEP: Duration = if cfg!(test) { Duration::MAX } else { Duration::from_millis(1) };

/// Longest sleep of a world with a link: nobody wakes the thread for what arrives there.
const LINK_SLEEP: Duration = Duration::from_micros(100);

/// Joins the thread when the last handle of the world goes.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread of `shared`, if it is to have one.
    pub(crate) fn start(shared: &Arc<Shared>, options: ThreadOptions) -> Result<Self, SimNetworkError> {
        let (ready, answer) = sync_channel(1);
        let theirs = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("fpga-world".into()).spawn(move || {
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
        // A thread that ends without an answer is noticed where work is waited for.
        answer.recv().unwrap_or(Ok(()))?;
        Ok(worker)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(threaded) = &self.shared.threaded {
            threaded.gate.stop();
        }
        if let Some(thread) = self.thread.take()
            // The last handle may have been kept by something that only the world itself had, such as an access log.
            && thread.thread().id() != std::thread::current().id()
        {
            // If a card panicked, that was reported when it did.
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

/// Says that the worker is gone, however it goes.
struct WorkerGuard<'a>(&'a WorkerState);

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.0.gate.set_dead();
    }
}

fn run(shared: &Shared, threaded: &WorkerState, spin: Duration) {
    let _alive = WorkerGuard(threaded);
    let lock = || shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = &threaded.gate;
    let spin = Nanos::new(u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX));
    let mut state = lock();
    let mut served = gate.served();
    // Nothing was left to do, and only a write, somebody with the lock or time can change that.
    let mut quiet = false;
    let mut until_look = 0;
    let single = threaded.single_cpu;
    // Whoever has something to do for the cards needs this CPU, if it is the only one.
    let courtesy = if single { Nanos::ZERO } else { YIELD_AFTER };
    let mut contention = Contention::new();
    // When there was work last, as far as the clock was looked at.
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
        // Only with the time of now can timers be said to have nothing to do.
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
            // Somebody may have had the lock.
            quiet = false;
            until_look = 0;
        } else if spin == Nanos::ZERO {
            until_look = 0;
        }
    }
}

/// Sleeps until there is something to do, or some time has passed: the flag says which. What `state` protects was found
/// to have nothing to do just now.
fn sleep<'a>(
    threaded: &WorkerState,
    state: MutexGuard<'a, State>,
    lock: impl FnOnce() -> MutexGuard<'a, State>,
) -> (MutexGuard<'a, State>, bool) {
    let now = state.now;
    // A deadline in the past that brings no work is nothing to wait for.
    let timeout = state
        .next_deadline()
        .filter(|deadline| *deadline > now)
        .map_or(SLEEP, |deadline| Duration::from_nanos(deadline.saturating_sub(now).get()).min(SLEEP));
    let timeout = if state.link.is_some() { timeout.min(LINK_SLEEP) } else { timeout };
    let taken = state.taken();
    threaded.gate.prepare_to_sleep();
    drop(state);
    let woken = threaded.gate.park(timeout, || threaded.tickets() == taken);
    (lock(), woken)
}
