//! Packets with arbitrary field values, as a defective or hostile sender could send them with a good checksum.
//!
//! For every packet, the receiver neither panics nor writes outside the open window. A packet that is not written is counted by its cause.
//! After its senders have sent nothing for long enough, no entry, slot, record or timer remains. Concurrent operations are not affected,
//! except by values that only the sender can vouch for: its progress, and the position of its bytes.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use crate::common;

use common::{SENDER, Shape, TestBed, acks, config, events, nacks, pattern};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{DataHeader, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::Output;
use fpga_registers::CardAddr;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Address range of the open window.
const OPEN: core::ops::Range<u64> = 0x1_0000..0x11_0000;

type Packet = (DataHeader, Vec<u8>);

/// Fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Source,
    Destination,
    Incarnation,
    Flags,
    Transfer,
    OldestLive,
    Segment,
    SegmentCount,
    Address,
    Key,
    Op,
    Tries,
    PacketSize,
    StartBase,
    StartLength,
    StartPackets,
    StartTransferBase,
    StartTransferLength,
    NoStart,
    Payload,
}

const FIELDS: [Field; 20] = [
    Field::Source,
    Field::Destination,
    Field::Incarnation,
    Field::Flags,
    Field::Transfer,
    Field::OldestLive,
    Field::Segment,
    Field::SegmentCount,
    Field::Address,
    Field::Key,
    Field::Op,
    Field::Tries,
    Field::PacketSize,
    Field::StartBase,
    Field::StartLength,
    Field::StartPackets,
    Field::StartTransferBase,
    Field::StartTransferLength,
    Field::NoStart,
    Field::Payload,
];

/// Wrong value of a field: close to the right one, or this value.
#[derive(Clone, Copy, Debug)]
enum Value {
    Near(i64),
    Exactly(u64),
}

const VALUES: [Value; 16] = [
    Value::Near(-65),
    Value::Near(-64),
    Value::Near(-1),
    Value::Near(1),
    Value::Near(64),
    Value::Near(1 << 16),
    Value::Exactly(0),
    Value::Exactly(1),
    Value::Exactly(2),
    Value::Exactly(1 << 15),
    Value::Exactly(1 << 31),
    Value::Exactly(u16::MAX as u64),
    Value::Exactly(u32::MAX as u64),
    Value::Exactly(u64::MAX),
    Value::Exactly(u64::MAX - 63),
    Value::Exactly(0x11_0000 - 1),
];

