//! Errors of binding and releasing.

use core::fmt;
use std::borrow::Cow;
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
    #[error("{address} is a bridge, which {VFIO_PCI} does not support")]
    Bridge {
        /// The function.
        address: PciAddress,
    },
    /// The ids are not those of a known card. Nothing was changed.
    #[error(
        "{address} is a {kind} with ids {:04x}:{:04x}{}, which are not ids of known XDMA designs",
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
        "{address} was not changed: {}, and {VFIO_PCI} requires an IOMMU",
        if *others { "the IOMMU does not cover it" } else { "the IOMMU is off or absent" }
    )]
    NoIommu {
        /// The function.
        address: PciAddress,
        /// Whether other functions have groups.
        others: bool,
    },
    /// The function's group has no IOMMU (no-IOMMU mode). Nothing was changed.
    #[error("{address} was not changed: its group {group} has no IOMMU (no-IOMMU mode)")]
    NoIommuMode {
        /// The function.
        address: PciAddress,
        /// The group.
        group: u32,
    },
    /// The function's driver still has virtual functions. Nothing was changed.
    #[error("{address} was not changed: it has {count} virtual functions")]
    HasVirtualFunctions {
        /// The function.
        address: PciAddress,
        /// Number of virtual functions.
        count: u64,
    },
    /// vfio-pci is not loaded. Nothing was changed.
    #[error("{address} was not changed: the kernel has not loaded {VFIO_PCI}")]
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
    #[error("{address} is in use by {}, and the kernel would wait until the process ends", listed(holders))]
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
        "{address} was released, and its driver is {}, but the record of its earlier driver could not be removed: {source}",
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

impl BindError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Host(inner) => return inner.help(),
            Self::Bridge { .. } => "name a function below it",
            Self::NotACard { .. } => "force the binding if it is your card: its present driver loses it",
            Self::NoIommu { .. } => "enable the IOMMU in the firmware and on the kernel's command line",
            Self::NoIommuMode { .. } => "enable the IOMMU, and disable VFIO's no-IOMMU mode",
            Self::HasVirtualFunctions { address, .. } => {
                return Some(Cow::Owned(format!(
                    "end the programs that use them, and remove them: echo 0 > /sys/bus/pci/devices/{address}/sriov_numvfs"
                )));
            }
            Self::NoDriver { .. } => "load it: modprobe vfio-pci",
            Self::NotBound { .. } => return None,
            Self::InUse { .. } => "end that program first",
            Self::Record(inner) => return inner.help(),
            Self::RecordNotRemoved { .. } => "delete the record: otherwise the next release uses it",
            Self::Failed { outcome: Outcome::NotRestored { .. }, .. } => {
                "release it again to return it to its driver"
            }
            Self::Failed { failure, .. } => return failure.help(),
        }))
    }
}

/// Reason why a step failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The function has left the bus.
    #[error("the function is gone from the bus")]
    Gone,
    /// The driver is not loaded.
    #[error("driver {driver} is not loaded")]
    NotLoaded {
        /// Name of the driver.
        driver: String,
    },
    /// This user has no permission to write the file.
    #[error("{}: {source}", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// The kernel refused a step: a driver's probe failed.
    #[error("writing to {} was refused: {source}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// Another program keeps changing the binding.
    #[error("after many tries its driver is {}{}: another program binds drivers at the same time, or the driver rejects the device",
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

impl Failure {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Gone => return None,
            Self::NotLoaded { driver } => {
                return Some(Cow::Owned(format!(
                    "load it: modprobe {driver}, or the module that contains it"
                )));
            }
            Self::NotPermitted { .. } => "run as root",
            Self::Refused { .. } => "read the driver's reason in the kernel's log (dmesg)",
            Self::Unsettled { .. } => {
                "end other programs that bind drivers, and read the kernel's log (dmesg)"
            }
            Self::Host(inner) => return inner.help(),
        }))
    }
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
                write!(f, "returning it to {wanted} failed too ({failure}), and its driver is now {driver}")
            }
            Self::Gone => f.write_str("the earlier driver cannot be restored"),
        }
    }
}
