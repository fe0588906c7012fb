//! Errors of frame streams, in the protocol's three kinds.
//!
//! | Kind | Type | Reported to |
//! |---|---|---|
//! | internal | [`InternalErrors`] | no caller: repaired and counted |
//! | external | [`PublisherError`], [`TakeError`], [`PublishError`], [`SubscriberError`], [`JoinError`], [`LocalError`] | the caller, as an error |
//! | remote | [`RemoteError`], and gaps ([`Event::Gap`](crate::Event::Gap)) | the subscriber, as an event |

use std::time::Duration;

use fpga_driver::{Advice, ChannelError, Error, NodeId, ResourceError, SubmitError, errors::ChannelFault};
use fpga_protocol::sender::SendFailure;
use fpga_rdma::{EndpointError, SendError};
use fpga_registers::quantity;

use crate::blocks::BlockError;
use crate::bootstrap::BootstrapError;
use crate::geometry::GeometryError;
use crate::publisher::frame::TooLong;
use crate::retries::RetriedTransfer;
use fpga_frames_wire::ArrivalError;
use fpga_frames_wire::{OutOfSequence, Sequence};

/// Failures that were repaired, counted by kind. All of them may occur in a healthy stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InternalErrors {
    /// Frames that were filled in ordinary memory, because every slot was in flight.
    pub heap_frames: u64,
    /// Transfers that were delayed because the endpoint had no space for them.
    pub postponed: u64,
    /// Credit or status blocks that were read half written, and fetched again.
    pub fetched_again: u64,
    /// Arrival notifications that do not belong to the stream, mostly those of an earlier incarnation.
    pub stray_notifications: u64,
    /// Frames whose transfer into the card failed, so that no subscriber gets them.
    pub lost_uploads: u64,
    /// Slots whose memory is lost, because the card may still reach it.
    pub lost_slots: u64,
    /// Credit or status blocks whose transfer failed. They are retransmitted.
    pub resent: u64,
    /// Positions that were returned because their frame will not come.
    pub voided: u64,
    /// Failed transfers between host and card. They were repeated, except those of a publisher's frames, which are live data.
    pub faults: u64,
}

/// Error at the remote side or in the network, reported to the subscriber.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The received bytes are not a frame.
    #[error("the data in slot {slot} is not a frame of this stream: {cause}")]
    Frame {
        /// Slot of the frame.
        slot: u32,
        /// Reason.
        cause: BlockError,
    },
    /// Frames in the wrong order.
    #[error(transparent)]
    Sequence(#[from] OutOfSequence),
    /// The publisher writes to a slot, or reports a count, that is not allowed.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// The received status block is not valid.
    #[error("the publisher wrote an invalid status block: {0}")]
    Status(BlockError),
}

/// Failure of the card of the publisher or of the subscriber itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The endpoint failed.
    #[error(transparent)]
    Endpoint(#[from] Error<EndpointError>),
    /// A channel or memory could not be acquired.
    #[error(transparent)]
    Resource(#[from] Error<ResourceError>),
    /// A channel failed.
    #[error(transparent)]
    Channel(#[from] Error<ChannelError>),
    /// A channel refused a transfer.
    #[error(transparent)]
    Submit(#[from] Error<SubmitError>),
    /// A transfer between host and card that fails at every retry.
    #[error(
        "the transfer of {what} between host and card failed {failures} in a row; last failure: {last}",
        failures = quantity(*failures, "time"),
    )]
    Fault {
        /// Kind of transfer.
        what: RetriedTransfer,
        /// Number of consecutive failures.
        failures: u32,
        /// Last failure.
        last: Box<Error<ChannelFault>>,
    },
}

/// Opening or driving a publisher failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherError {
    /// Impossible sizes.
    #[error("{card}: {cause}")]
    Geometry {
        /// Name of the card.
        card: String,
        /// Reason.
        cause: GeometryError,
    },
    /// Impossible option value.
    #[error("{card}: {what} is {found}: {expected}")]
    Option {
        /// Name of the card.
        card: String,
        /// Name of the option.
        what: &'static str,
        /// Requested value.
        found: u64,
        /// Possible values.
        expected: &'static str,
    },
    /// The card of the publisher failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// No random number for the stream number, or no port to listen on.
    #[error("{what}: {reason}")]
    System {
        /// Request to the operating system.
        what: String,
        /// Error of the operating system.
        reason: String,
    },
    /// Closing took too long.
    #[error(
        "{card}: {frames} still in flight after {waited:?}",
        frames = quantity(*frames, "frame"),
    )]
    TimedOut {
        /// Name of the card.
        card: String,
        /// Time waited.
        waited: Duration,
        /// Frames that were promised to some subscriber and have not arrived there.
        frames: usize,
    },
}

/// Reason why no frame is available to fill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// All slots and all frames that ordinary memory may hold are in use.
    #[error(
        "no slot is free, of {slots} and {heap_slots} in ordinary memory: frames are taken faster than they are sent, or are held",
        slots = quantity(*slots, "slot"),
        heap_slots = quantity(*heap_slots, "frame"),
    )]
    Full {
        /// Number of slots in the pool.
        slots: u32,
        /// Maximum number of frames in ordinary memory.
        heap_slots: u32,
    },
    /// The stream is closing.
    #[error("the stream is closing and accepts no more frames")]
    Closing,
    /// The publisher failed.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
}

