//! One test per erratum of the registry scheme (E1-8, E1-9 and E1-10 end to end are in `back_to_back`, E1-13 in `op_table`, E2-2 in
//! `timeouts`; the literal rules of the sources, which fail, are in `literal`).

use crate::common;

use common::{BASE, INCARNATION, KEY, SENDER, Shape, TestBed, acks, config, dones, events, nacks};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::wire::{Arrived, Common, Control, DataHeader, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Mask, MemoryWindow, Output};
use fpga_registers::CardAddr;

#[test]
fn e1_1_mask_barrel_shift_matches_definition() {
    assert_eq!(Mask::first_of(8).unwrap().words()[0], 0xFFFF_FF01);
    assert_eq!(Mask::first_of(32).unwrap().words()[0], 0x0000_0001);
    assert_eq!(Mask::first_of(256).unwrap().words(), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert!(Mask::first_of(1).unwrap().is_complete());
    assert_eq!(Mask::first_of(0), None);
    assert_eq!(Mask::first_of(257), None);
}

#[test]
fn e1_1_mask_every_width_completes_at_last_packet() {
    for n in 1..=256u16 {
        let mut mask = Mask::first_of(n).unwrap();
        for bit in 0..256 {
            assert_eq!(mask.contains(bit), bit == 0 || bit >= n, "bit {bit} of {n}");
        }
        assert_eq!(mask.missing(), u32::from(n) - 1);
        // From the top down, so that a carry into a neighbour would show.
        for bit in (1..n).rev() {
            assert!(!mask.is_complete());
            mask.insert(bit);
            assert!(mask.contains(bit));
        }
        assert_eq!(mask, Mask::COMPLETE);
        assert_eq!(Mask::from_words(mask.words()), mask);
    }
}

#[test]
fn e1_2_start_after_data_searches_escape_channel() {
    let mut bed = TestBed::new(config());
    let (mine, other) =
        (Shape::single(0, 4), Shape { base: BASE + 4096, transfer_base: BASE + 4096, ..Shape::single(1, 3) });
    bed.send(&other, 1);
    for index in [3, 1, 2] {
        let outputs = bed.send(&mine, index);
        assert_eq!(events(&outputs, EventKind::Escaped).len(), 1);
    }
    assert_eq!(bed.receiver.escape_occupancy(), 4);
    assert!(bed.memory.writes.is_empty());
    let outputs = bed.send(&mine, 0);
    assert_eq!(acks(&outputs).len(), 4);
    let released = events(&outputs, EventKind::EscapeReleased);
    assert_eq!(released.iter().map(|e| e.count).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!((dones(&outputs), events(&outputs, EventKind::Notice).len()), (1, 1));
    assert_eq!(bed.receiver.escape_occupancy(), 1, "another operation's packet stays");
}

#[test]
fn e1_3_repeated_start_of_live_operation_is_duplicate() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 3);
    bed.send(&shape, 0);
    bed.send(&shape, 2);
    let before = bed.receiver.entry(0, bed.now).unwrap();
    let outputs = bed.send(&shape, 0);
    assert_eq!((acks(&outputs).len(), outputs.len()), (1, 1));
    assert_eq!(bed.receiver.entry(0, bed.now).unwrap(), before, "the mask is not cleared");
    assert_eq!(bed.receiver.counters().duplicates, 1);
    // A start packet of a different shape contradicts the first one.
    let outputs = bed.send(&Shape { length: 100, transfer_length: 100, ..shape }, 0);
    assert_eq!(nacks(&outputs), [NackReason::BadPacket]);
}

#[test]
fn e1_4_late_start_is_neither_registered_nor_written() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 1);
    bed.send(&shape, 0);
    // Long after the packet lifetime: the sender may have missed the acknowledgement and still retransmit.
    bed.advance(Nanos::from_millis(500));
    let outputs = bed.send(&shape, 0);
    assert_eq!((acks(&outputs).len(), outputs.len()), (1, 1));
    assert_eq!(bed.memory.writes.len(), 1);
    assert_eq!(bed.receiver.counters().tombstone_hits, 1);
    assert_eq!(bed.receiver.registry_occupancy(), 0);
}

