//! Whoever does not look for a long time: what the card keeps for him meanwhile has an end, and afterwards he goes on.

use std::time::Duration;

use fpga_driver::core::Nanos;
use fpga_driver::endpoint::EndpointOptions;
use fpga_driver::mock::World;
use fpga_frames::{JoinError, Sequence, SubscriberOptions};

use crate::rig::{Rig, assert_whole, lossy, options};

/// So many events has a subscriber's card room for, at least.
fn ring(entries: u32) -> impl Fn(&mut EndpointOptions) {
    move |options| options.event_entries = entries
}

fn slots(slots: u32) -> SubscriberOptions {
    let mut options = SubscriberOptions::default();
    options.slots = slots;
    options
}

/// Two thousand heartbeats, which would be three events each, and a ring for 64: a quarter of an hour of them fits no ring.
#[test]
fn heartbeats_do_not_pile_up() {
    let mut options = options();
    options.heartbeat = Duration::from_millis(1);
    let mut rig = Rig::new(2, options);
    rig.try_join_with(0, slots(1), &ring(64)).unwrap();
    rig.stalled[0] = true;
    let began = rig.world.now();
    for _ in 0..2_000 {
        rig.world.advance(Nanos::from_millis(1));
        for _ in 0..40 {
            rig.turn();
        }
    }
    assert!(rig.world.now().saturating_sub(began) >= Nanos::from_millis(2_000));
    // It comes back to a stream that lives, and misses nothing of it.
    rig.stalled[0] = false;
    for round in 0..20 {
        rig.publish().unwrap();
        rig.until("both have it", |rig| rig.seen.iter().all(|seen| seen.frames.len() == round + 1));
        rig.until("and say so", |rig| rig.publisher.subscribers().all(|view| view.room == view.slots));
    }
    rig.close();
    rig.assert_no_faults();
    for seen in &rig.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(20));
        assert_eq!(seen.missed(), 0);
    }
}

/// Frames of many segments, each of which the card tells of: slots are full, packets get lost, and nobody looks.
#[test]
fn a_ring_that_is_just_large_enough() {
    let mut options = options();
    (options.data_room, options.heartbeat) = (200_000, Duration::from_millis(5));
    let mut rig = Rig::on(World::builder().impairments(lossy(0.02)).seed(11), 2, options);
    // 13 segments of 16 KiB: 30 events a frame, 4 slots, and the statuses: 138.
    let refused = rig.try_join_with(0, slots(4), &ring(256)).unwrap_err();
    let JoinError::EventRing { slots: 4, segments: 13, needed: 138, entries: 256, .. } = refused else {
        panic!("{refused}")
    };
    let said = refused.to_string();
    assert!(said.contains("fewer slots") && said.contains("more event entries"), "{said}");
    rig.try_join_with(0, slots(4), &ring(512)).unwrap();
    rig.stalled[0] = true;
    for _ in 0..100 {
        let _ = rig.publish();
        for _ in 0..3_000 {
            rig.turn();
        }
    }
    rig.stalled[0] = false;
    rig.close();
    rig.assert_no_faults();
    for seen in &rig.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(100));
    }
    assert_eq!((rig.seen[0].frames.len(), rig.seen[0].missed()), (4, 96));
}