/// A frame was sent to no subscriber. Its number is used all the same (E3-6), and its slot is free again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// There are subscribers, and none of them has a free slot.
    #[error(
        "frame {sequence}: none of the {subscribers} has a free slot: they read too slowly, or not at all",
        subscribers = quantity(*subscribers, "subscriber"),
    )]
    NoFreeSlot {
        /// Sequence number of the frame.
        sequence: Sequence,
        /// Number of subscribers.
        subscribers: u32,
    },
    /// The channel to the card refuses the frame.
    #[error("frame {sequence}: {cause}")]
    Submit {
        /// Sequence number of the frame.
        sequence: Sequence,
        /// Reason.
        cause: Error<SubmitError>,
    },
    /// The frame belongs to another publisher, or has no memory. No number is used.
    #[error("the frame belongs to another publisher")]
    Foreign,
    /// The stream is closing. No number is used.
    #[error("the stream is closing and accepts no more frames")]
    Closing,
    /// The frame is too long. No number is used.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Joining a stream failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The bootstrap conversation with the publisher failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The publisher's frames do not fit into this card.
    #[error("{card}: the publisher's frames do not fit: {cause}")]
    Geometry {
        /// Name of the card.
        card: String,
        /// Reason.
        cause: GeometryError,
    },
    /// The card could write more events than its event ring holds between two polls that are far apart.
    #[error(
        "{card}: {slots} for frames of up to {segments} each can raise {needed} between two polls, more than three eighths of the event ring of {entries}",
        entries = quantity(*entries, "entry"),
        slots = quantity(*slots, "slot"),
        segments = quantity(*segments, "segment"),
        needed = quantity(*needed, "event"),
    )]
    EventRing {
        /// Name of the card.
        card: String,
        /// Number of slots of the subscriber.
        slots: u32,
        /// Number of segments of the longest frame.
        segments: u64,
        /// Maximum number of events.
        needed: u64,
        /// Number of entries of the event ring.
        entries: u32,
    },
    /// The publisher sent an impossible value.
    #[error("the publisher at node {node} sent an impossible value: {what}")]
    Offer {
        /// Node of the publisher.
        node: NodeId,
        /// Description of the value.
        what: &'static str,
    },
    /// An operation on the local card failed.
    #[error(transparent)]
    Subscriber(#[from] SubscriberError),
}

/// Driving a subscriber failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriberError {
    /// The card of the subscriber failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The credit cannot be sent.
    #[error("the credit cannot be sent: {0}")]
    Send(Error<SendError>),
    /// The publisher no longer accepts credits.
    #[error(
        "the publisher at node {node} does not accept credits: {failures} failed in a row, the last one with: {last}"
    )]
    Unreachable {
        /// Node of the publisher.
        node: NodeId,
        /// Number of consecutive failures.
        failures: u32,
        /// Last failure.
        last: SendFailure,
    },
    /// Nothing was received for longer than a live publisher stays silent, while this side polled.
    #[error(
        "the publisher at node {node} has sent nothing for {silence:?}: it ended without notice, or the network failed"
    )]
    Silent {
        /// Node of the publisher.
        node: NodeId,
        /// Time without a message. A period without polls counts as one heartbeat at most.
        silence: Duration,
    },
    /// The wait timed out.
    #[error("no frame within {waited:?}")]
    TimedOut {
        /// Time waited.
        waited: Duration,
    },
}

impl From<Error<SendError>> for SubscriberError {
    fn from(error: Error<SendError>) -> Self {
        Self::Send(error)
    }
}

impl<K> From<Error<K>> for PublisherError
where
    LocalError: From<Error<K>>,
{
    fn from(error: Error<K>) -> Self {
        Self::Local(error.into())
    }
}

impl<K> From<Error<K>> for SubscriberError
where
    LocalError: From<Error<K>>,
{
    fn from(error: Error<K>) -> Self {
        Self::Local(error.into())
    }
}

impl LocalError {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::Endpoint(error) => error.advice(),
            Self::Resource(error) => error.advice(),
            Self::Channel(error) => error.advice(),
            Self::Submit(error) => error.advice(),
            Self::Fault { last, .. } => last.advice(),
        }
    }
}

impl PublisherError {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::Local(error) => error.advice(),
            Self::TimedOut { .. } => Some(Advice::WaitLonger),
            Self::Geometry { .. } | Self::Option { .. } | Self::System { .. } => None,
        }
    }
}

impl TakeError {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::Full { .. } => {
                Some(Advice::text("publish or drop frames, or open the publisher with more slots"))
            }
            Self::Publisher(error) => error.advice(),
            Self::Closing => None,
        }
    }
}

impl PublishError {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::Submit { cause, .. } => cause.advice(),
            Self::Foreign => {
                Some(Advice::text("publish the frame with the publisher that it was taken from"))
            }
            Self::NoFreeSlot { .. } | Self::Closing | Self::TooLong(_) => None,
        }
    }
}

impl SubscriberError {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::Local(error) => error.advice(),
            Self::Send(error) => error.advice(),
            Self::Unreachable { .. } | Self::Silent { .. } => Some(Advice::text("join the stream again")),
            Self::TimedOut { .. } => Some(Advice::WaitLonger),
        }
    }
}

impl JoinError {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::EventRing { .. } => Some(Advice::FewerSlotsOrLargerEventRing),
            Self::Subscriber(error) => error.advice(),
            Self::Bootstrap(_) | Self::Geometry { .. } | Self::Offer { .. } => None,
        }
    }
}
