//! Package `libfabric-provider-fpga`: the libfabric provider, in the folder that Debian's libfabric searches.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::{self, Fields, VERSION, copy};
use super::{PackageError, library};
use crate::libfabric;
use fpga_process::{on_path, output};

const NAME: &str = "libfabric-provider-fpga";
const FILE: &str = "libfpga-fi.so";

/// Folder of the provider in the package.
fn folder() -> Result<String, PackageError> {
    Ok(format!("usr/{}/libfabric", library::libdir()?))
}

/// Builds the provider and its package, and writes the package to `out`.
pub(super) fn build(root: &Path, scratch: &Path, out: &Path) -> Result<PathBuf, PackageError> {
    let built = libfabric::build(root, true)?;
    let installed = scratch.join(folder()?).join(FILE);
    copy(&built, &installed, 0o644)?;
    output(Command::new("strip").arg("--strip-unneeded").arg(&installed))?;
    let documents = scratch.join("usr/share/doc").join(NAME);
    copy(&root.join("tools/fpgactl/packaging/copyright"), &documents.join("copyright"), 0o644)?;
    copy(&root.join("CHANGELOG.md"), &documents.join("changelog"), 0o644)?;
    copy(&root.join("driver/rdma/libfabric/README.md"), &documents.join("README.md"), 0o644)?;
    output(Command::new("gzip").args(["-9", "--no-name"]).arg(documents.join("changelog")))?;
    let fields = Fields {
        name: NAME,
        section: "libs",
        multi_arch: Some("same"),
        depends: format!("libfabric1 (>= 1.17), {}", deb::libraries(NAME, scratch, &installed)?),
        description: "libfabric provider for FPGA cards with XDMA and a network interface\n \
                      MPI and other programs that use libfabric exchange messages over FPGA\n \
                      cards. Processes without a card get a simulated one.",
    };
    deb::pack(&fields, scratch, out)
}

/// Installs the package below `root`, lets libfabric find the provider there, and purges it.
pub(super) fn check(package: &Path, root: &Path) -> Result<(), PackageError> {
    let dpkg = deb::empty_root(root)?;
    let package = package.display().to_string();
    // The scratch root has no libfabric1: libfabric itself is that of this machine.
    dpkg(&["--force-depends", "--install", &package])?;
    let folder = root.join(folder()?);
    if on_path("fi_info").is_some() {
        let said = output(Command::new("fi_info").args(["-p", "fpga"]).env("FI_PROVIDER_PATH", &folder))?;
        if !said.contains("provider: fpga") {
            return Err(PackageError::Wrong(format!("fi_info finds no provider of {NAME}: {said:?}")));
        }
    } else {
        println!(
            "skipped: {NAME} is not tried: fi_info is not installed (Debian: apt-get install libfabric-bin)"
        );
    }
    dpkg(&["--purge", NAME])?;
    if folder.join(FILE).exists() {
        return Err(PackageError::Wrong(format!("{NAME} remains after it was purged")));
    }
    println!("package: {NAME} {VERSION} installed, tested and purged");
    Ok(())
}
