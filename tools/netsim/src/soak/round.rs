//! One round: both nodes, the links between them, and the checks of every transfer.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::Permissions;
use fpga_firmware::wire::{Control, DataHeader, MAX_CONTROL_LENGTH, Packet};
use fpga_firmware::{Incarnation, OpNumber, SegmentIndex, TransferId};
use fpga_netmodel::{ImpairedLink, LinkCounters};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryWindow, Output, Receiver};
use fpga_protocol::scheme::traits::{Header, RegistrySender, SchemeSender as _};
use fpga_protocol::sender::{Command, CommandCompletion, Notify, SendFailure, Sender};
use fpga_registers::{CardAddr, cast, quantity};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::arena::{self, Arena};
use super::parameters::{self, PACKET_LIFETIME, RoundParameters, RoundRng, Side};
use super::{Check, InvariantViolation, SoakOptions, SoakTotals};
use crate::scenario::{RECEIVER, SENDER};

/// Maximum number of transfers in progress at once.
const SLOTS: u16 = 64;
/// Maximum simulated time of a round; a longer one counts as hung.
const TIMEOUT: Nanos = Nanos::from_secs(3_600);
const LINK_CAPACITY: usize = 1 << 14;
/// Position of a transfer's number in the address of its bytes at the sender; the offset is below.
const NUMBER_SHIFT: u32 = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferState {
    InProgress,
    Succeeded,
    Failed,
}

/// History of a transfer.
#[derive(Clone, Copy)]
struct TransferRecord {
    slot: u16,
    length: u64,
    deadline: Nanos,
    state: TransferState,
    /// Incarnation of the receiver that last notified of it.
    notified: Option<u32>,
    /// Incarnation of the receiver at submission.
    receiver_incarnation: u32,
}

impl TransferRecord {
    /// Whether it succeeded and its notification is still to come. Empty transfers have none.
    fn awaits_notice(&self) -> bool {
        self.state == TransferState::Succeeded && self.notified.is_none() && self.length != 0
    }
}

struct Round<'a> {
    network: &'a RoundParameters,
    random: RoundRng,
    sender: RegistrySender,
    receiver: Receiver,
    arena: Arena,
    there: ImpairedLink<Vec<u8>>,
    back: ImpairedLink<Vec<u8>>,
    now: Nanos,
    key: u64,
    sender_incarnation: u32,
    receiver_incarnation: u32,
    /// Time until which a restarted receiver takes no packet.
    deaf_until: Nanos,
    /// End of the pause of the sender's host.
    paused_until: Nanos,
    /// Time until which a restarted sender sends nothing: packets of its earlier incarnation may still be in flight.
    quiet_until: Nanos,
    /// Answers that the sender's card has received and its host has not processed.
    answers: VecDeque<Vec<u8>>,
    records: Vec<TransferRecord>,
    /// Transfers in progress by slot and generation of their tickets.
    tickets: HashMap<(u32, u32), usize>,
    /// Transfers by the sender's incarnation and the id on the wire.
    on_wire: HashMap<(u32, u32), usize>,
    /// Audit of op numbers, if they are reused.
    audit: Option<OpNumberAudit>,
    free: Vec<u16>,
    /// Slots of transfers that failed, with the time until which late packets may still be written there.
    releasing: Vec<(Nanos, u16)>,
    buffers: Vec<Vec<u8>>,
    totals: SoakTotals,
}

/// Runs one round.
pub(super) fn run(soak: &SoakOptions, round: u64, transfers: u64) -> Result<SoakTotals, InvariantViolation> {
    let seed =
        soak.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(round.wrapping_mul(0xD134_2543_DE82_EF95));
    let mut random = RoundRng(Pcg32::new(seed, 0xDA3E_39CB_94B9_5BDB));
    let network = parameters::draw(soak, &mut random);
    let mut at = Nanos::ZERO;
    let result = Round::new(&network, random, seed).and_then(|mut round| {
        let result = round.run(transfers);
        at = round.now;
        result.map(|()| round.totals)
    });
    result.map_err(|invariant| InvariantViolation { seed: soak.seed, round, at, invariant })
}

