//! Frame streams: one publisher, any number of subscribers, in real time, one way.
//!
//! An instrument or a camera makes frames; several machines want them; none of them may hold up the others, or the instrument. A
//! [`Publisher`] hands each frame to every subscriber that has room at that moment, by a transfer from its card's memory straight into
//! the subscriber's, and tells who missed it. A [`Subscriber`] reads frames where they have arrived, sees to the frame how many it has
//! missed, and gives slots back by a counter that its card writes into the publisher's.
//!
//! | Module | What |
//! |---|---|
//! | [`Publisher`], [`Frame`] | take, fill, publish |
//! | [`Subscriber`], [`ReceivedFrame`], [`Event`] | join, read, leave |
//! | [`SlotPool`], [`Credits`], [`Arrivals`], [`GapDetector`] | who holds what: counters alone, without input or output |
//! | [`bootstrap`] | how a subscriber finds its publisher: over TCP, once |
//! | [`blocks`] | what lies in card memory besides data |
//! | [`error`] | internal, external and remote errors |
//!
//! `docs/streams.md` has a picture of slots, counts and credits.
//!
//! Nothing here starts a thread, and nothing waits but what is called so: whoever holds a publisher or a subscriber polls it. The steady
//! path takes nothing from the heap.
#![forbid(unsafe_code)]

mod arrivals;
pub mod blocks;
pub mod bootstrap;
mod credits;
pub mod error;
mod geometry;
mod idle;
mod pool;
mod publisher;
mod retries;
mod sequence;
mod subscriber;

pub use arrivals::{ArrivalError, Arrivals};
pub use bootstrap::BootstrapError;
pub use credits::{Credits, FramePosition, InvalidCredit, MAX_SLOTS, possible_slots};
pub use error::{
    InternalErrors, JoinError, PublishError, PublisherError, RemoteError, SubscriberError, TakeError,
};
pub use geometry::{Geometry, GeometryError, Layout};
pub use pool::{NotHeld, SlotPool};
pub use publisher::{
    DropReason, Frame, MAX_SUBSCRIBERS, Published, Publisher, PublisherEvent, PublisherOptions,
    PublisherStatistics, SubscriberId, SubscriberSet, SubscriberStatistics, SubscriberView, TooLong,
};
pub use retries::RetriedTransfer;
pub use sequence::{GapDetector, OutOfSequence, Sequence};
pub use subscriber::{Event, Joining, ReceivedFrame, Subscriber, SubscriberCounts, SubscriberOptions};
