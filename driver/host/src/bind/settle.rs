//! Transition of a function from its current driver to another one.

use core::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::error::Failure;
use super::kernel::Kernel;
use crate::roots::attribute;
use crate::{HostError, PciAddress, Roots};

/// Maximum number of attempts of a step that came too late: with the pauses between them, about a second.
pub(super) const MAX_ATTEMPTS: u32 = 20;

/// Driver that a function is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// This driver.
    Driver(String),
    /// Any matching driver except the named one; none if no driver matches.
    AnyExcept {
        /// Driver to unbind.
        leaving: Option<String>,
    },
    /// No driver.
    Unbound,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(name) => f.write_str(name),
            Self::AnyExcept { .. } => f.write_str("whichever driver wants it"),
            Self::Unbound => f.write_str("no driver"),
        }
    }
}

/// Result of a write.
enum Written {
    Done,
    /// The state has changed in the meantime: read it again.
    Changed(io::Error),
}

/// Brings the function to `goal`, with `only` as its `driver_override`; returns the driver that it has then.
///
/// Each iteration reads the current state and executes the next step. Two reads must agree at the end: the driver is the right one, and
/// `driver_override` still has the right value.
pub(super) fn settle(
    roots: &Roots,
    kernel: &dyn Kernel,
    address: PciAddress,
    only: Option<&str>,
    goal: &Goal,
) -> Result<Option<String>, Failure> {
    let name = address.to_string();
    let directory = roots.function(address);
    let only_file = directory.join("driver_override");
    let mut last = None;
    // Probing is requested only once: if no driver matched, none will.
    let mut asked = false;
    for turn in 0..MAX_ATTEMPTS {
        if !directory.exists() {
            return Err(Failure::Gone);
        }
        let now = attribute(&only_file)?.filter(|text| !text.is_empty() && text != "(null)");
        if now.as_deref() != only {
            // An empty line removes the restriction.
            let text = only.unwrap_or_default();
            if let Written::Changed(error) = write(kernel, &only_file, &format!("{text}\n"))? {
                last = Some(error);
                kernel.pause(turn);
                continue;
            }
        }
        let driver = roots.driver_of(address)?;
        let (path, is_question) = match (&driver, goal) {
            (Some(driver), Goal::Driver(wanted)) if driver == wanted => return Ok(Some(driver.clone())),
            (None, Goal::Unbound) => return Ok(None),
            (Some(_), Goal::AnyExcept { leaving }) if driver != *leaving => return Ok(driver),
            (None, Goal::AnyExcept { .. }) if asked => return Ok(None),
            (Some(other), _) => (roots.pci_driver(other).join("unbind"), false),
            (None, Goal::Driver(wanted)) => {
                let directory = roots.pci_driver(wanted);
                if !directory.exists() {
                    return Err(Failure::NotLoaded { driver: wanted.clone() });
                }
                (directory.join("bind"), false)
            }
            (None, Goal::AnyExcept { .. }) => (roots.sysfs.join("bus/pci/drivers_probe"), true),
        };
        let written = write(kernel, &path, &name)?;
        asked |= is_question && matches!(written, Written::Done);
        if let Written::Changed(error) = written {
            last = Some(error);
            kernel.pause(turn);
        }
    }
    let driver = roots.driver_of(address)?;
    Err(Failure::Unsettled { driver, last: last.map(|error| error.to_string()) })
}

/// Writes, and distinguishes errors caused by a concurrent change from permanent ones.
fn write(kernel: &dyn Kernel, path: &Path, text: &str) -> Result<Written, Failure> {
    let Err(error) = kernel.write(path, text) else { return Ok(Written::Done) };
    let late = [
        // The function has no driver or another one by now, or the driver does not match (any more).
        Errno::NODEV,
        // The file was removed with the driver, or with the function.
        Errno::NOENT,
        // Another process has bound it first.
        Errno::BUSY,
        // The probe was deferred.
        Errno::AGAIN,
        Errno::INTR,
    ];
    if late.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return Ok(Written::Changed(error));
    }
    let path = path.to_owned();
    Err(match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Failure::NotPermitted { path, source: error }
        }
        _ => Failure::Refused { path, source: error },
    })
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::Host(Box::new(error))
    }
}
