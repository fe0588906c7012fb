//! The steps of opening a device, each with its own error.

use std::error::Error;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfio_ioctls::{VfioContainer, VfioDevice, VfioError};

use super::sys;
use crate::{ConfigError, OsError, ParsePciAddressError, PciAddress};

/// Where sysfs and the device files are. Tests give directories of their own.
#[derive(Debug, Clone)]
pub struct VfioRoots {
    /// Root of sysfs. Default `/sys`.
    pub sysfs: PathBuf,
    /// Root of the device files. Default `/dev`.
    pub dev: PathBuf,
}

impl Default for VfioRoots {
    fn default() -> Self {
        Self { sysfs: PathBuf::from("/sys"), dev: PathBuf::from("/dev") }
    }
}

/// Opening a device through vfio failed. The steps in their order: address, device, driver, group, vfio itself,
/// permission, container and group, and what the opened device says about itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioOpenError {
    /// The text is no PCI address.
    #[error(transparent)]
    BadAddress(#[from] ParsePciAddressError),
    /// There is no such device.
    #[error("there is no PCI device {address} ({} does not exist); lspci -D lists what there is, echo 1 > /sys/bus/pci/rescan looks again", path.display())]
    NotPresent {
        /// The address asked for.
        address: PciAddress,
        /// Where it would be.
        path: PathBuf,
    },
    /// The device is not bound to vfio-pci.
    #[error("{address} is bound to {}, not to vfio-pci; bind it: echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override, unbind it from its driver, echo {address} > /sys/bus/pci/drivers_probe", driver.as_deref().unwrap_or("no driver"))]
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
    /// The kernel offers no vfio.
    #[error("this system offers no vfio ({} does not exist); load its modules: modprobe vfio-pci, and check that the IOMMU is on", path.display())]
    NoVfio {
        /// The file that is missing.
        path: PathBuf,
    },
    /// The device file may not be opened.
    #[error("{} cannot be opened: {source}; give this user read and write permission (udev rule or chown), and check that no other process holds the group", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: OsError,
    },
    /// The group cannot be used.
    #[error(
        "IOMMU group {group} of {address} cannot be used: another device of the group is bound to a driver other than vfio-pci (see /sys/kernel/iommu_groups/{group}/devices), or another process uses the group"
    )]
    GroupUnusable {
        /// The device.
        address: PciAddress,
        /// Its group.
        group: u32,
    },
    /// Another step inside vfio failed.
    #[error("vfio could not open {address}")]
    Open {
        /// The device.
        address: PciAddress,
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
    #[error("configuration space of the device cannot be used")]
    Config(#[from] ConfigError),
}

/// The device and its container. The device goes first.
pub(super) struct OpenedDevice {
    device: ManuallyDrop<VfioDevice>,
    pub(super) container: Arc<VfioContainer>,
    /// The device's directory in sysfs.
    path: PathBuf,
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDevice").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for OpenedDevice {
    fn drop(&mut self) {
        // VfioDevice's drop (vfio-ioctls 0.10.0) reads this link again and panics without it, which is what a device
        // looks like that was removed. Its file then stays open until the process ends.
        if !self.path.join("iommu_group").exists() {
            tracing::error!(device = %self.path.display(), "the device was removed while open; its file is leaked");
            return;
        }
        // It may go between the check and the drop: a panic in a destructor must not take the process down.
        let closed = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the field is not used again: this is the destructor, and it comes here once.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }));
        if closed.is_err() {
            tracing::error!(device = %self.path.display(), "the device was removed while being closed");
        }
    }
}

/// Checks everything that can be checked from outside, then opens the device. Also gives a file of the device.
pub(super) fn open(address: PciAddress, roots: &VfioRoots) -> Result<(OpenedDevice, OwnedFd), VfioOpenError> {
    let path = roots.sysfs.join("bus/pci/devices").join(address.to_string());
    let group = check(address, &path, roots)?;
    let failed = |error: VfioError| explain(address, group, roots, error);
    let container = Arc::new(VfioContainer::new(None).map_err(failed)?);
    let operations = Arc::<VfioContainer>::clone(&container);
    let device = VfioDevice::new(&path, operations, false).map_err(failed)?;
    let file = sys::duplicate(&device);
    let opened = OpenedDevice { device: ManuallyDrop::new(device), container, path };
    let file = file.map_err(|source| VfioOpenError::Query { address, what: "its file", source })?;
    Ok((opened, file))
}

/// The checks that need only sysfs and the names in `/dev`; gives the number of the IOMMU group.
fn check(address: PciAddress, path: &Path, roots: &VfioRoots) -> Result<u32, VfioOpenError> {
    if !path.exists() {
        return Err(VfioOpenError::NotPresent { address, path: path.to_owned() });
    }
    let driver = link_name(&path.join("driver"));
    if driver.as_deref() != Some("vfio-pci") {
        return Err(VfioOpenError::WrongDriver { address, driver });
    }
    let group = link_name(&path.join("iommu_group"))
        .and_then(|name| name.parse().ok())
        .ok_or(VfioOpenError::NoIommuGroup { address })?;
    let container = roots.dev.join("vfio/vfio");
    if !container.exists() {
        return Err(VfioOpenError::NoVfio { path: container });
    }
    Ok(group)
}

/// The last part of what a symbolic link points to.
fn link_name(link: &Path) -> Option<String> {
    let target = std::fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Names the failures that a user can do something about.
fn explain(address: PciAddress, group: u32, roots: &VfioRoots, error: VfioError) -> VfioOpenError {
    match error {
        VfioError::OpenContainer(error) => {
            VfioOpenError::NoPermission { path: roots.dev.join("vfio/vfio"), source: error.into() }
        }
        VfioError::OpenGroup(error, group) => {
            VfioOpenError::NoPermission { path: roots.dev.join("vfio").join(group), source: error.into() }
        }
        // The crate compares the group's flags for equality with "viable": a group that also has a container, because
        // another process uses it, is reported with the same error.
        VfioError::GroupViable | VfioError::GroupSetContainer => {
            VfioOpenError::GroupUnusable { address, group }
        }
        other => VfioOpenError::Open { address, source: Box::new(other) },
    }
}

#[cfg(test)]
mod tests;