#[test]
fn e1_4_given_up_operation_cannot_write_into_successor() {
    let mut bed = TestBed::new(config());
    let old = Shape::single(0, 3);
    bed.send(&old, 0);
    // The sender gave transfer 0 up and sends transfer 1 to the same address.
    let new = Shape { oldest_live: 1, ..Shape::single(1, 3) };
    for index in 0..3 {
        bed.send(&new, index);
    }
    let written = bed.memory.writes.len();
    assert_eq!(acks(&bed.send(&old, 1)).len(), 1);
    assert_eq!(bed.memory.writes.len(), written, "dropped");
}

#[test]
fn e1_5_overlapping_operations_stay_separate() {
    let mut bed = TestBed::new(config());
    let (a, b) = (Shape::single(0, 2), Shape::single(1, 2));
    bed.send(&a, 0);
    bed.send(&b, 0);
    let outputs = bed.send(&a, 1);
    assert_eq!(events(&outputs, EventKind::Notice)[0].transfer.get(), 0);
    assert_eq!(bed.receiver.registry_occupancy(), 1, "the same address, another key: not complete");
    // A matching key with an address outside the operation, off its packet grid, or of the wrong length.
    for (offset, cut) in [(128u64, 0usize), (64 + 1, 0), (64, 1)] {
        let mut packet = b.packet(1);
        packet.0.address = CardAddr::new(BASE + offset);
        packet.1.truncate(packet.1.len() - cut);
        assert_eq!(nacks(&bed.deliver(&packet)), [NackReason::BadPacket]);
    }
    let mut below = b.packet(1);
    below.0.address = CardAddr::new(BASE - 64);
    assert_eq!(nacks(&bed.deliver(&below)), [NackReason::BadPacket]);
    assert_eq!(bed.memory.writes.len(), 3);
}

#[test]
fn e1_5_other_incarnation_is_other_sender() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 2);
    bed.send(&shape, 0);
    let mut packet = shape.packet(1);
    packet.0.common.incarnation = INCARNATION.next();
    assert!(acks(&bed.deliver(&packet)).is_empty());
    assert_eq!(bed.receiver.escape_occupancy(), 1);
}

fn of_incarnation(n: u32, shape: &Shape, index: u16) -> (DataHeader, Vec<u8>) {
    let mut packet = shape.packet(index);
    packet.0.common.incarnation = Incarnation::new(n);
    packet
}

/// Newest incarnation that refusals name.
fn newest(outputs: &[Output]) -> Vec<u32> {
    outputs
        .iter()
        .filter_map(|output| match output {
            Output::Send(Control::Nack(nack)) if nack.reason == NackReason::Superseded => Some(nack.op.get()),
            _ => None,
        })
        .collect()
}

#[test]
fn incarnation_earlier_is_refused_at_any_age() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 2);
    // The later one is admitted at once, and the records of the earlier one end.
    assert_eq!(acks(&bed.deliver(&of_incarnation(1, &shape, 0))).len(), 1);
    let outputs = bed.deliver(&of_incarnation(2, &shape, 0));
    assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Expired).len()), (1, 1));
    assert_eq!(acks(&bed.deliver(&of_incarnation(2, &shape, 1))).len(), 1);
    let writes = bed.memory.writes.len();
    // While its records exist, after all of them have expired, and a day later.
    for age in [Nanos::ZERO, Nanos::from_millis(40), Nanos::from_secs(5), Nanos::from_secs(86_400)] {
        bed.advance(age);
        for index in 0..2 {
            assert_eq!(newest(&bed.deliver(&of_incarnation(1, &shape, index))), [2], "{age:?}");
        }
    }
    assert_eq!((bed.memory.writes.len(), bed.receiver.escape_occupancy()), (writes, 0));
    assert_eq!((bed.receiver.counters().superseded, bed.receiver.poll_timeout()), (8, None));
    assert_eq!(bed.receiver.superseding(SENDER, Incarnation::new(1)), Some(Incarnation::new(2)));
}

