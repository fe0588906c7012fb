//! Subscribers of frame streams.

use core::ffi::c_char;

use fpga_frames::{Event, JoinError, Joining, Subscriber, SubscriberError, SubscriberOptions};

use crate::call::{call, duration, read_options, set, write_struct};
use crate::code::Code as _;
use crate::error::Failure;
use crate::frames::{AnyFrame, address, c2h, endpoint_of, failed, local};
use crate::handle::{self, Kind, NO_HANDLE, Object};
use crate::layout::{c_struct, zeroed};
use crate::status::Status;
use crate::wait::{check_cancelled, waiting, with_wait};

c_struct! {
    /// Options of a subscriber. A member that is 0 stands for its default.
    CSubscriber = "fpga_subscriber_options" {
        slots: u32,
        missed_heartbeats: u32,
        patience_ns: u64,
        h2c_channel: u32,
        c2h_channel_plus_1: u32,
        max_silence_ns: u64,
    }
}

c_struct! {
    /// Event of a subscriber.
    CEvent = "fpga_frame_event" {
        kind: i32,
        reserved: u32,
        frame: u64,
        sequence: u64,
        missed: u64,
        time_ns: u64,
    }
}

c_struct! {
    /// Counters of a subscriber.
    CSubscriberState = "fpga_subscriber_state" {
        frames: u64,
        bytes: u64,
        gaps: u64,
        missed: u64,
        expected_sequence: u64,
        publisher_node: u32,
        joined: u32,
    }
}

/// Pause between two polls of a node that joins.
const JOIN_PAUSE: core::time::Duration = core::time::Duration::from_micros(50);

/// Kinds of events, as in the header.
const NOTHING: i32 = 0;
const JOINED: i32 = 1;
const FRAME: i32 = 2;
const GAP: i32 = 3;
const ENDED: i32 = 4;
const FAULT: i32 = 5;

/// Subscriber, or a node that joins.
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

/// Begins to join a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_open(
    endpoint: u64,
    publisher: *const c_char,
    options: *const CSubscriber,
    size: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        set(out, 0)?;
        let publisher = address(publisher)?;
        let given = read_options(options, size)?;
        let mut options = SubscriberOptions::default();
        options.h2c = crate::channel::number(given.h2c_channel)?;
        options.c2h = c2h(given.c2h_channel_plus_1)?;
        if given.slots != 0 {
            options.slots = given.slots;
        }
        if given.missed_heartbeats != 0 {
            options.missed_heartbeats = given.missed_heartbeats;
        }
        if given.max_silence_ns != 0 {
            options.max_silence = duration(given.max_silence_ns);
        }
        if given.patience_ns != 0 {
            options.patience = duration(given.patience_ns);
        }
        let joining = Subscriber::begin_join(endpoint_of(endpoint)?, publisher, options)?;
        set(out, handle::add(AnySubscriber::Joining(Box::new(joining)))?)
    })
}

/// Leaves a stream without notice.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_close(subscriber: u64) -> Status {
    call(|| Ok(handle::close::<AnySubscriber>(subscriber)?))
}

/// Leaves a stream and closes the handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_leave(subscriber: u64, timeout_ns: u64) -> Status {
    call(|| {
        let entered = handle::enter_to_close::<AnySubscriber>(subscriber)?;
        if let AnySubscriber::Joined(subscriber) = handle::take::<AnySubscriber>(subscriber, entered)? {
            waiting(NO_HANDLE, core::ptr::null(), || Ok(subscriber.leave(duration(timeout_ns))?))?;
        }
        Ok(())
    })
}

/// Polls once. Returns nothing, or an event as codes.
fn next(subscriber: &mut AnySubscriber) -> Result<Option<CEvent>, Failure> {
    let mut found = zeroed::<CEvent>();
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
                found.kind = JOINED;
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
                found.kind = FRAME;
                (found.sequence, found.time_ns) = (frame.sequence().get(), frame.time());
                found.frame = handle::add(AnyFrame::Received(frame))?;
            }
            Some(Event::Gap { missed, first }) => {
                found.kind = GAP;
                (found.sequence, found.missed) = (first.get(), missed);
            }
            Some(Event::Ended { next }) => {
                found.kind = ENDED;
                found.sequence = next.get();
            }
            Some(Event::Fault(error)) => {
                // The stream continues, so this is an event; its text is kept for the program.
                crate::error::record(Failure::of(Status::Peer, &error.to_string()));
                found.kind = FAULT;
            }
            Some(_) => return Ok(None),
        },
    }
    Ok(Some(found))
}

fn report(found: Option<CEvent>, event: *mut CEvent, size: usize) -> Result<(), Failure> {
    let mut nothing = zeroed::<CEvent>();
    nothing.kind = NOTHING;
    write_struct(event, size, &found.unwrap_or(nothing))
}

/// Clears the event of a caller.
///
/// # Errors
/// [`Status::Argument`] if it is null, or has no space for a frame: the frame would stay open, and its slot in use.
fn check_event(event: *mut CEvent, size: usize) -> Result<(), Failure> {
    if size < core::mem::offset_of!(CEvent, sequence) {
        return Err(Failure::argument("the event has no space for a frame; pass sizeof(fpga_frame_event)"));
    }
    report(None, event, size)
}

/// Returns the next event if there is one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_poll(subscriber: u64, event: *mut CEvent, size: usize) -> Status {
    call(|| {
        check_event(event, size)?;
        handle::with(subscriber, |subscriber: &mut AnySubscriber| report(next(subscriber)?, event, size))
    })
}

/// Waits for the next event.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_wait(
    subscriber: u64,
    timeout_ns: u64,
    event: *mut CEvent,
    size: usize,
) -> Status {
    call(|| {
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
                    _ => std::thread::sleep(JOIN_PAUSE),
                }
            }
        })
    })
}

/// Returns the state of a subscriber.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_get_state(
    subscriber: u64,
    state: *mut CSubscriberState,
    size: usize,
) -> Status {
    call(|| {
        handle::with(subscriber, |subscriber: &mut AnySubscriber| {
            let mut found = zeroed::<CSubscriberState>();
            if let AnySubscriber::Joined(joined) = subscriber {
                let counts = joined.counts();
                (found.frames, found.bytes) = (counts.frames, counts.bytes);
                (found.gaps, found.missed) = (counts.gaps, counts.missed);
                found.expected_sequence = joined.expected().get();
                (found.publisher_node, found.joined) = (joined.publisher().get(), 1);
            }
            write_struct(state, size, &found)
        })
    })
}
