//! State of a subscriber at its publisher.

use std::time::Duration;

use core::fmt;

use fpga_driver::{DmaBuffer, Error, NodeId, errors::ChannelFault};
use fpga_protocol::sender::SendFailure;
use fpga_rdma::{RegionHandle, RemoteRegion, SendError};
use fpga_registers::quantity;

use crate::blocks::BlockError;
use crate::credits::{Credits, InvalidCredit};
use crate::retries::RetriedTransfer;
use fpga_frames_wire::Sequence;

/// Names a subscriber at its publisher. An id is not reused for another subscriber.
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

/// Reason why a subscriber was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DropReason {
    /// The subscriber has left.
    #[error("it left")]
    Unsubscribed,
    /// The same node joins again, and refuses transfers to its old window: it was restarted.
    #[error("its node has joined again")]
    Replaced,
    /// Transfers to it failed too often.
    #[error(
        "{failures} to it failed in a row; last failure: {last}",
        failures = quantity(*failures, "transfer"),
    )]
    Unreachable {
        /// Number of consecutive failures.
        failures: u32,
        /// Last failure.
        last: SendFailure,
    },
    /// A transfer to it was refused locally.
    #[error("a transfer to it was refused: {0}")]
    Refused(Error<SendError>),
    /// It returned frames that it did not have.
    #[error("{0}")]
    Credit(InvalidCredit),
    /// The block that it wrote is not a credit.
    #[error("it wrote an invalid credit block: {0}")]
    Unreadable(BlockError),
}

/// A block that is uploaded to the card and sent from there to another card. It must not change while it is in flight.
#[derive(Debug)]
pub(crate) enum ControlBlock {
    Idle(DmaBuffer),
    /// In flight to this card, or from this card to the other one. The buffer is in the channel, or kept here.
    InUse(Option<DmaBuffer>),
}

/// State of one subscriber.
#[derive(Debug)]
pub(super) struct SubscriberState {
    pub(super) id: SubscriberId,
    pub(super) node: NodeId,
    pub(super) slots: u32,
    pub(super) region: RemoteRegion,
    pub(super) credits: Credits,
    /// Window into which it writes its credit.
    pub(super) window: RegionHandle,
    pub(super) carrier: ControlBlock,
    /// Its credit was written since the last fetch.
    pub(super) credit_news: bool,
    /// Its credit is being fetched.
    pub(super) credit_fetched: bool,
    /// Number of times that the fetched credit could not be read.
    pub(super) unreadable: u32,
    pub(super) failures: u32,
    /// Time of the first failure since a transfer has arrived.
    pub(super) failing_since: Option<Duration>,
    /// Time of the last transfer to it.
    pub(super) last_sent: Duration,
    /// Settled position in the last status.
    pub(super) settled_reported: u32,
    /// Number of the last status, and of the last one that is known to have arrived.
    pub(super) status: u32,
    pub(super) status_there: u32,
    /// Statuses that have arrived and that it is not known to have read.
    pub(super) unread_statuses: u32,
    /// The last status was not sent.
    pub(super) status_due: bool,
    /// A status that announces the end of the stream was started.
    pub(super) end_begun: bool,
    /// A status that announces the end of the stream has arrived.
    pub(super) end_reported: bool,
    pub(super) probes: ProbeState,
    pub(super) gone: Option<DropReason>,
    pub(super) statistics: SubscriberStatistics,
}

/// Probes: statuses that find out whether the subscriber's card still accepts transfers, because another client joins as the same node.
/// They are numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeState {
    wanted: u64,
    /// The probe in flight.
    sent: Option<u64>,
    arrived: u64,
    /// Start of the last probe.
    begun: Option<Duration>,
}

impl ProbeState {
    /// Requests a probe that starts after this call. Returns its number. Several joins share one.
    pub(super) fn request_probe(&mut self) -> u64 {
        self.wanted = self.sent.unwrap_or(self.arrived) + 1;
        self.wanted
    }

    /// Whether a probe is requested.
    pub(super) const fn is_requested(&self) -> bool {
        self.wanted > self.arrived
    }

    pub(super) const fn has_arrived(&self, number: u64) -> bool {
        self.arrived >= number
    }

    /// Whether a probe should start now. A subscriber that reads its statuses gets it at once, another one only once in `period`, because
    /// each probe uses space in its event ring.
    pub(super) fn is_due(&self, now: Duration, reads: bool, period: Duration) -> bool {
        let is_fresh = |begun| now.saturating_sub(begun) < period;
        self.is_requested() && self.sent.is_none() && (reads || !self.begun.is_some_and(is_fresh))
    }

    /// Records the start of a status, for any purpose: it is also a probe if one is requested.
    pub(super) fn begin(&mut self, now: Duration) {
        if self.is_requested() {
            self.sent = Some(self.wanted);
            self.begun = Some(now);
        }
    }

    /// Records the end of a status.
    pub(super) fn end(&mut self, arrived: bool) {
        if let Some(number) = self.sent.take()
            && arrived
        {
            self.arrived = number;
        }
    }
}

