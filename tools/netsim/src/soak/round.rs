//! One round: a network, its impairments, and the checks of every transfer. They are in one file, because each needs the others to be
//! understood.
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small bounds")]

use std::collections::{HashMap, VecDeque};

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::Permissions;
use fpga_firmware::wire::{CRC_LENGTH, Control, MAX_CONTROL_LENGTH, Packet};
use fpga_firmware::{Incarnation, TransferId};
use fpga_netmodel::{
    BitRate, Blackout, Bursts, Conditions, Delay, ImpairedLink, Impairments, LinkCounters, Loss, Order,
    Probability, Rate,
};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryWindow, Output, Receiver, ReceiverConfig};
use fpga_protocol::sender::{Command, CommandCompletion, Notify, SendFailure, Sender, SenderConfig};
use fpga_registers::CardAddr;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::arena::{self, Arena};
use super::op_numbers::OpNumberAudit;
use super::{FaultMix, Invariant, InvariantViolation, SoakOptions, SoakTotals};
use crate::frame::{self, AnswerKind, Frame};
use crate::scenario::{RECEIVER, SENDER};

/// Maximum number of transfers in progress at once.
const SLOTS: u16 = 64;
/// Maximum simulated time of a round; a longer one counts as hung.
const TIMEOUT: Nanos = Nanos::from_secs(3_600);
const LINK_CAPACITY: usize = 1 << 14;
/// Packet lifetime, longer than any delay of a round's links.
const PACKET_LIFETIME: Nanos = Nanos::from_millis(20);

/// Random numbers of a round.
struct RoundRng(Pcg32);

impl RoundRng {
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Random fraction between 0 and `most`, in steps of a millionth of it.
    fn fraction(&mut self, most: f64) -> f64 {
        most * f64::from(u32::try_from(self.below(1_000_001)).unwrap_or(0)) / 1e6
    }

    /// Random number whose logarithm is uniformly distributed.
    fn spread(&mut self, longest: u64) -> u64 {
        let bits = u64::BITS - longest.max(1).leading_zeros();
        loop {
            let bit = self.below(bits.into());
            let length = (1 << bit) + self.below(1 << bit);
            if length <= longest {
                return length;
            }
        }
    }

    fn micros(&mut self, most: u64) -> Nanos {
        Nanos::new(self.below(most * 1000 + 1))
    }
}

/// Parameters of a round's network.
struct RoundParameters {
    there: Impairments,
    back: Impairments,
    sender: SenderConfig,
    receiver: ReceiverConfig,
    longest: u64,
    deadline: Nanos,
    /// Times of restarts, and the restarted side.
    restarts: Vec<(Nanos, Side)>,
    /// Times and durations of pauses of the sender's host: its card continues.
    pauses: Vec<(Nanos, Nanos)>,
    gentle: bool,
    /// Whether the length of transfers is not limited.
    of_any_size: bool,
    /// Whether there are few op numbers, and one incarnation of the sender.
    numbers_come_round: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Sender,
    /// With new keys, as hosts choose them at random.
    Receiver,
    /// With the same keys, not receiving until nothing that was sent before can still arrive.
    ReceiverAfterAPause,
}

fn draw(soak: &SoakOptions, dice: &mut RoundRng) -> RoundParameters {
    match soak.trouble {
        FaultMix::All => everything(soak, dice),
        FaultMix::DelayedDuplicates => delayed_duplicates(soak, dice),
    }
}

