//! `cargo xtask swarm`: builds the swarm (`tests/swarm`) and runs it.

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
