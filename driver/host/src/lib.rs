//! Information about PCI functions that the kernel provides before they are opened: sysfs, procfs and the names in `/dev`.
//!
//! | Module | Content |
//! |---|---|
//! | [`address`] | [`PciAddress`]: parsing and display of addresses |
//! | [`function`] | [`PciFunction`]: ids, driver, group, node; [`functions`] lists them |
//! | [`link`] | [`LinkParameters`]: speed and width, and their limits |
//! | [`group`] | [`IommuGroup`]: its members, and whether it can be used |
//! | [`caller`] | [`Caller`]: limits and permissions of this process |
//! | [`check`] | [`examine`]: whether the machine is ready, check by check |
//! | [`bind`] | [`bind()`](bind::bind) and [`release`](bind::release): to vfio-pci and back to the driver that had it |
//! | `testing` | trees of machines, for tests (feature `testing`) |
//!
//! Nothing here opens a device. All files are below [`Roots`], so that a recorded tree of another machine can be examined in the same way.
//! Files must contain text; unreadable or invalid content is an error or a remark that names the file.
//!
//! Sources: the kernel's `Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-kernel-iommu_groups`, `Documentation/driver-api/vfio.rst`, and
//! `drivers/base/bus.c` for the errors of `bind`, `unbind` and `drivers_probe`.

pub mod address;
pub mod bind;
pub mod caller;
pub mod check;
pub mod error;
pub mod function;
pub mod group;
pub mod link;
mod roots;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use address::{ParsePciAddressError, PciAddress};
pub use caller::{Access, Caller};
pub use check::{Check, Fix, Status, examine};
pub use error::{Hint, HostError};
pub use function::{Listing, PciFunction, functions};
pub use group::{IommuGroup, OtherFunction};
pub use link::{LinkInfo, LinkParameters, LinkSpeed};
pub use roots::{Holder, Roots};
