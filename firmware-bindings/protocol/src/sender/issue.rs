//! Selection of the packets to send next.

use fpga_firmware::generated::Flags;
use fpga_registers::CardAddr;

use super::table::{Segment, Segments, StartState, Transfer, TransferState};
use super::{Notify, Ops, SEGMENT_SPAN, SendTicket, Sender, Transmit, TransmitKind};
use crate::op_table::Op;
use crate::segment::{TransferClass, packet_count, packet_span};
use crate::time::Nanos;
use fpga_registers::cast::{index, low16, low32};

/// Consecutive refusals after which a regular command yields to another one that returned its op number.
const REFUSALS_BEFORE_YIELD: u8 = 4;

/// Available op numbers, and whether some are reserved.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpBudget {
    pub(super) now: Nanos,
    pub(super) available: u32,
    /// Whether a [`Claim::Expected`] exists.
    pub(super) expected: bool,
    /// Whether a [`Claim::Started`] exists.
    pub(super) begun: bool,
}

impl OpBudget {
    /// Returns the op numbers that a class may use. One eighth of the table is reserved for regular commands
    /// (docs/protocol.md 4.2).
    pub(super) const fn usual(&self, class: TransferClass, op_entries: u32) -> u32 {
        match class {
            TransferClass::Regular => self.available,
            TransferClass::Big => self.available.saturating_sub(op_entries / 8),
        }
    }
}

/// Reason for which a transfer without packets in flight must get an op number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The receiver has an entry for its segment, which only its next packets release.
    Expected,
    /// The receiver has a record of it, which only its next segment releases.
    Started,
}

/// A queue head that can be served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) slot: u32,
    pub(super) destination: u32,
    pub(super) class: TransferClass,
    /// Number of new packets that it may send.
    pub(super) budget: u32,
}

