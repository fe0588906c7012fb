//! Joining, leaving, and a publisher that is gone.

use std::time::Duration;

use fpga_frames::{DropReason, PublisherEvent};
use fpga_frames_subscriber::{Event, JoinError, StreamError, Subscriber};
use fpga_netmodel::Impairments;

use crate::bed::{Bed, Seen, TIMEOUT, options};

#[test]
fn subscriber_leaves_and_joins_again_as_same_node() {
    let mut bed = Bed::new(1, Impairments::default(), options());
    for incarnation in 1..=3 {
        let mut options = bed.options(10);
        options.incarnation = Some(incarnation);
        let mut subscriber = bed.try_join(&options).unwrap();
        let (mut seen, first) = (Seen::default(), bed.publisher.next_sequence().get());
        bed.publish();
        bed.until("the frame is read", |_| {
            seen.read(&mut subscriber);
            seen.frames == [first]
        });
        std::thread::scope(|scope| {
            let leaving = scope.spawn(move || subscriber.leave(TIMEOUT));
            bed.until("the subscriber has left", |_| leaving.is_finished());
            assert_eq!(leaving.join().unwrap().unwrap().frames, 1);
        });
        bed.until("the publisher has removed it", |publisher| publisher.subscribers().count() == 0);
    }
    let mut left = 0;
    while let Some(event) = bed.publisher.next_event() {
        left += u32::from(matches!(event, PublisherEvent::Dropped { reason: DropReason::Unsubscribed, .. }));
    }
    assert_eq!(left, 3);
}

/// A subscriber that ends without notice: the new one has another key, so that packets to the old window are refused.
#[test]
fn subscriber_replaces_one_that_ended_without_notice() {
    let mut bed = Bed::new(1, Impairments::default(), options());
    let mut options = bed.options(10);
    options.incarnation = Some(1);
    drop(bed.try_join(&options).unwrap());
    options.incarnation = Some(2);
    let mut subscriber = bed.try_join(&options).unwrap();
    let mut seen = Seen::default();
    bed.publish();
    bed.until("the frame is read", |_| {
        seen.read(&mut subscriber);
        seen.frames == [0]
    });
    let events = std::iter::from_fn(|| bed.publisher.next_event());
    let replaced = |event| matches!(event, PublisherEvent::Dropped { reason: DropReason::Replaced, .. });
    assert_eq!(events.map(replaced).filter(|replaced| *replaced).count(), 1);
}

/// A node whose clock was set back.
#[test]
fn subscriber_of_earlier_incarnation_is_reported_as_superseded() {
    let mut bed = Bed::new(1, Impairments::default(), options());
    let mut options = bed.options(10);
    for incarnation in [7, 6] {
        options.incarnation = Some(incarnation);
        let mut subscriber = bed.try_join(&options).unwrap();
        // One packet: acknowledgements of an earlier incarnation do not count, and would not open the congestion window.
        bed.publish_of(300);
        let (mut seen, first) = (Vec::new(), bed.publisher.next_sequence().get() - 1);
        let mut error = None;
        bed.until("the frame is read and its credit is answered", |publisher| {
            match subscriber.poll() {
                Ok(Some(Event::Frame(frame))) => seen.push(frame.sequence()),
                Ok(other) => assert!(other.is_none(), "{other:?}"),
                Err(reported) => error = Some(reported),
            }
            error.is_some() || (incarnation == 7 && publisher.subscribers().all(|view| view.room == 8))
        });
        let superseded = (incarnation == 6).then_some(StreamError::Superseded { newest: 7 });
        assert_eq!((seen, error), (vec![first], superseded));
        std::thread::scope(|scope| {
            let leaving = scope.spawn(move || subscriber.leave(TIMEOUT).map(|counts| counts.frames));
            bed.until("the subscriber has left", |_| leaving.is_finished());
            assert_eq!(leaving.join().unwrap(), Ok(1));
        });
    }
}

#[test]
fn publisher_gone_without_close_is_reported_after_its_frames() {
    let mut options = options();
    options.heartbeat = Duration::from_millis(20);
    let mut bed = Bed::new(1, Impairments::default(), options);
    let mut options = bed.options(10);
    options.max_silence = Duration::ZERO;
    let mut subscriber = bed.try_join(&options).unwrap();
    bed.publish();
    bed.until("the frame has arrived", |publisher| publisher.statistics().arrived == 1);
    drop(bed);
    let first = subscriber.next(TIMEOUT).unwrap();
    assert!(matches!(first, Some(Event::Frame(_))), "{first:?}");
    drop(first);
    let error = subscriber.next(TIMEOUT).unwrap_err();
    assert!(
        matches!(error, StreamError::Silent { silence } if silence >= Duration::from_millis(120)),
        "{error}"
    );
    assert_eq!(subscriber.leave(Duration::from_millis(1)), Err(StreamError::TimedOut));
}

#[test]
fn join_impossible_requests_are_refused_with_reason() {
    let mut limits = options();
    limits.subscribers = 1;
    let mut bed = Bed::new(1, Impairments::default(), limits);
    let mut wrong = bed.options(u32::MAX);
    assert!(matches!(bed.try_join(&wrong), Err(JoinError::Option { what: "node", .. })));
    wrong = bed.options(10);
    wrong.slots = 3;
    assert!(matches!(bed.try_join(&wrong), Err(JoinError::Option { what: "slots", .. })));
    wrong = bed.options(10);
    wrong.max_memory = 1000;
    assert!(matches!(bed.try_join(&wrong), Err(JoinError::Memory { needed: 320_768.., limit: 1000 })));
    // A UDP socket that does not answer.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    wrong = bed.options(10);
    (wrong.link, wrong.timeout) = (silent.local_addr().unwrap(), Duration::from_millis(100));
    assert!(matches!(bed.try_join(&wrong), Err(JoinError::NoLink { .. } | JoinError::Connection { .. })));
    let _first = bed.join(10);
    let full = bed.options(11);
    let error = bed.try_join(&full).unwrap_err();
    assert!(matches!(error, JoinError::Refused { reason: 4, .. }), "{error}");
    // A port without publisher.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = Subscriber::join(nobody, &bed.options(12));
    assert!(matches!(refused, Err(JoinError::Connection { .. })));
}
