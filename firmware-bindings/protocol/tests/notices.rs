//! Notifications without a free slot in the event ring: each packet that would need one is refused as "not ready", and nothing else is.

use crate::common;

use common::{INCARNATION, RECEIVER, SENDER, Shape, TestBed, acks, config, dones, events, nacks};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{NodeId, TransferId};
use fpga_firmware::wire::{Arrived, Common, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryWindow, Output};
use fpga_registers::CardAddr;

/// A bed without notice slots.
fn without_slots() -> TestBed {
    let mut bed = TestBed::new(config());
    bed.receiver.set_notice_slots(0);
    bed
}

fn not_ready(outputs: &[Output]) -> bool {
    nacks(outputs) == [NackReason::NotReady] && acks(outputs).is_empty() && dones(outputs) == 0
}

#[test]
fn notice_no_slot_refuses_completing_packet_as_not_ready() {
    let mut bed = without_slots();
    let shape = Shape::single(0, 3);
    for index in [0, 2] {
        let outputs = bed.send(&shape, index);
        assert_eq!((acks(&outputs).len(), nacks(&outputs).len()), (1, 0));
    }
    let outputs = bed.send(&shape, 1);
    assert!(not_ready(&outputs));
    // Its data is in memory and its entry is free: only the transfer's record waits.
    assert_eq!(events(&outputs, EventKind::Completed).len(), 1);
    assert_eq!(bed.memory.writes.len(), 3);
    assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.transfers_in_progress()), (0, 1));
    assert!(not_ready(&bed.send(&shape, 1)));
    bed.receiver.set_notice_slots(1);
    let outputs = bed.send(&shape, 1);
    assert_eq!((acks(&outputs).len(), dones(&outputs)), (1, 1));
    assert_eq!(events(&outputs, EventKind::Notice).len(), 1);
    // Notified once: later packets are duplicates.
    let outputs = bed.send(&shape, 1);
    assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (1, 0));
    assert_eq!(bed.receiver.counters().not_ready, 2);
    assert_eq!((bed.memory.writes.len(), bed.receiver.transfers_in_progress()), (3, 0));
}

#[test]
fn notice_no_slot_single_packet_transfer_leaves_no_record() {
    let mut bed = without_slots();
    let shape = Shape::single(0, 1);
    assert!(not_ready(&bed.send(&shape, 0)));
    assert_eq!((bed.memory.writes.len(), bed.receiver.transfers_in_progress()), (0, 0));
    bed.receiver.set_notice_slots(1);
    let outputs = bed.send(&shape, 0);
    assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (1, 1));
}

#[test]
fn notice_not_requested_completes_without_slot() {
    let mut bed = without_slots();
    for (transfer, packets) in [(0, 1), (1, 4)] {
        let shape = Shape::single(transfer, packets);
        for index in 0..packets {
            let (mut header, payload) = shape.packet(index);
            header.common.flags = Flags::NO_NOTICE;
            let outputs = bed.deliver(&(header, payload));
            assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (1, 0));
        }
    }
    assert_eq!((bed.receiver.transfers_in_progress(), bed.receiver.counters().notices), (0, 0));
}

/// Half of the records are for transfers that do not need the host.
#[test]
fn notice_waiting_transfers_hold_at_most_half_of_records() {
    let mut bed = without_slots();
    // There are four records.
    for transfer in 0..2 {
        let shape = Shape::single(transfer, 2);
        assert_eq!(acks(&bed.send(&shape, 0)).len(), 1);
        assert!(not_ready(&bed.send(&shape, 1)));
    }
    let third = Shape::single(2, 2);
    assert!(not_ready(&bed.send(&third, 0)));
    for transfer in 3..40 {
        for index in [0, 1] {
            let (mut header, payload) = Shape::single(transfer, 2).packet(index);
            header.common.flags = Flags::NO_NOTICE;
            header.oldest_live = TransferId::new(0);
            assert_eq!(acks(&bed.deliver(&(header, payload))).len(), 1, "{transfer}");
        }
    }
    // With a slot for one of them, another one may begin.
    bed.receiver.set_notice_slots(1);
    assert_eq!(acks(&bed.send(&third, 0)).len(), 1);
}

#[test]
fn notice_waiting_transfer_given_up_is_released_without_notice() {
    let mut bed = without_slots();
    for transfer in 0..2 {
        let shape = Shape::single(transfer, 2);
        bed.send(&shape, 0);
        assert!(not_ready(&bed.send(&shape, 1)));
    }
    bed.receiver.set_notice_slots(8);
    // The sender has given both up; there are no other records.
    let mut notices = 0;
    for transfer in 2..8 {
        let shape = Shape { oldest_live: 2, ..Shape::single(transfer, 1) };
        notices += events(&bed.send(&shape, 0), EventKind::Notice).len();
    }
    assert_eq!(notices, 6);
    bed.advance(Nanos::from_secs(3));
    assert_eq!((bed.receiver.transfers_in_progress(), bed.receiver.counters().notices), (0, 6));
}

#[test]
fn notice_of_sender_has_reserved_slot() {
    let mut bed = without_slots();
    let told_by_sender = Shape { notify: false, ..Shape::single(0, 1) };
    assert!(not_ready(&bed.send(&told_by_sender, 0)));
    bed.receiver.set_notice_slots(1);
    assert_eq!(acks(&bed.send(&told_by_sender, 0)).len(), 1);
    assert_eq!(bed.receiver.reserved_notices(), 1);
    // The slot is reserved.
    assert!(not_ready(&bed.send(&Shape::single(1, 1), 0)));
    let arrived = Arrived {
        common: Common {
            source: SENDER,
            destination: RECEIVER,
            incarnation: INCARNATION,
            flags: Flags::NONE,
            path: 0,
        },
        transfer: TransferId::new(0),
        address: CardAddr::new(common::BASE),
        length: told_by_sender.transfer_length,
        key: common::KEY,
    };
    bed.receiver.handle_arrived(bed.now, &arrived);
    assert_eq!(events(&bed.drain(), EventKind::Notice).len(), 1);
    assert_eq!(bed.receiver.reserved_notices(), 0);
}

/// A sender that has moved past a transfer has already sent its ARRIVED, or never will.
#[test]
fn notice_overtaken_is_given_for_announced_transfers_of_sender_only() {
    let mut bed = TestBed::new(config());
    let other = NodeId::new(9);
    let window = MemoryWindow {
        source: other,
        base: CardAddr::new(0x1_0000),
        length: 0x10_0000,
        key: common::KEY,
        permissions: Permissions::WRITE,
    };
    bed.receiver.access_mut().install(1, window).unwrap();
    let announced = Shape { notify: false, ..Shape::single(0, 1) };
    let (mut header, payload) = announced.packet(0);
    header.common.source = other;
    bed.deliver(&(header, payload));
    bed.send(&announced, 0);
    // Half of this transfer has arrived.
    bed.send(&Shape::single(1, 2), 0);
    assert_eq!(bed.receiver.reserved_notices(), 2);
    let outputs = bed.send(&Shape { oldest_live: 2, ..Shape::single(2, 1) }, 0);
    let told: Vec<_> = events(&outputs, EventKind::Notice)
        .iter()
        .map(|notice| (notice.node, notice.transfer.get()))
        .collect();
    assert_eq!(told, [(SENDER, 0), (SENDER, 2)]);
    assert_eq!(bed.receiver.reserved_notices(), 1);
}
