//! Timeouts, refusals and cancellation: how a transfer ends without success.

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_registers::CardAddr;

use super::retry::{FEW_SAMPLES, RoundTrip};
use super::table::{Transfer, TransferState};
use super::{Command, Notify, Sender, Ticket, TransferError};
use crate::op_table::Op;
use crate::segment::{TransferClass, packet_span};
use crate::time::Nanos;
use fpga_registers::cast::{index, low16};

/// The packet that an error is about.
struct PacketContext {
    node: NodeId,
    address: CardAddr,
    acknowledged: u64,
    tries: u8,
}

impl Sender {
    /// When to call [`Sender::handle_timeout`] next; `None` if no timer runs. It may be early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        [self.ops.next_deadline(), self.ops.next_reusable(), self.deadlines.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Looks at every timer that has run out: an unanswered packet is sent again or, if that is hopeless, its transfer
    /// is given up; so is a transfer whose own deadline has passed.
    pub fn handle_timeout(&mut self, now: Nanos) {
        // Calls in the numbers whose rest is over: it is one of the timers.
        let _ = self.ops.available(now);
        while let Some(op) = self.ops.expired(now) {
            let owner = self.segments.get(op.segment).transfer;
            let &Transfer { progress, destination, .. } = &self.transfers[index(owner)];
            if self.retry.is_expired(now, op.silent.saturating_add(1), progress) {
                self.counters.timeouts += 1;
                let error = self.unanswered(&op);
                self.give_up(now, owner, error);
            } else if let Some(deadline) = self.early_check_time(now, &op, destination) {
                self.ops.extend(op.number, deadline);
                continue;
            } else if self.waits_for_start(&op) {
                self.counters.deferred += 1;
                self.defer(now, &op);
            } else {
                self.counters.timeouts += 1;
                self.ops.resend(op.number, true);
            }
            let record = self.destinations.get_mut(destination);
            record.suspect = record.in_flight != 0;
        }
        while let Some(slot) = self.deadlines.expired(now) {
            self.pass_deadline(now, slot);
        }
        // Calls in the op numbers that have rested, which is all that their timer is for.
        self.ops.available(now);
    }

    /// The first round trip to a destination is known, or enough of them: packets that left before have the initial timeout, which
    /// may be a hundred times too long.
    #[cold]
    pub(super) fn apply_first_samples(&mut self, now: Nanos, destination: u32) {
        for slot in (0..self.ops.capacity()).map(low16) {
            let Some(op) = self.ops.slot(slot) else { continue };
            let transfer = &self.transfers[index(self.segments.get(op.segment).transfer)];
            if transfer.destination == destination {
                let trip = &self.destinations.get(destination).trip;
                let from = if trip.samples < FEW_SAMPLES { now } else { op.sent };
                let deadline = self.retry.deadline(from, trip, op.silent, transfer.progress);
                self.ops.extend(op.number, deadline.min(op.deadline));
            }
        }
    }

    /// When a packet that left before anything was known of the way is to be looked at again: not while answers keep coming.
    ///
    /// The packets of a burst wait for each other, and the first, which is answered first, waits least: a timeout learnt from it
    /// and counted from when the others left would send them all again. So it counts from the latest answer, as that of TCP does
    /// (RFC 6298, 5.3), and never beyond the initial one.
    fn early_check_time(&self, now: Nanos, op: &Op, destination: u32) -> Option<Nanos> {
        let record = self.destinations.get(destination);
        if op.tries != 1 || record.trip.samples == 0 || op.sent > record.sampled.first {
            return None;
        }
        let wait = self.retry.wait(&record.trip, 0);
        let initial = op.sent.saturating_add(self.retry.wait(&RoundTrip::default(), 0));
        Some(record.sampled.latest.saturating_add(wait).min(initial)).filter(|deadline| *deadline > now)
    }

