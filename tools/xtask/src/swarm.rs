//! `cargo xtask swarm`: builds the swarm (`tests/swarm`) and runs it.

mod planted;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Options of `cargo xtask swarm`. `--help` of the program lists the others, which follow `--`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds after which no further world begins
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the run, decimal or with 0x [default: 1]
    #[arg(long, conflicts_with = "commit_seed")]
    seed: Option<String>,
    /// Take the seed from the commit
    #[arg(long)]
    commit_seed: bool,
    /// Reduce the first world that fails, and print it as a test
    #[arg(long)]
    minimise: bool,
    /// Run with each fault of a list that is planted in a copy of the sources (committed files); --seconds limits each run
    #[arg(long)]
    planted: bool,
    /// Numbers of the planted faults [default: all]
    #[arg(long, value_name = "NUMBER", requires = "planted", value_delimiter = ',')]
    fault: Vec<usize>,
    /// Further options of the program
    #[arg(last = true)]
    more: Vec<String>,
}

/// Reasons why a swarm failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SwarmError {
    /// A program could not be run.
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: std::io::Error },
    /// There is no commit.
    #[error("git rev-parse HEAD: {0}; give --seed")]
    NoCommit(String),
    /// The sources could not be copied.
    #[error("git ls-files | cp: {0}")]
    Copy(ExitStatus),
    /// A planted fault no longer fits the sources.
    #[error("{}: found {found} times instead of once: {expression}; change the list of faults", path.display())]
    Expression { path: PathBuf, expression: String, found: usize },
    /// The copy with the planted faults could not be built.
    #[error("{}: cargo build -p fpga-swarm: {status}; run it there for the reason", path.display())]
    Build { path: PathBuf, status: ExitStatus },
    /// Planted faults were not found.
    #[error("{0} planted faults were missed; see the list above")]
    Missed(usize),
    /// A world failed.
    #[error("cargo run -p fpga-swarm: {0}; replay a world with `cargo xtask swarm -- --world SEED`")]
    Failed(ExitStatus),
}

/// Builds and runs the swarm.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), SwarmError> {
    let seed = match &options.seed {
        Some(seed) => seed.clone(),
        None if options.commit_seed => commit_seed(root)?,
        None => "1".to_owned(),
    };
    if options.planted {
        return planted::run(root, &options.fault, options.seconds, &seed);
    }
    let path = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut command = Command::new(&path);
    // The profile of the tests: optimised, and with debug assertions.
    command.current_dir(root).args(["run", "--quiet", "-p", "fpga-swarm", "--"]);
    command.args(["--seconds", &options.seconds.to_string(), "--seed", &seed]);
    if options.minimise {
        command.arg("--minimise");
    }
    let status = command.args(&options.more).status().map_err(|source| SwarmError::Path { path, source })?;
    if status.success() { Ok(()) } else { Err(SwarmError::Failed(status)) }
}

/// First digits of the commit.
fn commit_seed(root: &Path) -> Result<String, SwarmError> {
    let output = Command::new("git").current_dir(root).args(["rev-parse", "HEAD"]).output();
    let output = output.map_err(|error| SwarmError::NoCommit(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.get(..16).filter(|digits| output.status.success() && u64::from_str_radix(digits, 16).is_ok()) {
        Some(digits) => Ok(format!("0x{digits}")),
        None => Err(SwarmError::NoCommit(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
