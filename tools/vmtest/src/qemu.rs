//! Machine emulator: this machine's own if it is new enough, else Debian's backport. The backport is unpacked into the cache and run by its
//! own dynamic linker, so that nothing is installed and no privileges are needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::{Cache, CacheError, Entry};
use super::debian::{DebianError, Packages};
use fpga_process::{ToolError, on_path, output};

/// First version with `vfio-user-pci`.
const MIN_QEMU_VERSION: (u32, u32) = (10, 1);
const PROGRAM: &str = "qemu-system-x86_64";
const ENTRY: &str = "qemu";
/// Devices of the guests: all of them must be in the build.
const DEVICES: [&str; 5] = ["vfio-user-pci", "intel-iommu", "pcie-root-port", "edu", "isa-serial"];

/// Reasons why there is no emulator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QemuError {
    /// Packages are not available.
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// It does not run.
    #[error("QEMU does not run on this machine: {0}")]
    Run(#[from] ToolError),
    /// It lacks a feature.
    #[error("QEMU {version} lacks {}; {}.{} or newer with these devices is needed", missing.join(", "), MIN_QEMU_VERSION.0, MIN_QEMU_VERSION.1)]
    MissingFeature { version: String, missing: Vec<&'static str> },
}

/// Emulator with all features that guests need.
#[derive(Debug, Clone)]
pub(crate) struct Qemu {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Folder of the modules that it loads on demand.
    parts: Option<PathBuf>,
    /// Version that it reports.
    pub(crate) version: String,
}

/// Returns whether it has to be fetched.
pub(crate) fn is_missing(cache: &Cache) -> bool {
    cache.get(ENTRY).is_none() && Qemu::of_machine().is_none()
}

impl Qemu {
    /// Emulator, which is fetched if there is none.
    pub(crate) fn get(cache: &Cache, packages: &mut Packages) -> Result<Self, QemuError> {
        if let Some(own) = Self::of_machine() {
            return Ok(own);
        }
        let entry = cache.entry(ENTRY, |folder| {
            eprintln!("fetching QEMU");
            packages.unpack_program("qemu-system-x86", folder).map_err(QemuError::from)
        })?;
        Self::unpacked(&entry).checked()
    }

    fn of_machine() -> Option<Self> {
        let program = on_path(PROGRAM)?;
        let version = String::new();
        Self { program, arguments: Vec::new(), parts: None, version }.checked().ok()
    }

    fn unpacked(entry: &Entry) -> Self {
        let libraries = entry.folder.join("usr/lib/x86_64-linux-gnu");
        let data = |name: &str| entry.folder.join("usr/share").join(name).into_os_string();
        let arguments = vec![
            "--library-path".into(),
            libraries.clone().into_os_string(),
            entry.folder.join("usr/bin").join(PROGRAM).into_os_string(),
            "-L".into(),
            data("qemu"),
            // The firmware is a separate package.
            "-L".into(),
            data("seabios"),
        ];
        Self {
            program: libraries.join("ld-linux-x86-64.so.2"),
            arguments,
            parts: Some(libraries.join("qemu")),
            version: String::new(),
        }
    }

    /// Another program in its place, which gets the emulator's arguments after `arguments`.
    #[cfg(test)]
    pub(crate) fn substitute(program: &str, arguments: Vec<OsString>) -> Self {
        Self { program: program.into(), arguments, parts: None, version: String::new() }
    }

    /// Command that starts it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if let Some(parts) = &self.parts {
            command.env("QEMU_MODULE_DIR", parts);
        }
        command
    }

    /// Checks its version and its features.
    fn checked(mut self) -> Result<Self, QemuError> {
        let said = output(self.command().arg("--version"))?;
        let text = said.lines().next().unwrap_or_default();
        self.version = text.strip_prefix("QEMU emulator version ").unwrap_or(text).to_owned();
        let devices = output(self.command().args(["-machine", "q35", "-device", "help"]))?;
        let mut missing = lacking(&devices);
        if version(&self.version).is_none_or(|version| version < MIN_QEMU_VERSION) && missing.is_empty() {
            missing.push("a version number that is new enough");
        }
        if missing.is_empty() {
            Ok(self)
        } else {
            Err(QemuError::MissingFeature { version: self.version, missing })
        }
    }
}

fn lacking(devices: &str) -> Vec<&'static str> {
    let has = |device: &&str| devices.contains(&format!("name \"{device}\""));
    DEVICES.into_iter().filter(|device| !has(device)).collect()
}

/// First two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', ' ']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Path as a value in an option of the emulator, where a comma ends a value unless it is doubled.
pub(crate) fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_versions_compare_numerically() {
        assert_eq!(version("11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)"), Some((11, 1)));
        assert!(version("7.2.22 (Debian 1:7.2+dfsg-7)").unwrap() < MIN_QEMU_VERSION);
        assert!(
            version("10.0.13").unwrap() < MIN_QEMU_VERSION && version("10.1.0").unwrap() >= MIN_QEMU_VERSION
        );
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn qemu_missing_features_are_named() {
        let devices =
            "name \"vfio-user-pci\", bus PCI\nname \"intel-iommu\", bus System\nname \"edu\", bus PCI\n";
        assert_eq!(lacking(devices), ["pcie-root-port", "isa-serial"]);
    }

    #[test]
    fn qemu_comma_in_path_is_escaped() {
        assert_eq!(value(Path::new("/tmp/a,b")), "/tmp/a,,b");
    }
}
