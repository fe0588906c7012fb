//! The supervisor's threads.
//!
//! One thread at a time has the turn: it receives calls and answers them. Before an answer that may take long it gives up the turn, so that
//! another thread receives the next call. A short answer costs no wake-up of a thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::completions::Completions;
use crate::device::Device;
use crate::files::Files;
use crate::listener::{Answer, Listener};
use crate::performance::Measurements;
use crate::reported::Reported;
use crate::trap::Tracer;
use crate::walk::View;

/// Number of idle threads that are kept.
const IDLE: usize = 4;

/// Answers the calls of all programs below one filter.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) listener: Listener,
    pub(crate) devices: Arc<[Device]>,
    pub(crate) files: Arc<Files>,
    pub(crate) view: View,
    pub(crate) tracer: Tracer,
    pub(crate) measurements: Measurements,
    pub(crate) completions: Completions,
    pub(crate) reported: Reported,
    turns: Mutex<()>,
    /// Threads that wait for the turn.
    idle: AtomicUsize,
}

/// When the answer to a call is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Before the channel is free for other calls.
    Now,
    /// By the caller.
    Later,
}

/// The right to receive calls.
pub(crate) struct Turn<'a> {
    supervisor: &'a Arc<Supervisor>,
    guard: Option<MutexGuard<'a, ()>>,
    /// Whether the call was answered already.
    pub(crate) has_answered: bool,
}

impl Turn<'_> {
    /// Answer with a value, unless the call was answered already.
    pub(crate) const fn answer(&self, value: u64) -> Answer {
        if self.has_answered { Answer::Sent } else { Answer::Value(value) }
    }

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

impl Supervisor {
    pub(crate) fn new(listener: Listener, devices: Arc<[Device]>) -> Arc<Self> {
        let files = Arc::new(Files::default());
        let tracer = Tracer::new(Arc::clone(&devices), Arc::clone(&files));
        let (measurements, completions, reported, turns, idle) = Default::default();
        Arc::new(Self {
            listener,
            devices,
            files,
            view: View::of_this_process(),
            tracer,
            measurements,
            completions,
            reported,
            turns,
            idle,
        })
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
            let mut turn = Turn { supervisor: self, guard: Some(mine), has_answered: false };
            let answer = self.answer(&call, &mut turn);
            // A caller that was killed needs no answer.
            let _ = self.listener.answer(&call, answer);
            guard = turn.guard.take();
        }
    }
}
