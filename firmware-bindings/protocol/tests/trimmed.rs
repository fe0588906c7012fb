//! Packets whose payload a switch has cut off: answers of the receiver, and retransmissions of the sender.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use crate::common::{
    INCARNATION, RECEIVER, SENDER, Shape, TestBed, acks, config, dones, events, nacks, pattern,
};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{AnswerNotes, DataHeader, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::Output;
use fpga_protocol::sender::{Answer, Command, Notify, Sender, SenderConfig, Transmit};
use fpga_registers::CardAddr;

const TRIMMED: [NackReason; 1] = [NackReason::Trimmed];

fn trim(bed: &mut TestBed, header: DataHeader) -> Vec<Output> {
    let mut header = header;
    header.common.flags = header.common.flags.with(Flags::TRIMMED);
    bed.receiver.handle_trimmed(bed.now, &header, &mut bed.memory);
    bed.drain()
}

fn registered(outputs: &[Output]) -> Vec<bool> {
    let events = events(outputs, EventKind::Registered);
    events.iter().map(|event| event.registration().unwrap().flags.contains(Flags::TRIMMED)).collect()
}

/// Checks that all bytes of a transfer were written once.
fn assert_whole(bed: &TestBed, shape: &Shape) {
    let mut bytes: Vec<_> =
        bed.memory.writes.iter().flat_map(|(at, part)| (*at..).zip(part.iter().copied())).collect();
    bytes.sort_unstable();
    let end = shape.base + u64::from(shape.length);
    assert!(bytes.into_iter().eq((shape.base..end).map(|at| (at, pattern(at)))));
}

#[test]
fn receiver_registers_trimmed_start_so_that_later_packets_need_no_escape_slot() {
    for packets in [1, 2, 3, 32] {
        let mut bed = TestBed::new(config());
        let shape = Shape::single(1, packets);
        let outputs = trim(&mut bed, shape.packet(0).0);
        assert_eq!(
            (nacks(&outputs), acks(&outputs).len(), registered(&outputs)),
            (TRIMMED.into(), 0, vec![true])
        );
        for packet in (1..packets).rev() {
            let outputs = bed.send(&shape, packet);
            assert_eq!((acks(&outputs).len(), nacks(&outputs).len(), dones(&outputs)), (1, 0, 0));
        }
        assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.counters().escape_hits), (1, 0));
        let outputs = bed.send(&shape, 0);
        assert_eq!((acks(&outputs).len(), dones(&outputs), registered(&outputs)), (1, 1, vec![]));
        assert_eq!(events(&outputs, EventKind::Notice).len(), 1);
        assert_whole(&bed, &shape);
        let counters = bed.receiver.counters();
        assert_eq!(
            (counters.trimmed, counters.nacks, counters.registrations, counters.completions),
            (1, 1, 1, 1)
        );
        assert_eq!(bed.receiver.registry_occupancy(), 0);
    }
}

#[test]
fn receiver_trimmed_start_releases_escaped_packets() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(1, 3);
    assert!(acks(&bed.send(&shape, 2)).is_empty());
    assert_eq!(bed.receiver.escape_occupancy(), 1);
    let outputs = trim(&mut bed, shape.packet(0).0);
    assert_eq!((nacks(&outputs), acks(&outputs)), (TRIMMED.into(), vec![shape.packet(2).0.op]));
    assert_eq!(bed.receiver.escape_occupancy(), 0);
    bed.send(&shape, 1);
    assert_eq!(dones(&bed.send(&shape, 0)), 1);
    assert_whole(&bed, &shape);
}

#[test]
fn receiver_refuses_trimmed_data_without_state() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(1, 3);
    // Without entry: nothing is stored.
    let outputs = trim(&mut bed, shape.packet(1).0);
    assert_eq!((nacks(&outputs), outputs.len()), (TRIMMED.into(), 1));
    assert_eq!((bed.receiver.escape_occupancy(), bed.receiver.registry_occupancy()), (0, 0));
    // Of an entry, missing and present: the mask does not change.
    bed.send(&shape, 0);
    bed.send(&shape, 1);
    for packet in [2, 1, 0] {
        let outputs = trim(&mut bed, shape.packet(packet).0);
        assert_eq!((nacks(&outputs), outputs.len()), (TRIMMED.into(), 1), "{packet}");
    }
    assert_eq!(dones(&bed.send(&shape, 2)), 1);
    assert_whole(&bed, &shape);
    let counters = bed.receiver.counters();
    assert_eq!((counters.trimmed, counters.duplicates, counters.escape_hits), (4, 0, 0));
}

