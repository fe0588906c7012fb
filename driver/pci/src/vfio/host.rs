//! What sysfs, procfs and the names in `/dev` tell about a device before it is opened.

use std::path::{Path, PathBuf};

use super::error::VfioOpenError;
use super::options::VfioRoots;
use crate::{OtherFunction, PciAddress};

/// The driver that gives devices to user space.
const DRIVER: &str = "vfio-pci";
/// Drivers of the kernel that leave a group usable: they do no DMA for the kernel (`driver_managed_dma` in their
/// `struct pci_driver`).
const HARMLESS: [&str; 3] = [DRIVER, "pci-stub", "pcieport"];
/// What the kernel calls the groups that it makes for devices without an IOMMU (`vfio_noiommu_group_alloc` in
/// `drivers/vfio/group.c`); their files are named `noiommu-N`.
const UNPROTECTED: &str = "vfio-noiommu";

/// Where a device is.
#[derive(Debug, Clone)]
pub(super) struct Host<'a> {
    pub(super) address: PciAddress,
    roots: &'a VfioRoots,
}

impl<'a> Host<'a> {
    pub(super) fn new(address: PciAddress, roots: &'a VfioRoots) -> Self {
        Self { address, roots }
    }

    fn device(&self, address: PciAddress) -> PathBuf {
        self.roots.sysfs.join("bus/pci/devices").join(address.to_string())
    }

    /// Whether the device is there, behind an IOMMU, and bound as it has to be; gives the number of its IOMMU group. The
    /// group comes before the driver: without one no driver of vfio's stays bound, and advice to bind it would lead in a circle.
    pub(super) fn check(&self) -> Result<u32, VfioOpenError> {
        let address = self.address;
        let path = self.device(address);
        if !path.exists() {
            return Err(VfioOpenError::NotPresent { address, path });
        }
        let group = link_name(&path.join("iommu_group")).and_then(|name| name.parse::<u32>().ok());
        let Some(group) = group else {
            let others = std::fs::read_dir(self.groups()).is_ok_and(|mut groups| groups.next().is_some());
            return Err(VfioOpenError::NoIommuGroup { address, others });
        };
        let name = std::fs::read_to_string(self.groups().join(group.to_string()).join("name"));
        if name.is_ok_and(|name| name.trim() == UNPROTECTED) {
            return Err(VfioOpenError::NoIommuMode { address, group });
        }
        let driver = self.driver(address);
        // A vendor's variant of vfio-pci has another name, and a directory with the number of its device file.
        if driver.as_deref() != Some(DRIVER) && self.own_file().is_none() {
            return Err(VfioOpenError::WrongDriver { address, driver });
        }
        Ok(group)
    }

    /// Where the kernel shows the IOMMU groups, by number.
    fn groups(&self) -> PathBuf {
        self.roots.sysfs.join("kernel/iommu_groups")
    }

    /// The driver that a device is bound to.
    pub(super) fn driver(&self, address: PciAddress) -> Option<String> {
        link_name(&self.device(address).join("driver"))
    }

    /// Members of the group that are bound to a driver that makes the group unusable.
    pub(super) fn in_the_way(&self, group: u32) -> Vec<OtherFunction> {
        let members = self.groups().join(group.to_string()).join("devices");
        let entries = std::fs::read_dir(members).into_iter().flatten().flatten();
        let addresses = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<PciAddress>().ok());
        let mut others: Vec<_> = addresses
            .filter_map(|address| Some(OtherFunction::new(address, Some(self.driver(address)?))))
            .filter(|other| other.driver.as_deref().is_some_and(|driver| !HARMLESS.contains(&driver)))
            .collect();
        others.sort_unstable_by_key(|other| other.address);
        others
    }

    /// The container's file.
    pub(super) fn container(&self) -> PathBuf {
        self.roots.dev.join("vfio/vfio")
    }

    /// The group's file.
    pub(super) fn group(&self, group: u32) -> PathBuf {
        self.roots.dev.join("vfio").join(group.to_string())
    }

    /// The device's own file, by the directory that the kernel makes for it in sysfs (6.6 and later).
    pub(super) fn own_file(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.device(self.address).join("vfio-dev")).ok()?;
        let name = entries.flatten().next()?.file_name();
        Some(self.roots.dev.join("vfio/devices").join(name))
    }

    /// The file of iommufd.
    pub(super) fn iommufd(&self) -> PathBuf {
        self.roots.dev.join("iommu")
    }

    /// Processes that have `path` open, this one among them, as far as this user may see.
    pub(super) fn holders(path: &Path) -> Vec<(u32, String)> {
        let this = std::process::id();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let holds = |number: &u32| {
            let files = std::fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
            files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|target| target == path)
        };
        let name = |number: u32| {
            let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
            let name = if number == this { "this program".to_owned() } else { name.trim().to_owned() };
            (number, name)
        };
        numbers.filter(holds).map(name).collect()
    }
}

/// The last part of what a symbolic link points to.
fn link_name(link: &Path) -> Option<String> {
    let target = std::fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}
