//! Steps of opening a device, each with its own error. Files opened before a failing step are closed again.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use vfio_ioctls::VfioError;

use super::error::VfioOpenError;
use super::host::HostFiles;
use super::iommu::AddressSpace;
use super::kernel::Kernel;
use super::options::{VfioInterface, VfioOptions};
use super::reset::Group;
use super::sys::Calls;
use crate::{OsError, PciAddress};

/// Opened device with its group and address space. The fields are dropped in order: the device before its group, which can be released only
/// then, and before its address space.
pub(super) struct Opened {
    pub(super) device: OwnedFd,
    /// Interface through which it was opened.
    pub(super) interface: VfioInterface,
    /// Group of a device that was opened through it.
    pub(super) group: Option<Group>,
    pub(super) space: AddressSpace,
}

/// Opens the device through the interface that the options select, or through the preferred one that works.
pub(super) fn open(
    kernel: &dyn Kernel,
    host: &HostFiles<'_>,
    options: &VfioOptions,
) -> Result<Opened, VfioOpenError> {
    let group = host.check()?;
    match options.interface {
        VfioInterface::Group => open_group(kernel, host, options, group),
        VfioInterface::Iommufd => open_cdev(kernel, host, options, group),
        VfioInterface::Auto => {
            let modern =
                host.roots.iommufd_file().exists() && host.own_file().is_some_and(|file| file.exists());
            if !modern {
                return open_group(kernel, host, options, group);
            }
            match open_cdev(kernel, host, options, group) {
                // Permissions are often granted for the group file alone, which has existed longer; and the group interface of every kernel
                // accepts tokens.
                Err(error @ (VfioOpenError::NoPermission { .. } | VfioOpenError::VfToken { .. }))
                    if host.roots.group_file(group).exists() =>
                {
                    tracing::debug!(device = %host.address, %error, "trying the group interface instead");
                    open_group(kernel, host, options, group).map_err(|second| match second {
                        VfioOpenError::NoPermission { .. } => error,
                        second => second,
                    })
                }
                other => other,
            }
        }
    }
}

/// Checks that a VFIO file exists before it is opened: a missing file is a better reason than a failed open.
fn needed(path: &Path, interface: &'static str, advice: &'static str) -> Result<(), VfioOpenError> {
    if path.exists() {
        return Ok(());
    }
    Err(VfioOpenError::NoVfio { interface, path: path.to_owned(), advice })
}

/// Opens the device through its group and a container.
fn open_group(
    kernel: &dyn Kernel,
    host: &HostFiles<'_>,
    options: &VfioOptions,
    number: u32,
) -> Result<Opened, VfioOpenError> {
    let address = host.address;
    let path = host.roots.container_file();
    needed(&path, "vfio", "load its modules (modprobe vfio-pci), and check that the IOMMU is on")?;
    let path = host.roots.group_file(number);
    needed(
        &path,
        "vfio group file for this device",
        "check that /dev is a devtmpfs and, in a container, the host's; on a kernel without VFIO_GROUP use the iommufd interface",
    )?;
    let group = open_file(kernel, host, &path)?;
    let calls = Calls::new(kernel, group.as_fd());
    let viable = calls.group_is_viable().map_err(|source| VfioOpenError::Query {
        address,
        what: "the IOMMU group",
        source,
    })?;
    if !viable {
        let others = host.blocking_members(number);
        return Err(VfioOpenError::GroupNotViable { address, group: number, others });
    }
    let container = kernel.container().map_err(|error| container_error(host, error))?;
    calls.set_container(container.file()).map_err(|source| match errno(source) {
        // Already in another container: of another process, since no other code in this process has the group.
        Errno::BUSY | Errno::INVAL => busy(host, &path),
        _ => step(address, "putting the group into a container", source),
    })?;
    Calls::new(kernel, container.file()).set_iommu().map_err(|source| match errno(source) {
        Errno::PERM => VfioOpenError::UnsafeInterrupts { address, module: "vfio_iommu_type1" },
        _ => step(address, "giving the container its IOMMU (type 1 v2)", source),
    })?;
    let device = calls.group_device(address, options.vf_token).map_err(|source| match errno(source) {
        Errno::ACCESS => VfioOpenError::VfToken { address, given: options.vf_token.is_some(), source },
        // Reply of vfio-pci to a token for a function that is neither a physical function with virtual functions nor a virtual function.
        Errno::INVAL if options.vf_token.is_some() => VfioOpenError::VfToken { address, given: true, source },
        Errno::BUSY => busy(host, &path),
        _ => step(address, "opening the device in its group", source),
    })?;
    let space = AddressSpace::Container(container);
    Ok(Opened { device, interface: VfioInterface::Group, group: Some((number, group)), space })
}

