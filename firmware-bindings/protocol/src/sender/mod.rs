//! The sending side of the registry scheme (spec 2.1): commands in, transmit windows out, answers in, completions out.
//!
//! Sans-IO. Order of calls: [`Sender::submit`], and [`Sender::handle_ack`], [`Sender::handle_nack`],
//! [`Sender::handle_segment_done`] as answers arrive, and [`Sender::handle_timeout`] once
//! [`Sender::poll_timeout`]'s time is reached; after any of them [`Sender::poll_transmit`] while a transmit window is
//! free, and [`Sender::poll_completion`], each until it returns `None`.
//!
//! A transfer ends with exactly one [`Completion`]: when its count of outstanding segments reaches zero [E1-8], or with an
//! error. Every table is allocated in [`Sender::new`]; a full one is back-pressure.

use fpga_firmware::event::{Event, EventKind, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};

mod config;
mod give_up;
mod hash;
mod issue;
mod retry;
mod table;
mod types;
mod views;

pub use config::{ConfigError, REGISTRY_TIMEOUT_MARGIN, SEGMENT_SPAN, SenderConfig};
pub use retry::{RetryPolicy, RoundTrip, TimeoutPolicy};
pub use types::{
    Answer, Command, Completion, Notify, Ops, SenderCounters, SubmitError, Ticket, TransferError, Transmit,
    TransmitKind,
};
pub use views::{PacketView, TransferStage, TransferView};

use crate::list::{List, ListLinks};
use crate::op_table::{Op, OpTable, OpTableConfig};
use crate::segment::{TransferClass, classify, segment_count};
use crate::state::StateTable;
use crate::time::Nanos;
use crate::timers::Timers;
use alloc::boxed::Box;
use fpga_registers::cast::{index, low16};
use table::{Destinations, Segments, Transfer, TransferState};

/// The sending side of one node; see the module's description.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    incarnation: Incarnation,
    retry: RetryPolicy,
    ops: OpTable,
    transfers: Box<[Transfer]>,
    /// For a destination's two queues, and for `free`, `announcing` and `finished`: a transfer is in one of them.
    queue_links: ListLinks,
    live_links: ListLinks,
    free: List,
    announcing: List,
    finished: List,
    segments: Segments,
    destinations: Destinations,
    /// Where the next look for a big segment starts.
    big_turn: u32,
    /// Big segments issued so far, and whether the last issue was regular.
    big_segments_issued: u64,
    last_was_regular: bool,
    /// Whether a regular command gave op numbers back for a transfer that has begun, and that one has not had its turn yet.
    yielded_op_numbers: bool,
    arrivals: u64,
    /// The transfers' own deadlines.
    deadlines: Timers,
    counters: SenderCounters,
}

impl Sender {
    /// Allocates everything the sender will ever need. `incarnation` is a fresh random number of this life.
    ///
    /// # Errors
    /// See [`SenderConfig::validate`].
    pub fn new(config: SenderConfig, incarnation: Incarnation) -> Result<Self, ConfigError> {
        config.validate()?;
        let ops = OpTable::new(OpTableConfig {
            entries: config.op_entries,
            packet_lifetime: config.packet_lifetime,
            generation_bits: config.generation_bits,
        })?;
        let mut queue_links = ListLinks::new(config.transfers);
        let mut free = List::EMPTY;
        for slot in 0..config.transfers {
            free.push_back(&mut queue_links, slot);
        }
        // A segment under way has a packet in flight, or is the half-issued one of one of a destination's two queues.
        let segments = low16(config.op_entries + 2 * config.destinations);
        Ok(Self {
            incarnation,
            retry: config.retry,
            ops,
            transfers: alloc::vec![Transfer::EMPTY; index(config.transfers)].into_boxed_slice(),
            queue_links,
            live_links: ListLinks::new(config.transfers),
            free,
            announcing: List::EMPTY,
            finished: List::EMPTY,
            segments: Segments::new(segments),
            destinations: Destinations::new(config.destinations, config.first_transfer),
            big_turn: 0,
            big_segments_issued: 0,
            last_was_regular: false,
            yielded_op_numbers: false,
            arrivals: 0,
            deadlines: Timers::new(config.transfers),
            counters: SenderCounters::default(),
            config,
        })
    }

