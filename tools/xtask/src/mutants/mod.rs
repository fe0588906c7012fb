//! `cargo xtask mutants`: mutation tests with cargo-mutants.
//!
//! By default it tests the mutants of changed code. A run of all mutants takes a day, so with `--list` it tests a sample of the most critical
//! code, whose list is committed (`tests/mutants`). The lists also have the reasons for mutants that no test can kill.

mod changes;
mod list;
mod outcome;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use list::{List, Mutant};
use outcome::Outcomes;

/// Options of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Revision with which the code is compared [default: where it left origin/main, or main].
    #[arg(long, value_name = "REV", conflicts_with = "list")]
    base: Option<String>,
    /// Test these samples instead of changed code; all without a name.
    #[arg(long, value_name = "SAMPLE", num_args = 0.., value_delimiter = ',')]
    list: Option<Vec<Sample>>,
    /// Write the lists from the current code instead of testing; reasons of mutants that remain are kept.
    #[arg(long, requires = "list")]
    sample: bool,
    /// Number of mutants per list, with --sample.
    #[arg(long, default_value_t = 400, requires = "sample")]
    count: usize,
    /// Seed of the selection of mutants, with --sample.
    #[arg(long, default_value_t = 1, requires = "sample")]
    seed: u64,
    /// Number of mutants tested at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: u32,
    /// Test only part K of N of each list, K from 0.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Continue an earlier run: mutants killed there are not tested again.
    #[arg(long)]
    resume: bool,
}

/// A part of the code that is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sample {
    /// Sender, receiver, schemes and mirror.
    Engine,
    /// Descriptor rings of XDMA and CDMA.
    Rings,
    /// Wire formats and the network interface contract.
    Codec,
}

impl Sample {
    const ALL: [Self; 3] = [Self::Engine, Self::Rings, Self::Codec];

    const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Rings => "rings",
            Self::Codec => "codec",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Engine => "fpga-protocol",
            Self::Rings => "fpga-ring",
            Self::Codec => "fpga-firmware",
        }
    }
}

/// Parts that are built and run for each mutant.
const TESTS: &str = "--tests";

/// Code that is not mutated: `cargo xtask generate` writes it, and its tests compare it with the contract.
const GENERATED: &str = "firmware-bindings/src/generated.rs";

/// Mutants of one package that are tested together.
struct Selection<'a> {
    /// Folder of the results, and name in messages.
    name: &'a str,
    package: &'a str,
    /// Each with the reason why it survives.
    mutants: Vec<(&'a Mutant, Option<&'a str>)>,
    /// Arguments that make cargo-mutants test these.
    arguments: Vec<String>,
}

/// Reasons why mutation tests fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MutantsError {
    /// cargo-mutants is missing.
    #[error("cargo-mutants is not installed: run `cargo install --locked cargo-mutants`")]
    Missing,
    /// cargo-mutants could not be started, or failed before it tested a mutant.
    #[error("{what}: {reason}")]
    Failed { what: String, reason: String },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// A list or a result cannot be parsed.
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
    /// The tests miss a mutant, or a list is out of date.
    #[error(
        "{0} mutants differ from their list, see above: add a test that fails with the mutant, or a reason in tests/mutants why no test can"
    )]
    Differ(usize),
}

/// Tests the changed code or the samples, or writes their lists.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), MutantsError> {
    if !cargo(root)
        .args(["mutants", "--version"])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return Err(MutantsError::Missing);
    }
    let differ = match &options.list {
        Some(samples) if samples.is_empty() => test_samples(root, &Sample::ALL, options)?,
        Some(samples) => test_samples(root, samples, options)?,
        None => changes::test(root, options)?,
    };
    if differ == 0 { Ok(()) } else { Err(MutantsError::Differ(differ)) }
}

fn test_samples(root: &Path, samples: &[Sample], options: &Options) -> Result<usize, MutantsError> {
    let mut differ = 0;
    for sample in samples {
        let path = root.join("tests/mutants").join(sample.name()).with_extension("yaml");
        let present = present(root, &["--package", sample.package()])?;
        if options.sample {
            let old = if path.exists() { List::read(&path)? } else { List::default() };
            let list = List::sample(&present, &old, options.seed, options.count);
            list.write(&path)?;
            println!("{}: {} of {} mutants", path.display(), list.mutants.len(), present.len());
        } else {
            differ += test(root, &selection(*sample, &List::read(&path)?, &present), options)?;
        }
    }
    Ok(differ)
}

