//! Errors of receiving packets.

use fpga_registers::quantity;
use fpga_ring::ring::PacketFault;

use crate::error::{ChannelError, SubmitError};
use crate::fault::ChannelFault;
use crate::name::{CardName, ChannelName};

/// Error of receiving.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A packet is lost: its metadata is invalid, or it is longer than the ring. Receiving continues with the packet after the next end of
    /// packet. [`StreamStatistics`](super::StreamStatistics) counts the loss.
    #[error("{card} {channel}: a packet is lost: {source}; the next whole packet is received as usual")]
    Packet {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Reason.
        source: PacketFault,
    },
    /// The engine stopped with an error, or was aborted. Earlier complete packets have been returned; receiving continues with the next
    /// call.
    #[error(transparent)]
    Fault(Box<ChannelFault>),
    /// The channel has failed, or the wait timed out (the buffers stay posted then).
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Buffers are posted for the other way of receiving.
    #[error(
        "{card} {channel}: {what}; a channel receives into its ring (next_packet) or into single buffers (receive), not both at a time"
    )]
    Posted {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Buffers that are posted or missing.
        what: &'static str,
    },
    /// The stream was [stopped](super::C2hStream::stop), all arrived packets were taken, and nothing is posted.
    #[error("{card} {channel}: the stream was stopped and has nothing more; abort() lets it start anew")]
    Stopped {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The buffer was refused.
    #[error(transparent)]
    Submit(SubmitError),
    /// The buffer is larger than a descriptor's maximum length.
    #[error(
        "{card} {channel}: a buffer of {length}; a single packet is received into at most {most}",
        length = quantity(*length, "byte"),
        most = quantity(*most, "byte"),
    )]
    BufferTooLarge {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Size of the buffer in bytes.
        length: usize,
        /// Maximum length in bytes.
        most: u32,
    },
}

impl StreamError {
    /// Returns whether the wait timed out. Buffers stay posted, and the caller can wait again.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::Channel(ChannelError::TimedOut { .. }))
    }
}