    /// Its tables, and how much state an entry of each holds.
    #[must_use]
    pub fn state(&self) -> [StateTable; 7] {
        let link = ListLinks::BYTES_PER_SLOT;
        let transfer = size_of::<Transfer>() + link + Timers::BYTES;
        let [sheet, slot] = Timers::LIST_BYTES;
        let ([sheets, slots], [more_sheets, more_slots]) =
            (self.ops.timers().chunk_count(), self.deadlines.chunk_count());
        [
            StateTable::new("op table", self.config.op_entries.into(), OpTable::BYTES),
            StateTable::new("segments", self.segments.capacity(), Segments::BYTES),
            StateTable::new("transfers", self.config.transfers.into(), transfer),
            StateTable::new("queues", self.config.transfers.into(), link),
            StateTable::new("destinations", self.config.destinations.into(), Destinations::BYTES),
            StateTable::new("sheets of timers", sheets + more_sheets, sheet),
            StateTable::new("lists of timers", slots + more_slots, slot),
        ]
    }

    /// The configuration it was built with.
    #[must_use]
    pub const fn config(&self) -> &SenderConfig {
        &self.config
    }

    /// The incarnation that its packets carry.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Queues a transfer. A zero-length one is complete at once.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing has changed then.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<Ticket, SubmitError> {
        if command.node == NodeId::ANY {
            return Err(SubmitError::Node { node: command.node });
        }
        let length = command.length;
        for start in [command.source, command.destination] {
            start.checked_add(length).ok_or(SubmitError::Address { start, length })?;
        }
        let class = classify(length, self.config.big_threshold);
        let segments =
            segment_count(length, self.config.segment_size).ok_or(SubmitError::TooLong { length })?;
        let full = SubmitError::Full { capacity: self.config.transfers };
        let slot = self.free.head().ok_or(full)?;
        let destination = if length == 0 {
            0
        } else {
            let capacity = self.config.destinations;
            let node = command.node;
            self.destinations.find_or_make(node).ok_or(SubmitError::Destinations { capacity, node })?
        };
        self.free.remove(&mut self.queue_links, slot);
        let generation = self.transfers[index(slot)].generation;
        self.arrivals += 1;
        self.transfers[index(slot)] = Transfer {
            generation,
            state: TransferState::Queued,
            class,
            command,
            destination,
            next_source: command.source,
            next_base: command.destination,
            remaining: length,
            segments,
            arrival: self.arrivals,
            big_issues_at_arrival: self.big_segments_issued,
            started: now,
            ..Transfer::EMPTY
        };
        if length == 0 {
            self.finish(now, slot, Ok(()));
        } else {
            let record = self.destinations.get_mut(destination);
            record.transfers += 1;
            let queue = match class {
                TransferClass::Regular => &mut record.regular,
                TransferClass::Big => &mut record.big,
            };
            let transfers = &self.transfers;
            // One that needs nothing of a host that is not ready goes before those that do.
            let passes = record.not_ready != 0 && command.notify == Notify::None;
            // One that has begun is finished first: it holds records at the receiver that others may wait for.
            queue.insert_sorted(&mut self.queue_links, slot, |other| {
                let other = &transfers[index(other)];
                let rank = (other.command.priority, other.command.notify == Notify::None || !passes);
                rank < (command.priority, true) && other.state == TransferState::Queued
            });
            self.watch(slot);
        }
        Ok(Ticket { slot, generation })
    }

    /// Takes an event of the NI if it is an answer to this sender's packets; returns whether it was.
    pub fn handle_event(&mut self, now: Nanos, event: &Event) -> bool {
        let Event { node, incarnation, op, transfer, segment, tries, generation, .. } = *event;
        let life = Incarnation::new(generation);
        let answer = Answer { node, incarnation, op, transfer, segment, tries, peer_incarnation: life };
        match (event.kind, event.nack_reason()) {
            (EventKind::Ack, _) => self.handle_ack(now, answer),
            (EventKind::Nack, Some(reason)) => self.handle_nack(now, answer, reason),
            (EventKind::SegmentDone, _) => self.handle_segment_done(now, answer),
            _ => return false,
        }
        true
    }

    /// One packet is in the receiver's memory. A stale answer is counted and ignored [E1-13].
    pub fn handle_ack(&mut self, now: Nanos, answer: Answer) {
        let Some(op) = self.current(now, answer) else { return };
        self.counters.acknowledged += 1;
        self.ops.acknowledge(now, op.number);
        let record = self.segments.get_mut(op.segment);
        // Karn's rule: which try was answered has to be certain, so a count that has reached its end says nothing. Nor does a
        // packet that waited for its segment's first one to be sent again.
        let certain = answer.tries == op.tries && op.tries != u8::MAX;
        let held_up = op.sent < record.start.again;
        if op.packet == 0 {
            record.start.known = now;
        }
        let trip = (certain && !held_up).then(|| now.saturating_sub(op.sent));
        self.acknowledged(now, op.segment, 1, op.sent, trip);
    }

    /// One packet was refused: busy waits and tries again, anything else ends the transfer.
    pub fn handle_nack(&mut self, now: Nanos, answer: Answer, reason: NackReason) {
        let Some(op) = self.current(now, answer) else { return };
        let transfer = self.segments.get(op.segment).transfer;
        match reason {
            NackReason::Busy | NackReason::EscapeFull => {
                // An answer to an earlier try says nothing about the try that is under way.
                if answer.tries == op.tries {
                    self.counters.busy += 1;
                    if op.packet == 0 {
                        self.segments.get_mut(op.segment).start.first = op.sent;
                        let transfer = &mut self.transfers[index(transfer)];
                        transfer.remembered = transfer.remembered.max(op.sent);
                    }
                    if self.is_forgotten(&op) {
                        let error = self.forgotten(&op);
                        self.give_up(now, transfer, error);
                        return;
                    }
                    if self.must_return_op_number(now, &op) {
                        self.withdraw(now, &op);
                    } else if self.waits_for_start(&op) {
                        self.defer(now, &op);
                    } else {
                        self.ops.refuse(op.number, self.retry.busy_until(now, op.busy));
                    }
                }
                let transfer = &mut self.transfers[index(transfer)];
                transfer.progress = now;
                self.destinations.get_mut(transfer.destination).suspect = false;
            }
            NackReason::NotReady => self.handle_not_ready(now, &op, answer.tries == op.tries),
            _ => {
                self.counters.refused += 1;
                let error = self.refused(&op, reason);
                self.give_up(now, transfer, error);
            }
        }
    }

    /// The receiver has every packet of a segment: as good as the acknowledgements that are still missing. The answer's op
    /// number and try mean nothing.
    pub fn handle_segment_done(&mut self, now: Nanos, answer: Answer) {
        let Answer { transfer, segment, .. } = answer;
        if answer.incarnation != self.incarnation {
            self.counters.stale += 1;
            return;
        }
        let Some(slot) = self.find_segment(answer.node, transfer, segment) else {
            // The normal case: the acknowledgements came first.
            return;
        };
        let owner = self.segments.get(slot).transfer;
        if !self.note_incarnation(now, self.transfers[index(owner)].destination, answer.peer_incarnation) {
            return;
        }
        let Some(slot) = self.find_segment(answer.node, transfer, segment) else { return };
        let record = *self.segments.get(slot);
        if record.issued < record.packets {
            // It cannot have what was not sent.
            self.counters.stale += 1;
            return;
        }
        let mut released = 0;
        for at in 0..self.ops.capacity() {
            if let Some(op) = self.ops.slot(low16(at)).filter(|op| op.segment == slot) {
                self.ops.acknowledge(now, op.number);
                released += 1;
            }
        }
        self.acknowledged(now, slot, released, record.start.first, None);
    }

    /// The oldest transfer that has ended.
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        let slot = self.finished.pop_front(&mut self.queue_links)?;
        self.free.push_back(&mut self.queue_links, slot);
        let transfer = &mut self.transfers[index(slot)];
        let completion = Completion {
            ticket: Ticket { slot, generation: transfer.generation },
            transfer: (transfer.packets + transfer.retransmits != 0).then_some(transfer.id),
            node: transfer.command.node,
            result: transfer.result,
            length: transfer.command.length,
            segments: transfer.segments,
            silent_segments: transfer.segments.saturating_sub(1),
            packets: transfer.packets,
            retransmits: transfer.retransmits,
            started: transfer.started,
            finished: transfer.finished,
        };
        transfer.state = TransferState::Free;
        transfer.generation = transfer.generation.wrapping_add(1);
        Some(completion)
    }

    /// Running counts.
    #[must_use]
    pub const fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// The op table's entries in use, for a display.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        self.ops.iter()
    }

    /// What each destination's queues hold, for a display.
    pub fn queues(&self) -> impl Iterator<Item = QueueView> + '_ {
        (0..self.destinations.used()).map(|at| {
            let record = self.destinations.get(at);
            let head = record.big.head().map(|slot| &self.transfers[index(slot)]);
            QueueView {
                node: record.node,
                regular: record.regular.len(),
                big: record.big.len(),
                under_way: record.live.len(),
                in_flight: record.in_flight,
                big_head_remaining: head.map_or(0, |transfer| transfer.remaining),
                suspect: record.suspect,
                round_trip: record.trip,
            }
        })
    }

    /// Whether nothing is queued, under way or waiting to be polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.config.transfers && self.ops.in_use() == 0 && self.segments.in_use() == 0
    }

    fn find_segment(&self, node: NodeId, transfer: TransferId, segment: SegmentIndex) -> Option<u16> {
        self.segments.find(|record| {
            let owner = &self.transfers[index(record.transfer)];
            record.index == segment && owner.id == transfer && owner.command.node == node
        })
    }

    /// The live entry that an answer is about.
    ///
    /// A packet that waits at its receiver in vain is refused when its time there is up, which may be later than its number rests
    /// where its transfer has ended meanwhile: the refusal is not the next one's.
    fn current(&mut self, now: Nanos, answer: Answer) -> Option<Op> {
        let found = self.ops.get(answer.op).and_then(|op| {
            let segment = self.segments.get(op.segment);
            let transfer = &self.transfers[index(segment.transfer)];
            let ours = answer.incarnation == self.incarnation && transfer.command.node == answer.node;
            let same = transfer.id == answer.transfer && segment.index == answer.segment;
            (ours && same).then_some(transfer.destination)
        });
        // Looked up again: the transfer may be over because of whose answer this is.
        let op = found
            .filter(|destination| self.note_incarnation(now, *destination, answer.peer_incarnation))
            .and_then(|_| self.ops.get(answer.op));
        if op.is_none() {
            self.counters.stale += 1;
        }
        op
    }

    /// `count` packets of a segment left the op table because the receiver has them; `left`: when what it answers was sent, as far
    /// as is known ([`Sender::is_overdue`]); `trip`: how long the answer took.
    fn acknowledged(&mut self, now: Nanos, slot: u16, count: u16, left: Nanos, trip: Option<Nanos>) {
        let record = self.segments.get_mut(slot);
        record.acknowledged += count;
        let complete = record.acknowledged == record.packets;
        let (owner, segment) = (record.transfer, record.index);
        self.set_ready(owner);
        let transfer = &mut self.transfers[index(owner)];
        transfer.acknowledged += u64::from(count);
        transfer.progress = now;
        transfer.remembered = transfer.remembered.max(left);
        let destination = self.destinations.get_mut(transfer.destination);
        destination.in_flight -= u32::from(count);
        destination.suspect = false;
        if let Some(span) = trip {
            destination.trip.sample(span);
            destination.sampled.latest = now;
            if destination.trip.samples == 1 {
                destination.sampled.first = now;
            }
            if matches!(destination.trip.samples, 1 | retry::FEW_SAMPLES) {
                let destination = transfer.destination;
                self.apply_first_samples(now, destination);
            }
        }
        if !complete {
            return;
        }
        let transfer = &mut self.transfers[index(owner)];
        self.segments.release(slot);
        self.counters.segments += 1;
        transfer.done.insert(segment);
        transfer.outstanding -= 1;
        // Zero outstanding, not "the last one was acknowledged": earlier segments may still be on their way [E1-8].
        if transfer.outstanding == 0 && transfer.remaining == 0 {
            self.arrived(now, owner);
        }
    }

    fn arrived(&mut self, now: Nanos, slot: u32) {
        self.transfers[index(slot)].finished = now;
        match self.transfers[index(slot)].command.notify {
            Notify::Receiver | Notify::None => self.finish(now, slot, Ok(())),
            Notify::Sender => {
                self.transfers[index(slot)].state = TransferState::Announcing;
                self.announcing.push_back(&mut self.queue_links, slot);
            }
        }
    }

    /// Ends a transfer that is in no queue any more and holds no entry.
    fn finish(&mut self, now: Nanos, slot: u32, result: Result<(), TransferError>) {
        self.set_ready(slot);
        let transfer = &mut self.transfers[index(slot)];
        if transfer.state != TransferState::Announcing {
            transfer.finished = now;
        }
        let under_way = matches!(transfer.state, TransferState::InProgress | TransferState::Announcing);
        transfer.state = TransferState::Finished;
        self.deadlines.stop(slot);
        transfer.result = result;
        match result {
            Ok(()) => self.counters.completed += 1,
            Err(_) => self.counters.failed += 1,
        }
        if transfer.command.length != 0 {
            let destination = self.destinations.get_mut(transfer.destination);
            destination.transfers -= 1;
            if under_way {
                destination.live.remove(&mut self.live_links, slot);
            }
        }
        self.finished.push_back(&mut self.queue_links, slot);
    }
}

/// One destination's queues, as [`Sender::queues`] shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueView {
    /// The destination.
    pub node: NodeId,
    /// Regular transfers whose packets have not all been sent once.
    pub regular: u32,
    /// Big transfers of which that is true.
    pub big: u32,
    /// Transfers with at least one packet sent that have not ended.
    pub under_way: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Bytes left of the big transfer at the head.
    pub big_head_remaining: u64,
    /// Whether the destination gets no new packets because its last news was a timeout.
    pub suspect: bool,
    /// What is known of the way there and back.
    pub round_trip: RoundTrip,
}
