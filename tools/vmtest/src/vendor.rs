//! The vendor's tools and tests for guests, if the environment names their sources: static programs, because a guest has no C library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_process::{ToolError, output};

use super::cache::{self, Cache, CacheError, at};
use super::debian::{DebianError, Packages};

/// Environment variable with the directory of the vendor's tools and tests, `XDMA/linux-kernel` of its repository.
pub(crate) const VARIABLE: &str = "FPGA_VENDOR_XDMA";
/// Test that also runs on this machine.
const CHECK: &str = "tools/fpgactl/tests/cli/vendor.sh";

/// Folders of the vendor's files, each after the one that contains it.
pub(crate) const FOLDERS: [&str; 3] = ["tools", "tests", "tests/data"];

/// Reasons why the vendor's tools are not available to guests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VendorError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] CacheError),
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The shell of the vendor's scripts is not available.
    #[error(transparent)]
    Shell(#[from] DebianError),
}

/// Files for guests: path below the root of the file system, and path on this machine.
pub(crate) type Files = Vec<(String, PathBuf)>;

/// Builds the vendor's tools. No files without the vendor's directory.
pub(crate) fn build(root: &Path, cache: &Cache, packages: &mut Packages) -> Result<Files, VendorError> {
    let Some(source) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return Ok(Vec::new()) };
    let shell = cache.entry("bash", |folder| packages.unpack("bash-static", folder))?;
    let mut files = vec![("bin/bash".to_owned(), shell.folder.join("usr/bin/bash-static"))];
    let folder = cache.folder().join("vendor");
    cache::remove(&folder)?;
    fs::create_dir_all(&folder).map_err(at("make", &folder))?;
    // Its tools include a header of the module.
    output(
        Command::new("cp")
            .arg("-r")
            .args(["tools", "tests", "xdma"].map(|part| source.join(part)))
            .arg(&folder),
    )?;
    output(Command::new("make").args(["-s", "-B", "CC=gcc -static", "-C"]).arg(folder.join("tools")))?;
    let check = folder.join("tests/check.sh");
    fs::copy(root.join(CHECK), &check).map_err(at("copy", &check))?;
    // Built for the guest's kernel by the user.
    let module = source.join("xdma/xdma.ko");
    if module.exists() {
        files.push(("vendor/xdma.ko".to_owned(), module));
    }
    for part in FOLDERS {
        let part_folder = folder.join(part);
        for entry in fs::read_dir(&part_folder).map_err(at("read", &part_folder))? {
            let path = entry.map_err(at("read", &part_folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_file() {
                files.push((format!("vendor/{part}/{name}"), path.clone()));
            }
        }
    }
    Ok(files)
}
