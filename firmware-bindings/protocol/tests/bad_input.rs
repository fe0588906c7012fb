//! Receiver behaviour for packets that no sender of this project sends, and both ends with tables of one entry.
//!
//! | packet | effect | answer | counter |
//! ---|---|---|---|
//! | for another node, or from the node id that means "any" | dropped | none | bad packet |
//! | of another packet size, without payload, or with more than a packet's | dropped | "bad packet" | bad packet |
//! | of a segment of 0 packets, or of more than the mask has bits | dropped | "bad packet" | bad packet |
//! | whose segment contradicts itself or its transfer, or exceeds the address space | dropped | "bad packet" | bad packet |
//! | of a registered segment, and contradicts its first packet | dropped | "bad packet" | bad packet |
//! | of a sender without an open window, with another key, to a closed or read-only window | dropped | "violation" | violation |
//! | whose segment reaches beyond the window | dropped | "violation" | violation |
//!
//! Each is reported to the host as a fault, except those that are not for this node. Frames with a wrong version, length or checksum do
//! not reach the receiver: `fpga_firmware::wire` refuses them, and the card counts them as malformed or damaged (its network tests cover
//! that). A transfer of no bytes sends nothing. A transfer to the own node must not overlap its source, because a retransmission reads it
//! again (`SendError::Overlap` of the driver). These, and requests to an endpoint that no card can execute, are in the whole-stack tests
//! of endpoints.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use crate::common;

use common::{BASE, KEY, RECEIVER, SENDER, Shape, TestBed, acks, config, dones, events, nacks};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, TransferId};
use fpga_firmware::wire::{Arrived, Common, DataHeader, Flags, Packet, StartFields, WireError, finish};
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_registers::CardAddr;

type Change = fn(&mut DataHeader, &mut Vec<u8>);

fn start(header: &mut DataHeader, change: impl FnOnce(&mut StartFields)) {
    change(header.start.as_mut().unwrap());
}

/// Delivers the first packet of a segment of three, changed, and checks the result against the table.
fn refused(name: &str, answer: Option<NackReason>, change: Change) {
    let mut bed = TestBed::new(config());
    let (mut header, mut payload) = Shape::single(0, 3).packet(0);
    change(&mut header, &mut payload);
    let outputs = bed.deliver(&(header, payload));
    assert_eq!(nacks(&outputs), Vec::from_iter(answer), "{name}");
    assert!(acks(&outputs).is_empty() && dones(&outputs) == 0, "{name}");
    assert_eq!(events(&outputs, EventKind::Fault).len(), usize::from(answer.is_some()), "{name}");
    assert!(bed.memory.writes.is_empty(), "{name}");
    let counters = *bed.receiver.counters();
    let violation = u64::from(answer == Some(NackReason::Violation));
    assert_eq!((counters.bad_packets, counters.violations), (1 - violation, violation), "{name}");
    // Nothing was registered, and no timer is set.
    assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.escape_occupancy()), (0, 0), "{name}");
    assert_eq!((bed.receiver.transfers_in_progress(), bed.receiver.poll_timeout()), (0, None), "{name}");
    // A valid packet to the same address is accepted afterwards.
    assert_eq!(acks(&bed.send(&Shape::single(1, 1), 0)).len(), 1, "{name}");
}

#[test]
fn receiver_packet_for_other_node_is_dropped_without_answer() {
    refused("another node", None, |header, _| header.common.destination = SENDER);
    refused("any node", None, |header, _| header.common.destination = NodeId::ANY);
    refused("from any node", None, |header, _| header.common.source = NodeId::ANY);
}