impl SubscriberState {
    /// Number of frames that can be sent now, where frames in flight to it may hold `share` slots of the pool.
    pub(super) fn free_slots(&self, share: u32) -> u32 {
        self.credits.free_slots().min(share.saturating_sub(self.credits.in_flight()))
    }

    /// Records that the subscriber has read status `number`.
    pub(super) fn status_read(&mut self, number: u32) {
        // A number that was never sent is not below the number of unread ones, and changes nothing.
        self.unread_statuses = self.unread_statuses.min(self.status_there.wrapping_sub(number));
    }

    /// Whether its entry can be reused: no transfer in flight refers to it.
    pub(super) fn is_over(&self) -> bool {
        self.gone.is_some()
            && self.credits.is_settled()
            && !self.credit_fetched
            && matches!(self.carrier, ControlBlock::Idle(_))
    }
}

/// Statistics of one subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberStatistics {
    /// Frames that were sent to it.
    pub sent: u64,
    /// Frames that have arrived.
    pub arrived: u64,
    /// Frames skipped because it had no free slot.
    pub skipped: u64,
    /// Frames whose transfer failed.
    pub failed: u64,
}

/// Description of a subscriber for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberView {
    /// Id of the subscriber.
    pub id: SubscriberId,
    /// Node of the subscriber.
    pub node: NodeId,
    /// Number of its slots.
    pub slots: u32,
    /// Number of its slots to which frames can be sent now.
    pub room: u32,
    /// Statistics.
    pub statistics: SubscriberStatistics,
}

/// Event of a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublisherEvent {
    /// A subscriber has joined.
    Joined {
        /// Id of the subscriber.
        id: SubscriberId,
        /// Node of the subscriber.
        node: NodeId,
        /// First frame that it may get.
        first: Sequence,
    },
    /// A subscriber was dropped.
    Dropped {
        /// Id of the subscriber.
        id: SubscriberId,
        /// Node of the subscriber.
        node: NodeId,
        /// Reason.
        reason: DropReason,
        /// Its statistics.
        statistics: SubscriberStatistics,
    },
    /// A connection was not accepted as a subscriber.
    Rejected {
        /// Address of the connection.
        peer: std::net::SocketAddr,
        /// Reason.
        reason: String,
    },
    /// The upload of a frame into the card failed, so that no subscriber gets it. Frames behind it in the same run are counted in
    /// [`InternalErrors::lost_uploads`](crate::InternalErrors::lost_uploads) as well, without an event.
    UploadFailed {
        /// Sequence number of the frame.
        sequence: Sequence,
        /// Fault of the channel.
        fault: Box<Error<ChannelFault>>,
    },
    /// Another transfer between host and card failed; it is retried.
    Fault {
        /// Kind of transfer.
        what: RetriedTransfer,
        /// Fault of the channel.
        fault: Box<Error<ChannelFault>>,
    },
}

/// Set of subscribers of one publisher at one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriberSet(pub(super) u64);

impl SubscriberSet {
    /// Number of subscribers.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `id` is in the set, if it was a subscriber at that time.
    #[must_use]
    pub const fn contains(self, id: SubscriberId) -> bool {
        self.0 >> (id.index % 64) & 1 != 0
    }

    pub(super) const fn contains_index(self, index: usize) -> bool {
        self.0 >> (index % 64) & 1 != 0
    }

    pub(super) const fn insert(&mut self, index: usize) {
        self.0 |= 1 << (index % 64);
    }

    pub(super) const fn remove(&mut self, index: usize) {
        self.0 &= !(1 << (index % 64));
    }

    /// Lowest index in the set.
    pub(super) const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }
}

impl From<InvalidCredit> for DropReason {
    fn from(error: InvalidCredit) -> Self {
        Self::Credit(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_nanos(1_000);

    #[test]
    fn probe_begun_before_join_does_not_count() {
        let mut probes = ProbeState::default();
        let first = probes.request_probe();
        assert_eq!((probes.request_probe(), probes.is_requested()), (first, true), "joins share one probe");
        probes.begin(Duration::ZERO);
        let second = probes.request_probe();
        assert!(second > first);
        probes.end(true);
        assert!(probes.has_arrived(first) && !probes.has_arrived(second));
        assert!(probes.is_due(Duration::ZERO, true, PERIOD));
        probes.begin(Duration::ZERO);
        probes.end(false);
        assert!(probes.is_requested() && !probes.has_arrived(second), "a failed probe has no result");
        probes.begin(Duration::ZERO);
        probes.end(true);
        assert!(probes.has_arrived(second) && !probes.is_requested());
    }

    #[test]
    fn probe_rate_of_unresponsive_subscriber_is_limited() {
        let mut probes = ProbeState::default();
        let mut begun = 0;
        for time in 0..10_000 {
            probes.request_probe();
            if probes.is_due(Duration::from_nanos(time), false, PERIOD) {
                probes.begin(Duration::from_nanos(time));
                probes.end(true);
                begun += 1;
            }
        }
        assert_eq!(begun, 10);
    }
}
