//! Tasks of continuous integration, which can also be run locally.

#![forbid(unsafe_code)]

mod bench;
mod child;
mod fuzz;
mod generate;
mod graph;
mod manual;
mod mutants;
mod netns;
mod package;
mod startup;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "xtask", about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the Rust bindings, the manual and the canonical text of the network interface contract.
    Generate(generate::Options),
    /// Run the fuzz targets, each for a while.
    Fuzz(fuzz::Options),
    /// Measure against DPDK's software DMA device, run the packages' benchmarks, and write BENCHMARKS.md.
    Bench(Box<bench::Options>),
    /// Print which package depends on which; fail if an arrow points against the design.
    Graph(graph::Options),
    /// Run the project's programs in virtual machines: real kernels, VFIO, an IOMMU, and a served simulated card.
    VmTest(vm::Options),
    /// Two served cards in two network namespaces, with a kernel between them that drops packets (takes root).
    Netns(netns::Options),
    /// Random transfers between two nodes under random trouble, every byte checked: a million of them unless told otherwise.
    Soak {
        /// What the soak itself takes; `cargo xtask soak -- --help` lists it.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Frame streams between programs that are killed, over a network that loses packets; every frame checked.
    Streams {
        /// Frames to publish
        #[arg(long, default_value_t = 10_000_000)]
        frames: u64,
        /// What happens when
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// All of it in one process and in virtual time, where a seed is a run
        #[arg(long)]
        in_process: bool,
    },
    /// Build a Debian package of fpgactl, install it below a scratch root and try it; `cargo install`, too.
    Package(package::Options),
    /// Print what every command of fpgactl takes to start, in time and memory; fail if it is too much.
    Startup(startup::Options),
    /// Make a book of the manual, and follow its links (takes mdBook).
    Manual(manual::Options),
    /// Test the samples of mutants in tests/mutants; fail if one survives without a reason (takes cargo-mutants, and hours).
    Mutants(mutants::Options),
    /// Run everything that must stay true: .ci/run.
    Ci,
}

/// Reasons why a task fails. Each message states what to do.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    Generate(#[from] generate::GenerateError),
    #[error(transparent)]
    Fuzz(#[from] fuzz::FuzzError),
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    #[error(transparent)]
    Graph(#[from] graph::GraphError),
    #[error(transparent)]
    Vm(#[from] vm::VmError),
    #[error(transparent)]
    Netns(#[from] netns::NetnsError),
    #[error(transparent)]
    Package(#[from] package::PackageError),
    #[error(transparent)]
    Manual(#[from] manual::ManualError),
    #[error(transparent)]
    Mutants(#[from] mutants::MutantsError),
    #[error(transparent)]
    Startup(#[from] startup::StartupError),
    #[error("{}: {source}", path.display())]
    Start { path: PathBuf, source: std::io::Error },
    #[error(".ci/run: {0}; it names the steps that failed above")]
    Ci(std::process::ExitStatus),
    #[error("streams: {0}; what it found is named above")]
    Streams(std::process::ExitStatus),
    #[error("soak: {0}; what it found is named above, with what replays it")]
    Soak(std::process::ExitStatus),
}

impl TaskError {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Vm(error) => error.exit_status(),
            Self::Netns(error) => error.exit_status(),
            Self::Package(error) => error.exit_status(),
            Self::Manual(error) => error.exit_status(),
            Self::Startup(error) => error.exit_status(),
            _ => 1,
        }
    }
}

/// Root of the workspace, relative to this package in tools/xtask.
fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

fn ci(root: &Path) -> Result<(), TaskError> {
    let path = root.join(".ci/run");
    let status = std::process::Command::new(&path)
        .current_dir(root)
        .status()
        .map_err(|source| TaskError::Start { path, source })?;
    if status.success() { Ok(()) } else { Err(TaskError::Ci(status)) }
}

/// A separate program, because this one must build even if generated code does not.
fn soak(root: &Path, arguments: &[String]) -> Result<(), TaskError> {
    let path = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = std::process::Command::new(&path)
        .args(["run", "--quiet", "--release", "--package", "fpga-netsim", "--bin", "soak", "--"])
        .args(arguments)
        .current_dir(root)
        .status()
        .map_err(|source| TaskError::Start { path, source })?;
    if status.success() { Ok(()) } else { Err(TaskError::Soak(status)) }
}

/// A test with more frames than usual.
fn streams(root: &Path, frames: u64, seed: u64, in_process: bool) -> Result<(), TaskError> {
    let (package, test) = if in_process { ("fpga-frames", "soak") } else { ("fpgactl", "streams") };
    let path = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = std::process::Command::new(&path)
        .args(["test", "--quiet", "--package", package, "--test", test, "--", "--nocapture"])
        .env("FPGA_FRAMES", frames.to_string())
        .env("FPGA_SEED", seed.to_string())
        .current_dir(root)
        .status()
        .map_err(|source| TaskError::Start { path, source })?;
    if status.success() { Ok(()) } else { Err(TaskError::Streams(status)) }
}

fn run(command: &Command) -> Result<(), TaskError> {
    let root = workspace_root();
    match command {
        Command::Generate(options) => generate::run(&root, options)?,
        Command::Fuzz(options) => fuzz::run(&root, options)?,
        Command::Bench(options) => bench::run(&root, options)?,
        Command::Graph(options) => graph::run(&root, options)?,
        Command::VmTest(options) => vm::run(&root, options)?,
        Command::Netns(options) => netns::run(&root, options)?,
        Command::Package(options) => package::run(&root, options)?,
        Command::Startup(options) => startup::run(&root, options)?,
        Command::Manual(options) => manual::run(&root, options)?,
        Command::Mutants(options) => mutants::run(&root, options)?,
        Command::Soak { arguments } => soak(&root, arguments)?,
        Command::Streams { frames, seed, in_process } => streams(&root, *frames, *seed, *in_process)?,
        Command::Ci => ci(&root)?,
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
