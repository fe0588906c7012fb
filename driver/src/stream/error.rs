//! What can go wrong with received packets.

use fpga_pci::DmaBuffer;
use fpga_ring::ring::PacketFault;

use crate::error::{ChannelError, SubmitError};
use crate::fault::ChannelFault;
use crate::name::{CardName, ChannelName};

/// Receiving failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A packet is lost: its metadata cannot be true, or it is longer than the ring. Receiving goes on with the packet after the
    /// next end of packet; what was lost is counted ([`StreamStatistics`](super::StreamStatistics)).
    #[error("{card} {channel}: a packet is lost: {source}; the next whole packet is received as usual")]
    Packet {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// What is wrong.
        source: PacketFault,
    },
    /// The engine stopped with an error, or was aborted. Packets that were complete before have been handed out; receiving goes
    /// on with the next call.
    #[error(transparent)]
    Fault(Box<ChannelFault>),
    /// The channel cannot go on, or nothing came in time (then the buffers stay posted).
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Buffers are posted for the other way to receive.
    #[error(
        "{card} {channel}: {what}; a channel receives into its ring (next_packet) or into single buffers (receive), not both at a time"
    )]
    Posted {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// What is posted, or not.
        what: &'static str,
    },
    /// The stream was [stopped](super::C2hStream::stop), everything that had arrived was taken, and nothing is posted any more.
    #[error("{card} {channel}: the stream was stopped and has nothing more; abort() lets it start anew")]
    Stopped {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// The buffer was not taken.
    #[error(transparent)]
    Submit(SubmitError),
    /// The buffer is larger than a descriptor can say.
    #[error(
        "{card} {channel}: a buffer of {length} bytes; a single packet is received into at most {most} bytes"
    )]
    BufferTooLarge {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// Bytes of the buffer.
        length: usize,
        /// Longest descriptor.
        most: u32,
    },
}

impl StreamError {
    /// Nothing came in time; buffers stay posted, and it can be waited again.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::Channel(ChannelError::TimedOut { .. }))
    }
}

/// A packet was not received into its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ReceiveFailed {
    /// Why.
    pub error: StreamError,
    /// The buffer. `None`: it is still posted ([`StreamError::is_timeout`]), or, where the card may reach it and cannot be stopped,
    /// in quarantine.
    pub buffer: Option<DmaBuffer>,
}
