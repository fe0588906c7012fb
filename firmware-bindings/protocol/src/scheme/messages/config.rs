//! What the two sides may be told, checked once.

use fpga_firmware::ids::{Incarnation, MessageId, NodeId};

use crate::scheme::MAX_MESSAGE_PACKETS;
use crate::scheme::any::{SchemeConfig, SchemeSet};
use crate::time::Nanos;

/// Geometry, sizes and timers of a [`Sender`](super::Sender).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderConfig {
    /// This node.
    pub node: NodeId,
    /// By which rules it sends what does not say by which. A receiver has to have the same.
    pub rules: SchemeConfig,
    /// By which others a transfer may ask to be sent (default: none). Each costs every context one more end.
    pub others: SchemeSet,
    /// Payload bytes of a full packet, as a power of two, 6..=12 (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Packets of a message, 1..=4096 (default 4096): longer transfers become several messages.
    pub message_packets: u32,
    /// Messages under way at once, 1..=4096 (default 64).
    pub contexts: u32,
    /// Of these to one node, so that an unreachable one leaves some to others (default: three quarters). 0 selects the default.
    pub contexts_per_node: u32,
    /// Transfers that may be queued, under way or waiting to be polled (default 1024).
    pub transfers: u32,
    /// An unanswered request is repeated after this time, twice as long each time (default: 10 us).
    pub ask: Nanos,
    /// A transfer is given up after so long without an answer (default 1 s). "Busy" is an answer.
    pub give_up: Nanos,
    /// Half of a context's message numbers last at least this long (default 1.2 s): longer than a receiver's tombstones and the
    /// life of a packet.
    pub rest: Nanos,
    /// Bits of the message numbers that are used, 3..=20 (default 20). Fewer only for tests.
    pub number_bits: u32,
}

impl SenderConfig {
    /// The defaults above for `node`.
    #[must_use]
    pub const fn new(node: NodeId, rules: SchemeConfig) -> Self {
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
        }
    }

    /// Bytes of a full packet.
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

    /// Checks every rule above.
    ///
    /// # Errors
    /// The first rule broken, with the value found.
    pub fn validate(&self) -> Result<(), MessageConfigError> {
        sizes(&[
            ("packet_size_log2", self.packet_size_log2.into(), 6, 12),
            ("message_packets", self.message_packets, 1, MAX_MESSAGE_PACKETS),
            ("contexts", self.contexts, 1, MessageId::CONTEXTS),
            ("transfers", self.transfers, 1, 1 << 20),
            ("number_bits", self.number_bits, 3, 20),
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
pub struct ReceiverConfig {
    /// This node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// By which rules it receives. A sender has to have the same.
    pub rules: SchemeConfig,
    /// And by which others (default: none). Each costs every context one more end.
    pub others: SchemeSet,
    /// Payload bytes of a full packet, as a power of two, 6..=12 (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Messages being received at once, 1..=4096 (default 64).
    pub contexts: u32,
    /// Senders' contexts that are remembered, live ones included, 1..=65536 (default 4096).
    pub peers: u32,
    /// Memory windows (default 64).
    pub windows: u32,
    /// A message whose sender is silent for so long is forgotten (default 3 s; longer than a sender's patience).
    pub silence: Nanos,
    /// What became of a message is remembered for so long after its last packet (default 1.1 s): longer than a sender's
    /// patience and the life of its packets together.
    pub tombstone: Nanos,
    /// A packet wanders for so long at most (default 10 ms): a new life of a node is refused as by a busy receiver for so long.
    pub lifetime: Nanos,
    /// Bits of the message numbers that senders use, 3..=20 (default 20).
    pub number_bits: u32,
}

impl ReceiverConfig {
    /// The defaults above for `node` in its life `incarnation`.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation, rules: SchemeConfig) -> Self {
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

    /// Bytes of a full packet.
    #[must_use]
    pub const fn packet_size(&self) -> u32 {
        1 << self.packet_size_log2
    }

    /// Checks every rule above.
    ///
    /// # Errors
    /// The first rule broken, with the value found.
    pub fn validate(&self) -> Result<(), MessageConfigError> {
        sizes(&[
            ("packet_size_log2", self.packet_size_log2.into(), 6, 12),
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

/// A side that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageConfigError {
    /// A size is out of range.
    #[error("{name} = {found}: give {least} to {most}")]
    Size {
        /// Field of the configuration.
        name: &'static str,
        /// Size asked for.
        found: u32,
        /// The smallest possible.
        least: u32,
        /// The largest possible.
        most: u32,
    },
    /// A timer of no length.
    #[error(
        "a time to ask again, to give up, of silence or of a tombstone is zero: give at least one nanosecond"
    )]
    Timeout,
}
