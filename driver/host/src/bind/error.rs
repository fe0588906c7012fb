//! Why a function does not have the driver that it should.

use core::fmt;
use std::io;
use std::path::PathBuf;

use fpga_registers::pci::DeviceId;

use super::record::RecordError;
use crate::group::{VFIO_PCI, listed};
use crate::roots::Holder;
use crate::{HostError, PciAddress};

/// Binding or releasing was refused, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The machine could not be examined. Nothing was changed.
    #[error(transparent)]
    Host(HostError),
    /// A bridge. Nothing was changed.
    #[error("{address} is a bridge: {VFIO_PCI} takes none; name a function below it")]
    Bridge {
        /// The function.
        address: PciAddress,
    },
    /// Ids that no known card has. Nothing was changed.
    #[error(
        "{address} is a {kind} with ids {:04x}:{:04x}{}, which XDMA designs are not known by; whatever uses it now would lose it; if it is your card all the same, add --force",
        id.vendor, id.device, driver.as_deref().map_or_else(String::new, |driver| format!(" and driver {driver}"))
    )]
    NotACard {
        /// The function.
        address: PciAddress,
        /// Its ids.
        id: DeviceId,
        /// What its class code says it is.
        kind: &'static str,
        /// Its driver.
        driver: Option<String>,
    },
    /// Without an IOMMU vfio-pci takes no function: it would end up with no driver at all. Nothing was changed.
    #[error(
        "{address} stays as it is: {}, and without one {VFIO_PCI} takes no card, so that it would have no driver at all; `fpgactl doctor` says what to do",
        if *others { "the IOMMU does not cover it" } else { "the IOMMU is off, or there is none" }
    )]
    NoIommu {
        /// The function.
        address: PciAddress,
        /// Whether other functions have groups.
        others: bool,
    },
    /// Its group has no IOMMU behind it. Nothing was changed.
    #[error(
        "{address} stays as it is: its group {group} has no IOMMU behind it (no-IOMMU mode); `fpgactl doctor` says what to do"
    )]
    NoIommuMode {
        /// The function.
        address: PciAddress,
        /// The group.
        group: u32,
    },
    /// Its driver still has virtual functions to answer for. Nothing was changed.
    #[error(
        "{address} has {count} virtual functions; end what uses them, take them away (echo 0 > /sys/bus/pci/devices/{address}/sriov_numvfs), and try again"
    )]
    HasVirtualFunctions {
        /// The function.
        address: PciAddress,
        /// How many.
        count: u64,
    },
    /// vfio-pci is not loaded. Nothing was changed.
    #[error(
        "{address} stays as it is: the kernel has not loaded {VFIO_PCI}; modprobe {VFIO_PCI}, and try again"
    )]
    NoDriver {
        /// The function.
        address: PciAddress,
    },
    /// There is nothing to release. Nothing was changed.
    #[error("{address} is not bound to {VFIO_PCI}: {} has it, and nobody has remembered another one", driver.as_deref().unwrap_or("no driver"))]
    NotBound {
        /// The function.
        address: PciAddress,
        /// Its driver.
        driver: Option<String>,
    },
    /// A program has it open. Nothing was changed.
    #[error(
        "{address} is in use by {}: the kernel would wait until it has ended; end it first",
        listed(holders)
    )]
    InUse {
        /// The function.
        address: PciAddress,
        /// Who.
        holders: Vec<Holder>,
    },
    /// The previous driver could not be remembered, or what was remembered cannot be read. Nothing was changed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The function was released; what was remembered of it could not be forgotten.
    #[error(
        "{address} was released, and {} has it; but what was remembered of it is still there: {source}; remove it by hand, or the next release goes by it",
        driver.as_deref().unwrap_or("no driver")
    )]
    RecordNotRemoved {
        /// The function.
        address: PciAddress,
        /// Its driver now.
        driver: Option<String>,
        /// Why not.
        source: RecordError,
    },
    /// A step failed.
    #[error("{address} could not be given to {to}: {failure}; {outcome}")]
    Failed {
        /// The function.
        address: PciAddress,
        /// Who was to have it.
        to: String,
        /// What failed.
        failure: Failure,
        /// What became of the function.
        outcome: Outcome,
    },
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The function was taken away.
    #[error("the function is gone from the bus")]
    Gone,
    /// The driver is not loaded.
    #[error("driver {driver} is not loaded (modprobe {driver}, or the module that contains it)")]
    NotLoaded {
        /// Which.
        driver: String,
    },
    /// This user may not write there.
    #[error("{}: {source}; binding needs root", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused a step: a driver's probe failed.
    #[error("writing to {} was refused: {source}; see dmesg for the driver's reason", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else interferes again and again.
    #[error("after many tries {} has it{}; something else binds drivers at the same time, or the driver does not want it (see dmesg)",
        driver.as_deref().unwrap_or("no driver"), last.as_deref().map_or_else(String::new, |last| format!(" (last answer: {last})")))]
    Unsettled {
        /// Its driver now.
        driver: Option<String>,
        /// The last answer of the kernel.
        last: Option<String>,
    },
    /// The machine could not be examined.
    #[error(transparent)]
    Host(Box<HostError>),
}

/// What became of a function after a step had failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It has what it had.
    Restored {
        /// Its driver.
        driver: Option<String>,
        /// What was remembered of it is still there, and why.
        kept: Option<RecordError>,
    },
    /// It has not got back what it had.
    NotRestored {
        /// Its driver now.
        driver: Option<String>,
        /// The one that it should have.
        wanted: Option<String>,
        /// Why not.
        failure: Failure,
    },
    /// It is not there any more.
    Gone,
}

impl Outcome {
    /// Whether it is as it was.
    #[must_use]
    pub const fn is_restored(&self) -> bool {
        matches!(self, Self::Restored { .. })
    }

    /// Where it is as it was, nothing need be remembered of it: `forget` is what becomes of that.
    pub(super) fn and(self, forget: impl FnOnce() -> Result<(), RecordError>) -> Self {
        match self {
            Self::Restored { driver, .. } => Self::Restored { driver, kept: forget().err() },
            other => other,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored { driver, kept } => {
                match driver {
                    Some(driver) => write!(f, "it is with {driver}, as before")?,
                    None => f.write_str("it has no driver, as before")?,
                }
                // The next binding writes another one in its place.
                kept.as_ref()
                    .map_or(Ok(()), |error| write!(f, " (what was remembered of it is still there: {error})"))
            }
            Self::NotRestored { driver, wanted, failure } => {
                let driver = driver.as_deref().unwrap_or("no driver");
                let wanted = wanted.as_deref().unwrap_or("no driver");
                write!(
                    f,
                    "it could not be given back to {wanted} either ({failure}) and is with {driver} now; `fpgactl release` tries again"
                )
            }
            Self::Gone => f.write_str("nothing can be given back"),
        }
    }
}
