//! Package `python3-fpga-rdma`: the files of the wheel, where Debian's Python looks for packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::{self, Fields, VERSION, copy};
use super::{PackageError, with_path};
use crate::python;
use fpga_process::output;

const NAME: &str = "python3-fpga-rdma";
/// Folder of the packages that Debian installs, for every version of Python 3.
const PACKAGES: &str = "usr/lib/python3/dist-packages";

/// Builds the package from `wheel`, or from one that it builds, and writes it to `out`.
pub(super) fn build(
    root: &Path,
    wheel: Option<&Path>,
    scratch: &Path,
    out: &Path,
) -> Result<PathBuf, PackageError> {
    let wheel = match wheel {
        Some(wheel) => wheel.to_owned(),
        None => python::wheel(root, true)?,
    };
    let packages = scratch.join(PACKAGES);
    fs::create_dir_all(&packages).map_err(with_path(&packages))?;
    output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&packages))?;
    let native = packages.join("fpga_rdma/_native.abi3.so");
    let documents = scratch.join("usr/share/doc").join(NAME);
    copy(&root.join("tools/fpgactl/packaging/copyright"), &documents.join("copyright"), 0o644)?;
    copy(&root.join("CHANGELOG.md"), &documents.join("changelog"), 0o644)?;
    copy(&root.join("driver/bindings/python/README.md"), &documents.join("README.md"), 0o644)?;
    output(Command::new("gzip").args(["-9", "--no-name"]).arg(documents.join("changelog")))?;
    let fields = Fields {
        name: NAME,
        section: "python",
        multi_arch: None,
        depends: format!("python3 (>= 3.11), python3-numpy, {}", deb::libraries(NAME, scratch, &native)?),
        description: "Python package for FPGA cards with XDMA and CDMA\n \
                      DMA, registers and user interrupts through VFIO, without the vendor's kernel\n \
                      module; and simulated cards. The module is fpga_rdma.",
    };
    deb::pack(&fields, scratch, out)
}

/// Installs the package below `root`, runs a program with it, removes and purges it.
pub(super) fn check(root_of_project: &Path, package: &Path, root: &Path) -> Result<(), PackageError> {
    let dpkg = deb::empty_root(root)?;
    dpkg(&["--install", &package.display().to_string()])?;
    let packages = root.join(PACKAGES);
    // The interpreter of this machine, without its own packages except numpy: of the virtual environment if there is one.
    let interpreter = python::interpreter(root_of_project);
    let program = "import numpy as np, fpga_rdma\n\
                   assert fpga_rdma.__file__.startswith('ROOT'), fpga_rdma.__file__\n\
                   card = fpga_rdma.open('mock')\n\
                   a = np.arange(1 << 18, dtype=np.uint32); b = np.empty_like(a)\n\
                   card.h2c[0].write(a, 0x1000)\n\
                   card.c2h[0].read(b, 0x1000)\n\
                   print((a == b).all())\n"
        .replace("ROOT", &root.display().to_string());
    let said = output(Command::new(interpreter).args(["-c", &program]).env("PYTHONPATH", &packages))?;
    if said.trim() != "True" {
        return Err(PackageError::Wrong(format!("a program with {NAME} says {said:?} instead of True")));
    }
    dpkg(&["--purge", NAME])?;
    if packages.join("fpga_rdma/_native.abi3.so").exists() {
        return Err(PackageError::Wrong(format!("{NAME} remains after it was purged")));
    }
    println!("package: {NAME} {VERSION} installed, tested and purged");
    Ok(())
}
