//! Errors of opening a card.

use fpga_firmware::identity::IdentityReadError;
use fpga_pci::vfio::VfioOpenError;
use fpga_pci::{BarError, ConfigSpaceError, MmioError, Waited};
use fpga_vfio_user::VfioUserOpenError;

use super::{Error, ErrorKind};
use crate::advice::Advice;
use crate::name::ChannelName;
use crate::owner::OwnerStartError;
use crate::silence::AllOnesCause;
use crate::simulation::SimulationError;
use crate::spec::CardSpecError;

/// Error of opening a card. Nothing stays enabled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text names no card.
    #[error(transparent)]
    Spec(#[from] CardSpecError),
    /// The PCI function cannot be opened through VFIO.
    #[error(transparent)]
    Vfio(#[from] VfioOpenError),
    /// The vfio-user server cannot be used.
    #[error(transparent)]
    VfioUser(#[from] VfioUserOpenError),
    /// The simulated card cannot be built: its description cannot be read, or is wrong.
    #[error(transparent)]
    Simulated(Box<dyn std::error::Error + Send + Sync>),
    /// This program cannot simulate cards.
    #[error("the program is built without simulated cards")]
    NoSimulator,
    /// The shared card has no owner, and none can be started.
    #[error(transparent)]
    Owner(#[from] OwnerStartError),
    /// The simulation of RTL does not start.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// Configuration space cannot be accessed.
    #[error("configuration space: {0}")]
    Config(ConfigSpaceError),
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
    /// The identity block does not match this software.
    #[error(transparent)]
    Identity(IdentityReadError<MmioError>),
    /// A BAR could not be opened.
    #[error(transparent)]
    Bar(#[from] BarError),
    /// A register access failed.
    #[error(transparent)]
    Mmio(#[from] MmioError),
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

impl ErrorKind for OpenError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Spec(_) => Advice::NameCard,
            Self::Vfio(VfioOpenError::WrongDriver { address, .. }) => Advice::BindToVfio(*address),
            Self::UserLogic(cause) => cause.advice(),
            Self::Owner(OwnerStartError::Program { .. }) => Advice::InstallOwner,
            Self::Owner(OwnerStartError::Folder { .. } | OwnerStartError::NotPrivate { .. }) => {
                Advice::text("set XDG_RUNTIME_DIR to a folder that only you can open")
            }
            Self::Owner(OwnerStartError::Locked { .. } | OwnerStartError::NotReady { .. }) => {
                Advice::AllowSlowServer
            }
            // Its message includes help.
            Self::Owner(OwnerStartError::Ended { .. }) => return None,
            Self::Simulation(SimulationError::NotBuilt { folder }) => Advice::BuildSimulation(folder.clone()),
            Self::Simulation(SimulationError::Folder(_)) => {
                Advice::text("set XDG_RUNTIME_DIR to a folder that only you can open")
            }
            Self::Simulation(_) => return None,
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
            Self::Vfio(inner) => return inner.help().map(Advice::Text),
            Self::VfioUser(inner) => return Advice::of(inner),
            Self::Config(inner) => return Advice::of(inner),
            Self::Bar(inner) => return Advice::of(inner),
            Self::Mmio(inner) => return Advice::of(inner),
            Self::Identity(IdentityReadError::Refused(inner)) => return inner.help().map(Advice::text),
            Self::Simulated(_) | Self::Identity(_) => return None,
        })
    }

    fn names_place(&self) -> bool {
        matches!(self, Self::Spec(_) | Self::Vfio(_) | Self::VfioUser(_))
    }
}

impl From<CardSpecError> for Error<OpenError> {
    fn from(error: CardSpecError) -> Self {
        Self::new(error.into(), super::ErrorPlace::unnamed())
    }
}
