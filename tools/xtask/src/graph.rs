//! `cargo xtask graph`: dependencies between the packages of the workspace, and a check that each of them is permitted.
//!
//! The graph comes from `cargo metadata`, so it cannot be out of date. [`LAYERS`] lists the permitted dependencies. Inside a package, no
//! files may use each other in a cycle ([`cycles`]). Unsafe code is in a few packages only ([`boundaries`]).

mod boundaries;
mod cycles;
mod picture;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Options of `cargo xtask graph`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Print only violations, and compare the picture in ARCHITECTURE.md.
    #[arg(long)]
    check: bool,
    /// Write the picture into ARCHITECTURE.md.
    #[arg(long, conflicts_with = "check")]
    write: bool,
}

/// Packages of the workspace from the bottom up, with the permitted direct dependencies. Permission is transitive, which [`allowed`] adds:
/// a package that joins two others names them with it.
///
/// `ring`, `protocol` and `pci` do not depend on each other: `driver` combines the first and the last, `rdma` all of them. The card depends only on the state machines in
/// `protocol`, which are the specification of its network interface.
const LAYERS: &[(&str, &[&str])] = &[
    ("fpga-input", &[]),
    ("fpga-registers", &[]),
    ("fpga-register-map", &["fpga-input", "fpga-registers"]),
    ("fpga-firmware", &["fpga-registers"]),
    ("fpga-ring", &["fpga-registers"]),
    ("fpga-netmodel", &["fpga-firmware"]),
    // Tests of the state machines send packets through the network model.
    ("fpga-protocol", &["fpga-firmware", "fpga-netmodel"]),
    ("fpga-card", &["fpga-protocol", "fpga-input"]),
    ("fpga-host", &["fpga-registers"]),
    ("fpga-pci", &["fpga-host"]),
    ("fpga-vfio-user", &["fpga-pci"]),
    ("fpga-sim", &["fpga-card", "fpga-vfio-user", "fpga-netmodel"]),
    ("fpga-driver", &["fpga-ring", "fpga-vfio-user", "fpga-sim"]),
    ("fpga-rdma", &["fpga-driver", "fpga-protocol"]),
    ("fpga-diag", &["fpga-rdma"]),
    ("fpgad", &["fpga-rdma"]),
    ("fpga-frames-wire", &["fpga-firmware"]),
    ("fpga-frames", &["fpga-rdma", "fpga-frames-wire"]),
    // Its code uses formats and the protocol's receiver alone; the others are for its tests.
    ("fpga-frames-subscriber", &["fpga-frames"]),
    ("fpga-python", &["fpga-frames", "fpga-register-map"]),
    // The owner of shared cards is for their tests.
    ("fpga-c", &["fpga-frames", "fpga-register-map", "fpgad"]),
    ("fpga-messages", &["fpga-rdma", "fpga-netmodel", "fpgad"]),
    ("fpga-libfabric", &["fpga-messages", "fpgad"]),
    // The RDMA library and its inspection are for its tests.
    ("fpga-rtl", &["fpga-diag", "fpga-netmodel"]),
    ("fpga-netsim", &["fpga-protocol", "fpga-netmodel", "fpga-input"]),
    ("xdma-compat", &["fpga-driver"]),
    (
        "fpgactl",
        &["fpga-diag", "fpga-frames", "fpga-netsim", "fpga-register-map", "fpga-rtl", "fpgad", "xdma-compat"],
    ),
    ("fpga-process", &[]),
    ("vmtest", &["fpga-process"]),
    ("fpga-bench", &["fpga-process"]),
    ("xtask", &["fpga-host", "fpga-process", "fpga-register-map"]),
    ("fpga-tests", &["fpga-diag", "fpga-frames", "fpgactl", "fpga-netsim"]),
    ("fpga-swarm", &["fpga-diag", "fpga-frames", "fpga-messages", "fpga-netmodel"]),
    ("fpga-ni-tests", &["fpga-process", "fpga-rdma", "fpga-rtl"]),
    ("fpga-examples", &["fpga-c", "fpga-diag", "fpga-frames", "fpga-register-map", "fpga-rtl"]),
];

/// Reasons why the graph cannot be read, or is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GraphError {
    /// Cargo could not be run or failed.
    #[error("cargo metadata: {0}")]
    Cargo(String),
    /// Cargo's answer is not the expected JSON.
    #[error("unexpected output of cargo metadata: {0}")]
    Syntax(#[from] serde_json::Error),
    /// A source file cannot be read.
    #[error("{}: {what}", file.display())]
    Source {
        /// The file.
        file: PathBuf,
        /// Message of the reader.
        what: String,
    },
    /// There are forbidden dependencies, or packages without a layer.
    #[error("{}\nthe permitted dependencies are in tools/xtask/src/graph.rs (LAYERS)", .0.join("\n"))]
    Wrong(Vec<String>),
    /// ARCHITECTURE.md has another picture.
    #[error("the picture in ARCHITECTURE.md is out of date: run cargo xtask graph --write")]
    Picture,
    /// Unsafe code is in other packages than the listed ones.
    #[error("{}\nthe packages with unsafe code are in tools/xtask/src/graph/boundaries.rs", .0.join("\n"))]
    Unsafe(Vec<String>),
    /// Files of a package use each other.
    #[error("{} cycles of files:\n{}\nmove what both sides use to a module of its own", .0.len(), .0.join("\n"))]
    Cycles(Vec<String>),
}

