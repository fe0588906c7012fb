//! Frame streams: one publisher, any number of subscribers.

use core::ffi::c_char;
use std::net::SocketAddr;

use fpga_driver::{Advice, Endpoint};
use fpga_frames::{
    Event, Frame, JoinError, Joining, LocalError, PublishError, Publisher, PublisherError, PublisherOptions,
    ReceivedFrame, Subscriber, SubscriberError, SubscriberOptions, TakeError,
};

use crate::call::{bytes, call, copy_text, duration, set, set_if, text};
use crate::endpoint::CardEndpoint;
use crate::error::Failure;
use crate::handle::{self, Kind as _};
use crate::layout::{c_struct, read_options, write_struct, zeroed};
use crate::status::{Code, Status};

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
    }
}

c_struct! {
    /// Options of a subscriber. A member that is 0 stands for its default.
    CSubscriber = "fpga_subscriber_options" {
        slots: u32,
        missed_heartbeats: u32,
        patience_ns: u64,
        h2c_channel: u32,
        c2h_channel_plus_1: u32,
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

/// Kinds of events, as in the header.
const NOTHING: i32 = 0;
const JOINED: i32 = 1;
const FRAME: i32 = 2;
const GAP: i32 = 3;
const ENDED: i32 = 4;
const FAULT: i32 = 5;

/// Frame that a program fills, or has received.
pub(crate) enum AnyFrame {
    Filling(Frame),
    Received(ReceivedFrame),
}

/// Subscriber, or a node that joins.
pub(crate) enum AnySubscriber {
    Joining(Box<Joining>),
    Joined(Box<Subscriber>),
    /// Joining has failed.
    Failed,
}

fn failed(status: Status, error: &dyn core::fmt::Display, advice: Option<&Advice>) -> Failure {
    Failure::of(status, &error.to_string()).advised(advice)
}

fn local(error: &LocalError) -> Status {
    match error {
        LocalError::Endpoint(error) => error.kind.status(),
        LocalError::Resource(error) => error.kind.status(),
        LocalError::Channel(error) => error.kind.status(),
        LocalError::Submit(error) => error.kind.status(),
        _ => Status::Fault,
    }
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

/// Takes the endpoint out of its handle, which is closed.
fn endpoint_of(handle_of: u64) -> Result<Endpoint, Failure> {
    // The kind is checked first, so that another handle is not entered.
    let entered = handle::enter_single::<CardEndpoint>(handle_of)?;
    let object = handle::take::<CardEndpoint>(handle_of, entered)?;
    CardEndpoint::from_object(object).map(|end| end.endpoint).ok_or_else(|| Status::Internal.into())
}

fn address(given: *const c_char) -> Result<SocketAddr, Failure> {
    let given = text(given, "the address")?;
    given.parse().map_err(|_| {
        Failure::argument(&format!("\"{given}\" is no address and port, such as 192.0.2.1:7000"))
    })
}

fn c2h(plus_1: u32) -> Result<Option<u8>, Failure> {
    plus_1.checked_sub(1).map(crate::channel::number).transpose()
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
        handle::with(publisher, |publisher: &mut Publisher| {
            let done = publisher.poll()?;
            if done == 0 {
                publisher.relax();
            }
            // Events are counted in the state; a program of this interface does not take them one by one.
            while publisher.next_event().is_some() {}
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
        handle::with(publisher, |publisher: &mut Publisher| {
            let mut entered = handle::enter_single::<AnyFrame>(frame)?;
            if !matches!(entered.get::<AnyFrame>()?, AnyFrame::Filling(_)) {
                return Err(Failure::argument("the frame was received, and cannot be published"));
            }
            let object = handle::take::<AnyFrame>(frame, entered)?;
            let Some(AnyFrame::Filling(frame)) = AnyFrame::from_object(object) else {
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
        let entered = handle::enter_single::<Publisher>(publisher)?;
        let object = handle::take::<Publisher>(publisher, entered)?;
        let publisher = Publisher::from_object(object).ok_or(Status::Internal)?;
        publisher.close(duration(timeout_ns))?;
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

/// Returns the data of a frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_data(frame: u64, data: *mut *mut u8, length: *mut usize) -> Status {
    call(|| {
        set(data, core::ptr::null_mut())?;
        set(length, 0)?;
        handle::with(frame, |frame: &mut AnyFrame| {
            let part = match frame {
                AnyFrame::Filling(frame) => frame.data_mut(),
                AnyFrame::Received(frame) => frame.data(),
            };
            let (address, size) = (part.host_address(), part.len());
            set(data, core::ptr::with_exposed_provenance_mut(address))?;
            set(length, size)
        })
    })
}

/// Returns the value of a received frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_value(frame: u64, value: *mut *const u8, length: *mut usize) -> Status {
    call(|| {
        set(value, core::ptr::null())?;
        set(length, 0)?;
        handle::with(frame, |frame: &mut AnyFrame| {
            let AnyFrame::Received(frame) = frame else {
                return Err(Failure::argument(
                    "the frame was not received; fpga_frame_set_value sets its value",
                ));
            };
            let (address, size) = (frame.value().host_address(), frame.value().len());
            set(value, core::ptr::with_exposed_provenance(address))?;
            set(length, size)
        })
    })
}

/// Runs `body` with a frame that the program fills.
fn filling(frame: u64, body: impl FnOnce(&mut Frame) -> Result<(), Failure>) -> Result<(), Failure> {
    handle::with(frame, |frame: &mut AnyFrame| match frame {
        AnyFrame::Filling(frame) => body(frame),
        AnyFrame::Received(_) => Err(Failure::argument("the frame was received, and cannot be changed")),
    })
}

fn fits(done: Result<(), impl core::fmt::Display>) -> Result<(), Failure> {
    done.map_err(|error| Failure::of(Status::Range, &error.to_string()))
}

/// Sets the length of a frame's data.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_set_length(frame: u64, length: usize) -> Status {
    call(|| filling(frame, |frame| fits(frame.set_len(length))))
}

/// Copies data into a frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_write(frame: u64, data: *const u8, length: usize) -> Status {
    call(|| {
        let data = bytes(data, length)?;
        filling(frame, |frame| fits(frame.fill(data)))
    })
}

/// Sets the value in front of a frame's data.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_set_value(frame: u64, value: *const u8, length: usize) -> Status {
    call(|| {
        let value = bytes(value, length)?;
        filling(frame, |frame| fits(frame.set_value(value)))
    })
}

/// Returns a frame to its stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_free(frame: u64) -> Status {
    call(|| Ok(handle::close::<AnyFrame>(frame)?))
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
        let entered = handle::enter_single::<AnySubscriber>(subscriber)?;
        let object = handle::take::<AnySubscriber>(subscriber, entered)?;
        if let Some(AnySubscriber::Joined(subscriber)) = AnySubscriber::from_object(object) {
            subscriber.leave(duration(timeout_ns))?;
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

/// Returns the next event if there is one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_subscriber_poll(subscriber: u64, event: *mut CEvent, size: usize) -> Status {
    call(|| {
        report(None, event, size)?;
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
        report(None, event, size)?;
        let (began, limit) = (std::time::Instant::now(), duration(timeout_ns));
        handle::with(subscriber, |subscriber: &mut AnySubscriber| {
            loop {
                if let Some(found) = next(subscriber)? {
                    return report(Some(found), event, size);
                }
                if began.elapsed() >= limit {
                    return Err(Failure::of(Status::TimedOut, "the stream has no event within this time")
                        .advise("wait longer, or check that the publisher is polled"));
                }
                match subscriber {
                    AnySubscriber::Joined(joined) => joined.back_off(),
                    _ => std::thread::yield_now(),
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
