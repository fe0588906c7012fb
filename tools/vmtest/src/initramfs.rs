//! The guest's initial and only file system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Cursor};
use std::path::Path;

use cpio::{NewcBuilder, newc::ModeFileType, write_cpio};

use super::cache::{CacheError, at};
use super::kernel::Bootable;
use super::machine::Address;
use super::modules::{self, ModuleError};
use super::mpi;
use super::plan::Job;
use super::programs::Programs;
use super::vendor;

const INIT: &str = include_str!("../guest/init.sh");
/// Scripts that steps use as commands.
const SCRIPTS: [(&str, &str); 6] = [
    ("host", include_str!("../guest/host.sh")),
    ("bind", include_str!("../guest/bind.sh")),
    ("kill-test", include_str!("../guest/kill.sh")),
    ("poll-transfers", include_str!("../guest/poll.sh")),
    ("remote", include_str!("../guest/remote.sh")),
    ("run-mpi", include_str!("../guest/run-mpi.sh")),
];
/// Modules for a kernel that builds VFIO as modules.
const MODULES: [&str; 2] = ["vfio_iommu_type1", "vfio_pci"];
/// Module of the network between machines.
const NETWORK_MODULE: &str = "virtio_net";

/// Reasons why there is no file system.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitramfsError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] CacheError),
    /// A module is missing.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The archive could not be written.
    #[error("cannot write the guest's initramfs: {0}")]
    Archive(#[from] io::Error),
}

/// Members of the archive that the kernel unpacks. All belong to root and have no date: the same members give the same bytes.
#[derive(Default)]
struct Members(Vec<(NewcBuilder, Cursor<Vec<u8>>)>);

impl Members {
    /// Adds a directory, which must precede its files.
    fn directory(&mut self, path: &str) {
        let member = NewcBuilder::new(path).mode(0o755).set_mode_file_type(ModeFileType::Directory);
        self.0.push((member, Cursor::default()));
    }

    /// Adds a file with its permission bits.
    fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        let member = NewcBuilder::new(path).mode(mode).set_mode_file_type(ModeFileType::Regular);
        self.0.push((member, Cursor::new(content.into())));
    }
}

/// Content of every guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contents<'a> {
    /// Static busybox.
    pub(crate) busybox: &'a Path,
    /// Programs of this project.
    pub(crate) programs: &'a Programs,
    /// The vendor's tools and tests, if there are any.
    pub(crate) vendor: &'a vendor::Files,
    /// MPI, if a guest needs it.
    pub(crate) mpi: &'a mpi::Files,
}

/// Builds the file system.
pub(crate) fn build(
    contents: Contents<'_>,
    kernel: &Bootable,
    job: &Job,
    machine: usize,
    addresses: &[Address],
) -> Result<Vec<u8>, InitramfsError> {
    let read = |path: &Path| fs::read(path).map_err(at("read", path));
    let mut archive = Members::default();
    for folder in ["bin", "modules", "steps"] {
        archive.directory(folder);
    }
    archive.file("bin/busybox", 0o755, read(contents.busybox)?);
    archive.file("init", 0o755, INIT.as_bytes());
    for (name, text) in SCRIPTS {
        archive.file(&format!("bin/{name}"), 0o755, text.as_bytes());
    }
    for program in &contents.programs.paths {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("bin/{name}"), 0o755, read(program)?);
    }
    // At the same paths as on this machine, because the programs name the path of their loader.
    let mut host_files: BTreeMap<&Path, &Path> =
        contents.programs.libraries.iter().map(|path| (path.as_path(), path.as_path())).collect();
    if job.guest.mpi {
        host_files.extend(contents.mpi.iter().map(|(path, file)| (path.as_path(), file.as_path())));
    }
    let mut folders = BTreeSet::new();
    for (path, file) in host_files {
        let path = path.strip_prefix("/").unwrap_or(path);
        let above: Vec<&Path> = path.ancestors().skip(1).filter(|folder| *folder != Path::new("")).collect();
        for folder in above.into_iter().rev().filter(|folder| folders.insert(folder.to_path_buf())) {
            archive.directory(&folder.to_string_lossy());
        }
        archive.file(&path.to_string_lossy(), 0o755, read(file)?);
    }
    if !contents.vendor.is_empty() {
        archive.directory("vendor");
        vendor::FOLDERS.iter().for_each(|folder| archive.directory(&format!("vendor/{folder}")));
    }
    for (path, file) in contents.vendor {
        archive.file(path, 0o755, read(file)?);
    }
    let modules = match &kernel.modules {
        Some(folder) => {
            let network = (job.guest.machines > 1).then_some(NETWORK_MODULE);
            let wanted: Vec<&str> = MODULES.into_iter().chain(network).collect();
            modules::with_dependencies(folder, &wanted)?
        }
        None => Vec::new(),
    };
    let mut order = String::new();
    for module in modules {
        archive.file(&format!("modules/{}.ko", module.name), 0o644, module.content);
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.file("modules/order", 0o644, order.as_bytes());

    let mut order = String::new();
    for step in &job.steps {
        archive.file(&format!("steps/{}", step.name), 0o644, step.run.as_bytes());
        order.push_str(&format!("{} {}\n", step.name, step.seconds));
    }
    archive.file("steps/order", 0o644, order.as_bytes());
    archive.file("environment", 0o644, environment(job, machine, addresses).as_bytes());
    Ok(write_cpio(archive.0.into_iter(), Vec::new())?)
}

/// Addresses of devices (CARD, or CARD0, CARD1 ...), number of the machine (MACHINE), and the environment of the guest.
fn environment(job: &Job, machine: usize, addresses: &[Address]) -> String {
    let mut text = String::new();
    let mut export = |name: &str, value: &str| {
        text.push_str(&format!("export {name}='{}'\n", value.replace('\'', r"'\''")));
    };
    for (number, address) in addresses.iter().enumerate() {
        export(&format!("CARD{number}"), &address.to_string());
    }
    if let Some(first) = addresses.first() {
        export("CARD", &first.to_string());
    }
    export("MACHINE", &machine.to_string());
    for (name, value) in &job.guest.environment {
        export(name, value);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::plan::Plan;

    /// Messages of a shell that only parses a script.
    fn complaints(script: &str) -> String {
        let mut shell =
            Command::new("sh").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        String::from_utf8_lossy(&shell.wait_with_output().unwrap().stderr).into_owned()
    }

    #[test]
    fn initramfs_every_script_parses() {
        assert_ne!(complaints("while true"), "");
        for (name, text) in SCRIPTS.into_iter().chain([("init", INIT)]) {
            assert_eq!(complaints(text), "", "{name}");
        }
        let plan = Plan::load().unwrap();
        for job in [false, true].into_iter().flat_map(|daily| plan.jobs(&[], daily, None, &[]).unwrap()) {
            for step in job.steps {
                assert_eq!(complaints(&step.run), "", "{}, {}", job.guest.name, step.name);
            }
        }
    }

    #[test]
    fn initramfs_environment_is_quoted() {
        let mut job = Plan::load().unwrap().jobs(&[], false, None, &[]).unwrap().remove(0);
        job.guest.environment = [("WORDS".to_owned(), "it's $HOME".to_owned())].into();
        let script = environment(&job, 0, &[]) + "printf %s \"$WORDS\"";
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's $HOME");
    }
}
