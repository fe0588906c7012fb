//! `cargo xtask libfabric`: the libfabric provider under the name by which libfabric finds it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask libfabric`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Build without debug assertions, as for measurements
    #[arg(long)]
    release: bool,
}

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibfabricError {
    /// Cargo could not be started.
    #[error("cargo: {0}")]
    Start(std::io::Error),
    /// Cargo failed.
    #[error("cargo build: {0}; see its output above")]
    Build(std::process::ExitStatus),
    /// The library cannot be placed.
    #[error("{}: {source}", path.display())]
    Place { path: PathBuf, source: std::io::Error },
}

/// Builds the provider, and places it in a directory of its own.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), LibfabricError> {
    let built = build(root, options.release)?;
    let directory = root.join("target/libfabric");
    let place = || {
        std::fs::create_dir_all(&directory)?;
        // A running program may have mapped the old file: a new one takes its name.
        let new = directory.join("new");
        std::fs::copy(&built, &new)?;
        std::fs::rename(new, directory.join("libfpga-fi.so"))
    };
    place().map_err(|source| LibfabricError::Place { path: built.clone(), source })?;
    println!("export FI_PROVIDER_PATH={}", directory.display());
    Ok(())
}

/// Builds the provider, and returns the path of its library.
pub(crate) fn build(root: &Path, release: bool) -> Result<PathBuf, LibfabricError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--package", "fpga-libfabric"])
        .args(release.then_some("--release"))
        .current_dir(root);
    let status = build.status().map_err(LibfabricError::Start)?;
    if !status.success() {
        return Err(LibfabricError::Build(status));
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path));
    Ok(target.join(if release { "release" } else { "debug" }).join("libfpga_fi.so"))
}