/// A trimmed packet shows that its sender is active.
#[test]
fn receiver_trimmed_packet_restarts_registry_timeout() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(1, 2);
    trim(&mut bed, shape.packet(0).0);
    let part = Nanos::new(config().registry_timeout.get() * 3 / 4);
    for _ in 0..4 {
        assert!(events(&bed.advance(part), EventKind::Expired).is_empty());
        assert_eq!(nacks(&trim(&mut bed, shape.packet(1).0)), TRIMMED);
    }
    let outputs = bed.advance(part.saturating_add(part));
    assert_eq!(events(&outputs, EventKind::Expired).len(), 1);
    assert!(bed.memory.writes.is_empty());
}

#[test]
fn receiver_acknowledges_trimmed_packet_of_completed_segment() {
    // Of a completed transfer (tombstone), and of a completed segment of a transfer in progress.
    let whole = Shape::single(1, 2);
    let first = Shape { segment_count: 2, length: 128, transfer_length: 200, ..Shape::single(1, 2) };
    for shape in [whole, first] {
        let mut bed = TestBed::new(config());
        bed.send(&shape, 0);
        bed.send(&shape, 1);
        let writes = bed.memory.writes.len();
        for packet in [0, 1] {
            let outputs = trim(&mut bed, shape.packet(packet).0);
            assert_eq!((acks(&outputs).len(), outputs.len()), (1, 1));
        }
        let counters = bed.receiver.counters();
        assert_eq!((counters.tombstone_hits, counters.trimmed, counters.registrations), (2, 2, 1));
        assert_eq!(bed.memory.writes.len(), writes);
    }
}

#[test]
fn receiver_invalid_trimmed_packets_register_nothing() {
    let start = Shape::single(1, 2).packet(0).0;
    type Change = fn(&mut DataHeader);
    let changes: [(Change, &[NackReason]); 7] = [
        (|h| h.common.destination = NodeId::new(9), &[]),
        (|h| h.common.source = NodeId::ANY, &[]),
        (|h| h.packet_size_log2 = 7, &[NackReason::BadPacket]),
        (|h| h.start.as_mut().unwrap().packets = 3, &[NackReason::BadPacket]),
        (|h| h.address = CardAddr::new(h.address.get() + 64), &[NackReason::BadPacket]),
        (|h| h.key ^= 1, &[NackReason::Violation]),
        (|h| h.start = None, &TRIMMED),
    ];
    for (n, (change, reasons)) in changes.into_iter().enumerate() {
        let mut bed = TestBed::new(config());
        let mut header = start;
        change(&mut header);
        let outputs = trim(&mut bed, header);
        assert_eq!(nacks(&outputs), reasons, "change {n}");
        assert_eq!((bed.receiver.registry_occupancy(), acks(&outputs).len()), (0, 0), "change {n}");
        assert_eq!(bed.receiver.counters().trimmed, 1);
    }
    // Without the flag, an empty payload is a contradiction.
    let mut bed = TestBed::new(config());
    assert_eq!(nacks(&bed.deliver(&(start, Vec::new()))), [NackReason::BadPacket]);
    // Without free entry.
    for transfer in [1, 2] {
        bed.send(&Shape::single(transfer, 2), 0);
    }
    assert_eq!(nacks(&trim(&mut bed, Shape::single(3, 2).packet(0).0)), [NackReason::Busy]);
    // Of an earlier incarnation than a known one.
    let mut late = start;
    late.common.incarnation = Incarnation::new(INCARNATION.get() - 1);
    assert_eq!(nacks(&trim(&mut bed, late)), [NackReason::Superseded]);
}

/// A receiver that has lost its state refuses the packet as trimmed, too. Its next answer to the whole packet decides.
#[test]
fn receiver_after_restart_registers_trimmed_start_again() {
    let shape = Shape::single(1, 3);
    let mut bed = TestBed::new(config());
    bed.send(&shape, 0);
    bed = TestBed::new(config());
    assert_eq!(nacks(&trim(&mut bed, shape.packet(1).0)), TRIMMED);
    assert_eq!(registered(&trim(&mut bed, shape.packet(0).0)), [true]);
    for packet in [1, 2, 0] {
        bed.send(&shape, packet);
    }
    assert_whole(&bed, &shape);
}

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn sender(paths: u16, length: u64) -> Sender {
    let mut config = SenderConfig::default();
    config.paths = paths;
    let mut sender = Sender::new(config, INCARNATION).unwrap();
    let command = Command {
        source: CardAddr::new(0x1000),
        node: RECEIVER,
        destination: CardAddr::new(0x8000),
        length,
        key: 5,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    };
    sender.submit(at(0), command).unwrap();
    sender
}

