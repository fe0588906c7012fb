//! Subscribers of frame streams.

use core::ffi::c_char;

use fpga_frames::{Event, JoinError, Joining, Subscriber, SubscriberError, SubscriberOptions};

use crate::abi::{
    FPGA_EVENT_ENDED, FPGA_EVENT_FAULT, FPGA_EVENT_FRAME, FPGA_EVENT_GAP, FPGA_EVENT_JOINED, Status,
    fpga_frame_event, fpga_subscriber_options, fpga_subscriber_state, zeroed,
};
use crate::call::{duration, read_options, set, set_option, set_time, write_struct};
use crate::code::StatusCode as _;
use crate::error::Failure;
use crate::frames::{AnyFrame, address, c2h, endpoint_of, failed, local};
use crate::handle::{self, Kind, NO_HANDLE, Object};
use crate::wait::{check_cancelled, waiting, with_wait};

/// Interval between two polls while joining.
const JOIN_POLL_INTERVAL: core::time::Duration = core::time::Duration::from_micros(50);

/// Subscriber, or an attempt to join a stream.
pub(crate) enum AnySubscriber {
    Joining(Box<Joining>),
    Joined(Box<Subscriber>),
    /// Joining has failed.
    Failed,
}

// SAFETY: the only type of this kind.
unsafe impl Object for AnySubscriber {
    const KIND: Kind = Kind::Subscriber;
}

fn subscriber_status(error: &SubscriberError) -> Status {
    match error {
        SubscriberError::Local(error) => local(error),
        SubscriberError::Send(error) => error.kind.status(),
        SubscriberError::Unreachable { .. } | SubscriberError::Silent { .. } => Status::Peer,
        SubscriberError::TimedOut { .. } => Status::TimedOut,
        _ => Status::Internal,
    }
}

impl From<SubscriberError> for Failure {
    fn from(error: SubscriberError) -> Self {
        failed(subscriber_status(&error), &error, error.advice().as_ref())
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        let status = match &error {
            JoinError::Bootstrap(_) | JoinError::Offer { .. } => Status::Peer,
            JoinError::Geometry { .. } => Status::NoMemory,
            JoinError::EventRing { .. } => Status::Argument,
            JoinError::Subscriber(error) => subscriber_status(error),
            _ => Status::Internal,
        };
        failed(status, &error, error.advice().as_ref())
    }
}

pub(crate) fn fpga_subscriber_open(
    endpoint: u64,
    publisher: *const c_char,
    options: *const fpga_subscriber_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let publisher = address(publisher)?;
    let options = read_options(options, size)?;
    let mut subscriber_options = SubscriberOptions::default();
    subscriber_options.h2c = crate::channel::number(options.h2c_channel)?;
    subscriber_options.c2h = c2h(options.c2h_channel_plus_1)?;
    set_option(&mut subscriber_options.slots, options.slots);
    set_option(&mut subscriber_options.missed_heartbeats, options.missed_heartbeats);
    set_time(&mut subscriber_options.max_silence, options.max_silence_ns);
    set_time(&mut subscriber_options.patience, options.patience_ns);
    let joining = Subscriber::begin_join(endpoint_of(endpoint)?, publisher, subscriber_options)?;
    set(out, handle::add(AnySubscriber::Joining(Box::new(joining)))?)
}

pub(crate) fn fpga_subscriber_close(subscriber: u64) -> Result<(), Failure> {
    Ok(handle::close::<AnySubscriber>(subscriber)?)
}

pub(crate) fn fpga_subscriber_leave(subscriber: u64, timeout_ns: u64) -> Result<(), Failure> {
    let entered = handle::enter_to_close::<AnySubscriber>(subscriber)?;
    if let AnySubscriber::Joined(subscriber) = handle::take::<AnySubscriber>(subscriber, entered)? {
        waiting(NO_HANDLE, core::ptr::null(), || Ok(subscriber.leave(duration(timeout_ns))?))?;
    }
    Ok(())
}