/// The earlier incarnation holds the only entry: the later one gets it at once.
#[test]
fn incarnation_later_takes_over_records_of_earlier_one() {
    let mut small = config();
    (small.registry_entries, small.transfers) = (1, 1);
    let mut bed = TestBed::new(small);
    let shape = Shape::single(0, 2);
    let numbers = [u32::MAX - 1, u32::MAX, 1, 2];
    assert_eq!(acks(&bed.deliver(&of_incarnation(numbers[0], &shape, 0))).len(), 1);
    for pair in numbers.windows(2) {
        let outputs = bed.deliver(&of_incarnation(pair[1], &shape, 0));
        let expired = events(&outputs, EventKind::Expired);
        assert_eq!((expired.len(), expired[0].incarnation), (1, Incarnation::new(pair[0])));
        assert_eq!(acks(&outputs).len(), 1);
        assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.transfers_in_progress()), (1, 1));
    }
    let outputs = bed.deliver(&of_incarnation(2, &shape, 1));
    assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (1, 1));
}

/// A packet without the key of a memory window, and one that begins nothing, make no incarnation known.
#[test]
fn incarnation_of_packet_without_key_locks_nobody_out() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 2);
    let mut forged = of_incarnation(1000, &shape, 0);
    forged.0.key ^= 1;
    assert_eq!(nacks(&bed.deliver(&forged)), [NackReason::Violation]);
    assert!(bed.deliver(&of_incarnation(1000, &shape, 1)).iter().all(|o| matches!(o, Output::Event(_))));
    assert_eq!(acks(&bed.deliver(&of_incarnation(1, &shape, 0))).len(), 1);
}

/// A transfer that only waits for ARRIVED is complete, even if its sender never sends it.
#[test]
fn incarnation_former_transfer_awaiting_arrived_is_notified() {
    let mut bed = TestBed::new(config());
    let mut shape = Shape::single(0, 1);
    shape.notify = false;
    assert!(events(&bed.send(&shape, 0), EventKind::Notice).is_empty());
    let later = INCARNATION.next();
    let outputs = bed.deliver(&of_incarnation(later.get(), &Shape::single(0, 1), 0));
    let incarnations: Vec<_> =
        events(&outputs, EventKind::Notice).iter().map(|event| event.incarnation).collect();
    assert_eq!(incarnations, [INCARNATION, later]);
}

#[test]
fn e1_6_escaped_packet_is_acknowledged_only_when_written() {
    let mut small = config();
    small.escape_slots = 1;
    let mut bed = TestBed::new(small);
    let shape = Shape::single(0, 3);
    assert!(acks(&bed.send(&shape, 1)).is_empty());
    assert!(bed.send(&shape, 1).is_empty(), "a copy takes no second place");
    assert_eq!(nacks(&bed.send(&shape, 2)), [NackReason::EscapeFull]);
    assert_eq!(bed.receiver.poll_timeout(), Some(Nanos::from_millis(1)));
    let outputs = bed.advance(Nanos::from_millis(1));
    assert!(acks(&outputs).is_empty());
    assert_eq!(events(&outputs, EventKind::EscapeReleased)[0].count, 0);
    assert_eq!(bed.receiver.counters().escape_dropped, 2);
    // Dropped, not lost: the sender's retransmission completes the operation.
    for index in 0..3 {
        bed.send(&shape, index);
    }
    assert_eq!(bed.receiver.counters().notices, 1);
}

/// A waiting packet is answered with its latest try count, and each has its own timeout.
#[test]
fn e1_6_escaped_packet_answers_latest_try_and_has_own_timeout() {
    let mut bed = TestBed::new(config());
    let (shape, timeout) = (Shape::single(0, 3), bed.receiver.config().escape_timeout);
    bed.send(&shape, 1);
    let half = Nanos::new(timeout.get() / 2);
    bed.advance(half);
    let mut again = shape.packet(2);
    bed.deliver(&again);
    assert_eq!(bed.receiver.poll_timeout(), Some(timeout), "the first one's");
    (again.0.op, again.0.tries) = (OpNumber::new(77), 2);
    bed.deliver(&again);
    assert_eq!((bed.receiver.escape_occupancy(), bed.receiver.counters().duplicates), (2, 1));
    assert_eq!(nacks(&bed.advance(half)), [NackReason::Busy], "it comes again soon");
    assert_eq!((bed.receiver.escape_occupancy(), bed.receiver.counters().escape_dropped), (1, 1));
    let outputs = bed.send(&shape, 0);
    let answered = outputs.iter().find_map(|output| match output {
        Output::Send(Control::Ack(ack)) if ack.op != shape.packet(0).0.op => Some((ack.op.get(), ack.tries)),
        _ => None,
    });
    assert_eq!(answered, Some((77, 2)));
}

