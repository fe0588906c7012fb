//! Sender of the registry scheme (docs/protocol.md 4): takes commands and answers, produces transmit windows and completions.
//!
//! This file is longer than most: the handlers of commands and answers change the same tables. What they share is in the submodules.
//!
//! The sender does no I/O (sans-IO). Order of calls:
//!
//! * [`Sender::submit`] for every command,
//! * [`Sender::handle_ack`], [`Sender::handle_nack`] and [`Sender::handle_segment_done`] as answers arrive,
//! * [`Sender::handle_timeout`] when the time that [`Sender::poll_timeout`] returns is reached,
//! * after each of them, [`Sender::poll_transmit`] while a transmit window is free, and [`Sender::poll_completion`],
//!   each until it returns `None`.
//!
//! A caller that sends packet by packet calls [`Sender::departed`] for each packet and, between the packets of a window,
//! [`Sender::poll_retransmission`] (see [`Sender::report_departures`]).
//!
//! A transfer ends with exactly one [`CommandCompletion`]: when its count of outstanding segments reaches zero [E1-8], or with
//! an error. Every table is allocated in [`Sender::new`]; a full one is back-pressure.
//!
//! | Module | Content |
//! |---|---|
//! | `config`, `types`, `views` | configuration; commands, answers and completions; views for listings |
//! | `table`, `marks` | transfers, segments, destinations; a set of slots |
//! | `issue`, `turns`, `search` | the next packets to send; the order in which destinations are served, and its reference |
//! | `congestion`, `flow`, `routes` | congestion windows, link feedback, path identifiers |
//! | `retry`, `loss_detection` | timeouts; losses by the order of sending, and probes |
//! | `give_up` | failure of a transfer: timeouts, refusals, cancellation |
//! | `hash` | hash of the state, for exhaustive searches |

use fpga_firmware::event::{Event, EventKind, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_firmware::wire::AnswerNotes;

mod config;
mod congestion;
mod flow;
mod give_up;
mod hash;
mod issue;
mod loss_detection;
mod marks;
mod retry;
mod routes;
#[cfg(debug_assertions)]
mod search;
mod table;
mod turns;
mod types;
mod views;

pub use config::{REGISTRY_TIMEOUT_MARGIN, SEGMENT_SPAN, SenderConfig, SenderConfigError};
pub use retry::{RetryPolicy, RoundTrip, TimeoutPolicy};
pub use types::{
    Answer, Command, CommandCompletion, CommandError, Notify, Ops, SendFailure, SendTicket, SenderCounters,
    Transmit, TransmitKind,
};
pub use views::{PacketView, TransferStage, TransferView};

use crate::list::{List, ListLinks};
use crate::op_table::{Op, OpState, OpTable, OpTableConfig};
use crate::scheme::bits::PacketSet;
use crate::segment::{TransferClass, classify, segment_count};
use crate::slot_index::SlotIndex;
use crate::state::StateTable;
use crate::time::Nanos;
use crate::timers::Timers;
use alloc::boxed::Box;
use fpga_registers::cast::{index, low16, low32};
use table::{Destinations, Segments, Transfer, TransferState};

/// Sender of one node; see the module documentation.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    incarnation: Incarnation,
    retry: RetryPolicy,
    ops: OpTable,
    transfers: Box<[Transfer]>,
    /// Links of the queues of destinations, and of `free`, `announcing` and `finished`: a transfer is in one of them.
    queue_links: ListLinks,
    live_links: ListLinks,
    free: List,
    announcing: List,
    finished: List,
    segments: Segments,
    destinations: Destinations,
    /// Order in which destinations are served.
    turns: turns::Turns,
    /// Destination at which the next search for a big segment starts.
    big_turn: u32,
    /// Number of big segments issued; `last_was_regular`: whether the last issue was regular.
    big_segments_issued: u64,
    last_was_regular: bool,
    /// Whether a regular command returned op numbers for a transfer in progress that has not been served yet.
    yielded_op_numbers: bool,
    arrivals: u64,
    /// Number of transfers in the queues of destinations.
    queued: u32,
    /// Deadlines of the transfers.
    deadlines: Timers,
    /// Links of the orders of destinations, and per op table slot the number of its transmission; 0: in no order.
    order_links: ListLinks,
    sequences: Box<[u32]>,
    /// Path identifiers, with spraying.
    routes: routes::Routes,
    next_sequence: u32,
    /// Whether the caller reports when each packet of a window leaves.
    reports_departures: bool,
    /// Times of the next check of each destination.
    paths: Timers,
    /// Op table slots of the packets that are parked ([`congestion`]).
    parked: PacketSet,
    /// Time at which a congestion window below one packet lets the next one leave.
    pace: Nanos,
    counters: SenderCounters,
    /// Flow control by link feedback, if it is on.
    pacing: Option<Box<flow::Pacing>>,
}