/// The mutants of a list.
fn selection<'a>(sample: Sample, list: &'a List, present: &'a [Mutant]) -> Selection<'a> {
    let (found, gone) = list.find(present);
    println!("=== {}: {gone} mutants of the list are no longer in the code", sample.name());
    let mut arguments = Vec::new();
    for (mutant, _) in &found {
        arguments.extend(["--re".to_owned(), mutant.pattern()]);
    }
    // cargo-mutants 27.1 tests all its mutants that delete a field, regardless of --re; --file limits them to these files.
    let files: BTreeSet<&str> = found.iter().map(|(mutant, _)| mutant.file.as_str()).collect();
    arguments.extend(files.into_iter().flat_map(|file| ["--file".to_owned(), file.to_owned()]));
    let mutants = found.into_iter().map(|(mutant, listed)| (mutant, listed.survives.as_deref())).collect();
    Selection { name: sample.name(), package: sample.package(), mutants, arguments }
}

/// Mutants of the current code that these arguments select.
fn present(root: &Path, arguments: &[&str]) -> Result<Vec<Mutant>, MutantsError> {
    let what = "cargo mutants --list";
    let output = cargo(root)
        .args(["mutants", "--list", "--json", "--exclude", GENERATED])
        .args(arguments)
        .output()
        .map_err(|error| failure(what, &error.to_string()))?;
    if !output.status.success() {
        return Err(failure(what, &String::from_utf8_lossy(&output.stderr)));
    }
    // Without a mutant, some versions print nothing.
    if output.stdout.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    list::parse(&output.stdout).map_err(|error| failure(what, &error.to_string()))
}

/// Tests mutants. Returns the number of differences from their lists.
fn test(root: &Path, selection: &Selection<'_>, options: &Options) -> Result<usize, MutantsError> {
    let out = root.join("target/mutants").join(selection.name);
    std::fs::create_dir_all(&out).map_err(|source| MutantsError::File { path: out.clone(), source })?;
    println!("=== {}: {} mutants", selection.name, selection.mutants.len());
    let mut command = cargo(root);
    command
        .args([
            "mutants",
            "--no-shuffle",
            "--colors",
            "never",
            "--profile",
            "mutants",
            "--exclude",
            GENERATED,
        ])
        .args(["--package", selection.package, "--test-package", selection.package])
        .args(["--minimum-test-timeout", "30", "--jobs", &options.jobs.to_string()])
        .arg("--output")
        .arg(&out)
        .args(&selection.arguments);
    if options.resume {
        command.arg("--iterate");
    }
    if let Some(shard) = &options.shard {
        command.args(["--shard", shard]);
    }
    command.args(["--", TESTS]);
    // Its status shows that mutants survived. This program decides which of them may.
    let status = command.status().map_err(|error| failure("cargo mutants", &error.to_string()))?;
    let outcomes = Outcomes::read(&out.join("mutants.out/outcomes.json"))?;
    if outcomes.is_empty() && !status.success() {
        return Err(failure("cargo mutants", "no mutant was tested, see above"));
    }
    Ok(report(selection, &outcomes))
}

/// Prints the survivors, and the number of killed mutants. Returns the number of differences.
fn report(selection: &Selection<'_>, outcomes: &Outcomes) -> usize {
    let mut differ = 0;
    for (mutant, reason) in &selection.mutants {
        match (outcomes.survived(&mutant.name), reason) {
            (Some(true), None) => println!("survives: {}", mutant.name),
            (Some(false), Some(reason)) => {
                println!("killed, although its list says \"{reason}\": {}", mutant.name)
            }
            _ => continue,
        }
        differ += 1;
    }
    let explained = selection.mutants.iter().filter(|(_, reason)| reason.is_some()).count();
    println!("=== {}: {outcomes}, {explained} with a reason in a list", selection.name);
    differ
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn failure(what: &str, reason: &str) -> MutantsError {
    MutantsError::Failed { what: what.to_owned(), reason: reason.to_owned() }
}