fn tables(
    soak: &SoakOptions,
    dice: &mut RoundRng,
    sender: &mut SenderConfig,
    receiver: &mut ReceiverConfig,
) -> u64 {
    sender.packet_size_log2 = [9, 9, 9, 9, 9, 9, 9, 12, 12, 10, 8, 6][dice.below(12) as usize];
    let mask_bits = [32, 32, 32, 1, 2, 7, 8, 31, 64, 100, 255, 256][dice.below(12) as usize];
    sender.mask_bits = mask_bits;
    let whole = u32::from(mask_bits) << sender.packet_size_log2;
    sender.segment_size = if dice.one_in(3) { dice.between(1, whole.into()) as u32 } else { whole };
    // Segments of a few bytes would make as many packets.
    sender.segment_size = sender.segment_size.max(64).min(whole);
    sender.big_threshold = dice.below(u64::from(sender.segment_size) + 1) as u32;
    sender.op_entries = [256, 256, 256, 1024, 64, 8, 2, 1][dice.below(8) as usize];
    sender.packet_lifetime = PACKET_LIFETIME;
    sender.first_transfer = TransferId::new((dice.0.next_u32() & 0xFF).wrapping_neg());
    receiver.packet_size_log2 = sender.packet_size_log2;
    receiver.mask_bits = mask_bits;
    receiver.registry_entries = [64, 64, 64, 256, 8, 3, 1][dice.below(7) as usize];
    receiver.escape_slots = [64, 64, 16, 3, 1, 0][dice.below(6) as usize];
    receiver.packet_lifetime = PACKET_LIFETIME;
    receiver.transfers = if dice.one_in(3) { dice.between(1, 16) as u16 } else { 128 };
    receiver.tombstones = if dice.one_in(3) { dice.between(2, 20) as u16 } else { 128 };
    // Small packets and tiny tables make a long round.
    let slow =
        sender.packet_size_log2 < 9 || sender.op_entries < 64 || mask_bits < 8 || sender.segment_size < 4096;
    if slow { soak.longest.min(16 << 10) } else { soak.longest }
}

fn everything(soak: &SoakOptions, dice: &mut RoundRng) -> RoundParameters {
    let (mut sender, mut receiver) =
        (SenderConfig::default(), ReceiverConfig::new(RECEIVER, Incarnation::new(1)));
    let longest = tables(soak, dice, &mut sender, &mut receiver);
    let gentle_loss = !dice.one_in(3);
    let most = if gentle_loss { 0.05 } else { 0.10 };
    let distance = dice.micros(10);
    let rate = Rate {
        rate: BitRate::from_gbps([1, 10, 40, 100][dice.below(4) as usize]),
        queue: Nanos::from_micros(dice.between(100, 5_000)),
    };
    let mut blackouts = Vec::new();
    if dice.one_in(5) {
        for _ in 0..dice.between(1, 3) {
            blackouts.push(Blackout { from: dice.micros(60_000), length: Nanos::from_millis(10) });
        }
    }
    let mut way = || {
        let mut impairments = Impairments::default().rate(rate).distance(distance);
        impairments.data = conditions(dice, most);
        impairments.control = conditions(dice, most);
        impairments.blackouts.clone_from(&blackouts);
        let hold_back = Nanos::from_micros(50);
        impairments.order = match dice.below(4) {
            0 => Order::InOrder,
            1 => Order::Random { depth: dice.between(2, 64) as usize, patience: hold_back },
            _ => Order::Degree { degree: 1 << dice.below(9), patience: hold_back },
        };
        impairments
    };
    let (there, back) = (way(), way());
    let restarts = (0..u64::from(dice.one_in(6)) * dice.between(1, 3))
        .map(|_| {
            let side = [Side::Sender, Side::Receiver, Side::ReceiverAfterAPause][dice.below(3) as usize];
            (dice.micros(30_000), side)
        })
        .collect::<Vec<_>>();
    let pauses = (0..u64::from(dice.one_in(6)) * dice.between(1, 3))
        .map(|_| (dice.micros(30_000), Nanos::from_millis(dice.between(1_000, 5_000))))
        .collect::<Vec<_>>();
    let hurried = dice.one_in(10);
    let deadline = if hurried { Nanos::from_micros(dice.between(100, 30_000)) } else { Nanos::from_secs(60) };
    let gentle = gentle_loss && restarts.is_empty() && pauses.is_empty() && !hurried;
    RoundParameters {
        there,
        back,
        sender,
        receiver,
        longest,
        deadline,
        restarts,
        pauses,
        gentle,
        of_any_size: longest == soak.longest,
        numbers_come_round: false,
    }
}

