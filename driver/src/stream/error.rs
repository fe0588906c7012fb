//! Errors of receiving packets.

use fpga_registers::quantity;
use fpga_ring::ring::PacketFault;

use crate::advice::Advice;
use crate::error::{ChannelError, Error, ErrorKind, SubmitError};
use crate::fault::ChannelFault;

/// Error of receiving.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A packet is lost: its metadata is invalid, or it is longer than the ring. Receiving continues with the packet after the next end of
    /// packet. [`StreamStatistics`](super::StreamStatistics) counts the loss.
    #[error("a packet is lost: {0}; the next whole packet is received as usual")]
    Packet(PacketFault),
    /// The engine stopped with an error, or was aborted. Earlier complete packets have been returned; receiving continues with the next
    /// call.
    #[error(transparent)]
    Fault(Box<ChannelFault>),
    /// The channel has failed, or the wait timed out (the buffers stay posted then).
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Buffers are posted for the other way of receiving.
    #[error("{what}; a channel receives into its ring or into single buffers, not both at a time")]
    Posted {
        /// Buffers that are posted or missing.
        what: &'static str,
    },
    /// The stream was [stopped](super::C2hStream::stop), all arrived packets were taken, and nothing is posted.
    #[error("the stream was stopped and has nothing more")]
    Stopped,
    /// The buffer was refused.
    #[error(transparent)]
    Submit(SubmitError),
    /// The buffer is larger than a descriptor's maximum length.
    #[error(
        "a buffer of {length}; a single packet is received into at most {most}",
        length = quantity(*length, "byte"),
        most = quantity(*most, "byte"),
    )]
    BufferTooLarge {
        /// Size of the buffer in bytes.
        length: usize,
        /// Maximum length in bytes.
        most: u32,
    },
}

impl ErrorKind for StreamError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Fault(error) => return error.advice(),
            Self::Channel(error) => return error.advice(),
            Self::Submit(error) => return error.advice(),
            Self::Stopped => Advice::RestartStream,
            Self::Packet(PacketFault::TooLong { .. }) => Advice::EnlargeStreamBuffers,
            Self::BufferTooLarge { .. } => Advice::text("receive into a shorter buffer"),
            Self::Packet(fault) => Advice::text(fault.help()),
            Self::Posted { .. } => return None,
        })
    }
}

impl Error<StreamError> {
    /// Returns whether the wait timed out. Buffers stay posted, and the caller can wait again.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.kind, StreamError::Channel(ChannelError::TimedOut { .. }))
    }
}
