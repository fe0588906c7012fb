//! Failing channels between host and card: a single failure only costs time; a persistent one ends the publisher or subscriber that needs
//! the channel, with the failure as its error.

use fpga_card::{FaultPlan, InjectedFault, PlannedFault, fault_plan::ChannelName};
use fpga_frames::{LocalError, PublisherError, PublisherEvent, RetriedTransfer, Sequence, SubscriberError};
use fpga_protocol::Nanos;
use fpga_registers::xdma::StatusError;

use crate::stream::bed::{TestBed, assert_whole, options};

/// Fault of the channel by which the publisher reads credits, and a subscriber reads frames and statuses.
const C2H_FAILURE: (ChannelName, StatusError) = (ChannelName::C2h(0), StatusError::CardReadSlave);
/// Fault of the channel by which the publisher writes frames and statuses, and a subscriber writes its credit.
const H2C_FAILURE: (ChannelName, StatusError) = (ChannelName::H2c(0), StatusError::CardWriteSlave);

/// Makes the next `times` descriptors of a card's channel fail, or all of them.
fn fail(bed: &TestBed, card: usize, (channel, error): (ChannelName, StatusError), times: Option<u64>) {
    let fault = PlannedFault::new(InjectedFault::StatusError { channel: Some(channel), error });
    let fault = times.map_or_else(|| fault.clone().always(), |times| fault.clone().times(times));
    bed.network.with_card(card, |card| card.set_fault_plan(&FaultPlan::new(1).with(fault))).unwrap();
}

fn events(bed: &mut TestBed) -> Vec<PublisherEvent> {
    let joined = |event: &PublisherEvent| matches!(event, PublisherEvent::Joined { .. });
    std::iter::from_fn(|| bed.publisher.next_event()).filter(|event| !joined(event)).collect()
}

fn have_all(bed: &mut TestBed, count: usize) {
    bed.until("all subscribers receive all frames", |bed| {
        bed.seen.iter().all(|seen| seen.frames.len() == count)
    });
    bed.until("all slots are returned", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
}

fn end(mut bed: TestBed, frames: u64) {
    bed.close();
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), Sequence::new(frames));
        assert_eq!(seen.missed(), 0);
    }
}

/// Fails as often as is permitted, and again after each successful fetch.
#[test]
fn credit_fetch_failed_is_retried() {
    let mut bed = TestBed::new(3, options());
    for round in 0..3 {
        fail(&bed, 0, C2H_FAILURE, Some(3));
        for _ in 0..4 {
            bed.publish().unwrap();
        }
        have_all(&mut bed, 4 * (round + 1));
        let events = events(&mut bed);
        assert_eq!(events.len(), 3, "{events:?}");
        for event in events {
            let PublisherEvent::Fault { what: RetriedTransfer::Credits, fault } = event else {
                panic!("{event:?}")
            };
            assert!(format!("{fault:#}").contains("can be used again"), "{fault:#}");
        }
    }
    assert_eq!(bed.publisher.statistics().internal.faults, 9);
    end(bed, 12);
}

#[test]
fn publisher_repeated_credit_fetch_failure_ends_with_error() {
    let mut bed = TestBed::new(2, options());
    fail(&bed, 0, C2H_FAILURE, None);
    bed.publish().unwrap();
    let began = bed.network.now();
    let error = loop {
        match bed.publisher.poll() {
            Ok(_) => {}
            Err(error) => break error,
        }
        (0..2).for_each(|number| bed.poll_subscriber(number));
        bed.network.advance(Nanos::from_micros(100));
    };
    let PublisherError::Local(LocalError::Fault { what: RetriedTransfer::Credits, failures: 4, .. }) = &error
    else {
        panic!("{error}")
    };
    let text = error.to_string();
    assert!(text.contains("the transfer of credits between host and card failed 4 times"), "{text}");
    // It has persisted for some time: immediate repetitions alone are not counted as persistent.
    assert!(bed.network.now().saturating_sub(began) >= Nanos::from_millis(60));
    assert_eq!(events(&mut bed).len(), 3);
    // Frames that had been sent have arrived.
    assert!(bed.seen.iter().all(|seen| seen.frames == [0]));
}

