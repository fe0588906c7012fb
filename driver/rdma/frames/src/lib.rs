//! Frame streams: one publisher, any number of subscribers, in real time, one way.
//!
//! An instrument or a camera makes frames for several machines; no machine may delay the others or the instrument. A [`Publisher`] sends
//! each frame to every subscriber that has a free slot at that moment, by a transfer from its card's memory directly into the subscriber's
//! card memory, and reports the subscribers that missed it. A [`Subscriber`] reads the frames that have arrived, counts missed frames
//! exactly, and returns slots by a counter that its card writes into the publisher's card.
//!
//! | Module | Content |
//! |---|---|
//! | [`Publisher`], [`Frame`] | take, fill, publish |
//! | [`Subscriber`], [`ReceivedFrame`], [`Event`] | join, read, leave |
//! | [`SlotPool`], [`Credits`], [`Arrivals`], [`GapDetector`] | owners of slots and frames: counters only, without I/O |
//! | [`bootstrap`] | first contact of subscriber and publisher over TCP or a connection of the program, once |
//! | [`blocks`] | blocks in card memory besides data |
//! | [`error`] | internal, external and remote errors |
//!
//! `docs/guide/streams.md` has a picture of slots, counts and credits.
//!
//! This package starts no thread, and only functions that are named so wait: the owner of a publisher or a subscriber polls it. The steady
//! data path allocates no heap memory.

pub mod bootstrap;
mod credits;
pub mod error;
mod geometry;
mod idle;
mod memory;
mod pool;
mod publisher;
mod retries;
mod subscriber;

pub use bootstrap::{BootstrapError, JoinConnection};
pub use credits::{Credits, InvalidCredit};
pub use error::{
    InternalErrors, JoinError, LocalError, PublishError, PublisherError, RemoteError, SubscriberError,
    TakeError,
};
pub use fpga_frames_wire::{
    ArrivalError, Arrivals, FramePosition, GapDetector, MAX_SLOTS, OutOfSequence, Sequence, blocks,
    possible_slots,
};
pub use geometry::{Geometry, GeometryError, Layout};
pub use pool::{NotHeld, SlotPool};
pub use publisher::{
    DropReason, Frame, MAX_SUBSCRIBERS, Published, Publisher, PublisherEvent, PublisherOptions,
    PublisherStatistics, SubscriberId, SubscriberSet, SubscriberStatistics, SubscriberView, TooLong,
};
pub use retries::RetriedTransfer;
pub use subscriber::{
    Event, Joining, Leaving, ReceivedFrame, Subscriber, SubscriberCounts, SubscriberOptions,
};
