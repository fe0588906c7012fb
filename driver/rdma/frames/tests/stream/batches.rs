//! Several small frames as one transfer.

use fpga_frames::{ArrivalError, Arrivals, Sequence};
use fpga_sim::SimNetwork;
use rand_core::Rng;

use crate::stream::bed::{TestBed, assert_whole, lossy, options};

/// Publishes `count` frames of `length` bytes without a poll in between, and waits until everything is read and returned.
fn burst(bed: &mut TestBed, count: u64, length: usize) {
    let all = bed.publisher.next_sequence().get() + count;
    for _ in 0..count {
        let published = bed.publish_of(length).unwrap();
        assert!(published.skipped.is_empty(), "{published:?}");
    }
    bed.until("all frames are read and returned", |bed| {
        bed.seen.iter().all(|seen| seen.count == all)
            && bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
}

/// Bursts of five in eight slots: transfers end at the last slot, and at the last slot of the pool.
#[test]
fn queued_small_frames_share_transfers() {
    let mut bed = TestBed::new(2, options());
    for _ in 0..20 {
        burst(&mut bed, 5, 4000);
    }
    let statistics = bed.publisher.statistics();
    assert_eq!((statistics.sent, statistics.arrived, statistics.failed), (200, 200, 0));
    // One per burst and subscriber, and one more at a wrap of either.
    assert!((40..=90).contains(&statistics.transfers), "{statistics:?}");
    bed.close();
    bed.assert_no_faults();
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

/// A frame alone has its own transfer at once, and frames much shorter than their slots do too.
#[test]
fn lone_and_short_frames_have_transfers_of_their_own() {
    let mut bed = TestBed::new(1, options());
    for _ in 0..10 {
        burst(&mut bed, 1, 4000);
    }
    assert_eq!(bed.publisher.statistics().transfers, 10);
    for _ in 0..10 {
        burst(&mut bed, 4, 1000);
    }
    assert_eq!(bed.publisher.statistics().transfers, 50);
    bed.close();
}

#[test]
fn shared_transfers_of_stalled_subscriber_and_lossy_link_leave_exact_gaps() {
    let mut bed = TestBed::on(SimNetwork::builder().impairments(lossy(0.02)).seed(3), 3, options());
    let mut skipped = 0;
    for round in 0..60 {
        bed.stalled[1] = round % 20 > 8;
        for _ in 0..bed.random.next_u64() % 7 {
            let length = usize::try_from(3000 + bed.random.next_u64() % 1001).unwrap();
            skipped += bed.publish_of(length).map_or(3, |published| u64::from(published.skipped.len()));
        }
        for _ in 0..100 {
            bed.turn();
        }
    }
    bed.stalled[1] = false;
    bed.close();
    bed.assert_no_faults();
    let statistics = bed.publisher.statistics();
    assert!(statistics.transfers < statistics.sent * 2 / 3, "{statistics:?}");
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), bed.publisher.next_sequence());
    }
    assert_eq!(bed.seen.iter().map(|seen| seen.missed()).sum::<u64>(), skipped);
    assert!(bed.seen[1].missed() > 0);
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

#[test]
fn arrivals_of_shared_transfer_fill_adjacent_slots() {
    let mut arrivals = Arrivals::new(4, 0).unwrap();
    assert_eq!(arrivals.arrived_from(0, 250, 100), Ok(()));
    let lengths: Vec<u64> = std::iter::from_fn(|| arrivals.read()).map(|(_, length)| length).collect();
    assert_eq!(lengths, [100, 100, 50]);
    let occupied = arrivals.arrived_from(2, 200, 100);
    assert_eq!(occupied, Err(ArrivalError::Occupied { slot: 2 }));
    let beyond = arrivals.arrived_from(3, u64::MAX, 100);
    assert_eq!(beyond, Err(ArrivalError::NoSlot { slot: 4, slots: 4 }));
}
