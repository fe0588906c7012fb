//! `cargo vm-test`: runs the project's programs under real kernels, with VFIO's own driver and a translating IOMMU, on a simulated
//! card that a separate process serves. Needs neither hardware nor privileges nor virtualisation support.
//!
//! Files that are fetched or built once are in the cache (`target/vm-cache`, or the folder that `FPGA_VM_CACHE` names).
//! `tools/vmtest/guest/guests.yaml` defines what runs in which guest.

mod backends;
mod cache;
mod debian;
mod initramfs;
mod kernel;
mod lines;
mod machine;
mod modules;
mod mpi;
mod plan;
mod programs;
mod protocol;
mod qemu;
mod qmp;
mod report;
mod requirements;
mod run;
mod served;
mod vendor;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;

use cache::{Cache, CacheError};
use debian::{DebianError, Packages};
use kernel::{Bootable, Kernel, KernelError};
use plan::{Guest, Job, Plan, PlanError};
use programs::{BuildError, Programs};
use qemu::{Qemu, QemuError};
use report::{GuestReport, Report, Verdict};

/// Run the project's programs in virtual machines: real kernels, VFIO, an IOMMU, and a served simulated card
#[derive(Debug, Parser)]
#[command(
    name = "cargo vm-test",
    after_help = "Exit status: 0 all guests passed, 1 a guest failed, 2 wrong usage, 3 this machine does not meet the requirements \
                  of some guests, which were skipped; the others passed"
)]
struct Options {
    /// Guests to run; all by default (see --list)
    #[arg(value_name = "GUEST")]
    guests: Vec<String>,
    /// Run only the guest of everyday checks, with the programs as `cargo test --workspace` builds them
    #[arg(long, conflicts_with = "guests")]
    daily: bool,
    /// Run only guests with this kernel
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<Kernel>,
    /// Skip guests whose kernel is not built yet; also skip the backends of this machine
    #[arg(long)]
    no_build: bool,
    /// Run only these steps, and those that prepare the guest
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Environment of all steps, in addition to that of their guest (KILLS=100: number of kills in the step `kills`)
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Maximum number of guests that run at the same time [default: two for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    at_once: Option<u8>,
    /// List guests and steps, and run nothing
    #[arg(long)]
    list: bool,
    /// Fetch and build what is missing, and run nothing
    #[arg(long, conflicts_with = "list")]
    prepare: bool,
    /// Keep consoles, file systems and counters of the cards, and print their folder
    #[arg(long)]
    keep: bool,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// Report each step on standard error
    #[arg(short, long)]
    verbose: bool,
}

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
enum VmError {
    /// This machine lacks requirements.
    #[error("this machine cannot run the test guests; missing:\n{}", listed(.0))]
    MissingRequirements(Vec<requirements::MissingRequirement>),
    /// Only the packages are not available.
    #[error("this machine cannot run the test guests yet: {0}")]
    Packages(#[source] DebianError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Qemu(QemuError),
    #[error(transparent)]
    Kernel(KernelError),
    #[error("busybox: {0}")]
    Busybox(DebianError),
    #[error(transparent)]
    Programs(#[from] BuildError),
    #[error("the vendor's tools: {0}")]
    Vendor(#[from] vendor::VendorError),
    #[error("MPI for guests: {0}")]
    Mpi(#[from] mpi::MpiError),
    #[error("the kernel \"{}\" was not prepared", .0.name())]
    NotPrepared(Kernel),
    #[error("cannot make a folder for guests: {0}")]
    Scratch(std::io::Error),
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot write the report: {0}")]
    Output(std::io::Error),
    /// Guests failed.
    #[error("{}: failed, see above; to run one guest: cargo vm-test GUEST --verbose --keep", .0.join(", "))]
    Failed(Vec<String>),
    /// No guest failed, but some did not run.
    #[error("{}: skipped, see above", .0.join(", "))]
    Skipped(Vec<String>),
    /// It was stopped by a signal.
    #[error("stopped")]
    Stopped,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let fits = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match text.split_once('=') {
        Some((name, value)) if fits(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE; the name consists of letters, digits and underscores".to_owned()),
    }
}

fn listed(lacks: &[requirements::MissingRequirement]) -> String {
    let line = |lack: &requirements::MissingRequirement| format!("  {} ({})", lack.what, lack.remedy);
    lacks.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl VmError {
    /// Exit status: 3 if this machine lacks a requirement, so that a caller can distinguish that from a failure.
    const fn exit_status(&self) -> u8 {
        match self {
            Self::MissingRequirements(_) | Self::Packages(_) | Self::Skipped(_) => 3,
            Self::Plan(_) => 2,
            _ => 1,
        }
    }
}

impl From<QemuError> for VmError {
    fn from(error: QemuError) -> Self {
        match error {
            QemuError::Debian(error) => out_of_reach(error, |error| Self::Qemu(QemuError::Debian(error))),
            other => Self::Qemu(other),
        }
    }
}

impl From<KernelError> for VmError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Debian(error) => {
                out_of_reach(error, |error| Self::Kernel(KernelError::Debian(error)))
            }
            other => Self::Kernel(other),
        }
    }
}

fn out_of_reach(error: DebianError, other: impl FnOnce(DebianError) -> VmError) -> VmError {
    match error {
        DebianError::Unreachable(_) | DebianError::NoMirror => VmError::Packages(error),
        error => other(error),
    }
}

/// Runs guests and reports.
fn run(root: &Path, options: &Options) -> Result<(), VmError> {
    let mut jobs = Plan::load()?.jobs(&options.guests, options.daily, options.kernel, &options.only)?;
    for job in &mut jobs {
        job.guest.environment.extend(options.set.iter().cloned());
    }
    if options.list {
        return list(&jobs);
    }
    let began = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(VmError::Signals)?;
    }
    let cache = Cache::open(&cache_folder(root))?;
    let no_kernel = options.no_build && kernel::is_missing(&cache, Kernel::Built);
    let no_mpi = mpi::missing();
    let (jobs, skipped) = runnable(jobs, |guest| {
        if no_kernel && guest.kernel == Kernel::Built {
            let folder = cache.folder().display();
            return Some(format!(
                "its kernel is not in {folder}; `cargo vm-test --prepare` builds it once, in some minutes"
            ));
        }
        no_mpi.as_ref().filter(|_| guest.mpi).map(ToString::to_string)
    });
    if jobs.is_empty() {
        return finish(&Report::new("not started", skipped, began.elapsed().as_secs_f64()), options.json);
    }
    let kernels: Vec<Kernel> = jobs.iter().map(|job| job.guest.kernel).collect();
    let lacks = requirements::lacking(&cache, &kernels);
    if !lacks.is_empty() {
        return Err(VmError::MissingRequirements(lacks));
    }
    let ready = Ready::prepare(root, &cache, &jobs, options.daily)?;
    if options.prepare {
        return Ok(());
    }
    eprintln!("prepared after {:.1} s", began.elapsed().as_secs_f64());
    let mut guests = ready.run(root, &jobs, options, &stop)?;
    guests.extend(skipped);
    let report = Report::new(&ready.qemu.version, guests, began.elapsed().as_secs_f64());
    let outcome = finish(&report, options.json);
    if stop.load(Ordering::Relaxed) { Err(VmError::Stopped) } else { outcome }
}

/// Separates the guests that this machine can run from the others, for which `reason` returns what is missing.
fn runnable(jobs: Vec<Job>, reason: impl Fn(&Guest) -> Option<String>) -> (Vec<Job>, Vec<GuestReport>) {
    let (mut runnable, mut skipped) = (Vec::new(), Vec::new());
    for job in jobs {
        match reason(&job.guest) {
            None => runnable.push(job),
            Some(reason) => skipped.push(GuestReport::not_started(&job.guest, reason)),
        }
    }
    (runnable, skipped)
}

/// Prints the report. A skipped guest is not a success: the error names it.
fn finish(report: &Report, json: bool) -> Result<(), VmError> {
    print(report, json)?;
    let failed = report.with_verdict(Verdict::Failed);
    if !failed.is_empty() {
        return Err(VmError::Failed(failed));
    }
    let skipped = report.with_verdict(Verdict::Skipped);
    if skipped.is_empty() { Ok(()) } else { Err(VmError::Skipped(skipped)) }
}

fn cache_folder(root: &Path) -> PathBuf {
    std::env::var_os(cache::VARIABLE).map_or_else(|| root.join("target/vm-cache"), PathBuf::from)
}

fn list(jobs: &[Job]) -> Result<(), VmError> {
    let mut text = String::new();
    for job in jobs {
        text.push_str(&format!(
            "{} ({} kernel): {}\n",
            job.guest.name,
            job.guest.kernel.name(),
            job.guest.about
        ));
        for step in &job.steps {
            text.push_str(&format!("    {}\n", step.name));
        }
    }
    write(&text)
}

fn print(report: &Report, json: bool) -> Result<(), VmError> {
    if !json {
        return write(&report.to_string());
    }
    let text = serde_json::to_string_pretty(report).map_err(|error| VmError::Output(error.into()))?;
    write(&format!("{text}\n"))
}

fn write(text: &str) -> Result<(), VmError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(VmError::Output)
}

/// Everything that guests need.
struct Ready {
    qemu: Qemu,
    kernels: BTreeMap<Kernel, Bootable>,
    busybox: PathBuf,
    programs: Programs,
    vendor: vendor::Files,
    mpi: mpi::Files,
}

impl Ready {
    fn prepare(root: &Path, cache: &Cache, jobs: &[Job], daily: bool) -> Result<Self, VmError> {
        let mut packages = Packages::new(cache);
        let qemu = Qemu::get(cache, &mut packages)?;
        let busybox = cache
            .entry("busybox", |folder| packages.unpack("busybox-static", folder))
            .map_err(|error| out_of_reach(error, VmError::Busybox))?;
        let mut bootable = BTreeMap::new();
        for kernel in jobs.iter().map(|job| job.guest.kernel) {
            if let Entry::Vacant(entry) = bootable.entry(kernel) {
                entry.insert(kernel::get(cache, &mut packages, kernel)?);
            }
        }
        let programs = if daily { Programs::of_tests(root)? } else { Programs::build(root)? };
        let vendor = vendor::build(root, cache, &mut packages)?;
        let mpi = if jobs.iter().any(|job| job.guest.mpi) {
            mpi::build(root, &cache.folder().join("mpi"))?
        } else {
            Vec::new()
        };
        let busybox = busybox.folder.join("usr/bin/busybox");
        Ok(Self { qemu, kernels: bootable, busybox, programs, vendor, mpi })
    }

