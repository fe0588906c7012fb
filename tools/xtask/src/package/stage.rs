//! Tree of files that becomes the package `fpgactl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::{self, Fields, copy, write};
use super::{PackageError, with_path};
use crate::manual;
use fpga_process::output;

/// Files of `tools/fpgactl/packaging`, and their destinations. `/etc` belongs to the administrator: changed files there are kept.
const FILES: &[(&str, &str)] = &[
    ("fpgactl-bind@.service", "lib/systemd/system/fpgactl-bind@.service"),
    ("60-fpgactl.rules", "lib/udev/rules.d/60-fpgactl.rules"),
    ("fpgactl.sysusers.conf", "usr/lib/sysusers.d/fpgactl.conf"),
    ("fpgactl.modules-load.conf", "usr/lib/modules-load.d/fpgactl.conf"),
    ("fpgactl.limits.conf", CONFIGURATION),
    ("copyright", "usr/share/doc/fpgactl/copyright"),
];
/// Scripts that dpkg runs; each states when.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
/// Schemas of files, for editors: title, source, and destination.
pub(super) const SCHEMAS: &[(&str, &str, &str)] = &[
    ("Register map", "registers/map/register-map.schema.json", "usr/share/fpgactl/register-map.schema.json"),
    ("Simulation scenario", "tools/netsim/scenario.schema.json", "usr/share/fpgactl/scenario.schema.json"),
];
/// Folders of sample files, which are installed completely beside the manual.
pub(super) const SAMPLES: &[&str] = &["examples/scenarios", "examples/maps", "examples/cards"];
/// Destination of the manual, and of the files it links to.
pub(super) const DOCUMENTS: &str = "usr/share/doc/fpgactl";
/// The only file below `/etc`.
pub(super) const CONFIGURATION: &str = "etc/security/limits.d/fpgactl.conf";
/// DPI-C library for `fpgactl rtl build`, beside the program in Cargo's folder, and where the installed program looks for it.
const RTL_LIBRARY: &str = "deps/libfpga_rtl.a";
pub(super) const INSTALLED_RTL_LIBRARY: &str = "usr/lib/fpgactl/libfpga_rtl.a";
/// Shells, and the path of the completions of each.
pub(super) const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/fpgactl"),
    ("zsh", "usr/share/zsh/vendor-completions/_fpgactl"),
    ("fish", "usr/share/fish/vendor_completions.d/fpgactl.fish"),
];

/// Assembles the package of `program`, which is in Cargo's folder, in `stage`, and writes it to `out`.
pub(super) fn build(root: &Path, program: &Path, stage: &Path, out: &Path) -> Result<PathBuf, PackageError> {
    let installed = stage.join("usr/bin/fpgactl");
    copy(program, &installed, 0o755)?;
    // Line numbers in panic messages do not need debug information; the package is a tenth of the size without it.
    output(Command::new("strip").arg("--strip-debug").arg(&installed))?;
    let library = stage.join(INSTALLED_RTL_LIBRARY);
    copy(&program.with_file_name(RTL_LIBRARY), &library, 0o644)?;
    output(Command::new("strip").arg("--strip-debug").arg(&library))?;
    for (name, to) in FILES {
        copy(&root.join("tools/fpgactl/packaging").join(name), &stage.join(to), 0o644)?;
    }
    for (_, from, to) in SCHEMAS {
        copy(&root.join(from), &stage.join(to), 0o644)?;
    }
    let documents = stage.join(DOCUMENTS);
    for path in samples(root)? {
        copy(&root.join(&path), &documents.join(&path), 0o644)?;
    }
    copy(&root.join("CHANGELOG.md"), &documents.join("changelog"), 0o644)?;
    // Files that the manual links to are installed in the same folders: no link leads out of it.
    for path in manual::reached(root)? {
        copy(&root.join(&path), &documents.join(&path), 0o644)?;
    }
    for (shell, to) in COMPLETIONS {
        let script = output(Command::new(&installed).args(["completions", shell]))?;
        write(&stage.join(to), script)?;
    }
    let pages = stage.join("usr/share/man/man1");
    output(Command::new(&installed).arg("man").arg("--out").arg(&pages))?;
    // Debian Policy 12.1 and 12.7: maximum compression, without a timestamp.
    let mut compress = vec![documents.join("changelog")];
    compress.extend(fs::read_dir(&pages).map_err(with_path(&pages))?.flatten().map(|entry| entry.path()));
    output(Command::new("gzip").args(["-9", "--no-name"]).args(&compress))?;
    let fields = Fields {
        name: "fpgactl",
        section: "utils",
        multi_arch: None,
        depends: deb::libraries("fpgactl", stage, &installed)?,
        description: "command line for FPGA cards with XDMA and CDMA\n \
                      DMA, registers, self-test and reliable transfers between cards through VFIO,\n \
                      without the vendor's kernel module; and a simulated card.",
    };
    write(&stage.join("DEBIAN/conffiles"), format!("/{CONFIGURATION}\n"))?;
    SCRIPTS.iter().try_for_each(|script| {
        copy(&root.join("tools/fpgactl/packaging").join(script), &stage.join("DEBIAN").join(script), 0o755)
    })?;
    deb::pack(&fields, stage, out)
}

/// All sample files, relative to the root of the repository.
pub(super) fn samples(root: &Path) -> Result<Vec<PathBuf>, PackageError> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = SAMPLES.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let whole = root.join(&folder);
        for entry in fs::read_dir(&whole).map_err(with_path(&whole))?.flatten() {
            let path = folder.join(entry.file_name());
            if root.join(&path).is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}