impl<'a> Round<'a> {
    fn new(network: &'a RoundParameters, mut random: RoundRng, seed: u64) -> Check<Self> {
        let slot_size = (network.longest + arena::MAX_START_OFFSET).next_multiple_of(64);
        let arena = Arena::new(SLOTS, slot_size);
        let key = random.0.next_u64();
        let link = |impairments: &fpga_netmodel::Impairments, seed| {
            ImpairedLink::new(impairments.clone(), LINK_CAPACITY, seed).map_err(setup)
        };
        Ok(Self {
            sender: sender(network, 1)?,
            receiver: receiver(network, 1, key, arena.size())?,
            there: link(&network.there, seed)?,
            back: link(&network.back, !seed)?,
            arena,
            now: Nanos::ZERO,
            key,
            sender_incarnation: 1,
            receiver_incarnation: 1,
            deaf_until: Nanos::ZERO,
            paused_until: Nanos::ZERO,
            quiet_until: Nanos::ZERO,
            answers: VecDeque::new(),
            records: Vec::new(),
            tickets: HashMap::new(),
            on_wire: HashMap::new(),
            audit: network.are_numbers_reused.then(OpNumberAudit::default),
            free: (0..SLOTS).collect(),
            releasing: Vec::new(),
            buffers: Vec::new(),
            totals: SoakTotals { rounds: 1, ..SoakTotals::default() },
            network,
            random,
        })
    }

