//! End of streams, and publishers and subscribers that leave.

use fpga_driver::Advice;
use std::time::Duration;

use fpga_frames::{
    DropReason, Event, PublishError, PublisherError, PublisherEvent, PublisherOptions, Sequence, Subscriber,
    SubscriberError, SubscriberOptions, TakeError,
};
use fpga_netmodel::{Blackout, Impairments};
use fpga_protocol::Nanos;
use fpga_sim::{CardFailure, SimNetwork, SimNetworkBuilder};

use crate::stream::bed::{TestBed, assert_whole, options};

fn gone(bed: &mut TestBed) -> Vec<DropReason> {
    let reason = |event| match event {
        PublisherEvent::Dropped { reason, .. } => Some(reason),
        _ => None,
    };
    std::iter::from_fn(|| bed.publisher.next_event()).filter_map(reason).collect()
}

/// Accepted frames arrive, without a poll between the frames and the end.
#[test]
fn close_delivers_accepted_frames() {
    let mut bed = TestBed::new(3, options());
    for _ in 0..8 {
        assert_eq!(bed.publish().unwrap().sent.len(), 3);
    }
    let held = bed.publisher.take().unwrap();
    bed.publisher.begin_close();
    assert!(matches!(bed.publisher.publish(held), Err(PublishError::Closing)));
    assert!(matches!(bed.publisher.take(), Err(TakeError::Closing)));
    bed.close();
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(8));
        assert_eq!((seen.frames.len(), seen.ended), (8, Some(8)));
    }
    // The publisher is gone, and its last status stays valid.
    let mut last = bed.subscribers.remove(0).unwrap();
    drop(bed.publisher);
    assert!(matches!(last.poll(), Ok(Some(Event::Ended { next })) if next == Sequence::new(8)));
}

#[test]
fn subscriber_leave_is_reported() {
    let mut bed = TestBed::new(2, options());
    bed.publish().unwrap();
    bed.until("both subscribers receive it", |bed| bed.seen.iter().all(|seen| seen.frames.len() == 1));
    let leaving = bed.subscribers[0].take().unwrap();
    // `leave` waits for the publisher, so it runs in a thread of its own while this one polls the publisher.
    let left = std::thread::scope(|scope| {
        let left = scope.spawn(move || leaving.leave(Duration::from_secs(20)));
        while !left.is_finished() {
            bed.turn();
        }
        left.join().unwrap().unwrap()
    });
    assert_eq!(left.frames, 1);
    bed.until("the subscriber has left", |bed| bed.publisher.subscribers().count() == 1);
    assert_eq!(gone(&mut bed), [DropReason::Unsubscribed]);
    assert_eq!(bed.publish().unwrap().sent.len(), 1);
    // It joins again, and gets the next frame.
    bed.join(0, SubscriberOptions::default());
    bed.publish().unwrap();
    bed.until("the remaining subscriber receives it", |bed| bed.seen[0].frames == [0, 2]);
    bed.close();
}

/// A subscriber that has left without notice: frames for it fail, it is dropped and reported, and the others miss nothing.
#[test]
fn subscriber_unreachable_is_dropped() {
    let mut bed = TestBed::new(3, options());
    for _ in 0..60 {
        if bed.publisher.next_sequence() == Sequence::new(20) {
            bed.subscribers[1] = None;
        }
        bed.publish().unwrap();
        for _ in 0..400 {
            bed.turn();
        }
    }
    bed.until("the subscriber is dropped", |bed| bed.publisher.subscribers().count() == 2);
    assert!(matches!(gone(&mut bed)[..], [DropReason::Unreachable { .. }]));
    bed.close();
    bed.assert_no_faults();
    for number in [0, 2] {
        assert_whole(&bed.seen[number], Sequence::new(0), Sequence::new(60));
        assert_eq!(bed.seen[number].missed(), 0);
    }
    assert_eq!(bed.publisher.free_slots(), 16, "no slot is leaked");
}

/// Silence of a publisher that ends without notice is reported; frames that arrived before are read first.
#[test]
fn publisher_silent_is_reported_after_received_frames() {
    let mut bed = TestBed::new(1, options());
    bed.publish().unwrap();
    for _ in 0..2_000 {
        bed.publisher.poll().unwrap();
        bed.network.step();
    }
    let TestBed { publisher, mut subscribers, network, .. } = bed;
    drop(publisher);
    let mut left: Subscriber = subscribers.remove(0).unwrap();
    assert!(matches!(left.wait(Duration::from_secs(60)), Ok(Event::Frame(_))));
    let error = left.wait(Duration::from_secs(60)).unwrap_err();
    assert!(
        matches!(error, SubscriberError::Silent { .. } | SubscriberError::Unreachable { .. }),
        "{error}: {network:?}"
    );
    assert_eq!(error.advice(), Some(Advice::text("join the stream again")), "{error}");
}