/// Eight statuses in one run, of which the first fails and the others with it, count as one failure, not eight.
#[test]
fn status_run_failure_counts_once() {
    let mut bed = TestBed::new(8, options());
    for _ in 0..4 {
        bed.publish().unwrap();
    }
    have_all(&mut bed, 4);
    fail(&bed, 0, H2C_FAILURE, Some(1));
    bed.network.advance(Nanos::from_millis(600));
    bed.until("the upload of a status fails", |bed| bed.publisher.statistics().internal.faults == 1);
    assert_eq!(bed.publisher.statistics().internal.resent, 8);
    let events = events(&mut bed);
    assert!(
        matches!(events[..], [PublisherEvent::Fault { what: RetriedTransfer::Status, .. }]),
        "{events:?}"
    );
    end(bed, 4);
}

/// A frame whose upload into the card fails is reported by number.
#[test]
fn frame_upload_failed_is_reported() {
    let mut bed = TestBed::new(2, options());
    bed.publish().unwrap();
    have_all(&mut bed, 1);
    fail(&bed, 0, H2C_FAILURE, Some(1));
    bed.publish().unwrap();
    bed.until("the upload is lost", |bed| bed.publisher.statistics().internal.lost_uploads == 1);
    let events = events(&mut bed);
    let [PublisherEvent::UploadFailed { sequence, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*sequence, Sequence::new(1));
    bed.publish().unwrap();
    bed.close();
    for seen in &bed.seen {
        assert_eq!((&seen.frames[..], &seen.gaps[..]), (&[0, 2][..], &[(1, 1)][..]));
    }
}

/// Frames whose fetch from a subscriber's card fails stay in place, and arrive in order.
#[test]
fn frame_fetch_failed_is_retried_in_order() {
    let mut bed = TestBed::new(2, options());
    for round in 0..5 {
        bed.stalled[0] = true;
        for _ in 0..6 {
            bed.publish().unwrap();
        }
        bed.until("all frames arrive", |bed| bed.publisher.statistics().arrived == 12 * (round + 1));
        // All of them in one run.
        fail(&bed, 1, C2H_FAILURE, Some(3));
        bed.stalled[0] = false;
        have_all(&mut bed, usize::try_from(6 * (round + 1)).unwrap());
        let counts = bed.subscribers[0].as_ref().unwrap().counts();
        assert_eq!(counts.internal.faults, 3 * (round + 1));
    }
    end(bed, 30);
}

#[test]
fn credit_send_failed_is_retried() {
    let mut bed = TestBed::new(2, options());
    for round in 0..3 {
        fail(&bed, 1, H2C_FAILURE, Some(2));
        for _ in 0..8 {
            bed.publish().unwrap();
        }
        have_all(&mut bed, 8 * (round + 1));
    }
    let counts = bed.subscribers[0].as_ref().unwrap().counts();
    assert_eq!(counts.internal.faults, 6);
    end(bed, 24);
}

#[test]
fn subscriber_repeated_channel_failure_ends_with_error() {
    for (channel, expected) in
        [(C2H_FAILURE, RetriedTransfer::Frames), (H2C_FAILURE, RetriedTransfer::Credits)]
    {
        let mut bed = TestBed::new(2, options());
        bed.publish().unwrap();
        have_all(&mut bed, 1);
        let mut lame = bed.subscribers[0].take().unwrap();
        fail(&bed, 1, channel, None);
        bed.publish().unwrap();
        let error = loop {
            match lame.poll() {
                Ok(_) => {}
                Err(error) => break error,
            }
            bed.turn();
            bed.network.advance(Nanos::from_micros(100));
        };
        let SubscriberError::Local(LocalError::Fault { what, failures: 4, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*what, expected);
        drop(lame);
        // The other subscriber is not affected.
        bed.until("the other subscriber receives all frames", |bed| bed.seen[1].frames.len() == 2);
    }
}
