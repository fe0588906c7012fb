//! Errors of examining the machine.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::{ParsePciAddressError, PciAddress};

/// Reason why a part of the machine could not be read, or does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is no sysfs at the expected path.
    #[error("sysfs is not mounted at {}; mount it (mount -t sysfs sysfs /sys), or name another root", path.display())]
    NoSysfs {
        /// Expected path.
        path: PathBuf,
    },
    /// A file or directory exists and cannot be read.
    #[error("{} cannot be read: {source}; {}", path.display(), advice(source))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// The content of a file differs from the kernel's format.
    #[error("{} holds {text:?}, which is not a valid {what}: the kernel does not write such a value", path.display())]
    InvalidContent {
        /// Path of the file.
        path: PathBuf,
        /// Its content, shortened.
        text: String,
        /// Expected content.
        what: &'static str,
    },
    /// The address is invalid or incomplete.
    #[error("{source}{}", hint)]
    BadAddress {
        /// Description of the problem.
        r#source: ParsePciAddressError,
        /// Suggestions.
        hint: Hint,
    },
    /// There is no function at the address.
    #[error("PCI function {address} does not exist{}", hint)]
    NoSuchFunction {
        /// Requested address.
        address: PciAddress,
        /// Suggestions.
        hint: Hint,
    },
}

impl HostError {
    /// Whether the cause is the user's input, not the machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::BadAddress { .. })
    }
}

/// Functions to suggest for a wrong address, with their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Functions with similar addresses.
    Similar(Vec<String>),
    /// No address is similar; these are the known cards.
    Cards(Vec<String>),
    /// There is no known card either.
    Nothing,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Similar(functions) => match functions.as_slice() {
                [one] => write!(f, "; did you mean {one}?"),
                several => write!(f, "; did you mean one of {}?", several.join(", ")),
            },
            Self::Cards(functions) => match functions.as_slice() {
                [one] => write!(f, "; the card of this machine is {one}"),
                several => write!(f, "; cards of this machine are {}", several.join(", ")),
            },
            Self::Nothing => f.write_str(
                "; `fpgactl list --all` lists the existing functions, echo 1 > /sys/bus/pci/rescan scans the bus again",
            ),
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not read it: run as root, or, in a container, provide the host's /sys"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "this is not the sysfs of a Linux kernel: check the root"
        }
        _ => "check that /sys, /proc and /dev are those of the running kernel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that run as root get no permission errors, so the errors are constructed.
    #[test]
    fn host_error_advice_matches_system_error() {
        for (kind, part) in [
            (io::ErrorKind::PermissionDenied, "run as root"),
            (io::ErrorKind::NotADirectory, "check the root"),
            (io::ErrorKind::IsADirectory, "check the root"),
            (io::ErrorKind::Other, "those of the running kernel"),
        ] {
            let error = HostError::Unreadable { path: "/sys/x".into(), source: kind.into() }.to_string();
            assert!(error.starts_with("/sys/x cannot be read") && error.contains(part), "{error}");
        }
    }
}
