//! What to send next.

use fpga_registers::CardAddr;

use super::table::{Segment, Start, TransferState};
use super::{Notify, Ops, SEGMENT_SPAN, Sender, Ticket, Transmit, TransmitKind};
use crate::cast::{index, low16, low32};
use crate::op_table::Op;
use crate::segment::{Class, packet_count, packet_span};
use crate::time::Nanos;

/// Op numbers, and whether some must be left.
#[derive(Clone, Copy, Debug)]
struct Pool {
    available: u32,
    /// There is a [`Claim::Expected`].
    expected: bool,
    /// There is a [`Claim::Begun`].
    begun: bool,
}

/// Why a transfer with nothing in flight must get an op number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The receiver has an entry for its segment, which only its next packets release.
    Expected,
    /// The receiver has a record of it, which only its next segment releases.
    Begun,
}

/// A queue head that can be served now.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: u32,
    destination: u32,
    class: Class,
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
        if self.ops.has_due() {
            let Self { ops, retry, segments, transfers, destinations, .. } = self;
            let due = ops.take_due(now, |op| {
                let transfer = &transfers[index(segments.get(op.segment).transfer)];
                let trip = &destinations.get(transfer.destination).trip;
                retry.deadline(now, trip, op.silent, transfer.progress)
            });
            if let Some(op) = due {
                return Some(self.retransmit(now, &op));
            }
        }
        let pool = self.pool(now);
        if pool.available == 0 {
            return None;
        }
        let regular = self.regular_candidate(&pool);
        // At most one big segment goes between a regular command's arrival and its first packet: those that were there when
        // the last one left go first. Without a regular one in between, a steady stream of them would starve the big ones.
        let big_may_go = regular.is_none() || (self.last_was_regular && !self.owes(&pool));
        let big = if big_may_go { self.big_candidate(&pool) } else { None };
        let chosen = big.or(regular)?;
        self.issue(now, &pool, chosen)
    }

    /// What op numbers there are, and who must get one.
    fn pool(&mut self, now: Nanos) -> Pool {
        let mut pool = Pool { available: self.ops.available(now), expected: false, begun: false };
        for destination in 0..self.destinations.used() {
            let record = self.destinations.get(destination);
            for slot in [record.regular.head(), record.big.head()].into_iter().flatten() {
                match self.claim(slot) {
                    Some(Claim::Expected) => pool.expected = true,
                    Some(Claim::Begun) => pool.begun = true,
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
                (record.acknowledged == record.issued).then_some(Claim::Expected)
            }
            None => (transfer.state == TransferState::UnderWay && transfer.outstanding == 0)
                .then_some(Claim::Begun),
        }
    }

    /// How many new packets a transfer at the head of a queue may send now.
    ///
    /// Op numbers are held by packets that a busy receiver refuses, and the receiver is busy with segments and transfers whose
    /// next packets need op numbers: so that neither waits for the other for ever, the last number is for a segment that the
    /// receiver expects, and the last but one for the next segment of a transfer that has begun, where there are such
    /// without a packet in flight.
    fn budget(&self, pool: &Pool, Candidate { slot, destination, class }: Candidate) -> u32 {
        let record = self.destinations.get(destination);
        let room = self.config.destination_share().saturating_sub(record.in_flight);
        if record.suspect || room == 0 {
            return 0;
        }
        let transfer = &self.transfers[index(slot)];
        if transfer.partial.is_none() {
            let begins = transfer.state == TransferState::Queued;
            let within_span = transfer.next_segment - transfer.done.base() < SEGMENT_SPAN;
            let has_records =
                self.segments.has_free() && (!begins || record.live.len() < self.config.live_per_destination);
            if !within_span || !has_records {
                return 0;
            }
        }
        // One eighth of the table is kept for regular commands (spec 2.1.1).
        let kept = if class == Class::Big { self.config.op_entries / 8 } else { 0 };
        let usual = pool.available.saturating_sub(kept);
        let budget = match self.claim(slot) {
            Some(Claim::Expected) => usual.max(1),
            Some(Claim::Begun) => usual.max(1).min(pool.available.saturating_sub(u32::from(pool.expected))),
            None => {
                usual.min(pool.available.saturating_sub(u32::from(pool.expected) + u32::from(pool.begun)))
            }
        };
        // Where the room towards one node is scarce, the same holds there.
        let others = match self.claim(slot) {
            Some(Claim::Expected) => 0,
            Some(Claim::Begun) => u32::from(self.has_claim(destination, Claim::Expected)),
            None => {
                u32::from(self.has_claim(destination, Claim::Expected))
                    + u32::from(self.has_claim(destination, Claim::Begun))
            }
        };
        budget.min(room.saturating_sub(others))
    }

    fn has_claim(&self, destination: u32, wanted: Claim) -> bool {
        let record = self.destinations.get(destination);
        [record.regular.head(), record.big.head()]
            .into_iter()
            .flatten()
            .any(|slot| self.claim(slot) == Some(wanted))
    }

    /// Whether a regular command that can be served has already let a big segment pass.
    fn owes(&self, pool: &Pool) -> bool {
        (0..self.destinations.used()).any(|destination| {
            let record = self.destinations.get(destination);
            let head = record.regular.head().filter(|_| record.owed != 0);
            head.is_some_and(|slot| {
                self.budget(pool, Candidate { slot, destination, class: Class::Regular }) != 0
            })
        })
    }

    /// The waiting regular command of the highest priority, and among those the one that arrived first, of those whose
    /// destination takes packets.
    fn regular_candidate(&self, pool: &Pool) -> Option<Candidate> {
        let mut best: Option<((u8, u64), Candidate)> = None;
        for destination in 0..self.destinations.used() {
            let Some(slot) = self.destinations.get(destination).regular.head() else { continue };
            let transfer = &self.transfers[index(slot)];
            let rank = (u8::MAX - transfer.command.priority, transfer.arrival);
            let candidate = Candidate { slot, destination, class: Class::Regular };
            if best.is_none_or(|(first, _)| rank < first) && self.budget(pool, candidate) != 0 {
                best = Some((rank, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    /// The head of the next destination's big-transfer queue, round robin among those of the highest priority.
    fn big_candidate(&self, pool: &Pool) -> Option<Candidate> {
        let used = self.destinations.used();
        let mut best: Option<(u8, Candidate)> = None;
        for destination in (self.big_turn..used).chain(0..self.big_turn.min(used)) {
            let Some(slot) = self.destinations.get(destination).big.head() else { continue };
            let priority = self.transfers[index(slot)].command.priority;
            let candidate = Candidate { slot, destination, class: Class::Big };
            if best.is_none_or(|(most, _)| priority > most) && self.budget(pool, candidate) != 0 {
                best = Some((priority, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    fn issue(&mut self, now: Nanos, pool: &Pool, chosen: Candidate) -> Option<Transmit> {
        let Candidate { slot, destination, class } = chosen;
        let budget = self.budget(pool, chosen);
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
            Class::Regular => {
                self.last_was_regular = true;
                if drained {
                    queues.regular.remove(&mut self.queue_links, slot);
                    self.settle(slot);
                }
            }
            Class::Big => {
                self.last_was_regular = false;
                self.big_issues += 1;
                self.big_turn = destination + 1;
                if drained {
                    queues.big.remove(&mut self.queue_links, slot);
                }
                for at in 0..self.destinations.used() {
                    let record = self.destinations.get_mut(at);
                    record.owed = record.regular.len();
                }
            }
        }
        Some(self.transmit(&record, record.issued, ops, 1))
    }

    /// A regular command has left its queue: if it let a big segment pass, that is over.
    pub(super) fn settle(&mut self, slot: u32) {
        let transfer = &self.transfers[index(slot)];
        if transfer.big_issues_at_arrival != self.big_issues {
            let record = self.destinations.get_mut(transfer.destination);
            record.owed = record.owed.saturating_sub(1);
        }
    }

    /// The first packet of a transfer is about to leave: it gets its id, the next one towards its destination.
    fn begin(&mut self, now: Nanos, slot: u32, destination: u32) {
        let transfer = &mut self.transfers[index(slot)];
        if transfer.state != TransferState::Queued {
            return;
        }
        transfer.state = TransferState::UnderWay;
        transfer.progress = now;
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
            start: Start::default(),
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
    /// Whether the receiver is to post its own notice when the whole transfer has arrived.
    #[must_use]
    pub const fn receiver_notifies(&self) -> bool {
        matches!(self.notify, Notify::Receiver)
    }
}
