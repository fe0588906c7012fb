//! Errors of opening a device.

use std::borrow::Cow;
use std::error::Error;
use std::path::PathBuf;

use fpga_host::Holder;

use super::options::ParseVfioOptionError;
use crate::error::DisplayList;
use crate::{ConfigSpaceError, OsError, OtherFunction, ParsePciAddressError, PciAddress};

/// Advice for a missing IOMMU. Source: the kernel's `Documentation/admin-guide/kernel-parameters.txt` (`intel_iommu`, `amd_iommu`).
const ENABLE_IOMMU: &str = "enable the IOMMU in the firmware (VT-d, AMD-Vi), on the kernel's command line (Intel: intel_iommu=on) and in a virtual machine, then restart";

/// Error of opening a device through VFIO; nothing of it stays open. The variants follow the steps: address, device, IOMMU, driver, VFIO
/// itself, permission, the group or the device file, and the replies of the opened device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioOpenError {
    /// The text is not a PCI address.
    #[error(transparent)]
    BadAddress(#[from] ParsePciAddressError),
    /// An option is invalid.
    #[error(transparent)]
    BadOption(#[from] ParseVfioOptionError),
    /// The device does not exist.
    #[error("PCI device {address} does not exist (no {})", path.display())]
    NotPresent {
        /// Requested address.
        address: PciAddress,
        /// Its path in sysfs if it existed.
        path: PathBuf,
    },
    /// The device is not bound to vfio-pci, though it could be.
    #[error("{address} is bound to {}, not to vfio-pci", driver.as_deref().unwrap_or("no driver"))]
    WrongDriver {
        /// The device.
        address: PciAddress,
        /// The driver it is bound to, if any.
        driver: Option<String>,
    },
    /// The device has no IOMMU group, with any driver: vfio-pci refuses it.
    #[error(
        "{address} cannot be used without an IOMMU: {}",
        if *others { "the IOMMU does not cover it (no iommu_group in sysfs, though other devices have one)" } else { "the IOMMU is off or absent (/sys/kernel/iommu_groups is empty)" }
    )]
    NoIommuGroup {
        /// The device.
        address: PciAddress,
        /// Whether other devices have groups: then the IOMMU is on, but does not cover this one.
        others: bool,
    },
    /// The device is bound to vfio-pci without an IOMMU (no-IOMMU mode).
    #[error(
        "{address} is bound in VFIO's no-IOMMU mode (group {group}), which is refused: a wrong address could overwrite any memory of the machine"
    )]
    NoIommuMode {
        /// The device.
        address: PciAddress,
        /// The group that VFIO created for it.
        group: u32,
    },
    /// The kernel does not offer VFIO, or not the requested interface.
    #[error("this system offers no {interface} ({} does not exist)", path.display())]
    NoVfio {
        /// Missing interface.
        interface: &'static str,
        /// Missing file.
        path: PathBuf,
        /// Advice.
        advice: &'static str,
    },
    /// No permission to open a device file.
    #[error("{} cannot be opened: {source}", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        r#source: OsError,
    },
    /// Another device of the group is used by a driver of the kernel.
    #[error("IOMMU group {group} of {address} is not viable: {}", Members(others))]
    GroupNotViable {
        /// The device.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// Members that block the group: bound to other drivers. Empty if sysfs names none.
        others: Vec<OtherFunction>,
    },
    /// Another process uses the device, or another one of its group.
    #[error("{address} is in use: {} is held by {}", path.display(), Holders(holders))]
    Busy {
        /// The device.
        address: PciAddress,
        /// File that could not be opened.
        path: PathBuf,
        /// Processes that have it open, as far as this user may see them.
        holders: Vec<Holder>,
    },
    /// The IOMMU does not isolate interrupts.
    #[error(
        "{address} cannot be used safely: the IOMMU does not isolate interrupts, so the card could send any"
    )]
    UnsafeInterrupts {
        /// The device.
        address: PciAddress,
        /// The kernel module whose parameter it is.
        module: &'static str,
    },
    /// The device requires a VF token, another one, or none.
    #[error(
        "{address}: the VF token {}", if *given { "is refused" } else { "is missing" }
    )]
    VfToken {
        /// The device.
        address: PciAddress,
        /// Whether one was given.
        given: bool,
        /// The system's reason.
        source: OsError,
    },
    /// The IOMMU permits no addresses.
    #[error(
        "{address}: the IOMMU permits no addresses: reserved ranges of another device or a small address width exclude all of them"
    )]
    NoAddresses {
        /// The device.
        address: PciAddress,
    },
    /// Another step failed.
    #[error("{address}: {step} failed: {source}")]
    Step {
        /// The device.
        address: PciAddress,
        /// Name of the step.
        step: &'static str,
        /// Reason.
        r#source: Box<dyn Error + Send + Sync>,
    },
    /// The opened device does not report one of its properties.
    #[error("the kernel does not report {what} of {address}: {source}")]
    Query {
        /// The device.
        address: PciAddress,
        /// Requested property.
        what: &'static str,
        /// The system's reason.
        r#source: OsError,
    },
    /// The kernel's reply is invalid.
    #[error(
        "the kernel's answer about {what} of {address} cannot be parsed: this kernel's VFIO interface is not supported"
    )]
    Malformed {
        /// The device.
        address: PciAddress,
        /// Requested property.
        what: &'static str,
    },
    /// Configuration space cannot be used.
    #[error("configuration space of {address} cannot be used: {source}")]
    Config {
        /// The device.
        address: PciAddress,
        /// Reason.
        r#source: ConfigSpaceError,
    },
}

