//! Publishers of frame streams.

use core::ffi::c_char;

use fpga_frames::{PublishError, Publisher, PublisherError, PublisherEvent, PublisherOptions, TakeError};

use crate::call::{call, copy_text, duration, read_options, set, set_if, write_struct};
use crate::error::Failure;
use crate::frames::{AnyFrame, address, c2h, endpoint_of, failed, local};
use crate::handle::{self, Kind, NO_HANDLE, Object};
use crate::layout::{c_struct, zeroed};
use crate::status::Status;
use crate::wait::waiting;

c_struct! {
    /// Options of a publisher. A member that is 0 stands for its default.
    CPublisher = "fpga_publisher_options" {
        max_data_length: u64,
        max_value_length: u32,
        slots: u32,
        heap_slots: u32,
        subscribers: u32,
        heartbeat_ns: u64,
        first_sequence: u64,
        h2c_channel: u32,
        c2h_channel_plus_1: u32,
        max_silence_ns: u64,
    }
}

c_struct! {
    /// State and counters of a publisher.
    CPublisherState = "fpga_publisher_state" {
        published: u64,
        unsent: u64,
        sent: u64,
        skipped: u64,
        arrived: u64,
        failed: u64,
        next_sequence: u64,
        subscribers: u32,
        free_slots: u32,
        closed: u32,
        node: u32,
    }
}

c_struct! {
    /// Event of a publisher.
    CPublisherEvent = "fpga_publisher_event" {
        kind: i32,
        node: u32,
        sequence: u64,
    }
}

// SAFETY: the only type of this kind.
unsafe impl Object for Publisher {
    const KIND: Kind = Kind::Publisher;
}

/// Kinds of events, as in the header.
const NOTHING: i32 = 0;
const JOINED: i32 = 1;
const DROPPED: i32 = 2;
const REJECTED: i32 = 3;
const UPLOAD_FAILED: i32 = 4;
const FAULT: i32 = 5;

fn publisher_status(error: &PublisherError) -> Status {
    match error {
        PublisherError::Geometry { .. } | PublisherError::Option { .. } => Status::Argument,
        PublisherError::Local(error) => local(error),
        PublisherError::TimedOut { .. } => Status::TimedOut,
        PublisherError::System { .. } => Status::System,
        _ => Status::Internal,
    }
}

impl From<PublisherError> for Failure {
    fn from(error: PublisherError) -> Self {
        failed(publisher_status(&error), &error, error.advice().as_ref())
    }
}

impl From<TakeError> for Failure {
    fn from(error: TakeError) -> Self {
        let status = match &error {
            TakeError::Full { .. } => Status::Full,
            TakeError::Closing => Status::Stopped,
            TakeError::Publisher(error) => publisher_status(error),
            _ => Status::Internal,
        };
        failed(status, &error, error.advice().as_ref())
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        let status = match &error {
            PublishError::NoFreeSlot { .. } => Status::Full,
            PublishError::Submit { .. } => Status::Fault,
            PublishError::Foreign => Status::Argument,
            PublishError::Closing => Status::Stopped,
            PublishError::TooLong(_) => Status::Range,
            _ => Status::Internal,
        };
        failed(status, &error, error.advice().as_ref())
    }
}

/// Makes an endpoint a publisher.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_open(
    endpoint: u64,
    options: *const CPublisher,
    size: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        set(out, 0)?;
        let given = read_options(options, size)?;
        let mut options = PublisherOptions::default();
        options.h2c = crate::channel::number(given.h2c_channel)?;
        options.c2h = c2h(given.c2h_channel_plus_1)?;
        for (given, place) in [
            (given.max_value_length, &mut options.max_value_length),
            (given.slots, &mut options.slots),
            (given.heap_slots, &mut options.heap_slots),
            (given.subscribers, &mut options.subscribers),
        ] {
            if given != 0 {
                *place = given;
            }
        }
        if given.max_data_length != 0 {
            options.max_data_length = given.max_data_length;
        }
        if given.heartbeat_ns != 0 {
            options.heartbeat = duration(given.heartbeat_ns);
        }
        if given.max_silence_ns != 0 {
            options.max_silence = duration(given.max_silence_ns);
        }
        options.first_sequence = fpga_frames::Sequence::new(given.first_sequence);
        set(out, handle::add(Publisher::new(endpoint_of(endpoint)?, options)?)?)
    })
}

/// Listens for subscribers.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_listen(
    publisher: u64,
    at: *const c_char,
    bound: *mut c_char,
    length: usize,
) -> Status {
    call(|| {
        let at = address(at)?;
        handle::with(publisher, |publisher: &mut Publisher| {
            let found = publisher.listen(at)?;
            if bound.is_null() {
                return Ok(());
            }
            copy_text(bound, length, core::ptr::null_mut(), &found.to_string())
        })
    })
}

