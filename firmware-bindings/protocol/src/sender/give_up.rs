//! Timeouts, refusals and cancellation: the ways in which a transfer fails.

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_registers::CardAddr;

use super::retry::{FEW_SAMPLES, RoundTrip};
use super::table::{Segment, Transfer, TransferState};
use super::{Answer, Command, Notify, SendFailure, SendTicket, Sender};
use crate::op_table::Op;
use crate::segment::{TransferClass, packet_span};
use crate::time::Nanos;
use fpga_registers::cast::{index, low16, low32};

/// Packet that an error refers to.
struct PacketContext {
    node: NodeId,
    address: CardAddr,
    acknowledged: u64,
    tries: u8,
}

impl Sender {
    /// Returns the time of the next call of [`Sender::handle_timeout`]; `None` if no timer runs. It may be early, never
    /// late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let (flow, pace) = (self.next_flow_time(), self.pace.as_timer());
        let timers =
            [self.ops.next_deadline(), self.ops.next_reusable(), self.deadlines.next(), self.paths.next()];
        [flow, pace].into_iter().chain(timers).flatten().min()
    }

    /// Handles every expired timer. An unanswered packet is retransmitted or, if its retries are exhausted, its
    /// transfer is given up. A transfer whose own deadline has passed is given up, too.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.pace <= now {
            self.pace = Nanos::MAX;
        }
        // Reclaims the op numbers whose reuse delay has ended: this is one of the timers.
        let _ = self.ops.available(now);
        self.handle_flow_timeout(now);
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
            } else if self.outwait_silence(now, destination, &op) {
                self.note_late(now, destination, op.number);
            } else if self.waits_for_start(&op) {
                self.counters.deferred += 1;
                self.defer(now, &op);
            } else {
                self.counters.timeouts += 1;
                self.untrack(destination, op.number);
                self.ops.resend(op.number, true);
                self.note_late(now, destination, op.number);
                self.destinations.control(destination, |config, window| {
                    window.note_lost(1);
                    window.note_timeout(config, now);
                });
            }
            let record = self.destinations.get_mut(destination);
            record.suspect = record.in_flight != 0;
        }
        while let Some(destination) = self.paths.expired(now) {
            self.check_path(now, destination);
        }
        while let Some(slot) = self.deadlines.expired(now) {
            self.pass_deadline(now, slot);
        }
        // Reclaims the op numbers whose reuse delay has ended, which is the only purpose of their timer.
        self.ops.available(now);
    }

    /// Shortens the deadlines of the packets in flight to a destination after its first round trip sample, and again when
    /// the number of samples is sufficient. Packets sent before have the initial timeout, which may be a hundred times too
    /// long.
    #[cold]
    pub(super) fn apply_first_samples(&mut self, now: Nanos, destination: u32) {
        self.restart_probe(now, destination);
        // The packets in flight of a destination are in its order, if there is one.
        let order = self.destinations.get(destination).order;
        let (mut next, mut all) = (order.head(), 0..self.ops.capacity());
        let by_order = self.uses_order();
        loop {
            let slot = if by_order { next } else { all.next() };
            let Some(slot) = slot else { break };
            next = self.order_links.next(slot);
            let Some(op) = self.ops.slot(low16(slot)) else { continue };
            let transfer = &self.transfers[index(self.segments.get(op.segment).transfer)];
            // Without a deadline, it is due or has not left yet.
            if transfer.destination == destination && op.deadline != Nanos::MAX {
                let trip = &self.destinations.get(destination).trip;
                let from = if trip.samples < FEW_SAMPLES { now } else { op.sent };
                let deadline = self.retry.deadline(from, trip, op.silent, transfer.progress);
                self.ops.extend(op.number, deadline.min(op.deadline));
            }
        }
    }

    /// Returns the time at which a packet that was sent before the first sample is checked again; answers that keep
    /// arriving postpone it.
    ///
    /// The packets of a burst queue behind each other, and the first one, which is answered first, waits least. A
    /// timeout derived from it and counted from the sending of the others would retransmit all of them. Therefore it
    /// counts from the latest answer, as that of TCP does (RFC 6298, 5.3), and never exceeds the initial one.
    fn early_check_time(&self, now: Nanos, op: &Op, destination: u32) -> Option<Nanos> {
        let record = self.destinations.get(destination);
        if op.tries != 1 || record.trip.samples == 0 || op.sent > record.sampled.first {
            return None;
        }
        let wait = self.retry.wait(&record.trip, 0);
        let initial = op.sent.saturating_add(self.retry.wait(&RoundTrip::default(), 0));
        Some(record.sampled.latest.saturating_add(wait).min(initial)).filter(|deadline| *deadline > now)
    }

    /// Whether the receiver cannot use a packet yet: the first packet of its segment has not been acknowledged.
    pub(super) fn waits_for_start(&self, op: &Op) -> bool {
        op.packet != 0 && !self.segments.get(op.segment).is_expected()
    }

    /// Postpones such a packet. The receiver has it in its escape channel, or had no free slot for it; only the first
    /// packet is retransmitted. If this one was lost as well, it is retransmitted one timeout after the first one's
    /// deadline.
    pub(super) fn defer(&mut self, now: Nanos, op: &Op) {
        let record = self.segments.get(op.segment);
        let transfer = &self.transfers[index(record.transfer)];
        let trip = &self.destinations.get(transfer.destination).trip;
        let first = self.ops.get(record.start.op).map(|first| first.deadline).filter(|at| *at != Nanos::MAX);
        let from = first.unwrap_or(now).max(now);
        self.ops.extend(op.number, self.retry.deadline(from, trip, 0, transfer.progress));
    }

    /// Starts the timer of a transfer: its own deadline, and the give-up time without progress. The timers of its
    /// packets do not cover the latter: a transfer that gets no op number has no packet in flight. Its receiver must
    /// not wait for it longer than for any other transfer (docs/protocol.md 2.3).
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
        // A transfer that has not begun waits for others that the receiver is not ready for.
        let waits = transfer.state == TransferState::Queued
            && transfer.command.notify != Notify::None
            && self.destinations.get(transfer.destination).not_ready != 0;
        let error = if (late || silent) && (transfer.not_ready.is_some() || waits) {
            self.receiver_not_ready(slot, tries())
        } else if late {
            SendFailure::Deadline { node, address, acknowledged, tries: tries() }
        } else if silent {
            SendFailure::Unanswered { node, address, acknowledged, tries: tries() }
        } else {
            self.watch(slot);
            return;
        };
        self.give_up(now, slot, error);
    }

    /// Handles "receiver not ready": the receiver's host has no event ring slot for the transfer's notification. The
    /// packet is retransmitted until the transfer's deadline, or for the give-up time. The node answers, so this does
    /// not count as silence.
    #[cold]
    pub(super) fn handle_not_ready(&mut self, now: Nanos, op: &Op, answer: &Answer) {
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
        // An answer to an earlier try says nothing about the try in flight.
        if answer.tries != op.tries {
            return;
        }
        if op.packet == 0 {
            self.segments.get_mut(op.segment).start.first = op.sent;
            transfer.remembered = transfer.remembered.max(op.sent);
        }
        if self.must_return_op_number(now, op) {
            self.withdraw(now, op);
        } else {
            self.untrack(self.destination_of(op), op.number);
            self.park(op);
            self.ops.refuse(op.number, self.retry_time(now, op, answer));
        }
    }

    /// Moves queued transfers of a destination that notify behind the others of their priority.
    fn yield_to_others(&mut self, destination: u32) {
        let Self { transfers, destinations, queue_links, .. } = self;
        let record = destinations.get_mut(destination);
        for queue in [&mut record.regular, &mut record.big] {
            // Priority and arrival of the transfer moved last: it and earlier ones occur again in the list.
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
                    // It was the last, or has become the last again.
                    next = queue_links.next(slot);
                }
            }
        }
    }

    fn receiver_not_ready(&self, slot: u32, tries: u8) -> SendFailure {
        let transfer = &self.transfers[index(slot)];
        let Command { node, destination: address, .. } = transfer.command;
        let acknowledged = transfer.acknowledged;
        SendFailure::ReceiverNotReady { node, address, acknowledged, tries }
    }

    /// Ends a transfer's wait for its receiver's host.
    pub(super) fn set_ready(&mut self, slot: u32) {
        let transfer = &mut self.transfers[index(slot)];
        if transfer.not_ready.take().is_some() {
            self.destinations.get_mut(transfer.destination).not_ready -= 1;
        }
    }

    /// Records the incarnation of a destination that answers. Returns whether the answer counts. An answer of an
    /// earlier incarnation does not, since the state of that incarnation is lost.
    ///
    /// A transfer of which the earlier incarnation has acknowledged packets can never be complete at the new one, which
    /// would never notify its application: it ends here. A transfer without acknowledged packets continues.
    pub(super) fn note_incarnation(
        &mut self,
        now: Nanos,
        destination: u32,
        incarnation: Incarnation,
    ) -> bool {
        let record = self.destinations.get_mut(destination);
        if incarnation == record.incarnation || incarnation == Incarnation::new(0) {
            record.ignored = Incarnation::new(0);
            return true;
        }
        let is_known = record.incarnation != Incarnation::new(0);
        if is_known && incarnation.is_earlier_than(record.incarnation) {
            record.ignored = incarnation;
            return false;
        }
        record.incarnation = incarnation;
        record.ignored = Incarnation::new(0);
        if is_known {
            self.invalidate_destination(now, destination);
        }
        true
    }

    /// Adopts the incarnation of a destination whose answers were ignored as earlier, when the known one has not
    /// answered for the give-up time: the order of the node's incarnations was broken, and it must stay reachable.
    #[cold]
    fn adopt_ignored_incarnation(&mut self, now: Nanos, destination: u32) {
        let record = self.destinations.get_mut(destination);
        if record.ignored != Incarnation::new(0) {
            record.incarnation = core::mem::replace(&mut record.ignored, Incarnation::new(0));
            self.invalidate_destination(now, destination);
        }
    }

    #[cold]
    fn invalidate_destination(&mut self, now: Nanos, destination: u32) {
        for slot in 0..self.config.transfers {
            let transfer = &self.transfers[index(slot)];
            let begun = transfer.state == TransferState::InProgress && transfer.acknowledged != 0;
            if !begun || transfer.destination != destination {
                continue;
            }
            let error = SendFailure::Forgotten {
                node: transfer.command.node,
                address: transfer.command.destination,
                acknowledged: transfer.acknowledged,
                tries: self.entries_of(slot).map(|op| op.tries).max().unwrap_or(0),
            };
            self.give_up(now, slot, error);
        }
    }

    /// Whether the refusal of a packet without a registered operation proves that the receiver has lost the operation.
    /// The first packet had been acknowledged when this one was sent, so the operation was registered, and a complete
    /// one would have been acknowledged. A saturated try count proves nothing.
    pub(super) fn is_forgotten(&self, op: &Op) -> bool {
        let start = self.segments.get(op.segment).start;
        op.packet != 0 && op.tries != u8::MAX && op.sent > start.known
    }

    /// Whether retransmitting a segment's first packet could register again an operation that its receiver has
    /// forgotten. The operation may have been registered when the packet was first sent. An entry without traffic for
    /// the registry timeout, which exceeds the give-up time (docs/protocol.md 2.3), is released, and with it the record of
    /// acknowledged packets or of the completion. This happens only to a host that was suspended; otherwise the packet
    /// would have been retransmitted or given up before.
    ///
    /// An answer may be to an earlier try than the latest one, whose send time is recorded. But everything received
    /// before the latest try was handled before it, so the answered packet and its answer have been in the network for
    /// at most one packet lifetime each, and this packet stays there for at most another one. The registry timeout of a
    /// receiver is longer by that margin ([`REGISTRY_TIMEOUT_MARGIN`](super::REGISTRY_TIMEOUT_MARGIN)).
    pub(super) fn is_overdue(&self, now: Nanos, op: &Op) -> bool {
        op.packet == 0 && now.saturating_sub(self.segments.get(op.segment).start.first) >= self.retry.give_up
    }

    /// Like [`Sender::is_overdue`], for a segment that is to begin: the receiver may have forgotten those before it.
    pub(super) fn is_stale(&self, now: Nanos, slot: u32) -> bool {
        let transfer = &self.transfers[index(slot)];
        transfer.state == TransferState::InProgress
            && transfer.partial.is_none_or(|partial| self.segments.get(partial).issued == 0)
            && now.saturating_sub(transfer.remembered) >= self.retry.give_up
    }

    /// Returns the error of such a transfer.
    #[cold]
    pub(super) fn registry_expired_error(&self, slot: u32) -> SendFailure {
        let transfer = &self.transfers[index(slot)];
        let next = transfer.partial.map(|partial| self.segments.get(partial).base);
        SendFailure::Forgotten {
            node: transfer.command.node,
            address: next.unwrap_or(transfer.next_base),
            acknowledged: transfer.acknowledged,
            tries: self.entries_of(slot).map(|op| op.tries).max().unwrap_or(0),
        }
    }

    pub(super) fn forgotten(&self, op: &Op) -> SendFailure {
        let PacketContext { node, address, acknowledged, tries } = self.packet(op);
        SendFailure::Forgotten { node, address, acknowledged, tries }
    }

    /// Withdraws a transfer, which completes with an error. Returns whether the ticket names a transfer that has not
    /// ended.
    pub fn cancel(&mut self, now: Nanos, ticket: SendTicket) -> bool {
        let Some(transfer) = self.transfers.get(index(ticket.slot)) else { return false };
        if transfer.generation != ticket.generation
            || matches!(transfer.state, TransferState::Free | TransferState::Finished)
        {
            return false;
        }
        let error = SendFailure::Cancelled {
            node: transfer.command.node,
            address: transfer.command.destination,
            acknowledged: transfer.acknowledged,
        };
        self.give_up(now, ticket.slot, error);
        true
    }

    /// Ends a transfer with `error` and releases all its resources.
    pub(super) fn give_up(&mut self, now: Nanos, slot: u32, error: SendFailure) {
        let mut released = 0;
        // A transfer without a segment in progress has no packets in flight: nothing to search for.
        let mut segments = self.transfers[index(slot)].outstanding;
        let ops = if segments == 0 { 0 } else { self.ops.capacity() };
        for at in 0..ops {
            let Some(op) = self.ops.slot(low16(at)) else { continue };
            if self.segments.get(op.segment).transfer == slot {
                self.untrack(self.transfers[index(slot)].destination, op.number);
                self.ops.acknowledge(now, op.number);
                released += 1;
            }
        }
        for segment in 0..low16(low32(self.segments.capacity())) {
            if segments == 0 {
                break;
            }
            let Segment { in_use, transfer, .. } = *self.segments.get(segment);
            if in_use && transfer == slot {
                self.segments.release(segment);
                segments -= 1;
            }
        }
        let transfer = &mut self.transfers[index(slot)];
        let queued = transfer.remaining != 0 || transfer.partial.is_some();
        transfer.partial = None;
        transfer.outstanding = 0;
        let (class, destination, announcing) =
            (transfer.class, transfer.destination, transfer.state == TransferState::Announcing);
        let record = self.destinations.get_mut(destination);
        record.in_flight -= released;
        // With no packet in flight no answer can arrive: the next packet is the probe.
        record.suspect &= record.in_flight != 0;
        if announcing {
            self.announcing.remove(&mut self.queue_links, slot);
        } else if queued {
            self.queued -= 1;
            match class {
                TransferClass::Regular => {
                    record.settle(self.big_segments_issued);
                    record.regular.remove(&mut self.queue_links, slot);
                    self.end_pass(slot);
                }
                TransferClass::Big => record.big.remove(&mut self.queue_links, slot),
            }
        }
        self.finish(now, slot, Err(error));
        if matches!(error, SendFailure::Unanswered { .. }) {
            self.adopt_ignored_incarnation(now, destination);
        }
    }

    pub(super) fn refused(&self, op: &Op, reason: NackReason) -> SendFailure {
        let PacketContext { node, address, acknowledged, tries } = self.packet(op);
        match reason {
            NackReason::Scheme => SendFailure::Scheme { node, address },
            _ => SendFailure::Refused { node, address, acknowledged, tries, reason },
        }
    }

    /// Names the packet of the transfer that was sent most often: most packets of a silent path are sent once, and only
    /// probes repeated.
    #[cold]
    fn unanswered(&self, op: &Op) -> SendFailure {
        let owner = self.segments.get(op.segment).transfer;
        let probed =
            self.entries_of(owner).filter(|other| other.tries > op.tries).max_by_key(|other| other.tries);
        let PacketContext { node, address, acknowledged, tries } = self.packet(&probed.unwrap_or(*op));
        SendFailure::Unanswered { node, address, acknowledged, tries }
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
        let most = if self.transfers[index(slot)].outstanding == 0 { 0 } else { usize::MAX };
        self.ops.iter().take(most).filter(move |op| self.segments.get(op.segment).transfer == slot)
    }
}
