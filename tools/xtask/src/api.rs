//! `cargo xtask api`: size of the public API of `fpga-driver` and `fpga-rdma`, and a check that each type of a public signature has a name
//! in one of them.
//!
//! The facts come from rustdoc's JSON of both and of the packages below them, whose items they re-export. [`surface`] reads it.

mod surface;

use std::collections::BTreeSet;
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

/// Packages whose API is examined, the lower one first.
const PACKAGES: [&str; 2] = ["fpga-driver", "fpga-rdma"];
/// Maximum number of types at the root of `fpga-driver`.
const MAX_ROOT_TYPES: usize = 80;
/// Maximum number of types that applications use: all but those of [`EXPERT`].
const MAX_TYPES: usize = 150;
/// Modules for other purposes than applications on cards: matching of single causes, other backends, diagnosis, tests.
const EXPERT: [&str; 6] = [
    "fpga_driver::errors",
    "fpga_driver::backend",
    "fpga_driver::extension",
    "fpga_driver::sim",
    "fpga_rdma::errors",
    "fpga_rdma::inspect",
];

/// Options of rustdoc.
const FLAGS: [&str; 3] = ["-Zunstable-options", "--output-format=json", "--cap-lints=allow"];

/// Types of signatures that have no name in the package: path of the type, or `::` and the path of its module, and the reason.
const STATED: &[(&str, &str)] = &[
    ("fpga_card::card::Card", "the simulated card itself: tests of the card use fpga-card"),
    ("fpga_card::description::", "keys of a card description: programs that make them use fpga-card"),
    ("fpga_card::stream::description::", "likewise"),
    ("fpga_card::fault_plan::", "faults of a simulated card: programs that plan them in code use fpga-card"),
    (
        "fpga_firmware::catalog::BlockInfo",
        "entry of the NI's catalogue: programs that read it use fpga-firmware",
    ),
    ("fpga_input::InputError", "why a description file cannot be read"),
    ("fpga_netmodel::", "conditions of a simulated link: programs that make them use fpga-netmodel"),
    ("fpga_firmware::wire::error::", "conversions of errors of packets, which the card's model uses"),
    ("fpga_protocol::sender::types::", "methods of inspect::Sender that only its owner can call"),
    (
        "fpga_protocol::state::StateTable",
        "sizes of the engine's tables, which a benchmark of fpga-protocol prints",
    ),
    (
        "fpga_registers::access::RegisterIo",
        "register access by name: programs that use it depend on fpga-registers",
    ),
    ("fpga_registers::decode::", "decoding of register values into fields: likewise"),
    ("memmap2::", "memory of the caller, made by this crate"),
    ("rustix::", "conversion of an error number of a system call"),
    ("serde_core::", "a card description is read by serde"),
];

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
    #[error("{}\nre-export the types, or take them out of the signatures", .0.join("\n"))]
    Wrong(Vec<String>),
}

/// Prints the API, unless only a check is requested, and fails if it is not closed or too large.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), ApiError> {
    let packages = packages(root)?;
    let mut surface = Surface::default();
    for package in PACKAGES {
        let Surface { types, leaks } = Surface::of(package, &packages)?;
        // What both name belongs to the lower one.
        for (path, name) in types {
            surface.types.entry(path).or_insert(name);
        }
        surface.leaks.extend(leaks);
    }
    let Surface { types, leaks } = &mut surface;
    leaks.retain(|path, _| !types.contains_key(path));
    if !options.check {
        for name in surface.types.values() {
            println!("{name}");
        }
    }
    let mut wrong = Vec::new();
    let is_stated = |path: &str| STATED.iter().any(|(stated, _)| is_at(path, stated));
    let leaks: Vec<_> = surface.leaks.iter().filter(|(path, _)| !is_stated(path)).collect();
    for (path, uses) in &leaks {
        let uses: Vec<&str> = uses.iter().take(4).map(String::as_str).collect();
        wrong.push(format!("{path} has no name in {}; used by {}", PACKAGES.join(" or "), uses.join(", ")));
    }
    for (stated, _) in STATED {
        if !surface.leaks.keys().any(|path| is_at(path, stated)) {
            wrong.push(format!("{stated} is in no signature: remove it from STATED"));
        }
    }
    let in_module = |module: &str| {
        surface
            .types
            .values()
            .filter(|name| name.rsplit_once("::").is_some_and(|(found, _)| found == module))
            .count()
    };
    let expert: usize = EXPERT.iter().map(|module| in_module(module)).sum();
    let counts = [
        ("types at the root", in_module("fpga_driver"), Some(MAX_ROOT_TYPES)),
        ("types for applications", surface.types.len() - expert, Some(MAX_TYPES)),
        ("types in signatures without a name", leaks.len(), Some(0)),
        ("such types that are stated", surface.leaks.len() - leaks.len(), None),
    ];
    for (what, count, limit) in counts {
        println!("{count:>4} {what}{}", limit.map(|limit| format!(" (limit {limit})")).unwrap_or_default());
        if limit.is_some_and(|limit| limit > 0 && count > limit) {
            wrong.push(format!("{count} {what}"));
        }
    }
    for module in EXPERT {
        println!("{:>4} types in {module}", in_module(module));
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

/// Whether `path` is the stated type, or is in the stated module.
fn is_at(path: &str, stated: &str) -> bool {
    if stated.ends_with("::") { path.starts_with(stated) } else { path == stated }
}

/// Runs rustdoc on the package and those that it may depend on. The target directory is separate, because the variable that permits the
/// JSON output of a stable compiler makes cargo build dependencies again.
fn packages(root: &Path) -> Result<Vec<Package>, ApiError> {
    let mut names: BTreeSet<&str> = PACKAGES.into_iter().collect();
    names.extend(PACKAGES.iter().filter_map(|package| crate::graph::allowed(package)).flatten());
    let target = root.join("target/api");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["doc", "--quiet", "--no-deps", "--lib", "--features", "fpga-driver/sim", "--target-dir"])
        .arg(&target)
        .current_dir(root)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTDOCFLAGS", FLAGS.join("\x1f"));
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
