//! A subscriber as its publisher sees it.

use core::fmt;

use fpga_driver::endpoint::{RegionHandle, RemoteRegion, SendError};
use fpga_driver::protocol::Nanos;
use fpga_driver::protocol::sender::TransferError;
use fpga_driver::{ChannelFault, DmaBuffer, NodeId};

use crate::blocks::BlockError;
use crate::credits::{Credits, InvalidCredit};
use crate::retries::RetriedTransfer;
use crate::sequence::Sequence;

/// Names a subscriber at its publisher. A number is not used for another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId {
    pub(super) index: u8,
    pub(super) number: u64,
}

impl fmt::Display for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subscriber {}", self.number)
    }
}

/// Why a subscriber is one no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DropReason {
    /// It said so.
    #[error("it left")]
    Unsubscribed,
    /// The same node joins again, and refuses what is sent to its old window: it was started anew.
    #[error("its node has joined again")]
    Replaced,
    /// Its transport failed too often.
    #[error("{failures} transfers to it failed one after the other, the last one so: {last}")]
    Unreachable {
        /// How many.
        failures: u32,
        /// The last one.
        last: TransferError,
    },
    /// A transfer to it was not taken.
    #[error("a transfer to it cannot be made: {0}")]
    Refused(SendError),
    /// It gave back what it had not.
    #[error("{0}")]
    Credit(#[from] InvalidCredit),
    /// What it wrote is no credit.
    #[error("what it wrote as its credit cannot be read: {0}")]
    Unreadable(BlockError),
}

/// A block that is written to the card, and from there to another one. It must not change on its way.
#[derive(Debug)]
pub(crate) enum ControlBlock {
    Idle(DmaBuffer),
    /// On its way to this card, or from this card to the other one; the buffer is the channel's, or rests.
    InUse(Option<DmaBuffer>),
}

/// What is known of a subscriber.
#[derive(Debug)]
pub(super) struct SubscriberState {
    pub(super) id: SubscriberId,
    pub(super) node: NodeId,
    pub(super) slots: u32,
    pub(super) region: RemoteRegion,
    pub(super) credits: Credits,
    /// Where it writes its credit.
    pub(super) window: RegionHandle,
    pub(super) carrier: ControlBlock,
    /// Its credit has been written since it was fetched.
    pub(super) credit_news: bool,
    /// It is being fetched.
    pub(super) credit_fetched: bool,
    /// How often what was fetched could not be read.
    pub(super) unreadable: u32,
    pub(super) failures: u32,
    /// When something was last sent to it.
    pub(super) told: Nanos,
    /// What the last status said of transfers that have ended.
    pub(super) settled_reported: u32,
    /// The number of the last status, and of the last one that is known to be there.
    pub(super) status: u32,
    pub(super) status_there: u32,
    /// Statuses that are there, and that it has not read as far as is known.
    pub(super) unread_statuses: u32,
    /// The last status was not sent.
    pub(super) status_due: bool,
    /// A status that says that the stream has ended is on its way, or was.
    pub(super) end_begun: bool,
    /// It was told that the stream has ended, and has that.
    pub(super) end_reported: bool,
    pub(super) probes: ProbeState,
    pub(super) gone: Option<DropReason>,
    pub(super) statistics: SubscriberStatistics,
}

/// Statuses that find out whether the subscriber's card still takes what is sent to it, because somebody joins as the same node. They are
/// numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeState {
    wanted: u64,
    /// The one on its way.
    sent: Option<u64>,
    arrived: u64,
    /// When the last one was begun.
    begun: Option<Nanos>,
}

impl ProbeState {
    /// Asks for a probe that begins from now on; its number. Several joins share one.
    pub(super) fn request_probe(&mut self) -> u64 {
        self.wanted = self.sent.unwrap_or(self.arrived) + 1;
        self.wanted
    }

    /// Whether somebody waits for one.
    pub(super) const fn is_requested(&self) -> bool {
        self.wanted > self.arrived
    }

    pub(super) const fn has_arrived(&self, number: u64) -> bool {
        self.arrived >= number
    }

    /// Whether one should begin now. A subscriber that reads its statuses gets it at once; one that does not, only once in `period`,
    /// because each takes room in its event ring.
    pub(super) fn is_due(&self, now: Nanos, reads: bool, period: Nanos) -> bool {
        let is_fresh = |begun| now.saturating_sub(begun) < period;
        self.is_requested() && self.sent.is_none() && (reads || !self.begun.is_some_and(is_fresh))
    }

    /// A status begins, whatever for: it is a probe, too, if one is wanted.
    pub(super) fn begin(&mut self, now: Nanos) {
        if self.is_requested() {
            self.sent = Some(self.wanted);
            self.begun = Some(now);
        }
    }