/// Part of `cargo metadata` that is used.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    #[serde(default)]
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

/// A library, program, test, benchmark, example or build script.
#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Target {
    /// Whether it is a library or a program, of whatever form.
    fn is_product(&self) -> bool {
        const OTHERS: [&str; 4] = ["test", "bench", "example", "custom-build"];
        !self.kind.iter().any(|kind| OTHERS.contains(&kind.as_str()))
    }
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `None`, `dev` or `build`.
    kind: Option<String>,
    optional: bool,
}

/// Workspace packages that one package uses, and the kind of use.
type Uses = BTreeMap<String, &'static str>;

/// Prints the graph, unless only a check is requested, and fails if a dependency is forbidden.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), GraphError> {
    let workspace: Metadata = serde_json::from_slice(&metadata(root, &["--no-deps"])?)?;
    // The fuzz targets are a workspace of their own: nothing else notices that their lock file lacks a new dependency.
    metadata(&root.join("tests/fuzz"), &["--locked"])?;
    let graph = graph(&workspace);
    if !options.check {
        print!("{}", picture(&graph));
    }
    let wrong = violations(&graph);
    if !wrong.is_empty() {
        return Err(GraphError::Wrong(wrong));
    }
    let drawn = picture::flowchart(&graph, &picture::lines(root, &workspace)?);
    picture::compare(root, &drawn, options.write)?;
    let targets = workspace.packages.iter().flat_map(|package| &package.targets);
    let products: Vec<&Target> = targets.filter(|target| target.is_product()).collect();
    let mut found = Vec::new();
    for target in &products {
        found.extend(cycles::of(root, &target.src_path)?);
    }
    println!(
        "cycles of files: {} in {} libraries and programs; skipped: tests, benchmarks, examples, build scripts",
        found.len(),
        products.len()
    );
    if !found.is_empty() {
        return Err(GraphError::Cycles(found));
    }
    let wrong = boundaries::violations(root)?;
    if wrong.is_empty() { Ok(()) } else { Err(GraphError::Unsafe(wrong)) }
}