#[test]
fn e1_7_duplicate_is_acknowledged_with_own_try() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 3);
    bed.send(&shape, 0);
    let mut again = shape.packet(0);
    again.0.tries = 4;
    let outputs = bed.deliver(&again);
    assert!(
        outputs
            .iter()
            .any(|o| matches!(o, fpga_protocol::receiver::Output::Send(Control::Ack(a)) if a.tries == 4))
    );
}

/// Visits every order of `rest` after the prefix `order`.
fn orders(rest: &[u16], order: &mut Vec<u16>, visit: &mut impl FnMut(&[u16])) {
    if rest.is_empty() {
        visit(order);
    }
    for packet in rest {
        order.push(*packet);
        let left: Vec<_> = rest.iter().copied().filter(|other| other != packet).collect();
        orders(&left, order, visit);
        order.pop();
    }
}

#[test]
fn e1_14_escape_channel_any_order_completes() {
    let shape = Shape::single(0, 5);
    let (mut ascending, mut as_they_came) = (0, 0);
    orders(&[1, 2, 3, 4], &mut Vec::new(), &mut |order| {
        let mut bed = TestBed::new(config());
        // Another operation has slots 0 and 1, and one of them is free again when the last two packets arrive.
        let other = Shape { base: BASE + 4096, transfer_base: BASE + 4096, ..Shape::single(1, 3) };
        bed.send(&other, 1);
        bed.send(&other, 2);
        bed.send(&shape, order[0]);
        bed.send(&shape, order[1]);
        bed.send(&other, 0);
        assert_eq!(events(&bed.drain(), EventKind::Notice).len(), 0);
        bed.send(&shape, order[2]);
        bed.send(&shape, order[3]);
        bed.memory.writes.clear();
        let outputs = bed.send(&shape, 0);
        assert_eq!((acks(&outputs).len(), dones(&outputs)), (5, 1));
        assert_eq!(events(&outputs, EventKind::Notice).len(), 1);
        let written: Vec<_> = bed.memory.writes.iter().map(|(at, _)| (at - BASE) / 64).collect();
        let came: Vec<_> = [0].iter().chain(order).map(|packet| u64::from(*packet)).collect();
        ascending += u32::from(written.is_sorted());
        as_they_came += u32::from(written == came);
        // The same bytes in every order.
        bed.memory.writes.sort_unstable();
        let all: Vec<_> = (0..5).map(|index| shape.packet(index)).collect();
        let expected = all.iter().map(|(header, payload)| (header.address.get(), payload.clone()));
        assert!(expected.eq(bed.memory.writes));
    });
    // Written in slot order, which is neither the packets' order nor that of their arrival.
    assert_eq!((ascending, as_they_came), (1, 0));
}

fn segment(index: u32) -> Shape {
    let base = BASE + u64::from(index) * 128;
    Shape { segment: index, segment_count: 3, base, length: 128, transfer_length: 384, ..Shape::single(0, 1) }
}

#[test]
fn e1_9_segments_in_any_order_give_one_notice() {
    let mut bed = TestBed::new(config());
    for (segment_index, notices) in [(2, 0), (0, 0), (1, 1)] {
        bed.send(&segment(segment_index), 1);
        let outputs = bed.send(&segment(segment_index), 0);
        let found = events(&outputs, EventKind::Notice);
        assert_eq!((dones(&outputs), found.len()), (1, notices));
        for notice in found {
            assert_eq!((notice.address, notice.length), (CardAddr::new(BASE), 384));
        }
    }
    assert_eq!(bed.receiver.counters().notices, 1);
}