/// Opens the device file and binds it to an iommufd.
fn open_cdev(
    kernel: &dyn Kernel,
    host: &HostFiles<'_>,
    options: &VfioOptions,
    group: u32,
) -> Result<Opened, VfioOpenError> {
    let address = host.address;
    let Some(path) = host.own_file() else {
        return Err(VfioOpenError::NoVfio {
            interface: "device file of its own for this device",
            path: host.roots.iommufd_file().with_file_name("vfio").join("devices"),
            advice: "use the group interface: the kernel is older than 6.6 or was built without VFIO_DEVICE_CDEV, as Debian's are",
        });
    };
    let iommufd = host.roots.iommufd_file();
    needed(&iommufd, "iommufd", "load its module: modprobe iommufd, or use the group interface")?;
    let space = open_file(kernel, host, &iommufd)?;
    let device = open_file(kernel, host, &path)?;
    let calls = Calls::new(kernel, device.as_fd());
    calls.bind(space.as_fd(), options.vf_token).map_err(|source| match errno(source) {
        Errno::ACCESS => VfioOpenError::VfToken { address, given: options.vf_token.is_some(), source },
        // A kernel that does not support tokens here refuses the flag.
        Errno::INVAL if options.vf_token.is_some() => VfioOpenError::VfToken { address, given: true, source },
        // EBUSY: the group is open, or another driver owns its DMA. EINVAL: the file is bound already.
        Errno::BUSY | Errno::INVAL => {
            let others = host.blocking_members(group);
            if others.is_empty() {
                busy(host, &path)
            } else {
                VfioOpenError::GroupNotViable { address, group, others }
            }
        }
        _ => step(address, "binding the device to an iommufd", source),
    })?;
    let space = AddressSpace::new(kernel, space)
        .map_err(|source| step(address, "making an address space of the iommufd", source))?;
    if let AddressSpace::Iommufd { ioas, .. } = &space {
        calls.attach(*ioas).map_err(|source| match errno(source) {
            Errno::PERM => VfioOpenError::UnsafeInterrupts { address, module: "iommufd" },
            _ => step(address, "attaching the device to its address space", source),
        })?;
    }
    Ok(Opened { device, interface: VfioInterface::Iommufd, group: None, space })
}

fn open_file(kernel: &dyn Kernel, host: &HostFiles<'_>, path: &Path) -> Result<OwnedFd, VfioOpenError> {
    let address = host.address;
    kernel.open(path).map_err(|source| match errno(source) {
        Errno::BUSY => busy(host, path),
        Errno::ACCESS | Errno::PERM => VfioOpenError::NoPermission { path: path.to_owned(), source },
        Errno::MFILE => step(address, "opening its files (raise the limit on open files: ulimit -n)", source),
        _ => step(address, "opening its files", source),
    })
}

fn container_error(host: &HostFiles<'_>, error: VfioError) -> VfioOpenError {
    let address = host.address;
    match error {
        VfioError::OpenContainer(error) => {
            let source = OsError::from(error);
            match errno(source) {
                Errno::ACCESS | Errno::PERM => {
                    VfioOpenError::NoPermission { path: host.roots.container_file(), source }
                }
                _ => step(address, "opening a container", source),
            }
        }
        VfioError::VfioExtension | VfioError::VfioApiVersion => VfioOpenError::Step {
            address,
            step: "asking for a type 1 v2 IOMMU (modprobe vfio_iommu_type1; is the IOMMU on?)",
            source: Box::new(error),
        },
        other => VfioOpenError::Step { address, step: "opening a container", source: Box::new(other) },
    }
}

fn busy(host: &HostFiles<'_>, path: &Path) -> VfioOpenError {
    VfioOpenError::Busy { address: host.address, path: path.to_owned(), holders: host.roots.holders(path) }
}

fn step(address: PciAddress, step: &'static str, source: OsError) -> VfioOpenError {
    VfioOpenError::Step { address, step, source: Box::new(source) }
}

fn errno(error: OsError) -> Errno {
    Errno::from_raw_os_error(error.raw())
}

#[cfg(test)]
mod tests;
