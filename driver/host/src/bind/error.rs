//! Errors of binding and releasing.

use core::fmt;
use std::io;
use std::path::PathBuf;

use fpga_registers::pci::DeviceId;

use super::record::RecordError;
use crate::group::{VFIO_PCI, listed};
use crate::roots::Holder;
use crate::{HostError, PciAddress};

/// Reason why binding or releasing was refused, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The machine could not be examined. Nothing was changed.
    #[error(transparent)]
    Host(HostError),
    /// The function is a bridge. Nothing was changed.
    #[error("{address} is a bridge, which {VFIO_PCI} does not support; name a function below it")]
    Bridge {
        /// The function.
        address: PciAddress,
    },
    /// The ids are not those of a known card. Nothing was changed.
    #[error(
        "{address} is a {kind} with ids {:04x}:{:04x}{}, which are not ids of known XDMA designs; its present user would lose it; if it is your card, add --force",
        id.vendor, id.device, driver.as_deref().map_or_else(String::new, |driver| format!(" and driver {driver}"))
    )]
    NotACard {
        /// The function.
        address: PciAddress,
        /// Ids of the function.
        id: DeviceId,
        /// Kind of device according to its class code.
        kind: &'static str,
        /// Driver of the function.
        driver: Option<String>,
    },
    /// There is no IOMMU, and without one vfio-pci accepts no function: it would end up without a driver. Nothing was changed.
    #[error(
        "{address} was not changed: {}; without an IOMMU {VFIO_PCI} binds no card, and the card would be left without a driver; run `fpgactl doctor` for advice",
        if *others { "the IOMMU does not cover it" } else { "the IOMMU is off, or there is none" }
    )]
    NoIommu {
        /// The function.
        address: PciAddress,
        /// Whether other functions have groups.
        others: bool,
    },
    /// The function's group has no IOMMU (no-IOMMU mode). Nothing was changed.
    #[error(
        "{address} was not changed: its group {group} has no IOMMU behind it (no-IOMMU mode); run `fpgactl doctor` for advice"
    )]
    NoIommuMode {
        /// The function.
        address: PciAddress,
        /// The group.
        group: u32,
    },
    /// The function's driver still has virtual functions. Nothing was changed.
    #[error(
        "{address} has {count} virtual functions; end the programs that use them, remove them (echo 0 > /sys/bus/pci/devices/{address}/sriov_numvfs), and try again"
    )]
    HasVirtualFunctions {
        /// The function.
        address: PciAddress,
        /// Number of virtual functions.
        count: u64,
    },
    /// vfio-pci is not loaded. Nothing was changed.
    #[error(
        "{address} was not changed: the kernel has not loaded {VFIO_PCI}; modprobe {VFIO_PCI}, and try again"
    )]
    NoDriver {
        /// The function.
        address: PciAddress,
    },
    /// The function is not bound to vfio-pci, and there is no record of it. Nothing was changed.
    #[error("{address} is not bound to {VFIO_PCI}: its driver is {}, and no earlier driver is recorded", driver.as_deref().unwrap_or("none"))]
    NotBound {
        /// The function.
        address: PciAddress,
        /// Driver of the function.
        driver: Option<String>,
    },
    /// A process has the function open. Nothing was changed.
    #[error(
        "{address} is in use by {}: the kernel would wait until the process ends; end it first",
        listed(holders)
    )]
    InUse {
        /// The function.
        address: PciAddress,
        /// Processes that have it open.
        holders: Vec<Holder>,
    },
    /// The previous driver could not be recorded, or its record cannot be read. Nothing was changed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The function was released, but its record could not be removed.
    #[error(
        "{address} was released, and its driver is {}; but the record of its earlier driver could not be removed: {source}; delete the record, or the next release uses it",
        driver.as_deref().unwrap_or("none")
    )]
    RecordNotRemoved {
        /// The function.
        address: PciAddress,
        /// Current driver.
        driver: Option<String>,
        /// Cause.
        r#source: RecordError,
    },
    /// A step failed.
    #[error("{address} could not be bound to {to}: {failure}; {outcome}")]
    Failed {
        /// The function.
        address: PciAddress,
        /// Intended driver.
        to: String,
        /// Failed step.
        failure: Failure,
        /// State of the function after the failure.
        outcome: Outcome,
    },
}

/// Reason why a step failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The function has left the bus.
    #[error("the function is gone from the bus")]
    Gone,
    /// The driver is not loaded.
    #[error("driver {driver} is not loaded (modprobe {driver}, or the module that contains it)")]
    NotLoaded {
        /// Name of the driver.
        driver: String,
    },
    /// This user has no permission to write the file.
    #[error("{}: {source}; binding needs root", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// The kernel refused a step: a driver's probe failed.
    #[error("writing to {} was refused: {source}; see dmesg for the driver's reason", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// Another program keeps changing the binding.
    #[error("after many tries its driver is {}{}; another program binds drivers at the same time, or the driver rejects the device (see dmesg)",
        driver.as_deref().unwrap_or("none"), last.as_deref().map_or_else(String::new, |last| format!(" (last answer: {last})")))]
    Unsettled {
        /// Current driver.
        driver: Option<String>,
        /// Last error of the kernel.
        last: Option<String>,
    },
    /// The machine could not be examined.
    #[error(transparent)]
    Host(Box<HostError>),
}

/// State of a function after a failed step.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The function has its previous driver.
    Restored {
        /// Its driver.
        driver: Option<String>,
        /// Reason why the record could not be removed.
        kept: Option<RecordError>,
    },
    /// The function does not have its previous driver.
    NotRestored {
        /// Current driver.
        driver: Option<String>,
        /// Driver that it should have.
        wanted: Option<String>,
        /// Cause.
        failure: Failure,
    },
    /// The function has left the bus.
    Gone,
}

impl Outcome {
    /// Whether the previous state is restored.
    #[must_use]
    pub const fn is_restored(&self) -> bool {
        matches!(self, Self::Restored { .. })
    }

    /// Removes the record by `forget` if the previous state is restored.
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
                    Some(driver) => write!(f, "its driver is {driver}, as before")?,
                    None => f.write_str("it has no driver, as before")?,
                }
                // The next binding overwrites the record.
                kept.as_ref().map_or(Ok(()), |error| {
                    write!(f, " (the record of its earlier driver could not be removed: {error})")
                })
            }
            Self::NotRestored { driver, wanted, failure } => {
                let driver = driver.as_deref().unwrap_or("none");
                let wanted = wanted.as_deref().unwrap_or("no driver");
                write!(
                    f,
                    "returning it to {wanted} failed too ({failure}), and its driver is now {driver}; `fpgactl release` tries again"
                )
            }
            Self::Gone => f.write_str("the earlier driver cannot be restored"),
        }
    }
}
