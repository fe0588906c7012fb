//! A host that does not read its event ring delays its own notifications and nothing else. When it reads the ring, each of them arrives
//! once.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper that cannot continue may as well stop the test"
)]

use crate::common;

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use common::{INCARNATION, RECEIVER, SENDER, Shape, TestBed, acks, config, events, nacks};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::ids::{OpNumber, TransferId};
use fpga_firmware::wire::{Arrived, Common, DataHeader, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Output, ReceiverConfig};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Notification modes, used in turn.
const KINDS: [Flags; 3] = [Flags::NO_NOTICE, Flags::NOTIFY_RECEIVER, Flags::NONE];

type Packet = (DataHeader, Vec<u8>);

fn notifies(packet: &Packet) -> bool {
    !packet.0.common.flags.contains(Flags::NO_NOTICE)
}

/// A receiver whose host has a ring for `slots` notices, and the packets that its senders have no acknowledgement for.
#[derive(Clone)]
struct State {
    bed: TestBed,
    slots: u32,
    /// Number of notices that the host has not read.
    untaken: u32,
    pending: Vec<bool>,
    /// Number of notices of each transfer.
    notices: Vec<u32>,
}

impl State {
    fn new(config: ReceiverConfig, slots: u32, packets: &[Packet]) -> Self {
        let transfers = packets.iter().map(|packet| packet.0.transfer.get() as usize + 1).max().unwrap_or(0);
        let (pending, notices) = (vec![true; packets.len()], vec![0; transfers]);
        Self { bed: TestBed::new(config), slots, untaken: 0, pending, notices }
    }

    /// Returns the number of refusals as "receiver not ready", of the packet or of one that waited for it.
    fn deliver(&mut self, packets: &[Packet], at: usize) -> usize {
        self.bed.receiver.set_notice_slots(self.slots - self.untaken);
        let outputs = self.bed.deliver(&packets[at]);
        self.take(packets, &outputs)
    }

    /// The sender of an acknowledged transfer sends ARRIVED.
    fn announce(&mut self, packets: &[Packet], transfer: u32) {
        let first = packets.iter().find(|packet| packet.0.transfer.get() == transfer).unwrap();
        let start = first.0.start.unwrap();
        let arrived = Arrived {
            common: Common {
                source: SENDER,
                destination: RECEIVER,
                incarnation: INCARNATION,
                flags: Flags::NONE,
                path: 0,
            },
            transfer: TransferId::new(transfer),
            address: start.transfer_base,
            length: start.transfer_length,
            key: first.0.key,
        };
        self.bed.receiver.handle_arrived(self.bed.now, &arrived);
        let outputs = self.bed.drain();
        self.take(packets, &outputs);
    }

    fn may_announce(&self, packets: &[Packet], transfer: u32) -> bool {
        let mut of_transfer =
            packets.iter().zip(&self.pending).filter(|(packet, _)| packet.0.transfer.get() == transfer);
        let told = self.notices[transfer as usize] != 0;
        !told && of_transfer.all(|(packet, pending)| packet.0.common.flags == Flags::NONE && !pending)
    }

    fn take(&mut self, packets: &[Packet], outputs: &[Output]) -> usize {
        for notice in events(outputs, EventKind::Notice) {
            self.untaken += 1;
            self.notices[notice.transfer.get() as usize] += 1;
        }
        assert!(self.untaken <= self.slots, "a notice more than there are slots");
        for op in acks(outputs) {
            let at = packets.iter().position(|(header, _)| header.op == op).expect("a packet that was sent");
            self.pending[at] = false;
        }
        self.bed.memory.writes.clear();
        nacks(outputs).iter().filter(|reason| **reason == NackReason::NotReady).count()
    }

    /// Retransmits everything until nothing changes, in the worst order: start packets come last, the latest of them first. No timer
    /// expires, so packets stay in the escape buffer until they are requested.
    fn retry(&mut self, packets: &[Packet]) {
        let mut order: Vec<_> = (0..packets.len()).rev().collect();
        order.sort_by_key(|&at| packets[at].0.start.is_some());
        loop {
            let before = self.pending.clone();
            for &at in &order {
                if self.pending[at] {
                    self.deliver(packets, at);
                }
            }
            if self.pending == before {
                return;
            }
        }
    }

    /// Without the host: all transfers without notification are complete, no registry entry is held, and each transfer with notification
    /// was notified or lacks its acknowledgement. With the host: all transfers are complete, and each was notified once.
    fn assert_drains(mut self, packets: &[Packet]) {
        self.retry(packets);
        for (packet, pending) in packets.iter().zip(&self.pending) {
            assert!(!pending || notifies(packet), "{packet:?} waits for the host");
        }
        assert_eq!(self.bed.receiver.registry_occupancy(), 0);
        for round in 0.. {
            self.untaken = 0;
            self.retry(packets);
            for transfer in 0..u32::try_from(self.notices.len()).unwrap() {
                if self.may_announce(packets, transfer) {
                    self.announce(packets, transfer);
                }
            }
            if !self.pending.contains(&true) {
                break;
            }
            assert!(round < packets.len(), "no progress: pending {:?}", self.pending);
        }
        let receiver = &self.bed.receiver;
        let left =
            (receiver.registry_occupancy(), receiver.escape_occupancy(), receiver.transfers_in_progress());
        assert_eq!((left, receiver.reserved_notices()), ((0, 0, 0), 0));
        for packet in packets {
            let told = self.notices[packet.0.transfer.get() as usize];
            assert_eq!(told, u32::from(notifies(packet)), "{packet:?}");
        }
    }