fn answer(transmit: &Transmit, packet: u16, peer: u32) -> Answer {
    Answer {
        node: RECEIVER,
        incarnation: INCARNATION,
        op: transmit.ops.as_slice()[usize::from(packet)],
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries: transmit.tries,
        peer_incarnation: Incarnation::new(peer),
        notes: AnswerNotes { path: transmit.ops.path(packet), ..AnswerNotes::default() },
    }
}

#[test]
fn sender_repeats_trimmed_packet_at_once_on_another_path() {
    let mut sender = sender(8, 4 * 512);
    let first = sender.poll_transmit(at(0)).unwrap();
    assert_eq!(first.ops.len(), 4);
    for packet in [0, 2] {
        sender.handle_nack(at(10), answer(&first, packet, 7), NackReason::Trimmed);
        let again = sender.poll_transmit(at(10)).unwrap();
        assert_eq!((again.first_packet, again.ops.len(), again.tries), (packet, 1, 2));
        assert_eq!(
            (again.ops.as_slice()[0], again.path),
            (first.ops.as_slice()[usize::from(packet)], again.ops.path(0))
        );
        assert_ne!(again.ops.path(0), first.ops.path(packet));
        // The answer to the first try, late or doubled, changes nothing.
        sender.handle_nack(at(11), answer(&first, packet, 7), NackReason::Trimmed);
        assert_eq!(sender.poll_transmit(at(11)), None);
        sender.handle_ack(at(20), answer(&again, 0, 7));
    }
    for packet in [1, 3] {
        sender.handle_ack(at(20), answer(&first, packet, 7));
    }
    assert_eq!(sender.poll_completion().unwrap().result, Ok(()));
    let counters = sender.counters();
    assert_eq!((counters.trimmed, counters.retransmits, counters.busy, counters.timeouts), (2, 2, 0, 0));
}

#[test]
fn sender_ignores_trimmed_answer_of_other_node_or_transfer() {
    let mut sender = sender(1, 100);
    let first = sender.poll_transmit(at(0)).unwrap();
    let right = answer(&first, 0, 7);
    for wrong in [
        Answer { node: SENDER, ..right },
        Answer { transfer: right.transfer.next(), ..right },
        Answer { segment: 1, ..right },
        Answer { incarnation: Incarnation::new(1), ..right },
    ] {
        sender.handle_nack(at(1), wrong, NackReason::Trimmed);
        assert_eq!(sender.poll_transmit(at(1)), None);
    }
    assert_eq!((sender.counters().trimmed, sender.counters().stale), (0, 4));
}

/// The receiver may have lost packets that it had acknowledged.
#[test]
fn sender_trimmed_answer_of_restarted_receiver_ends_transfer() {
    let mut sender = sender(1, 3 * 512);
    let first = sender.poll_transmit(at(0)).unwrap();
    sender.handle_ack(at(5), answer(&first, 0, 7));
    sender.handle_nack(at(6), answer(&first, 1, 8), NackReason::Trimmed);
    assert_eq!(sender.poll_transmit(at(6)), None);
    assert!(sender.poll_completion().unwrap().result.is_err());
    assert_eq!((sender.counters().trimmed, sender.counters().failed), (0, 1));
}

/// After a trimmed first packet its segment is registered: the others have deadlines of their own.
#[test]
fn sender_trimmed_start_does_not_defer_others() {
    let mut sender = sender(1, 2 * 512);
    let first = sender.poll_transmit(at(0)).unwrap();
    sender.handle_nack(at(10), answer(&first, 0, 7), NackReason::Trimmed);
    let again = sender.poll_transmit(at(10)).unwrap();
    assert_eq!(again.first_packet, 0);
    // Two of two: the congestion window is one packet now.
    sender.handle_nack(at(12), answer(&first, 1, 7), NackReason::Trimmed);
    assert_eq!(sender.poll_transmit(at(12)), None);
    sender.handle_ack(at(20), answer(&again, 0, 7));
    assert_eq!(sender.poll_transmit(at(20)).unwrap().first_packet, 1);
    let counters = sender.counters();
    assert_eq!((counters.deferred, counters.timeouts, counters.retransmits), (0, 0, 2));
}

#[test]
fn sender_window_names_path_of_each_packet() {
    let mut sprayed = sender(16, 8 * 512);
    let transmit = sprayed.poll_transmit(at(0)).unwrap();
    assert!(transmit.ops.differ_in_path());
    let paths = transmit.ops.paths();
    assert_eq!((paths.len(), transmit.path), (8, paths[0]));
    let distinct: std::collections::BTreeSet<_> = paths.iter().collect();
    assert_eq!(distinct.len(), 8);
    let plain = sender(1, 8 * 512).poll_transmit(at(0)).unwrap();
    assert_eq!((plain.ops.paths(), plain.ops.differ_in_path()), (&[0; 8][..], false));
}