fn conditions(dice: &mut RoundRng, most_loss: f64) -> Conditions {
    let probability = |fraction| Probability::new(fraction).unwrap_or_default();
    let rate = dice.fraction(most_loss);
    let loss = match Bursts::of(rate, 1.0 + dice.fraction(7.0)) {
        Ok(bursts) if dice.one_in(3) => Loss::Bursts(bursts),
        _ => Loss::Independent(probability(rate)),
    };
    let (least, mean) = (dice.micros(5), dice.micros(20));
    let delay = match dice.below(6) {
        0 => Delay::Uniform { least, most: least.saturating_add(mean) },
        1 => Delay::Exponential { least, mean },
        2 => Delay::Normal { mean, deviation: least },
        3 => Delay::LogNormal { least, median: mean, sigma: 0.5 },
        _ => Delay::Constant(Nanos::ZERO),
    };
    Conditions::default()
        .loss(loss)
        .delay(delay)
        .copies(probability(dice.fraction(0.05)), Delay::Exponential { least, mean: Nanos::from_micros(100) })
        .damage(probability(dice.fraction(0.01)))
}

fn delayed_duplicates(soak: &SoakOptions, dice: &mut RoundRng) -> RoundParameters {
    let (mut sender, mut receiver) =
        (SenderConfig::default(), ReceiverConfig::new(RECEIVER, Incarnation::new(1)));
    tables(soak, dice, &mut sender, &mut receiver);
    sender.packet_size_log2 = 6;
    sender.mask_bits = sender.mask_bits.min(8);
    sender.segment_size = u32::from(sender.mask_bits) << 6;
    sender.big_threshold = sender.segment_size;
    receiver.packet_size_log2 = 6;
    receiver.mask_bits = sender.mask_bits;
    // Numbers are reused after two to eight packets of a slot.
    sender.generation_bits = dice.between(1, 3) as u8;
    sender.op_entries = dice.between(2, 64) as u32;
    let lifetime = Nanos::from_micros(dice.between(20, 500));
    sender.packet_lifetime = lifetime;
    receiver.packet_lifetime = lifetime;
    let probability = |fraction| Probability::new(fraction).unwrap_or_default();
    // Held back for up to the lifetime, less the travel time itself.
    let copy = Delay::Uniform { least: Nanos::ZERO, most: lifetime.saturating_sub(Nanos::from_micros(5)) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(probability(dice.fraction(0.05))))
        .copies(probability(0.3), copy);
    let rate = Rate { rate: BitRate::from_gbps(100), queue: Nanos::from_micros(3) };
    let link = Impairments::both(conditions).rate(rate).distance(Nanos::from_micros(1));
    // Abandoned transfers leave packets in the escape channel, where they wait for longer than the reuse delay of their numbers.
    let micros = lifetime.get() / 1000;
    let hurried = micros.is_multiple_of(4);
    let deadline = if hurried { Nanos::from_micros(20 + micros * 7 % 280) } else { Nanos::from_secs(60) };
    RoundParameters {
        there: link.clone(),
        back: link,
        sender,
        receiver,
        longest: soak.longest.min(2048),
        deadline,
        restarts: Vec::new(),
        pauses: Vec::new(),
        gentle: !hurried,
        of_any_size: false,
        numbers_come_round: true,
    }
}

