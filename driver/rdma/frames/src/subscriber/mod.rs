//! Side that reads frames.
//!
//! ```text
//! a frame in its slot of card memory -> notification -> C2H -> host memory -> poll() -> ReceivedFrame, dropped -> slot returned
//!                                                                              the count of returned slots -> the publisher's card
//! ```

mod credit;
mod fetch;
mod frame;
mod joining;
mod options;
mod state;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use fpga_driver::{C2hChannel, ChannelOptions, DmaBuffer, Error, H2cChannel, NodeId, errors::ChannelFault};
use fpga_rdma::{Endpoint, RegionHandle, RemoteRegion};

use crate::blocks::{BLOCK, BLOCK_BYTES, StatusBlock};
use crate::bootstrap::{BootstrapError, JoinConnection};
use crate::error::{InternalErrors, JoinError, LocalError, RemoteError, SubscriberError};
use crate::geometry::{Geometry, Layout};
use crate::idle::IdleBackoff;
use crate::publisher::ControlBlock;
use crate::retries::{RetriedTransfer, RetryBackoff};
use fpga_frames_wire::Arrivals;
use fpga_frames_wire::{GapDetector, Sequence};

pub use credit::Leaving;
pub use frame::ReceivedFrame;
pub use joining::Joining;
pub(crate) use options::DEFAULT_MAX_SILENCE;
pub use options::SubscriberOptions;

use state::{CreditSending, Departure, FrameFetching, SilenceCheck, StatusReading};

/// Parameters that both sides have agreed upon.
#[derive(Debug)]
struct StreamParameters {
    stream: u64,
    publisher: NodeId,
    heartbeat_ms: u32,
    geometry: Geometry,
    layout: Layout,
    window: RegionHandle,
}

/// Event of a subscriber, in the order of the stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A frame.
    Frame(ReceivedFrame),
    /// Frames that this subscriber does not get: it had no free slot, or they were lost in the network.
    Gap {
        /// Number of missed frames.
        missed: u64,
        /// Sequence number of the first missed frame.
        first: Sequence,
    },
    /// The publisher sent something invalid; the stream continues.
    Fault(RemoteError),
    /// The publisher has ended the stream, and all frames of it were read. Returned again by every further poll.
    Ended {
        /// Sequence number that the next frame would have had.
        next: Sequence,
    },
}

/// Statistics of a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberCounts {
    /// Frames read.
    pub frames: u64,
    /// Bytes of data in them.
    pub bytes: u64,
    /// Gaps.
    pub gaps: u64,
    /// Frames missed in them.
    pub missed: u64,
    /// Credits sent.
    pub credits: u64,
    /// Internal errors that were repaired.
    pub internal: InternalErrors,
}

/// Subscriber to the frames of one publisher. One per card: it owns the card's endpoint.
///
/// If it is dropped, it leaves without notice, and the publisher detects it by failing transfers; [`leave`](Self::leave) notifies the
/// publisher.
#[derive(Debug)]
pub struct Subscriber {
    // In drop order: the engines stop before the memory that they use is freed.
    h2c: H2cChannel,
    c2h: C2hChannel,
    endpoint: Endpoint,
    stream_parameters: StreamParameters,
    options: SubscriberOptions,
    arrivals: Arrivals,
    gaps: GapDetector,
    frames: FrameFetching,
    status: StatusReading,
    credit: CreditSending,
    departure: Departure,
    silence: SilenceCheck,
    counts: SubscriberCounts,
    idle: IdleBackoff,
}

/// Pause before a rejected join is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