#[test]
fn e1_11_arrived_notifies_once_and_only_for_complete_transfer() {
    let mut bed = TestBed::new(config());
    let shape = Shape { notify: false, ..Shape::single(0, 2) };
    let header = shape.packet(0).0.common;
    let arrived = Arrived {
        common: Common { flags: Flags::NONE, ..header },
        transfer: shape.packet(0).0.transfer,
        address: CardAddr::new(BASE),
        length: 1,
        key: KEY,
    };
    bed.send(&shape, 0);
    bed.receiver.handle_arrived(bed.now, &arrived);
    assert!(bed.drain().is_empty(), "not all of it is here");
    assert!(events(&bed.send(&shape, 1), EventKind::Notice).is_empty());
    bed.receiver.handle_arrived(bed.now, &arrived);
    let notices = events(&bed.drain(), EventKind::Notice);
    assert_eq!(notices[0].length, shape.transfer_length, "from the registration, not from the notice");
    bed.receiver.handle_arrived(bed.now, &arrived);
    assert!(bed.drain().is_empty());
    // Lost, and overtaken by later traffic: reported then.
    let second = Shape { notify: false, ..Shape::single(1, 1) };
    assert!(events(&bed.send(&second, 0), EventKind::Notice).is_empty());
    let third = Shape { oldest_live: 2, ..Shape::single(2, 2) };
    assert_eq!(events(&bed.send(&third, 0), EventKind::Notice).len(), 1);
}

#[test]
fn e1_12_registry_full_refuses_then_accepts() {
    let mut bed = TestBed::new(config());
    let shapes = [0, 1, 2].map(|n| Shape::single(n, 2));
    bed.send(&shapes[0], 0);
    bed.send(&shapes[1], 0);
    assert_eq!(nacks(&bed.send(&shapes[2], 0)), [NackReason::Busy]);
    assert_eq!(bed.receiver.counters().registry_full, 1);
    bed.send(&shapes[0], 1);
    assert_eq!(acks(&bed.send(&shapes[2], 0)).len(), 1);
    assert_eq!(bed.receiver.counters().registry_high_water, 2);
}

/// A sender that sends nothing is remembered for one more packet lifetime, in which a last packet may still be in flight.
#[test]
fn e1_4_silent_sender_is_forgotten_one_packet_lifetime_after_operations() {
    let shape = Shape::single(0, 1);
    for (early, writes) in [(1, 1), (0, 2)] {
        let mut bed = TestBed::new(config());
        let config = *bed.receiver.config();
        bed.send(&shape, 0);
        bed.advance(config.registry_timeout);
        bed.advance(config.packet_lifetime.saturating_sub(Nanos::new(early)));
        assert_eq!(acks(&bed.send(&shape, 0)).len(), 1);
        assert_eq!(bed.memory.writes.len(), writes);
    }
}

/// A partly received transfer that its sender has given up is released for the next one.
#[test]
fn e1_4_given_up_transfer_record_is_reused() {
    let mut config = config();
    config.transfers = 1;
    let mut bed = TestBed::new(config);
    let first = Shape { segment_count: 2, length: 64, transfer_length: 128, ..Shape::single(0, 1) };
    bed.send(&first, 0);
    assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.transfers_in_progress()), (0, 1));
    assert_eq!(nacks(&bed.send(&Shape::single(1, 1), 0)), [NackReason::Busy]);
    let outputs = bed.send(&Shape { oldest_live: 1, ..Shape::single(1, 1) }, 0);
    assert_eq!((acks(&outputs).len(), events(&outputs, EventKind::Notice).len()), (1, 1));
    assert_eq!(bed.receiver.transfers_in_progress(), 0);
}

