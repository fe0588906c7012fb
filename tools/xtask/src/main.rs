//! Everything that continuous integration does, runnable by hand.

#![forbid(unsafe_code)]

mod generate;

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
}

/// Root of the workspace, from where this package lies: tools/xtask.
fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

fn main() -> ExitCode {
    let root = workspace_root();
    let result = match Arguments::parse().command {
        Command::Generate(options) => generate::run(&root, &options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
