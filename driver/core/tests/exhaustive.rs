//! Sender and receiver together, through every state that they and the network between them can reach.
//!
//! The search is breadth-first over states, not sequences: at any moment every packet and answer in flight may be delivered,
//! lost or doubled, within a budget of losses and copies; when nothing is in flight any more, the sender's timer runs out. A state
//! that was seen before is not followed again. States are told apart by 128 bits of hash.
//!
//! What must hold in every state: bytes are right and inside the range, written once, and none after the operation's
//! completion; an operation is complete at the receiver exactly when all of it is in memory, and at the sender not before.
//! And every path ends: with the transfer completed at both sides, told once, and all tables empty.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test helper that cannot go on may as well stop the test"
)]

mod common;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use common::{BASE, KEY, Memory, RECEIVER, Rig, SENDER, Shape, config, events};
use fpga_core::Nanos;
use fpga_core::receiver::{Output, Receiver, ReceiverConfig};
use fpga_core::sender::{Answer, Command, Notify, Sender, SenderConfig, Timeout, Transmit};
use fpga_firmware::event::EventKind;
use fpga_firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_firmware::wire::{Common, Control, DataHeader, Flags, StartFields};
use fpga_registers::CardAddr;

const PACKET: u64 = 64;
const TIMEOUT: Nanos = Nanos::from_millis(1);

/// An operation, named by the life of its sender and its transfer.
type Name = (u32, u32);

/// What travels. `from` counts lives and transfers; a packet is named by its op number's slot, which it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Flight {
    Data { name: Name, packet: u16, op: u32, tries: u8 },
    Ack { life: u32, op: u32, tries: u8 },
    Done { name: Name },
}

/// One operation's progress, as an onlooker sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Progress {
    written: u8,
    completions: u8,
    notices: u8,
    /// How it ended at the sender.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    losses: u8,
    copies: u8,
    restarts: u8,
}

#[derive(Clone)]
struct State {
    sender: Sender,
    receiver: Receiver,
    network: BTreeMap<Flight, u8>,
    progress: BTreeMap<Name, Progress>,
    now: Nanos,
    budget: Budget,
}

/// What is searched.
#[derive(Clone, Copy)]
struct Case {
    /// Packets of each transfer; the last packet is short.
    packets: u16,
    transfers: u32,
    mask_bits: u16,
    budget: Budget,
}

/// Each transfer starts a packet after the one before, so that they overlap.
fn base(name: Name) -> u64 {
    BASE + u64::from(name.1) * PACKET
}

impl Case {
    fn length(&self) -> u64 {
        u64::from(self.packets) * PACKET - 47
    }

    fn sender(&self, life: u32) -> Sender {
        let mut config = SenderConfig::default();
        config.packet_size_log2 = 6;
        config.mask_bits = self.mask_bits;
        config.segment_size = u32::from(self.mask_bits) * 64;
        config.big_threshold = config.segment_size;
        config.op_entries = 8;
        config.ops_per_destination = 8;
        config.transfers = self.transfers;
        config.destinations = 1;
        config.retry.timeout = Timeout::Fixed { timeout: TIMEOUT, max_tries: 0 };
        let mut sender = Sender::new(config, Incarnation::new(life)).unwrap();
        for transfer in 0..self.transfers {
            let command = Command {
                source: CardAddr::new(0),
                node: RECEIVER,
                destination: CardAddr::new(base((life, transfer))),
                length: self.length(),
                key: KEY,
                notify: Notify::Receiver,
                deadline: None,
                priority: 0,
            };
            sender.submit(Nanos::ZERO, command).unwrap();
        }
        sender
    }

    fn receiver(&self) -> ReceiverConfig {
        let mut config = config();
        config.mask_bits = self.mask_bits;
        config.registry_entries = 4;
        config.escape_slots = 16;
        // Nothing expires: a dropped packet is a lost one, and those are in the budget.
        config.escape_timeout = Nanos::from_secs(1);
        config
    }

    fn begin(&self) -> State {
        let mut state = State {
            sender: self.sender(1),
            receiver: common::receiver(self.receiver()),
            network: BTreeMap::new(),
            progress: BTreeMap::new(),
            now: Nanos::ZERO,
            budget: self.budget,
        };
        state.transmit();
        state
    }

    fn byte(name: Name, offset: u64) -> u8 {
        u8::try_from((offset + u64::from(name.0) * 50 + u64::from(name.1) * 91) % 251).unwrap()
    }

