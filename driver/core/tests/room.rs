//! Event rings that others' packets could fill: no event is lost however long the host does not look, and once it looks, everything
//! goes on.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test helper that cannot go on may as well stop the test"
)]

mod common;

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use common::{Rig, Shape, acks, config};
use fpga_core::Nanos;
use fpga_core::receiver::{EventRoom, Output, ReceiverConfig};
use fpga_firmware::wire::DataHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A ring of which a `part` is for what comes of others' packets, and a host that says what it has taken when that is `notch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ring {
    part: u32,
    notch: u32,
    /// Written, and not given back by the host.
    held: u32,
    /// Of these, what it has not seen.
    unseen: u32,
}

impl Ring {
    fn new(part: u32, notch: u32) -> Self {
        Self { part, notch, held: 0, unseen: 0 }
    }

    /// What a receiver needs of it at least.
    fn least(packet_events: bool, notch: u32) -> Self {
        Self::new(EventRoom::LEAST - if packet_events { 0 } else { 2 } + notch - 1, notch)
    }

    fn room(&self) -> EventRoom {
        EventRoom { now: self.part.saturating_sub(self.held), rested: self.part - (self.notch - 1) }
    }

    fn look(&mut self) {
        self.unseen = 0;
        if self.held >= self.notch {
            self.held = 0;
        }
    }
}

type Packet = (DataHeader, Vec<u8>);

/// A receiver behind a ring, and what its senders have not been told to have arrived.
#[derive(Clone)]
struct State {
    rig: Rig,
    ring: Ring,
    pending: Vec<bool>,
    events: u64,
}

impl State {
    fn new(config: ReceiverConfig, ring: Ring, packets: &[Packet]) -> Self {
        Self { rig: Rig::new(config), ring, pending: vec![true; packets.len()], events: 0 }
    }

    fn deliver(&mut self, packets: &[Packet], at: usize) {
        self.rig.receiver.set_event_room(self.ring.room());
        let outputs = self.rig.deliver(&packets[at]);
        self.take(packets, &outputs);
    }

    fn take(&mut self, packets: &[Packet], outputs: &[Output]) {
        let told = outputs.iter().filter(|output| matches!(output, Output::Event(_))).count();
        self.ring.held += u32::try_from(told).unwrap();
        self.ring.unseen += u32::try_from(told).unwrap();
        self.events += told as u64;
        assert!(self.ring.held <= self.ring.part, "an event more than there is room for: {:?}", self.ring);
        for op in acks(outputs) {
            let at = packets.iter().position(|(header, _)| header.op == op).expect("a packet that was sent");
            self.pending[at] = false;
        }
        self.rig.memory.writes.clear();
    }

    /// The host looks, and everything is sent again, in the order that is worst: starts come last, and the latest of them first. No
    /// timer runs out, so what is in the escape buffer stays there until it is asked for.
    fn assert_drains(mut self, packets: &[Packet]) {
        let mut order: Vec<_> = (0..packets.len()).rev().collect();
        order.sort_by_key(|&at| packets[at].0.start.is_some());
        for _ in 0..=packets.len() {
            self.ring.look();
            for &at in &order {
                if self.pending[at] {
                    self.deliver(packets, at);
                }
            }
            if !self.pending.contains(&true) {
                let receiver = &self.rig.receiver;
                let left = (
                    receiver.registry_occupancy(),
                    receiver.escape_occupancy(),
                    receiver.transfers_in_progress(),
                );
                assert_eq!(left, (0, 0, 0));
                return;
            }
        }
        panic!("nothing goes on any more: {:?}, pending {:?}", self.ring, self.pending);
    }

    fn fingerprint(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &self.rig.receiver, self.ring, &self.pending).hash(&mut hasher);
            hasher.finish()
        };
        u128::from(half(1)) << 64 | u128::from(half(2))
    }
}

/// Transfers of so many segments of so many packets each.
fn packets(transfers: u32, segments: u32, count: u16) -> Vec<Packet> {
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
    // A number for each.
    for (number, (header, _)) in (0..).zip(&mut packets) {
        header.op = fpga_firmware::ids::OpNumber::new(number);
    }
    packets
}

/// Through every state that deliveries in any order, and looks of the host at any time, lead to: from each of them everything
/// completes.
fn search(config: ReceiverConfig, ring: Ring, packets: &[Packet]) -> usize {
    let first = State::new(config, ring, packets);
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
        let mut looked = state.clone();
        looked.ring.look();
        next.push(looked);
        state.assert_drains(packets);
        frontier.extend(next.into_iter().filter(|state| seen.insert(state.fingerprint())));
    }
    seen.len()
}

#[test]
fn a_ring_of_the_least_size_drains_from_every_state() {
    for packet_events in [false, true] {
        for (transfers, segments, count) in [(2, 2, 2), (3, 1, 2), (1, 3, 2), (2, 1, 3), (4, 1, 1)] {
            for notch in [1, 3] {
                let mut config = config();
                (config.packet_events, config.registry_entries) = (packet_events, 4);
                config.transfers = 4;
                let ring = Ring::least(packet_events, notch);
                let states = search(config, ring, &packets(transfers, segments, count));
                assert!(states > 30, "{states}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(9), ..ProptestConfig::default() })]

    /// Many entries, transfers and early packets, small rings, and a host that looks now and then.
    #[test]
    fn many_of_everything_and_a_small_ring(
        packet_events in any::<bool>(),
        (transfers, segments, count) in (1..24_u32, 1..4_u32, 1..6_u16),
        (entries, escape) in (1..40_u32, 0..40_u16),
        (more, notch) in (0..30_u32, 1..12_u32),
        looks in 1..200_u64,
        expire in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut dice = seed;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (dice >> 33) % sides
        };
        let packets = packets(transfers, segments, count);
        let mut config = config();
        (config.packet_events, config.registry_entries, config.escape_slots) = (packet_events, entries, escape);
        (config.transfers, config.tombstones) = (32, 64);
        let mut ring = Ring::least(packet_events, notch);
        ring.part += more;
        let mut state = State::new(config, ring, &packets);
        for _ in 0..4 * packets.len() {
            let at = usize::try_from(roll(packets.len() as u64)).unwrap();
            // Also such as have arrived: copies.
            state.deliver(&packets, at);
            if roll(looks) == 0 {
                state.ring.look();
            }
            if expire && roll(20) == 0 {
                let outputs = state.rig.advance(Nanos::from_millis(1));
                state.take(&packets, &outputs);
            }
        }
        state.assert_drains(&packets);
    }
}

/// A host that never looks is told of what it has room for, and of nothing more.
#[test]
fn who_never_looks_makes_others_wait() {
    let packets = packets(10, 2, 2);
    let mut config = config();
    (config.registry_entries, config.transfers, config.tombstones) = (64, 64, 64);
    let mut state = State::new(config, Ring::new(40, 8), &packets);
    for _ in 0..100 {
        for at in 0..packets.len() {
            if state.pending[at] {
                state.deliver(&packets, at);
            }
        }
    }
    assert!(state.pending.contains(&true) && state.events >= 20, "{} events", state.events);
    let refused = state.rig.receiver.counters().registry_full;
    assert!(refused > 0);
    state.assert_drains(&packets);
}
