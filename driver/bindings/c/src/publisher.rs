//! Publishers of frame streams.

use core::ffi::c_char;

use fpga_frames::{PublishError, Publisher, PublisherError, PublisherEvent, PublisherOptions, TakeError};

use crate::abi::{
    FPGA_PUBLISHER_DROPPED, FPGA_PUBLISHER_FAULT, FPGA_PUBLISHER_JOINED, FPGA_PUBLISHER_REJECTED,
    FPGA_PUBLISHER_UPLOAD_FAILED, Status, fpga_publisher_event, fpga_publisher_options, fpga_publisher_state,
    zeroed,
};
use crate::call::{copy_text, duration, read_options, set, set_if, set_option, set_time, write_struct};
use crate::error::Failure;
use crate::frames::{AnyFrame, address, c2h, endpoint_of, failed, local};
use crate::handle::{self, Kind, NO_HANDLE, Object};
use crate::wait::waiting;

// SAFETY: the only type of this kind.
unsafe impl Object for Publisher {
    const KIND: Kind = Kind::Publisher;
}

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

pub(crate) fn fpga_publisher_open(
    endpoint: u64,
    options: *const fpga_publisher_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let options = read_options(options, size)?;
    let mut publisher_options = PublisherOptions::default();
    publisher_options.h2c = crate::channel::number(options.h2c_channel)?;
    publisher_options.c2h = c2h(options.c2h_channel_plus_1)?;
    set_option(&mut publisher_options.max_value_length, options.max_value_length);
    set_option(&mut publisher_options.slots, options.slots);
    set_option(&mut publisher_options.heap_slots, options.heap_slots);
    set_option(&mut publisher_options.subscribers, options.subscribers);
    set_option(&mut publisher_options.max_data_length, options.max_data_length);
    set_time(&mut publisher_options.heartbeat, options.heartbeat_ns);
    set_time(&mut publisher_options.max_silence, options.max_silence_ns);
    publisher_options.first_sequence = fpga_frames::Sequence::new(options.first_sequence);
    set(out, handle::add(Publisher::new(endpoint_of(endpoint)?, publisher_options)?)?)
}

pub(crate) fn fpga_publisher_listen(
    publisher: u64,
    listen_address: *const c_char,
    bound: *mut c_char,
    length: usize,
) -> Result<(), Failure> {
    let listen_address = address(listen_address)?;
    handle::with(publisher, |publisher: &mut Publisher| {
        let found = publisher.listen(listen_address)?;
        if bound.is_null() {
            return Ok(());
        }
        copy_text(bound, length, core::ptr::null_mut(), &found.to_string())
    })
}

pub(crate) fn fpga_publisher_poll(publisher: u64, work: *mut usize) -> Result<(), Failure> {
    set_if(work, 0)?;
    handle::with(publisher, |publisher: &mut Publisher| {
        let done = publisher.poll()?;
        if done == 0 {
            publisher.relax();
        }
        set_if(work, done)
    })
}

pub(crate) fn fpga_publisher_take(publisher: u64, out: *mut u64) -> Result<(), Failure> {
    set(out, 0)?;
    handle::with(publisher, |publisher: &mut Publisher| {
        set(out, handle::add(AnyFrame::Filling(publisher.take()?))?)
    })
}

pub(crate) fn fpga_publisher_publish(
    publisher: u64,
    frame: u64,
    sequence: *mut u64,
    sent: *mut u32,
    skipped: *mut u32,
) -> Result<(), Failure> {
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
}

pub(crate) fn fpga_publisher_end(publisher: u64) -> Result<(), Failure> {
    handle::with(publisher, |publisher: &mut Publisher| {
        publisher.begin_close();
        Ok(())
    })
}

pub(crate) fn fpga_publisher_close(publisher: u64, timeout_ns: u64) -> Result<(), Failure> {
    let entered = handle::enter_to_close::<Publisher>(publisher)?;
    let publisher = handle::take::<Publisher>(publisher, entered)?;
    waiting(NO_HANDLE, core::ptr::null(), || Ok(publisher.close(duration(timeout_ns))?))?;
    Ok(())
}

pub(crate) fn fpga_publisher_get_state(
    publisher: u64,
    state: *mut fpga_publisher_state,
    size: usize,
) -> Result<(), Failure> {
    handle::with(publisher, |publisher: &mut Publisher| {
        let counted = publisher.statistics();
        let found = fpga_publisher_state {
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
}

pub(crate) fn fpga_publisher_next_event(
    publisher: u64,
    event: *mut fpga_publisher_event,
    size: usize,
    text: *mut c_char,
    length: usize,
) -> Result<(), Failure> {
    let mut found = zeroed::<fpga_publisher_event>();
    write_struct(event, size, &found)?;
    if length > 0 {
        set(text, 0)?;
    }
    handle::with(publisher, |publisher: &mut Publisher| {
        let Some(next) = publisher.next_event() else { return Ok(()) };
        let details = match next {
            PublisherEvent::Joined { node, first, .. } => {
                (found.kind, found.node, found.sequence) = (FPGA_PUBLISHER_JOINED, node.get(), first.get());
                String::new()
            }
            PublisherEvent::Dropped { node, reason, .. } => {
                (found.kind, found.node) = (FPGA_PUBLISHER_DROPPED, node.get());
                reason.to_string()
            }
            PublisherEvent::Rejected { peer, reason } => {
                found.kind = FPGA_PUBLISHER_REJECTED;
                format!("{peer}: {reason}")
            }
            PublisherEvent::UploadFailed { sequence, fault } => {
                (found.kind, found.sequence) = (FPGA_PUBLISHER_UPLOAD_FAILED, sequence.get());
                fault.to_string()
            }
            PublisherEvent::Fault { what, fault } => {
                found.kind = FPGA_PUBLISHER_FAULT;
                format!("{what}: {fault}")
            }
            _ => return Ok(()),
        };
        write_struct(event, size, &found)?;
        if length > 0 { copy_text(text, length, core::ptr::null_mut(), &details) } else { Ok(()) }
    })
}