#[test]
fn receiver_contradictory_header_is_refused() {
    let cases: [(&str, Change); 20] = [
        ("no payload", |_, payload| payload.clear()),
        ("truncated", |_, payload| payload.truncate(63)),
        ("one byte too many", |_, payload| payload.push(0)),
        ("a page too many", |_, payload| payload.resize(4096 + 64, 0)),
        ("smaller packets", |header, _| header.packet_size_log2 = 5),
        ("larger packets", |header, _| header.packet_size_log2 = 7),
        ("absurd packets", |header, _| header.packet_size_log2 = u8::MAX),
        ("no packets", |header, _| start(header, |start| start.packets = 0)),
        ("one packet too many", |header, _| start(header, |start| start.packets = 4)),
        ("more than the mask", |header, _| {
            start(header, |start| (start.packets, start.segment_length) = (33, 33 * 64));
        }),
        ("as many as can be", |header, _| start(header, |start| start.packets = u16::MAX)),
        ("no bytes", |header, _| start(header, |start| start.segment_length = 0)),
        ("all bytes", |header, _| start(header, |start| start.segment_length = u32::MAX)),
        ("beyond its transfer", |header, _| start(header, |start| start.transfer_length = 100)),
        ("of an empty transfer", |header, _| start(header, |start| start.transfer_length = 0)),
        ("not where it begins", |header, _| header.address = CardAddr::new(BASE + 64)),
        ("not where its transfer begins", |header, _| {
            start(header, |start| start.transfer_base = CardAddr::new(BASE - 64))
        }),
        ("segment 1 of 1", |header, _| header.segment = 1),
        ("segment 0 of 0", |header, _| header.segment_count = 0),
        ("round the end of the address space", |header, _| {
            header.address = CardAddr::new(u64::MAX - 63);
            start(header, |start| {
                (start.base, start.transfer_base) =
                    (CardAddr::new(u64::MAX - 63), CardAddr::new(u64::MAX - 63))
            });
        }),
    ];
    for (name, change) in cases {
        refused(name, Some(NackReason::BadPacket), change);
    }
}

/// The first packet of a registered operation determines the values of all others, including its own copies.
#[test]
fn receiver_packet_contradicting_registration_is_refused() {
    let cases: [(&str, u16, Change); 14] = [
        ("other segments", 1, |header, _| header.segment_count = 2),
        ("between two packets", 1, |header, _| header.address = CardAddr::new(BASE + 63)),
        ("before the first", 1, |header, _| header.address = CardAddr::new(BASE - 64)),
        ("behind the last", 1, |header, _| header.address = CardAddr::new(BASE + 192)),
        ("at the end of the address space", 1, |header, _| header.address = CardAddr::new(u64::MAX - 62)),
        ("a byte too few", 1, |_, payload| payload.truncate(63)),
        ("a short packet's place", 1, |header, _| header.address = CardAddr::new(BASE + 128)),
        ("more than the remaining bytes", 2, |_, payload| payload.push(0)),
        ("less than the remaining bytes", 2, |_, payload| payload.truncate(16)),
        ("begins elsewhere", 0, |header, _| {
            start(header, |start| start.base = CardAddr::new(BASE + 64));
        }),
        ("another length", 0, |header, _| start(header, |start| start.segment_length -= 1)),
        ("another count", 0, |header, _| start(header, |start| start.packets = 2)),
        ("a longer transfer", 0, |header, _| start(header, |start| start.transfer_length += 1)),
        ("other segments, again", 0, |header, _| header.segment_count = 3),
    ];
    for (name, index, change) in cases {
        let mut bed = TestBed::new(config());
        let shape = Shape::single(0, 3);
        bed.send(&shape, 0);
        let (mut header, mut payload) = shape.packet(index);
        change(&mut header, &mut payload);
        let outputs = bed.deliver(&(header, payload));
        assert_eq!(nacks(&outputs), [NackReason::BadPacket], "{name}");
        assert!(acks(&outputs).is_empty(), "{name}");
        assert_eq!(events(&outputs, EventKind::Fault).len(), 1, "{name}");
        assert_eq!((bed.memory.writes.len(), bed.receiver.counters().bad_packets), (1, 1), "{name}");
        // The registered operation continues.
        let outputs: Vec<_> = [1, 2].into_iter().flat_map(|index| bed.send(&shape, index)).collect();
        assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (2, 1), "{name}");
    }
}

/// Every segment carries the length and start of its transfer: segments that disagree with the first one are refused.
#[test]
fn receiver_segment_contradicting_transfer_is_refused() {
    let first = Shape { segment_count: 3, length: 64, transfer_length: 130, ..Shape::single(0, 1) };
    let second = Shape { segment: 1, base: BASE + 64, ..first };
    let others = [
        ("more segments", Shape { segment_count: 4, transfer_length: 200, ..second }),
        ("a longer transfer", Shape { transfer_length: 131, ..second }),
        ("elsewhere", Shape { base: BASE + 128, transfer_base: BASE + 64, ..second }),
    ];
    for (name, other) in others {
        let mut bed = TestBed::new(config());
        // The segment is valid in a transfer of its own.
        assert_eq!(acks(&bed.send(&Shape { transfer: 1, ..other }, 0)).len(), 1, "{name}");
        bed.send(&first, 0);
        assert_eq!(nacks(&bed.send(&other, 0)), [NackReason::BadPacket], "{name}");
        assert_eq!((bed.memory.writes.len(), bed.receiver.counters().bad_packets), (2, 1), "{name}");
        assert_eq!(acks(&bed.send(&second, 0)).len(), 1, "{name}");
    }
}

