//! `cargo xtask api`: size of the public API of `fpga-driver`, and a check that each type of a public signature has a name in it.
//!
//! The facts come from rustdoc's JSON of the driver and of the packages below it, whose items the driver re-exports. [`surface`] reads it.

mod surface;

use std::path::{Path, PathBuf};
use std::process::Command;

use surface::{Package, Surface};

/// Options of `cargo xtask api`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print only the counts; fail if a type has no name or a count exceeds its limit.
    #[arg(long)]
    check: bool,
}

/// Package whose API is examined.
const PACKAGE: &str = "fpga-driver";
/// Maximum number of types at the root of the package.
const MAX_ROOT_TYPES: usize = 80;
/// Maximum number of types in the package.
const MAX_TYPES: usize = 150;

/// Reasons why the API cannot be examined, or is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Cargo could not be run or failed.
    #[error("cargo doc: {0}")]
    Cargo(String),
    /// The output of rustdoc cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The output of rustdoc is not the expected JSON.
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: serde_json::Error },
    /// The output of rustdoc has no item that it refers to.
    #[error(
        "rustdoc's JSON of {package} has no {what}: its format changed, see tools/xtask/src/api/surface.rs"
    )]
    Format { package: String, what: String },
    /// Signatures with types that have no name in the package, or too many types.
    #[error("{}\nre-export the types from {PACKAGE}, or take them out of the signatures", .0.join("\n"))]
    Wrong(Vec<String>),
}

/// Prints the API, unless only a check is requested, and fails if it is not closed or too large.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), ApiError> {
    let surface = Surface::of(PACKAGE, &packages(root)?)?;
    if !options.check {
        for name in surface.types.values() {
            println!("{name}");
        }
    }
    let counts = [
        ("types at the root", surface.root_types(), MAX_ROOT_TYPES),
        ("types", surface.types.len(), MAX_TYPES),
        ("types in signatures that have no name", surface.leaks.len(), 0),
    ];
    let mut wrong = Vec::new();
    for (name, uses) in &surface.leaks {
        let uses: Vec<&str> = uses.iter().take(4).map(String::as_str).collect();
        wrong.push(format!("{name} has no name in {PACKAGE}; used by {}", uses.join(", ")));
    }
    for (what, count, limit) in counts {
        println!("{count:>4} {what} (limit {limit})");
        if count > limit && limit > 0 {
            wrong.push(format!("{count} {what}, at most {limit} permitted"));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    if options.check {
        return Err(ApiError::Wrong(wrong));
    }
    println!("{}", wrong.join("\n"));
    Ok(())
}

/// Runs rustdoc on the package and those that it may depend on. The target directory is separate, because the variable that permits the
/// JSON output of a stable compiler makes cargo build dependencies again.
fn packages(root: &Path) -> Result<Vec<Package>, ApiError> {
    let mut names = crate::graph::allowed(PACKAGE).unwrap_or_default();
    names.insert(PACKAGE);
    let target = root.join("target/api");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["doc", "--quiet", "--no-deps", "--lib", "--features", "sim", "--target-dir"])
        .arg(&target)
        .current_dir(root)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    for name in &names {
        command.args(["--package", name]);
    }
    let output = command.output().map_err(|error| ApiError::Cargo(error.to_string()))?;
    if !output.status.success() {
        return Err(ApiError::Cargo(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let read = |name: &str| {
        let name = name.replace('-', "_");
        let path = target.join("doc").join(format!("{name}.json"));
        let text = std::fs::read(&path).map_err(|source| ApiError::Read { path: path.clone(), source })?;
        let json = serde_json::from_slice(&text).map_err(|source| ApiError::Syntax { path, source })?;
        Ok(Package { name, json })
    };
    names.into_iter().map(read).collect()
}
