//! Errors of taking a resource of a card.

use fpga_registers::quantity;

use super::{Cause, ErrorKind};
use crate::advice::Advice;
use crate::name::ChannelName;

/// Error of taking a resource of a card (a channel, the CDMA engine, memory, interrupts).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The channel number is too high.
    #[error("channel {channel} does not exist; the card has {}", channel.others(*available))]
    NoSuchChannel {
        /// Requested channel.
        channel: ChannelName,
        /// Number of channels in this direction.
        available: u8,
    },
    /// The user interrupt number is too high.
    #[error(
        "there is no user interrupt {line}; the card has {available}, numbered 0 to {}",
        available.saturating_sub(1)
    )]
    NoSuchUserInterrupt {
        /// Requested line.
        line: u8,
        /// Number of user interrupts.
        available: u8,
    },
    /// Another owner in this process holds the resource.
    #[error("{what} is in use; it has one owner at a time")]
    InUse {
        /// Resource.
        what: String,
    },
    /// The card was opened for inspection only ([`OpenOptions::observe`](crate::OpenOptions::observe)).
    #[error("the card was opened for inspection only: channels and interrupts cannot be used")]
    Observed,
    /// The card has no such resource, or the driver did not search for it.
    #[error("{what} is not there: {reason}")]
    Absent {
        /// Resource.
        what: &'static str,
        /// Reason.
        reason: &'static str,
    },
    /// The engine still runs for an earlier owner that could not stop it.
    #[error("{channel} is still busy with what an earlier owner could not stop")]
    Busy {
        /// Name of the channel.
        channel: ChannelName,
    },
    /// Another client of the shared card has the stream channel, which has one owner at a time.
    #[error(
        "{channel} is used by another client of the shared card; a stream channel has one client at a time"
    )]
    OtherClient {
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The channels are AXI4-Stream and have no card addresses.
    #[error("the channels are AXI4-Stream, there are no card addresses")]
    Stream,
    /// The channels are memory mapped and have no packets.
    #[error("the channels are memory mapped, not AXI4-Stream")]
    NotStream,
    /// The buffer options of a C2H stream are invalid.
    #[error(
        "{buffers} stream buffers of {size}, but a stream has 2 to 65536 (a power of two), each a multiple of 64 bytes (PG195) of at most 64 MiB",
        size = quantity(*size, "byte"),
    )]
    StreamBuffers {
        /// Requested number of buffers.
        buffers: u32,
        /// Requested size of each buffer in bytes.
        size: usize,
    },
    /// The card does not support descriptor credit mode.
    #[error("{channel} does not support descriptor credit mode (its bit at 0x6020 stays 0)")]
    CreditModeUnsupported {
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The ring options are invalid, DMA memory cannot be allocated, interrupts cannot be set up, or a register access failed.
    #[error(transparent)]
    Cause(Cause),
}

crate::error::with_cause!(ResourceError);

impl ErrorKind for ResourceError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::NoSuchUserInterrupt { .. } | Self::NoSuchChannel { .. } => {
                Advice::text("name one that the card has")
            }
            Self::InUse { .. } => Advice::DropOtherHandle,
            Self::OtherClient { .. } => Advice::text("end that client, or use another channel"),
            Self::Observed => Advice::OpenForUse,
            Self::Absent { what: "the CDMA engine", .. } => Advice::StateCdmaOffset,
            Self::Busy { .. } => Advice::ResetHungEngine,
            Self::Stream => Advice::UseStreamChannel,
            Self::NotStream => Advice::UseMemoryChannel,
            Self::StreamBuffers { .. } => Advice::ChooseStreamBuffers,
            Self::CreditModeUnsupported { .. } => Advice::UseBatchMode,
            Self::Cause(cause) => return cause.advice(),
            Self::Absent { .. } => return None,
        })
    }
}