#[test]
fn receiver_write_outside_windows_is_refused() {
    let cases: [(&str, Change); 8] = [
        // Not the first packet of its segment: it would have to wait for that one, but is not even kept.
        ("early, from an unknown node", |header, _| {
            (header.start, header.common.source) = (None, NodeId::new(77));
        }),
        ("early, behind the window", |header, _| {
            (header.start, header.address) = (None, CardAddr::new(0x11_0000 - 63));
        }),
        ("early, round the end of the address space", |header, _| {
            (header.start, header.address) = (None, CardAddr::new(u64::MAX - 62));
        }),
        ("unknown node", |header, _| header.common.source = NodeId::new(77)),
        ("this node itself, which was not let in", |header, _| header.common.source = RECEIVER),
        ("another key", |header, _| header.key = !KEY),
        ("below the window", |header, _| {
            header.address = CardAddr::new(0x100);
            start(header, |start| {
                (start.base, start.transfer_base) = (CardAddr::new(0x100), CardAddr::new(0x100))
            });
        }),
        ("across its end", |header, _| {
            let base = CardAddr::new(0x11_0000 - 64);
            header.address = base;
            start(header, |start| (start.base, start.transfer_base) = (base, base));
        }),
    ];
    for (name, change) in cases {
        refused(name, Some(NackReason::Violation), change);
    }
}

/// Memory that refuses writes from address `at` on.
struct FailingMemory {
    at: u64,
    writes: usize,
}

impl ReceiveMemory for FailingMemory {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        if at.get() >= self.at {
            return Err(MemoryFault { address: at, length: bytes.len() as u64 });
        }
        self.writes += 1;
        Ok(())
    }
}

/// A window over addresses without memory: writes are refused as a violation, and refused packets do not count as received.
#[test]
fn receiver_memory_fault_neither_marks_nor_acknowledges() {
    let shape = Shape::single(0, 3);
    for good in 0..3u16 {
        let mut bed = TestBed::new(config());
        let mut memory = FailingMemory { at: BASE + u64::from(good) * 64, writes: 0 };
        for index in 0..3 {
            let (header, payload) = shape.packet(index);
            bed.receiver.handle_packet(bed.now, &header, &payload, &mut memory);
            let outputs = bed.drain();
            let refused = index >= good;
            // Without its first packet the operation does not begin, and the other packets wait.
            let waits = good == 0 && index > 0;
            assert_eq!(acks(&outputs).len(), usize::from(!refused));
            assert_eq!(nacks(&outputs).len(), usize::from(refused && !waits));
            assert_eq!(events(&outputs, EventKind::Fault).len(), usize::from(refused && !waits));
            assert!(nacks(&outputs).iter().all(|reason| *reason == NackReason::Violation));
        }
        let refused = if good == 0 { 1 } else { 3 - u64::from(good) };
        assert_eq!((bed.receiver.counters().violations, memory.writes), (refused, usize::from(good)));
        assert_eq!(bed.receiver.registry_occupancy(), u32::from(good > 0));
        // With memory present, a refused packet is not treated as a duplicate.
        let outputs: Vec<_> = (0..3).flat_map(|index| bed.send(&shape, index)).collect();
        assert_eq!(bed.memory.writes.len(), 3 - usize::from(good));
        assert_eq!(events(&outputs, EventKind::Notice).len(), 1);
    }
}

#[test]
fn receiver_closed_or_read_only_window_refuses_start_and_early_packets() {
    let mut bed = TestBed::new(config());
    let window = *bed.receiver.access().get(0).unwrap();
    let read_only = MemoryWindow { permissions: Permissions::READ, ..window };
    let shape = Shape::single(0, 3);
    for (violations, window) in [(2, None), (4, Some(read_only))] {
        match window {
            None => bed.receiver.access_mut().remove(0).unwrap(),
            Some(window) => bed.receiver.access_mut().install(0, window).unwrap(),
        }
        for index in [0, 1] {
            assert_eq!(nacks(&bed.send(&shape, index)), [NackReason::Violation]);
        }
        assert_eq!((bed.receiver.counters().violations, bed.receiver.escape_occupancy()), (violations, 0));
    }
    bed.receiver.access_mut().install(0, window).unwrap();
    for index in 0..3 {
        assert_eq!(acks(&bed.send(&shape, index)).len(), 1);
    }
    assert_eq!(bed.receiver.counters().notices, 1);
}