    /// Whether a packet is of no use to the receiver yet: its segment's first one has not been acknowledged.
    pub(super) fn waits_for_start(&self, op: &Op) -> bool {
        op.packet != 0 && !self.segments.get(op.segment).is_expected()
    }

    /// Lets such a packet wait. The receiver has it in its escape channel, or had no room for it; the first packet alone is sent
    /// again. If this one was lost as well, its turn comes a timeout after the first one's.
    pub(super) fn defer(&mut self, now: Nanos, op: &Op) {
        let record = self.segments.get(op.segment);
        let transfer = &self.transfers[index(record.transfer)];
        let trip = &self.destinations.get(transfer.destination).trip;
        let first = self.ops.get(record.start.op).map(|first| first.deadline).filter(|at| *at != Nanos::MAX);
        let from = first.unwrap_or(now).max(now);
        self.ops.extend(op.number, self.retry.deadline(from, trip, 0, transfer.progress));
    }

    /// When a transfer has to be looked at: at its own deadline, and when it has gone without progress for too long. The last is
    /// no matter of its packets alone, which have timers of their own: one that gets no op number has none in flight. Its
    /// receiver must not wait for it longer than for any other (spec 2.2.7).
    pub(super) fn watch(&mut self, slot: u32) {
        let transfer = &self.transfers[index(slot)];
        let silence = match transfer.state {
            TransferState::InProgress => transfer.progress.saturating_add(self.retry.give_up),
            _ => Nanos::MAX,
        };
        self.deadlines.start(slot, transfer.command.deadline.unwrap_or(Nanos::MAX).min(silence));
    }

    fn pass_deadline(&mut self, now: Nanos, slot: u32) {
        let transfer = &self.transfers[index(slot)];
        let Command { node, destination: address, deadline, .. } = transfer.command;
        let acknowledged = transfer.acknowledged;
        let late = deadline.is_some_and(|deadline| deadline <= now);
        let silent = transfer.state == TransferState::InProgress
            && now.saturating_sub(transfer.progress) >= self.retry.give_up;
        let tries = || self.entries_of(slot).map(|op| op.tries).max().unwrap_or(0);
        // One that has not begun waits for others that the receiver is not ready for.
        let waits = transfer.state == TransferState::Queued
            && transfer.command.notify != Notify::None
            && self.destinations.get(transfer.destination).not_ready != 0;
        let error = if (late || silent) && (transfer.not_ready.is_some() || waits) {
            self.receiver_not_ready(slot, tries())
        } else if late {
            TransferError::Deadline { node, address, acknowledged, tries: tries() }
        } else if silent {
            TransferError::Unanswered { node, address, acknowledged, tries: tries() }
        } else {
            self.watch(slot);
            return;
        };
        self.give_up(now, slot, error);
    }

    /// The receiver's host has no room for the transfer's notification: the packet is sent again until the transfer's deadline, or for
    /// the time to give up. No silence, so it does not count against the node. `latest`: the answer is to the packet's latest try.
    #[cold]
    pub(super) fn handle_not_ready(&mut self, now: Nanos, op: &Op, latest: bool) {
        let owner = self.segments.get(op.segment).transfer;
        self.counters.not_ready += 1;
        let transfer = &mut self.transfers[index(owner)];
        transfer.progress = now;
        let record = self.destinations.get_mut(transfer.destination);
        record.suspect = false;
        if transfer.not_ready.is_none() {
            transfer.not_ready = Some(now);
            record.not_ready += 1;
            if record.not_ready == 1 {
                let destination = transfer.destination;
                self.yield_to_others(destination);
            }
        }
        let transfer = &mut self.transfers[index(owner)];
        let waited = now.saturating_sub(transfer.not_ready.unwrap_or(now));
        if transfer.command.deadline.is_none() && waited >= self.retry.give_up {
            let error = self.receiver_not_ready(owner, op.tries);
            self.give_up(now, owner, error);
            return;
        }
        // An answer to an earlier try says nothing about the try that is under way.
        if !latest {
            return;
        }
        if op.packet == 0 {
            self.segments.get_mut(op.segment).start.first = op.sent;
            transfer.remembered = transfer.remembered.max(op.sent);
        }
        if self.must_return_op_number(now, op) {
            self.withdraw(now, op);
        } else {
            self.ops.refuse(op.number, self.retry.busy_until(now, op.busy));
        }
    }

