//! What a receiver is built from.

use fpga_firmware::ids::{Incarnation, NodeId};

use crate::time::Nanos;

/// Sizes and timers of a [`Receiver`](super::Receiver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// This node: packets for another are dropped, answers carry it.
    pub node: NodeId,
    /// This life of the node: answers carry it.
    pub incarnation: Incarnation,
    /// Payload bytes of a full packet, as a power of two, 6..=12 (default 9: 512 bytes).
    pub packet_size_log2: u8,
    /// Most packets of a segment, 1..=256 (default 32).
    pub mask_bits: u16,
    /// Operations in progress at once, 1..=65536 (default 64).
    pub registry_entries: u32,
    /// Packets that may wait for their start, 0..=4096 (default 64).
    pub escape_slots: u16,
    /// How long they wait (default 1 ms).
    pub escape_timeout: Nanos,
    /// Silence after which an operation is dropped (default 2 s); longer than any sender's give-up by
    /// [`REGISTRY_TIMEOUT_MARGIN`](crate::sender::REGISTRY_TIMEOUT_MARGIN) packet lifetimes.
    pub registry_timeout: Nanos,
    /// Longest time that a packet may wander (default 10 ms).
    pub packet_lifetime: Nanos,
    /// Transfers in progress at once, 1..=4096 (default 128).
    pub transfers: u16,
    /// Sending nodes remembered at once, 1..=4096 (default 64).
    pub sources: u16,
    /// Ranges of completed transfers remembered per sender, 2..=4096 (default 128): more than transfers that it has
    /// under way at once.
    pub tombstones: u16,
    /// Memory windows (default 64).
    pub windows: u32,
    /// Whether every mask bit that is set becomes an event (default no).
    pub packet_events: bool,
}

impl ReceiverConfig {
    /// The defaults for `node` in its life `incarnation`.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            node,
            incarnation,
            packet_size_log2: 9,
            mask_bits: 32,
            registry_entries: 64,
            escape_slots: 64,
            escape_timeout: Nanos::from_millis(1),
            registry_timeout: Nanos::from_secs(2),
            packet_lifetime: Nanos::from_millis(10),
            transfers: 128,
            sources: 64,
            tombstones: 128,
            windows: 64,
            packet_events: false,
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
    pub fn validate(&self) -> Result<(), ReceiverConfigError> {
        if !(6..=12).contains(&self.packet_size_log2) {
            return Err(ReceiverConfigError::PacketSize { log2: self.packet_size_log2 });
        }
        for (name, found, least, most) in [
            ("mask_bits", u32::from(self.mask_bits), 1, 256),
            ("registry_entries", self.registry_entries, 1, 1 << 16),
            ("escape_slots", u32::from(self.escape_slots), 0, 4096),
            ("transfers", u32::from(self.transfers), 1, 4096),
            ("sources", u32::from(self.sources), 1, 4096),
            ("tombstones", u32::from(self.tombstones), 2, 4096),
            ("windows", self.windows, 1, 1 << 16),
        ] {
            if found < least || found > most {
                return Err(ReceiverConfigError::Size { name, found, least, most });
            }
        }
        if self.registry_timeout == Nanos::ZERO || self.escape_timeout == Nanos::ZERO {
            return Err(ReceiverConfigError::Timeout);
        }
        Ok(())
    }
}

/// A receiver that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverConfigError {
    /// Packet size out of range.
    #[error("packets of 2^{log2} bytes: give 2^6 to 2^12")]
    PacketSize {
        /// Exponent asked for.
        log2: u8,
    },
    /// A size is out of range.
    #[error("{name} = {found}: give {least} to {most}")]
    Size {
        /// Field of [`ReceiverConfig`].
        name: &'static str,
        /// Size asked for.
        found: u32,
        /// The smallest possible.
        least: u32,
        /// The largest possible.
        most: u32,
    },
    /// A timer of no length.
    #[error("a registry or escape timeout of zero: give at least one nanosecond")]
    Timeout,
}
