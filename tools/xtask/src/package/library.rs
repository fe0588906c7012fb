//! Packages of the C interface: `libfpga1` for programs that run, `libfpga-dev` for programs that are built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::{self, Fields, VERSION, copy, write};
use super::{PackageError, with_path};
use fpga_process::{on_path, output};

const RUNTIME: &str = "libfpga1";
const DEVELOPMENT: &str = "libfpga-dev";
/// Sample files, in `usr/share/doc/libfpga-dev`.
const SAMPLES: &[&str] = &["examples/c"];

/// Folder of the libraries below `usr`.
pub(super) fn libdir() -> Result<String, PackageError> {
    let triple = output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    Ok(format!("lib/{}", triple.trim()))
}

/// Builds both packages from `archive`, a libfpga.a, or from one that it builds, and writes them to `out`. The second one needs the first.
pub(super) fn build(
    root: &Path,
    archive: Option<&Path>,
    scratch: &Path,
    out: &Path,
) -> Result<[PathBuf; 2], PackageError> {
    let libdir = libdir()?;
    let development = scratch.join(DEVELOPMENT);
    fs::create_dir_all(&development).map_err(with_path(&development))?;
    let mut install = Command::new(root.join("driver/bindings/c/install.sh"));
    install.args(["--prefix", "/usr", "--libdir", &libdir, "--destdir"]).arg(&development);
    if let Some(archive) = archive {
        install.arg("--archive").arg(archive);
    }
    output(&mut install)?;
    let folder = development.join("usr").join(&libdir);
    // As for fpgactl: a tenth of the size.
    for (name, part) in [("libfpga.so.1", "--strip-unneeded"), ("libfpga.a", "--strip-debug")] {
        output(Command::new("strip").arg(part).arg(folder.join(name)))?;
    }
    let runtime = scratch.join(RUNTIME);
    let libraries = runtime.join("usr").join(&libdir);
    fs::create_dir_all(&libraries).map_err(with_path(&libraries))?;
    // Only programs that are built need the name without a number.
    for path in fs::read_dir(&folder).map_err(with_path(&folder))?.flatten().map(|file| file.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("libfpga.so.") {
            fs::rename(&path, libraries.join(name)).map_err(with_path(&path))?;
        }
    }
    for (package, stage) in [(RUNTIME, &runtime), (DEVELOPMENT, &development)] {
        let documents = stage.join("usr/share/doc").join(package);
        copy(&root.join("tools/fpgactl/packaging/copyright"), &documents.join("copyright"), 0o644)?;
        copy(&root.join("CHANGELOG.md"), &documents.join("changelog"), 0o644)?;
        output(Command::new("gzip").args(["-9", "--no-name"]).arg(documents.join("changelog")))?;
    }
    let documents = development.join("usr/share/doc").join(DEVELOPMENT);
    copy(&root.join("driver/bindings/c/README.md"), &documents.join("README.md"), 0o644)?;
    for folder in SAMPLES {
        let whole = root.join(folder);
        for file in fs::read_dir(&whole).map_err(with_path(&whole))?.flatten() {
            let name = file.file_name();
            if !name.to_string_lossy().starts_with('.') {
                copy(&file.path(), &documents.join(folder).join(name), 0o644)?;
            }
        }
    }
    // Packages that are built with the library depend on its package; the dynamic linker's cache learns of the library.
    write(&runtime.join("DEBIAN/shlibs"), format!("libfpga 1 {RUNTIME} (>= {VERSION})\n"))?;
    write(&runtime.join("DEBIAN/triggers"), "activate-noawait ldconfig\n")?;
    let fields = Fields {
        name: RUNTIME,
        section: "libs",
        multi_arch: Some("same"),
        depends: deb::libraries(RUNTIME, &runtime, &libraries.join("libfpga.so.1"))?,
        description: "C library for FPGA cards with XDMA and CDMA\n \
                      DMA, registers and user interrupts through VFIO, without the vendor's kernel\n \
                      module; and simulated cards. This package has the shared library.",
    };
    let first = deb::pack(&fields, &runtime, out)?;
    let fields = Fields {
        name: DEVELOPMENT,
        section: "libdevel",
        multi_arch: Some("same"),
        depends: format!("{RUNTIME} (= {VERSION})"),
        description: "C library for FPGA cards with XDMA and CDMA (development files)\n \
                      Header, static library, and files for pkg-config and CMake.",
    };
    Ok([first, deb::pack(&fields, &development, out)?])
}

/// Installs the packages below `root`, builds and runs the examples by them, removes and purges them.
pub(super) fn check(packages: &[PathBuf; 2], root: &Path) -> Result<(), PackageError> {
    let dpkg = deb::empty_root(root)?;
    for package in packages {
        dpkg(&["--install", &package.display().to_string()])?;
    }
    let installed = root.join("usr").join(libdir()?);
    if ["cc", "make", "pkg-config"].iter().all(|tool| on_path(tool).is_some()) {
        let said = output(
            Command::new("make")
                .args(["--silent", "run", "clean"])
                .current_dir(root.join("usr/share/doc").join(DEVELOPMENT).join("examples/c"))
                .env("LD_LIBRARY_PATH", &installed)
                .env("PKG_CONFIG_LIBDIR", installed.join("pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", root)
                // Without these, it omits the folders that a compiler searches anyway, here of another root.
                .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
                .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1"),
        )?;
        if !said.contains("to the card and back") {
            return Err(PackageError::Wrong(format!("the examples of {DEVELOPMENT} print {said:?}")));
        }
    } else {
        println!(
            "skipped: examples of {DEVELOPMENT} are not built: cc, make or pkg-config is not installed (Debian: apt-get install gcc make pkg-config)"
        );
    }
    dpkg(&["--remove", DEVELOPMENT])?;
    if installed.join("libfpga.so").symlink_metadata().is_ok() || !installed.join("libfpga.so.1").is_file() {
        return Err(PackageError::Wrong(format!("{DEVELOPMENT} has files of {RUNTIME}, or kept its own")));
    }
    dpkg(&["--purge", DEVELOPMENT, RUNTIME])?;
    if installed.exists() {
        return Err(PackageError::Wrong(format!(
            "{} remains after the packages were purged",
            installed.display()
        )));
    }
    println!("package: {RUNTIME} and {DEVELOPMENT} installed, tested, removed and purged");
    Ok(())
}
