//! Copies of what has arrived in card memory to host memory, in order.

use crate::address::PeerId;
use crate::card::INBOUND_BYTES;
use crate::layout::PortNumber;
use crate::operation::OperationId;
use fpga_driver::{CardAddr, Incarnation, NodeId, Ticket};
use std::collections::VecDeque;

/// Subject of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fetched {
    Hello {
        port: PortNumber,
        node: NodeId,
        incarnation: Incarnation,
    },
    Record {
        peer: PeerId,
        incarnation: Incarnation,
        offset: u64,
    },
    Chunk {
        slot: u16,
        operation: OperationId,
        part: u64,
    },
    /// The same, copied to the operation's memory.
    Direct {
        slot: u16,
        operation: OperationId,
        part: u64,
    },
}

/// One copy in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) ticket: Ticket,
    pub(crate) subject: Fetched,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    /// Position after it in the buffer.
    end: u64,
}

/// Copy that has not been started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingFetch {
    pub(crate) from: CardAddr,
    pub(crate) length: u32,
    pub(crate) subject: Fetched,
}

/// Copies in progress, and the ring of host memory that they use.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    pub(crate) waiting: VecDeque<WaitingFetch>,
    started: VecDeque<Fetch>,
    head: u64,
    tail: u64,
}

const SIZE: u64 = INBOUND_BYTES as u64;
const GRANULE: u64 = 64;

impl Inbound {
    pub(crate) fn is_idle(&self) -> bool {
        self.started.is_empty() && self.waiting.is_empty()
    }

    /// Finds space for `length` bytes; returns the offset and the position after it.
    pub(crate) fn space(&self, length: u32) -> Option<(usize, u64)> {
        let length = u64::from(length).next_multiple_of(GRANULE);
        let at = self.tail % SIZE;
        let start = if at + length > SIZE { self.tail - at + SIZE } else { self.tail };
        let end = start + length;
        if end - self.head > SIZE {
            return None;
        }
        Some((usize::try_from(start % SIZE).ok()?, end))
    }

    pub(crate) fn started(&mut self, ticket: Ticket, fetch: &WaitingFetch, (offset, end): (usize, u64)) {
        self.tail = end;
        // Direct copies use no space here.
        let length = if matches!(fetch.subject, Fetched::Direct { .. }) { 0 } else { fetch.length as usize };
        self.started.push_back(Fetch { ticket, subject: fetch.subject, offset, length, end });
    }

    pub(crate) fn oldest(&self) -> Option<&Fetch> {
        self.started.front()
    }

    /// Place of a copy that uses no space.
    pub(crate) const fn nowhere(&self) -> (usize, u64) {
        (0, self.tail)
    }

    /// Removes the oldest copy, whose data is no longer needed.
    pub(crate) fn release_oldest(&mut self) {
        if let Some(fetch) = self.started.pop_front() {
            self.head = fetch.end;
        }
        if self.started.is_empty() {
            // The start of the buffer is in the caches.
            (self.head, self.tail) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbound_space_is_contiguous_and_bounded() {
        let mut inbound = Inbound::default();
        let fetch = WaitingFetch {
            from: CardAddr::new(0),
            length: 100_000,
            subject: Fetched::Hello {
                port: PortNumber(0),
                node: NodeId::new(1),
                incarnation: Incarnation::new(1),
            },
        };
        for round in 0..1000 {
            match inbound.space(fetch.length) {
                Some(place) => {
                    assert!(place.0 + 100_000 <= INBOUND_BYTES);
                    inbound.started(Ticket::from_number(round), &fetch, place);
                }
                None => inbound.release_oldest(),
            }
        }
        assert!(inbound.oldest().is_some());
    }
}
