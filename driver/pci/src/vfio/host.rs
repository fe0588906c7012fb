//! State of a device in sysfs before it is opened, and obstacles to opening it.

use std::path::PathBuf;

use fpga_host::{IommuGroup, Roots, bind};

use super::error::VfioOpenError;
use crate::{OtherFunction, PciAddress};

/// Address of a device, and the directories in which it is found.
#[derive(Debug, Clone)]
pub(super) struct HostFiles<'a> {
    pub(super) address: PciAddress,
    pub(super) roots: &'a Roots,
}

impl<'a> HostFiles<'a> {
    pub(super) fn new(address: PciAddress, roots: &'a Roots) -> Self {
        Self { address, roots }
    }

    /// Checks that the device is present, behind an IOMMU, and bound to the right driver. Returns the number of its IOMMU group. The group
    /// is checked before the driver: without a group no VFIO driver stays bound, and the advice to bind it would be wrong.
    pub(super) fn check(&self) -> Result<u32, VfioOpenError> {
        let Self { address, roots } = *self;
        let path = roots.function(address);
        if !path.exists() {
            return Err(VfioOpenError::NotPresent { address, path });
        }
        // Unreadable files are not an error here: opening the device files yields a better reason.
        let Some(group) = roots.group_of(address).ok().flatten() else {
            let others = IommuGroup::numbers(roots).is_ok_and(|groups| !groups.is_empty());
            return Err(VfioOpenError::NoIommuGroup { address, others });
        };
        if IommuGroup::read(roots, group).is_ok_and(|group| group.unprotected) {
            return Err(VfioOpenError::NoIommuMode { address, group });
        }
        let driver = self.driver(address);
        if !bind::is_user_driver(roots, address, driver.as_deref()) {
            return Err(VfioOpenError::WrongDriver { address, driver });
        }
        Ok(group)
    }

    /// The driver that a device is bound to.
    pub(super) fn driver(&self, address: PciAddress) -> Option<String> {
        self.roots.driver_of(address).ok().flatten()
    }

    /// Members of the group that are bound to a driver that makes the group unusable.
    pub(super) fn blocking_members(&self, group: u32) -> Vec<OtherFunction> {
        IommuGroup::read(self.roots, group).map(|group| group.blocking_members()).unwrap_or_default()
    }

    /// Device file of the function (6.6 and later).
    pub(super) fn own_file(&self) -> Option<PathBuf> {
        self.roots.function_file(self.address)
    }
}
