//! Hash of the state that determines a sender's behaviour, for exhaustive state searches.

use core::hash::{Hash, Hasher};

use super::table::{Transfer, TransferState};
use super::{Sender, TimeoutPolicy};

/// Senders with equal configuration, equal commands and equal hash behave alike from now on.
///
/// The hash excludes the flow control (searches run without it), counters and reports, the round trip samples where timeouts are fixed, and the order in which free
/// op numbers are allocated: no other party knows a free number, so any of them is equivalent.
impl Hash for Sender {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.incarnation.hash(state);
        (
            self.big_turn,
            self.big_segments_issued,
            self.last_was_regular,
            self.yielded_op_numbers,
            self.arrivals,
        )
            .hash(state);
        self.ops.hash(state);
        for (slot, transfer) in (0..).zip(&self.transfers) {
            transfer.hash(state);
            self.deadlines.deadline(slot).hash(state);
        }
        for list in [&self.announcing, &self.finished] {
            list.iter(&self.queue_links).for_each(|slot| slot.hash(state));
            list.len().hash(state);
        }
        self.segments.iter().for_each(|segment| segment.hash(state));
        self.segments.in_use().hash(state);
        let adaptive = matches!(self.retry.timeout, TimeoutPolicy::Adaptive { .. });
        for at in 0..self.destinations.used() {
            let record = self.destinations.get(at);
            for (list, links) in [
                (&record.regular, &self.queue_links),
                (&record.big, &self.queue_links),
                (&record.live, &self.live_links),
            ] {
                list.iter(links).for_each(|slot| slot.hash(state));
                list.len().hash(state);
            }
            let must_pass = record.must_pass(self.big_segments_issued);
            (record.node, record.next_id, record.in_flight, record.suspect, must_pass).hash(state);
            (record.incarnation, record.ignored).hash(state);
            if adaptive {
                (record.trip, record.sampled.first, record.sampled.latest).hash(state);
            }
        }
    }
}

impl Hash for Transfer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.generation, self.state).hash(state);
        if matches!(self.state, TransferState::Free) {
            return;
        }
        (self.class, self.destination, self.id, self.remaining, self.next_segment, self.partial).hash(state);
        (self.outstanding, self.done, self.acknowledged, self.arrival, self.big_issues_at_arrival)
            .hash(state);
        (self.progress, self.remembered, self.result.is_ok()).hash(state);
    }
}