    /// A status has ended.
    pub(super) fn end(&mut self, arrived: bool) {
        if let Some(number) = self.sent.take()
            && arrived
        {
            self.arrived = number;
        }
    }
}

impl SubscriberState {
    /// Frames that can be sent to it now, where those on their way to it may hold `share` slots of the pool.
    pub(super) fn free_slots(&self, share: u32) -> u32 {
        self.credits.free_slots().min(share.saturating_sub(self.credits.in_flight()))
    }

    /// It says that it has read status `number`.
    pub(super) fn status_read(&mut self, number: u32) {
        // One that was never sent is no less than what is unheard, and changes nothing.
        self.unread_statuses = self.unread_statuses.min(self.status_there.wrapping_sub(number));
    }

    /// Whether its place can be given to another one: nothing on its way refers to it.
    pub(super) fn is_over(&self) -> bool {
        self.gone.is_some()
            && self.credits.is_settled()
            && !self.credit_fetched
            && matches!(self.carrier, ControlBlock::Idle(_))
    }
}

/// Counts of one subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStatistics {
    /// Frames that were sent to it.
    pub sent: u64,
    /// Frames that have arrived there.
    pub arrived: u64,
    /// Frames that it had no room for.
    pub skipped: u64,
    /// Frames whose transfer failed.
    pub failed: u64,
}

/// A subscriber, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberView {
    /// Which.
    pub id: SubscriberId,
    /// Its node.
    pub node: NodeId,
    /// Its slots.
    pub slots: u32,
    /// Those among them that frames can be sent to now.
    pub room: u32,
    /// Counts.
    pub statistics: SubscriberStatistics,
}

/// Something that has happened to a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublisherEvent {
    /// There is a new subscriber.
    Joined {
        /// Which.
        id: SubscriberId,
        /// Its node.
        node: NodeId,
        /// The first frame that it may get.
        first: Sequence,
    },
    /// There is one less.
    Dropped {
        /// Which.
        id: SubscriberId,
        /// Its node.
        node: NodeId,
        /// Why.
        reason: DropReason,
        /// What it got.
        statistics: SubscriberStatistics,
    },
    /// Somebody came who could not be made a subscriber.
    Rejected {
        /// From where.
        peer: std::net::SocketAddr,
        /// Why not.
        reason: String,
    },
    /// A frame did not get into the card, and so to none of those it was promised to. (Those behind it in the same run are counted with
    /// it, in [`InternalErrors::lost_uploads`](crate::InternalErrors::lost_uploads), and not named.)
    UploadFailed {
        /// The frame.
        sequence: Sequence,
        /// Why.
        fault: Box<ChannelFault>,
    },
    /// Something else could not be moved between host and card; it is tried again.
    Fault {
        /// What.
        what: RetriedTransfer,
        /// Why.
        fault: Box<ChannelFault>,
    },
}

/// Subscribers of one publisher at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriberSet(pub(super) u64);

impl SubscriberSet {
    /// How many.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `id` is one of them, if it was a subscriber at that moment.
    #[must_use]
    pub const fn contains(self, id: SubscriberId) -> bool {
        self.0 >> (id.index % 64) & 1 != 0
    }

    pub(super) const fn insert(&mut self, index: usize) {
        self.0 |= 1 << (index % 64);
    }

    pub(super) const fn remove(&mut self, index: usize) {
        self.0 &= !(1 << (index % 64));
    }

    /// The lowest place.
    pub(super) const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::new(1_000);

    #[test]
    fn probe_begun_before_join_does_not_count() {
        let mut probes = ProbeState::default();
        let first = probes.request_probe();
        assert_eq!((probes.request_probe(), probes.is_requested()), (first, true), "joins share one");
        probes.begin(Nanos::ZERO);
        let second = probes.request_probe();
        assert!(second > first);
        probes.end(true);
        assert!(probes.has_arrived(first) && !probes.has_arrived(second));
        assert!(probes.is_due(Nanos::ZERO, true, PERIOD));
        probes.begin(Nanos::ZERO);
        probes.end(false);
        assert!(probes.is_requested() && !probes.has_arrived(second), "one that failed says nothing");
        probes.begin(Nanos::ZERO);
        probes.end(true);
        assert!(probes.has_arrived(second) && !probes.is_requested());
    }

    #[test]
    fn probe_rate_of_unresponsive_subscriber_is_limited() {
        let mut probes = ProbeState::default();
        let mut begun = 0;
        for time in 0..10_000 {
            probes.request_probe();
            if probes.is_due(Nanos::new(time), false, PERIOD) {
                probes.begin(Nanos::new(time));
                probes.end(true);
                begun += 1;
            }
        }
        assert_eq!(begun, 10);
    }
}
