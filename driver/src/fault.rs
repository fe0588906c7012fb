//! What an engine's error bits say, with the transfer they hit.

use core::fmt;

use fpga_registers::xdma::{ChannelError as StatusBit, ChannelStatus};
use fpga_registers::{CardAddr, Iova};

use crate::name::{CardName, ChannelName};

/// Where a run stood when its engine stopped: the first descriptor that was not reported complete. The engine
/// has no register for it; it follows from the completed count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPosition {
    /// Its index in the descriptor ring.
    pub descriptor: u32,
    /// Its host address.
    pub host: Iova,
    /// Its card address; `None`: the channel is a stream, which has no addresses.
    pub card: Option<CardAddr>,
    /// Its length in bytes.
    pub length: u32,
    /// Bytes of the transfer that came before it.
    pub bytes_done: u64,
}

/// Why a transfer was ended by the engine or by the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultCause {
    /// Error bits in the status register.
    Status(ChannelStatus),
    /// The engine reports a completed count that the run cannot produce.
    Count(fpga_ring::ring::CountFault),
    /// The engine stopped before the end of the run and shows no error bit.
    NoError(ChannelStatus),
    /// A transfer before this one in the same run failed; this one was not executed.
    EarlierFault,
    /// The channel was aborted.
    Aborted,
}

/// A transfer failed; the channel has been stopped, is idle and can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelFault {
    /// Which card.
    pub card: CardName,
    /// Which channel.
    pub channel: ChannelName,
    /// What happened.
    pub cause: FaultCause,
    /// Where, if the run was still under way.
    pub place: Option<FaultPosition>,
}

impl ChannelFault {
    /// The error bits, if the status register had any.
    pub fn status_errors(&self) -> impl Iterator<Item = StatusBit> + use<> {
        let status = match self.cause {
            FaultCause::Status(status) | FaultCause::NoError(status) => status,
            _ => ChannelStatus::new(),
        };
        status.errors(self.channel.direction)
    }
}

impl fmt::Display for ChannelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.card, self.channel)?;
        match &self.cause {
            FaultCause::Status(_) => {
                for (n, bit) in self.status_errors().enumerate() {
                    write!(f, "{}{}", if n == 0 { "" } else { "; " }, bit.description())?;
                }
            }
            FaultCause::Count(fault) => write!(f, "{fault}")?,
            FaultCause::NoError(status) => write!(
                f,
                "the engine stopped before the end of its run without an error bit (status {})",
                status.describe(self.channel.direction)
            )?,
            FaultCause::EarlierFault => write!(f, "not executed: a transfer before it failed")?,
            FaultCause::Aborted => write!(f, "aborted")?,
        }
        if let Some(place) = self.place {
            let FaultPosition { descriptor, host, card, length, bytes_done } = place;
            write!(f, " at descriptor {descriptor} (host {host}")?;
            if let Some(card) = card {
                write!(f, ", card {card}")?;
            }
            write!(f, ", {length} bytes, after {bytes_done} bytes of the transfer)")?;
        }
        let streams = self.place.is_some_and(|place| place.card.is_none());
        let advice = match self.cause {
            FaultCause::Status(_) | FaultCause::NoError(_) if streams => {
                "check the host address and what the stream is connected to; the channel can be used again"
            }
            FaultCause::Status(_) | FaultCause::NoError(_) => {
                "check both addresses against the card's address map; the channel can be used again"
            }
            FaultCause::Count(_) => "nothing of the run counts as done; the channel can be used again",
            FaultCause::EarlierFault | FaultCause::Aborted => "submit it again",
        };
        write!(f, "; {advice}")
    }
}

impl std::error::Error for ChannelFault {}