    /// Of what waits in a destination's queues, transfers that notify go behind the others of their priority.
    fn yield_to_others(&mut self, destination: u32) {
        let Self { transfers, destinations, queue_links, .. } = self;
        let record = destinations.get_mut(destination);
        for queue in [&mut record.regular, &mut record.big] {
            // Priority and arrival of the last one that was moved: it and those before it come again.
            let mut moved = None;
            let mut next = queue.head();
            while let Some(slot) = next {
                next = queue_links.next(slot);
                let Transfer { state, arrival, command, .. } = transfers[index(slot)];
                let is_moved =
                    moved.is_some_and(|(priority, latest)| priority == command.priority && arrival <= latest);
                if state != TransferState::Queued || command.notify == Notify::None || is_moved {
                    continue;
                }
                moved = Some((command.priority, arrival));
                queue.remove(queue_links, slot);
                queue.insert_sorted(queue_links, slot, |other| {
                    let other = &transfers[index(other)];
                    other.command.priority < command.priority && other.state == TransferState::Queued
                });
                if next.is_none() {
                    // It was the last, or is again.
                    next = queue_links.next(slot);
                }
            }
        }
    }

    fn receiver_not_ready(&self, slot: u32, tries: u8) -> TransferError {
        let transfer = &self.transfers[index(slot)];
        let Command { node, destination: address, .. } = transfer.command;
        let acknowledged = transfer.acknowledged;
        TransferError::ReceiverNotReady { node, address, acknowledged, tries }
    }

    /// The transfer does not wait for its receiver's host any more.
    pub(super) fn set_ready(&mut self, slot: u32) {
        let transfer = &mut self.transfers[index(slot)];
        if transfer.not_ready.take().is_some() {
            self.destinations.get_mut(transfer.destination).not_ready -= 1;
        }
    }

    /// Notes which life of a destination answers. Returns whether the answer counts: one of its former life does not, since what
    /// that life had is lost.
    ///
    /// A transfer of which the former life had acknowledged something can never be complete at the new one, which would
    /// never tell its application: it ends here. One of which nothing was acknowledged goes on.
    pub(super) fn note_incarnation(&mut self, now: Nanos, destination: u32, life: Incarnation) -> bool {
        let record = self.destinations.get_mut(destination);
        if life == record.life || life == Incarnation::new(0) {
            return true;
        }
        if life == record.former_incarnation {
            return false;
        }
        record.former_incarnation = core::mem::replace(&mut record.life, life);
        if record.former_incarnation != Incarnation::new(0) {
            self.invalidate_destination(now, destination);
        }
        true
    }

    #[cold]
    fn invalidate_destination(&mut self, now: Nanos, destination: u32) {
        for slot in 0..self.config.transfers {
            let transfer = &self.transfers[index(slot)];
            let begun = transfer.state == TransferState::InProgress && transfer.acknowledged != 0;
            if !begun || transfer.destination != destination {
                continue;
            }
            let error = TransferError::Forgotten {
                node: transfer.command.node,
                address: transfer.command.destination,
                acknowledged: transfer.acknowledged,
                tries: self.entries_of(slot).map(|op| op.tries).max().unwrap_or(0),
            };
            self.give_up(now, slot, error);
        }
    }

