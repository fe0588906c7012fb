//! Debian packages: control files, and calls of `dpkg-deb`, `dpkg-shlibdeps` and `dpkg`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PackageError, with_path};
use fpga_process::{ToolError, output};

/// Version of every package.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Fields of a control file that differ between packages.
pub(super) struct Fields<'a> {
    pub(super) name: &'a str,
    pub(super) section: &'a str,
    /// Value of `Multi-Arch`.
    pub(super) multi_arch: Option<&'a str>,
    pub(super) depends: String,
    /// Value of `Description`: the synopsis, then the lines of the extended description, each after a line break and a space.
    pub(super) description: &'a str,
}

/// Returns the packages of the shared libraries that `program` needs, as a value of `Depends`.
pub(super) fn libraries(name: &str, stage: &Path, program: &Path) -> Result<String, PackageError> {
    // dpkg-shlibdeps requires the directory of a source package.
    let source = stage.with_file_name("source");
    let control = format!("Source: {name}\n\nPackage: {name}\nArchitecture: any\n");
    write(&source.join("debian/control"), control)?;
    let libraries = output(
        Command::new("dpkg-shlibdeps").args(["-O", "--warnings=0"]).arg(program).current_dir(&source),
    )?;
    Ok(libraries.trim().strip_prefix("shlibs:Depends=").unwrap_or("libc6").to_owned())
}

/// Writes the control file of the folder `stage`, and packs the folder into a `.deb` file in `out`. Returns the file's path.
pub(super) fn pack(fields: &Fields, stage: &Path, out: &Path) -> Result<PathBuf, PackageError> {
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let multi_arch = fields.multi_arch.map(|value| format!("Multi-Arch: {value}\n")).unwrap_or_default();
    let control = format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: {architecture}\n{multi_arch}\
         Maintainer: the contributors <fpga-rdma@localhost>\n\
         Depends: {}\nSection: {}\nPriority: optional\nDescription: {}\n",
        fields.name, fields.depends, fields.section, fields.description,
    );
    write(&stage.join("DEBIAN/control"), control)?;
    let package = out.join(format!("{}_{VERSION}_{architecture}.deb", fields.name));
    output(Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(stage).arg(&package))?;
    Ok(package)
}

/// Creates an empty root with dpkg's database, and returns a function that runs dpkg in it.
pub(super) fn empty_root(root: &Path) -> Result<impl Fn(&[&str]) -> Result<String, ToolError>, PackageError> {
    let database = root.join("var/lib/dpkg");
    for directory in ["updates", "info"] {
        fs::create_dir_all(database.join(directory)).map_err(with_path(&database))?;
    }
    write(&database.join("status"), "")?;
    let root = root.display().to_string();
    // The scratch root has no C library for dpkg to find, and no shell: the tests use those of this machine.
    Ok(move |arguments: &[&str]| {
        output(
            Command::new("dpkg")
                .arg(format!("--root={root}"))
                .args(["--force-not-root", "--force-depends", "--force-script-chrootless"])
                .arg("--log=/dev/null")
                .args(arguments),
        )
    })
}

fn create_parent(path: &Path) -> Result<(), PackageError> {
    let Some(directory) = path.parent() else { return Ok(()) };
    fs::create_dir_all(directory).map_err(with_path(directory))
}

pub(super) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), PackageError> {
    create_parent(path)?;
    fs::write(path, text).map_err(with_path(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(with_path(path))
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), PackageError> {
    create_parent(to)?;
    fs::copy(from, to).map_err(with_path(from))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(with_path(to))
}
