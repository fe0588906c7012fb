//! Paths of the kernel's file trees, and functions to read them.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::{HostError, PciAddress};

/// Maximum number of bytes read from a file. An attribute of sysfs has at most a page; the required part of `/proc/cpuinfo` is in its first
/// lines.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Paths of the kernel's file trees. Tests use their own directories.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Roots {
    /// Root of sysfs. Default `/sys`.
    pub sysfs: PathBuf,
    /// Root of the device files. Default `/dev`.
    pub dev: PathBuf,
    /// Root of procfs. Default `/proc`.
    pub proc: PathBuf,
    /// Directory of kernel modules, by release. Default `/lib/modules`.
    pub modules: PathBuf,
    /// Directory of the records of previous drivers. Default `/run/fpga`: it is lost at a restart, as bindings are.
    pub state: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::with_root(Path::new("/"))
    }
}

/// A process that has a file open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Holder {
    /// Process id.
    pub process: u32,
    /// Name; empty if this user may not read it.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process == std::process::id() {
            true => write!(f, "process {} (this program)", self.process),
            false => write!(f, "process {} ({})", self.process, self.name),
        }
    }
}

impl Roots {
    /// Creates the paths of trees below one directory, with the same names as below `/`.
    #[must_use]
    pub fn with_root(root: &Path) -> Self {
        Self {
            sysfs: root.join("sys"),
            dev: root.join("dev"),
            proc: root.join("proc"),
            modules: root.join("lib/modules"),
            state: root.join("run/fpga"),
        }
    }

    /// Returns whether these are the trees of the running kernel.
    #[must_use]
    pub fn is_live(&self) -> bool {
        *self == Self::default()
    }

    /// Directory of a function.
    #[must_use]
    pub fn function(&self, address: PciAddress) -> PathBuf {
        self.sysfs.join("bus/pci/devices").join(address.to_string())
    }

    /// Directory of a PCI driver.
    #[must_use]
    pub fn pci_driver(&self, name: &str) -> PathBuf {
        self.sysfs.join("bus/pci/drivers").join(name)
    }

    /// Directory of the IOMMU groups, by number.
    #[must_use]
    pub fn groups(&self) -> PathBuf {
        self.sysfs.join("kernel/iommu_groups")
    }

    /// File of the VFIO container, which exists once the module is loaded.
    #[must_use]
    pub fn container_file(&self) -> PathBuf {
        self.dev.join("vfio/vfio")
    }

    /// File of a group.
    #[must_use]
    pub fn group_file(&self, group: u32) -> PathBuf {
        self.dev.join("vfio").join(group.to_string())
    }

    /// File of iommufd.
    #[must_use]
    pub fn iommufd_file(&self) -> PathBuf {
        self.dev.join("iommu")
    }

    /// Device file of a function, from the directory that the kernel creates for it in sysfs (6.6 and later).
    #[must_use]
    pub fn function_file(&self, address: PciAddress) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.function(address).join("vfio-dev")).ok()?;
        let name = entries.flatten().next()?.file_name();
        Some(self.dev.join("vfio/devices").join(name))
    }

    /// Driver that a function is bound to.
    ///
    /// # Errors
    /// [`HostError::Unreadable`].
    pub fn driver_of(&self, address: PciAddress) -> Result<Option<String>, HostError> {
        link_name(&self.function(address).join("driver"))
    }

    /// IOMMU group of a function.
    ///
    /// # Errors
    /// [`HostError::Unreadable`].
    pub fn group_of(&self, address: PciAddress) -> Result<Option<u32>, HostError> {
        let name = link_name(&self.function(address).join("iommu_group"))?;
        Ok(name.and_then(|name| name.parse().ok()))
    }

    /// Processes that have `path` open, including this one, as far as this user may see them.
    #[must_use]
    pub fn holders(&self, path: &Path) -> Vec<Holder> {
        let processes = std::fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let of = |number: u32| self.proc.join(number.to_string());
        let holds = |number: &u32| {
            let files = std::fs::read_dir(of(*number).join("fd")).into_iter().flatten().flatten();
            files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|target| target == path)
        };
        let name = |process: u32| {
            let name = attribute(&of(process).join("comm")).ok().flatten().unwrap_or_default();
            Holder { process, name }
        };
        let mut holders: Vec<Holder> = numbers.filter(holds).map(name).collect();
        holders.sort_unstable();
        holders
    }
}

/// Reads the text of a file without surrounding white space; `None` if the file does not exist.
pub(crate) fn attribute(path: &Path) -> Result<Option<String>, HostError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(source) if is_absent(&source) => Ok(None),
        Err(source) => Err(HostError::Unreadable { path: path.to_owned(), source }),
    }
}

/// Reads the number in a file, decimal or hexadecimal with 0x; `None` if the file does not exist.
pub(crate) fn number(path: &Path) -> Result<Option<u64>, HostError> {
    let Some(text) = attribute(path)? else { return Ok(None) };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map(Some).map_err(|_| invalid_content(path, &text, "number"))
}

/// Last component of a symbolic link's target; `None` if the link does not exist.
pub(crate) fn link_name(link: &Path) -> Result<Option<String>, HostError> {
    match std::fs::read_link(link) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(source) if is_absent(&source) || source.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(source) => Err(HostError::Unreadable { path: link.to_owned(), source }),
    }
}

/// Names in a directory; `None` if the directory does not exist.
pub(crate) fn names(path: &Path) -> Result<Option<Vec<String>>, HostError> {
    let fail = |source| HostError::Unreadable { path: path.to_owned(), source };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(source) if is_absent(&source) => return Ok(None),
        Err(source) => return Err(fail(source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        // Names of the kernel are ASCII: other names are ignored.
        if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(Some(names))
}

pub(crate) fn invalid_content(path: &Path, text: &str, what: &'static str) -> HostError {
    HostError::InvalidContent { path: path.to_owned(), text: text.chars().take(40).collect(), what }
}

/// Returns whether a file is absent. Attributes of a function that is being removed return ENODEV.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}