/// History of a transfer.
#[derive(Clone, Copy)]
struct TransferRecord {
    slot: u16,
    length: u64,
    deadline: Nanos,
    /// `None` while it is in progress.
    ended: Option<TransferOutcome>,
    /// Incarnation of the receiver that last notified of it.
    notified: Option<u32>,
    /// Incarnation of the receiver at submission.
    receiver_incarnation: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferOutcome {
    Succeeded,
    Failed,
}

struct Round<'a> {
    network: &'a RoundParameters,
    dice: RoundRng,
    sender: Sender,
    receiver: Receiver,
    arena: Arena,
    there: ImpairedLink<Vec<u8>>,
    back: ImpairedLink<Vec<u8>>,
    now: Nanos,
    key: u64,
    sender_incarnation: u32,
    receiver_incarnation: u32,
    deaf_until: Nanos,
    /// End of the pause of the sender's host.
    asleep_until: Nanos,
    /// Time until which a restarted sender sends nothing: packets of its earlier incarnation may still be in flight.
    quiet_until: Nanos,
    /// Answers that its card received during the pause.
    unseen: VecDeque<Vec<u8>>,
    stories: Vec<TransferRecord>,
    /// Generation and transfer by ticket slot.
    tickets: Vec<(u32, usize)>,
    /// Transfers by the sender's incarnation and the id on the wire.
    on_wire: HashMap<(u32, u32), usize>,
    /// Audit of op numbers, if they are reused.
    names: Option<OpNumberAudit>,
    free: Vec<u16>,
    /// Slots of transfers that failed: late packets may still be written there.
    releasing: Vec<(Nanos, u16)>,
    live: u64,
    buffers: Vec<Vec<u8>>,
    tally: SoakTotals,
}

/// Runs one round.
pub(super) fn run(soak: &SoakOptions, number: u64, transfers: u64) -> Result<SoakTotals, InvariantViolation> {
    let seed = soak
        .seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(number.wrapping_mul(0xD134_2543_DE82_EF95));
    let mut dice = RoundRng(Pcg32::new(seed, 0xDA3E_39CB_94B9_5BDB));
    let network = draw(soak, &mut dice);
    let mut at = Nanos::ZERO;
    let result = Round::new(&network, dice, seed).and_then(|mut round| {
        let result = round.go(transfers);
        at = round.now;
        result?;
        Ok(round.tally)
    });
    result.map_err(|what| InvariantViolation { seed: soak.seed, round: number, at, what })
}

impl<'a> Round<'a> {
    fn new(network: &'a RoundParameters, mut dice: RoundRng, seed: u64) -> Result<Self, Invariant> {
        let slot_size = (network.longest + arena::MAX_START_OFFSET).next_multiple_of(64);
        let arena = Arena::new(SLOTS, slot_size);
        let key = dice.0.next_u64();
        let (sender_incarnation, receiver_incarnation) = (1, 1);
        Ok(Self {
            sender: Sender::new(network.sender, Incarnation::new(sender_incarnation))
                .map_err(Invariant::Sender)?,
            receiver: open(network, receiver_incarnation, key, arena.size())?,
            there: ImpairedLink::new(network.there.clone(), LINK_CAPACITY, seed).map_err(Invariant::Links)?,
            back: ImpairedLink::new(network.back.clone(), LINK_CAPACITY, !seed).map_err(Invariant::Links)?,
            arena,
            now: Nanos::ZERO,
            key,
            sender_incarnation,
            receiver_incarnation,
            deaf_until: Nanos::ZERO,
            asleep_until: Nanos::ZERO,
            quiet_until: Nanos::ZERO,
            unseen: VecDeque::new(),
            stories: Vec::new(),
            tickets: vec![(u32::MAX, 0); slot_index(network.sender.transfers)],
            on_wire: HashMap::new(),
            names: network.numbers_come_round.then(OpNumberAudit::default),
            free: (0..SLOTS).collect(),
            releasing: Vec::new(),
            live: 0,
            buffers: Vec::new(),
            tally: SoakTotals { rounds: 1, ..SoakTotals::default() },
            network,
            dice,
        })
    }

