//! Tasks of continuous integration, which can also be run locally.

mod api;
mod ci;
mod fuzz;
mod generate;
mod graph;
mod libfabric;
mod long;
mod manual;
mod netns;
mod package;
mod python;
mod startup;

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
    /// Print the public types of fpga-driver; fail if a public signature uses a type that has no name there.
    Api(api::Options),
    /// Run each fuzz target for a limited time.
    Fuzz(fuzz::Options),
    /// Print the dependencies between packages; fail if one is not permitted by the design, or if files use each other in a cycle.
    Graph(graph::Options),
    /// Run transfers between two served cards in two network namespaces while the kernel drops packets (needs root).
    Netns(netns::Options),
    /// Run random transfers between two nodes under random impairments and check every byte (default: a million transfers).
    Soak {
        /// Options of the soak program; `cargo xtask soak -- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run frame streams between programs that are killed, over a network that loses packets, and check every frame.
    Streams {
        /// Number of frames to publish
        #[arg(long, default_value_t = 10_000_000)]
        frames: u64,
        /// Seed of all random numbers
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Run in one process and in virtual time, where the seed determines the whole run
        #[arg(long)]
        in_process: bool,
    },
    /// Build the Debian packages of fpgactl and of the C library, install them below scratch roots and test them; also test `cargo install`.
    Package(package::Options),
    /// Build the Python package into a virtual environment (target/python), and run its tests and type checks.
    Python(python::Options),
    /// Build the libfabric provider as target/libfabric/libfpga-fi.so.
    Libfabric(libfabric::Options),
    /// Print the start-up time and memory of every command of fpgactl; fail if one exceeds its limit.
    Startup(startup::Options),
    /// Run the long tests, or a part of them that changes with the day.
    Long(long::Options),
    /// Build the manual as an HTML book and check its links (needs mdBook).
    Manual(manual::Options),
    /// Run all checks of continuous integration: .ci/run.
    Ci,
}

/// Reasons why a task fails. Each message states what to do.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    Generate(#[from] generate::GenerateError),
    #[error(transparent)]
    Api(#[from] api::ApiError),
    #[error(transparent)]
    Fuzz(#[from] fuzz::FuzzError),
    #[error(transparent)]
    Graph(#[from] graph::GraphError),
    #[error(transparent)]
    Netns(#[from] netns::NetnsError),
    #[error(transparent)]
    Package(#[from] package::PackageError),
    #[error(transparent)]
    Python(#[from] python::PythonError),
    #[error(transparent)]
    Libfabric(#[from] libfabric::LibfabricError),
    #[error(transparent)]
    Long(#[from] long::LongError),
    #[error(transparent)]
    Manual(#[from] manual::ManualError),
    #[error(transparent)]
    Startup(#[from] startup::StartupError),
    #[error("{}: {source}", path.display())]
    Start { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Ci(#[from] ci::CiError),
    #[error("streams: {0}; see the failures above")]
    Streams(std::process::ExitStatus),
    #[error("soak: {0}; see the failure above, with the round that replays it")]
    Soak(std::process::ExitStatus),
}

impl TaskError {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Netns(error) => error.exit_status(),
            Self::Package(error) => error.exit_status(),
            Self::Manual(error) => error.exit_status(),
            Self::Startup(error) => error.exit_status(),
            _ => 1,
        }
    }
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
    let (package, test, name) =
        if in_process { ("fpga-frames", "it", "soak::") } else { ("fpgactl", "cli", "streams::") };
    let path = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = std::process::Command::new(&path)
        .args(["test", "--quiet", "--package", package, "--test", test, name, "--", "--nocapture"])
        .env("FPGA_FRAMES", frames.to_string())
        .env("FPGA_SEED", seed.to_string())
        .current_dir(root)
        .status()
        .map_err(|source| TaskError::Start { path, source })?;
    if status.success() { Ok(()) } else { Err(TaskError::Streams(status)) }
}

fn run(command: &Command) -> Result<(), TaskError> {
    let root = fpga_process::workspace_root();
    match command {
        Command::Generate(options) => generate::run(&root, options)?,
        Command::Api(options) => api::run(&root, options)?,
        Command::Fuzz(options) => fuzz::run(&root, options)?,
        Command::Graph(options) => graph::run(&root, options)?,
        Command::Netns(options) => netns::run(&root, options)?,
        Command::Package(options) => package::run(&root, options)?,
        Command::Python(options) => python::run(&root, options)?,
        Command::Libfabric(options) => libfabric::run(&root, options)?,
        Command::Long(options) => long::run(&root, options)?,
        Command::Startup(options) => startup::run(&root, options)?,
        Command::Manual(options) => manual::run(&root, options)?,
        Command::Soak { arguments } => soak(&root, arguments)?,
        Command::Streams { frames, seed, in_process } => streams(&root, *frames, *seed, *in_process)?,
        Command::Ci => ci::run(&root)?,
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
