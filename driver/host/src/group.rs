//! IOMMU groups: functions that the IOMMU cannot isolate from each other, so that they can only be assigned together.

use core::fmt;

use crate::roots::{attribute, names};
use crate::{HostError, PciAddress, Roots};

/// The driver that gives functions to user space.
pub const VFIO_PCI: &str = "vfio-pci";
/// Drivers of the kernel that leave a group usable: they do no DMA for the kernel (`driver_managed_dma` in their
/// `struct pci_driver`).
const SAFE_DRIVERS: [&str; 3] = [VFIO_PCI, "pci-stub", "pcieport"];
/// Name of the groups that the kernel creates for functions without an IOMMU (`vfio_noiommu_group_alloc` in `drivers/vfio/group.c`); their
/// files are named `noiommu-N`.
const NOIOMMU_GROUP: &str = "vfio-noiommu";

/// Another function of a group, and its driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OtherFunction {
    /// Address of the function.
    pub address: PciAddress,
    /// Driver that it is bound to, if any.
    pub driver: Option<String>,
}

impl OtherFunction {
    /// Creates the entry of a function bound to `driver`.
    #[must_use]
    pub const fn new(address: PciAddress, driver: Option<String>) -> Self {
        Self { address, driver }
    }

    /// Returns whether its driver makes the other functions of its group unusable.
    #[must_use]
    pub fn blocks_group(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| !SAFE_DRIVERS.contains(&driver))
    }
}

impl fmt::Display for OtherFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Some(driver) => write!(f, "{} ({driver})", self.address),
            None => write!(f, "{} (no driver)", self.address),
        }
    }
}

/// An IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IommuGroup {
    /// Number of the group.
    pub number: u32,
    /// Address translation while a kernel driver uses the group: `DMA`, `DMA-FQ`, `identity`.
    pub domain: Option<String>,
    /// Whether there is no IOMMU (VFIO's no-IOMMU mode).
    pub unprotected: bool,
    /// Functions of the group, in the order of their addresses.
    pub members: Vec<OtherFunction>,
}

impl IommuGroup {
    /// Reads the group of this number.
    ///
    /// # Errors
    /// [`HostError::Unreadable`].
    pub fn read(roots: &Roots, number: u32) -> Result<Self, HostError> {
        let directory = roots.groups().join(number.to_string());
        let name = attribute(&directory.join("name"))?;
        let mut members = Vec::new();
        for name in names(&directory.join("devices"))?.unwrap_or_default() {
            // Devices of other buses may be members; they are ignored.
            if let Ok(address) = name.parse::<PciAddress>() {
                members.push(OtherFunction { address, driver: roots.driver_of(address)? });
            }
        }
        members.sort_unstable_by_key(|member| member.address);
        Ok(Self {
            number,
            domain: attribute(&directory.join("type"))?,
            unprotected: name.as_deref() == Some(NOIOMMU_GROUP),
            members,
        })
    }

    /// Numbers of the groups that have an IOMMU, in ascending order.
    ///
    /// # Errors
    /// [`HostError::Unreadable`].
    pub fn numbers(roots: &Roots) -> Result<Vec<u32>, HostError> {
        let mut numbers = Vec::new();
        for name in names(&roots.groups())?.unwrap_or_default() {
            let Ok(number) = name.parse() else { continue };
            let title = attribute(&roots.groups().join(&name).join("name"))?;
            if title.as_deref() != Some(NOIOMMU_GROUP) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// All functions of the group except `address`.
    pub fn others(&self, address: PciAddress) -> impl Iterator<Item = &OtherFunction> {
        self.members.iter().filter(move |member| member.address != address)
    }

    /// Members whose drivers make the group unusable.
    #[must_use]
    pub fn blocking_members(&self) -> Vec<OtherFunction> {
        self.members.iter().filter(|member| member.blocks_group()).cloned().collect()
    }
}

/// Formats a list for a message.
pub(crate) fn listed(items: impl IntoIterator<Item = impl ToString>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
