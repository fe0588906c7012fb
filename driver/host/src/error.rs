//! Why the machine could not be examined.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::{ParsePciAddressError, PciAddress};

/// Something of the machine could not be read or is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is no sysfs where it should be.
    #[error("there is no sysfs at {}; mount it (mount -t sysfs sysfs /sys), or name another root", path.display())]
    NoSysfs {
        /// Where it should be.
        path: PathBuf,
    },
    /// A file or directory is there and cannot be read.
    #[error("{} cannot be read: {source}; {}", path.display(), advice(source))]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds something else than the kernel writes there.
    #[error("{} holds {text:?}, which is no {what}: this is not what the kernel writes there", path.display())]
    InvalidContent {
        /// Which.
        path: PathBuf,
        /// Its content, shortened.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// The address is none, or a part of one.
    #[error("{source}{}", hint)]
    BadAddress {
        /// What is wrong with it.
        source: ParsePciAddressError,
        /// What may have been meant.
        hint: Hint,
    },
    /// Nothing is at the address.
    #[error("there is no PCI function {address}{}", hint)]
    NoSuchFunction {
        /// The address asked for.
        address: PciAddress,
        /// What may have been meant.
        hint: Hint,
    },
}

impl HostError {
    /// Whether the user's words are at fault, not the machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::BadAddress { .. })
    }
}

/// Functions to name to whoever gave a wrong address; each with its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// They may have been meant.
    Similar(Vec<String>),
    /// Nothing is like the address; these are the known cards.
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
                "; `fpgactl list --all` lists what there is, echo 1 > /sys/bus/pci/rescan looks again",
            ),
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not read it: ask as root, or, in a container, give it the host's /sys"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "this is no sysfs of a Linux kernel: check the root"
        }
        _ => "check that /sys, /proc and /dev are those of the running kernel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root, whom tests may run as, is refused nothing.
    #[test]
    fn host_error_advice_matches_system_error() {
        for (kind, part) in [
            (io::ErrorKind::PermissionDenied, "ask as root"),
            (io::ErrorKind::NotADirectory, "check the root"),
            (io::ErrorKind::IsADirectory, "check the root"),
            (io::ErrorKind::Other, "those of the running kernel"),
        ] {
            let error = HostError::Unreadable { path: "/sys/x".into(), source: kind.into() }.to_string();
            assert!(error.starts_with("/sys/x cannot be read") && error.contains(part), "{error}");
        }
    }
}
