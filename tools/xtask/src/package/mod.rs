//! `cargo xtask package`: builds the Debian packages, installs them and tests them before a release.
//!
//! | Package | Files | Module |
//! |---|---|---|
//! | `fpgactl` | program, `libfpga_rtl.a`, manual pages and completions as the program writes them, `tools/fpgactl/packaging` | `stage`, `check` |
//! | `libfpga1`, `libfpga-dev` | as `driver/bindings/c/install.sh` installs them | `library` |
//! | `python3-fpga-rdma` | those of the wheel | `python` |
//! | `libfabric-provider-fpga` | the libfabric provider, where libfabric searches | `provider` |
//!
//! Each package is built from a directory. `dpkg-deb`, which every Debian has, packs it (`deb`). A separate package builder would have to be built
//! first, which takes longer than the whole task.

mod check;
mod deb;
mod library;
mod provider;
mod python;
mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::manual::ManualError;
use fpga_process::{ToolError, on_path, output};

/// Options of `cargo xtask package`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Output folder [default: target/package]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// fpgactl program to pack, in Cargo's folder, with deps/libfpga_rtl.a; by default it is built
    #[arg(long, value_name = "FILE")]
    fpgactl: Option<PathBuf>,
    /// libfpga.a to pack; by default it is built
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Wheel of the Python package to pack; by default it is built
    #[arg(long, value_name = "FILE")]
    wheel: Option<PathBuf>,
    /// Only build the packages; do not install and test them
    #[arg(long)]
    no_check: bool,
}

/// Reasons why the package cannot be built, or is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    /// A program is missing on this machine.
    #[error("{program} is not installed: run `apt-get install {package}`")]
    MissingProgram { program: &'static str, package: &'static str },
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The wheel could not be built.
    #[error(transparent)]
    Python(#[from] crate::python::PythonError),
    /// The libfabric provider could not be built.
    #[error(transparent)]
    Provider(#[from] crate::libfabric::LibfabricError),
    /// The manual could not be read.
    #[error(transparent)]
    Manual(#[from] ManualError),
    /// A file of the package could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The installed files are wrong.
    #[error("{0}")]
    Wrong(String),
}

impl PackageError {
    pub(crate) const fn exit_status(&self) -> u8 {
        // The exit status of a skipped task, as for the virtual machines.
        if matches!(self, Self::MissingProgram { .. }) { 3 } else { 1 }
    }
}

/// Adds the path to an error of the file system.
fn with_path(path: &Path) -> impl FnOnce(std::io::Error) -> PackageError + '_ {
    move |source| PackageError::File { path: path.to_owned(), source }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), PackageError> {
    for (program, package) in [("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev"), ("gzip", "gzip")] {
        if on_path(program).is_none() {
            return Err(PackageError::MissingProgram { program, package });
        }
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let program = match &options.fpgactl {
        Some(program) => program.clone(),
        None => {
            cargo(root, &["build", "--release", "--locked", "--package", "fpgactl", "--features", "png"])?;
            target.join("release/fpgactl")
        }
    };
    let out = options.out.clone().unwrap_or_else(|| target.join("package"));
    std::fs::create_dir_all(&out).map_err(with_path(&out))?;
    let scratch = tempfile::tempdir().map_err(with_path(Path::new("a temporary directory")))?;
    let package = stage::build(root, &program, &scratch.path().join("stage"), &out)?;
    let libraries = library::build(root, options.archive.as_deref(), &scratch.path().join("library"), &out)?;
    let python = python::build(root, options.wheel.as_deref(), &scratch.path().join("python"), &out)?;
    let provider = provider::build(root, &scratch.path().join("provider"), &out)?;
    for package in [&package, &python, &provider].into_iter().chain(&libraries) {
        println!("{}", package.display());
    }
    if !options.no_check {
        check::package(&package, &scratch.path().join("installed"))?;
        library::check(&libraries, &scratch.path().join("installed-library"))?;
        provider::check(&provider, &scratch.path().join("installed-provider"))?;
        python::check(root, &python, &scratch.path().join("installed-python"))?;
        if options.fpgactl.is_none() {
            check::cargo_install(root, &scratch.path().join("cargo"))?;
        }
    }
    Ok(())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String, ToolError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    output(Command::new(cargo).args(arguments).current_dir(root))
}
