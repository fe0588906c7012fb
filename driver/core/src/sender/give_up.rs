//! Timeouts, refusals and cancellation: how a transfer ends without success.

use fpga_firmware::event::NackReason;

use super::table::TransferState;
use super::{Sender, Ticket, TransferError};
use crate::cast::{index, low16};
use crate::op_table::Op;
use crate::segment::{Class, packet_span};
use crate::time::Nanos;

impl Sender {
    /// When to call [`Sender::handle_timeout`] next; `None` if no timer runs. It may be early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let ops = self.ops.next_deadline().unwrap_or(Nanos::MAX);
        ops.min(self.next_deadline).as_timer()
    }

    /// Looks at every timer that has run out: an unanswered packet is sent again or, after too many tries, its transfer
    /// is given up; so is a transfer whose own deadline has passed.
    pub fn handle_timeout(&mut self, now: Nanos) {
        while let Some(op) = self.ops.expired(now) {
            self.counters.timeouts += 1;
            let owner = self.segments.get(op.segment).transfer;
            if self.retry.is_hopeless(op.silent.saturating_add(1)) {
                let error = self.unanswered(&op);
                self.give_up(now, owner, error);
            } else {
                self.ops.resend(op.number, true);
            }
            let destination = self.transfers[index(owner)].destination;
            self.destinations.get_mut(destination).suspect =
                self.destinations.get(destination).in_flight != 0;
        }
        if self.next_deadline <= now {
            self.pass_deadlines(now);
        }
    }

    /// Withdraws a transfer; its completion says so. Returns whether the ticket named one that had not ended.
    pub fn cancel(&mut self, now: Nanos, ticket: Ticket) -> bool {
        let Some(transfer) = self.transfers.get(index(ticket.slot)) else { return false };
        if transfer.generation != ticket.generation
            || matches!(transfer.state, TransferState::Free | TransferState::Finished)
        {
            return false;
        }
        let error = TransferError::Cancelled {
            node: transfer.command.node,
            address: transfer.command.destination,
            acknowledged: transfer.acknowledged,
        };
        self.give_up(now, ticket.slot, error);
        true
    }

    fn pass_deadlines(&mut self, now: Nanos) {
        let mut next = Nanos::MAX;
        for slot in 0..self.config.transfers {
            let transfer = &self.transfers[index(slot)];
            let Some(deadline) = transfer.command.deadline else { continue };
            if matches!(transfer.state, TransferState::Free | TransferState::Finished) {
                continue;
            }
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            let tries = self.entries_of(slot).map(|op| op.tries).max().unwrap_or(0);
            let error = TransferError::Deadline {
                node: transfer.command.node,
                address: transfer.command.destination,
                acknowledged: transfer.acknowledged,
                tries,
            };
            self.give_up(now, slot, error);
        }
        self.next_deadline = next;
    }

    /// Ends a transfer with `error` and releases everything it holds.
    pub(super) fn give_up(&mut self, now: Nanos, slot: u32, error: TransferError) {
        let mut released = 0;
        for at in 0..self.ops.capacity() {
            let Some(op) = self.ops.slot(low16(at)) else { continue };
            if self.segments.get(op.segment).transfer == slot {
                self.ops.acknowledge(now, op.number);
                released += 1;
            }
        }
        while let Some(segment) = self.segments.find(|record| record.transfer == slot) {
            self.segments.release(segment);
        }
        let transfer = &mut self.transfers[index(slot)];
        let queued = transfer.remaining != 0 || transfer.partial.is_some();
        transfer.partial = None;
        transfer.outstanding = 0;
        let (class, destination, announcing) =
            (transfer.class, transfer.destination, transfer.state == TransferState::Announcing);
        let record = self.destinations.get_mut(destination);
        record.in_flight -= released;
        // With nothing in flight nothing can come back either: the next packet is the probe.
        record.suspect &= record.in_flight != 0;
        if announcing {
            self.announcing.remove(&mut self.queue_links, slot);
        } else if queued {
            match class {
                Class::Regular => record.regular.remove(&mut self.queue_links, slot),
                Class::Big => record.big.remove(&mut self.queue_links, slot),
            }
        }
        self.finish(now, slot, Err(error));
    }

    pub(super) fn refused(&self, op: &Op, reason: NackReason) -> TransferError {
        let TransferError::Unanswered { node, address, acknowledged, tries } = self.unanswered(op) else {
            return self.unanswered(op);
        };
        TransferError::Refused { node, address, acknowledged, tries, reason }
    }

    fn unanswered(&self, op: &Op) -> TransferError {
        let record = self.segments.get(op.segment);
        let transfer = &self.transfers[index(record.transfer)];
        let (offset, _) = packet_span(record.length, self.config.packet_size_log2, op.packet, 1);
        TransferError::Unanswered {
            node: transfer.command.node,
            address: fpga_registers::CardAddr::new(record.base.get() + u64::from(offset)),
            acknowledged: transfer.acknowledged,
            tries: op.tries,
        }
    }

    fn entries_of(&self, slot: u32) -> impl Iterator<Item = Op> + '_ {
        self.ops.iter().filter(move |op| self.segments.get(op.segment).transfer == slot)
    }
}
