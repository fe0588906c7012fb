//! Errors of opening a device.

use std::error::Error;
use std::path::PathBuf;

use fpga_host::Holder;

use super::options::ParseVfioOptionError;
use crate::error::DisplayList;
use crate::{ConfigError, OsError, OtherFunction, ParsePciAddressError, PciAddress};

/// Advice for a missing IOMMU. Sources: the kernel's `Documentation/admin-guide/kernel-parameters.txt` (`intel_iommu`, `amd_iommu`) and
/// `CONFIG_INTEL_IOMMU_DEFAULT_ON`, which not every distribution sets.
const ENABLE_IOMMU_ADVICE: &str = "switch the IOMMU on in the firmware (Intel: VT-d; AMD: IOMMU or AMD-Vi) and on the kernel's command line (Intel: intel_iommu=on; AMD: on by itself unless amd_iommu=off is there), restart, and see what the kernel found: dmesg | grep -e DMAR -e AMD-Vi; a virtual machine needs a virtual IOMMU";

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
    #[error("PCI device {address} does not exist (no {}); lspci -D lists the devices, echo 1 > /sys/bus/pci/rescan scans the bus again", path.display())]
    NotPresent {
        /// Requested address.
        address: PciAddress,
        /// Its path in sysfs if it existed.
        path: PathBuf,
    },
    /// The device is not bound to vfio-pci, though it could be.
    #[error("{address} is bound to {}, not to vfio-pci; bind it: fpgactl bind {address}, or with these commands: modprobe vfio-pci, then echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override, {}then echo {address} > /sys/bus/pci/drivers_probe", driver.as_deref().unwrap_or("no driver"), driver.as_deref().map_or_else(String::new, |driver| format!("then echo {address} > /sys/bus/pci/drivers/{driver}/unbind, ")))]
    WrongDriver {
        /// The device.
        address: PciAddress,
        /// The driver it is bound to, if any.
        driver: Option<String>,
    },
    /// The device has no IOMMU group, with any driver: vfio-pci refuses it.
    #[error(
        "{address} cannot be used: {}, and without an IOMMU vfio-pci takes no card (its probe fails with -22, binding again does not help); {ENABLE_IOMMU_ADVICE}; VFIO's no-IOMMU mode is refused, because the card could then access all memory of the machine",
        if *others { "the IOMMU does not cover it (it has no iommu_group in sysfs, other devices have)" } else { "the IOMMU is off or there is none (/sys/kernel/iommu_groups is empty)" }
    )]
    NoIommuGroup {
        /// The device.
        address: PciAddress,
        /// Whether other devices have groups: then the IOMMU is on, but does not cover this one.
        others: bool,
    },
    /// The device is bound to vfio-pci without an IOMMU (no-IOMMU mode).
    #[error(
        "{address} is bound in VFIO's no-IOMMU mode (group {group}), which is refused: the card's addresses are then neither translated nor checked, so a wrong address can overwrite any memory of the machine, and buffers are not pinned; {ENABLE_IOMMU_ADVICE}; then echo N > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode and bind the card again"
    )]
    NoIommuMode {
        /// The device.
        address: PciAddress,
        /// The group that VFIO created for it.
        group: u32,
    },
    /// The kernel does not offer VFIO, or not the requested interface.
    #[error("this system offers no {interface} ({} does not exist); {advice}", path.display())]
    NoVfio {
        /// Missing interface.
        interface: &'static str,
        /// Missing file.
        path: PathBuf,
        /// Advice.
        advice: &'static str,
    },
    /// No permission to open a device file.
    #[error("{} cannot be opened: {source}; give this user read and write permission: a udev rule such as SUBSYSTEM==\"vfio\", GROUP=\"fpga\", MODE=\"0660\" and membership in that group, or chown", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        r#source: OsError,
    },
    /// Another device of the group is used by a driver of the kernel.
    #[error(
        "IOMMU group {group} of {address} is not viable: {}; bind these to vfio-pci too, or to no driver, or put the card into a slot with a separate group",
        Members(others)
    )]
    GroupNotViable {
        /// The device.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// Members that block the group: bound to other drivers. Empty if sysfs names none.
        others: Vec<OtherFunction>,
    },
    /// Another process uses the device, or another one of its group.
    #[error("{address} is in use: {} is held by {}; a device has one user at a time: end the other program, or drop every handle of it in this one (a BAR keeps its device)", path.display(), Holders(holders))]
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
        "{address} cannot be used safely: the IOMMU does not isolate interrupts, so the card could send any; switch interrupt remapping on in the firmware, or, if the card is trusted, set allow_unsafe_interrupts=1 of module {module}"
    )]
    UnsafeInterrupts {
        /// The device.
        address: PciAddress,
        /// The kernel module whose parameter it is.
        module: &'static str,
    },
    /// The device requires a VF token, another one, or none.
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
    /// The IOMMU permits no addresses.
    #[error(
        "{address}: the IOMMU permits no addresses: another device's reserved ranges or too small an address width exclude all of them (see /sys/bus/pci/devices/{address}/iommu_group/reserved_regions)"
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
        "the kernel's answer about {what} of {address} cannot be parsed; this program does not support this kernel's vfio interface"
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
        r#source: ConfigError,
    },
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
