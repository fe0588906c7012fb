//! Tasks of continuous integration, which can also be run locally.

mod api;
mod area;
mod figures;
mod fuzz;
mod generate;
mod graph;
mod libfabric;
mod long;
mod manual;
mod package;
mod python;
mod startup;
mod swarm;

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
    /// Synthesise the network interface with Yosys, and write what it needs on an FPGA as a table.
    Area(area::Options),
    /// Print the public types of fpga-driver; fail if a public signature uses a type that has no name there.
    Api(api::Options),
    /// Write the numbers of the network simulator into the tables of documents, or compare them.
    Figures(figures::Options),
    /// Run each fuzz target for a limited time.
    Fuzz(fuzz::Options),
    /// Print the dependencies between packages; fail if one is not permitted by the design, or if files use each other in a cycle.
    Graph(graph::Options),
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
    /// Run random small worlds of simulated cards and endpoints, and check that they neither corrupt data nor stop.
    Swarm(swarm::Options),
    /// Build the manual as an HTML book and check its links (needs mdBook).
    Manual(manual::Options),
}

/// Reasons why a task fails. Each message states what to do.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    Generate(#[from] generate::GenerateError),
    #[error(transparent)]
    Area(#[from] area::AreaError),
    #[error(transparent)]
    Api(#[from] api::ApiError),
    #[error(transparent)]
    Figures(#[from] figures::FiguresError),
    #[error(transparent)]
    Fuzz(#[from] fuzz::FuzzError),
    #[error(transparent)]
    Graph(#[from] graph::GraphError),
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
    Swarm(#[from] swarm::SwarmError),
    #[error(transparent)]
    Startup(#[from] startup::StartupError),
}

impl TaskError {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Package(error) => error.exit_status(),
            Self::Manual(error) => error.exit_status(),
            Self::Startup(error) => error.exit_status(),
            _ => 1,
        }
    }
}

fn run(command: &Command) -> Result<(), TaskError> {
    let root = fpga_process::workspace_root();
    match command {
        Command::Generate(options) => generate::run(&root, options)?,
        Command::Area(options) => area::run(&root, options)?,
        Command::Api(options) => api::run(&root, options)?,
        Command::Figures(options) => figures::run(&root, options)?,
        Command::Fuzz(options) => fuzz::run(&root, options)?,
        Command::Graph(options) => graph::run(&root, options)?,
        Command::Package(options) => package::run(&root, options)?,
        Command::Python(options) => python::run(&root, options)?,
        Command::Libfabric(options) => libfabric::run(&root, options)?,
        Command::Long(options) => long::run(&root, options)?,
        Command::Startup(options) => startup::run(&root, options)?,
        Command::Swarm(options) => swarm::run(&root, options)?,
        Command::Manual(options) => manual::run(&root, options)?,
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
