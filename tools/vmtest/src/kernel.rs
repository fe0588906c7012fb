//! Kernels of the guests: Debian's, as users have it, and one built for features that Debian's leaves out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::cache::{Cache, CacheError, Entry, at};
use super::debian::{DebianError, Packages};
use fpga_process::{ToolError, output};

/// Additions of the built kernel's configuration to the smallest one.
const FRAGMENT: &str = include_str!("../guest/kernel.config");

/// Which kernel a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kernel {
    /// Debian's: VFIO's group interface, no iommufd
    Stock,
    /// Built here: group interface and iommufd
    Built,
}

impl Kernel {
    /// Name in the table and in the cache.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Built => "built",
        }
    }
}

/// Reasons why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    /// Packages are not available.
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A build step failed.
    #[error("the guest's kernel could not be built: {0}")]
    Build(#[from] ToolError),
    /// The configuration contains options that this kernel does not know or cannot have.
    #[error("the kernel's configuration ignores {}: see tools/vmtest/guest/kernel.config", .0.join(", "))]
    Configuration(Vec<String>),
    /// A package lacks expected content.
    #[error("{} contains no {what}", folder.display())]
    Content { folder: PathBuf, what: &'static str },
}

/// Bootable kernel.
#[derive(Debug, Clone)]
pub(crate) struct Bootable {
    /// Kernel image.
    pub(crate) image: PathBuf,
    /// Folder of its modules, if it has any.
    pub(crate) modules: Option<PathBuf>,
    /// Version text.
    pub(crate) version: String,
}

/// Name of the cache entry: a change of the configuration gives another one.
fn entry_name(kernel: Kernel) -> String {
    match kernel {
        Kernel::Stock => "kernel-stock".to_owned(),
        Kernel::Built => format!("kernel-built-{:08x}", fingerprint(FRAGMENT)),
    }
}

/// Fingerprint of a fragment. It ignores comments.
fn fingerprint(fragment: &str) -> u32 {
    crc_fast::crc32_iscsi(settings(fragment).collect::<String>().as_bytes())
}

/// Lines of a fragment that are configuration settings.
fn settings(fragment: &str) -> impl Iterator<Item = &str> {
    fragment.lines().map(str::trim).filter(|line| line.starts_with("CONFIG_"))
}

/// Returns whether a kernel is not in the cache yet.
pub(crate) fn is_missing(cache: &Cache, kernel: Kernel) -> bool {
    cache.get(&entry_name(kernel)).is_none()
}

/// Kernel, which is fetched or built if it is not in the cache.
pub(crate) fn get(cache: &Cache, packages: &mut Packages, kernel: Kernel) -> Result<Bootable, KernelError> {
    let entry = cache.entry(&entry_name(kernel), |folder| match kernel {
        Kernel::Stock => fetch(folder, packages),
        Kernel::Built => build(folder, packages),
    })?;
    bootable(kernel, &entry)
}

fn bootable(kernel: Kernel, entry: &Entry) -> Result<Bootable, KernelError> {
    let (image, modules) = match kernel {
        Kernel::Stock => {
            let release = only(&entry.folder.join("usr/lib/modules"), "", "modules")?;
            let image = only(&entry.folder.join("boot"), "vmlinuz-", "kernel")?;
            (unpacked(&image, &entry.folder.join("vmlinux")).unwrap_or(image), Some(release))
        }
        Kernel::Built => (entry.folder.join("bzImage"), None),
    };
    Ok(Bootable { image, modules, version: entry.version.clone() })
}

/// The file in a folder whose name has this prefix.
fn only(folder: &Path, prefix: &str, what: &'static str) -> Result<PathBuf, KernelError> {
    let entries = fs::read_dir(folder).map_err(at("list", folder))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let begins = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    };
    paths.find(begins).ok_or_else(|| KernelError::Content { folder: folder.to_path_buf(), what })
}

/// Extracts the kernel from a compressed image into a separate file, which the emulator starts by its PVH entry. Unpacking is
/// quick on this machine and happens once; an emulated CPU needs seconds for it at every boot. Returns `None` if that is not possible: the
/// compressed image boots, too.
fn unpacked(image: &Path, kernel: &Path) -> Option<PathBuf> {
    if !kernel.is_file() {
        let image = fs::read(image).ok()?;
        let (program, packed) = payload(&image)?;
        let partial = kernel.with_extension("partial");
        fs::write(&partial, packed).ok()?;
        let plain = Command::new(program).arg("-dc").stdin(fs::File::open(&partial).ok()?).output().ok()?;
        if !plain.status.success() || !plain.stdout.starts_with(b"\x7fELF") {
            fs::remove_file(&partial).ok()?;
            return None;
        }
        fs::write(&partial, plain.stdout).ok()?;
        fs::rename(&partial, kernel).ok()?;
    }
    Some(kernel.to_path_buf())
}

