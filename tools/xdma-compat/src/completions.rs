//! Events of asynchronous requests that no program has received yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of `struct io_event` (`linux/aio_abi.h`).
pub(crate) const EVENT_BYTES: usize = 32;

pub(crate) type Event = [u8; EVENT_BYTES];

/// Context of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Context {
    pub(crate) process: u32,
    pub(crate) number: u64,
}

/// Events that no program has received yet.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    events: Mutex<HashMap<Context, VecDeque<Event>>>,
    added: Condvar,
}

impl Completions {
    /// Adds an event.
    pub(crate) fn add(&self, context: Context, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.entry(context).or_default().push_back(event);
        self.added.notify_all();
    }

    /// Whether a context ever had events.
    pub(crate) fn has(&self, context: Context) -> bool {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&context)
    }

    /// Takes the oldest events of a context.
    pub(crate) fn take(&self, context: Context, most: u64) -> Vec<Event> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = events.get_mut(&context) else { return Vec::new() };
        let count = queue.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        queue.drain(..count).collect()
    }

    /// Puts events back that no program received.
    pub(crate) fn put_back(&self, context: Context, taken: Vec<Event>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = events.entry(context).or_default();
        taken.into_iter().rev().for_each(|event| queue.push_front(event));
    }

    /// Removes a context.
    pub(crate) fn remove(&self, context: Context) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).remove(&context);
    }

    /// Waits until an event is added, at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.added.wait_timeout(events, limit));
    }
}
