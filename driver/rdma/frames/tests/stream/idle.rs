//! Subscriber that does not poll for a long time: the card keeps a bounded number of events for it, and afterwards it continues.

use fpga_driver::Advice;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fpga_frames::{Event, JoinError, Sequence, SubscriberOptions};
use fpga_protocol::Nanos;
use fpga_rdma::EndpointOptions;
use fpga_sim::SimNetwork;

use crate::stream::bed::{TestBed, assert_whole, lossy, options};

/// Event ring of a subscriber's card with at least this number of entries.
fn ring(entries: u32) -> impl Fn(&mut EndpointOptions) {
    move |options| options.event_entries = entries
}

fn slots(slots: u32) -> SubscriberOptions {
    let mut options = SubscriberOptions::default();
    options.slots = slots;
    options
}

/// Two thousand heartbeats, which would be three events each, and a ring for 64 entries, which the events of a quarter of an hour would
/// overflow. The status numbers wrap, at the subscriber that reads them and at the one that does not.
#[test]
fn heartbeats_unread_do_not_fill_event_ring() {
    for first_status in [u32::MAX - 1_000, u32::MAX] {
        heartbeats_from(first_status);
    }
}

fn heartbeats_from(first_status: u32) {
    let mut options = options();
    (options.heartbeat, options.first_status) = (Duration::from_millis(1), first_status);
    let mut bed = TestBed::new(2, options);
    bed.try_join_with(0, slots(1), &ring(64)).unwrap();
    bed.stalled[0] = true;
    let began = bed.network.now();
    for _ in 0..2_000 {
        bed.network.advance(Nanos::from_millis(1));
        for _ in 0..40 {
            bed.turn();
        }
    }
    assert!(bed.network.now().saturating_sub(began) >= Nanos::from_millis(2_000));
    // It returns to a live stream, and misses nothing of it.
    bed.stalled[0] = false;
    for round in 0..20 {
        bed.publish().unwrap();
        bed.until("both subscribers receive it", |bed| {
            bed.seen.iter().all(|seen| seen.frames.len() == round + 1)
        });
        bed.until("all slots are returned", |bed| {
            bed.publisher.subscribers().all(|view| view.room == view.slots)
        });
    }
    bed.close();
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(20));
        assert_eq!(seen.missed(), 0);
    }
}

/// Frames of many segments, each of which causes events at the card: slots are full, packets are lost, and no program polls.
#[test]
fn event_ring_minimum_size_loses_nothing() {
    const FRAMES: u64 = 50;
    let mut options = options();
    (options.max_data_length, options.heartbeat) = (200_000, Duration::from_millis(5));
    let mut bed = TestBed::on(SimNetwork::builder().impairments(lossy(0.02)).seed(11), 2, options);
    // 13 segments of 16 KiB: 30 events a frame, 4 slots, and the statuses: 138.
    let refused = bed.try_join_with(0, slots(4), &ring(256)).unwrap_err();
    let JoinError::EventRing { slots: 4, segments: 13, needed: 138, entries: 256, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(refused.advice(), Some(Advice::FewerSlotsOrLargerEventRing), "{refused}");
    bed.try_join_with(0, slots(4), &ring(512)).unwrap();
    bed.stalled[0] = true;
    for _ in 0..FRAMES {
        let _ = bed.publish();
        for _ in 0..3_000 {
            bed.turn();
        }
    }
    bed.stalled[0] = false;
    bed.close();
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(FRAMES));
    }
    assert_eq!((bed.seen[0].frames.len(), bed.seen[0].missed()), (4, FRAMES - 4));
}

/// Executor that counts how often it is asked to poll.
#[derive(Debug, Default)]
struct Asked(AtomicU64);

impl Wake for Asked {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A future that is awaited costs no more polls than a wait: some at first, and then one in a twentieth of a millisecond.
#[test]
fn subscriber_future_backs_off_like_wait() {
    const SPAN: u64 = 100;
    let mut options = options();
    options.heartbeat = Duration::from_secs(3600);
    let mut bed = TestBed::new(1, options);
    let mut subscriber = bed.subscribers[0].take().unwrap();
    let asked = Arc::new(Asked::default());
    let waker = Waker::from(Arc::clone(&asked));
    let mut context = Context::from_waker(&waker);
    let (began, mut polls) = (bed.network.now(), 0);
    {
        let mut event = pin!(subscriber.event());
        while bed.network.now().saturating_sub(began) < Nanos::from_millis(SPAN) {
            assert!(event.as_mut().poll(&mut context).is_pending());
            polls += 1;
            assert_eq!(asked.0.load(Ordering::Relaxed), polls, "the future requests its next poll");
        }
    }
    // Two hundred polls before it sleeps; the count restarts with the last event of joining.
    assert!((SPAN * 20..=SPAN * 20 + 2 * 200).contains(&polls), "{polls} polls in {SPAN} ms");
    // Dropping it has taken no event; another future gets the frame.
    bed.publish().unwrap();
    let mut event = pin!(subscriber.event());
    let frame = loop {
        bed.publisher.poll().unwrap();
        if let Poll::Ready(event) = event.as_mut().poll(&mut context) {
            break event.unwrap();
        }
    };
    assert!(matches!(frame, Event::Frame(frame) if frame.sequence() == Sequence::new(0)));
}
