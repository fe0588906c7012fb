//! Errors of a channel as a whole.

use fpga_pci::Waited;
use fpga_registers::quantity;

use super::cause::Cause;
use super::located::ErrorKind;
use crate::advice::Advice;

/// Error of a channel as a whole, or a wait that ended without its transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The card does not answer. Posted buffers are quarantined.
    #[error(
        "the card is gone (all registers read as ones); quarantined, because it may still reach them: {quarantined}",
        quarantined = quantity(*quarantined, "buffer"),
    )]
    Gone {
        /// Number of quarantined buffers.
        quarantined: usize,
    },
    /// The connection to the process that serves the card has ended. Posted buffers are quarantined.
    #[error(
        "the card's server: {cause}; quarantined, because the card may still reach them: {quarantined}",
        quarantined = quantity(*quarantined, "buffer"),
    )]
    Disconnected {
        /// Reason.
        cause: Cause,
        /// Number of quarantined buffers.
        quarantined: usize,
    },
    /// The engine does not become idle. Posted buffers are quarantined.
    #[error(
        "the engine did not become idle within {waited} (status {status}); quarantined, because it may still reach them: {quarantined}",
        quarantined = quantity(*quarantined, "buffer"),
    )]
    Wedged {
        /// Timeout on the clock of the card.
        waited: Waited,
        /// Decoded status register.
        status: String,
        /// Number of quarantined buffers.
        quarantined: usize,
    },
    /// The wait's deadline has passed. The transfer stays in flight: wait again, or abort.
    #[error(
        "not complete after {waited} (status {status}, {completed} of {posted} of the run done)",
        posted = quantity(*posted, "descriptor"))]
    TimedOut {
        /// Time waited.
        waited: Waited,
        /// Decoded status register.
        status: String,
        /// Completed descriptor count of the engine.
        completed: u32,
        /// Descriptors posted in this run.
        posted: u32,
    },
    /// The wait was cancelled ([`WaitOptions::cancel`](crate::WaitOptions::cancel)). The transfer stays in flight: wait again, or abort.
    #[error("the wait was cancelled after {waited}")]
    Cancelled {
        /// Time waited.
        waited: Waited,
    },
    /// The ticket's completion was already taken, or the ticket belongs to another channel.
    #[error("this ticket's completion has been taken, or it is another channel's")]
    UnknownTicket,
    /// Part of the packet has already been sent to the card. The packet stays in flight.
    #[error("a part of this packet has been sent; without the rest the next packet would continue it")]
    PacketStarted,
    /// The handle does not name memory registered with this channel.
    #[error("no such memory is registered with this channel")]
    NotRegistered,
    /// A transfer of the memory is in flight.
    #[error("a transfer of this memory is in flight")]
    MemoryInUse,
    /// The wait needs interrupts, which are not enabled.
    #[error("interrupts are not enabled")]
    NoInterrupt,
    /// A register access, or waiting for the interrupt, failed.
    #[error(transparent)]
    Cause(Cause),
}

crate::error::with_cause!(ChannelError);

impl ErrorKind for ChannelError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Gone { .. } => Advice::ReopenCard,
            Self::Disconnected { cause, .. } | Self::Cause(cause) => return cause.advice(),
            Self::Wedged { .. } => Advice::ResetHungEngine,
            Self::TimedOut { .. } => Advice::WaitLongerOrAbort,
            Self::Cancelled { .. } | Self::PacketStarted => Advice::WaitAgainOrAbort,
            Self::NotRegistered => Advice::RegisterMemory,
            Self::MemoryInUse => Advice::WaitOrCancel,
            Self::NoInterrupt => Advice::EnableInterrupts,
            Self::UnknownTicket => return None,
        })
    }
}