    fn run(&mut self, transfers: u64) -> Check {
        let mut restarts = self.network.restarts.clone();
        restarts.sort_unstable_by_key(|(at, _)| Reverse(*at));
        let mut pauses = self.network.pauses.clone();
        pauses.sort_unstable_by_key(|(at, _)| Reverse(*at));
        loop {
            while let Some((_, side)) = restarts.pop_if(|(at, _)| *at <= self.now) {
                self.restart(side)?;
            }
            while let Some((at, span)) = pauses.pop_if(|(at, _)| *at <= self.now) {
                self.paused_until = self.paused_until.max(at.saturating_add(span));
                self.totals.pauses += 1;
            }
            self.receive()?;
            if self.receiver.poll_timeout().is_some_and(|at| at <= self.now) {
                self.receiver.handle_timeout(self.now);
                self.outputs()?;
            }
            self.release_slots();
            if !self.is_paused() {
                self.handle_answers()?;
                if self.sender.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.sender.handle_timeout(self.now);
                }
                while (self.records.len() as u64) < transfers && self.submit()? {}
                self.transmit()?;
                while let Some(completion) = self.sender.poll_completion() {
                    self.ended(&completion)?;
                }
            }
            let is_over = self.records.len() as u64 == transfers && self.tickets.is_empty();
            let is_empty = self.there.is_empty() && self.back.is_empty() && self.answers.is_empty();
            if is_over && is_empty && self.sender.inner().is_idle() {
                return self.finish();
            }
            let events = [restarts.last().map(|(at, _)| *at), pauses.last().map(|(at, _)| *at)];
            match self.next(events).filter(|next| *next < TIMEOUT) {
                Some(next) => self.now = next.max(self.now.saturating_add(Nanos::new(1))),
                None => {
                    let left = self.tickets.len() as u64 + transfers - self.records.len() as u64;
                    return Err(format!("{} without an end", quantity(left, "transfer")));
                }
            }
        }
    }

    fn is_paused(&self) -> bool {
        self.now < self.paused_until
    }

    fn next(&self, events: [Option<Nanos>; 2]) -> Option<Nanos> {
        let link = Some(self.there.free_at().max(self.quiet_until)).filter(|at| *at > self.now);
        let host = if self.is_paused() {
            [Some(self.paused_until), None]
        } else {
            [link, self.sender.poll_timeout()]
        };
        let links = [self.there.poll_timeout(), self.back.poll_timeout(), self.receiver.poll_timeout()];
        let released = self.releasing.iter().map(|(at, _)| *at);
        host.into_iter().chain(events).chain(links).flatten().chain(released).min()
    }

    /// Submits a transfer. Returns `false` if there is no free slot.
    fn submit(&mut self) -> Check<bool> {
        if self.free.is_empty() {
            return Ok(false);
        }
        let at = self.random.below(self.free.len() as u64);
        let slot = self.free.swap_remove(usize::try_from(at).map_err(setup)?);
        self.arena.check_unchanged(slot)?;
        let number = self.records.len();
        let length = if self.random.one_in(200) { 0 } else { self.random.spread(self.network.longest) };
        let start = self.random.below(arena::MAX_START_OFFSET);
        let destination = self.arena.assign_slot(slot, number as u64, start, length);
        let deadline = self.now.saturating_add(self.network.deadline);
        let command = Command {
            source: CardAddr::new((number as u64 + 1) << NUMBER_SHIFT),
            node: RECEIVER,
            destination,
            length,
            key: self.key,
            notify: if self.random.one_in(5) { Notify::Sender } else { Notify::Receiver },
            deadline: Some(deadline),
            priority: u8::try_from(self.random.below(3)).map_err(setup)?,
        };
        let Ok(ticket) = self.sender.submit(self.now, command) else {
            // Completions have not been polled yet.
            self.free.push(slot);
            return Ok(false);
        };
        self.tickets.insert((ticket.slot(), ticket.generation()), number);
        let receiver_incarnation = self.receiver_incarnation;
        let state = TransferState::InProgress;
        let notified = None;
        self.records.push(TransferRecord { slot, length, deadline, state, notified, receiver_incarnation });
        self.totals.transfers += 1;
        self.totals.bytes += length;
        self.totals.of_any_size += u64::from(self.network.of_any_size);
        Ok(true)
    }

    fn transmit(&mut self) -> Check {
        while self.now >= self.quiet_until
            && self.there.free_at() <= self.now
            && self.there.len() < LINK_CAPACITY / 2
        {
            let Some(packet) = self.sender.poll_packet(self.now) else { return Ok(()) };
            let mut bytes = self.buffers.pop().unwrap_or_default();
            let payload = cast::index(packet.payload);
            bytes.resize(packet.header.length() + payload, 0);
            let length = match packet.header {
                Header::Data(header) => {
                    let source = packet.source.get();
                    let number = (source >> NUMBER_SHIFT) - 1;
                    let index = usize::try_from(number).map_err(setup)?;
                    self.on_wire.insert((self.sender_incarnation, header.transfer.get()), index);
                    if let Some(audit) = &mut self.audit {
                        audit.record_sent(&header, &mut self.totals);
                    }
                    let mut content = [0; 1 << 12];
                    let content = content.get_mut(..payload).unwrap_or_default();
                    arena::fill(number, source % (1 << NUMBER_SHIFT), content);
                    header.encode(content, &mut bytes)
                }
                Header::Control(control) => control.encode(&mut bytes),
                other => return Err(format!("the sender sent a packet of another scheme: {other:?}")),
            };
            bytes.truncate(length.map_err(setup)?);
            // A full link drops it.
            let _ = self.there.offer(self.now, bytes);
        }
        Ok(())
    }

    fn receive(&mut self) -> Check {
        while let Some(bytes) = self.there.poll(self.now) {
            if self.now >= self.deaf_until {
                match Packet::parse(&bytes) {
                    Ok(Packet::Data(data)) => {
                        if let Some(audit) = &self.audit {
                            audit.check_packet(&data.header())?;
                        }
                        self.receiver.handle_data(self.now, &data, &mut self.arena);
                    }
                    Ok(Packet::Control(Control::Arrived(arrived))) => {
                        self.receiver.handle_arrived(self.now, &arrived);
                    }
                    _ => {}
                }
                self.outputs()?;
            }
            self.buffers.push(bytes);
        }
        self.answers.extend(std::iter::from_fn(|| self.back.poll(self.now)));
        Ok(())
    }

    /// Processes the answers that the sender's card has received.
    fn handle_answers(&mut self) -> Check {
        while let Some(bytes) = self.answers.pop_front() {
            if let Ok(Packet::Control(control)) = Packet::parse(&bytes) {
                if let Some(audit) = &self.audit {
                    audit.check_answer(&control)?;
                }
                self.sender.handle_packet(self.now, &Header::Control(control));
            }
            self.buffers.push(bytes);
        }
        Ok(())
    }

    fn outputs(&mut self) -> Check {
        if let Some(stray) = self.arena.take_stray_write() {
            return Err(stray);
        }
        while let Some(output) = self.receiver.poll_output().copied() {
            match output {
                Output::Send(control) => {
                    let mut bytes = self.buffers.pop().unwrap_or_default();
                    bytes.resize(MAX_CONTROL_LENGTH, 0);
                    let length = control.encode(&mut bytes).map_err(setup)?;
                    bytes.truncate(length);
                    let _ = self.back.offer(self.now, bytes);
                }
                Output::Event(event) if event.kind == EventKind::Notice => self.notified(&event)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn notified(&mut self, event: &Event) -> Check {
        let key = (event.incarnation.get(), event.transfer.get());
        let unknown = || format!("the application was notified of {}, which does not exist", event.transfer);
        let number = *self.on_wire.get(&key).ok_or_else(unknown)?;
        let record = self.records.get_mut(number).ok_or_else(unknown)?;
        if record.notified == Some(self.receiver_incarnation) || record.length != event.length {
            return Err(format!(
                "the receiving application was notified of transfer {number} twice, or of another length"
            ));
        }
        record.notified = Some(self.receiver_incarnation);
        // The memory of a failed transfer may be in use by another one.
        if record.state == TransferState::Failed {
            return Ok(());
        }
        self.arena.arrived(record.slot)?;
        if record.state == TransferState::Succeeded {
            self.free.push(record.slot);
        }
        Ok(())
    }

    fn ended(&mut self, completion: &CommandCompletion) -> Check {
        let ticket = completion.ticket;
        let twice = || "a transfer ended twice, or was never submitted".to_owned();
        let number = self.tickets.remove(&(ticket.slot(), ticket.generation())).ok_or_else(twice)?;
        let record = self.records.get_mut(number).ok_or_else(twice)?;
        if record.state != TransferState::InProgress {
            return Err(twice());
        }
        self.totals.packets += completion.packets;
        self.totals.retransmits += completion.retransmits;
        // It could not end while the host paused.
        let late = completion.finished.saturating_sub(record.deadline.max(self.paused_until));
        if late > Nanos::ZERO {
            return Err(format!("transfer {number} ended {late} after its deadline"));
        }
        let gentle = u64::from(self.network.gentle);
        self.totals.gentle += gentle;
        let count = match completion.result {
            Ok(()) => {
                self.totals.gentle_completed += gentle;
                self.totals.completed += 1;
                record.state = TransferState::Succeeded;
                if !record.awaits_notice() {
                    self.free.push(record.slot);
                    return Ok(());
                }
                // If the sender notifies it, the receiver may learn later: the slot stays in use until then.
                if record.receiver_incarnation == self.receiver_incarnation {
                    return Ok(());
                }
                // An incarnation that had received everything and was still to be notified is gone with its application.
                None
            }
            Err(SendFailure::Deadline { .. }) => Some(&mut self.totals.deadline),
            Err(SendFailure::Unanswered { .. }) => Some(&mut self.totals.unanswered),
            Err(SendFailure::Forgotten { .. }) => Some(&mut self.totals.state_dropped),
            Err(_) => Some(&mut self.totals.refused),
        };
        if let Some(count) = count {
            *count += 1;
        }
        record.state = TransferState::Failed;
        self.releasing.push((self.now.saturating_add(PACKET_LIFETIME), record.slot));
        Ok(())
    }

    /// Makes slots available again after their late packets are gone.
    fn release_slots(&mut self) {
        let due = self.releasing.extract_if(.., |(at, _)| *at <= self.now);
        self.free.extend(due.map(|(_, slot)| slot));
    }

    fn restart(&mut self, side: Side) -> Check {
        self.totals.restarts += 1;
        if side == Side::Sender {
            self.sender_incarnation += 1;
            self.sender = sender(self.network, self.sender_incarnation)?;
            self.paused_until = Nanos::ZERO;
            self.quiet_until = self.now.saturating_add(PACKET_LIFETIME);
            self.answers.clear();
            self.tickets.clear();
            for record in self.records.iter_mut().filter(|record| record.state == TransferState::InProgress) {
                record.state = TransferState::Failed;
                // Reused at once: the sender has to keep old packets away from new data.
                self.arena.release_slot(record.slot);
                self.free.push(record.slot);
                self.totals.abandoned += 1;
            }
        } else {
            self.count_receiver();
            self.receiver_incarnation += 1;
            if side == Side::Receiver {
                self.key = self.random.0.next_u64();
            } else {
                self.deaf_until = self.now.saturating_add(PACKET_LIFETIME);
            }
            self.receiver = receiver(self.network, self.receiver_incarnation, self.key, self.arena.size())?;
        }
        // Notices that were still to come are lost with the side that was restarted.
        for record in self.records.iter_mut().filter(|record| record.awaits_notice()) {
            record.state = TransferState::Failed;
            self.releasing.push((self.now.saturating_add(PACKET_LIFETIME), record.slot));
        }
        Ok(())
    }

    fn count_receiver(&mut self) {
        let counters = self.receiver.counters();
        self.totals.duplicates += counters.duplicates + counters.tombstone_hits;
        self.totals.escaped += counters.escape_hits;
        self.totals.registry_full += counters.registry_full;
    }

    /// After the last packet: the receiver's timers expire, and all tables become empty.
    fn finish(&mut self) -> Check {
        self.totals.simulated = self.now;
        for _ in 0..10_000 {
            let Some(at) = self.receiver.poll_timeout() else { break };
            self.now = self.now.max(at);
            self.receiver.handle_timeout(self.now);
            self.outputs()?;
        }
        for slot in 0..SLOTS {
            self.arena.check_unchanged(slot)?;
        }
        if let Some(transfer) = self.records.iter().position(TransferRecord::awaits_notice) {
            return Err(format!(
                "transfer {transfer} succeeded, but the receiving application was not notified"
            ));
        }
        let sender = self.sender.inner();
        for (table, left) in [
            ("op table", sender.ops().count()),
            ("sender", usize::from(!sender.is_idle())),
            ("registry", cast::index(self.receiver.registry_occupancy())),
            ("escape channel", usize::from(self.receiver.escape_occupancy())),
            ("transfers in progress", self.receiver.transfers_in_progress()),
            ("tombstones", self.receiver.tombstones()),
            ("receiver's timer", usize::from(self.receiver.poll_timeout().is_some())),
        ] {
            if left != 0 {
                return Err(format!("not empty at the end of the round: {table}"));
            }
        }
        self.totals.stale += sender.counters().stale;
        self.count_receiver();
        for LinkCounters { data, control, .. } in [self.there.counters(), self.back.counters()] {
            for class in [data, control] {
                self.totals.lost += class.lost + class.blacked_out + class.overflowed;
                self.totals.corrupted += class.damaged;
                self.totals.duplicated += class.duplicated;
            }
        }
        Ok(())
    }
}

/// Converts an error of the round itself.
fn setup(error: impl Display) -> String {
    format!("the round could not be run: {error}")
}

fn sender(network: &RoundParameters, incarnation: u32) -> Check<RegistrySender> {
    let sender = Sender::new(network.sender, Incarnation::new(incarnation)).map_err(setup)?;
    Ok(RegistrySender::new(SENDER, sender))
}

fn receiver(network: &RoundParameters, incarnation: u32, key: u64, length: u64) -> Check<Receiver> {
    let mut config = network.receiver;
    config.incarnation = Incarnation::new(incarnation);
    let mut receiver = Receiver::new(config).map_err(setup)?;
    let (source, base, permissions) = (SENDER, CardAddr::new(arena::BASE), Permissions::WRITE);
    let window = MemoryWindow { source, base, length, key, permissions };
    receiver.access_mut().install(0, window).map_err(setup)?;
    Ok(receiver)
}

/// Identity of a packet, independent of its op number.
type PacketIdentity = (TransferId, SegmentIndex, CardAddr);

/// Last packet of each op number, for one incarnation of a sender. A packet or an acknowledgement that arrives under a number that names
/// another packet by then would be taken for that one's.
#[derive(Debug, Default)]
struct OpNumberAudit {
    last: HashMap<OpNumber, PacketIdentity>,
    newest: Option<TransferId>,
}

impl OpNumberAudit {
    const fn identity(header: &DataHeader) -> PacketIdentity {
        (header.transfer, header.segment, header.address)
    }

    fn record_sent(&mut self, header: &DataHeader, totals: &mut SoakTotals) {
        let packet = Self::identity(header);
        let before = self.last.insert(header.op, packet);
        totals.numbers_reused += u64::from(before.is_some_and(|before| before != packet));
        let newest = self.newest.get_or_insert(header.transfer);
        if newest.is_older_than(header.transfer) {
            // Ids rise, so a smaller number means that they have wrapped.
            totals.ids_wrapped += u64::from(header.transfer.get() < newest.get());
            *newest = header.transfer;
        }
    }

    /// Checks that the number of an arriving packet still names it.
    fn check_packet(&self, header: &DataHeader) -> Check {
        Self::check(header.op, self.last.get(&header.op) == Some(&Self::identity(header)))
    }

    /// Checks that the number of an arriving acknowledgement still names its packet. Refusals may arrive later, for packets that expired in
    /// the escape channel; the sender identifies them by transfer and segment.
    fn check_answer(&self, control: &Control) -> Check {
        let Control::Ack(ack) = control else { return Ok(()) };
        let names =
            |(transfer, segment, _): &PacketIdentity| (*transfer, *segment) == (ack.transfer, ack.segment);
        Self::check(ack.op, self.last.get(&ack.op).is_some_and(names))
    }

    fn check(op: OpNumber, is_same: bool) -> Check {
        if is_same {
            return Ok(());
        }
        let op = op.get();
        Err(format!(
            "op number {op:#x} was assigned to another packet while a packet or acknowledgement of its previous packet was in flight"
        ))
    }
}
