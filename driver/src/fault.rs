//! Channel faults: the engine's error bits and the transfer that they affect.

use core::fmt;

use fpga_registers::xdma::{ChannelStatus, Direction, StatusError as StatusBit};
use fpga_registers::{CardAddr, Iova, quantity};

use crate::advice::Advice;
use crate::error::{Cause, ErrorKind};

/// Position at which a run stopped: the first descriptor that was not reported complete. It is derived from the completed descriptor count;
/// the engine has no register for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPosition {
    /// Index in the descriptor ring.
    pub descriptor: u32,
    /// Host address.
    pub host: Iova,
    /// Card address; `None` on a stream channel, which has no addresses.
    pub card: Option<CardAddr>,
    /// Length in bytes.
    pub length: u32,
    /// Bytes of the transfer before this descriptor.
    pub bytes_done: u64,
}

/// Reason why an engine or the driver ended a transfer or a copy. `S` is the engine's status register.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultCause<S = ChannelStatus> {
    /// The status register has error bits set.
    Status(S),
    /// The engine reports progress that the posted descriptors cannot produce: a count, a status word or a descriptor pointer.
    Count(Cause),
    /// The engine stopped before its last descriptor and shows no error bit.
    NoError(S),
    /// The descriptors of a copy did not reach the card.
    Upload,
    /// An earlier transfer or copy failed; this one was not executed.
    EarlierFault,
    /// The channel or the ring was aborted. A copy may have been executed in part.
    Aborted,
    /// The card is gone.
    Gone,
    /// The card was reset.
    Reset,
    /// The engine did not stop, so the channel has failed; a CDMA engine may still write to the destination.
    Wedged,
}

impl<S> FaultCause<S> {
    /// Returns whether the channel as a whole has failed, with every transfer in flight. The error of the channel has the details.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        matches!(self, Self::Gone | Self::Reset | Self::Wedged)
    }

    /// Writes a cause whose text is the same for every engine.
    pub(crate) fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(fault) => write!(f, "{fault}"),
            Self::Upload => f.write_str("the descriptors did not reach the card"),
            Self::Aborted => f.write_str("aborted"),
            Self::Gone => f.write_str("ended without a result: the card is gone"),
            Self::Reset => f.write_str("ended without a result: the card was reset"),
            Self::Wedged => f.write_str("ended without a result: the engine does not stop"),
            Self::Status(_) | Self::NoError(_) | Self::EarlierFault => Ok(()),
        }
    }
}

/// Fault of a transfer. The channel was stopped, is idle and can be used again, unless the cause [is a loss](FaultCause::is_loss).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelFault {
    /// Direction of the channel, which decides the meaning of its error bits.
    pub direction: Direction,
    /// Cause of the fault.
    pub cause: FaultCause,
    /// Position of the fault, if the run was still in progress.
    pub position: Option<FaultPosition>,
}

impl ChannelFault {
    /// Returns the error bits of the status register; empty if the cause has none.
    pub fn status_errors(&self) -> impl Iterator<Item = StatusBit> + use<> {
        let status = match self.cause {
            FaultCause::Status(status) | FaultCause::NoError(status) => status,
            _ => ChannelStatus::new(),
        };
        status.errors(self.direction)
    }
}

impl fmt::Display for ChannelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            FaultCause::Status(_) => {
                for (n, bit) in self.status_errors().enumerate() {
                    write!(f, "{}{}", if n == 0 { "" } else { "; " }, bit.description())?;
                }
            }
            FaultCause::NoError(status) => write!(
                f,
                "the engine stopped before the end of its run without an error bit (status {})",
                status.describe(self.direction)
            )?,
            FaultCause::EarlierFault => write!(f, "not executed: a transfer before it failed")?,
            cause => cause.describe(f)?,
        }
        if let Some(place) = self.position {
            let FaultPosition { descriptor, host, card, length, bytes_done } = place;
            write!(f, " at descriptor {descriptor} (host {host}")?;
            if let Some(card) = card {
                write!(f, ", card {card}")?;
            }
            let (length, done) = (quantity(length, "byte"), quantity(bytes_done, "byte"));
            write!(f, ", {length}, after {done} of the transfer; a part of these may have been moved)")?;
        }
        Ok(())
    }
}

impl std::error::Error for ChannelFault {}

impl ErrorKind for ChannelFault {
    fn advice(&self) -> Option<Advice> {
        let streams = self.position.is_some_and(|position| position.card.is_none());
        Some(match self.cause {
            FaultCause::Status(_) | FaultCause::NoError(_) if streams => Advice::text(
                "check the host address and what the stream is connected to; the channel can be used again",
            ),
            FaultCause::Status(_) | FaultCause::NoError(_) => Advice::text(
                "check both addresses against the card's address map; the channel can be used again",
            ),
            FaultCause::Count(_) => {
                Advice::text("take nothing of the run as done; the channel can be used again")
            }
            FaultCause::Upload | FaultCause::EarlierFault | FaultCause::Aborted => Advice::Resubmit,
            FaultCause::Gone => Advice::ReopenCard,
            FaultCause::Reset => Advice::DropCard,
            FaultCause::Wedged => Advice::ResetBus,
        })
    }
}