impl Value {
    fn of(self, right: u64) -> u64 {
        match self {
            Self::Near(by) => right.wrapping_add_signed(by),
            Self::Exactly(value) => value,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a field keeps the bits that fit")]
fn change((header, payload): &mut Packet, field: Field, value: Value) {
    let of32 = |right: u32| value.of(right.into()) as u32;
    let address = |right: CardAddr| CardAddr::new(value.of(right.get()));
    match field {
        Field::Source => header.common.source = NodeId::new(of32(header.common.source.get())),
        Field::Destination => header.common.destination = NodeId::new(of32(header.common.destination.get())),
        Field::Incarnation => {
            header.common.incarnation = Incarnation::new(of32(header.common.incarnation.get()));
        }
        Field::Flags => {
            header.common.flags = Flags::from_bits(value.of(header.common.flags.bits().into()) as u16)
        }
        Field::Transfer => header.transfer = TransferId::new(of32(header.transfer.get())),
        Field::OldestLive => header.oldest_live = TransferId::new(of32(header.oldest_live.get())),
        Field::Segment => header.segment = of32(header.segment),
        Field::SegmentCount => header.segment_count = of32(header.segment_count),
        Field::Address => header.address = address(header.address),
        Field::Key => header.key = value.of(header.key),
        Field::Op => header.op = OpNumber::new(of32(header.op.get())),
        Field::Tries => header.tries = value.of(header.tries.into()) as u8,
        Field::PacketSize => header.packet_size_log2 = value.of(header.packet_size_log2.into()) as u8,
        Field::NoStart => header.start = None,
        Field::Payload => payload.resize((value.of(payload.len() as u64) % 4500) as usize, 0xEE),
        _ => {
            let Some(start) = &mut header.start else { return };
            match field {
                Field::StartBase => start.base = address(start.base),
                Field::StartLength => start.segment_length = of32(start.segment_length),
                Field::StartPackets => start.packets = value.of(start.packets.into()) as u16,
                Field::StartTransferBase => start.transfer_base = address(start.transfer_base),
                _ => start.transfer_length = value.of(start.transfer_length),
            }
        }
    }
}

/// Number of packets that were not written, over all causes.
fn causes(bed: &TestBed) -> u64 {
    let counters = bed.receiver.counters();
    counters.duplicates
        + counters.escape_hits
        + counters.escape_dropped
        + counters.registry_full
        + counters.bad_packets
        + counters.violations
        + counters.superseded
        + counters.tombstone_hits
}

/// Counters of answers and events.
fn counts(bed: &TestBed) -> [u64; 7] {
    let counters = bed.receiver.counters();
    [
        counters.acks,
        counters.nacks,
        counters.registrations,
        counters.completions,
        counters.notices,
        counters.expired,
        counters.bad_packets + counters.violations,
    ]
}

/// Packets that are not for this node are counted, but neither answered nor reported.
fn silent((header, _): &Packet) -> u64 {
    u64::from(header.common.destination != common::RECEIVER || header.common.source == NodeId::ANY)
}

/// Delivers a packet and checks its outputs against the invariants of all packets.
fn deliver(bed: &mut TestBed, packet: &Packet) -> Vec<Output> {
    let before = (causes(bed), bed.memory.writes.len());
    let counted = counts(bed);
    let outputs = bed.deliver(packet);
    // Outputs match the counters.
    let told = |kind| events(&outputs, kind).len() as u64;
    let said = [
        acks(&outputs).len() as u64,
        nacks(&outputs).len() as u64,
        told(EventKind::Registered),
        told(EventKind::Completed),
        told(EventKind::Notice),
        told(EventKind::Expired),
        told(EventKind::Fault) + silent(packet),
    ];
    let after = counts(bed);
    assert_eq!(core::array::from_fn(|n| after[n] - counted[n]), said, "{:?}", packet.0);
    let written = &bed.memory.writes[before.1..];
    assert!(causes(bed) > before.0 || !written.is_empty(), "was lost without a report: {:?}", packet.0);
    for (at, bytes) in written {
        let end = at.checked_add(bytes.len() as u64).unwrap();
        assert!(OPEN.contains(at) && end <= OPEN.end, "{} bytes at {at:#x}", bytes.len());
    }
    // Only sent packets are answered: at most one answer to the packet, and one to each escaped packet that was released.
    let released = events(&outputs, EventKind::EscapeReleased).len();
    assert!(acks(&outputs).len() + nacks(&outputs).len() <= 1 + released);
    outputs
}

/// Checks that all state is released when no more packets arrive. Returns the number of notices.
fn assert_forgets(bed: &mut TestBed) -> usize {
    let mut told = 0;
    for _ in 0..64 {
        let Some(at) = bed.receiver.poll_timeout() else { break };
        let outputs = bed.advance(at.saturating_sub(bed.now).max(Nanos::new(1)));
        told += events(&outputs, EventKind::Notice).len();
    }
    let receiver = &bed.receiver;
    assert_eq!((receiver.registry_occupancy(), receiver.escape_occupancy()), (0, 0));
    let records = (receiver.transfers_in_progress(), receiver.tombstones(), receiver.poll_timeout());
    assert_eq!(records, (0, 0, None));
    told
}

fn notices(outputs: &[Output], transfer: u32) -> usize {
    let of_it = |event: &&fpga_firmware::event::Event| {
        (event.node, event.incarnation, event.transfer.get()) == (SENDER, common::INCARNATION, transfer)
    };
    events(outputs, EventKind::Notice).iter().filter(of_it).count()
}

/// Each field of each packet of an operation, with each value, at each stage: before any packet of the operation, after its first packet,
/// after early packets only, and after its completion.
#[test]
fn receiver_packet_with_one_wrong_field_keeps_invariants() {
    let shape = Shape::single(7, 3);
    let mut cases = 0;
    for before in [&[][..], &[0], &[2, 1], &[0, 1, 2]] {
        for field in FIELDS {
            for value in VALUES {
                for index in 0..3 {
                    let mut bed = TestBed::new(config());
                    let mut told = 0;
                    for early in before {
                        told += notices(&deliver(&mut bed, &shape.packet(*early)), 7);
                    }
                    let mut wrong = shape.packet(index);
                    change(&mut wrong, field, value);
                    told += notices(&deliver(&mut bed, &wrong), 7);
                    // The sender continues normally: it retransmits unacknowledged packets until a packet of another incarnation has
                    // expired.
                    let mut missing = vec![0, 1, 2];
                    if bed.receiver.superseding(SENDER, common::INCARNATION).is_some() {
                        // The start of a later incarnation: this one has ended.
                        assert_eq!((field, index), (Field::Incarnation, 0));
                        for index in missing {
                            assert_eq!(
                                nacks(&deliver(&mut bed, &shape.packet(index))),
                                [NackReason::Superseded]
                            );
                        }
                        assert_forgets(&mut bed);
                        cases += 1;
                        continue;
                    }
                    for _ in 0..4 {
                        missing.retain(|index| {
                            let outputs = deliver(&mut bed, &shape.packet(*index));
                            told += notices(&outputs, 7);
                            acks(&outputs).is_empty()
                        });
                        let outputs = bed.advance(Nanos::from_millis(10));
                        told += notices(&outputs, 7);
                    }
                    let what = format!("{field:?} {value:?} of packet {index} after {before:?}");
                    assert!(missing.is_empty(), "{what}: {missing:?}");
                    let its_own_word = matches!(field, Field::OldestLive | Field::Address);
                    if !its_own_word {
                        let mut memory = vec![None; shape.length as usize];
                        for (at, bytes) in &bed.memory.writes {
                            for (place, byte) in (*at..).zip(bytes) {
                                if let Some(cell) = place
                                    .checked_sub(shape.base)
                                    .and_then(|n| memory.get_mut(usize::try_from(n).unwrap()))
                                {
                                    *cell = Some(*byte);
                                }
                            }
                        }
                        let right = (shape.base..).zip(&memory).all(|(at, byte)| *byte == Some(pattern(at)));
                        assert!(right, "{what}");
                    }
                    // The wrong flags may make the notice wait for the sender's ARRIVED; then the timeout ends the wait.
                    told += if field == Field::Flags { assert_forgets(&mut bed) } else { 0 };
                    // The wrong flags may also request no notice.
                    let may_be_untold = field == Field::Flags;
                    assert!(
                        its_own_word || told == 1 || may_be_untold && told == 0,
                        "{what}: notified {told} times"
                    );
                    assert_forgets(&mut bed);
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 4 * 20 * 16 * 3);
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-130i64..130).prop_map(Value::Near),
        (0..VALUES.len()).prop_map(|at| VALUES[at]),
        any::<u64>().prop_map(Value::Exactly),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() })]

    /// Packets of a few overlapping operations, each with up to three wrong fields, in any order, at any time.
    #[test]
    fn receiver_random_fields_at_any_time_keep_invariants(
        packets in prop::collection::vec(
            (
                0u32..4,
                0u16..4,
                prop_oneof![2 => Just(0usize), 3 => 1usize..4],
                prop::array::uniform3(((0..FIELDS.len()).prop_map(|at| FIELDS[at]), any_value())),
                prop_oneof![4 => Just(0u64), 1 => 0u64..3_000_000_000],
            ),
            1..60,
        ),
    ) {
        let mut bed = TestBed::new(config());
        for (transfer, index, wrong, changes, pause) in packets {
            let shape = Shape::single(transfer, 4);
            let mut packet = shape.packet(index);
            for (field, value) in &changes[..wrong] {
                change(&mut packet, *field, *value);
            }
            deliver(&mut bed, &packet);
            if pause > 0 {
                bed.advance(Nanos::new(pause));
            }
        }
        assert_forgets(&mut bed);
        // A later transfer of the newest incarnation succeeds.
        let newest = bed.receiver.superseding(SENDER, common::INCARNATION).unwrap_or(common::INCARNATION);
        let shape = Shape::single(0, 4);
        let mut send = |index| {
            let mut packet = shape.packet(index);
            packet.0.common.incarnation = newest;
            deliver(&mut bed, &packet)
        };
        let outputs: Vec<_> = [3, 2, 1, 0].into_iter().flat_map(&mut send).collect();
        prop_assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (4, 1));
    }
}
