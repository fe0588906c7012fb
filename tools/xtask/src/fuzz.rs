//! `cargo xtask fuzz`: runs every fuzz target for a limited time.
//!
//! The targets are those that tests/fuzz lists; a new one needs no change here. Inputs that a run finds go to a scratch corpus in the
//! target folder, so that the committed one changes only intentionally.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration of the run of each target.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Targets to run; all by default.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Reasons why fuzzing failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FuzzError {
    /// There is no nightly compiler.
    #[error("no nightly compiler, which the sanitizers need: run `rustup toolchain install nightly`")]
    NoNightly,
    /// There is no `cargo fuzz`.
    #[error("cargo-fuzz is not installed: run `cargo install --locked cargo-fuzz`")]
    NoCargoFuzz,
    /// There is no such target.
    #[error("there is no fuzz target {wanted}; there are: {}", known.join(", "))]
    NoTarget { wanted: String, known: Vec<String> },
    /// A program could not be started, or failed before it fuzzed.
    #[error("{what}: {reason}")]
    Failed { what: String, reason: String },
    /// A folder could not be made.
    #[error("cannot create {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    /// A target crashed, hung or did not build.
    #[error(
        "{}: failed. The output above ends with the input that caused the failure (tests/fuzz/artifacts); replay it with `cargo +nightly fuzz run --fuzz-dir tests/fuzz TARGET INPUT`",
        .0.join(", ")
    )]
    Found(Vec<String>),
}

const FUZZ_FOLDER: &str = "tests/fuzz";

/// Runs the targets one after the other; continues after a failure.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), FuzzError> {
    if !succeeds(nightly(root).arg("--version")) {
        return Err(FuzzError::NoNightly);
    }
    if !succeeds(nightly(root).args(["fuzz", "--version"])) {
        return Err(FuzzError::NoCargoFuzz);
    }
    let known = list(root)?;
    let targets = choose(&known, &options.targets)?;
    let mut failed = Vec::new();
    for target in targets {
        let found = scratch(root).join(target);
        std::fs::create_dir_all(&found)
            .map_err(|source| FuzzError::Folder { path: found.clone(), source })?;
        let committed = root.join(FUZZ_FOLDER).join("corpus").join(target);
        println!("=== fuzz {target}: {} s", options.seconds);
        let status = nightly(root)
            .args(["fuzz", "run", "--fuzz-dir", FUZZ_FOLDER, target])
            // libFuzzer writes new inputs to the first folder and only reads the others.
            .arg(&found)
            .args(committed.is_dir().then_some(&committed))
            .arg("--")
            .arg(format!("-max_total_time={}", options.seconds))
            .status()
            .map_err(|error| failure("cargo fuzz run", &error.to_string()))?;
        if !status.success() {
            failed.push(target.to_owned());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(FuzzError::Found(failed)) }
}

/// Requested targets: all of them, or those named, each once.
fn choose<'a>(known: &'a [String], wanted: &[String]) -> Result<Vec<&'a str>, FuzzError> {
    for name in wanted {
        if !known.contains(name) {
            return Err(FuzzError::NoTarget { wanted: name.clone(), known: known.to_vec() });
        }
    }
    let chosen = |name: &&String| wanted.is_empty() || wanted.contains(name);
    Ok(known.iter().filter(chosen).map(String::as_str).collect())
}

fn list(root: &Path) -> Result<Vec<String>, FuzzError> {
    let output = nightly(root)
        .args(["fuzz", "list", "--fuzz-dir", FUZZ_FOLDER])
        .output()
        .map_err(|error| failure("cargo fuzz list", &error.to_string()))?;
    if !output.status.success() {
        return Err(failure("cargo fuzz list", &String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn failure(what: &str, reason: &str) -> FuzzError {
    FuzzError::Failed { what: what.to_owned(), reason: reason.to_owned() }
}

/// Cargo's nightly, in the workspace. It is run through rustup by name: under `cargo xtask` the environment names the compiler and the
/// toolchain that built this program, which would override `+nightly`.
fn nightly(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").current_dir(root);
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Folder for inputs that a run finds.
fn scratch(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    root.join(target).join("fuzz-corpus")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_targets_default_to_all() {
        let known = ["event", "identity"].map(str::to_owned);
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose(&known, &[]).unwrap(), ["event", "identity"]);
        assert_eq!(choose(&known, &named(&["identity", "identity"])).unwrap(), ["identity"]);
        let error = choose(&known, &named(&["evnt"])).unwrap_err();
        assert_eq!(error.to_string(), "there is no fuzz target evnt; there are: event, identity");
    }
}