    /// Whether a packet that was refused for want of its operation proves that the receiver has lost the operation: the
    /// first packet had been acknowledged when this one left, so the operation was registered, and a complete one would have
    /// been acknowledged. A count of tries that has reached its end proves nothing.
    pub(super) fn is_forgotten(&self, op: &Op) -> bool {
        let start = self.segments.get(op.segment).start;
        op.packet != 0 && op.tries != u8::MAX && op.sent > start.known
    }

    /// Whether a segment's first packet, which is to be sent again, could begin anew what its receiver has forgotten. It may have
    /// been registered when it first left, and an entry without news for the registry timeout, which is longer than the time to
    /// give up (spec 2.2.7), is gone: with it what else was acknowledged, or that all was complete. This only happens to a
    /// host that stood still, for otherwise the packet would have been sent again or given up before.
    ///
    /// An answer may be to an earlier try than the latest, by which its time is told: but whatever came before that one left was
    /// looked at before, so the answered packet and its answer have wandered for a lifetime each at most, and this one wanders for
    /// another. A receiver has to be patient for so much longer ([`REGISTRY_TIMEOUT_MARGIN`](super::REGISTRY_TIMEOUT_MARGIN)).
    pub(super) fn is_overdue(&self, now: Nanos, op: &Op) -> bool {
        op.packet == 0 && now.saturating_sub(self.segments.get(op.segment).start.first) >= self.retry.give_up
    }

    /// The same of a segment that is to begin: the receiver may have forgotten those before it.
    pub(super) fn is_stale(&self, now: Nanos, slot: u32) -> bool {
        let transfer = &self.transfers[index(slot)];
        transfer.state == TransferState::InProgress
            && transfer.partial.is_none_or(|partial| self.segments.get(partial).issued == 0)
            && now.saturating_sub(transfer.remembered) >= self.retry.give_up
    }

    /// The error of such a transfer.
    #[cold]
    pub(super) fn registry_expired_error(&self, slot: u32) -> TransferError {
        let transfer = &self.transfers[index(slot)];
        let next = transfer.partial.map(|partial| self.segments.get(partial).base);
        TransferError::Forgotten {
            node: transfer.command.node,
            address: next.unwrap_or(transfer.next_base),
            acknowledged: transfer.acknowledged,
            tries: self.entries_of(slot).map(|op| op.tries).max().unwrap_or(0),
        }
    }

    pub(super) fn forgotten(&self, op: &Op) -> TransferError {
        let PacketContext { node, address, acknowledged, tries } = self.packet(op);
        TransferError::Forgotten { node, address, acknowledged, tries }
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
                TransferClass::Regular => {
                    record.regular.remove(&mut self.queue_links, slot);
                    self.end_pass(slot);
                }
                TransferClass::Big => record.big.remove(&mut self.queue_links, slot),
            }
        }
        self.finish(now, slot, Err(error));
    }

    pub(super) fn refused(&self, op: &Op, reason: NackReason) -> TransferError {
        let PacketContext { node, address, acknowledged, tries } = self.packet(op);
        match reason {
            NackReason::Scheme => TransferError::Scheme { node, address },
            _ => TransferError::Refused { node, address, acknowledged, tries, reason },
        }
    }

    fn unanswered(&self, op: &Op) -> TransferError {
        let PacketContext { node, address, acknowledged, tries } = self.packet(op);
        TransferError::Unanswered { node, address, acknowledged, tries }
    }

    fn packet(&self, op: &Op) -> PacketContext {
        let record = self.segments.get(op.segment);
        let transfer = &self.transfers[index(record.transfer)];
        let (offset, _) = packet_span(record.length, self.config.packet_size_log2, op.packet, 1);
        PacketContext {
            node: transfer.command.node,
            address: CardAddr::new(record.base.get() + u64::from(offset)),
            acknowledged: transfer.acknowledged,
            tries: op.tries,
        }
    }

    fn entries_of(&self, slot: u32) -> impl Iterator<Item = Op> + '_ {
        self.ops.iter().filter(move |op| self.segments.get(op.segment).transfer == slot)
    }
}