/// The completed part of a transfer is remembered while its sender retransmits the rest, even if that is refused for long.
#[test]
fn e1_4_transfer_with_refused_next_segment_is_kept() {
    let mut config = config();
    config.registry_entries = 1;
    let mut bed = TestBed::new(config);
    let segment = |segment: u32| Shape {
        segment,
        segment_count: 2,
        base: BASE + u64::from(segment) * 64,
        length: 64,
        transfer_length: 128,
        ..Shape::single(0, 1)
    };
    bed.send(&segment(0), 0);
    let other = Shape::single(1, 2);
    for _ in 0..6 {
        // It keeps the only entry.
        assert_eq!(acks(&bed.send(&other, 0)).len(), 1);
        assert_eq!(nacks(&bed.send(&segment(1), 0)), [NackReason::Busy]);
        bed.advance(Nanos::from_secs(1));
    }
    assert_eq!(acks(&bed.send(&segment(0), 0)).len(), 1, "a late copy");
    assert_eq!((bed.memory.writes.len(), bed.receiver.counters().tombstone_hits), (2, 1));
    bed.send(&other, 1);
    assert_eq!(events(&bed.send(&segment(1), 0), EventKind::Notice).len(), 1);
}

/// A transfer that its sender has given up is released at once, not after the registry timeout.
#[test]
fn e1_12_registry_full_releases_entries_sender_gave_up() {
    let mut bed = TestBed::new(config());
    for transfer in [0, 1] {
        bed.send(&Shape::single(transfer, 2), 0);
    }
    let third = Shape { oldest_live: 1, ..Shape::single(2, 2) };
    let outputs = bed.send(&third, 0);
    assert_eq!(acks(&outputs).len(), 1);
    let expired = events(&outputs, EventKind::Expired);
    assert_eq!(expired.iter().map(|event| event.transfer.get()).collect::<Vec<_>>(), [0]);
    // The other one is in progress.
    assert_eq!(nacks(&bed.send(&Shape { transfer: 3, ..third }, 0)), [NackReason::Busy]);
    assert_eq!(acks(&bed.send(&Shape { oldest_live: 1, ..Shape::single(1, 2) }, 1)).len(), 1);
    assert_eq!(bed.receiver.counters().completions, 1);
}

#[test]
fn silent_sender_expires_and_is_reported() {
    let mut bed = TestBed::new(config());
    bed.send(&Shape::single(0, 2), 0);
    let timeout = bed.receiver.config().registry_timeout;
    assert_eq!(bed.receiver.poll_timeout(), Some(timeout));
    let outputs = bed.advance(timeout);
    assert_eq!(events(&outputs, EventKind::Expired).len(), 1);
    assert_eq!((bed.receiver.registry_occupancy(), bed.receiver.transfers_in_progress()), (0, 0));
    bed.advance(Nanos::from_millis(10));
    assert_eq!(bed.receiver.poll_timeout(), None, "nothing is remembered of it");
}

/// A completed transfer is remembered from the latest packet of its sender on, not from its first.
#[test]
fn e1_4_active_sender_is_kept() {
    let mut bed = TestBed::new(config());
    let (silence, lifetime) = (bed.receiver.config().registry_timeout, bed.receiver.config().packet_lifetime);
    let almost = silence.saturating_add(lifetime).saturating_sub(Nanos::new(1));
    bed.send(&Shape::single(0, 1), 0);
    bed.advance(almost);
    let second = Shape { oldest_live: 1, ..Shape::single(1, 1) };
    bed.send(&second, 0);
    bed.advance(Nanos::new(2));
    assert_eq!(acks(&bed.send(&second, 0)).len(), 1, "a late copy");
    assert_eq!(bed.memory.writes.len(), 2, "is not written again");
    assert_eq!(bed.receiver.counters().tombstone_hits, 1);
}

/// A shorter timeout takes effect at once, without waiting for the old one.
#[test]
fn timeout_shortened_takes_effect_immediately() {
    let mut bed = TestBed::new(config());
    bed.send(&Shape::single(0, 2), 0);
    let silence = Nanos::from_millis(100);
    bed.receiver.set_timeouts(Nanos::from_millis(1), silence, Nanos::from_millis(10));
    assert!(bed.receiver.poll_timeout().unwrap() <= silence);
    assert_eq!(events(&bed.advance(silence), EventKind::Expired).len(), 1);
}

