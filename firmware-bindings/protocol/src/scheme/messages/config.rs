//! Configurations of sender and receiver of the message schemes.

use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN};
use fpga_firmware::ids::{Incarnation, MessageId, NodeId};

use crate::feedback::congestion::CongestionConfig;
use crate::scheme::MAX_MESSAGE_PACKETS;
use crate::scheme::any::SchemeConfig;
use crate::scheme::message_scheme::{MessageScheme, SchemeSet};
use crate::time::Nanos;

/// Geometry, sizes and timers of a [`Sender`](super::Sender).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderConfig<R = SchemeConfig> {
    /// Number of this node.
    pub node: NodeId,
    /// Default scheme of transfers. The receiver has to support the same.
    pub rules: R,
    /// Additional schemes that a transfer may select (default: none). Each needs one more message sender per context.
    pub others: SchemeSet<R>,
    /// Payload bytes of a full packet, as a power of two, `PACKET_SIZE_LOG2_MIN` to `PACKET_SIZE_LOG2_MAX` (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Maximum number of packets of a message, 1..=4096 (default 4096); longer transfers become several messages.
    pub message_packets: u32,
    /// Maximum number of messages in progress, 1..=4096 (default 64).
    pub contexts: u32,
    /// Maximum number of messages in progress to one node, so that an unreachable node does not occupy all contexts
    /// (default: three quarters). 0 selects the default.
    pub contexts_per_node: u32,
    /// Maximum number of transfers that are queued, in progress or waiting to be polled (default 1024).
    pub transfers: u32,
    /// Time after which an unanswered request is repeated; it doubles each time (default 10 us).
    pub ask: Nanos,
    /// Give-up time: time without an answer after which a transfer fails (default 1 s). "Busy" is an answer.
    pub give_up: Nanos,
    /// Minimum time for which half of a context's message numbers last (default 1.2 s). It has to exceed a receiver's
    /// tombstone time plus the packet lifetime.
    pub rest: Nanos,
    /// Number of bits of the message numbers in use, 3..=20 (default 20). Fewer only for tests.
    pub number_bits: u32,
    /// Number of path identifiers towards each node, 1..=256 (default 1): packets use them in turn, and avoid those whose
    /// packets are lost or late ([`crate::spray`]). Worth it where switches choose routes by the identifier.
    pub paths: u16,
    /// Congestion window per destination (default: on; `None`: senders transmit as fast as their schemes allow).
    pub congestion: Option<CongestionConfig>,
}

impl<R: MessageScheme> SenderConfig<R> {
    /// Returns the defaults above for `node`.
    #[must_use]
    pub const fn new(node: NodeId, rules: R) -> Self {
        Self {
            node,
            rules,
            others: SchemeSet::NONE,
            packet_size_log2: 9,
            message_packets: MAX_MESSAGE_PACKETS,
            contexts: 64,
            contexts_per_node: 0,
            transfers: 1024,
            ask: Nanos::from_micros(10),
            give_up: Nanos::from_secs(1),
            rest: Nanos::from_millis(1200),
            number_bits: 20,
            paths: 1,
            congestion: Some(CongestionConfig::DEFAULT),
        }
    }

    /// Returns the payload bytes of a full packet.
    #[must_use]
    pub const fn packet_size(&self) -> u32 {
        1 << self.packet_size_log2
    }

    pub(super) const fn share(&self) -> u32 {
        match self.contexts_per_node {
            0 => self.contexts - self.contexts / 4,
            share => share,
        }
    }

    /// Checks the ranges above.
    ///
    /// # Errors
    /// The first rule that is violated, with the value found.
    pub fn validate(&self) -> Result<(), MessageConfigError> {
        sizes(&[
            (
                "packet_size_log2",
                self.packet_size_log2.into(),
                PACKET_SIZE_LOG2_MIN.into(),
                PACKET_SIZE_LOG2_MAX.into(),
            ),
            ("message_packets", self.message_packets, 1, MAX_MESSAGE_PACKETS),
            ("contexts", self.contexts, 1, MessageId::CONTEXTS),
            ("transfers", self.transfers, 1, 1 << 20),
            ("number_bits", self.number_bits, 3, 20),
            ("paths", self.paths.into(), 1, crate::spray::MAX_PATHS.into()),
        ])?;
        if self.ask == Nanos::ZERO || self.give_up == Nanos::ZERO {
            return Err(MessageConfigError::Timeout);
        }
        Ok(())
    }
}

