//! Sender configuration.

use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN};
use fpga_firmware::ids::TransferId;
use fpga_registers::quantity;

use crate::feedback::congestion::CongestionConfig;

use super::retry::{RetryPolicy, TimeoutPolicy};
use crate::op_table::OpTableError;
use crate::time::Nanos;

/// Span of segments of one transfer that may be in progress, from its oldest incomplete one.
///
/// A receiver records the complete segments of a live transfer in a mask of this many bits above the first incomplete
/// one. A sender that stays within the span never has a segment refused for that reason.
pub const SEGMENT_SPAN: u32 = 256;

/// Minimum margin, in packet lifetimes, of a receiver's registry timeout over the give-up time of each of its senders:
/// one lifetime each for a packet, its answer, and a packet that is sent because of the answer.
pub const REGISTRY_TIMEOUT_MARGIN: u64 = 3;

/// Geometry, sizes and timers of a [`Sender`](super::Sender).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderConfig {
    /// Length in bytes above which a transfer is big (default 16 KiB).
    pub big_threshold: u32,
    /// Segment length of a big transfer in bytes (default 16 KiB).
    pub segment_size: u32,
    /// Payload bytes of a full packet, as a power of two, `PACKET_SIZE_LOG2_MIN` to `PACKET_SIZE_LOG2_MAX` (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Number of packets that the receiver's mask can hold, 1..=256 (default 32).
    pub mask_bits: u16,
    /// Number of op table entries: the maximum number of packets in flight (default 256). One eighth is reserved for
    /// regular commands.
    ///
    /// On a path with loss and reordering, use about two and a half times the bandwidth-delay product of the link. With
    /// 0.5 % loss and a reordering of 64 packets, 256 entries keep 0.96 of the goodput of the same link without either
    /// where the product is 32 packets (80 Gbit/s, 0.8 us one way), and 0.74 where it is 390 packets (10 us); there
    /// 1024 entries keep 0.86 and more (tests of `fpga-netsim`). The default is no larger because each entry
    /// needs space for its answer in the host's event ring, which has 4096 entries for a quarter as many packets.
    pub op_entries: u32,
    /// Generation bits of an op number, 1..=16 (default 16).
    pub generation_bits: u8,
    /// Packet lifetime: maximum time that a packet can stay in the network (default 10 ms).
    pub packet_lifetime: Nanos,
    /// Timers.
    pub retry: RetryPolicy,
    /// Maximum number of transfers that are queued, in progress or waiting to be polled (default 1024).
    pub transfers: u32,
    /// Maximum number of destinations with transfers (default 64).
    pub destinations: u32,
    /// Maximum number of transfers in progress to one destination (default 64). It bounds the state that a receiver
    /// keeps per sender.
    pub live_per_destination: u32,
    /// Maximum number of packets in flight to one destination (default: three quarters of `op_entries`), so that an
    /// unreachable node cannot fill the op table. 0 selects the default.
    pub ops_per_destination: u32,
    /// Number of path identifiers towards each node, 1..=256 (default 1): transmit windows use them in turn, and avoid those whose
    /// packets are lost or late ([`crate::spray`]). Worth it where switches choose routes by the identifier.
    pub paths: u16,
    /// Id of the first transfer to a node (default 0). Ids wrap, so every value is valid.
    pub first_transfer: TransferId,
    /// Congestion window per destination (default: on; `None`: a sender transmits as fast as its tables allow). Only
    /// with [`RetryPolicy::order_evidence`] and [`TimeoutPolicy::Adaptive`].
    pub congestion: Option<CongestionConfig>,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            big_threshold: 16 << 10,
            segment_size: 16 << 10,
            packet_size_log2: 9,
            mask_bits: 32,
            op_entries: 256,
            generation_bits: 16,
            packet_lifetime: Nanos::from_millis(10),
            retry: RetryPolicy::default(),
            transfers: 1024,
            destinations: 64,
            live_per_destination: 64,
            ops_per_destination: 0,
            paths: 1,
            first_transfer: TransferId::new(0),
            congestion: Some(CongestionConfig::DEFAULT),
        }
    }
}

impl SenderConfig {
    /// Returns the payload bytes of a full packet.
    #[must_use]
    pub const fn packet_size(&self) -> u32 {
        1 << self.packet_size_log2
    }