/// Does the publisher's work.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_poll(publisher: u64, work: *mut usize) -> Status {
    call(|| {
        set_if(work, 0)?;
        handle::with(publisher, |publisher: &mut Publisher| {
            let done = publisher.poll()?;
            if done == 0 {
                publisher.relax();
            }
            set_if(work, done)
        })
    })
}

/// Takes a frame to fill.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_take(publisher: u64, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        handle::with(publisher, |publisher: &mut Publisher| {
            set(out, handle::add(AnyFrame::Filling(publisher.take()?))?)
        })
    })
}

/// Publishes a frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_publish(
    publisher: u64,
    frame: u64,
    sequence: *mut u64,
    sent: *mut u32,
    skipped: *mut u32,
) -> Status {
    call(|| {
        set_if(sent, 0)?;
        set_if(skipped, 0)?;
        handle::with(publisher, |publisher: &mut Publisher| {
            let mut entered = handle::enter_single::<AnyFrame>(frame)?;
            if !matches!(entered.get::<AnyFrame>()?, AnyFrame::Filling(_)) {
                return Err(Failure::argument("the frame was received, and cannot be published"));
            }
            let AnyFrame::Filling(frame) = handle::take::<AnyFrame>(frame, entered)? else {
                return Err(Status::Internal.into());
            };
            let published = publisher.publish(frame)?;
            set_if(sequence, published.sequence.get())?;
            set_if(sent, published.sent.len())?;
            set_if(skipped, published.skipped.len())
        })
    })
}

/// Begins to end the stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_end(publisher: u64) -> Status {
    call(|| {
        handle::with(publisher, |publisher: &mut Publisher| {
            publisher.begin_close();
            Ok(())
        })
    })
}

/// Ends the stream, waits until its frames have arrived, and closes the handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_close(publisher: u64, timeout_ns: u64) -> Status {
    call(|| {
        let entered = handle::enter_to_close::<Publisher>(publisher)?;
        let publisher = handle::take::<Publisher>(publisher, entered)?;
        waiting(NO_HANDLE, core::ptr::null(), || Ok(publisher.close(duration(timeout_ns))?))?;
        Ok(())
    })
}

/// Returns the state of a publisher.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_get_state(
    publisher: u64,
    state: *mut CPublisherState,
    size: usize,
) -> Status {
    call(|| {
        handle::with(publisher, |publisher: &mut Publisher| {
            let counted = publisher.statistics();
            let found = CPublisherState {
                published: counted.published,
                unsent: counted.unsent,
                sent: counted.sent,
                skipped: counted.skipped,
                arrived: counted.arrived,
                failed: counted.failed,
                next_sequence: publisher.next_sequence().get(),
                subscribers: u32::try_from(publisher.subscribers().count()).unwrap_or(u32::MAX),
                free_slots: u32::try_from(publisher.free_slots()).unwrap_or(u32::MAX),
                closed: publisher.is_closed().into(),
                node: publisher.node().get(),
            };
            write_struct(state, size, &found)
        })
    })
}

/// Takes the oldest event.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_publisher_next_event(
    publisher: u64,
    event: *mut CPublisherEvent,
    size: usize,
    text: *mut c_char,
    length: usize,
) -> Status {
    call(|| {
        let mut found = zeroed::<CPublisherEvent>();
        found.kind = NOTHING;
        write_struct(event, size, &found)?;
        if length > 0 {
            set(text, 0)?;
        }
        handle::with(publisher, |publisher: &mut Publisher| {
            let Some(next) = publisher.next_event() else { return Ok(()) };
            let said = match next {
                PublisherEvent::Joined { node, first, .. } => {
                    (found.kind, found.node, found.sequence) = (JOINED, node.get(), first.get());
                    String::new()
                }
                PublisherEvent::Dropped { node, reason, .. } => {
                    (found.kind, found.node) = (DROPPED, node.get());
                    reason.to_string()
                }
                PublisherEvent::Rejected { peer, reason } => {
                    found.kind = REJECTED;
                    format!("{peer}: {reason}")
                }
                PublisherEvent::UploadFailed { sequence, fault } => {
                    (found.kind, found.sequence) = (UPLOAD_FAILED, sequence.get());
                    fault.to_string()
                }
                PublisherEvent::Fault { what, fault } => {
                    found.kind = FAULT;
                    format!("{what}: {fault}")
                }
                _ => return Ok(()),
            };
            write_struct(event, size, &found)?;
            if length > 0 { copy_text(text, length, core::ptr::null_mut(), &said) } else { Ok(()) }
        })
    })
}