/// Geometry, sizes and timers of a [`Receiver`](super::Receiver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverConfig<R = SchemeConfig> {
    /// Number of this node.
    pub node: NodeId,
    /// Incarnation of this node.
    pub incarnation: Incarnation,
    /// Default scheme. A sender has to use the same.
    pub rules: R,
    /// Additional schemes (default: none). Each needs one more message receiver per context.
    pub others: SchemeSet<R>,
    /// Payload bytes of a full packet, as a power of two, `PACKET_SIZE_LOG2_MIN` to `PACKET_SIZE_LOG2_MAX` (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Maximum number of messages in progress, 1..=4096 (default 64).
    pub contexts: u32,
    /// Maximum number of senders' contexts that are recorded, live ones included, 1..=65536 (default 4096).
    pub peers: u32,
    /// Number of memory windows (default 64).
    pub windows: u32,
    /// Time without a packet after which a message is dropped (default 3 s); longer than the give-up time of a sender.
    pub silence: Nanos,
    /// Time for which the state of a message is kept after its last packet (default 1.1 s); longer than the give-up
    /// time of a sender plus the packet lifetime.
    pub tombstone: Nanos,
    /// Packet lifetime: maximum time that a packet can stay in the network (default 10 ms).
    pub lifetime: Nanos,
    /// Number of bits of the message numbers that senders use, 3..=20 (default 20).
    pub number_bits: u32,
}

impl<R: MessageScheme> ReceiverConfig<R> {
    /// Returns the defaults above for `node` with `incarnation`.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation, rules: R) -> Self {
        Self {
            node,
            incarnation,
            rules,
            others: SchemeSet::NONE,
            packet_size_log2: 9,
            contexts: 64,
            peers: 4096,
            windows: 64,
            silence: Nanos::from_secs(3),
            tombstone: Nanos::from_millis(1100),
            lifetime: Nanos::from_millis(10),
            number_bits: 20,
        }
    }

    /// Returns the payload bytes of a full packet.
    #[must_use]
    pub const fn packet_size(&self) -> u32 {
        1 << self.packet_size_log2
    }

    /// Checks the ranges above.
    ///
    /// # Errors
    /// The first rule that is violated, with the value found.
    pub fn validate(&self) -> Result<(), MessageConfigError> {
        sizes(&[
            (
                "packet_size_log2",
                self.packet_size_log2.into(),
                PACKET_SIZE_LOG2_MIN.into(),
                PACKET_SIZE_LOG2_MAX.into(),
            ),
            ("contexts", self.contexts, 1, MessageId::CONTEXTS),
            ("peers", self.peers, 1, 1 << 16),
            ("windows", self.windows, 1, 1 << 16),
            ("number_bits", self.number_bits, 3, 20),
        ])?;
        if self.silence == Nanos::ZERO || self.tombstone == Nanos::ZERO {
            return Err(MessageConfigError::Timeout);
        }
        Ok(())
    }
}

fn sizes(rules: &[(&'static str, u32, u32, u32)]) -> Result<(), MessageConfigError> {
    for &(name, found, least, most) in rules {
        if found < least || found > most {
            return Err(MessageConfigError::Size { name, found, least, most });
        }
    }
    Ok(())
}

/// Invalid configuration of a sender or receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageConfigError {
    /// A size is out of range.
    #[error("{name} = {found}: give {least} to {most}")]
    Size {
        /// Field of the configuration.
        name: &'static str,
        /// Size given.
        found: u32,
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
    },
    /// A timeout is zero.
    #[error("a retry, give-up, silence or tombstone time is 0: give at least 1 ns")]
    Timeout,
}