    fn go(&mut self, transfers: u64) -> Result<(), Invariant> {
        let mut restarts = self.network.restarts.clone();
        restarts.sort_unstable_by_key(|(at, _)| core::cmp::Reverse(*at));
        let mut pauses = self.network.pauses.clone();
        pauses.sort_unstable_by_key(|(at, _)| core::cmp::Reverse(*at));
        loop {
            while let Some((_, side)) = restarts.pop_if(|(at, _)| *at <= self.now) {
                self.restart(side)?;
            }
            while let Some((at, span)) = pauses.pop_if(|(at, _)| *at <= self.now) {
                self.asleep_until = self.asleep_until.max(at.saturating_add(span));
                self.tally.pauses += 1;
            }
            self.arrivals()?;
            if self.receiver.poll_timeout().is_some_and(|at| at <= self.now) {
                self.receiver.handle_timeout(self.now);
                self.outputs()?;
            }
            self.rest();
            if !self.is_asleep() {
                self.answers()?;
                if self.sender.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.sender.handle_timeout(self.now);
                }
                while (self.stories.len() as u64) < transfers && self.submit()? {}
                self.transmit();
                while let Some(completion) = self.sender.poll_completion() {
                    self.ended(&completion)?;
                }
            }
            let all = self.stories.len() as u64 == transfers && self.live == 0;
            let empty = self.there.is_empty() && self.back.is_empty() && self.unseen.is_empty();
            if all && empty && self.sender.is_idle() {
                break;
            }
            let event = [restarts.last().map(|(at, _)| *at), pauses.last().map(|(at, _)| *at)];
            let next = self.next(event.into_iter().flatten().min());
            match next {
                Some(next) if next < TIMEOUT => self.now = next.max(self.now.saturating_add(Nanos::new(1))),
                _ => return Err(Invariant::Hung { left: self.live + transfers - self.stories.len() as u64 }),
            }
        }
        self.tally.simulated = self.now;
        self.finish()
    }

    const fn is_asleep(&self) -> bool {
        self.now.get() < self.asleep_until.get()
    }

    fn next(&self, event: Option<Nanos>) -> Option<Nanos> {
        let link = Some(self.there.free_at().max(self.quiet_until)).filter(|at| *at > self.now);
        let host = if self.is_asleep() {
            [Some(self.asleep_until), None]
        } else {
            [link, self.sender.poll_timeout()]
        };
        [
            host[0],
            host[1],
            event,
            self.there.poll_timeout(),
            self.back.poll_timeout(),
            self.receiver.poll_timeout(),
            self.releasing.iter().map(|(at, _)| *at).min(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Submits a transfer. Returns `false` if there is no free slot.
    fn submit(&mut self) -> Result<bool, Invariant> {
        if self.free.is_empty() {
            return Ok(false);
        }
        let at = self.dice.below(self.free.len() as u64);
        let slot = self.free.swap_remove(usize::try_from(at).unwrap_or(0));
        self.arena.still(slot)?;
        let number = self.stories.len();
        let length = if self.dice.one_in(200) { 0 } else { self.dice.spread(self.network.longest) };
        let start = self.dice.below(arena::MAX_START_OFFSET);
        let destination = self.arena.assign_slot(slot, number as u64, start, length);
        let deadline = self.now.saturating_add(self.network.deadline);
        let command = Command {
            source: source(number),
            node: RECEIVER,
            destination,
            length,
            key: self.key,
            notify: if self.dice.one_in(5) { Notify::Sender } else { Notify::Receiver },
            deadline: Some(deadline),
            priority: u8::try_from(self.dice.below(3)).unwrap_or(0),
        };
        let Ok(ticket) = self.sender.submit(self.now, command) else {
            // Completions have not been polled yet.
            self.free.push(slot);
            return Ok(false);
        };
        if let Some(place) = self.tickets.get_mut(slot_index(ticket.slot())) {
            *place = (ticket.generation(), number);
        }
        let receiver_incarnation = self.receiver_incarnation;
        self.stories.push(TransferRecord {
            slot,
            length,
            deadline,
            ended: None,
            notified: None,
            receiver_incarnation,
        });
        self.live += 1;
        self.tally.transfers += 1;
        self.tally.bytes += length;
        self.tally.of_any_size += u64::from(self.network.of_any_size);
        Ok(true)
    }

    fn transmit(&mut self) {
        if self.now < self.quiet_until {
            return;
        }
        while self.there.free_at() <= self.now && self.there.len() < LINK_CAPACITY / 2 {
            let Some(transmit) = self.sender.poll_transmit(self.now) else { return };
            let number = (transmit.source.get() >> 24) - 1;
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            self.on_wire.insert((self.sender_incarnation, transmit.transfer.get()), number);
            let Self { there, buffers, now, sender_incarnation, names, tally, .. } = self;
            let mut offset = transmit.source.get() & 0xFF_FFFF;
            frame::packets(&transmit, Incarnation::new(*sender_incarnation), |frame| {
                let mut bytes = buffers.pop().unwrap_or_default();
                // Zeroing as much as the longest packet needs would take most of the time.
                let space = match &frame {
                    Frame::Data { header, payload } => header.length() + payload + CRC_LENGTH,
                    Frame::Control(_) => MAX_CONTROL_LENGTH,
                };
                bytes.resize(space, 0);
                let length = match frame {
                    Frame::Data { header, payload } => {
                        if let Some(names) = names {
                            names.record_sent(&header, tally);
                        }
                        let mut content = [0; 1 << 12];
                        let content = content.get_mut(..payload).unwrap_or_default();
                        arena::fill(number as u64, offset, content);
                        offset += payload as u64;
                        header.encode(content, &mut bytes)
                    }
                    Frame::Control(control) => control.encode(&mut bytes),
                };
                bytes.truncate(length.unwrap_or(0));
                // A full link drops it.
                let _ = there.offer(*now, bytes);
            });
        }
    }

    fn arrivals(&mut self) -> Result<(), Invariant> {
        while let Some(bytes) = self.there.poll(self.now) {
            if self.now >= self.deaf_until {
                match Packet::parse(&bytes) {
                    Ok(Packet::Data(data)) => {
                        if let Some(names) = &self.names {
                            names.record_received(&data.header())?;
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
        while let Some(bytes) = self.back.poll(self.now) {
            self.unseen.push_back(bytes);
        }
        Ok(())
    }

    /// Processes the answers that the sender's card has received.
    fn answers(&mut self) -> Result<(), Invariant> {
        while let Some(bytes) = self.unseen.pop_front() {
            if let Ok(Packet::Control(control)) = Packet::parse(&bytes)
                && let Some((answer, kind)) = frame::answer(&control)
            {
                if let Some(names) = &self.names {
                    names.record_acknowledged(&control)?;
                }
                match kind {
                    AnswerKind::Acknowledged => self.sender.handle_ack(self.now, answer),
                    AnswerKind::Refused(reason) => self.sender.handle_nack(self.now, answer, reason),
                    AnswerKind::Done => self.sender.handle_segment_done(self.now, answer),
                }
            }
            self.buffers.push(bytes);
        }
        Ok(())
    }

    fn outputs(&mut self) -> Result<(), Invariant> {
        if let Some(stray) = self.arena.take_stray_write() {
            return Err(stray);
        }
        while let Some(output) = self.receiver.poll_output().copied() {
            match output {
                Output::Send(control) => {
                    let mut bytes = self.buffers.pop().unwrap_or_default();
                    bytes.resize(MAX_CONTROL_LENGTH, 0);
                    let length = control.encode(&mut bytes).unwrap_or(0);
                    bytes.truncate(length);
                    let _ = self.back.offer(self.now, bytes);
                }
                Output::Event(event) if event.kind == EventKind::Notice => self.is_reported(&event)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_reported(&mut self, event: &Event) -> Result<(), Invariant> {
        let key = (event.incarnation.get(), event.transfer.get());
        let unknown = Invariant::NotifiedTwice { transfer: u64::MAX };
        let number = *self.on_wire.get(&key).ok_or(unknown)?;
        let story = self.stories.get_mut(number).ok_or(unknown)?;
        if story.notified == Some(self.receiver_incarnation) || story.length != event.length {
            return Err(Invariant::NotifiedTwice { transfer: number as u64 });
        }
        story.notified = Some(self.receiver_incarnation);
        // The memory of a failed transfer may be in use by another one.
        if story.ended == Some(TransferOutcome::Failed) {
            return Ok(());
        }
        let slot = story.slot;
        let succeeded = story.ended == Some(TransferOutcome::Succeeded);
        self.arena.arrived(slot)?;
        if succeeded {
            self.free.push(slot);
        }
        Ok(())
    }

    fn ended(&mut self, completion: &CommandCompletion) -> Result<(), Invariant> {
        let ticket = completion.ticket;
        let place = self.tickets.get_mut(slot_index(ticket.slot()));
        let known = place.filter(|(generation, _)| *generation == ticket.generation());
        let Some((generation, number)) = known else {
            return Err(Invariant::CompletedTwice { transfer: u64::MAX });
        };
        let number = *number;
        *generation = u32::MAX;
        self.tally.packets += completion.packets;
        self.tally.retransmits += completion.retransmits;
        let Some(story) = self.stories.get_mut(number) else {
            return Err(Invariant::CompletedTwice { transfer: number as u64 });
        };
        let transfer = number as u64;
        if story.ended.is_some() {
            return Err(Invariant::CompletedTwice { transfer });
        }
        // It could not end while the host paused.
        let late = completion.finished.saturating_sub(story.deadline.max(self.asleep_until));
        if late > Nanos::ZERO {
            return Err(Invariant::DeadlineMissed { transfer, late });
        }
        self.live -= 1;
        let gentle = u64::from(self.network.gentle);
        self.tally.gentle += gentle;
        let count = match completion.result {
            Ok(()) => {
                story.ended = Some(TransferOutcome::Succeeded);
                let notified = story.notified.is_some() || story.length == 0;
                // If the sender notifies it, the receiver may learn later: the slot stays in use until then. An incarnation that had
                // received everything and was still to be notified is gone with its application.
                if notified {
                    self.free.push(story.slot);
                } else if story.receiver_incarnation != self.receiver_incarnation {
                    story.ended = Some(TransferOutcome::Failed);
                    self.releasing.push((self.now.saturating_add(PACKET_LIFETIME), story.slot));
                }
                self.tally.gentle_completed += gentle;
                self.tally.completed += 1;
                return Ok(());
            }
            Err(SendFailure::Deadline { .. }) => &mut self.tally.deadline,
            Err(SendFailure::Unanswered { .. }) => &mut self.tally.unanswered,
            Err(SendFailure::Forgotten { .. }) => &mut self.tally.forgotten,
            Err(_) => &mut self.tally.refused,
        };
        *count += 1;
        story.ended = Some(TransferOutcome::Failed);
        self.releasing.push((self.now.saturating_add(PACKET_LIFETIME), story.slot));
        Ok(())
    }

    /// Makes slots available again after their late packets are gone.
    fn rest(&mut self) {
        let (free, now) = (&mut self.free, self.now);
        self.releasing.retain(|(at, slot)| {
            let over = *at <= now;
            if over {
                free.push(*slot);
            }
            !over
        });
    }

    fn restart(&mut self, side: Side) -> Result<(), Invariant> {
        self.tally.restarts += 1;
        match side {
            Side::Sender => {
                self.sender_incarnation += 1;
                let incarnation = Incarnation::new(self.sender_incarnation);
                self.sender = Sender::new(self.network.sender, incarnation).map_err(Invariant::Sender)?;
                self.asleep_until = Nanos::ZERO;
                self.quiet_until = self.now.saturating_add(PACKET_LIFETIME);
                self.unseen.clear();
                for story in self.stories.iter_mut().filter(|story| story.ended.is_none()) {
                    story.ended = Some(TransferOutcome::Failed);
                    // Reused at once: the sender has to keep old packets away from new data.
                    self.arena.release_slot(story.slot);
                    self.free.push(story.slot);
                    self.tally.abandoned += 1;
                    self.live -= 1;
                }
                self.tickets.fill((u32::MAX, 0));
                // Pending notices of the old sender: no application waits for them.
                self.expire_notices();
            }
            Side::Receiver | Side::ReceiverAfterAPause => {
                self.note_receiver();
                self.receiver_incarnation += 1;
                if side == Side::Receiver {
                    self.key = self.dice.0.next_u64();
                } else {
                    self.deaf_until = self.now.saturating_add(PACKET_LIFETIME);
                }
                self.receiver = open(self.network, self.receiver_incarnation, self.key, self.arena.size())?;
                self.expire_notices();
            }
        }
        Ok(())
    }

    /// Ends the wait for notices of successful transfers that were still to come from the sender: they were lost with the side that was
    /// restarted.
    fn expire_notices(&mut self) {
        for story in &mut self.stories {
            if story.ended == Some(TransferOutcome::Succeeded)
                && story.notified.is_none()
                && story.length != 0
            {
                story.ended = Some(TransferOutcome::Failed);
                self.releasing.push((self.now.saturating_add(PACKET_LIFETIME), story.slot));
            }
        }
    }

    fn note_receiver(&mut self) {
        let counters = self.receiver.counters();
        self.tally.duplicates += counters.duplicates + counters.tombstone_hits;
        self.tally.escaped += counters.escape_hits;
        self.tally.registry_full += counters.registry_full;
    }

    /// After the last packet: the receiver's timers expire, and all tables become empty.
    fn finish(&mut self) -> Result<(), Invariant> {
        for _ in 0..10_000 {
            let Some(at) = self.receiver.poll_timeout() else { break };
            self.now = self.now.max(at);
            self.receiver.handle_timeout(self.now);
            self.outputs()?;
        }
        for slot in 0..SLOTS {
            self.arena.still(slot)?;
        }
        for (transfer, story) in (0..).zip(&self.stories) {
            if story.ended == Some(TransferOutcome::Succeeded)
                && story.notified.is_none()
                && story.length != 0
            {
                return Err(Invariant::NotNotified { transfer });
            }
        }
        for (what, left) in [
            ("op table", self.sender.ops().count()),
            ("sender", usize::from(!self.sender.is_idle())),
            ("registry", slot_index(self.receiver.registry_occupancy())),
            ("escape channel", usize::from(self.receiver.escape_occupancy())),
            ("transfers in progress", self.receiver.transfers_in_progress()),
            ("tombstones", self.receiver.tombstones()),
            ("receiver's timer", usize::from(self.receiver.poll_timeout().is_some())),
        ] {
            if left != 0 {
                return Err(Invariant::NotReleased { what });
            }
        }
        self.note_receiver();
        self.tally.stale += self.sender.counters().stale;
        for LinkCounters { data, control, .. } in [self.there.counters(), self.back.counters()] {
            for class in [data, control] {
                self.tally.lost += class.lost + class.blacked_out + class.overflowed;
                self.tally.damaged += class.damaged;
                self.tally.duplicated += class.duplicated;
            }
        }
        Ok(())
    }
}

fn open(network: &RoundParameters, incarnation: u32, key: u64, size: u64) -> Result<Receiver, Invariant> {
    let mut config = network.receiver;
    config.incarnation = Incarnation::new(incarnation);
    let mut receiver = Receiver::new(config).map_err(Invariant::Receiver)?;
    let window = MemoryWindow {
        source: SENDER,
        base: CardAddr::new(arena::BASE),
        length: size,
        key,
        permissions: Permissions::WRITE,
    };
    // A range inside the address space, in the first of many windows.
    let _ = receiver.access_mut().install(0, window);
    Ok(receiver)
}

/// Address of a transfer's bytes at the sender: its number in the upper bits, the offset in the lower ones.
fn source(number: usize) -> CardAddr {
    CardAddr::new((number as u64 + 1) << 24)
}

fn slot_index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