/// A process that was stopped for longer than a publisher may be silent has itself missed the messages: it continues.
#[test]
fn subscriber_own_pause_is_not_publisher_silence() {
    let mut options = options();
    options.heartbeat = Duration::from_millis(1);
    let mut bed = TestBed::new(1, options);
    let limit = SubscriberOptions::default().missed_heartbeats;
    for round in 0..20_usize {
        // Nothing runs meanwhile, not even the subscriber's card.
        bed.network.advance(Nanos::from_millis(2 * u64::from(limit)));
        bed.poll_subscriber(0);
        assert_eq!(bed.seen[0].faults, [""; 0], "round {round}");
        bed.publish().unwrap();
        bed.until("the frame arrives", |bed| bed.seen[0].frames.len() == round + 1);
    }
    bed.close();
    bed.assert_no_faults();
}

/// Network that loses everything from one second on, for `length`.
fn interrupted(length: Nanos) -> SimNetworkBuilder {
    let mut impairments = Impairments::default();
    impairments.blackouts.push(Blackout { from: Nanos::from_millis(1_000), length });
    SimNetwork::builder().impairments(impairments)
}

/// Lets 100 ms pass, a fifth of a heartbeat, in which both sides work.
fn pass(bed: &mut TestBed) {
    bed.network.advance(Nanos::from_millis(100));
    for _ in 0..40 {
        bed.turn();
    }
}

/// A machine that is too busy to run one of the programs looks like this to the other one: no message for many heartbeats, and many failed
/// transfers and credits.
#[test]
fn interruption_of_seconds_ends_no_subscription() {
    let mut options = options();
    options.max_silence = PublisherOptions::default().max_silence;
    let mut bed = TestBed::on(interrupted(Nanos::from_millis(15_000)), 2, options);
    (0..2).for_each(|number| bed.join(number, SubscriberOptions::default()));
    let _ = gone(&mut bed);
    while bed.network.now() < Nanos::from_millis(17_000) {
        // Skipped once nothing of the frames in the slots was returned.
        let _ = bed.publish();
        pass(&mut bed);
    }
    assert!(bed.publisher.statistics().failed > 8, "{:?}", bed.publisher.statistics());
    assert_eq!((gone(&mut bed), bed.publisher.subscribers().count()), (vec![], 2));
    let last = bed.publish().unwrap();
    assert_eq!(last.sent.len(), 2);
    bed.close();
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), bed.publisher.next_sequence());
        assert_eq!(seen.frames.last(), Some(&last.sequence.get()));
    }
}

#[test]
fn interruption_longer_than_max_silence_is_reported_by_both_sides() {
    const LIMIT: Duration = Duration::from_secs(7);
    let mut options = options();
    options.max_silence = LIMIT;
    let mut bed = TestBed::on(interrupted(Nanos::from_millis(100_000)), 1, options);
    let mut options = SubscriberOptions::default();
    options.max_silence = LIMIT;
    bed.join(0, options);
    let mut subscriber = bed.subscribers[0].take().unwrap();
    let mut error = None;
    while bed.network.now() < Nanos::from_millis(20_000) {
        pass(&mut bed);
        error = error.or(subscriber.poll().err());
    }
    match error {
        // The last message was sent at most a heartbeat before the interruption.
        Some(SubscriberError::Silent { silence, .. }) => {
            assert!((LIMIT..2 * LIMIT).contains(&silence), "{silence:?}")
        }
        other => panic!("{other:?}"),
    }
    let events = std::iter::from_fn(|| bed.publisher.next_event());
    let dropped = events.filter(|event| matches!(event, PublisherEvent::Dropped { .. })).collect::<Vec<_>>();
    let [.., PublisherEvent::Dropped { reason: DropReason::Unreachable { .. }, .. }] = &dropped[..] else {
        panic!("{dropped:?}")
    };
    assert_eq!(bed.publisher.subscribers().count(), 0);
}

/// Closing has a time limit: an unreachable node cannot delay it for ever.
#[test]
fn close_unreachable_network_ends_at_timeout() {
    let mut bed = TestBed::new(1, options());
    bed.publish().unwrap();
    assert!(bed.network.fail(1, CardFailure::Gone));
    let TestBed { publisher, .. } = bed;
    match publisher.close(Duration::from_micros(100)) {
        Err(PublisherError::TimedOut { frames: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
}
