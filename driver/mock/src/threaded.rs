//! A world in a thread of its own.
//!
//! The worker holds the state's lock while it works and hands it over when somebody asks: everything but posted writes
//! goes through the lock, so a mapping that was taken away is not used any more, and a register read sees the writes
//! before it. Posted writes go through a queue that the worker looks at between two bursts of work.

use crate::posted::{Posted, Write};
use crate::world::{CardFailure, Shared, State};
use crossbeam::utils::CachePadded;
use fpga_core::time::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Units of work of one card before the worker looks at what others want.
const BURST: u32 = 128;
/// Frames delivered before that.
const FRAMES: u32 = 32;
/// Bursts between two looks at the clock.
const CLOCK_EVERY: u32 = 16;
/// The longest sleep of a worker that has nothing to do.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// How a world runs in a thread of its own; see [`WorldBuilder::threaded`](crate::WorldBuilder::threaded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadOptions {
    /// The processor that the thread is bound to; `None`: wherever the system puts it.
    pub cpu: Option<usize>,
    /// How long the thread looks for work before it sleeps. Waking it takes some microseconds.
    pub spin: Duration,
}

impl Default for ThreadOptions {
    /// Not bound, 50 µs.
    fn default() -> Self {
        Self { cpu: None, spin: Duration::from_micros(50) }
    }
}

impl ThreadOptions {
    /// Binds the thread to processor `cpu`.
    #[must_use]
    pub const fn pin(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Looks for work for so long before sleeping.
    #[must_use]
    pub const fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }
}

/// What others use to reach the worker.
#[derive(Debug)]
pub(crate) struct Door {
    /// Threads that want the lock.
    waiting: CachePadded<AtomicU32>,
    /// The worker sleeps, or is about to.
    parked: CachePadded<AtomicBool>,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
    began: Instant,
    pub(crate) cards: Box<[CardDoor]>,
}

/// One card's.
#[derive(Debug)]
pub(crate) struct CardDoor {
    posted: Posted,
    /// As the slot's: counts resets.
    pub(crate) generation: AtomicU32,
}

impl Door {
    pub(crate) fn new(cards: usize) -> Self {
        let door = || CardDoor { posted: Posted::new(), generation: AtomicU32::new(0) };
        Self {
            waiting: CachePadded::new(AtomicU32::new(0)),
            parked: CachePadded::new(AtomicBool::new(false)),
            stop: AtomicBool::new(false),
            thread: OnceLock::new(),
            began: Instant::now(),
            cards: std::iter::repeat_with(door).take(cards).collect(),
        }
    }

    /// Time since the world was made.
    pub(crate) fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Posts a register write.
    pub(crate) fn post(&self, card: &CardDoor, write: Write) {
        card.posted.push(write, || {
            self.wake();
            std::thread::yield_now();
            !self.stop.load(Ordering::Relaxed)
        });
        self.wake();
    }

    /// Wakes the worker if it sleeps. Between this thread's store (a posted write, a request) and the look at `parked` there is a
    /// full barrier, as there is between the worker's store to `parked` and its last look at the queues: one of the two
    /// sees the other.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed)
            && self.parked.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Takes the lock from the worker.
    pub(crate) fn lock<'a>(&self, state: &'a Mutex<State>) -> MutexGuard<'a, State> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        guard.now = self.now();
        self.apply_all(&mut guard);
        guard
    }

    /// Applies every write posted before now: whoever has the lock must not overtake them.
    fn apply_all(&self, state: &mut State) {
        for (number, card) in self.cards.iter().enumerate() {
            let issued = card.posted.issued();
            while state.slots.get(number).is_some_and(|slot| !Posted::is_past(&slot.posted, issued)) {
                if !self.apply(state, number, card) {
                    // A writer has its slot and is about to fill it.
                    std::hint::spin_loop();
                    if self.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Applies what has arrived for one card; false if there was nothing.
    #[inline]
    fn apply(&self, state: &mut State, number: usize, card: &CardDoor) -> bool {
        let Some(slot) = state.slots.get_mut(number) else { return false };
        let mut any = false;
        while let Some(write) = card.posted.pop(&mut slot.posted) {
            any = true;
            // Posted before a reset, or to a card that has left: lost, and nobody learns of it.
            if slot.failure == CardFailure::None && slot.generation == write.generation {
                slot.card.bar_write(write.bar, write.offset, &write.value.to_le_bytes(), &mut slot.host);
            }
        }
        any
    }

    fn nothing_posted(&self, state: &State) -> bool {
        let mut cards = self.cards.iter().zip(&state.slots);
        cards.all(|(card, slot)| Posted::is_past(&slot.posted, card.posted.issued()))
    }
}

/// The worker's thread; it ends with the last handle of the world.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(shared: &Arc<Shared>, options: ThreadOptions) -> Result<Self, StartError> {
        let (ready, started) = crossbeam::channel::bounded(1);
        let world = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("simulated card".to_owned())
            .spawn(move || {
                let pinned = options.cpu.map_or(Ok(()), pin);
                let failed = pinned.is_err();
                let _ = ready.send(pinned);
                if !failed && let Some(door) = &world.door {
                    let _ = door.thread.set(std::thread::current());
                    run(&world, door, options.spin);
                }
            })
            .map_err(StartError::Thread)?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { shared: Arc::clone(shared), thread: Mutex::new(Some(thread)) }),
            Ok(Err(source)) => Err(StartError::Pin { cpu: options.cpu.unwrap_or(0), source }),
            Err(_) => Err(StartError::Thread(std::io::Error::other("the thread ended at once"))),
        }
    }
}

/// Why the thread cannot run.
#[derive(Debug)]
pub(crate) enum StartError {
    Thread(std::io::Error),
    Pin { cpu: usize, source: std::io::Error },
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(door) = &self.shared.door {
            door.stop.store(true, Ordering::SeqCst);
            door.wake();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may have been held by something that the worker itself drops.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, door: &Door, spin: Duration) {
    let lock = || shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut state = lock();
    let mut bursts = 0_u32;
    let mut idle_since: Option<Nanos> = None;
    while !door.stop.load(Ordering::Relaxed) {
        if door.waiting.load(Ordering::Relaxed) != 0 {
            drop(state);
            while door.waiting.load(Ordering::Acquire) != 0 && !door.stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            state = lock();
            idle_since = None;
        }
        let mut worked = false;
        for (number, card) in door.cards.iter().enumerate() {
            worked |= door.apply(&mut state, number, card);
        }
        worked |= state.burst(BURST, FRAMES);
        bursts = bursts.wrapping_add(1);
        if worked {
            idle_since = None;
            if bursts.is_multiple_of(CLOCK_EVERY) {
                state.now = door.now();
            }
            continue;
        }
        std::hint::spin_loop();
        if !bursts.is_multiple_of(CLOCK_EVERY) {
            continue;
        }
        let now = door.now();
        state.now = now;
        let since = *idle_since.get_or_insert(now);
        if Duration::from_nanos(now.get().saturating_sub(since.get())) < spin {
            continue;
        }
        door.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if door.nothing_posted(&state) && !door.stop.load(Ordering::Relaxed) {
            let until = state.next_deadline().map_or(LONGEST_SLEEP, |deadline| {
                Duration::from_nanos(deadline.get().saturating_sub(now.get())).min(LONGEST_SLEEP)
            });
            drop(state);
            std::thread::park_timeout(until);
            state = lock();
            state.now = door.now();
        }
        door.parked.store(false, Ordering::Relaxed);
        idle_since = None;
    }
}
