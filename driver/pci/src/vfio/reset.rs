//! Resets: of the function alone, and of the link with every function below the port.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::host::HostFiles;
use super::info::{self, Owner};
use super::sys::Calls;
use crate::{OsError, OtherFunction, ResetError, ResetLevel};

/// Group number and file, by which a device opened through its group proves that it owns the functions that a hot reset affects.
pub(super) type Group = (u32, OwnedFd);

/// Checks whether a hot reset is possible, without side effects.
///
/// The kernel requires all functions below the port to be bound to VFIO drivers and owned by the caller: by the groups it shows, or by its
/// iommufd. Otherwise it only returns EINVAL, so the blocking functions are determined before.
pub(super) fn check_hot(
    device: Calls<'_>,
    host: &HostFiles<'_>,
    group: Option<&Group>,
) -> Result<(), ResetError> {
    const LEVEL: ResetLevel = ResetLevel::Hot;
    let reply = device.hot_reset_info().map_err(|source| match Errno::from_raw_os_error(source.raw()) {
        // No bridge above (a root complex integrated endpoint, or directly on the root bus), or a kernel without support.
        Errno::NODEV | Errno::NOTTY => ResetError::Unsupported { level: LEVEL },
        _ => ResetError::Failed { level: LEVEL, source },
    })?;
    let affected = info::parse_hot_reset(&reply);
    let affected =
        affected.ok_or(ResetError::Failed { level: LEVEL, source: OsError::from(Errno::PROTO) })?;
    let mut others = Vec::new();
    for function in affected {
        let driver = host.driver(function.address);
        let owned = match function.owner {
            Owner::Caller => true,
            Owner::Other => false,
            Owner::Group(number) => group.is_some_and(|(own, _)| *own == number),
        };
        // VFIO cannot reset a function without a driver, or with the port driver, even if the caller owns its group.
        let vfio = driver.as_deref().is_some_and(|driver| driver.contains("vfio"));
        if function.address != host.address && !(owned && vfio) {
            others.push(OtherFunction::new(function.address, driver));
        }
    }
    if others.is_empty() { Ok(()) } else { Err(ResetError::NotOwned { level: LEVEL, others }) }
}

/// Performs the hot reset.
pub(super) fn hot(device: Calls<'_>, group: Option<&Group>) -> Result<(), OsError> {
    device.hot_reset(group.map(|(_, file)| file.as_fd()))
}
