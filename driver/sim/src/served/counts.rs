//! Counters of a server.

use fpga_pci::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeCounts {
    /// Clients served.
    pub connections: u64,
    /// Clients that connected meanwhile and were answered that the card is busy.
    pub turned_away: u64,
    /// Messages from clients.
    pub messages: u64,
    /// Requests that were refused.
    pub refused_requests: u64,
    /// Connections that ended in the middle of a message, by a malformed header, or by a timeout.
    pub broken_connections: u64,
    /// Messages to clients that request memory that they mapped without a file.
    pub memory_messages: u64,
}

/// Number of client messages that a server has received so far, readable while it serves. Clones share the counter.
#[derive(Clone, Debug, Default)]
pub struct MessageCount(Arc<AtomicU64>);

impl MessageCount {
    /// Returns the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counters of a server, readable while it serves. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LiveServeCounts {
    counts: Arc<Mutex<ServeCounts>>,
    pub(super) messages: MessageCount,
}

impl LiveServeCounts {
    /// Returns the current counters. The requests to the connected client are included after it has disconnected.
    #[must_use]
    pub fn get(&self) -> ServeCounts {
        let counts = *lock(&self.counts);
        ServeCounts { messages: self.messages.get(), ..counts }
    }

    pub(super) fn set(&self, counts: ServeCounts) {
        *lock(&self.counts) = counts;
    }
}