    fn run(
        &self,
        root: &Path,
        jobs: &[Job],
        options: &Options,
        stop: &AtomicBool,
    ) -> Result<Vec<GuestReport>, VmError> {
        let parts = run::Parts {
            qemu: &self.qemu,
            contents: initramfs::Contents {
                busybox: &self.busybox,
                programs: &self.programs,
                vendor: &self.vendor,
                mpi: &self.mpi,
            },
            server: self.programs.named("fpgactl")?,
            root,
            stop,
            verbose: options.verbose,
        };
        // The backends of this machine are part of a complete run.
        let chosen = !options.guests.is_empty()
            || options.daily
            || options.kernel.is_some()
            || !options.only.is_empty();
        let everything = !chosen && !options.no_build;
        let mut work: Vec<Work<'_>> = jobs.iter().map(Work::Guest).collect();
        if everything {
            // Long work comes first: the guests that run the suite, and then the backends.
            let place = work.len().min(2);
            work.splice(place..place, backends::NAMES.map(Work::Backend));
        }
        // A guest sleeps for half of its time: in resets (a tenth of a second each), and in cases about engines that hang.
        let usual = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let at_once = options.at_once.map_or(usual, usize::from).min(work.len());
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        // A guest's processes end with the thread that started them, so each thread runs its guests to their ends.
        let take = || -> Result<(), VmError> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(work) = work.get(number).filter(|_| !stop.load(Ordering::Relaxed)) else {
                    return Ok(());
                };
                let report = self.one(&parts, work, options)?;
                done.lock().unwrap_or_else(PoisonError::into_inner).push((number, report));
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(take)).collect();
            // Propagates a panic of a thread.
            let ends = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ends.collect::<Result<(), VmError>>()
        })?;
        let mut reports = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        // In the order of the plan, independent of the order of completion.
        reports.sort_by_key(|(number, _)| *number);
        Ok(reports.into_iter().map(|(_, report)| report).collect())
    }

    fn one(
        &self,
        parts: &run::Parts<'_>,
        work: &Work<'_>,
        options: &Options,
    ) -> Result<GuestReport, VmError> {
        let job = match work {
            Work::Backend(backend) => {
                eprintln!("backend {backend}: the conformance suite on this machine");
                let report = backends::run(self.programs.named("conformance")?, backend);
                eprintln!("backend {backend}: {} in {:.1} s", report.verdict(), report.seconds);
                return Ok(report);
            }
            Work::Guest(job) => job,
        };
        let kernel = self.kernels.get(&job.guest.kernel).ok_or(VmError::NotPrepared(job.guest.kernel))?;
        eprintln!("guest {}: {}", job.guest.name, job.guest.about);
        // Not below the workspace: the path of a socket has to be short.
        let mut folder = tempfile::Builder::new().prefix("vm-").tempdir().map_err(VmError::Scratch)?;
        folder.disable_cleanup(options.keep);
        let report = run::run(parts, kernel, job, folder.path());
        eprintln!("guest {}: {} in {:.1} s", job.guest.name, report.verdict(), report.seconds);
        if options.keep {
            eprintln!("guest {}: its files are in {}", job.guest.name, folder.path().display());
        }
        Ok(report)
    }
}

/// Unit of work of a thread.
#[derive(Debug)]
enum Work<'a> {
    Guest(&'a Job),
    /// The conformance suite on this backend of a process on this machine.
    Backend(&'static str),
}

fn main() -> ExitCode {
    match run(&fpga_process::workspace_root(), &Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm-test: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_names_and_values() {
        assert_eq!(setting("KILLS=100"), Ok(("KILLS".to_owned(), "100".to_owned())));
        assert_eq!(setting("A="), Ok(("A".to_owned(), String::new())));
        for text in ["KILLS", "=1", "a b=1", "$(x)=1"] {
            assert!(setting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn skipped_guest_is_no_success() {
        let jobs = Plan::load().unwrap().jobs(&["mpi".to_owned()], false, None, &[]).unwrap();
        let (jobs, skipped) = runnable(jobs, |guest| guest.mpi.then(|| "no mpicc".to_owned()));
        assert!(jobs.is_empty());
        let error = finish(&Report::new("none", skipped, 0.0), true).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit_status()), ("mpi: skipped, see above", 3));
    }
}
