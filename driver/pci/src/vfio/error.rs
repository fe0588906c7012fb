//! Why a device could not be opened.

use std::error::Error;
use std::path::PathBuf;

use super::options::ParseVfioOptionError;
use crate::error::Listed;
use crate::{ConfigError, OsError, OtherFunction, ParsePciAddressError, PciAddress};

/// Opening a device through vfio failed; nothing of it is left open. The steps in their order: address, device, driver, IOMMU,
/// vfio itself, permission, the group or the device's file, and what the opened device says about itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioOpenError {
    /// The text is no PCI address.
    #[error(transparent)]
    BadAddress(#[from] ParsePciAddressError),
    /// An option cannot be understood.
    #[error(transparent)]
    BadOption(#[from] ParseVfioOptionError),
    /// There is no such device.
    #[error("there is no PCI device {address} ({} does not exist); lspci -D lists what there is, echo 1 > /sys/bus/pci/rescan looks again", path.display())]
    NotPresent {
        /// The address asked for.
        address: PciAddress,
        /// Where it would be.
        path: PathBuf,
    },
    /// The device is not bound to vfio-pci.
    #[error("{address} is bound to {}, not to vfio-pci; bind it: echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override, then echo {address} > {}, then echo {address} > /sys/bus/pci/drivers_probe (modprobe vfio-pci before)", driver.as_deref().unwrap_or("no driver"), driver.as_deref().map_or_else(|| "/dev/null".to_owned(), |driver| format!("/sys/bus/pci/drivers/{driver}/unbind")))]
    WrongDriver {
        /// The device.
        address: PciAddress,
        /// The driver it is bound to, if any.
        driver: Option<String>,
    },
    /// The device has no IOMMU group.
    #[error(
        "{address} has no IOMMU group: the IOMMU is off; switch it on in the firmware (VT-d, AMD-Vi) and on the kernel command line (intel_iommu=on on Intel)"
    )]
    NoIommuGroup {
        /// The device.
        address: PciAddress,
    },
    /// The kernel offers no vfio, or not the interface asked for.
    #[error("this system offers no {interface} ({} does not exist); {advice}", path.display())]
    NoVfio {
        /// What is missing.
        interface: &'static str,
        /// The file that is missing.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
    },
    /// A device file may not be opened.
    #[error("{} cannot be opened: {source}; give this user read and write permission: a udev rule such as SUBSYSTEM==\"vfio\", GROUP=\"fpga\", MODE=\"0660\" and membership in that group, or chown", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: OsError,
    },
    /// Another device of the group is used by a driver of the kernel.
    #[error(
        "IOMMU group {group} of {address} is not viable: {}; bind these to vfio-pci too, or to no driver, or put the card into a slot with a group of its own",
        Members(others)
    )]
    GroupNotViable {
        /// The device.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// The members that are in the way: bound to other drivers. Empty if sysfs names none.
        others: Vec<OtherFunction>,
    },
    /// Somebody else uses the device, or another one of its group.
    #[error("{address} is in use: {} is held by {}; a device has one user at a time: end the other program, or drop every handle of it in this one (a BAR keeps its device)", path.display(), Holders(holders))]
    Busy {
        /// The device.
        address: PciAddress,
        /// The file that could not be had.
        path: PathBuf,
        /// Processes that have it open, as far as this user may see them: number and name.
        holders: Vec<(u32, String)>,
    },
    /// The IOMMU does not isolate interrupts.
    #[error(
        "{address} cannot be used safely: the IOMMU does not isolate interrupts, so the card could send any; switch interrupt remapping on in the firmware, or, if the card is trusted, set allow_unsafe_interrupts=1 of module {module}"
    )]
    UnsafeInterrupts {
        /// The device.
        address: PciAddress,
        /// The kernel module whose parameter it is.
        module: &'static str,
    },
    /// The device wants a VF token, another one, or none.
    #[error(
        "{address}: the VF token {}; a virtual function whose physical function is used through vfio needs the token that was set there (option vf_token, environment variable FPGA_VF_TOKEN), any other device none; with iommufd the kernel takes tokens from 6.18 on", if *given { "is refused" } else { "is missing" }
    )]
    VfToken {
        /// The device.
        address: PciAddress,
        /// Whether one was given.
        given: bool,
        /// The system's reason.
        source: OsError,
    },
    /// The IOMMU permits no addresses at all.
    #[error(
        "{address}: the IOMMU permits no addresses: another device's reserved ranges or too small an address width leave nothing (see /sys/bus/pci/devices/{address}/iommu_group/reserved_regions)"
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
        /// Which step.
        step: &'static str,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The opened device does not tell about a part of itself.
    #[error("the kernel does not tell about {what} of {address}: {source}")]
    Query {
        /// The device.
        address: PciAddress,
        /// What was asked for.
        what: &'static str,
        /// The system's reason.
        source: OsError,
    },
    /// The kernel's answer makes no sense.
    #[error(
        "the kernel's answer about {what} of {address} cannot be understood; this kernel's vfio interface is not known to this program"
    )]
    Malformed {
        /// The device.
        address: PciAddress,
        /// What was asked for.
        what: &'static str,
    },
    /// Configuration space cannot be used.
    #[error("configuration space of {address} cannot be used: {source}")]
    Config {
        /// The device.
        address: PciAddress,
        /// What failed.
        source: ConfigError,
    },
}

/// Who is in the way of a group.
struct Members<'a>(&'a [OtherFunction]);

impl core::fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            [] => f.write_str("another member is bound to a driver other than vfio-pci"),
            others => write!(f, "other members are bound to other drivers: {}", Listed(others)),
        }
    }
}

/// Who has a file open.
struct Holders<'a>(&'a [(u32, String)]);

impl core::fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("a process that this user may not see");
        }
        for (index, (number, name)) in self.0.iter().enumerate() {
            write!(f, "{}process {number} ({name})", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