    fn packet(&self, name: Name, packet: u16, op: u32, tries: u8) -> (DataHeader, Vec<u8>) {
        let offset = u64::from(packet) * PACKET;
        let length = PACKET.min(self.length() - offset);
        let segment_length = u32::try_from(self.length()).unwrap();
        let header = DataHeader {
            common: Common {
                source: SENDER,
                destination: RECEIVER,
                incarnation: Incarnation::new(name.0),
                flags: Flags::NOTIFY_RECEIVER,
            },
            transfer: TransferId::new(name.1),
            // The transfers of a case live to its end as far as packets on their way tell.
            oldest_live: TransferId::new(0),
            segment: 0,
            segment_count: 1,
            address: CardAddr::new(base(name) + offset),
            key: KEY,
            op: OpNumber::new(op),
            tries,
            packet_size_log2: 6,
            start: (packet == 0).then_some(StartFields {
                base: CardAddr::new(base(name)),
                segment_length,
                packets: self.packets,
                transfer_base: CardAddr::new(base(name)),
                transfer_length: self.length(),
            }),
        };
        (header, (offset..offset + length).map(|at| Self::byte(name, at)).collect())
    }
}

impl State {
    fn add(&mut self, flight: Flight) {
        *self.network.entry(flight).or_default() += 1;
    }

    fn remove(&mut self, flight: Flight) {
        let count = self.network.get_mut(&flight).unwrap();
        *count -= 1;
        if *count == 0 {
            self.network.remove(&flight);
        }
    }

    fn transmit(&mut self) {
        while let Some(transmit) = self.sender.poll_transmit(self.now) {
            let Transmit { transfer, first_packet, ops, tries, .. } = transmit;
            let life = self.sender.incarnation().get();
            for (packet, op) in (first_packet..).zip(ops.as_slice()) {
                let name = (life, transfer.get());
                self.add(Flight::Data { name, packet, op: op.get(), tries });
            }
        }
    }

    fn deliver(&mut self, case: &Case, flight: Flight) {
        match flight {
            Flight::Data { name, packet, op, tries } => {
                let (header, payload) = case.packet(name, packet, op, tries);
                let mut memory = Memory::default();
                self.receiver.handle_packet(self.now, &header, &payload, &mut memory);
                self.written(case, &memory);
                self.outputs();
            }
            Flight::Ack { life, op, tries } => {
                let answer = self.answer(life, op, tries);
                self.sender.handle_ack(self.now, answer);
            }
            Flight::Done { name } => {
                let answer = self.answer(name.0, 0, 0);
                self.sender.handle_segment_done(self.now, answer, TransferId::new(name.1), 0);
            }
        }
        self.completions(case);
    }

    fn answer(&self, life: u32, op: u32, tries: u8) -> Answer {
        let incarnation = Incarnation::new(life);
        Answer {
            node: RECEIVER,
            incarnation,
            op: OpNumber::new(op),
            tries,
            life: self.receiver.config().incarnation,
        }
    }

    /// Whose bytes were written is told by the bytes.
    fn written(&mut self, case: &Case, memory: &Memory) {
        for (address, bytes) in &memory.writes {
            let names = self.progress.keys().copied().collect::<Vec<_>>();
            let all = names
                .into_iter()
                .chain([1, 2].into_iter().flat_map(|l| (0..case.transfers).map(move |t| (l, t))));
            let owner = all.into_iter().find(|name| {
                address.checked_sub(base(*name)).is_some_and(|offset| {
                    offset + bytes.len() as u64 <= case.length()
                        && bytes.iter().zip(offset..).all(|(byte, at)| *byte == Case::byte(*name, at))
                })
            });
            let name = owner.expect("bytes of no operation, or outside of its range");
            let bit = 1 << ((address - base(name)) / PACKET);
            let progress = self.progress.entry(name).or_default();
            assert_eq!(progress.written & bit, 0, "written twice");
            assert_eq!(progress.completions, 0, "written after completion");
            progress.written |= bit;
        }
    }

    fn outputs(&mut self) {
        while let Some(output) = self.receiver.poll_output().copied() {
            match output {
                Output::Send(Control::Ack(ack)) => {
                    let life = ack.peer_incarnation.get();
                    self.add(Flight::Ack { life, op: ack.op.get(), tries: ack.tries });
                }
                Output::Send(Control::SegmentDone(done)) => {
                    self.add(Flight::Done { name: (done.peer_incarnation.get(), done.transfer.get()) });
                }
                Output::Send(other) => panic!("{other:?}"),
                Output::Event(event) => {
                    let progress =
                        self.progress.entry((event.incarnation.get(), event.transfer.get())).or_default();
                    progress.completions += u8::from(event.kind == EventKind::Completed);
                    progress.notices += u8::from(event.kind == EventKind::Notice);
                }
                _ => {}
            }
        }
    }

