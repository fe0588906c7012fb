//! What to send next.

use fpga_firmware::generated::Flags;
use fpga_registers::CardAddr;

use super::table::{Segment, StartState, Transfer, TransferState};
use super::{Notify, Ops, SEGMENT_SPAN, Sender, Ticket, Transmit, TransmitKind};
use crate::op_table::Op;
use crate::segment::{TransferClass, packet_count, packet_span};
use crate::time::Nanos;
use fpga_registers::cast::{index, low16, low32};

/// Refusals in a row after which a regular command lets another one try that gave its op number back.
const REFUSALS_BEFORE_YIELD: u8 = 4;

/// Op numbers, and whether some must be left.
#[derive(Clone, Copy, Debug)]
struct OpBudget {
    available: u32,
    /// There is a [`Claim::Expected`].
    expected: bool,
    /// There is a [`Claim::Started`].
    begun: bool,
}

/// Why a transfer with nothing in flight must get an op number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The receiver has an entry for its segment, which only its next packets release.
    Expected,
    /// The receiver has a record of it, which only its next segment releases.
    Started,
}

/// A queue head that can be served now.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: u32,
    destination: u32,
    class: TransferClass,
}

impl Sender {
    /// One transmit window's worth of work, or `None`: nothing to send, or no op number free.
    ///
    /// Arrival notices go first, then retransmissions (one packet each), then new packets. Where fewer op numbers are
    /// free than the segment has packets, what fits is handed out; the rest follows from the same segment.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        if let Some(slot) = self.announcing.pop_front(&mut self.queue_links) {
            return Some(self.announce(now, slot));
        }
        while self.ops.has_due() {
            let Self { ops, retry, segments, transfers, destinations, .. } = self;
            let due = ops.take_due(now, |op| {
                let transfer = &transfers[index(segments.get(op.segment).transfer)];
                let trip = &destinations.get(transfer.destination).trip;
                retry.deadline(now, trip, op.silent, transfer.progress)
            });
            let Some(op) = due else { break };
            if !self.is_overdue(now, &op) {
                return Some(self.retransmit(now, &op));
            }
            let error = self.forgotten(&Op { tries: op.tries.saturating_sub(1), ..op });
            self.give_up(now, self.segments.get(op.segment).transfer, error);
        }
        while let Some((pool, chosen)) = self.choose(now) {
            if !self.is_stale(now, chosen.slot) {
                return self.issue(now, &pool, chosen);
            }
            let error = self.registry_expired_error(chosen.slot);
            self.give_up(now, chosen.slot, error);
        }
        None
    }

    /// Whose new packets go next, and how many op numbers there are for them.
    fn choose(&mut self, now: Nanos) -> Option<(OpBudget, Candidate)> {
        let pool = self.pool(now);
        if pool.available == 0 {
            return None;
        }
        self.yielded_op_numbers &= pool.expected || pool.begun;
        let regular = self.regular_candidate(&pool);
        // At most one big segment goes between a regular command's arrival and its first packet: those that were there when
        // the last one left go first, and until they have got an op number no other segment begins. Without a regular one in
        // between, a steady stream of them would starve the big ones. One that has gone before and gave its op number back does not
        // wait for all of them: they may wait for it.
        let owes = self.has_yielded() && !self.has_returned_segment();
        let big_may_go = regular.is_none() || (self.last_was_regular && !owes);
        let big = if big_may_go { self.big_candidate(&pool, owes) } else { None };
        big.or(regular).map(|chosen| (pool, chosen))
    }

    /// What op numbers there are, and who must get one.
    fn pool(&mut self, now: Nanos) -> OpBudget {
        let mut pool = OpBudget { available: self.ops.available(now), expected: false, begun: false };
        for destination in 0..self.destinations.used() {
            let record = self.destinations.get(destination);
            for slot in [record.regular.head(), record.big.head()].into_iter().flatten() {
                match self.claim(slot) {
                    Some(Claim::Expected) => pool.expected = true,
                    Some(Claim::Started) => pool.begun = true,
                    None => {}
                }
            }
        }
        pool
    }

    /// What a transfer that has begun holds at its receiver while nothing of it is in flight.
    fn claim(&self, slot: u32) -> Option<Claim> {
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

    /// How many new packets a transfer at the head of a queue may send now.
    ///
    /// Op numbers are held by packets that a busy receiver refuses, and the receiver is busy with segments and transfers whose
    /// next packets need op numbers: so that neither waits for the other for ever, the last number is for a segment that the
    /// receiver expects, and the last but one for the next segment of a transfer that has begun, where there are such
    /// without a packet in flight. A regular command that a big segment has passed takes the last but one all the same, and
    /// gives it back if it gets nowhere ([`Sender::must_return_op_number`]).
    fn budget(&self, pool: &OpBudget, Candidate { slot, destination, class }: Candidate) -> u32 {
        let room = self.capacity(destination, slot);
        if room == 0 {
            return 0;
        }
        let passed = u32::from(class == TransferClass::Regular && self.was_passed(destination, slot));
        // One eighth of the table is kept for regular commands (spec 2.1.1).
        let kept = if class == TransferClass::Big { self.config.op_entries / 8 } else { 0 };
        let usual = pool.available.saturating_sub(kept);
        let budget = match self.claim(slot) {
            Some(Claim::Expected) => usual.max(1),
            Some(Claim::Started) => usual.max(1).min(pool.available.saturating_sub(u32::from(pool.expected))),
            None => {
                let left = pool.available.saturating_sub(u32::from(pool.expected));
                usual.min(left.saturating_sub(pool.begun.into()).max(passed.min(left)))
            }
        };
        // Where the room towards one node is scarce, the same holds there.
        let others = match self.claim(slot) {
            Some(Claim::Expected) => 0,
            Some(Claim::Started) => u32::from(self.has_claim(destination, Claim::Expected)),
            None => {
                let expected = u32::from(self.has_claim(destination, Claim::Expected));
                let begun = u32::from(self.has_claim(destination, Claim::Started));
                if room - expected.min(room) <= begun {
                    expected + begun - passed.min(begun)
                } else {
                    expected + begun
                }
            }
        };
        budget.min(room.saturating_sub(others))
    }

    /// Packets that a destination takes of the transfer at the head of one of its queues, whatever op numbers there are.
    fn capacity(&self, destination: u32, slot: u32) -> u32 {
        let record = self.destinations.get(destination);
        if record.suspect {
            return 0;
        }
        let transfer = &self.transfers[index(slot)];
        let notifies = transfer.command.notify != Notify::None;
        // What waits for a host that is not ready takes nothing from transfers that need nothing of it.
        let waiting = if notifies { 0 } else { record.not_ready };
        if transfer.partial.is_none() {
            let begins = transfer.state == TransferState::Queued;
            // Half of the places and op numbers are for transfers that need nothing of a host that is not ready.
            let places = self.config.live_per_destination.min(self.config.destination_share());
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
        self.config.destination_share().saturating_sub(record.in_flight.saturating_sub(waiting))
    }

    fn has_claim(&self, destination: u32, wanted: Claim) -> bool {
        let record = self.destinations.get(destination);
        [record.regular.head(), record.big.head()]
            .into_iter()
            .flatten()
            .any(|slot| self.claim(slot) == Some(wanted))
    }

    /// Whether a regular command has already let a big segment pass, and waits for nothing but an op number.
    fn has_yielded(&self) -> bool {
        (0..self.destinations.used()).any(|destination| {
            let head = self.destinations.get(destination).regular.head();
            head.is_some_and(|slot| {
                self.was_passed(destination, slot) && self.capacity(destination, slot) != 0
            })
        })
    }

    /// Whether a big transfer's segment waits that has been sent before and gave its op number back. A copy of its first packet may have
    /// been registered since, and hold the entry that the regular commands wait for.
    fn has_returned_segment(&self) -> bool {
        (0..self.destinations.used()).any(|destination| {
            let head = self.destinations.get(destination).big.head();
            let partial = head.and_then(|slot| self.transfers[index(slot)].partial);
            partial.is_some_and(|partial| self.segments.get(partial).issued == 0)
        })
    }

    /// Whether the regular command at the head of a destination's queue has let a big segment pass and has not sent a packet. One
    /// that has given its op number back for a transfer that had begun lets that one have its turn.
    fn was_passed(&self, destination: u32, slot: u32) -> bool {
        let partial = self.transfers[index(slot)].partial;
        let first = partial.is_none_or(|partial| self.segments.get(partial).issued == 0);
        self.destinations.get(destination).must_pass != 0 && first && !self.yielded_op_numbers
    }

    /// Whether a packet that a busy receiver refuses is to give its op number back: it is all that a regular command has sent,
    /// there is no other number, and a transfer that has begun has none. Or another one gave its number back and this one has
    /// been refused for long: each has its turn. So does the first packet of a big transfer's segment, for a regular command that
    /// gave its number back: a copy of that one's packet may have been registered since, and then it is what the receiver's entry waits
    /// for.
    pub(super) fn must_return_op_number(&mut self, now: Nanos, op: &Op) -> bool {
        let record = self.segments.get(op.segment);
        let Transfer { class, destination, partial, .. } = self.transfers[index(record.transfer)];
        if op.packet != 0 || record.issued != 1 {
            return false;
        }
        let full = self.destinations.get(destination).in_flight >= self.config.destination_share();
        let none = self.ops.available(now) == 0;
        if !full && !none {
            return false;
        }
        if class == TransferClass::Big {
            // Its segment goes back as the half-issued one, of which there is one at a time.
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

    /// Takes the first packet of a segment back into its queue. It leaves later, under another op number; what the receiver answers
    /// to this one is stale.
    ///
    /// Not so with others: the receiver may keep those aside, and acknowledges them only when the first one has come, which may be
    /// long after their op numbers have rested. Nor in silence: the receiver may have registered the operation. A copy of the
    /// refused packet that wanders may register it yet: the entry then waits, as for any slow sender, until the packet has its
    /// turn again, which it gets because every refused first packet gives way after [`REFUSALS_BEFORE_YIELD`] refusals; if the command ends meanwhile,
    /// the entry is released by the registry's timeout or a newer oldest transfer.
    #[cold]
    pub(super) fn withdraw(&mut self, now: Nanos, op: &Op) {
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
            // Still there.
            TransferClass::Big => return,
        };
        let transfers = &self.transfers;
        queue.insert_sorted(&mut self.queue_links, slot, |other| {
            transfers[index(other)].state == TransferState::Queued
        });
    }

    /// The waiting regular command of the highest priority, and among those the one that arrived first, of those whose
    /// destination takes packets.
    fn regular_candidate(&self, pool: &OpBudget) -> Option<Candidate> {
        let mut best: Option<((u8, u64), Candidate)> = None;
        for destination in 0..self.destinations.used() {
            let Some(slot) = self.destinations.get(destination).regular.head() else { continue };
            let transfer = &self.transfers[index(slot)];
            let rank = (u8::MAX - transfer.command.priority, transfer.arrival);
            let candidate = Candidate { slot, destination, class: TransferClass::Regular };
            if best.is_none_or(|(first, _)| rank < first) && self.budget(pool, candidate) != 0 {
                best = Some((rank, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    /// The head of the next destination's big-transfer queue, round robin among those of the highest priority.
    /// `owing`: only of those whose segment the receiver expects.
    fn big_candidate(&self, pool: &OpBudget, owing: bool) -> Option<Candidate> {
        let used = self.destinations.used();
        let mut best: Option<(u8, Candidate)> = None;
        for destination in (self.big_turn..used).chain(0..self.big_turn.min(used)) {
            let Some(slot) = self.destinations.get(destination).big.head() else { continue };
            if owing && self.claim(slot) != Some(Claim::Expected) {
                continue;
            }
            let priority = self.transfers[index(slot)].command.priority;
            let candidate = Candidate { slot, destination, class: TransferClass::Big };
            if best.is_none_or(|(most, _)| priority > most) && self.budget(pool, candidate) != 0 {
                best = Some((priority, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    fn issue(&mut self, now: Nanos, pool: &OpBudget, chosen: Candidate) -> Option<Transmit> {
        let Candidate { slot, destination, class } = chosen;
        let budget = self.budget(pool, chosen);
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
        let deadline = self.retry.deadline(now, &self.destinations.get(destination).trip, 0, progress);
        for packet in record.issued..record.issued + low16(count) {
            match self.ops.take(now, record_slot, packet, deadline) {
                Some(number) => ops.push(number),
                None => break,
            }
        }
        let sent = ops.len();
        let issued = self.segments.get_mut(record_slot);
        if let (0, Some(first)) = (issued.issued, ops.as_slice().first()) {
            issued.start.op = *first;
            issued.start.first = now;
        }
        issued.issued += sent;
        self.destinations.get_mut(destination).in_flight += u32::from(sent);
        self.counters.packets += u64::from(sent);
        let transfer = &mut self.transfers[index(slot)];
        transfer.packets += u64::from(sent);
        let whole = record.issued + sent == record.packets;
        transfer.partial = if whole { None } else { Some(record_slot) };
        let drained = whole && transfer.remaining == 0;
        let queues = self.destinations.get_mut(destination);
        match class {
            TransferClass::Regular => {
                self.last_was_regular = true;
                if drained {
                    queues.regular.remove(&mut self.queue_links, slot);
                    self.end_pass(slot);
                }
            }
            TransferClass::Big => {
                self.last_was_regular = false;
                self.big_segments_issued += 1;
                self.big_turn = destination + 1;
                if drained {
                    queues.big.remove(&mut self.queue_links, slot);
                }
                for at in 0..self.destinations.used() {
                    let record = self.destinations.get_mut(at);
                    record.must_pass = record.regular.len();
                }
            }
        }
        Some(self.transmit(&record, record.issued, ops, 1))
    }

    /// A regular command has left its queue: if it let a big segment pass, that is over.
    pub(super) fn end_pass(&mut self, slot: u32) {
        let transfer = &self.transfers[index(slot)];
        if transfer.big_issues_at_arrival != self.big_segments_issued {
            let record = self.destinations.get_mut(transfer.destination);
            record.must_pass = record.must_pass.saturating_sub(1);
        }
    }

    /// The first packet of a transfer is about to leave: it gets its id, the next one towards its destination.
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

    /// Cuts the next segment off the in-place head: base addresses and remaining bytes move, nothing is copied (spec
    /// 2.1.2).
    fn cut(&mut self, slot: u32) -> Option<u16> {
        let transfer = &mut self.transfers[index(slot)];
        let length = low32(transfer.remaining.min(u64::from(self.config.segment_size)));
        let packets = low16(packet_count(length, self.config.packet_size_log2));
        let record = self.segments.take(Segment {
            in_use: true,
            transfer: slot,
            index: transfer.next_segment,
            source: transfer.next_source,
            base: transfer.next_base,
            length,
            packets,
            issued: 0,
            acknowledged: 0,
            start: StartState::default(),
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
        self.transfers[index(record.transfer)].retransmits += 1;
        self.counters.retransmits += 1;
        let mut ops = Ops::NONE;
        ops.push(op.number);
        self.transmit(&record, op.packet, ops, op.tries)
    }

    /// The sender's notice that all has arrived; with it the transfer ends.
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
            ticket: Ticket { slot: record.transfer, generation: transfer.generation },
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
            silent: record.index + 1 < transfer.segments,
            notify: transfer.command.notify,
            transfer_base: transfer.command.destination,
            transfer_length: transfer.command.length,
        }
    }
}

impl Transmit {
    /// Flags by which its packets tell who notifies the receiving application.
    #[must_use]
    pub const fn notice_flags(&self) -> Flags {
        match self.notify {
            Notify::Receiver => Flags::NOTIFY_RECEIVER,
            Notify::Sender => Flags::NONE,
            Notify::None => Flags::NO_NOTICE,
        }
    }
}
