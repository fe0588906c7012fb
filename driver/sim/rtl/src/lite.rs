//! The AXI4-Lite master: register accesses in the order in which the host makes them.

use std::collections::{BTreeMap, VecDeque};

/// Accesses that may wait: beyond it, writes are no longer posted.
const POSTED: usize = 32;

/// A register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiteAccess {
    /// Byte offset in the user BAR.
    pub(crate) at: u64,
    /// Value to write; `None` reads.
    pub(crate) value: Option<u32>,
    /// Bytes to write (WSTRB).
    pub(crate) strobes: u8,
}

/// WSTRB of a whole register.
pub(crate) const WHOLE: u8 = 0b1111;

#[derive(Debug)]
struct Queued {
    ticket: u64,
    access: LiteAccess,
    /// Cycles after which the host is answered in any case.
    limit: Option<u64>,
    /// Cycle at which the access was admitted.
    since: Option<u64>,
    /// The host has its answer.
    is_answered: bool,
    /// The host's program has gone.
    is_abandoned: bool,
}

/// State of the master.
#[derive(Debug, Default)]
pub(crate) struct Lite {
    queue: VecDeque<Queued>,
    /// The first access of the queue is on the bus.
    is_on_bus: bool,
    /// Answers of this cycle, which the host does not see yet.
    fresh: Vec<(u64, u32)>,
    answers: BTreeMap<u64, u32>,
    next: u64,
    /// Responses whose requester had gone.
    dropped: u64,
}

impl Lite {
    /// Queues an access. The host is answered when it is over, or `limit` cycles after it was admitted. Returns its ticket.
    pub(crate) fn begin(&mut self, access: LiteAccess, limit: Option<u64>) -> u64 {
        let ticket = self.next;
        self.next += 1;
        let limit = limit.filter(|_| access.value.is_none() || self.queue.len() < POSTED);
        self.queue.push_back(Queued {
            ticket,
            access,
            limit,
            since: None,
            is_answered: false,
            is_abandoned: false,
        });
        ticket
    }

    /// Takes the answer: data of a read.
    pub(crate) fn answer(&mut self, ticket: u64) -> Option<u32> {
        self.answers.remove(&ticket)
    }

    /// Abandons an access: its requester waits no longer. The access stays on the bus, as after a completion timeout of PCIe: a response is
    /// dropped.
    pub(crate) fn abandon(&mut self, ticket: u64) {
        self.answers.remove(&ticket);
        self.fresh.retain(|(answered, _)| *answered != ticket);
        if let Some(queued) = self.queue.iter_mut().find(|queued| queued.ticket == ticket) {
            (queued.is_answered, queued.is_abandoned) = (true, true);
            tracing::warn!(
                "m_axil: the client has disconnected without the response to {:x?}",
                queued.access
            );
        }
    }

    /// Ends the wait for an access, which stays on the bus: a response is dropped.
    pub(crate) fn give_up(&mut self, ticket: u64) {
        self.fresh.retain(|(answered, _)| *answered != ticket);
        if let Some(queued) = self.queue.iter_mut().find(|queued| queued.ticket == ticket) {
            queued.is_answered = true;
        }
    }

    /// Admits all accesses at cycle `now`.
    pub(crate) fn admit(&mut self, now: u64) {
        for queued in &mut self.queue {
            queued.since.get_or_insert(now);
        }
    }

    pub(crate) fn has_unadmitted(&self) -> bool {
        self.queue.iter().any(|queued| queued.since.is_none())
    }

    /// Returns whether an admitted access is not over.
    pub(crate) fn is_active(&self) -> bool {
        self.queue.iter().any(|queued| queued.since.is_some())
    }

    /// The access that is on the bus.
    pub(crate) fn in_progress(&self) -> Option<LiteAccess> {
        self.queue.front().filter(|_| self.is_on_bus).map(|queued| queued.access)
    }

    /// Lets the host see the answers so far. Returns whether there were any.
    pub(crate) fn publish(&mut self) -> bool {
        let any = !self.fresh.is_empty();
        self.answers.extend(self.fresh.drain(..));
        any
    }

    /// Answers accesses whose limit is over at cycle `now`. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        let mut any = false;
        for queued in self.queue.iter_mut().filter(|queued| !queued.is_answered) {
            if let (Some(limit), Some(since)) = (queued.limit, queued.since)
                && now.saturating_sub(since) >= limit
            {
                queued.is_answered = true;
                self.answers.insert(queued.ticket, u32::MAX);
                any = true;
            }
        }
        any
    }

    /// Returns whether an access can go to the bus.
    pub(crate) fn has_access(&self) -> bool {
        !self.is_on_bus && self.is_active()
    }

    /// Takes the next access to the bus.
    pub(crate) fn take(&mut self) -> Option<LiteAccess> {
        if !self.has_access() {
            return None;
        }
        self.is_on_bus = true;
        tracing::debug!("m_axil: {:?}", self.queue.front());
        self.queue.front().map(|queued| queued.access)
    }

    /// Handles the response to the access on the bus. Read data of an error response are all ones. Returns `false` if there is no access.
    pub(crate) fn respond(&mut self, data: u32, code: u32) -> bool {
        let Some(queued) = self.queue.front().filter(|_| self.is_on_bus) else { return false };
        if queued.is_abandoned {
            self.dropped += 1;
            let (dropped, access) = (self.dropped, queued.access);
            tracing::warn!(dropped, "m_axil: late response to {access:x?}, whose client has disconnected");
        }
        if !queued.is_answered {
            let is_error = crate::bus::response(code).is_err();
            self.fresh.push((queued.ticket, if is_error { u32::MAX } else { data }));
        }
        self.is_on_bus = false;
        self.queue.pop_front();
        true
    }

    /// Drops the accesses; the host reads all ones.
    pub(crate) fn reset(&mut self) {
        self.is_on_bus = false;
        for queued in self.queue.drain(..).filter(|queued| !queued.is_answered) {
            self.answers.insert(queued.ticket, u32::MAX);
        }
    }
}
