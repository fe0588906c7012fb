//! The supervisor's threads.
//!
//! One thread at a time has the turn: it receives calls and answers them. Before an answer that may take long it gives up the turn, so that
//! another thread receives the next call. A short answer costs no wake-up of a thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::device::Device;
use crate::dma::Channel;
use crate::files::Files;
use crate::listener::Listener;
use crate::performance::Measurements;
use crate::trap::Tracer;

/// Number of idle threads that are kept.
const IDLE: usize = 4;

/// Answers the calls of all programs below one filter.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) listener: Listener,
    pub(crate) devices: Arc<[Device]>,
    pub(crate) files: Arc<Files>,
    pub(crate) tracer: Tracer,
    pub(crate) measurements: Measurements,
    turns: Mutex<()>,
    /// Threads that wait for the turn.
    idle: AtomicUsize,
}

/// The right to receive calls.
pub(crate) struct Turn<'a> {
    supervisor: &'a Arc<Supervisor>,
    guard: Option<MutexGuard<'a, ()>>,
}

impl Turn<'_> {
    /// Lets another thread receive calls. Called before a wait.
    pub(crate) fn give_up(&mut self) {
        if self.guard.take().is_some() && self.supervisor.idle.load(Ordering::Relaxed) == 0 {
            let supervisor = Arc::clone(self.supervisor);
            let started = std::thread::Builder::new()
                .name("supervisor".to_owned())
                .spawn(move || supervisor.serve(false));
            if let Err(error) = started {
                tracing::warn!(%error, "no further thread: calls wait for a transfer");
            }
        }
    }
}

/// Takes a channel's lock, and gives up the turn if it has to wait for it. A thread that panicked with it leaves a usable channel.
pub(crate) fn lock<'a>(channel: &'a Mutex<Channel>, turn: &mut Turn<'_>) -> MutexGuard<'a, Channel> {
    match channel.try_lock() {
        Ok(channel) => channel,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            turn.give_up();
            channel.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

impl Supervisor {
    pub(crate) fn new(listener: Listener, devices: Arc<[Device]>) -> Arc<Self> {
        let files = Arc::new(Files::default());
        let tracer = Tracer::new(Arc::clone(&devices), Arc::clone(&files));
        let (measurements, turns, idle) = Default::default();
        Arc::new(Self { listener, devices, files, tracer, measurements, turns, idle })
    }

    /// Answers calls until no program remains. A thread that is not the `first` also ends if there are enough.
    pub(crate) fn serve(self: &Arc<Self>, first: bool) {
        let mut guard = None;
        loop {
            let mine = match guard.take() {
                Some(guard) => guard,
                None => {
                    if self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE && !first {
                        self.idle.fetch_sub(1, Ordering::Relaxed);
                        return;
                    }
                    let turn = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
                    self.idle.fetch_sub(1, Ordering::Relaxed);
                    turn
                }
            };
            let Some(call) = self.listener.next() else { return };
            let mut turn = Turn { supervisor: self, guard: Some(mine) };
            let answer = self.answer(&call, &mut turn);
            self.listener.answer(&call, answer);
            guard = turn.guard.take();
        }
    }
}