    fn fingerprint(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &self.bed.receiver, self.untaken, &self.pending, &self.notices).hash(&mut hasher);
            hasher.finish()
        };
        u128::from(half(1)) << 64 | u128::from(half(2))
    }
}

/// Transfers with this number of segments and of packets per segment, with all notification modes in turn.
fn packets(transfers: u32, segments: u32, count: u16, turn: usize) -> Vec<Packet> {
    let segment_bytes = u64::from(count) * 64;
    let shape = |transfer: u32, segment: u32| {
        let transfer_base = common::BASE + u64::from(transfer * segments) * segment_bytes;
        Shape {
            segment,
            segment_count: segments,
            base: transfer_base + u64::from(segment) * segment_bytes,
            length: u32::from(count) * 64,
            transfer_base,
            transfer_length: u64::from(segments) * segment_bytes,
            ..Shape::single(transfer, count)
        }
    };
    let shapes =
        (0..transfers).flat_map(|transfer| (0..segments).map(move |segment| shape(transfer, segment)));
    let mut packets: Vec<_> = shapes
        .flat_map(|shape| (0..count).map(move |index| shape.packet(index)).collect::<Vec<_>>())
        .collect();
    // Each packet gets its own op number.
    for (number, (header, _)) in (0..).zip(&mut packets) {
        header.op = OpNumber::new(number);
        header.common.flags = KINDS[(header.transfer.get() as usize + turn) % KINDS.len()];
    }
    packets
}

/// Searches every state that deliveries in any order, and reads by the host at any time, lead to. From each of them all transfers that do
/// not need the host complete, and then, when it reads the ring, the rest.
fn search(config: ReceiverConfig, slots: u32, packets: &[Packet]) -> usize {
    let first = State::new(config, slots, packets);
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut frontier = VecDeque::from([first]);
    while let Some(state) = frontier.pop_front() {
        let mut next = Vec::new();
        for at in 0..packets.len() {
            if state.pending[at] {
                let mut delivered = state.clone();
                delivered.deliver(packets, at);
                next.push(delivered);
            }
        }
        for transfer in 0..u32::try_from(state.notices.len()).unwrap() {
            if state.may_announce(packets, transfer) {
                let mut announced = state.clone();
                announced.announce(packets, transfer);
                next.push(announced);
            }
        }
        if state.untaken != 0 {
            let mut looked = state.clone();
            looked.untaken = 0;
            next.push(looked);
        }
        state.assert_drains(packets);
        frontier.extend(next.into_iter().filter(|state| seen.insert(state.fingerprint())));
    }
    seen.len()
}

/// One notification mode to begin with, and one number of slots, for each shape.
#[test]
fn one_sided_transfers_without_host_complete_from_every_state() {
    let shapes = [(3, 1, 2), (1, 3, 2), (2, 1, 3), (4, 1, 1), (3, 2, 1)];
    for (number, (transfers, segments, count)) in shapes.into_iter().enumerate() {
        let slots = if number % 2 == 0 { 1 } else { 2 };
        let states = search_with_slots(slots, &packets(transfers, segments, count, number % KINDS.len()));
        assert!(states > 30, "{states}");
    }
}

fn search_with_slots(slots: u32, packets: &[Packet]) -> usize {
    let mut config = config();
    (config.registry_entries, config.transfers) = (4, 4);
    config.packet_events = slots == 2;
    search(config, slots, packets)
}

#[test]
#[ignore = "long: 10 s: eight packets, every mode and number of slots"]
fn one_sided_transfers_of_every_mode_without_host_complete_from_every_state() {
    let mut all = 0;
    for (transfers, segments, count) in [(2, 2, 2), (3, 1, 2), (1, 3, 2), (2, 1, 3), (4, 1, 1), (3, 2, 1)] {
        for turn in 0..KINDS.len() {
            for slots in [1, 2] {
                let states = search_with_slots(slots, &packets(transfers, segments, count, turn));
                assert!(states > 30, "{states}");
                all += states;
            }
        }
    }
    println!("{all} states");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(9), ..ProptestConfig::default() })]

    /// Many entries, transfers and early packets, few slots, and a host that reads its ring occasionally.
    #[test]
    fn one_sided_transfers_with_large_tables_complete(
        packet_events in any::<bool>(),
        (transfers, segments, count) in (1..24_u32, 1..4_u32, 1..6_u16),
        (entries, escape) in (1..40_u32, 0..40_u16),
        slots in 1..12_u32,
        turn in 0..3_usize,
        looks in 1..200_u64,
        expire in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut dice = seed;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (dice >> 33) % sides
        };
        let packets = packets(transfers, segments, count, turn);
        let mut config = config();
        (config.packet_events, config.registry_entries, config.escape_slots) = (packet_events, entries, escape);
        (config.transfers, config.tombstones) = (32, 64);
        let mut state = State::new(config, slots, &packets);
        for _ in 0..4 * packets.len() {
            let at = usize::try_from(roll(packets.len() as u64)).unwrap();
            // Also packets that have arrived already: copies.
            state.deliver(&packets, at);
            if roll(looks) == 0 {
                state.untaken = 0;
            }
            if expire && roll(20) == 0 {
                let outputs = state.bed.advance(Nanos::from_millis(1));
                state.take(&packets, &outputs);
            }
        }
        state.assert_drains(&packets);
    }
}