/// ARRIVED for a transfer that never came, from an unknown sender, or for another node.
#[test]
fn receiver_arrived_for_unknown_transfer_changes_nothing() {
    let mut bed = TestBed::new(config());
    let common = Shape::single(0, 2).packet(0).0.common;
    let arrived = |common, transfer| Arrived {
        common,
        transfer: TransferId::new(transfer),
        address: CardAddr::new(BASE),
        length: 81,
        key: KEY,
    };
    bed.send(&Shape::single(0, 2), 0);
    let strangers = [
        Common { flags: Flags::NONE, ..common },
        Common { source: NodeId::new(77), flags: Flags::NONE, ..common },
        Common { incarnation: Incarnation::new(77), flags: Flags::NONE, ..common },
        Common { destination: NodeId::new(77), flags: Flags::NONE, ..common },
    ];
    for common in strangers {
        for transfer in [0, 1, u32::MAX] {
            bed.receiver.handle_arrived(bed.now, &arrived(common, transfer));
            assert!(bed.drain().is_empty(), "{common:?}");
        }
    }
    let counters = bed.receiver.counters();
    assert_eq!((counters.duplicates, counters.bad_packets, counters.notices), (9, 3, 0));
    assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.transfers_in_progress()), (1, 1));
    assert_eq!(acks(&bed.send(&Shape::single(0, 2), 1)).len(), 1, "transfers in progress continue");
    assert_eq!(bed.receiver.counters().notices, 1);
}

#[test]
fn receiver_frame_of_other_version_or_length_is_refused_by_parser() {
    let (header, payload) = Shape::single(0, 3).packet(0);
    let mut frame = [0; 256];
    let length = header.encode(&payload, &mut frame).unwrap();
    assert!(matches!(Packet::parse(&frame[..length]), Ok(Packet::Data(_))));
    for version in (0..=u8::MAX).filter(|version| *version != frame[0]) {
        let mut other = frame;
        other[0] = version;
        finish(&mut other[..length], length - 4).unwrap();
        let error = Packet::parse(&other[..length]).unwrap_err();
        assert!(matches!(error, WireError::Version { .. }), "{error}");
        assert!(!error.is_damage(), "not a damaged frame: a node of another version");
    }
    // Shorter or longer, with a matching checksum.
    for wrong in (0..length).chain(length + 1..256) {
        let mut other = frame;
        if let Some(body) = wrong.checked_sub(4) {
            finish(&mut other[..wrong], body).unwrap();
        }
        assert!(Packet::parse(&other[..wrong]).is_err(), "{wrong} bytes of {length}");
    }
}

#[test]
fn receiver_single_entry_tables_take_transfers_in_turn() {
    let mut one = config();
    (one.registry_entries, one.transfers, one.sources, one.windows) = (1, 1, 1, 1);
    (one.escape_slots, one.tombstones, one.mask_bits) = (0, 2, 1);
    let mut bed = TestBed::new(one);
    for transfer in 0..50 {
        let shape = Shape { oldest_live: transfer, ..Shape::single(transfer, 1) };
        assert_eq!(acks(&bed.send(&shape, 0)).len(), 1);
        assert_eq!(acks(&bed.send(&shape, 0)).len(), 1, "a copy");
    }
    assert_eq!((bed.receiver.counters().notices, bed.memory.writes.len()), (50, 50));
    // An earlier incarnation of this sender never gets its record, and a later one gets it at once.
    let mut other = Shape::single(0, 1).packet(0);
    for (incarnation, refused) in
        [(common::INCARNATION.get() - 1, true), (common::INCARNATION.get() + 1, false)]
    {
        other.0.common.incarnation = Incarnation::new(incarnation);
        let outputs = bed.deliver(&other);
        assert_eq!(nacks(&outputs), [NackReason::Superseded][..usize::from(refused)]);
        assert_eq!(acks(&outputs).len(), usize::from(!refused));
    }

    // Two packets: the second has no slot to wait in, and a segment with more packets than mask bits is refused.
    let mut two = config();
    (two.registry_entries, two.transfers, two.escape_slots, two.mask_bits) = (1, 1, 0, 2);
    let mut bed = TestBed::new(two);
    assert_eq!(nacks(&bed.send(&Shape::single(0, 2), 1)), [NackReason::EscapeFull]);
    assert_eq!(nacks(&bed.send(&Shape::single(0, 3), 0)), [NackReason::BadPacket]);
    assert_eq!(acks(&bed.send(&Shape::single(0, 2), 0)).len(), 1);
    assert_eq!(nacks(&bed.send(&Shape::single(1, 1), 0)), [NackReason::Busy]);
    assert_eq!(acks(&bed.send(&Shape::single(0, 2), 1)).len(), 1);
    assert_eq!(acks(&bed.send(&Shape::single(1, 1), 0)).len(), 1);
}