    /// Returns the maximum number of packets in flight to one destination.
    #[must_use]
    pub const fn packets_per_destination(&self) -> u32 {
        let share = if self.ops_per_destination == 0 {
            self.op_entries - self.op_entries / 4
        } else {
            self.ops_per_destination
        };
        if share > self.op_entries { self.op_entries } else { share }
    }

    /// Returns the minimum registry timeout of a receiver that this sender can send to (docs/protocol.md 2.3).
    #[must_use]
    pub const fn min_registry_timeout(&self) -> Nanos {
        self.retry.give_up.saturating_add(self.packet_lifetime.saturating_mul(REGISTRY_TIMEOUT_MARGIN))
    }

    /// Checks the ranges above and `threshold <= segment <= mask_bits x packet_size` (docs/protocol.md 2.3).
    ///
    /// # Errors
    /// The first rule that is violated, with the values found.
    pub fn validate(&self) -> Result<(), SenderConfigError> {
        if !(PACKET_SIZE_LOG2_MIN..=PACKET_SIZE_LOG2_MAX).contains(&self.packet_size_log2) {
            return Err(SenderConfigError::PacketSize { log2: self.packet_size_log2 });
        }
        if self.mask_bits == 0 || self.mask_bits > 256 {
            return Err(SenderConfigError::MaskBits { found: self.mask_bits });
        }
        let limit = u32::from(self.mask_bits) * self.packet_size();
        if self.segment_size == 0 || self.segment_size > limit {
            return Err(SenderConfigError::SegmentSize { segment: self.segment_size, limit });
        }
        if self.big_threshold > self.segment_size {
            return Err(SenderConfigError::Threshold {
                threshold: self.big_threshold,
                segment: self.segment_size,
            });
        }
        for (name, found, most) in [
            ("transfers", self.transfers, 1 << 20),
            ("destinations", self.destinations, 1 << 13),
            ("live_per_destination", self.live_per_destination, 1 << 16),
            ("op_entries", self.op_entries, 1 << 15),
            ("paths", self.paths.into(), crate::spray::MAX_PATHS.into()),
        ] {
            if found == 0 || found > most {
                return Err(SenderConfigError::Size { name, found, most });
            }
        }
        let timeless = match self.retry.timeout {
            TimeoutPolicy::Adaptive { initial, most, .. } => initial == Nanos::ZERO || most == Nanos::ZERO,
            TimeoutPolicy::Fixed { timeout, .. } => timeout == Nanos::ZERO,
        };
        if timeless || self.retry.give_up == Nanos::ZERO {
            return Err(SenderConfigError::Retry);
        }
        Ok(())
    }
}

/// Invalid sender configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SenderConfigError {
    /// Packet size out of range.
    #[error(
        "packets of 2^{log2} bytes are not possible: give 2^{PACKET_SIZE_LOG2_MIN} to 2^{PACKET_SIZE_LOG2_MAX}"
    )]
    PacketSize {
        /// Exponent given.
        log2: u8,
    },
    /// Mask width out of range.
    #[error("a reception mask of {found} bits is not possible: give 1 to 256")]
    MaskBits {
        /// Width given.
        found: u16,
    },
    /// The segment does not fit the mask.
    #[error(
        "segments of {segment} are not possible: give 1 to {limit} (mask bits times packet size)",
        segment = quantity(*segment, "byte"),
    )]
    SegmentSize {
        /// Segment size given, in bytes.
        segment: u32,
        /// Maximum.
        limit: u32,
    },
    /// A regular transfer would exceed one segment.
    #[error(
        "the big-transfer threshold of {threshold} exceeds the segment size of {segment}: lower it",
        threshold = quantity(*threshold, "byte"),
    )]
    Threshold {
        /// Threshold given.
        threshold: u32,
        /// Segment size given.
        segment: u32,
    },
    /// A table's size is out of range.
    #[error("{name} = {found}: give 1 to {most}")]
    Size {
        /// Field of [`SenderConfig`].
        name: &'static str,
        /// Size given.
        found: u32,
        /// Maximum.
        most: u32,
    },
    /// A timeout is zero.
    #[error("a timeout or give-up time is 0: give at least 1 ns")]
    Retry,
    /// See [`OpTableError`].
    #[error(transparent)]
    OpTable(#[from] OpTableError),
}
