//! What can go wrong with frame streams, in the protocol's three kinds.
//!
//! | Kind | Type | Who hears of it |
//! |---|---|---|
//! | internal | [`InternalErrors`] | nobody at once: it was repaired, and counted |
//! | external | [`PublisherError`], [`TakeError`], [`PublishError`], [`SubscriberError`], [`JoinError`] | the caller, as an error |
//! | remote | [`RemoteError`], and gaps ([`Event::Gap`](crate::Event::Gap)) | the subscriber, as an event |

use std::time::Duration;

use fpga_driver::endpoint::{EndpointError, SendError};
use fpga_driver::protocol::sender::TransferError;
use fpga_driver::{ChannelError, ChannelFault, NodeId, ResourceError, SubmitError};

use crate::arrivals::ArrivalError;
use crate::blocks::BlockError;
use crate::bootstrap::BootstrapError;
use crate::geometry::GeometryError;
use crate::publisher::TooLong;
use crate::retries::RetriedTransfer;
use crate::sequence::{OutOfSequence, Sequence};

/// What went wrong and was put right, by kind. All of them may rise in a stream that is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InternalErrors {
    /// Frames that were filled in ordinary memory, because every slot was on its way.
    pub heap_frames: u64,
    /// Transfers that the endpoint had no room for at once.
    pub postponed: u64,
    /// Credits or states that were caught half written, and fetched again.
    pub fetched_again: u64,
    /// Notices of arrivals that belong to nothing of the stream: those of a life before, mostly.
    pub stray_notifications: u64,
    /// Frames that did not get into the card, and so to nobody.
    pub lost_uploads: u64,
    /// Slots whose memory is lost, because the card may still reach it.
    pub lost_slots: u64,
    /// Credits or states whose transfer failed; they are sent again.
    pub resent: u64,
    /// Positions that were given back because their frame will not come.
    pub voided: u64,
    /// Failures between host and card. What failed was moved again, but for a publisher's frames, which are live.
    pub faults: u64,
}

/// What went wrong at the other side, or on the way: it shows at the subscriber.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// What arrived as a frame is none.
    #[error("what arrived in slot {slot} is no frame of this stream: {source}")]
    Frame {
        /// Where.
        slot: u32,
        /// What is wrong with it.
        source: BlockError,
    },
    /// Frames in the wrong order.
    #[error(transparent)]
    Sequence(#[from] OutOfSequence),
    /// The publisher writes where or says what it must not.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// What the publisher wrote as its state is none.
    #[error("what the publisher wrote as its state cannot be read: {0}")]
    Status(BlockError),
}

/// Opening or driving a publisher failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherError {
    /// Sizes that cannot be.
    #[error("{card}: {source}")]
    Geometry {
        /// Which card.
        card: String,
        /// What is wrong.
        source: GeometryError,
    },
    /// An option that cannot be.
    #[error("{card}: {what} is {found}: {expected}")]
    Option {
        /// Which card.
        card: String,
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// What is possible.
        expected: &'static str,
    },
    /// The endpoint cannot go on.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A channel or memory could not be taken.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A channel cannot go on.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A block was not taken by a channel.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// What is not moved between host and card, however often it is tried.
    #[error(
        "{what} could not be moved between host and card {failures} times, one after the other, the last time so: {last}"
    )]
    Fault {
        /// What.
        what: RetriedTransfer,
        /// How often.
        failures: u32,
        /// The last time.
        last: Box<ChannelFault>,
    },
    /// No randomness for the stream's number, or nothing to listen on.
    #[error("{what}: {reason}")]
    System {
        /// What was asked of the system.
        what: String,
        /// What it said.
        reason: String,
    },
    /// Closing took too long.
    #[error(
        "{card}: after {waited:?} there are still {frames} frames on their way; wait longer, or drop the publisher, and with it those frames"
    )]
    TimedOut {
        /// Which card.
        card: String,
        /// How long was waited.
        waited: Duration,
        /// Frames that some subscriber was promised and does not have.
        frames: usize,
    },
}