/// Runs `cargo metadata` in `folder` and returns its output.
fn metadata(folder: &Path, options: &[&str]) -> Result<Vec<u8>, GraphError> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1"])
        .args(options)
        .current_dir(folder)
        .output()
        .map_err(|error| GraphError::Cargo(error.to_string()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(GraphError::Cargo(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// Packages of the workspace and their dependencies on each other.
fn graph(metadata: &Metadata) -> BTreeMap<String, Uses> {
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let uses = |package: &Package| {
        let mut uses = Uses::new();
        // A package that depends on itself in its tests turns a feature on for them.
        let others = package.dependencies.iter().filter(|found| found.name != package.name);
        for dependency in others.filter(|found| ours.contains(found.name.as_str())) {
            let how = match (dependency.kind.as_deref(), dependency.optional) {
                (Some("dev"), _) => "tests only",
                (Some(_), _) => "build",
                (None, true) => "optional",
                (None, false) => "",
            };
            // A package used by both the code and its tests is listed twice: the shorter word is the stronger use.
            let entry = uses.entry(dependency.name.clone()).or_insert(how);
            if how.len() < entry.len() {
                *entry = how;
            }
        }
        uses
    };
    metadata.packages.iter().map(|package| (package.name.clone(), uses(package))).collect()
}

/// All permitted dependencies of `package`; `None` if it has no layer.
pub(crate) fn allowed(package: &str) -> Option<BTreeSet<&'static str>> {
    let (_, direct) = LAYERS.iter().find(|(name, _)| *name == package)?;
    let mut all = BTreeSet::new();
    for below in *direct {
        all.insert(*below);
        all.extend(allowed(below)?);
    }
    Some(all)
}

fn violations(graph: &BTreeMap<String, Uses>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (package, uses) in graph {
        let Some(allowed) = allowed(package) else {
            wrong.push(format!("{package} has no layer: add it to LAYERS"));
            continue;
        };
        for (used, how) in uses.iter().filter(|(used, _)| !allowed.contains(used.as_str())) {
            let how = if how.is_empty() { String::new() } else { format!(" ({how})") };
            wrong.push(format!("{package} depends on {used}{how}, which the design does not permit"));
        }
    }
    wrong
}

/// One line per package, from the bottom up, with its direct dependencies. Dependencies that are reached through another listed one are
/// left out, as usual in layer diagrams.
fn picture(graph: &BTreeMap<String, Uses>) -> String {
    let order = |name: &str| LAYERS.iter().position(|(other, _)| *other == name).unwrap_or(LAYERS.len());
    let mut names: Vec<&String> = graph.keys().collect();
    names.sort_by_key(|name| order(name));
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for name in names {
        let Some(uses) = graph.get(name) else { continue };
        let mut direct: Vec<(&String, &&str)> =
            uses.iter().filter(|(used, how)| !reached_otherwise(graph, uses, used, how)).collect();
        direct.sort_by_key(|(used, _)| order(used));
        let list: Vec<String> = direct
            .into_iter()
            .map(|(used, how)| if how.is_empty() { used.clone() } else { format!("{used} ({how})") })
            .collect();
        let arrow = if list.is_empty() { "" } else { "-> " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("{name:width$} {arrow}{}", list.join(", ")).trim_end());
    }
    text
}

/// Returns whether another of `uses`, at least as strong, also leads to `used`.
fn reached_otherwise(graph: &BTreeMap<String, Uses>, uses: &Uses, used: &str, how: &str) -> bool {
    let strong = |other: &str| other.is_empty() || other == how;
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = uses
        .iter()
        .filter(|(name, other)| *name != used && strong(other))
        .map(|(name, _)| name.as_str())
        .collect();
    while let Some(name) = open.pop() {
        // Dependencies of a package's tests do not come with the package.
        let Some(below) = graph.get(name).filter(|_| seen.insert(name)) else { continue };
        for (next, _) in below.iter().filter(|(_, how)| how.is_empty()) {
            if next == used {
                return true;
            }
            open.push(next);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Package and its dependencies: name and kind, as cargo prints them.
    type Arrows<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

    fn metadata(arrows: &[Arrows<'_>]) -> BTreeMap<String, Uses> {
        let packages = arrows
            .iter()
            .map(|(name, uses)| Package {
                name: (*name).to_owned(),
                dependencies: uses
                    .iter()
                    .map(|(name, kind)| Dependency {
                        name: (*name).to_owned(),
                        kind: kind.map(str::to_owned),
                        optional: false,
                    })
                    .collect(),
                manifest_path: PathBuf::new(),
                targets: Vec::new(),
            })
            .collect();
        graph(&Metadata { packages })
    }

    /// It needs its time for `cargo metadata`.
    #[test]
    fn graph_workspace_follows_layers() {
        run(&fpga_process::workspace_root(), &Options { check: true, write: false }).unwrap();
    }

    #[test]
    fn graph_reversed_dependency_is_named() {
        let wrong = violations(&metadata(&[
            ("fpga-registers", &[("fpga-protocol", Some("dev"))]),
            ("fpga-protocol", &[("fpga-registers", None), ("fpga-pci", None)]),
            ("fpga-card", &[("fpga-driver", None), ("serde", None)]),
            ("fpga-pci", &[("fpga-registers", None)]),
            ("fpga-driver", &[("fpga-registers", None), ("fpga-card", None)]),
            ("newcomer", &[]),
        ]));
        assert_eq!(wrong.len(), 4, "{wrong:#?}");
        for part in [
            "fpga-registers depends on fpga-protocol (tests only)",
            "fpga-protocol depends on fpga-pci",
            "fpga-card depends on fpga-driver",
            "newcomer has no layer",
        ] {
            assert!(wrong.iter().any(|line| line.starts_with(part)), "{part}: {wrong:#?}");
        }
    }

    #[test]
    fn graph_layer_table_is_acyclic() {
        for (place, (name, uses)) in LAYERS.iter().enumerate() {
            for used in *uses {
                let below = LAYERS.iter().position(|(other, _)| other == used);
                assert!(below.is_some_and(|below| below < place), "{name} -> {used}");
            }
        }
    }

    #[test]
    fn graph_picture_omits_implied_arrows() {
        let graph = metadata(&[
            ("fpga-protocol", &[("fpga-firmware", None), ("fpga-registers", None)]),
            ("fpga-registers", &[]),
            ("fpga-firmware", &[("fpga-registers", None)]),
            ("fpga-pci", &[("fpga-registers", None), ("fpga-firmware", Some("dev"))]),
        ]);
        assert_eq!(
            picture(&graph),
            "fpga-registers\n\
             fpga-firmware  -> fpga-registers\n\
             fpga-protocol  -> fpga-firmware\n\
             fpga-pci       -> fpga-registers, fpga-firmware (tests only)\n"
        );
    }

    #[test]
    fn graph_library_of_each_form_is_product() {
        let target = |kind: &str| Target { kind: vec![kind.to_owned()], src_path: PathBuf::new() };
        assert!(
            ["lib", "rlib", "cdylib", "staticlib", "proc-macro", "bin"]
                .map(target)
                .iter()
                .all(Target::is_product)
        );
        assert!(!["test", "bench", "example", "custom-build"].map(target).iter().any(Target::is_product));
    }
}
