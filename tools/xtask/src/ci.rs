//! `cargo xtask ci`: runs `.ci/run`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Reasons why the checks failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CiError {
    /// The script could not be started.
    #[error("{}: {source}", path.display())]
    Start { path: PathBuf, source: std::io::Error },
    /// A step failed.
    #[error(".ci/run: {0}; see the failed steps above")]
    Failed(ExitStatus),
}

/// Path of the script in the workspace.
const SCRIPT: &str = ".ci/run";

/// Runs the everyday checks.
pub(crate) fn run(root: &Path) -> Result<(), CiError> {
    let path = root.join(SCRIPT);
    let status = Command::new(&path).current_dir(root).status();
    let status = status.map_err(|source| CiError::Start { path, source })?;
    if status.success() { Ok(()) } else { Err(CiError::Failed(status)) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Substitute for programs of steps.
    const SUBSTITUTE: &str = r#"#!/bin/sh
        case "$*" in
        "xtask graph"*) [ -n "$PASS" ] || { echo "error: a cycle"; exit 1; } ;;
        "xtask startup"*) echo "xtask: GNU time is not installed"; exit 3 ;;
        "test --workspace"*) echo "test a ... skipped: a: verilator is not installed (Debian: apt-get install verilator)" ;;
        tree*) echo one line ;;
        esac
    "#;

    /// Runs the script with substitutes; returns its output and exit status.
    fn run_with(pass: &str) -> (String, Option<i32>) {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join(SCRIPT);
        fs::create_dir(script.parent().unwrap()).unwrap();
        fs::copy(fpga_process::workspace_root().join(SCRIPT), &script).unwrap();
        for name in ["cargo", "rustup", "rustc", "apt-get", "cargo-deny"] {
            let program = folder.path().join(name);
            fs::write(&program, SUBSTITUTE).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = std::env::join_paths(
            [folder.path().to_owned()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let output = Command::new(&script).env("PATH", path.unwrap()).env("PASS", pass).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    }

    #[test]
    fn ci_end_counts_steps_and_names_skipped_and_failed_ones() {
        let (said, status) = run_with("");
        let (_, end) = said.split_once("Times and results:").unwrap();
        for line in [
            "s  format: passed",
            "s  dependency directions: FAILED (status 1)",
            "s  start-up: skipped",
            "  start-up: xtask: GNU time is not installed",
            "  README command 2: a: verilator is not installed (Debian: apt-get install verilator)",
        ] {
            assert!(end.contains(line), "{line}: {said}");
        }
        let last = end.lines().last().unwrap();
        assert!(
            last.contains("1 failed, 1 skipped in") && last.ends_with("failed: dependency directions"),
            "{last}"
        );
        assert_eq!(status, Some(1));
        let (said, status) = run_with("yes");
        assert!(said.lines().last().unwrap().contains("0 failed, 1 skipped in"), "{said}");
        assert_eq!(status, Some(0));
    }
}
