//! Receiver configuration.

use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN};
use fpga_firmware::ids::{Incarnation, NodeId};

use crate::incarnations::DEFAULT_NODES;
use crate::time::Nanos;

/// Sizes and timers of a [`Receiver`](super::Receiver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// Number of this node. Packets for another node are dropped; answers carry it.
    pub node: NodeId,
    /// Incarnation of this node; answers carry it.
    pub incarnation: Incarnation,
    /// Payload bytes of a full packet, as a power of two, `PACKET_SIZE_LOG2_MIN` to `PACKET_SIZE_LOG2_MAX` (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Maximum number of packets of a segment, 1..=256 (default 32).
    pub mask_bits: u16,
    /// Maximum number of operations in progress, 1..=65536 (default 64).
    pub registry_entries: u32,
    /// Whether the registry is a hash table with four ways (default no): a registration is refused as Busy if the four entries that its
    /// key may use are taken, although others are free. The number of entries is a power of two, at least 8, then.
    pub hashed_registry: bool,
    /// Maximum number of packets in the escape channel, 0..=4096 (default 64).
    pub escape_slots: u16,
    /// Escape timeout (default 1 ms).
    pub escape_timeout: Nanos,
    /// Registry timeout (default 2 s): time without packets after which an operation is dropped. It exceeds every
    /// sender's give-up time by [`REGISTRY_TIMEOUT_MARGIN`](crate::sender::REGISTRY_TIMEOUT_MARGIN) packet lifetimes.
    pub registry_timeout: Nanos,
    /// Packet lifetime: maximum time that a packet can stay in the network (default 10 ms).
    pub packet_lifetime: Nanos,
    /// Maximum number of transfers in progress, 1..=4096 (default 128).
    pub transfers: u16,
    /// Maximum number of known sending nodes, 1..=4096 (default 64). A node is known until the registry timeout after its last
    /// packet; further ones are refused meanwhile.
    pub sources: u16,
    /// Maximum number of nodes of which the newest incarnation is known, 1..=65536 (default 1024). One that is not known
    /// any more is protected against packets of its earlier incarnations only by the packet lifetime.
    pub nodes: u32,
    /// Ranges of completed transfers stored per sender, 2..=4096 (default 128). It must exceed the number of transfers
    /// that one sender has in progress.
    pub tombstones: u16,
    /// Number of memory windows (default 64).
    pub windows: u32,
    /// Whether every mask bit that is set raises an event (default no).
    pub packet_events: bool,
}

impl ReceiverConfig {
    /// Returns the defaults for `node` with `incarnation`.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            node,
            incarnation,
            packet_size_log2: 9,
            mask_bits: 32,
            registry_entries: 64,
            hashed_registry: false,
            escape_slots: 64,
            escape_timeout: Nanos::from_millis(1),
            registry_timeout: Nanos::from_secs(2),
            packet_lifetime: Nanos::from_millis(10),
            transfers: 128,
            sources: 64,
            nodes: DEFAULT_NODES,
            tombstones: 128,
            windows: 64,
            packet_events: false,
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
    pub fn validate(&self) -> Result<(), ReceiverConfigError> {
        if !(PACKET_SIZE_LOG2_MIN..=PACKET_SIZE_LOG2_MAX).contains(&self.packet_size_log2) {
            return Err(ReceiverConfigError::PacketSize { log2: self.packet_size_log2 });
        }
        for (name, found, least, most) in [
            ("mask_bits", u32::from(self.mask_bits), 1, 256),
            ("registry_entries", self.registry_entries, 1, 1 << 16),
            ("escape_slots", u32::from(self.escape_slots), 0, 4096),
            ("transfers", u32::from(self.transfers), 1, 4096),
            ("sources", u32::from(self.sources), 1, 4096),
            ("nodes", self.nodes, 1, 1 << 16),
            ("tombstones", u32::from(self.tombstones), 2, 4096),
            ("windows", self.windows, 1, 1 << 16),
        ] {
            if found < least || found > most {
                return Err(ReceiverConfigError::Size { name, found, least, most });
            }
        }
        if self.hashed_registry && (self.registry_entries < 8 || !self.registry_entries.is_power_of_two()) {
            return Err(ReceiverConfigError::Ways { entries: self.registry_entries });
        }
        if self.registry_timeout == Nanos::ZERO || self.escape_timeout == Nanos::ZERO {
            return Err(ReceiverConfigError::Timeout);
        }
        Ok(())
    }
}

/// Invalid receiver configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverConfigError {
    /// Packet size out of range.
    #[error(
        "packets of 2^{log2} bytes are not possible: give 2^{PACKET_SIZE_LOG2_MIN} to 2^{PACKET_SIZE_LOG2_MAX}"
    )]
    PacketSize {
        /// Exponent given.
        log2: u8,
    },
    /// A size is out of range.
    #[error("{name} = {found}: give {least} to {most}")]
    Size {
        /// Field of [`ReceiverConfig`].
        name: &'static str,
        /// Size given.
        found: u32,
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
    },
    /// A hashed registry has sets of four entries.
    #[error("a hashed registry of {entries} entries is not possible: give a power of two, at least 8")]
    Ways {
        /// Number given.
        entries: u32,
    },
    /// A timeout is zero.
    #[error("the registry or escape timeout is 0: give at least 1 ns")]
    Timeout,
}