/// No frame to be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// All slots, and all that ordinary memory may hold besides, are in use.
    #[error(
        "all {slots} slots and {heap_slots} frames in ordinary memory are in use: frames are made faster than they leave, or are held; poll, publish or drop some, or open the publisher with more slots"
    )]
    Full {
        /// Slots of the pool.
        slots: u32,
        /// Frames in ordinary memory at most.
        heap_slots: u32,
    },
    /// The stream is at its end.
    #[error("the stream is being closed: no more frames")]
    Closing,
    /// The publisher cannot go on.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
}

/// A frame was not sent to anybody. Its number is used all the same (E3-6), and its slot is free again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// There are subscribers, and none of them has room.
    #[error(
        "frame {sequence}: none of the {subscribers} subscribers has room: they read too slowly, or not at all"
    )]
    NoFreeSlot {
        /// The frame.
        sequence: Sequence,
        /// How many there are.
        subscribers: u32,
    },
    /// The channel to the card does not take it.
    #[error("frame {sequence}: {source}")]
    Submit {
        /// The frame.
        sequence: Sequence,
        /// Why not.
        source: SubmitError,
    },
    /// Another publisher's frame, or one without memory. No number is used.
    #[error("the frame is another publisher's: publish it there")]
    Foreign,
    /// The stream is at its end. No number is used.
    #[error("the stream is being closed: no more frames")]
    Closing,
    /// The frame is not what it should be. No number is used.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Becoming a subscriber failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The conversation with the publisher.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The publisher's frames do not fit here.
    #[error("{card}: the publisher's frames do not fit: {source}")]
    Geometry {
        /// Which card.
        card: String,
        /// What is wrong.
        source: GeometryError,
    },
    /// The card could have to tell more than its event ring holds, if nobody looked for a while.
    #[error(
        "{card}: {slots} slots for frames of up to {segments} segments each can make {needed} events while nobody looks, and three eighths of an event ring of {entries} have to hold them; join with fewer slots, or open the endpoint with more event entries (up to 65536)"
    )]
    EventRing {
        /// Which card.
        card: String,
        /// Slots of the subscriber.
        slots: u32,
        /// Segments of the longest frame.
        segments: u64,
        /// Events that all of it can make.
        needed: u64,
        /// Entries of the event ring.
        entries: u32,
    },
    /// What the publisher said cannot be.
    #[error("the publisher at node {node} says what cannot be: {what}")]
    Offer {
        /// Its node.
        node: NodeId,
        /// What.
        what: &'static str,
    },
    /// Something of the card failed.
    #[error(transparent)]
    Subscriber(#[from] SubscriberError),
}

/// Driving a subscriber failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriberError {
    /// The endpoint cannot go on.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A channel or memory could not be taken.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A channel cannot go on.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A transfer was not taken by a channel.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// What is not moved between host and card, however often it is tried.
    #[error(
        "{what} could not be moved between host and card {failures} times, one after the other, the last time so: {last}"
    )]
    Fault {
        /// What.
        what: RetriedTransfer,
        /// How often.
        failures: u32,
        /// The last time.
        last: Box<ChannelFault>,
    },
    /// The credit cannot be sent.
    #[error("the credit cannot be sent: {0}")]
    Send(#[from] SendError),
    /// The publisher takes no credit any more.
    #[error(
        "the publisher at node {node} is gone: {failures} credits failed one after the other, the last one so: {last}; join again"
    )]
    Unreachable {
        /// Its node.
        node: NodeId,
        /// How many.
        failures: u32,
        /// The last one.
        last: TransferError,
    },
    /// Nothing was heard for longer than the publisher ever is silent, while this side looked.
    #[error(
        "nothing was heard of the publisher at node {node} for {silence:?}: it has ended without a word, or the network has; join again"
    )]
    Silent {
        /// Its node.
        node: NodeId,
        /// How long nothing was heard; of a time in which nobody looked, a heartbeat at most.
        silence: Duration,
    },
    /// A wait's time is over.
    #[error("no frame within {waited:?}; wait longer")]
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
}