impl Sender {
    /// Creates a sender and allocates all memory that it will ever need. `incarnation` is later for each
    /// run.
    ///
    /// # Errors
    /// See [`SenderConfig::validate`].
    pub fn new(config: SenderConfig, incarnation: Incarnation) -> Result<Self, SenderConfigError> {
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
        // A segment in progress has a packet in flight, or is the half-issued one of a destination's two queues.
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
            destinations: Destinations::new(
                config.destinations,
                config.first_transfer,
                config.congestion.filter(|_| config.retry.uses_order()),
                config.op_entries,
            ),
            turns: turns::Turns::new(config.destinations),
            big_turn: 0,
            big_segments_issued: 0,
            last_was_regular: false,
            yielded_op_numbers: false,
            arrivals: 0,
            queued: 0,
            deadlines: Timers::compact(config.transfers),
            order_links: ListLinks::new(config.op_entries),
            routes: routes::Routes::new(&config),
            sequences: alloc::vec![0; index(config.op_entries)].into_boxed_slice(),
            next_sequence: 1,
            reports_departures: false,
            paths: Timers::compact(config.destinations),
            parked: PacketSet::new(config.congestion.map_or(0, |_| config.op_entries)),
            pace: Nanos::MAX,
            counters: SenderCounters::default(),
            pacing: None,
            config,
        })
    }

    /// Returns the tables and the bytes of state per entry.
    #[must_use]
    pub fn state(&self) -> [StateTable; 10] {
        let link = ListLinks::BYTES_PER_SLOT;
        let transfer = size_of::<Transfer>() + link + Timers::BYTES;
        let [sheet_bytes, slot_bytes] = Timers::LIST_BYTES;
        let timers = [self.ops.timers(), &self.deadlines, &self.paths].map(Timers::chunk_count);
        let [sheets, slots] =
            timers.iter().fold([0; 2], |[sheets, slots], [more, further]| [sheets + more, slots + further]);
        let [leaf, share] = turns::Turns::BYTES;
        // Bits for parked and held packets, and for idle destinations, rounded up.
        let flags = 1;
        let destination =
            Destinations::BYTES + Timers::BYTES + self.destinations.window_bytes() + share + flags;
        let destinations = self.config.destinations;
        let hashes = SlotIndex::heads(destinations) + SlotIndex::heads(low32(self.segments.capacity()));
        [
            StateTable::new(
                "op table",
                self.config.op_entries.into(),
                OpTable::BYTES + link + size_of::<u32>() + flags + routes::Routes::BYTES_PER_OP,
            ),
            StateTable::new("segments", self.segments.capacity(), Segments::BYTES),
            StateTable::new("transfers", self.config.transfers.into(), transfer),
            StateTable::new("queues", self.config.transfers.into(), link),
            StateTable::new("destinations", destinations.into(), destination),
            StateTable::new("order of destinations", turns::Turns::leaves(destinations) as u64, leaf),
            StateTable::new("path identifiers", destinations.into(), routes::Routes::BYTES),
            StateTable::new("hashes", hashes as u64, SlotIndex::BYTES),
            StateTable::new("sheets of timers", sheets, sheet_bytes),
            StateTable::new("lists of timers", slots, slot_bytes),
        ]
    }

    /// Returns the number of records read: of destinations, of segments and of the op table.
    #[cfg(test)]
    fn visits(&self) -> u64 {
        self.destinations.visits() + self.segments.visits() + self.ops.visits()
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &SenderConfig {
        &self.config
    }

    /// Returns the incarnation that its packets carry.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Queues a transfer. A zero-length transfer completes at once.
    ///
    /// # Errors
    /// See [`CommandError`]; the sender is unchanged.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<SendTicket, CommandError> {
        self.submit_segmented(now, command, self.config.segment_size)
    }

    /// Queues a transfer with segments of `segment_size` bytes, at least 1 and at most the configured length. A transfer up
    /// to the threshold is one segment in any case.
    ///
    /// # Errors
    /// See [`CommandError`]; the sender is unchanged.
    pub fn submit_segmented(
        &mut self,
        now: Nanos,
        command: Command,
        segment_size: u32,
    ) -> Result<SendTicket, CommandError> {
        if command.node == NodeId::ANY {
            return Err(CommandError::Node { node: command.node });
        }
        let length = command.length;
        for start in [command.source, command.destination] {
            start.checked_add(length).ok_or(CommandError::Address { start, length })?;
        }
        let class = classify(length, self.config.big_threshold);
        let segment_size = match class {
            TransferClass::Regular => self.config.segment_size,
            TransferClass::Big => segment_size.clamp(1, self.config.segment_size),
        };
        let segments = segment_count(length, segment_size).ok_or(CommandError::TooLong { length })?;
        let full = CommandError::Full { capacity: self.config.transfers };
        let slot = self.free.head().ok_or(full)?;
        let destination = if length == 0 {
            0
        } else {
            let capacity = self.config.destinations;
            let node = command.node;
            let at = self.destinations.find_or_make(node);
            at.ok_or(CommandError::Destinations { capacity, node })?
        };
        self.renew_routes(destination);
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
            segment_size,
            segments,
            arrival: self.arrivals,
            big_issues_at_arrival: self.big_segments_issued,
            started: now,
            ..Transfer::EMPTY
        };
        if length == 0 {
            self.finish(now, slot, Ok(()));
        } else {
            self.destinations.begin_transfer(destination);
            self.queued += 1;
            let record = self.destinations.get_mut(destination);
            record.settle(self.big_segments_issued);
            let queue = match class {
                TransferClass::Regular => &mut record.regular,
                TransferClass::Big => &mut record.big,
            };
            let transfers = &self.transfers;
            // A transfer without notification goes before those that wait for a host that is not ready.
            let passes = record.not_ready != 0 && command.notify == Notify::None;
            // A transfer in progress is finished first: it holds records at the receiver that others may wait for.
            queue.insert_sorted(&mut self.queue_links, slot, |other| {
                let other = &transfers[index(other)];
                let rank = (other.command.priority, other.command.notify == Notify::None || !passes);
                rank < (command.priority, true) && other.state == TransferState::Queued
            });
            self.watch(slot);
        }
        Ok(SendTicket { slot, generation })
    }

    /// Processes an event of the NI if it answers this sender's packets; returns whether it did.
    pub fn handle_event(&mut self, now: Nanos, event: &Event) -> bool {
        let Event { node, incarnation, op, transfer, segment, tries, generation, index, count, .. } = *event;
        let peer_incarnation = Incarnation::new(generation);
        let notes = AnswerNotes::from_event(index, count);
        let answer = Answer { node, incarnation, op, transfer, segment, tries, peer_incarnation, notes };
        match (event.kind, event.nack_reason()) {
            (EventKind::Ack, _) => self.handle_ack(now, answer),
            (EventKind::Nack, Some(reason)) => self.handle_nack(now, answer, reason),
            (EventKind::SegmentDone, _) => self.handle_segment_done(now, answer),
            (EventKind::Link, _) => return self.handle_link_event(now, event),
            _ => return false,
        }
        true
    }

    /// Handles an acknowledgement: one packet is in the receiver's memory. A stale answer is counted and ignored
    /// [E1-13].
    pub fn handle_ack(&mut self, now: Nanos, answer: Answer) {
        let Some(op) = self.current(now, answer) else { return };
        self.counters.acknowledged += 1;
        self.ops.acknowledge(now, op.number);
        let record = self.segments.get_mut(op.segment);
        // Karn's rule: the try that was answered has to be certain. A late answer to the first try is, and it shows that the
        // timer is too short. A saturated try count gives no sample, and neither does a packet that waited for the
        // retransmission of its segment's first one.
        let certain = answer.tries == op.tries && op.tries != u8::MAX;
        let left = if certain { Some(op.sent) } else { op.first_sent.filter(|_| answer.tries == 1) };
        let left = left.filter(|left| op.packet == 0 || *left >= record.start.again);
        if op.packet == 0 {
            record.start.known = now;
            self.unpark_segment(&op);
        }
        let trip = left.map(|left| now.saturating_sub(left));
        if let Some(trip) = trip {
            self.note_delay(now, self.destination_of(&op), trip);
        }
        // Timers include the time that the receiver holds a packet; the window is about the network alone.
        let held = Nanos::new(answer.notes.delay_ns());
        self.note_signals(now, &op, &answer.notes, trip.map(|trip| trip.saturating_sub(held)));
        self.note_arrival(now, &op, answer.tries, trip.filter(|_| certain));
        self.note_route(now, self.destination_of(&op), &answer, trip);
        self.acknowledged(now, op.segment, 1, op.sent, trip);
    }

    /// Handles the refusal of one packet. "Busy" and "escape channel full" lead to a retry after a backoff, "receiver
    /// not ready" to a retry until the deadline or the give-up time. Every other reason ends the transfer.
    pub fn handle_nack(&mut self, now: Nanos, answer: Answer, reason: NackReason) {
        if reason == NackReason::Superseded {
            self.handle_superseded(now, answer);
            return;
        }
        let Some(op) = self.current(now, answer) else { return };
        let transfer = self.segments.get(op.segment).transfer;
        self.destinations.get_mut(self.transfers[index(transfer)].destination).sampled.latest = now;
        match reason {
            NackReason::Busy | NackReason::EscapeFull => {
                // An answer to an earlier try says nothing about the try in flight.
                if answer.tries == op.tries {
                    self.counters.busy += 1;
                    // A packet that waited too long for the first one of its segment has crossed the network.
                    let no_entry = op.packet == 0 && reason == NackReason::Busy;
                    let no_slot = reason == NackReason::EscapeFull;
                    self.destinations.control(self.destination_of(&op), |config, window| match no_entry {
                        true => window.note_refused(config),
                        false => window.note_lost(no_slot.into()),
                    });
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
                        self.untrack(self.destination_of(&op), op.number);
                        self.park(&op);
                        self.ops.refuse(op.number, self.retry_time(now, &op, &answer));
                    }
                }
                let transfer = &mut self.transfers[index(transfer)];
                transfer.progress = now;
                self.destinations.get_mut(transfer.destination).suspect = false;
            }
            NackReason::NotReady => self.handle_not_ready(now, &op, &answer),
            NackReason::Trimmed => self.handle_trimmed(now, &op, &answer),
            _ => {
                self.counters.refused += 1;
                let error = self.refused(&op, reason);
                self.give_up(now, transfer, error);
            }
        }
    }

    /// Handles the refusal of a packet whose payload a full queue has cut off: it is due again at once, on another path, and the
    /// congestion window has one packet less. The answer is exact: nothing else is known to be lost.
    fn handle_trimmed(&mut self, now: Nanos, op: &Op, answer: &Answer) {
        let owner = self.segments.get(op.segment).transfer;
        let destination = self.transfers[index(owner)].destination;
        self.transfers[index(owner)].progress = now;
        self.destinations.get_mut(destination).suspect = false;
        // An answer to an earlier try says nothing about the try in flight; a copy of an answer, nothing new.
        if answer.tries != op.tries || op.state == OpState::Due {
            return;
        }
        self.counters.trimmed += 1;
        if op.packet == 0 {
            // The receiver has registered the segment.
            self.segments.get_mut(op.segment).start.known = now;
            self.unpark_segment(op);
        }
        self.destinations.control(destination, |config, window| window.note_trimmed(config, now));
        self.note_cut(destination, op);
        self.untrack(destination, op.number);
        self.ops.resend_refused(op.number);
    }

    /// Ends a transfer whose receiver knows a later incarnation of this node, which the answer has as op number.
    fn handle_superseded(&mut self, now: Nanos, answer: Answer) {
        let Answer { node, transfer, segment, .. } = answer;
        let newest = Incarnation::new(answer.op.get());
        let is_ours = answer.incarnation == self.incarnation && self.incarnation.is_earlier_than(newest);
        let Some(slot) = self.find_segment(node, transfer, segment).filter(|_| is_ours) else {
            self.counters.stale += 1;
            return;
        };
        self.counters.refused += 1;
        let segment = self.segments.get(slot);
        let (owner, address) = (segment.transfer, segment.base);
        self.give_up(now, owner, SendFailure::Superseded { node, address, newest });
    }

    /// Handles an operation-complete packet: the receiver has every packet of a segment, which replaces the missing
    /// acknowledgements. Op number and try count of the answer are undefined.
    pub fn handle_segment_done(&mut self, now: Nanos, answer: Answer) {
        let Answer { transfer, segment, .. } = answer;
        if answer.incarnation != self.incarnation {
            self.counters.stale += 1;
            return;
        }
        let Some(slot) = self.find_segment(answer.node, transfer, segment) else {
            // The normal case: all acknowledgements arrived before.
            return;
        };
        let owner = self.segments.get(slot).transfer;
        if !self.note_incarnation(now, self.transfers[index(owner)].destination, answer.peer_incarnation) {
            return;
        }
        let Some(slot) = self.find_segment(answer.node, transfer, segment) else { return };
        let record = *self.segments.get(slot);
        if record.issued < record.packets {
            // The receiver cannot have packets that were never sent.
            self.counters.stale += 1;
            return;
        }
        let mut released = 0;
        for at in 0..self.ops.capacity() {
            if released == record.issued - record.acknowledged {
                break;
            }
            if let Some(op) = self.ops.slot(low16(at)).filter(|op| op.segment == slot) {
                self.untrack(self.destination_of(&op), op.number);
                self.ops.acknowledge(now, op.number);
                released += 1;
            }
        }
        self.acknowledged(now, slot, released, record.start.first, None);
    }

    /// Removes and returns the completion of the transfer that ended first.
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<CommandCompletion> {
        let slot = self.finished.pop_front(&mut self.queue_links)?;
        self.free.push_back(&mut self.queue_links, slot);
        let transfer = &mut self.transfers[index(slot)];
        let completion = CommandCompletion {
            ticket: SendTicket { slot, generation: transfer.generation },
            transfer: (transfer.packets + transfer.retransmits != 0).then_some(transfer.id),
            node: transfer.command.node,
            source: transfer.command.source,
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

    /// Returns the running counts.
    #[must_use]
    pub const fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Returns the op table's entries in use, for a display.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        self.ops.iter()
    }

    /// Returns the queue lengths of each destination, for a display.
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

    /// Whether no transfer is queued, in progress or waiting to be polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.config.transfers && self.ops.in_use() == 0 && self.segments.in_use() == 0
    }

    fn find_segment(&self, node: NodeId, transfer: TransferId, segment: SegmentIndex) -> Option<u16> {
        self.segments.find_key(Segments::key(node, transfer, segment), |record| {
            let owner = &self.transfers[index(record.transfer)];
            record.index == segment && owner.id == transfer && owner.command.node == node
        })
    }

    /// Returns the live entry that an answer refers to.
    ///
    /// A receiver refuses a packet in its escape channel when the escape timeout expires. If its transfer has ended
    /// meanwhile, that may be later than the reuse delay of its op number: the refusal must not apply to the next
    /// packet with that number.
    fn current(&mut self, now: Nanos, answer: Answer) -> Option<Op> {
        let found = self.ops.get(answer.op).and_then(|op| {
            let segment = self.segments.get(op.segment);
            let transfer = &self.transfers[index(segment.transfer)];
            let ours = answer.incarnation == self.incarnation && transfer.command.node == answer.node;
            let same = transfer.id == answer.transfer && segment.index == answer.segment;
            (ours && same).then_some(transfer.destination)
        });
        // Looked up again: a new incarnation of the answering node may have ended the transfer.
        let op = found
            .filter(|destination| self.note_incarnation(now, *destination, answer.peer_incarnation))
            .and_then(|_| self.ops.get(answer.op));
        if op.is_none() {
            self.counters.stale += 1;
        }
        op
    }

    /// Handles `count` packets of a segment that left the op table because the receiver has them. `left`: send time of
    /// the answered packet, as far as known ([`Sender::is_overdue`]). `trip`: measured round trip.
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
        destination.sampled.latest = now;
        if let Some(span) = trip {
            let at = transfer.destination;
            destination.trip.sample(span);
            if destination.trip.samples == 1 {
                destination.sampled.first = now;
            }
            if matches!(destination.trip.samples, 1 | retry::FEW_SAMPLES) {
                self.apply_first_samples(now, at);
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
        // Zero outstanding, not "the last one was acknowledged": earlier segments may still be in flight [E1-8].
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

    /// Ends a transfer that is in no queue and holds no entry.
    fn finish(&mut self, now: Nanos, slot: u32, result: Result<(), SendFailure>) {
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
            self.destinations.end_transfer(transfer.destination);
            if under_way {
                let destination = self.destinations.get_mut(transfer.destination);
                destination.live.remove(&mut self.live_links, slot);
            }
        }
        self.finished.push_back(&mut self.queue_links, slot);
    }
}

/// Queues of one destination, as [`Sender::queues`] returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueView {
    /// The destination.
    pub node: NodeId,
    /// Regular transfers whose packets have not all been sent once.
    pub regular: u32,
    /// Big transfers whose packets have not all been sent once.
    pub big: u32,
    /// Transfers with at least one packet sent that have not ended.
    pub under_way: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Remaining bytes of the big transfer at the head.
    pub big_head_remaining: u64,
    /// Whether the destination gets no new packets because its last packet timed out.
    pub suspect: bool,
    /// Round trip statistics of the path.
    pub round_trip: RoundTrip,
}