/// Polls once, and converts the event.
fn next(subscriber: &mut AnySubscriber) -> Result<Option<fpga_frame_event>, Failure> {
    let mut found = zeroed::<fpga_frame_event>();
    match subscriber {
        AnySubscriber::Failed => {
            return Err(Failure::of(Status::Stopped, "joining the stream has failed; close the handle"));
        }
        AnySubscriber::Joining(joining) => match joining.poll() {
            Ok(None) => {
                joining.relax();
                return Ok(None);
            }
            Ok(Some(joined)) => {
                found.kind = FPGA_EVENT_JOINED;
                found.sequence = joined.expected().get();
                *subscriber = AnySubscriber::Joined(Box::new(joined));
            }
            Err(error) => {
                *subscriber = AnySubscriber::Failed;
                return Err(error.into());
            }
        },
        AnySubscriber::Joined(joined) => match joined.poll()? {
            None => {
                joined.relax();
                return Ok(None);
            }
            Some(Event::Frame(frame)) => {
                found.kind = FPGA_EVENT_FRAME;
                (found.sequence, found.time_ns) = (frame.sequence().get(), frame.time());
                found.frame = handle::add(AnyFrame::Received(frame))?;
            }
            Some(Event::Gap { missed, first }) => {
                found.kind = FPGA_EVENT_GAP;
                (found.sequence, found.missed) = (first.get(), missed);
            }
            Some(Event::Ended { next }) => {
                found.kind = FPGA_EVENT_ENDED;
                found.sequence = next.get();
            }
            Some(Event::Fault(error)) => {
                // The stream continues, so this is an event; its text is kept for the program.
                crate::error::record(Failure::of(Status::Peer, &error.to_string()));
                found.kind = FPGA_EVENT_FAULT;
            }
            Some(_) => return Ok(None),
        },
    }
    Ok(Some(found))
}

fn report(found: Option<fpga_frame_event>, event: *mut fpga_frame_event, size: usize) -> Result<(), Failure> {
    write_struct(event, size, &found.unwrap_or_else(zeroed))
}

/// Clears the caller's event.
///
/// # Errors
/// [`Status::Argument`] if it is null, or has no space for a frame: the frame would stay open, and its slot would stay in use.
fn check_event(event: *mut fpga_frame_event, size: usize) -> Result<(), Failure> {
    if size < core::mem::offset_of!(fpga_frame_event, sequence) {
        return Err(Failure::argument("the event has no space for a frame; pass sizeof(fpga_frame_event)"));
    }
    report(None, event, size)
}

pub(crate) fn fpga_subscriber_poll(
    subscriber: u64,
    event: *mut fpga_frame_event,
    size: usize,
) -> Result<(), Failure> {
    check_event(event, size)?;
    handle::with(subscriber, |subscriber: &mut AnySubscriber| report(next(subscriber)?, event, size))
}

pub(crate) fn fpga_subscriber_wait(
    subscriber: u64,
    timeout_ns: u64,
    event: *mut fpga_frame_event,
    size: usize,
) -> Result<(), Failure> {
    check_event(event, size)?;
    let (began, limit) = (std::time::Instant::now(), duration(timeout_ns));
    with_wait(subscriber, core::ptr::null(), |subscriber: &mut AnySubscriber| {
        loop {
            if let Some(found) = next(subscriber)? {
                return report(Some(found), event, size);
            }
            check_cancelled()?;
            if began.elapsed() >= limit {
                return Err(Failure::of(Status::TimedOut, "the stream has no event within this time")
                    .advise("wait longer, or check that the publisher is polled"));
            }
            match subscriber {
                AnySubscriber::Joined(joined) => joined.back_off(),
                _ => std::thread::sleep(JOIN_POLL_INTERVAL),
            }
        }
    })
}

pub(crate) fn fpga_subscriber_get_state(
    subscriber: u64,
    state: *mut fpga_subscriber_state,
    size: usize,
) -> Result<(), Failure> {
    handle::with(subscriber, |subscriber: &mut AnySubscriber| {
        let mut found = zeroed::<fpga_subscriber_state>();
        if let AnySubscriber::Joined(joined) = subscriber {
            let counts = joined.counts();
            (found.frames, found.bytes) = (counts.frames, counts.bytes);
            (found.gaps, found.missed) = (counts.gaps, counts.missed);
            found.expected_sequence = joined.expected().get();
            (found.publisher_node, found.joined) = (joined.publisher().get(), 1);
        }
        write_struct(state, size, &found)
    })
}