    fn completions(&mut self, case: &Case) {
        while let Some(completion) = self.sender.poll_completion() {
            assert_eq!(completion.result, Ok(()));
            let name = (self.sender.incarnation().get(), completion.transfer.unwrap().get());
            let progress = self.progress.get_mut(&name).unwrap();
            assert!(!std::mem::replace(&mut progress.ended, true), "ended twice");
            assert_eq!(progress.notices, 1, "completed at the sender before the receiver was told");
        }
        let all = u8::MAX >> (8 - case.packets);
        for (name, progress) in &self.progress {
            let complete = u8::from(progress.written == all);
            assert_eq!((progress.completions, progress.notices), (complete, complete), "{name:?}");
        }
    }

    /// What can happen next.
    fn successors(&self, case: &Case) -> Vec<Self> {
        let mut next = Vec::new();
        for flight in self.network.keys().copied() {
            let mut delivered = self.clone();
            delivered.remove(flight);
            delivered.deliver(case, flight);
            next.push(delivered);
            if self.budget.losses > 0 {
                let mut lost = self.clone();
                lost.remove(flight);
                lost.budget.losses -= 1;
                next.push(lost);
            }
            if self.budget.copies > 0 {
                let mut doubled = self.clone();
                doubled.add(flight);
                doubled.budget.copies -= 1;
                next.push(doubled);
            }
        }
        if self.budget.restarts > 0 {
            let mut restarted = self.clone();
            restarted.budget.restarts -= 1;
            restarted.sender = case.sender(self.sender.incarnation().get() + 1);
            restarted.transmit();
            next.push(restarted);
        }
        if self.network.is_empty() && !self.sender.is_idle() {
            next.push(self.clone().timeout());
        }
        next
    }

    fn timeout(mut self) -> Self {
        let mut steps = 0;
        while self.network.is_empty() {
            self.now = self.sender.poll_timeout().expect("the sender waits for nothing: it hangs");
            self.sender.handle_timeout(self.now);
            self.transmit();
            steps += 1;
            assert!(steps < 1000, "the timer runs out for nothing");
        }
        self
    }

    /// The sender by what it will do: its packets with their tries, not the history that led there.
    fn fingerprint(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            self.receiver.hash(&mut hasher);
            self.network.hash(&mut hasher);
            self.progress.hash(&mut hasher);
            (self.now, self.budget, self.sender.incarnation()).hash(&mut hasher);
            for op in self.sender.ops() {
                (op.number, op.state, op.segment, op.packet, op.tries, op.silent, op.deadline)
                    .hash(&mut hasher);
            }
            hasher.finish()
        };
        u128::from(half(1)) << 64 | u128::from(half(2))
    }
}

/// Goes through everything that is reachable; returns the count of states.
fn search(case: Case) -> usize {
    let first = case.begin();
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut frontier = VecDeque::from([first]);
    let mut ends = 0;
    while let Some(state) = frontier.pop_front() {
        let next = state.successors(&case);
        if state.network.is_empty() && state.sender.is_idle() {
            ends += 1;
            let life = state.sender.incarnation().get();
            for transfer in 0..case.transfers {
                let progress = state.progress[&(life, transfer)];
                assert!(progress.ended && progress.notices == 1, "{progress:?}");
            }
            assert_eq!(state.receiver.escape_occupancy(), state.escaped_of_former_lives(life));
            let former = state.registered_of_former_lives(life);
            assert_eq!(state.receiver.registry_occupancy() as usize, former);
        }
        for next in next {
            if seen.insert(next.fingerprint()) {
                frontier.push_back(next);
            }
        }
    }
    assert!(ends > 0);
    seen.len()
}

impl State {
    /// What a sender that is gone has left behind, until the receiver's timers clear it away.
    fn escaped_of_former_lives(&self, life: u32) -> u16 {
        let slots = 0..self.receiver.config().escape_slots;
        let former = slots.filter_map(|slot| self.receiver.escaped(slot, self.now));
        u16::try_from(former.filter(|view| view.header.common.incarnation.get() < life).count()).unwrap()
    }

    fn registered_of_former_lives(&self, life: u32) -> usize {
        let entries = (0..4).filter_map(|index| self.receiver.entry(index, self.now));
        entries.filter(|entry| entry.valid && entry.incarnation.get() < life).count()
    }
}

