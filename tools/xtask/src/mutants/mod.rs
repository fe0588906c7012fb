//! `cargo xtask mutants`: mutation tests of the most critical code, with cargo-mutants.
//!
//! A run of all mutants takes a day. The task tests a sample whose list is committed (`tests/mutants`): later changes are tested with the
//! same mutants, and each mutant that survives its tests has a reason in the list.

mod list;
mod outcome;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use list::{List, Listed, Mutant};
use outcome::Outcomes;

/// Options of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Samples to test; all by default.
    #[arg(value_name = "SAMPLE")]
    samples: Vec<Sample>,
    /// Write the lists from the current code instead of testing; reasons of mutants that remain are kept.
    #[arg(long)]
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

    fn has(self, file: &str) -> bool {
        // `cargo xtask generate` writes the generated code, and its tests compare it with the contract.
        self != Self::Codec || !file.ends_with("/generated.rs")
    }
}

/// Parts that are built and run for each mutant.
const TESTS: [&str; 2] = ["--lib", "--tests"];

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
        "{0} mutants differ from their list, see above: add a test that fails with the mutant, or a reason why no test can"
    )]
    Differ(usize),
}

/// Tests the samples, or writes their lists.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), MutantsError> {
    if !cargo(root)
        .args(["mutants", "--version"])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return Err(MutantsError::Missing);
    }
    let samples = if options.samples.is_empty() { &Sample::ALL } else { options.samples.as_slice() };
    let mut differ = 0;
    for sample in samples {
        let path = root.join("tests/mutants").join(sample.name()).with_extension("yaml");
        let present = present(root, *sample)?;
        if options.sample {
            let old = if path.exists() { List::read(&path)? } else { List::default() };
            let list = List::sample(&present, &old, options.seed, options.count);
            list.write(&path)?;
            println!("{}: {} of {} mutants", path.display(), list.mutants.len(), present.len());
        } else {
            differ += test(root, *sample, &List::read(&path)?, &present, options)?;
        }
    }
    if differ == 0 { Ok(()) } else { Err(MutantsError::Differ(differ)) }
}

/// All mutants of a sample's code.
fn present(root: &Path, sample: Sample) -> Result<Vec<Mutant>, MutantsError> {
    let what = "cargo mutants --list";
    let output = cargo(root)
        .args(["mutants", "--list", "--json", "--package", sample.package()])
        .output()
        .map_err(|error| failure(what, &error.to_string()))?;
    if !output.status.success() {
        return Err(failure(what, &String::from_utf8_lossy(&output.stderr)));
    }
    let all = list::parse(&output.stdout).map_err(|error| failure(what, &error.to_string()))?;
    Ok(all.into_iter().filter(|mutant| sample.has(&mutant.file)).collect())
}

/// Tests the mutants of one list. Returns the number of differences from the list.
fn test(
    root: &Path,
    sample: Sample,
    list: &List,
    present: &[Mutant],
    options: &Options,
) -> Result<usize, MutantsError> {
    let (found, gone) = list.find(present);
    let out = root.join("target/mutants").join(sample.name());
    std::fs::create_dir_all(&out).map_err(|source| MutantsError::File { path: out.clone(), source })?;
    println!(
        "=== mutants of {}: {} in the code, {} of the list no longer in the code",
        sample.name(),
        found.len(),
        gone
    );
    let mut command = cargo(root);
    command
        .args(["mutants", "--no-shuffle", "--colors", "never", "--profile", "mutants"])
        .args(["--package", sample.package(), "--test-package", sample.package()])
        .args(["--minimum-test-timeout", "30", "--jobs", &options.jobs.to_string()])
        .arg("--output")
        .arg(&out);
    if options.resume {
        command.arg("--iterate");
    }
    if let Some(shard) = &options.shard {
        command.args(["--shard", shard]);
    }
    for (mutant, _) in &found {
        command.args(["--re", &mutant.pattern()]);
    }
    // cargo-mutants 27.1 tests all its mutants that delete a field, regardless of --re; --file limits them to these files.
    let files: BTreeSet<&str> = found.iter().map(|(mutant, _)| mutant.file.as_str()).collect();
    command.args(files.into_iter().flat_map(|file| ["--file", file]));
    command.arg("--").args(TESTS);
    // Its status shows that mutants survived. This program decides which of them may.
    let status = command.status().map_err(|error| failure("cargo mutants", &error.to_string()))?;
    let outcomes = Outcomes::read(&out.join("mutants.out/outcomes.json"))?;
    if outcomes.is_empty() && !status.success() {
        return Err(failure("cargo mutants", "no mutant was tested, see above"));
    }
    Ok(report(sample, &found, &outcomes))
}

/// Prints the survivors, and the number of killed mutants. Returns the number of differences.
fn report(sample: Sample, found: &[(&Mutant, &Listed)], outcomes: &Outcomes) -> usize {
    let mut differ = 0;
    for (mutant, listed) in found {
        match (outcomes.survived(&mutant.name), &listed.survives) {
            (Some(true), None) => println!("survives: {}", mutant.name),
            (Some(false), Some(reason)) => {
                println!("killed, although its list says \"{reason}\": {}", mutant.name)
            }
            _ => continue,
        }
        differ += 1;
    }
    let explained = found.iter().filter(|(_, listed)| listed.survives.is_some()).count();
    println!("=== mutants of {}: {outcomes}, {explained} with a reason in the list", sample.name());
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
