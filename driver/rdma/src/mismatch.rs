//! Reasons why two nodes do not fit each other.

use std::time::Duration;

use fpga_firmware::generated::Scheme;
use fpga_registers::quantity;

use super::schemes::SchemeList;
use fpga_driver::Advice;

/// Reason why a transfer to a node would fail, according to the node's reported capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The packet sizes differ.
    #[error(
        "takes packets of {theirs}, and this card makes them of {ours}",
        theirs = quantity(*theirs, "byte"),
    )]
    PacketSize {
        /// Payload bytes of a full packet at this node.
        ours: u32,
        /// Payload bytes of a full packet at the other node.
        theirs: u32,
    },
    /// A segment has more packets than the node's mask has bits.
    #[error(
        "takes segments of at most {theirs}, and this transfer has one of {ours}",
        theirs = quantity(*theirs, "packet"),
    )]
    Segment {
        /// Number of packets of the transfer's longest segment.
        ours: u32,
        /// Number of bits of the node's mask.
        theirs: u16,
    },
    /// The node's registry timeout is shorter than this endpoint needs: a transfer could begin again after the node has released its entry.
    #[error("forgets a silent sender after {theirs:?}, and this endpoint needs {ours:?}")]
    Timeout {
        /// Minimum registry timeout that this endpoint needs.
        ours: Duration,
        /// Registry timeout of the node.
        theirs: Duration,
    },
    /// The node does not run the scheme of the transfer.
    #[error("does not run the scheme {ours}, but {theirs}")]
    Scheme {
        /// Scheme of the transfer.
        ours: Scheme,
        /// Active schemes of the node.
        theirs: SchemeList,
    },
}

impl Mismatch {
    /// Returns the advice for it.
    #[must_use]
    pub fn advice(self) -> Advice {
        match self {
            Self::PacketSize { .. } => Advice::text("load builds with the same packet size"),
            Self::Segment { .. } => Advice::ShortenSegments,
            Self::Timeout { .. } => Advice::MatchTimeouts,
            Self::Scheme { .. } => Advice::OpenWithScheme,
        }
    }
}
