//! Errors of opening a card.

use fpga_pci::Waited;

use super::{Cause, Error, ErrorKind};
use crate::advice::Advice;
use crate::name::ChannelName;
use crate::silence::AllOnesCause;

/// Error of opening a card. Nothing stays enabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text names no card.
    #[error(transparent)]
    Spec(Cause),
    /// The function cannot be opened or accessed: the kernel or the card's server refuses it, a simulated card cannot be built, the owner
    /// of a shared card or the simulation of RTL does not start, the identity block does not match this software, an access failed.
    #[error(transparent)]
    Cause(#[from] Cause),
    /// This program cannot simulate cards.
    #[error("the program is built without simulated cards")]
    NoSimulator,
    /// The card does not answer: every register reads as all ones.
    #[error("every register reads as all ones: the card is gone, its link is down or memory decoding is off")]
    Gone,
    /// No BAR is implemented.
    #[error("the function has no memory BARs")]
    NoBars,
    /// A required BAR is missing.
    #[error("BAR {index}, which is to be the {role} BAR, does not exist")]
    BarAbsent {
        /// Role of the BAR.
        role: &'static str,
        /// BAR number.
        index: u8,
    },
    /// The card has no BAR for a role.
    #[error("the card has no {role} BAR, which {needed_for} needs")]
    RoleAbsent {
        /// Role of the missing BAR.
        role: &'static str,
        /// Request that needs the BAR.
        needed_for: &'static str,
    },
    /// A BAR is smaller than its role requires.
    #[error("BAR {index} has {size:#x} bytes, but a {role} BAR needs {needed:#x}")]
    BarTooSmall {
        /// Role of the BAR.
        role: &'static str,
        /// BAR number.
        index: u8,
        /// Size of the BAR in bytes.
        size: u64,
        /// Required size in bytes.
        needed: u64,
    },
    /// The DMA BAR cannot be determined; see [`BarRoles`](crate::BarRoles).
    #[error(
        "the BAR with the XDMA registers is unclear: no MSI-X table at 0x8000, and not exactly one BAR of 64 KiB among {found:x?} (number, size)"
    )]
    DmaBarUnclear {
        /// Number and size in bytes of each BAR found.
        found: Vec<(u8, u64)>,
    },
    /// The BAR does not hold XDMA registers.
    #[error(
        "BAR {index} is no XDMA register BAR: it reads {irq:#010x} at 0x2000 and {config:#010x} at 0x3000 instead of 0x1fc2xxxx and 0x1fc3xxxx"
    )]
    NotXdma {
        /// BAR number.
        index: u8,
        /// Word at 0x2000.
        irq: u32,
        /// Word at 0x3000.
        config: u32,
    },
    /// The identity block reads as all ones on a card whose DMA engine answers.
    #[error("identity block of the network interface: {0}")]
    UserLogic(AllOnesCause),
    /// Some register reads return all ones and some do not.
    #[error(
        "some register reads return all ones and some do not: XDMA cores of Vivado 2018 do that at every second read, or the link is failing"
    )]
    UnsteadyReads,
    /// A channel that was running before did not stop.
    #[error("{channel} was running and did not become idle within {waited}")]
    NotIdle {
        /// Name of the channel.
        channel: ChannelName,
        /// Timeout on the clock of the card.
        waited: Waited,
    },
}

crate::error::with_cause!(OpenError);

impl ErrorKind for OpenError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Spec(_) => Advice::NameCard,
            Self::UserLogic(cause) => cause.advice(),
            Self::NoSimulator => Advice::EnableSimulator,
            Self::Gone => Advice::ResetBus,
            Self::NotIdle { .. } => Advice::ResetHungEngine,
            Self::NoBars => Advice::text(
                "remove the function and rescan the bus, as is necessary after an FPGA was re-programmed",
            ),
            Self::BarAbsent { .. } | Self::DmaBarUnclear { .. } => Advice::StateDmaBar,
            Self::RoleAbsent { .. } => Advice::text("build the bitstream with this BAR"),
            Self::BarTooSmall { .. } => {
                Advice::text("check which bitstream is loaded and which BAR is meant")
            }
            Self::NotXdma { .. } => Advice::text(
                "check the bitstream: QDMA cards use the same device ids, and the ids can be edited",
            ),
            Self::UnsteadyReads => {
                Advice::text("rebuild the bitstream with Vivado 2019.1 or newer, or check the link")
            }
            Self::Cause(cause) => return cause.advice(),
        })
    }

    fn names_place(&self) -> bool {
        matches!(self, Self::Spec(_)) || matches!(self, Self::Cause(cause) if cause.names_place())
    }
}

/// The text that was to name a card does not.
impl From<Cause> for Error<OpenError> {
    fn from(cause: Cause) -> Self {
        Self::new(OpenError::Spec(cause), super::ErrorPlace::unnamed())
    }
}
