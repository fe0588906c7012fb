//! Programs of this project that run in guests: static, because a guest has no C library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use fpga_process::on_path;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Build profile: see the workspace's Cargo.toml.
const PROFILE: &str = "guest";
/// Packages and their programs.
const PACKAGES: [&str; 2] = ["fpgactl", "fpga-tests"];

/// Error of a build.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the guests' programs: {0}")]
pub(crate) struct BuildError(String);

/// Line of `cargo build --message-format=json` that names a program.
#[derive(Deserialize)]
struct Built {
    executable: Option<PathBuf>,
}

/// Builds the programs. Returns all paths.
pub(crate) fn build(root: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |error: std::io::Error| BuildError(error.to_string());
    let cargo = std::env::var_os("CARGO").filter(|_| on_path("cargo").is_none());
    let mut command = Command::new(cargo.unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--profile", PROFILE, "--target", TARGET, "--bins"]);
    command.args(PACKAGES.iter().flat_map(|package| ["-p", *package]));
    // In a separate folder: other flags would force rebuilds in the usual one.
    command.arg("--target-dir").arg(folder(root));
    command.arg("--message-format=json-render-diagnostics");
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    // The profile determines the build, independent of the settings for other builds.
    command.env_remove("CARGO_INCREMENTAL");
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().map_err(failed)?;
    if !output.status.success() {
        return Err(BuildError(output.status.to_string()));
    }
    let programs = executables(&output.stdout);
    if programs.is_empty() {
        Err(BuildError("the output of cargo names no program".to_owned()))
    } else {
        Ok(programs)
    }
}

/// Selects the program with this name.
pub(crate) fn named<'a>(programs: &'a [PathBuf], name: &str) -> Result<&'a Path, BuildError> {
    let found = programs.iter().find(|program| program.file_name().is_some_and(|file| file == name));
    found.map(PathBuf::as_path).ok_or_else(|| BuildError(format!("the build produced no program {name}")))
}

fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    root.join(target).join("guest")
}

fn executables(messages: &[u8]) -> Vec<PathBuf> {
    let lines = messages.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice::<Built>(line).ok()?.executable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_output_names_programs() {
        let messages = b"{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/x/fpgactl\"}\nno JSON\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/x/conformance\"}\n";
        let programs = executables(messages);
        assert_eq!(named(&programs, "conformance").unwrap(), Path::new("/x/conformance"));
        assert!(named(&programs, "xtask").is_err());
    }
}
