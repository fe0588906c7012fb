//! Permissions and limits of this process: locked memory, access to files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access as Mode, access};

use crate::roots::{attribute, invalid_content};
use crate::{HostError, Roots};

/// Bit of the capability that overrides file permissions (`linux/capability.h`).
const DAC_OVERRIDE: u32 = 1;
/// Bit of the capability that overrides the limit of locked memory.
const IPC_LOCK: u32 = 14;

/// Permissions and limits of this process, from procfs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// User id for file access.
    pub user: u32,
    /// Group ids for file access.
    pub groups: Vec<u32>,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// Limit of locked memory in bytes; `None`: no limit.
    pub locked_memory: Option<u64>,
    live: bool,
}

/// Whether a file may be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The file may be read and written.
    Granted,
    /// The file may not be read and written.
    Denied {
        /// Owner of the file.
        owner: u32,
        /// Group of the file.
        group: u32,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file does not exist.
    Missing,
}

impl Caller {
    /// Reads the data of this process from `proc/self`.
    ///
    /// # Errors
    /// [`HostError::Unreadable`], [`HostError::InvalidContent`].
    pub fn read(roots: &Roots) -> Result<Self, HostError> {
        let path = roots.proc.join("self/status");
        let status = attribute(&path)?.unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let numbers = |name: &str| -> Vec<u32> {
            let words = line(name).unwrap_or_default().split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let wrong = |what| invalid_content(&path, status.lines().next().unwrap_or_default(), what);
        // Real, effective, saved, and file system user id; the last one counts for files.
        let user = *numbers("Uid:").get(3).ok_or_else(|| wrong("status of a process"))?;
        let own = *numbers("Gid:").get(3).ok_or_else(|| wrong("status of a process"))?;
        let mut groups = numbers("Groups:");
        groups.push(own);
        let capabilities = line("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok());
        let capabilities = capabilities.ok_or_else(|| wrong("status of a process"))?;

        let path = roots.proc.join("self/limits");
        let limits = attribute(&path)?.unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        let soft = line.and_then(|line| line.split_ascii_whitespace().next());
        let locked_memory = match soft {
            Some("unlimited") => None,
            Some(number) => Some(number.parse().map_err(|_| invalid_content(&path, number, "limit"))?),
            None => {
                return Err(invalid_content(
                    &path,
                    limits.lines().next().unwrap_or_default(),
                    "list of limits",
                ));
            }
        };
        Ok(Self { user, groups, capabilities, locked_memory, live: roots.is_live() })
    }

    /// Returns whether the limit of locked memory does not apply to it.
    #[must_use]
    pub const fn locks_without_limit(&self) -> bool {
        self.has(IPC_LOCK) || self.locked_memory.is_none()
    }

    /// Returns whether it may read and write `path`.
    #[must_use]
    pub fn access(&self, path: &Path) -> Access {
        let Ok(file) = std::fs::metadata(path) else { return Access::Missing };
        let (owner, group, mode) = (file.uid(), file.gid(), file.mode() & 0o777);
        let granted = if self.live {
            // The system also evaluates access lists, which udev sets for local users.
            access(path, Mode::READ_OK | Mode::WRITE_OK).is_ok()
        } else {
            let bits = match () {
                () if self.has(DAC_OVERRIDE) => 0o6,
                () if self.user == owner => mode >> 6,
                () if self.groups.contains(&group) => mode >> 3,
                () => mode,
            };
            bits & 0o6 == 0o6
        };
        if granted { Access::Granted } else { Access::Denied { owner, group, mode } }
    }

    const fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}
