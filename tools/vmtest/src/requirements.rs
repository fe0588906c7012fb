//! Requirements for running guests, all checked at once before anything is fetched.

use std::path::Path;

use super::cache::Cache;
use super::kernel::{self, Kernel};
use super::qemu;
use fpga_process::on_path;

/// Disk space for building a kernel, in bytes.
const BUILD_SPACE: u64 = 4 << 30;

/// Requirement that a machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingRequirement {
    /// Name of the requirement.
    pub(crate) what: String,
    /// Remedy.
    pub(crate) remedy: String,
}

impl core::fmt::Display for MissingRequirement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "this machine lacks {}; {}", self.what, self.remedy)
    }
}

/// Programs, and their Debian packages.
const TO_FETCH: [(&str, &str); 4] =
    [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("xz", "xz-utils")];
const TO_BUILD: [(&str, &str); 7] = [
    ("gcc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("tar", "tar"),
    ("nice", "coreutils"),
];
/// Header that the kernel's own tools need, and its package.
const HEADER: (&str, &str) = ("/usr/include/gelf.h", "libelf-dev");

/// Missing requirements for these kernels.
pub(crate) fn lacking(cache: &Cache, kernels: &[Kernel]) -> Vec<MissingRequirement> {
    let mut lacks = Vec::new();
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        lacks.push(MissingRequirement {
            what: "Linux on x86-64, because guests run the programs of this machine".to_owned(),
            remedy: "use such a machine".to_owned(),
        });
    }
    let builds = kernels.contains(&Kernel::Built) && kernel::is_missing(cache, Kernel::Built);
    let fetches = qemu::is_missing(cache) || kernels.iter().any(|kernel| kernel::is_missing(cache, *kernel));
    let mut packages: Vec<&str> = Vec::new();
    let mut programs = Vec::new();
    let wanted = TO_FETCH.iter().filter(|_| fetches).chain(TO_BUILD.iter().filter(|_| builds));
    for (program, package) in wanted {
        if on_path(program).is_none() {
            programs.push((*program).to_owned());
            packages.push(package);
        }
    }
    if builds && !Path::new(HEADER.0).is_file() {
        programs.push(HEADER.0.to_owned());
        packages.push(HEADER.1);
    }
    if !programs.is_empty() {
        packages.dedup();
        lacks.push(MissingRequirement {
            what: programs.join(", "),
            remedy: format!("on Debian and Ubuntu: apt-get install {}", packages.join(" ")),
        });
    }
    let free = rustix::fs::statvfs(cache.folder()).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    if builds && free.is_ok_and(|free| free < BUILD_SPACE) {
        lacks.push(MissingRequirement {
            what: format!("{} GiB of free space in {}", BUILD_SPACE >> 30, cache.folder().display()),
            remedy: format!("free space, or set {} to another folder", super::cache::VARIABLE),
        });
    }
    lacks
}