/// Compressed payload of an image, and the program that unpacks it (the kernel's Documentation/arch/x86/boot.rst, protocol 2.08).
fn payload(image: &[u8]) -> Option<(&'static str, &[u8])> {
    let word = |at: usize| image.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let version = u16::from_le_bytes(image.get(0x206..0x208)?.try_into().ok()?);
    if image.get(0x202..0x206)? != b"HdrS" || version < 0x208 {
        return None;
    }
    let sectors = match *image.get(0x1F1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + usize::try_from(word(0x248)?).ok()?;
    // The length of the unpacked data follows the payload.
    let length = usize::try_from(word(0x24C)?).ok()?.checked_sub(4)?;
    let packed = image.get(start..start.checked_add(length)?)?;
    let program = match packed {
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "zstd",
        [0xFD, b'7', b'z', b'X', b'Z', ..] => "xz",
        _ => return None,
    };
    Some((program, packed))
}

fn fetch(folder: &Path, packages: &mut Packages) -> Result<String, KernelError> {
    eprintln!("fetching Debian's kernel");
    let package = packages.behind("linux-image-amd64")?;
    let version = packages.unpack(&package, folder)?;
    Ok(format!("Debian {version}"))
}

fn build(folder: &Path, packages: &mut Packages) -> Result<String, KernelError> {
    eprintln!("building a kernel with iommufd: some minutes, once");
    let package = packages.behind("linux-source")?;
    let unpacked = folder.join("unpacked");
    let version = packages.unpack(&package, &unpacked)?;
    let archive = only(&unpacked.join("usr/src"), "linux-source-", "source")?;
    let source = folder.join("source");
    fs::create_dir_all(&source).map_err(at("make", &source))?;
    let mut tar = with_low_priority("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]).arg(&archive).arg("--directory").arg(&source);
    output(&mut tar)?;

    make(&source, &["tinyconfig"])?;
    let config = source.join(".config");
    let smallest = fs::read_to_string(&config).map_err(at("read", &config))?;
    fs::write(&config, smallest + FRAGMENT).map_err(at("write", &config))?;
    make(&source, &["olddefconfig"])?;
    let chosen = fs::read_to_string(&config).map_err(at("read", &config))?;
    let ignored = ignored(FRAGMENT, &chosen);
    if !ignored.is_empty() {
        return Err(KernelError::Configuration(ignored));
    }
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(&source, &[&format!("-j{jobs}"), "bzImage"])?;

    for (from, to) in [("arch/x86/boot/bzImage", "bzImage"), (".config", "config")] {
        let from = source.join(from);
        fs::copy(&from, folder.join(to)).map_err(at("copy", &from))?;
    }
    super::cache::remove(&source)?;
    super::cache::remove(&unpacked)?;
    Ok(format!("Linux {version} with iommufd"))
}

/// Command that runs at low priority.
fn with_low_priority(program: &str) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "15", program]);
    command
}

fn make(source: &Path, arguments: &[&str]) -> Result<(), KernelError> {
    let mut command = with_low_priority("make");
    command.arg("--silent").args(arguments).current_dir(source);
    // The image contains neither the time nor the place of the build; the caller's make has no influence.
    command.envs([("KBUILD_BUILD_USER", "vm"), ("KBUILD_BUILD_HOST", "vm"), ("LC_ALL", "C")]);
    command.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01");
    for variable in ["MAKEFLAGS", "MFLAGS", "CARGO_MAKEFLAGS"] {
        command.env_remove(variable);
    }
    output(&mut command)?;
    Ok(())
}

/// Lines of the fragment that the configuration does not contain.
fn ignored(fragment: &str, chosen: &str) -> Vec<String> {
    let chosen: Vec<&str> = chosen.lines().map(str::trim).collect();
    let missing = settings(fragment).filter(|line| match line.strip_suffix("=n") {
        // A disabled option is a comment, or absent if it depends on another disabled option.
        Some(name) => chosen.iter().any(|line| line.starts_with(&format!("{name}="))),
        None => !chosen.contains(line),
    });
    missing.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_ignored_settings_are_named() {
        let fragment = "# why\nCONFIG_PCI=y\nCONFIG_GONE=y\nCONFIG_PCIEASPM=n\nCONFIG_KALLSYMS=n\n";
        let chosen = "CONFIG_PCI=y\n# CONFIG_PCIEASPM is not set\nCONFIG_KALLSYMS=y\n";
        assert_eq!(ignored(fragment, chosen), ["CONFIG_GONE=y", "CONFIG_KALLSYMS=n"]);
    }

    #[test]
    fn kernel_payload_is_found_by_boot_header() {
        let mut image = vec![0; 0x1000];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x1F1, &[2]);
        put(0x202, b"HdrS\x0f\x02");
        put(0x248, &0x10_u32.to_le_bytes());
        put(0x24C, &12_u32.to_le_bytes());
        put(0x610, b"\x28\xB5\x2F\xFDdata\x04\0\0\0");
        assert_eq!(payload(&image), Some(("zstd", &b"\x28\xB5\x2F\xFDdata"[..])));
        image[0x610] = 0;
        assert_eq!(payload(&image), None, "the payload has an unknown format");
        // The header contains impossible values.
        for (at, byte) in [(0x203, b'x'), (0x207, 1), (0x24B, 0xFF), (0x24F, 0xFF), (0x24C, 3)] {
            let mut wrong = image.clone();
            wrong[0x610] = 0x28;
            wrong[at] = byte;
            assert_eq!(payload(&wrong), None, "{at:#x}");
        }
        assert_eq!(payload(&image[..0x100]), None);
    }

    #[test]
    fn kernel_fingerprint_ignores_comments() {
        let (plain, explained) =
            ("CONFIG_A=y\nCONFIG_B=y\n", "# Why\nCONFIG_A=y\n\n# Why not\n CONFIG_B=y\n");
        assert_eq!(fingerprint(plain), fingerprint(explained));
        assert_ne!(fingerprint(plain), fingerprint("CONFIG_A=y\nCONFIG_B=n\n"));
    }

    #[test]
    fn kernel_fragment_has_one_setting_per_line() {
        for line in FRAGMENT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
            assert!(name.starts_with("CONFIG_") && !value.is_empty(), "{line}");
            let same = FRAGMENT.lines().filter(|other| other.starts_with(&format!("{name}="))).count();
            assert_eq!(same, 1, "{name}");
        }
    }
}