const fn budget(losses: u8, copies: u8) -> Budget {
    Budget { losses, copies, restarts: 0 }
}

fn one(packets: u16, mask_bits: u16, losses: u8, copies: u8) -> usize {
    search(Case { packets, transfers: 1, mask_bits, budget: budget(losses, copies) })
}

#[test]
fn one_operation_two_losses_and_two_copies_at_every_width() {
    let mut states = 0;
    for mask_bits in 1..=8 {
        for packets in 1..=mask_bits.min(3) {
            states += one(packets, mask_bits, 2, 2);
        }
    }
    assert!(states > 10_000, "{states}");
}

#[test]
fn one_operation_of_four_and_five_packets() {
    let states = [one(4, 4, 2, 1), one(4, 8, 1, 2), one(5, 5, 2, 1), one(5, 8, 1, 1)];
    assert!(states.iter().all(|states| *states > 5_000), "{states:?}");
}

#[test]
fn one_operation_of_six_and_seven_packets() {
    let states = [one(6, 6, 2, 0), one(6, 8, 1, 1), one(7, 7, 2, 0), one(7, 8, 0, 1)];
    assert!(states.iter().all(|states| *states > 5_000), "{states:?}");
}

#[test]
#[ignore = "two million states: some minutes; cargo test -p fpga-core --test exhaustive -- --ignored --nocapture"]
fn one_operation_of_up_to_seven_packets_with_two_losses_and_a_copy_at_every_width() {
    for mask_bits in 1..=8 {
        for packets in 1..=mask_bits.min(7) {
            println!("{packets} packets, {mask_bits} mask bits: {} states", one(packets, mask_bits, 2, 1));
        }
    }
    println!("5 packets, two copies: {} states", one(5, 5, 2, 2));
}

#[test]
fn two_operations_of_three_packets_that_overlap() {
    for (losses, copies) in [(1, 0), (0, 1)] {
        let states = search(Case { packets: 3, transfers: 2, mask_bits: 3, budget: budget(losses, copies) });
        assert!(states > 5_000, "{states}");
    }
}

#[test]
fn a_sender_that_starts_anew_at_any_moment() {
    for (packets, losses, copies) in [(2, 1, 1), (3, 1, 0)] {
        let budget = Budget { losses, copies, restarts: 1 };
        let states = search(Case { packets, transfers: 1, mask_bits: 3, budget });
        assert!(states > 1_000, "{states}");
    }
}

/// Wide masks, where the words meet, cannot be searched: random orders with copies and losses instead, against the
/// definition.
#[test]
fn wide_masks_sampled() {
    let mut dice = 7u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (dice >> 33) % sides
    };
    for width in [31u16, 32, 33, 63, 64, 65, 128, 255, 256] {
        for packets in [1, 2, width / 2, width - 1, width] {
            for _ in 0..12 {
                let mut config = config();
                config.mask_bits = width;
                config.escape_slots = u16::try_from(roll(300)).unwrap();
                let mut rig = Rig::new(config);
                let shape = Shape::single(0, packets);
                let mut missing: Vec<u16> = (0..packets).collect();
                let (mut notices, mut rounds) = (0, 0);
                while !missing.is_empty() {
                    rounds += 1;
                    assert!(rounds < 1000, "it hangs");
                    let mut in_flight: Vec<u16> = missing.clone();
                    in_flight.extend(missing.iter().filter(|_| roll(8) == 0));
                    in_flight.retain(|_| roll(10) != 0);
                    while !in_flight.is_empty() {
                        let at = usize::try_from(roll(in_flight.len() as u64)).unwrap();
                        let outputs = rig.send(&shape, in_flight.swap_remove(at));
                        notices += events(&outputs, EventKind::Notice).len();
                        for op in common::acks(&outputs) {
                            missing.retain(|packet| *packet != op.slot());
                        }
                    }
                    assert_eq!(notices, usize::from(rig.memory.writes.len() == usize::from(packets)));
                }
                assert_eq!(notices, 1);
                let mut bytes = vec![0; shape.length as usize];
                for (address, part) in &rig.memory.writes {
                    let start = usize::try_from(address - BASE).unwrap();
                    bytes[start..start + part.len()].copy_from_slice(part);
                }
                assert!(bytes.iter().zip(BASE..).all(|(byte, at)| *byte == common::pattern(at)));
                let written = rig.memory.writes.len();
                for packet in 0..packets {
                    rig.send(&shape, packet);
                }
                assert_eq!((rig.memory.writes.len(), rig.receiver.registry_occupancy()), (written, 0));
            }
        }
    }
}