/// New packets and copies both count as activity of the sender and restart the registry timeout.
#[test]
fn operation_with_arriving_packets_or_copies_is_kept() {
    let mut bed = TestBed::new(config());
    let timeout = bed.receiver.config().registry_timeout;
    let almost = timeout.saturating_sub(Nanos::new(1));
    let shape = Shape::single(0, 3);
    for index in [0, 0, 1, 1, 0] {
        assert_eq!(acks(&bed.send(&shape, index)).len(), 1);
        assert_eq!(events(&bed.advance(almost), EventKind::Expired), []);
        assert_eq!(bed.receiver.registry_occupancy(), 1);
    }
    assert_eq!(events(&bed.advance(Nanos::new(1)), EventKind::Expired).len(), 1);
    assert_eq!(bed.receiver.counters().expired, 1);
}

#[test]
fn write_outside_windows_is_refused_and_not_made() {
    let mut bed = TestBed::new(config());
    let shape = Shape::single(0, 2);
    let mut wrong_key = shape.packet(0);
    wrong_key.0.key ^= 1;
    assert_eq!(nacks(&bed.deliver(&wrong_key)), [NackReason::Violation]);
    let mut wrong_key = shape.packet(1);
    wrong_key.0.key ^= 1;
    assert_eq!(nacks(&bed.deliver(&wrong_key)), [NackReason::Violation], "not even into the escape buffer");
    // The first packet fits, the operation as a whole does not.
    let end = MemoryWindow {
        source: SENDER,
        base: CardAddr::new(BASE),
        length: 64,
        key: KEY,
        permissions: Permissions::WRITE,
    };
    bed.receiver.access_mut().install(0, end).unwrap();
    assert_eq!(nacks(&bed.send(&shape, 0)), [NackReason::Violation]);
    // The window is closed while an operation is in progress.
    bed.receiver.access_mut().install(0, MemoryWindow { length: 1 << 20, ..end }).unwrap();
    bed.send(&shape, 0);
    bed.receiver.access_mut().remove(0).unwrap();
    assert_eq!(nacks(&bed.send(&shape, 1)), [NackReason::Violation]);
    assert_eq!(bed.memory.writes.len(), 1);
    assert_eq!(bed.receiver.counters().violations, 4);
}

#[test]
fn packet_of_other_node_or_packet_size_is_refused() {
    let mut bed = TestBed::new(config());
    let mut packet = Shape::single(0, 1).packet(0);
    packet.0.common.destination = NodeId::new(9);
    assert!(bed.deliver(&packet).is_empty());
    let mut packet = Shape::single(0, 1).packet(0);
    packet.0.packet_size_log2 = 7;
    assert_eq!(nacks(&bed.deliver(&packet)), [NackReason::BadPacket]);
    let mut packet = Shape::single(0, 1).packet(0);
    packet.1.clear();
    assert_eq!(nacks(&bed.deliver(&packet)), [NackReason::BadPacket]);
    assert_eq!(bed.receiver.counters().bad_packets, 3);
}

#[test]
fn tombstones_bounded_and_oldest_transfer_always_admitted() {
    let mut bed = TestBed::new(config());
    // Every other transfer completes: each is a separate range until the gaps fill.
    for n in [1, 3, 5] {
        assert_eq!(dones(&bed.send(&Shape::single(n, 1), 0)), 1);
    }
    assert_eq!(dones(&bed.send(&Shape::single(7, 1), 0)), 1);
    assert_eq!(bed.receiver.tombstones(), 4);
    assert_eq!(nacks(&bed.send(&Shape::single(9, 1), 0)), [NackReason::Busy]);
    assert_eq!(dones(&bed.send(&Shape::single(0, 1), 0)), 1, "the oldest");
    assert_eq!(dones(&bed.send(&Shape::single(2, 1), 0)), 1, "joins its neighbours");
    assert_eq!(bed.receiver.tombstones(), 3);
    assert_eq!(dones(&bed.send(&Shape::single(9, 1), 0)), 1);
    for n in [0, 1, 2, 3, 5, 7, 9] {
        assert_eq!(acks(&bed.send(&Shape::single(n, 1), 0)).len(), 1);
    }
    assert_eq!(bed.receiver.counters().completions, 7);
}
