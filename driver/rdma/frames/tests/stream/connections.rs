//! Joins over connections of the program, in the endpoint's time.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use fpga_frames::{BootstrapError, JoinError, Joining, PublisherEvent, Subscriber};
use fpga_protocol::Nanos;

use crate::stream::bed::{TestBed, endpoint, options, subscriber_options};

/// Begins a join of node 1 over a connection of which the bed's publisher gets the other end if it `is_heard`.
fn begin(bed: &mut TestBed, incarnation: u32, is_heard: bool) -> (Joining, Option<UnixStream>) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let far = if is_heard {
        bed.publisher.accept(Box::new(far), bed.address);
        None
    } else {
        Some(far)
    };
    bed.subscribers[0] = None;
    let end = endpoint(&bed.network, 1, incarnation);
    let joining = Subscriber::begin_join_over(end, Box::new(near), bed.address, subscriber_options());
    (joining.unwrap(), far)
}

#[test]
fn join_over_program_connection_receives_frames() {
    let mut bed = TestBed::new(1, options());
    let (mut joining, _) = begin(&mut bed, 50, true);
    bed.seen[0] = crate::stream::bed::Seen::default();
    let limit = bed.network.now().saturating_add(Nanos::from_millis(100));
    bed.subscribers[0] = loop {
        bed.publisher.poll().unwrap();
        if let Some(subscriber) = joining.poll().unwrap() {
            break Some(subscriber);
        }
        assert!(bed.network.now() < limit);
        bed.network.advance(Nanos::from_micros(10));
    };
    let first = bed.publisher.next_sequence();
    bed.publish().unwrap();
    bed.until("the frame arrives", |bed| bed.seen[0].frames == [first.get()]);
    bed.assert_no_faults();
}

#[test]
fn join_over_program_connection_times_out_by_endpoint_clock() {
    let mut bed = TestBed::new(1, options());
    let (mut joining, _far) = begin(&mut bed, 50, false);
    let patience = subscriber_options().patience;
    bed.network.advance(Nanos::from(patience - Duration::from_millis(1)));
    assert!(joining.poll().unwrap().is_none());
    bed.network.advance(Nanos::from_millis(1));
    let error = joining.poll().unwrap_err();
    assert!(matches!(error, JoinError::Bootstrap(BootstrapError::TimedOut { .. })), "{error}");
}

#[test]
fn conversation_over_program_connection_times_out_by_endpoint_clock() {
    let mut bed = TestBed::new(1, options());
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    bed.publisher.accept(Box::new(far), bed.address);
    bed.publisher.poll().unwrap();
    let rejected = |bed: &mut TestBed, span: Duration| {
        bed.network.advance(Nanos::from(span));
        bed.publisher.poll().unwrap();
        let events = std::iter::from_fn(|| bed.publisher.next_event());
        events.filter(|event| matches!(event, PublisherEvent::Rejected { .. })).count()
    };
    let patience = options().patience;
    assert_eq!(rejected(&mut bed, patience - Duration::from_millis(5)), 0);
    assert_eq!(rejected(&mut bed, Duration::from_millis(5)), 1);
    drop(near);
}
