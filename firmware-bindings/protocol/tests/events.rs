//! Events of a receiver, field by field, and packets that it drops because its outputs were not polled.

use crate::common;

use common::{BASE, INCARNATION, KEY, SENDER, Shape, TestBed, acks, config, events};
use fpga_firmware::event::{Event, EventKind, Registration};
use fpga_firmware::generated::{Flags, Scheme};
use fpga_firmware::ids::{OpNumber, TransferId};
use fpga_firmware::wire::{Arrived, Common, Control};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Output, Receiver};
use fpga_registers::CardAddr;

/// Common fields of all events about a segment of the transfer.
fn about(kind: EventKind, time: u64, transfer: u32) -> Event {
    Event {
        node: SENDER,
        incarnation: INCARNATION,
        transfer: TransferId::new(transfer),
        time,
        ..Event::new(kind)
    }
}

#[test]
fn events_of_segment_name_time_slot_packet_and_operation() {
    let mut bed = TestBed::new(config());
    // Another operation has entry 0 and slot 0 of the escape buffer.
    bed.send(&Shape::single(1, 2), 0);
    bed.send(&Shape { transfer: 2, ..Shape::single(1, 3) }, 1);
    let shape = Shape { segment: 1, segment_count: 2, transfer_base: BASE - 64, ..Shape::single(3, 2) };
    let shape = Shape { transfer_length: 64 + u64::from(shape.length), ..shape };
    bed.now = Nanos::new(5000);
    let (header, _) = shape.packet(1);
    let packet = Event {
        index: 1,
        segment: 1,
        op: header.op,
        address: CardAddr::new(BASE + 64),
        length: 17,
        ..about(EventKind::Escaped, 5000, 3)
    };
    assert_eq!(events(&bed.send(&shape, 1), EventKind::Escaped), [packet]);
    let view = bed.receiver.escaped(1, Nanos::new(5700)).map(|view| (view.header, view.length, view.age));
    assert_eq!(view, Some((header, 17, Nanos::new(700))));
    assert_eq!(bed.receiver.escaped(2, Nanos::new(5700)), None);

    bed.now = Nanos::new(6000);
    let outputs = bed.send(&shape, 0);
    let registered = Event {
        index: 1,
        generation: 1,
        segment: 1,
        count: 2,
        address: CardAddr::new(BASE),
        length: 81,
        op: OpNumber::new(2),
        tries: Registration::byte(Flags::NOTIFY_RECEIVER, Scheme::Registry),
        ..about(EventKind::Registered, 6000, 3)
    };
    assert_eq!(events(&outputs, EventKind::Registered), [registered]);
    let released = Event { kind: EventKind::EscapeReleased, time: 6000, count: 1, ..packet };
    assert_eq!(events(&outputs, EventKind::EscapeReleased), [released]);
    let completed = Event { index: 1, generation: 1, segment: 1, ..about(EventKind::Completed, 6000, 3) };
    assert_eq!(events(&outputs, EventKind::Completed), [completed]);
    assert_eq!(bed.receiver.escaped(1, bed.now), None);
}

#[test]
fn notice_names_whole_transfer() {
    let mut bed = TestBed::new(config());
    bed.now = Nanos::new(70);
    let notice = Event { address: CardAddr::new(BASE), length: 17, ..about(EventKind::Notice, 70, 0) };
    assert_eq!(events(&bed.send(&Shape::single(0, 1), 0), EventKind::Notice), [notice]);
}

#[test]
fn entry_reused_generation_counts_uses() {
    let mut one = config();
    one.registry_entries = 1;
    let mut bed = TestBed::new(one);
    for transfer in 0..3 {
        let outputs = bed.send(&Shape::single(transfer, 1), 0);
        let registered = events(&outputs, EventKind::Registered);
        assert_eq!(registered[0].generation, transfer + 1);
        assert_eq!(bed.receiver.entry(0, bed.now).map(|entry| entry.generation), Some(transfer + 1));
    }
}

#[test]
fn outputs_not_polled_inputs_dropped_and_counted() {
    let mut bed = TestBed::new(config());
    let (header, payload) = Shape::single(0, 2).packet(0);
    while bed.receiver.counters().unpolled == 0 {
        bed.receiver.handle_packet(bed.now, &header, &payload, &mut bed.memory);
    }
    let taken = bed.receiver.counters().packets;
    let arrived = Arrived {
        common: Common { flags: Flags::NONE, ..header.common },
        transfer: header.transfer,
        address: CardAddr::new(BASE),
        length: 81,
        key: KEY,
    };
    bed.receiver.handle_arrived(bed.now, &arrived);
    assert_eq!(bed.receiver.counters().unpolled, 2);
    // Long after the entry's timeout.
    bed.receiver.handle_timeout(Nanos::from_secs(100));
    assert_eq!((bed.receiver.counters().unpolled, bed.receiver.registry_occupancy()), (3, 1));
    assert_eq!(acks(&bed.drain()).len() as u64, taken);
    // With space for outputs, packets are accepted again.
    assert_eq!(acks(&bed.send(&Shape::single(0, 2), 0)).len(), 1);
    assert_eq!(events(&bed.advance(Nanos::from_secs(100)), EventKind::Expired).len(), 1);
    assert_eq!(bed.receiver.counters().unpolled, 3);
}

#[test]
fn looks_ahead_only_with_large_registry() {
    let prefetches = |entries| {
        let mut config = config();
        config.registry_entries = entries;
        Receiver::new(config).map(|receiver| receiver.prefetches())
    };
    assert_eq!((prefetches(64), prefetches(65_536)), (Ok(false), Ok(true)));
}

/// Acknowledgements repeat the path and the mark of their packet, and name the time that it waited in the escape channel.
#[test]
fn acknowledgement_echoes_path_mark_and_waiting_time() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 2);
    let (mut early, mut start) = (shape.packet(1), shape.packet(0));
    (early.0.common.path, early.0.common.flags) = (7, early.0.common.flags | Flags::MARKED);
    start.0.common.path = 9;
    assert!(acks(&bed.deliver(&early)).is_empty());
    bed.now = Nanos::new(6400);
    let answers: Vec<_> = bed
        .deliver(&start)
        .into_iter()
        .filter_map(|output| if let Output::Send(Control::Ack(ack)) = output { Some(ack) } else { None })
        .map(|ack| (ack.op, ack.common.path, ack.common.flags, ack.delay, ack.senders))
        .collect();
    // The transfer is complete with the second answer: its node does not send any more.
    let expected = [(start.0.op, 9, Flags::NONE, 0, 1), (early.0.op, 7, Flags::ECHO, 100, answers[1].4)];
    assert_eq!(answers, expected);
    assert!(answers[1].4 <= 1);
}
