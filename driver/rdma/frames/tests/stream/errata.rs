//! One test for each erratum of source 003; docs/dev/errata.md lists them.

use fpga_frames::{
    Credits, DropReason, PublishError, PublisherEvent, Sequence, SubscriberOptions, TakeError,
};
use fpga_netmodel::{Blackout, Impairments};
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

use crate::stream::bed::{TestBed, assert_whole, options};

/// Network that delivers nothing for `length` milliseconds from `from` on, by the network's clock.
fn network_with_outage(from: u64, length: u64) -> fpga_sim::SimNetworkBuilder {
    let mut impairments = Impairments::default();
    let outage = Blackout { from: Nanos::from_millis(from), length: Nanos::from_millis(length) };
    impairments.blackouts.push(outage);
    SimNetwork::builder().impairments(impairments)
}

fn advance_to(bed: &mut TestBed, millis: u64) {
    bed.until("the time is reached", |bed| {
        let left = Nanos::from_millis(millis).saturating_sub(bed.network.now());
        bed.network.advance(left.min(Nanos::from_millis(10)));
        left == Nanos::ZERO
    });
}

/// A failed send lowers the slot's reference count, so the slot is free again.
#[test]
fn e3_1_failed_send_releases_slot() {
    let mut bed = TestBed::new(1, options());
    bed.subscribers[0] = None;
    for _ in 0..4 {
        assert_eq!(bed.publish().unwrap().sent.len(), 1);
    }
    bed.until("all transfers fail", |bed| bed.publisher.statistics().failed == 4);
    bed.until("slots are released", |bed| bed.publisher.free_slots() == 16);
}

/// A transfer that fails is counted and leaves a gap; the connection continues with the next frame.
#[test]
fn e3_2_failed_transfer_leaves_gap_and_stream_resumes() {
    let mut bed = TestBed::on(network_with_outage(1_000, 80), 1, options());
    bed.publish().unwrap();
    bed.until("frame 0 arrives", |bed| bed.seen[0].frames == [0]);
    advance_to(&mut bed, 1_001);
    bed.publish().unwrap();
    bed.until("frame 1 fails", |bed| bed.publisher.statistics().failed == 1);
    assert_eq!(bed.publisher.subscribers().count(), 1, "one failure drops no subscriber");
    advance_to(&mut bed, 1_100);
    bed.publish().unwrap();
    bed.until("frame 2 arrives", |bed| bed.seen[0].frames == [0, 2]);
    assert_eq!(bed.seen[0].gaps, [(1, 1)]);
    bed.close();
    bed.assert_no_faults();
}

/// The same for the maximum number of consecutive failures: the subscriber is dropped, and reported.
#[test]
fn e3_2_repeated_failures_drop_subscriber() {
    let mut bed = TestBed::on(network_with_outage(1_000, 9_000), 1, options());
    advance_to(&mut bed, 1_001);
    bed.publish().unwrap();
    bed.until("the subscriber is dropped", |bed| bed.publisher.subscribers().count() == 0);
    let reasons: Vec<_> = std::iter::from_fn(|| bed.publisher.next_event())
        .filter_map(|event| match event {
            PublisherEvent::Dropped { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert!(matches!(reasons[..], [DropReason::Unreachable { failures: 4, .. }]), "{reasons:?}");
}

/// The subscriber writes its count of consumed frames; the publisher compares it modulo 2^32.
#[test]
fn e3_3_credits_compare_modulo_2_pow_32() {
    let mut credits = Credits::new(4, u32::MAX - 1).unwrap();
    for _ in 0..4 {
        assert!(credits.reserve());
        credits.start();
    }
    assert!(!credits.reserve(), "four frames are unread");
    assert_eq!(credits.consume(1), Ok(3), "MAX-1, MAX and 0 are consumed");
    // The same with a stream whose positions wrap.
    let mut options = options();
    options.first_position = u32::MAX - 3;
    let mut bed = TestBed::new(1, options);
    let slots = SubscriberOptions::default().slots;
    for number in 0..u64::from(slots) * 3 {
        assert_eq!(bed.publish().unwrap().sent.len(), 1, "frame {number}");
        bed.until("the frame is returned", |bed| {
            bed.publisher.subscribers().all(|view| view.room == view.slots)
        });
    }
    bed.close();
    assert_whole(&bed.seen[0], Sequence::new(0), Sequence::new(u64::from(slots) * 3));
    assert_eq!(bed.seen[0].missed(), 0);
}

/// Taking a frame returns a slot, one of a bounded number of heap frames, or an error. It never allocates without limit.
#[test]
fn e3_4_take_is_bounded() {
    let mut options = options();
    (options.slots, options.heap_slots) = (1, 2);
    let mut bed = TestBed::new(1, options);
    let held: Vec<_> = (0..3).map(|_| bed.publisher.take().unwrap()).collect();
    for _ in 0..100 {
        assert!(matches!(bed.publisher.take(), Err(TakeError::Full { slots: 1, heap_slots: 2 })));
    }
    assert_eq!(bed.publisher.statistics().internal.heap_frames, 2);
    drop(held);
    assert!(!bed.publisher.take().unwrap().is_on_heap());
}

/// A heap frame has no slot number: releasing one never releases a slot.
#[test]
fn e3_5_heap_frame_owns_no_slot() {
    let mut options = options();
    (options.slots, options.heap_slots) = (2, 1);
    let mut bed = TestBed::new(1, options);
    let (first, second) = (bed.publisher.take().unwrap(), bed.publisher.take().unwrap());
    let heap = bed.publisher.take().unwrap();
    assert!(heap.is_on_heap() && !first.is_on_heap() && !second.is_on_heap());
    drop(heap);
    bed.publisher.poll().unwrap();
    assert_eq!(bed.publisher.free_slots(), 0, "both slots are still held");
    drop(second);
    bed.publisher.poll().unwrap();
    assert_eq!(bed.publisher.free_slots(), 1);
    drop(first);
}

/// The sequence number rises with every frame, even if the frame is sent to no subscriber: this is how a subscriber detects a drop.
#[test]
fn e3_6_sequence_rises_when_every_send_fails() {
    let mut bed = TestBed::new(1, options());
    bed.stalled[0] = true;
    let slots = u64::from(SubscriberOptions::default().slots);
    for number in 0..slots {
        assert_eq!(bed.publish().unwrap().sequence, Sequence::new(number));
    }
    for number in slots..slots + 5 {
        let Err(PublishError::NoFreeSlot { sequence, .. }) = bed.publish() else {
            panic!("there was a free slot")
        };
        assert_eq!(sequence, Sequence::new(number));
    }
    bed.stalled[0] = false;
    bed.until("the subscriber has caught up", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
    assert_eq!(bed.publish().unwrap().sequence, Sequence::new(slots + 5));
    bed.until("the gap is seen", |bed| !bed.seen[0].gaps.is_empty());
    assert_eq!(bed.seen[0].gaps, [(slots, 5)]);
}
