//! `cargo xtask package`: a Debian package of `fpgactl`, installed and tried before anybody gets it.
//!
//! The package is a directory in the end: program, manual pages and completions as the program writes them, and the files of
//! `tools/fpgactl/packaging`. `dpkg-deb`, which every Debian has, makes a package of it; a builder of its own would have to be built
//! first, which takes longer than all of this together.

mod check;
mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::{ToolError, on_path, output};
use crate::manual::ManualError;

/// What the task takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where the package is put [default: target/package]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The program to pack, instead of one that is built
    #[arg(long, value_name = "FILE")]
    fpgactl: Option<PathBuf>,
    /// Only build it; neither install nor try it
    #[arg(long)]
    no_check: bool,
}

/// Why there is no package, or why it is no good.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    /// This machine cannot do it.
    #[error("{program} is not there: apt-get install {package}")]
    MissingProgram { program: &'static str, package: &'static str },
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The manual.
    #[error(transparent)]
    Manual(#[from] ManualError),
    /// A file of the package.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// What was installed is not as it should be.
    #[error("{0}")]
    Wrong(String),
}

impl PackageError {
    pub(crate) const fn exit_status(&self) -> u8 {
        // As of the virtual machines: neither good nor bad.
        if matches!(self, Self::MissingProgram { .. }) { 3 } else { 1 }
    }
}

/// What can go wrong with a file.
fn at(path: &Path) -> impl FnOnce(std::io::Error) -> PackageError + '_ {
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
            cargo(root, &["build", "--release", "--locked", "--package", "fpgactl"])?;
            target.join("release/fpgactl")
        }
    };
    let out = options.out.clone().unwrap_or_else(|| target.join("package"));
    std::fs::create_dir_all(&out).map_err(at(&out))?;
    let scratch = tempfile::tempdir().map_err(at(Path::new("a temporary directory")))?;
    let package = stage::build(root, &program, &scratch.path().join("stage"), &out)?;
    println!("{}", package.display());
    if !options.no_check {
        check::package(&package, &scratch.path().join("installed"))?;
        if options.fpgactl.is_none() {
            check::cargo_install(root, &scratch.path().join("cargo"))?;
        }
    }
    Ok(())
}

fn cargo(root: &Path, words: &[&str]) -> Result<String, ToolError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    output(Command::new(cargo).args(words).current_dir(root))
}