impl Sender {
    /// Returns the work for one transmit window, or `None` without packets to send or without a free op number.
    ///
    /// Arrival notices go first, then retransmissions (one packet each), then new packets. If fewer op numbers are free
    /// than the segment has packets, the packets with a number are returned, and the rest of the segment follows later.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        if self.is_unchanged_and_empty(now) {
            return None;
        }
        if let Some(slot) = self.announcing.pop_front(&mut self.queue_links) {
            return Some(self.announce(now, slot));
        }
        if let Some(link) = self.poll_link() {
            return Some(link);
        }
        if let Some(retransmission) = self.poll_retransmission(now) {
            return Some(retransmission);
        }
        while let Some(chosen) = self.choose(now) {
            if !self.is_stale(now, chosen.slot) {
                return self.issue(now, chosen);
            }
            let error = self.registry_expired_error(chosen.slot);
            self.give_up(now, chosen.slot, error);
        }
        self.note_held(now);
        None
    }

    /// Whether no packet waits to leave, and nothing has changed since the last search for packets. `false` is allowed at any time: then the
    /// search decides.
    fn is_unchanged_and_empty(&mut self, now: Nanos) -> bool {
        let is_empty = self.announcing.len() == 0
            && self.pacing.is_none()
            && !self.yielded_op_numbers
            && !self.ops.has_due()
            && !self.destinations.has_changes()
            && !self.turns.has_any()
            && self.turns.next_release() > now;
        #[cfg(debug_assertions)]
        if is_empty {
            let pool = self.pool(now);
            assert!(!self.is_searchable() || self.search(&pool).is_none(), "a packet that was not noted");
        }
        is_empty
    }

    /// Returns the next packet to retransmit, alone in a window; `None` if none is due.
    #[must_use]
    pub fn poll_retransmission(&mut self, now: Nanos) -> Option<Transmit> {
        self.postpone_due(now);
        while let Some(op) = self.take_due(now) {
            if !self.is_overdue(now, &op) {
                return Some(self.retransmit(now, &op));
            }
            let error = self.forgotten(&Op { tries: op.tries.saturating_sub(1), ..op });
            self.give_up(now, self.segments.get(op.segment).transfer, error);
        }
        None
    }

    /// Selects the transfer whose new packets go next, and returns the op numbers available for them.
    fn choose(&mut self, now: Nanos) -> Option<Candidate> {
        let pool = self.pool(now);
        if pool.available == 0 {
            return None;
        }
        self.yielded_op_numbers &= pool.expected || pool.begun;
        // Packets to controlled receivers leave after all others.
        let others = if self.exclude_controlled(true) { self.choose_from(pool) } else { None };
        self.exclude_controlled(false);
        others.or_else(|| self.choose_from(pool))
    }

    fn choose_from(&mut self, pool: OpBudget) -> Option<Candidate> {
        self.renew_turns(pool.now);
        #[cfg(debug_assertions)]
        let expected = self.is_searchable().then(|| self.search(&pool));
        let regular = self.regular_candidate(&pool);
        // At most one big segment is sent between a regular command's arrival and its first packet: the regular
        // commands that were waiting when the last big segment left go first, and until they have an op number no other
        // big segment begins. Without a regular command in between, a steady stream of them would starve the big
        // transfers. A segment that was sent before and returned its op number does not wait for all of them: they may
        // wait for it.
        let may_go = self.turns.has_big() && (regular.is_none() || self.last_was_regular);
        let owes = may_go && self.has_yielded(pool.now) && !self.has_returned_segment();
        let big_may_go = may_go && (regular.is_none() || !owes);
        let big = if big_may_go { self.big_candidate(&pool, owes) } else { None };
        let chosen = big.or(regular);
        #[cfg(debug_assertions)]
        assert!(expected.is_none_or(|expected| expected == chosen), "{expected:?} {chosen:?}");
        chosen
    }

    /// Returns the available op numbers and the claims on them.
    fn pool(&mut self, now: Nanos) -> OpBudget {
        self.renew_turns(now);
        let (expected, begun) = (self.turns.has_expected(), self.turns.has_begun());
        OpBudget { now, available: self.ops.available(now), expected, begun }
    }

    /// Returns the state that a transfer in progress holds at its receiver while no packet of it is in flight.
    pub(super) fn claim(&self, slot: u32) -> Option<Claim> {
        let transfer = &self.transfers[index(slot)];
        match transfer.partial {
            Some(partial) => {
                let record = self.segments.get(partial);
                let held = record.issued != 0 && record.acknowledged == record.issued;
                held.then_some(Claim::Expected)
            }
            None => (transfer.state == TransferState::InProgress && transfer.outstanding == 0)
                .then_some(Claim::Started),
        }
    }

    /// Returns the number of new packets that a transfer at the head of a queue may send now.
    ///
    /// Packets that a busy receiver refuses hold op numbers, and the receiver is busy with segments and transfers whose
    /// next packets need op numbers. To prevent a deadlock, the last number is reserved for a segment that the receiver
    /// expects, and the last but one for the next segment of a transfer that has begun, where such a segment or
    /// transfer has no packet in flight. A regular command that a big segment has passed takes the last but one
    /// nevertheless, and returns it if the packet stays refused ([`Sender::must_return_op_number`]).
    pub(super) fn budget(&self, pool: &OpBudget, class: TransferClass, destination: u32, slot: u32) -> u32 {
        let capacity = self.capacity(pool.now, destination, slot);
        if capacity == 0 {
            return 0;
        }
        let passed = u32::from(class == TransferClass::Regular && self.was_passed(destination, slot));
        let usual = pool.usual(class, self.config.op_entries);
        let budget = match self.claim(slot) {
            Some(Claim::Expected) => usual.max(1),
            Some(Claim::Started) => usual.max(1).min(pool.available.saturating_sub(u32::from(pool.expected))),
            None => {
                let left = pool.available.saturating_sub(u32::from(pool.expected));
                usual.min(left.saturating_sub(pool.begun.into()).max(passed.min(left)))
            }
        };
        // The same reservation applies to the share of one destination.
        let others = match self.claim(slot) {
            Some(Claim::Expected) => 0,
            Some(Claim::Started) => u32::from(self.has_claim(destination, Claim::Expected)),
            None => {
                let expected = u32::from(self.has_claim(destination, Claim::Expected));
                let begun = u32::from(self.has_claim(destination, Claim::Started));
                if capacity - expected.min(capacity) <= begun {
                    expected + begun - passed.min(begun)
                } else {
                    expected + begun
                }
            }
        };
        budget.min(capacity.saturating_sub(others))
    }

    /// Returns the number of packets that a destination accepts of the transfer at the head of one of its queues,
    /// independent of the available op numbers.
    pub(super) fn capacity(&self, now: Nanos, destination: u32, slot: u32) -> u32 {
        let record = self.destinations.get(destination);
        let limit = self.flow_limit(record.node);
        if record.suspect || limit == 0 {
            return 0;
        }
        let transfer = &self.transfers[index(slot)];
        let notifies = transfer.command.notify != Notify::None;
        // Transfers that wait for a host that is not ready take no share from transfers without a notification.
        let waiting = if notifies { 0 } else { record.not_ready };
        if transfer.partial.is_none() {
            let begins = transfer.state == TransferState::Queued;
            // Half of the slots and op numbers are for transfers that do not need a host that is not ready.
            let places = self.config.live_per_destination.min(self.config.packets_per_destination());
            if begins && notifies && record.not_ready >= (places / 2).max(1) {
                return 0;
            }
            let within_span = transfer.next_segment - transfer.done.base() < SEGMENT_SPAN;
            let has_records = self.segments.has_free()
                && (!begins || record.live.len().saturating_sub(waiting) < self.config.live_per_destination);
            if !within_span || !has_records {
                return 0;
            }
        }
        let share =
            self.config.packets_per_destination().saturating_sub(record.in_flight.saturating_sub(waiting));
        // The receiver keeps an entry or record for a transfer in progress without a packet in flight: it always may send one.
        let room = self.room(now, destination);
        share.min(limit).min(if room == 0 && self.claim(slot).is_some() { 1 } else { room })
    }

    fn has_claim(&self, destination: u32, wanted: Claim) -> bool {
        let record = self.destinations.get(destination);
        [record.regular.head(), record.big.head()]
            .into_iter()
            .flatten()
            .any(|slot| self.claim(slot) == Some(wanted))
    }

    /// Whether the regular command at the head of a destination's queue has let a big segment pass and has not sent a
    /// packet. A command that has returned its op number for a transfer in progress lets that transfer go first.
    pub(super) fn was_passed(&self, destination: u32, slot: u32) -> bool {
        let must_pass = self.destinations.get(destination).must_pass(self.big_segments_issued);
        must_pass != 0 && self.has_sent_none(slot) && !self.yielded_op_numbers
    }

    /// Whether no packet of the next segment of a transfer was sent, as far as its receiver counts.
    pub(super) fn has_sent_none(&self, slot: u32) -> bool {
        let partial = self.transfers[index(slot)].partial;
        partial.is_none_or(|partial| self.segments.get(partial).issued == 0)
    }

    /// Whether a packet that a busy receiver refuses has to return its op number. There are three cases:
    ///
    /// * It is the only packet that a regular command has sent, no other number is free (in the table, or in the share
    ///   of the destination), and a transfer in progress has none.
    /// * Another command returned its number and this packet has been refused [`REFUSALS_BEFORE_YIELD`] times: they
    ///   alternate.
    /// * It is the first packet of a big transfer's segment, refused as often, and a regular command returned its
    ///   number. A copy of that command's packet may have been registered since, and then the receiver's entry waits
    ///   for that command.
    pub(super) fn must_return_op_number(&mut self, now: Nanos, op: &Op) -> bool {
        let record = self.segments.get(op.segment);
        let Transfer { class, destination, partial, .. } = self.transfers[index(record.transfer)];
        if op.packet != 0 || record.issued != 1 {
            return false;
        }
        let full = self.destinations.get(destination).in_flight >= self.config.packets_per_destination();
        let none = self.ops.available(now) == 0;
        if !full && !none {
            return false;
        }
        if class == TransferClass::Big {
            // Its segment becomes the half-issued one again, of which there is at most one.
            let fits = partial.is_none_or(|partial| partial == op.segment);
            let waits = |record: &Segment| {
                let other = &self.transfers[index(record.transfer)];
                record.issued == 0
                    && other.class == TransferClass::Regular
                    && (none || other.destination == destination)
            };
            return op.busy >= REFUSALS_BEFORE_YIELD && fits && self.segments.find(waits).is_some();
        }
        let OpBudget { expected, begun, .. } = self.pool(now);
        let here =
            [Claim::Expected, Claim::Started].into_iter().any(|claim| self.has_claim(destination, claim));
        let turn =
            op.busy >= REFUSALS_BEFORE_YIELD && self.segments.find(|record| record.issued == 0).is_some();
        none && (expected || begun) || full && here || turn
    }

    /// Returns the first packet of a segment to its queue. It is sent later under another op number. The receiver's
    /// answers to this op number are stale.
    ///
    /// Other packets are never withdrawn: the receiver may hold them in its escape channel, and acknowledges them only
    /// when the first one has arrived, which may be long after the reuse delay of their op numbers. An unanswered
    /// packet is not withdrawn either: the receiver may have registered the operation.
    ///
    /// A delayed duplicate of the refused packet may still register it. The entry then waits, as for any slow sender,
    /// until the packet is retransmitted. That happens because every refused first packet yields after
    /// [`REFUSALS_BEFORE_YIELD`] refusals. If the command ends meanwhile, the registry timeout or a newer oldest live
    /// transfer releases the entry.
    #[cold]
    pub(super) fn withdraw(&mut self, now: Nanos, op: &Op) {
        self.untrack(self.destination_of(op), op.number);
        self.ops.acknowledge(now, op.number);
        let record = self.segments.get_mut(op.segment);
        let slot = record.transfer;
        (record.issued, record.start) = (0, StartState::default());
        let transfer = &mut self.transfers[index(slot)];
        self.yielded_op_numbers = transfer.class == TransferClass::Regular;
        transfer.packets -= 1;
        transfer.retransmits += 1;
        self.counters.packets -= 1;
        self.counters.retransmits += 1;
        self.counters.yielded += 1;
        let record = self.destinations.get_mut(transfer.destination);
        record.settle(self.big_segments_issued);
        record.in_flight -= 1;
        if transfer.partial.replace(op.segment).is_some() {
            return;
        }
        let queue = match transfer.class {
            TransferClass::Regular => {
                transfer.big_issues_at_arrival = self.big_segments_issued;
                &mut record.regular
            }
            TransferClass::Big if transfer.remaining == 0 => &mut record.big,
            // The transfer is still in its queue.
            TransferClass::Big => return,
        };
        self.queued += 1;
        let transfers = &self.transfers;
        queue.insert_sorted(&mut self.queue_links, slot, |other| {
            transfers[index(other)].state == TransferState::Queued
        });
    }

    fn issue(&mut self, now: Nanos, chosen: Candidate) -> Option<Transmit> {
        let Candidate { slot, destination, class, budget } = chosen;
        self.yielded_op_numbers &= self.claim(slot).is_none();
        self.begin(now, slot, destination);
        let record_slot = match self.transfers[index(slot)].partial {
            Some(partial) => partial,
            None => self.cut(slot)?,
        };
        let record = *self.segments.get(record_slot);
        let count = u32::from(record.packets - record.issued).min(budget);
        let mut ops = Ops::NONE;
        let progress = self.transfers[index(slot)].progress;
        // A packet that waits in its window has no deadline until it leaves.
        let deadline = match self.reports_departures {
            true => Nanos::MAX,
            false => self.retry.deadline(now, &self.destinations.get(destination).trip, 0, progress),
        };
        for packet in record.issued..record.issued + low16(count) {
            match self.ops.take(now, record_slot, packet, deadline) {
                Some(number) => ops.push(number),
                None => break,
            }
        }
        let sent = ops.len();
        if !self.reports_departures {
            for number in ops.as_slice() {
                self.track(now, destination, *number);
            }
        }
        let issued = self.segments.get_mut(record_slot);
        if let (0, Some(first)) = (issued.issued, ops.as_slice().first()) {
            issued.start.op = *first;
            issued.start.first = now;
        }
        issued.issued += sent;
        issued.latest = now;
        let in_flight = &mut self.destinations.get_mut(destination).in_flight;
        *in_flight += u32::from(sent);
        self.counters.most_in_flight = self.counters.most_in_flight.max((*in_flight).into());
        self.counters.packets += u64::from(sent);
        let transfer = &mut self.transfers[index(slot)];
        transfer.packets += u64::from(sent);
        let whole = record.issued + sent == record.packets;
        transfer.partial = if whole { None } else { Some(record_slot) };
        let drained = whole && transfer.remaining == 0;
        self.queued -= u32::from(drained);
        let issued = self.big_segments_issued;
        let queues = self.destinations.get_mut(destination);
        match class {
            TransferClass::Regular => {
                self.last_was_regular = true;
                if drained {
                    queues.settle(issued);
                    queues.regular.remove(&mut self.queue_links, slot);
                    self.end_pass(slot);
                }
            }
            TransferClass::Big => {
                self.last_was_regular = false;
                // From now on, every regular command that waits has to be passed ([`Destination::must_pass`]).
                self.big_segments_issued += 1;
                self.big_turn = destination + 1;
                if drained {
                    queues.big.remove(&mut self.queue_links, slot);
                }
            }
        }
        let path = self.route(destination, record.issued, &mut ops);
        let mut transmit = self.transmit(&record, record.issued, ops, 1);
        transmit.path = path;
        self.note_departure(now, &transmit);
        Some(transmit)
    }

    /// Ends the pass of a regular command that has left its queue, if it let a big segment pass.
    pub(super) fn end_pass(&mut self, slot: u32) {
        let transfer = &self.transfers[index(slot)];
        if transfer.big_issues_at_arrival != self.big_segments_issued {
            let record = self.destinations.get_mut(transfer.destination);
            record.note_passed(self.big_segments_issued);
        }
    }

    /// Assigns the id of a transfer whose first packet is about to be sent: the next one towards its destination.
    fn begin(&mut self, now: Nanos, slot: u32, destination: u32) {
        let transfer = &mut self.transfers[index(slot)];
        if transfer.state != TransferState::Queued {
            return;
        }
        transfer.state = TransferState::InProgress;
        transfer.progress = now;
        transfer.remembered = now;
        let record = self.destinations.get_mut(destination);
        transfer.id = record.next_id;
        record.next_id = record.next_id.next();
        record.live.push_back(&mut self.live_links, slot);
        self.watch(slot);
    }

    /// Cuts the next segment off the transfer at the head: base addresses and remaining bytes advance, nothing is
    /// copied (docs/protocol.md 4.2).
    fn cut(&mut self, slot: u32) -> Option<u16> {
        let transfer = &mut self.transfers[index(slot)];
        let length = low32(transfer.remaining.min(u64::from(transfer.segment_size)));
        let packets = low16(packet_count(length, self.config.packet_size_log2));
        let record = self.segments.take(Segment {
            in_use: true,
            key: Segments::key(transfer.command.node, transfer.id, transfer.next_segment),
            transfer: slot,
            index: transfer.next_segment,
            source: transfer.next_source,
            base: transfer.next_base,
            length,
            packets,
            issued: 0,
            acknowledged: 0,
            start: StartState::default(),
            latest: Nanos::ZERO,
        })?;
        // The ends of both ranges were checked at submission.
        transfer.next_source = CardAddr::new(transfer.next_source.get() + u64::from(length));
        transfer.next_base = CardAddr::new(transfer.next_base.get() + u64::from(length));
        transfer.remaining -= u64::from(length);
        transfer.next_segment += 1;
        transfer.outstanding += 1;
        Some(record)
    }

    fn retransmit(&mut self, now: Nanos, op: &Op) -> Transmit {
        if op.packet == 0 {
            self.segments.get_mut(op.segment).start.again = now;
        }
        let record = *self.segments.get(op.segment);
        let destination = self.destination_of(op);
        self.track(now, destination, op.number);
        let path = self.other_route(now, destination, op);
        self.transfers[index(record.transfer)].retransmits += 1;
        self.counters.retransmits += 1;
        let mut ops = Ops::NONE;
        ops.push(op.number);
        ops.set_path(0, path);
        let transmit = Transmit { path, ..self.transmit(&record, op.packet, ops, op.tries) };
        self.note_departure(now, &transmit);
        transmit
    }

    /// Sends the arrival notice of a transfer with notification by the sender, and ends the transfer.
    fn announce(&mut self, now: Nanos, slot: u32) -> Transmit {
        let command = self.transfers[index(slot)].command;
        let notice = Segment {
            transfer: slot,
            source: command.source,
            base: command.destination,
            ..Segment::default()
        };
        let mut transmit = self.transmit(&notice, 0, Ops::NONE, 1);
        transmit.kind = TransmitKind::Arrival;
        transmit.path = self.route(self.transfers[index(slot)].destination, 1, &mut Ops::NONE.clone());
        self.finish(now, slot, Ok(()));
        transmit
    }

    fn transmit(&self, record: &Segment, first_packet: u16, ops: Ops, tries: u8) -> Transmit {
        let transfer = &self.transfers[index(record.transfer)];
        let (offset, payload_length) =
            packet_span(record.length, self.config.packet_size_log2, first_packet, ops.len());
        let live = self.destinations.get(transfer.destination).live.head();
        let oldest = live.map_or(transfer.id, |slot| self.transfers[index(slot)].id);
        Transmit {
            kind: TransmitKind::Data,
            ticket: SendTicket { slot: record.transfer, generation: transfer.generation },
            transfer: transfer.id,
            oldest_live: oldest,
            node: transfer.command.node,
            key: transfer.command.key,
            source: CardAddr::new(record.source.get() + u64::from(offset)),
            payload_length,
            segment_base: record.base,
            segment: record.index,
            segment_count: transfer.segments,
            segment_length: record.length,
            segment_packets: record.packets,
            first_packet,
            ops,
            packet_size_log2: self.config.packet_size_log2,
            tries,
            path: 0,
            silent: record.index + 1 < transfer.segments,
            notify: transfer.command.notify,
            transfer_base: transfer.command.destination,
            transfer_length: transfer.command.length,
        }
    }
}

impl Transmit {
    /// Returns the packet flags that select the node that notifies the receiving application.
    #[must_use]
    pub const fn notice_flags(&self) -> Flags {
        match self.notify {
            Notify::Receiver => Flags::NOTIFY_RECEIVER,
            Notify::Sender => Flags::NONE,
            Notify::None => Flags::NO_NOTICE,
        }
    }
}