impl Subscriber {
    /// Joins the stream of the publisher that listens at `address`, and waits until it is accepted. A publisher with too many callers
    /// rejects some of them before they have sent anything; the join is then repeated, within [`SubscriberOptions::patience`].
    ///
    /// # Errors
    /// See [`JoinError`]. The endpoint is closed in this case.
    pub fn join(
        endpoint: Endpoint,
        address: SocketAddr,
        options: SubscriberOptions,
    ) -> Result<Self, JoinError> {
        let began = Instant::now();
        let until = began + options.patience;
        let mut joining = Self::begin_join(endpoint, address, options)?;
        loop {
            match joining.poll() {
                Ok(Some(subscriber)) => return Ok(subscriber),
                Ok(None) => {}
                // Rejected together with silent connections, before its first message was received.
                Err(
                    error @ JoinError::Bootstrap(
                        BootstrapError::Closed { .. } | BootstrapError::Broken { .. },
                    ),
                ) if joining.is_unanswered() => {
                    // Earlier callers are admitted meanwhile, and a peer that is not a publisher is not called endlessly.
                    std::thread::sleep(RETRY_INTERVAL);
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || joining.reconnect(left).is_err() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            joining.check_cancelled(began.elapsed())?;
            joining.relax();
            // Only a poll of the socket shows a new message: a conversation of four messages may take this long.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Begins to join. The returned value continues the conversation and never waits. This call waits for the connection, at most
    /// [`SubscriberOptions::patience`]; the conversation has the remaining time.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn begin_join(
        endpoint: Endpoint,
        address: SocketAddr,
        options: SubscriberOptions,
    ) -> Result<Joining, JoinError> {
        Joining::begin(endpoint, address, options)
    }

    /// As [`begin_join`](Self::begin_join), over a connection of the program that leads to the publisher
    /// ([`Publisher::accept`](crate::Publisher::accept)); errors name it `publisher`. The time limit is by the endpoint's clock.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn begin_join_over(
        endpoint: Endpoint,
        connection: Box<dyn JoinConnection>,
        publisher: SocketAddr,
        options: SubscriberOptions,
    ) -> Result<Joining, JoinError> {
        Joining::begin_over(endpoint, connection, publisher, options)
    }

    fn new(
        endpoint: Endpoint,
        shape: StreamParameters,
        credit: RemoteRegion,
        (arrivals, first): (Arrivals, Sequence),
        options: SubscriberOptions,
    ) -> Result<Self, SubscriberError> {
        let card = endpoint.card().clone();
        let pushes = card.info().ni.as_ref().is_some_and(|ni| ni.event_push);
        let fetching = options.c2h.unwrap_or(if pushes { 0 } else { 1 });
        let transfers = (options.slots + 1).next_power_of_two().max(256);
        let rings = ChannelOptions::default().transfers(transfers).descriptors(4 * transfers);
        let h2c = card.h2c(options.h2c)?;
        let c2h = card.c2h_with(fetching, rings)?;
        let stride = usize::try_from(shape.geometry.stride()).unwrap_or(usize::MAX);
        let buffers: Result<Vec<_>, _> = (0..options.slots).map(|_| card.buffer(stride).map(Some)).collect();
        let slots = usize::try_from(options.slots).unwrap_or(usize::MAX);
        let (status, carrier) = (card.buffer(BLOCK)?, card.buffer(BLOCK)?);
        let heard = endpoint.now();
        let frames = FrameFetching {
            buffers: buffers?.into(),
            returned: Arc::new(ArrayQueue::new(slots.max(1))),
            fetches: VecDeque::with_capacity(slots + 1),
            retries: RetryBackoff::default(),
            ready: VecDeque::with_capacity(slots + 1),
        };
        let status = StatusReading {
            buffer: Some(status),
            changed: false,
            unreadable: 0,
            heard: 0,
            reported: 0,
            ended: None,
        };
        let credit = CreditSending {
            carrier: ControlBlock::Idle(carrier),
            region: credit,
            ticket: None,
            sent: arrivals.consumed(),
            changed_at: None,
            due: false,
            failures: 0,
            error: None,
            retries: RetryBackoff::default(),
        };
        Ok(Self {
            h2c,
            c2h,
            arrivals,
            gaps: GapDetector::new(first),
            frames,
            status,
            credit,
            departure: Departure::default(),
            silence: SilenceCheck { heard, looked: heard },
            counts: SubscriberCounts::default(),
            idle: IdleBackoff::default(),
            endpoint,
            stream_parameters: shape,
            options,
        })
    }

    /// Node of the publisher.
    #[must_use]
    pub const fn publisher(&self) -> NodeId {
        self.stream_parameters.publisher
    }

    /// Sizes of the publisher's frames.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.stream_parameters.geometry
    }

    /// Sequence number of the frame that is expected next.
    #[must_use]
    pub const fn expected(&self) -> Sequence {
        self.gaps.expected()
    }

    /// The endpoint, for listings and counters.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Statistics since it joined.
    #[must_use]
    pub const fn counts(&self) -> SubscriberCounts {
        self.counts
    }

    /// Lets a card inside this thread take a step. Call it in a polling loop.
    pub fn relax(&self) {
        self.endpoint.relax();
    }

    /// Backs off in a loop that only polls: as [`relax`](Self::relax) at first; after some polls that find nothing, this thread sleeps for
    /// a twentieth of a millisecond.
    pub fn back_off(&mut self) {
        self.idle.back_off(&self.endpoint);
    }

    /// Returns the next event, if there is one. Never waits.
    ///
    /// # Errors
    /// See [`SubscriberError`]. Frames and events that arrived before are returned first.
    pub fn poll(&mut self) -> Result<Option<Event>, SubscriberError> {
        let driven = self.drive();
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        driven?;
        self.check_silence()?;
        Ok(None)
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`SubscriberError::TimedOut`] after `timeout`; an error if the endpoint's wait was cancelled
    /// ([`Endpoint::set_cancellation`](fpga_rdma::Endpoint::set_cancellation)); otherwise as [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Event, SubscriberError> {
        let began = self.endpoint.now();
        let limit = began.saturating_add(timeout);
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            let waited = self.endpoint.now().saturating_sub(began);
            self.endpoint.check_cancelled(waited).map_err(LocalError::from)?;
            if self.endpoint.now() >= limit {
                return Err(SubscriberError::TimedOut { waited: timeout });
            }
            self.back_off();
        }
    }

    /// Returns the next event as a future that needs no runtime and no thread.
    ///
    /// The event appears in memory without a signal, so the future asks to be polled again while there is none. It backs off as
    /// [`wait`](Self::wait) does: after some polls that find nothing, each poll lets this thread sleep for a twentieth of a millisecond.
    /// The executor's other tasks on this thread wait at most this long. Dropping the future loses no event.
    ///
    /// ```no_run
    /// # async fn example(mut subscriber: fpga_frames::Subscriber) -> Result<(), fpga_frames::SubscriberError> {
    /// use fpga_frames::Event;
    ///
    /// loop {
    ///     match subscriber.event().await? {
    ///         Event::Frame(frame) => println!("frame {}: {} bytes", frame.sequence(), frame.data().len()),
    ///         Event::Gap { missed, .. } => println!("{missed} frames missed"),
    ///         Event::Ended { .. } => return Ok(()),
    ///         other => println!("{other:?}"),
    ///     }
    /// }
    /// # }
    /// ```
    pub fn event(&mut self) -> impl Future<Output = Result<Event, SubscriberError>> + Send + '_ {
        core::future::poll_fn(move |context| match self.poll() {
            Ok(Some(event)) => Poll::Ready(Ok(event)),
            Ok(None) => {
                self.back_off();
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        })
    }

    fn next_event(&mut self) -> Option<Event> {
        let until = match self.frames.ready.front() {
            Some(Ok(frame)) => frame.sequence(),
            Some(Err(_)) => return self.frames.ready.pop_front()?.err().map(Event::Fault),
            None => {
                let status = self.status.ended.filter(|status| status.sent == self.arrivals.next())?;
                if !self.frames.fetches.is_empty() {
                    return None;
                }
                if status.next == self.gaps.expected() {
                    return Some(Event::Ended { next: status.next });
                }
                status.next
            }
        };
        let first = self.gaps.expected();
        match self.gaps.advance_to(until) {
            Ok(0) => {}
            Ok(missed) => {
                self.counts.gaps += 1;
                self.counts.missed += missed;
                return Some(Event::Gap { missed, first });
            }
            Err(error) => {
                // Frames that were read count more than the publisher's last status.
                match self.frames.ready.pop_front() {
                    Some(_) => {}
                    None => {
                        self.status.ended =
                            self.status.ended.map(|status| StatusBlock { next: first, ..status })
                    }
                }
                return Some(Event::Fault(error.into()));
            }
        }
        let frame = self.frames.ready.pop_front()?.ok()?;
        // The detector was advanced to it just now.
        let due = self.gaps.frame(frame.sequence());
        debug_assert_eq!(due, Ok(0));
        self.counts.frames += 1;
        self.counts.bytes += frame.data().len() as u64;
        Some(Event::Frame(frame))
    }

    fn check_silence(&mut self) -> Result<(), SubscriberError> {
        if self.status.ended.is_some() {
            return Ok(());
        }
        let heartbeat = Duration::from_millis(self.stream_parameters.heartbeat_ms.into());
        let limit =
            heartbeat.saturating_mul(self.options.missed_heartbeats.max(1)).max(self.options.max_silence);
        let now = self.endpoint.now();
        // A period without polls counts as one heartbeat at most: a process that was stopped, with its card in it or the link's socket
        // full, has missed messages, and cannot tell its own silence from the publisher's.
        let away = now.saturating_sub(std::mem::replace(&mut self.silence.looked, now));
        self.silence.heard = self.silence.heard.saturating_add(away.saturating_sub(heartbeat)).min(now);
        let silent = now.saturating_sub(self.silence.heard);
        // A program that polls rarely has to process the messages of the meantime before it may report silence.
        if silent >= limit {
            // Reported once per period.
            self.silence.heard = now;
            return Err(SubscriberError::Silent { node: self.stream_parameters.publisher, silence: silent });
        }
        Ok(())
    }

    fn drive(&mut self) -> Result<(), SubscriberError> {
        self.reclaim();
        let polled = self.endpoint.poll();
        self.idle.record_work(polled.as_ref().map_or(0, |work| *work));
        self.take_notices();
        self.take_sent();
        polled?;
        self.c2h.poll()?;
        while let Some(done) = self.c2h.next_completion() {
            self.idle.record_work(1);
            match self.frames.fetches.pop_front() {
                Some((fetch, None)) => self.fetch_ended(done, fetch)?,
                _ => debug_assert!(false, "a completion without a fetch"),
            }
        }
        self.fetch()?;
        self.c2h.poll()?;
        self.send_credit_if_due()
    }

    fn reclaim(&mut self) {
        while let Some((position, buffer)) = self.frames.returned.pop() {
            self.give_back(position, buffer);
        }
    }

    fn give_back(&mut self, position: u32, buffer: DmaBuffer) {
        let slot = position % self.options.slots.max(1);
        if let Some(place) = usize::try_from(slot).ok().and_then(|slot| self.frames.buffers.get_mut(slot)) {
            *place = Some(buffer);
        }
        let released = self.arrivals.release(position);
        debug_assert!(released, "position {position} was not being read");
    }

    fn take_notices(&mut self) {
        while let Some(notice) = self.endpoint.next_notification() {
            let from_publisher = notice.node == self.stream_parameters.publisher;
            let layout = &self.stream_parameters.layout;
            match (layout.slot_at(notice.address), layout.block_at(notice.address)) {
                (Some(slot), _) if from_publisher => {
                    self.silence.heard = self.endpoint.now();
                    let stride = self.stream_parameters.geometry.stride();
                    let arrived = self.arrivals.arrived_from(slot, notice.length, stride);
                    if let Err(error) = arrived {
                        self.frames.ready.push_back(Err(error.into()));
                    }
                }
                (None, Some(0)) if from_publisher && notice.length == BLOCK_BYTES => {
                    self.silence.heard = self.endpoint.now();
                    self.status.changed = true;
                }
                _ => self.counts.internal.stray_notifications += 1,
            }
        }
    }

    /// Counts a failure of an operation that is retried, and fails after too many consecutive ones.
    fn count_failure(
        &mut self,
        what: RetriedTransfer,
        failures: u32,
        last: Box<Error<ChannelFault>>,
    ) -> Result<(), SubscriberError> {
        self.counts.internal.faults += 1;
        if failures >= self.options.failures {
            return Err(LocalError::Fault { what, failures, last }.into());
        }
        Ok(())
    }
}
