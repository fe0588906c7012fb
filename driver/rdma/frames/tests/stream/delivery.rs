//! Frames arrive whole and in order, and missing frames are counted.

use fpga_card::CardDescription;
use fpga_frames::{PublishError, Sequence, SubscriberOptions};
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;
use rand_core::Rng;

use crate::stream::bed::{TestBed, assert_whole, lossy, options};

#[test]
fn stalled_subscriber_of_eight_affects_no_other() {
    const FRAMES: u64 = 150;
    let mut bed = TestBed::new(8, options());
    bed.stalled[3] = true;
    for _ in 0..FRAMES {
        let slots = bed.publisher.geometry();
        assert_eq!(slots.max_value_length(), 12);
        let published = bed.publish().unwrap();
        assert_eq!(published.sent.len() + published.skipped.len(), 8);
        // The others read before the next frame: a subscriber that misses one now, misses it because of the stalled one.
        let all = published.sequence.next().get();
        bed.until("the other subscribers receive it", |bed| {
            (0..8).filter(|it| *it != 3).all(|it| bed.seen[it].frames.len() as u64 == all)
                && bed.publisher.subscribers().all(|view| view.node.get() == 5 || view.room == view.slots)
        });
    }
    let unread = u64::from(SubscriberOptions::default().slots);
    bed.stalled[3] = false;
    bed.until("the stalled subscriber has read its frames", |bed| bed.seen[3].frames.len() as u64 == unread);
    bed.until("all slots are returned", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
    bed.publish().unwrap();
    bed.until("the stalled subscriber receives the next frame", |bed| {
        bed.seen[3].frames.len() as u64 == unread + 1
    });
    assert_eq!(bed.seen[3].gaps, [(unread, FRAMES - unread)], "exactly the missed frames");
    bed.close();
    bed.assert_no_faults();
    for (number, seen) in bed.seen.iter().enumerate() {
        assert_whole(seen, Sequence::new(0), Sequence::new(FRAMES + 1));
        assert_eq!(seen.missed(), if number == 3 { FRAMES - unread } else { 0 });
    }
    let statistics = bed.publisher.statistics();
    assert_eq!((statistics.published, statistics.skipped), (FRAMES + 1, FRAMES - unread));
    assert_eq!((statistics.arrived, statistics.failed), (statistics.sent, 0));
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

/// The same at a fixed rate: the publisher waits for no subscriber, and ignores free slots. The clock is the network's, so that a busy
/// machine causes no misses.
#[test]
fn stalled_subscriber_of_eight_at_fixed_rate_affects_no_other() {
    const FRAMES: u64 = 500;
    let mut bed = TestBed::new(8, options());
    // The time of one frame to all eight is a rate that cards and network sustain sequentially, and therefore also in parallel.
    let began = bed.network.now();
    let first = 20;
    for number in 0..first {
        bed.publish().unwrap();
        bed.until("all subscribers receive it", |bed| {
            bed.seen.iter().all(|seen| seen.frames.len() as u64 == number + 1)
        });
    }
    bed.until("all slots are returned", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
    let period = bed.network.now().saturating_sub(began).get() / first;
    assert!(period > 0);
    bed.stalled[3] = true;
    let mut due = bed.network.now();
    for _ in 0..FRAMES {
        let published = bed.publish().unwrap();
        assert_eq!(published.sent.len() + published.skipped.len(), 8);
        due = due.saturating_add(Nanos::new(period));
        while bed.network.now() < due {
            bed.publisher.poll().unwrap();
            for number in (0..8).filter(|it| *it != 3) {
                // Each subscriber polls at random times.
                if bed.random.next_u32().is_multiple_of(4) {
                    bed.poll_subscriber(number);
                }
            }
            bed.publisher.relax();
        }
    }
    let slots = u64::from(SubscriberOptions::default().slots);
    bed.stalled[3] = false;
    bed.until("the stalled subscriber has read its frames", |bed| {
        bed.seen[3].frames.len() as u64 == first + slots
    });
    bed.until("all slots are returned", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
    bed.publish().unwrap();
    bed.until("the stalled subscriber receives the next frame", |bed| {
        bed.seen[3].frames.len() as u64 == first + slots + 1
    });
    assert_eq!(bed.seen[3].gaps, [(first + slots, FRAMES - slots)], "exactly the missed frames");
    bed.close();
    bed.assert_no_faults();
    for (number, seen) in bed.seen.iter().enumerate() {
        assert_whole(seen, Sequence::new(0), Sequence::new(first + FRAMES + 1));
        assert_eq!(seen.missed(), if number == 3 { FRAMES - slots } else { 0 }, "subscriber {number}");
    }
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

/// The last frames before the end are missing, and only the publisher's last status reports it.
#[test]
fn gap_at_end_of_stream_is_reported() {
    let mut bed = TestBed::new(1, options());
    bed.stalled[0] = true;
    let mut unsent = 0;
    for _ in 0..20 {
        match bed.publish() {
            Ok(published) => assert_eq!(published.skipped.len(), 0),
            Err(PublishError::NoFreeSlot { subscribers: 1, sequence }) => {
                assert_eq!(sequence, Sequence::new(8 + unsent), "an unsent frame also has a number");
                unsent += 1;
            }
            Err(error) => panic!("{error}"),
        }
        for _ in 0..200 {
            bed.turn();
        }
    }
    bed.close();
    assert_eq!((bed.seen[0].gaps.as_slice(), bed.seen[0].ended), (&[(8, 12)][..], Some(20)));
    assert_whole(&bed.seen[0], Sequence::new(0), Sequence::new(20));
}

/// Sequence numbers and positions reach the end of their ranges and continue at 0.
#[test]
fn counters_wrap_without_gap() {
    for (sequence, position) in [(u64::MAX - 20, u32::MAX - 30), (u64::MAX, u32::MAX), (u64::MAX - 60, 5)] {
        let mut options = options();
        options.first_sequence = Sequence::new(sequence);
        options.first_position = position;
        let mut bed = TestBed::on(SimNetwork::builder().impairments(lossy(0.02)).seed(5), 2, options);
        for round in 0..100 {
            bed.stalled[1] = round % 40 > 10;
            let _ = bed.publish();
            for _ in 0..300 {
                bed.turn();
            }
        }
        bed.close();
        bed.assert_no_faults();
        let next = Sequence::new(sequence.wrapping_add(100));
        for seen in &bed.seen {
            assert_whole(seen, Sequence::new(sequence), next);
            assert_eq!(seen.ended, Some(next.get()));
        }
        assert!(bed.seen[1].missed() > 0);
    }
}

/// Every number is accounted for while subscribers join and leave, and the network loses packets.
#[test]
fn joins_and_leaves_under_loss_account_for_every_frame() {
    let mut bed = TestBed::on(SimNetwork::builder().impairments(lossy(0.01)).seed(3), 4, options());
    let mut firsts = [0_u64; 4];
    for _ in 0..3_000 {
        let next = bed.publisher.next_sequence();
        let chance = bed.random.next_u32() % 400;
        let number = usize::try_from(bed.random.next_u32() % 4).unwrap();
        match chance {
            // Left without notice, and back: its node has joined again.
            0 | 1 => {
                assert_whole(
                    &bed.seen[number],
                    Sequence::new(firsts[number]),
                    bed.subscribers[number].as_ref().unwrap().expected(),
                );
                bed.seen[number] = crate::stream::bed::Seen::default();
                bed.join(number, SubscriberOptions::default());
                firsts[number] = bed.subscribers[number].as_ref().unwrap().expected().get();
                assert_eq!(firsts[number], next.get());
            }
            2..6 => bed.stalled[number] ^= true,
            _ => {}
        }
        let _ = bed.publish();
        for _ in 0..bed.random.next_u32() % 40 {
            bed.turn();
        }
    }
    bed.close();
    bed.assert_no_faults();
    for (seen, first) in bed.seen.iter().zip(firsts) {
        assert_whole(seen, Sequence::new(first), Sequence::new(3_000));
        assert!(!seen.frames.is_empty());
    }
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

/// The agreed number of bytes, though slots are rounded up to whole lines.
#[test]
fn frame_capacity_matches_negotiated_size() {
    let mut options = options();
    (options.max_data_length, options.max_value_length) = (100, 12);
    let mut bed = TestBed::new(1, options);
    let mut frame = bed.publisher.take().unwrap();
    assert_eq!((frame.data_mut().len(), frame.data().len()), (100, 100));
    let refused = frame.fill(&[0; 101]).unwrap_err().to_string();
    assert!(refused.contains("data of 101 bytes") && refused.contains("space for 100"), "{refused}");
    let refused = frame.set_value(&[0; 13]).unwrap_err().to_string();
    assert!(refused.contains("value of 13 bytes"), "{refused}");
}

/// Frames are filled in ordinary memory when all slots are busy, up to a bound; they arrive in order, and their memory is returned.
#[test]
fn take_all_slots_busy_uses_bounded_heap() {
    let mut options = options();
    (options.slots, options.heap_slots) = (2, 3);
    let mut bed = TestBed::new(1, options);
    let mut held = Vec::new();
    for taken in 0..5 {
        let frame = bed.publisher.take().unwrap();
        assert_eq!(frame.is_on_heap(), taken >= 2);
        held.push(frame);
    }
    let refused = bed.publisher.take().unwrap_err().to_string();
    assert!(refused.contains("2 slots and 3 frames"), "{refused}");
    // From the heap first, while both slots are held.
    for mut frame in held.drain(..).rev() {
        let number = bed.publisher.next_sequence().get();
        frame.fill(&[u8::try_from(number).unwrap(); 100]).unwrap();
        frame
            .set_value(&crate::stream::bed::checksum(number, &[u8::try_from(number).unwrap(); 100]))
            .unwrap();
        assert_eq!(bed.publisher.publish(frame).unwrap().sent.len(), 1);
    }
    bed.until("all frames arrive", |bed| bed.seen[0].frames == [0, 1, 2, 3, 4]);
    assert_eq!(bed.publisher.statistics().internal.heap_frames, 3);
    // On another thread, too.
    let frame = bed.publisher.take().unwrap();
    std::thread::spawn(move || drop(frame)).join().unwrap();
    bed.close();
    assert_eq!(bed.publisher.free_slots(), 2);
}

/// NIs that push no events: the endpoint fetches them by the first channel, and the stream uses the second one.
#[test]
fn stream_without_event_push_delivers() {
    let card = |node| {
        let mut description = CardDescription::default();
        (description.ni.event_push, description.ni.node_id) = (false, node);
        description
    };
    let network = SimNetwork::builder().impairments(lossy(0.02)).seed(3);
    let network = (1..=3).fold(network, |network, node| network.card(card(node))).build().unwrap();
    let mut bed = TestBed::of(network, 2, options());
    for round in 0..100 {
        bed.stalled[1] = round % 40 > 10;
        let _ = bed.publish();
        for _ in 0..300 {
            bed.turn();
        }
    }
    bed.close();
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(100));
    }
    assert!(bed.seen[0].frames.len() > 80 && bed.seen[1].missed() > 0, "{:?}", bed.seen);
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

/// Frames that are read one by one: one credit for half of the slots, and one for the rest half a millisecond after the last frame.
#[test]
fn credit_covers_several_frames() {
    let mut bed = TestBed::new(1, options());
    let credits = |bed: &TestBed| bed.subscribers[0].as_ref().unwrap().counts().credits;
    let before = credits(&bed);
    for round in 0..66 {
        assert_eq!(bed.publish().unwrap().sent.len(), 1);
        bed.until("the frame is read", |bed| bed.seen[0].frames.len() == round + 1);
    }
    let made = credits(&bed) - before;
    assert!((16..=20).contains(&made), "{made} credits for 66 frames in 8 slots");
    let began = bed.network.now();
    bed.until("all slots are returned", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
    let waited = bed.network.now().saturating_sub(began);
    assert!((Nanos::from_micros(100)..Nanos::from_millis(1)).contains(&waited), "{waited:?}");
    bed.close();
}
