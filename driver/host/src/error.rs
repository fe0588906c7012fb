//! Errors of examining the machine.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use crate::{ParsePciAddressError, PciAddress};

/// Reason why a part of the machine could not be read, or does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is no sysfs at the expected path.
    #[error("sysfs is not mounted at {}", path.display())]
    NoSysfs {
        /// Expected path.
        path: PathBuf,
    },
    /// A file or directory exists and cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// The content of a file differs from the kernel's format.
    #[error("{} holds {text:?}, which is not a valid {what}", path.display())]
    InvalidContent {
        /// Path of the file.
        path: PathBuf,
        /// Its content, shortened.
        text: String,
        /// Expected content.
        what: &'static str,
    },
    /// The address is invalid or incomplete.
    #[error("{source}")]
    BadAddress {
        /// Description of the problem.
        r#source: ParsePciAddressError,
        /// Suggestions.
        hint: Hint,
    },
    /// There is no function at the address.
    #[error("PCI function {address} does not exist")]
    NoSuchFunction {
        /// Requested address.
        address: PciAddress,
        /// Suggestions.
        hint: Hint,
    },
}

impl HostError {
    /// Returns whether the cause is the user's input, not the machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::BadAddress { .. })
    }

    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoSysfs { .. } => Some("mount it: mount -t sysfs sysfs /sys".into()),
            Self::Unreadable { source, .. } => Some(advice(source).into()),
            Self::InvalidContent { .. } => None,
            Self::BadAddress { source, hint: Hint::Nothing } => source.help(),
            Self::BadAddress { hint, .. } | Self::NoSuchFunction { hint, .. } => Some(hint.help()),
        }
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

impl Hint {
    /// Advice with the suggested functions, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Cow<'static, str> {
        match self {
            Self::Similar(functions) => match functions.as_slice() {
                [one] => format!("did you mean {one}?").into(),
                several => format!("did you mean one of {}?", several.join(", ")).into(),
            },
            Self::Cards(functions) => format!("name a card of this machine: {}", functions.join(", ")).into(),
            Self::Nothing => {
                "list the devices with lspci -D, or scan the bus again: echo 1 > /sys/bus/pci/rescan".into()
            }
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run as root, or, in a container, provide the host's /sys",
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "check the root: this is not the sysfs of a Linux kernel"
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
            let error = HostError::Unreadable { path: "/sys/x".into(), source: kind.into() };
            assert!(error.to_string().starts_with("/sys/x cannot be read"), "{error}");
            assert!(error.help().is_some_and(|help| help.contains(part)), "{error:?}");
        }
    }
}