impl VfioOpenError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::BadAddress(inner) => return inner.help(),
            Self::BadOption(inner) => return inner.help(),
            Self::NotPresent { .. } => {
                "list the devices with lspci -D, or scan the bus again: echo 1 > /sys/bus/pci/rescan"
            }
            Self::WrongDriver { address, .. } => {
                return Some(Cow::Owned(format!(
                    "bind it to vfio-pci (driver_override in /sys/bus/pci/devices/{address}, then drivers_probe)"
                )));
            }
            Self::NoIommuGroup { others: true, .. } => {
                "put the card into another slot, or check the firmware's settings for its root port"
            }
            Self::NoIommuGroup { .. } => ENABLE_IOMMU,
            Self::NoIommuMode { .. } => {
                "enable the IOMMU, write N to /sys/module/vfio/parameters/enable_unsafe_noiommu_mode, and bind the card again"
            }
            Self::NoVfio { advice, .. } => advice,
            Self::NoPermission { .. } => {
                "give this user access by a udev rule (SUBSYSTEM==\"vfio\", GROUP=\"fpga\", MODE=\"0660\") and membership in that group"
            }
            Self::GroupNotViable { .. } => {
                "bind these to vfio-pci too, or to no driver, or put the card into a slot with a separate group"
            }
            Self::Busy { .. } => {
                "end the other program, or close the device in this one (an open BAR keeps its device open)"
            }
            Self::UnsafeInterrupts { module, .. } => {
                return Some(Cow::Owned(format!(
                    "enable interrupt remapping in the firmware, or, if the card is trusted, set allow_unsafe_interrupts=1 of module {module}"
                )));
            }
            Self::VfToken { given: true, .. } => {
                "give the token that the physical function was opened with, and none for any other device"
            }
            Self::VfToken { .. } => {
                "give the token that the physical function was opened with (by iommufd: kernel 6.18 or later)"
            }
            Self::NoAddresses { address } => {
                return Some(Cow::Owned(format!(
                    "see the reserved ranges in /sys/bus/pci/devices/{address}/iommu_group/reserved_regions"
                )));
            }
            Self::Config { source, .. } => return source.help(),
            Self::Step { .. } | Self::Query { .. } | Self::Malformed { .. } => return None,
        }))
    }
}

/// List of functions that block a group.
struct Members<'a>(&'a [OtherFunction]);

impl core::fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            [] => f.write_str("another member is bound to a driver other than vfio-pci"),
            others => write!(f, "other members are bound to other drivers: {}", DisplayList(others)),
        }
    }
}

/// List of processes that have a file open.
struct Holders<'a>(&'a [Holder]);

impl core::fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            [] => f.write_str("a process that this user may not see"),
            holders => write!(f, "{}", DisplayList(holders)),
        }
    }
}
