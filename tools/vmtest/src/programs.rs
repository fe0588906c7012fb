//! Programs of this project that run in guests. A complete run builds them for guests: optimised, and static, because a guest has no C
//! library. Everyday checks take the programs of the workspace's tests, which are usually there already, with the libraries that they need.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use fpga_process::{on_path, output};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Build profile: see the workspace's Cargo.toml.
const PROFILE: &str = "guest";
/// Packages and their programs.
const PACKAGES: [&str; 2] = ["fpgactl", "fpga-tests"];

/// Names of the programs.
const NAMES: [&str; 2] = ["fpgactl", "conformance"];
/// A small test: with a test among its targets, cargo selects the features of packages as for `cargo test --workspace`.
const TEST: &str = "limits";

/// Error of a build.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the guests' programs: {0}")]
pub(crate) struct BuildError(String);

/// Line of `cargo build --message-format=json` that names a program or a library.
#[derive(Deserialize)]
struct Built {
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Programs for guests.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) paths: Vec<PathBuf>,
    /// Libraries that they need, and their loader.
    pub(crate) libraries: Vec<PathBuf>,
}

impl Programs {
    /// Builds programs that need no library.
    pub(crate) fn build(root: &Path) -> Result<Self, BuildError> {
        let mut command = cargo();
        command.args(["build", "--profile", PROFILE, "--target", TARGET, "--bins"]);
        command.args(PACKAGES.iter().flat_map(|package| ["-p", *package]));
        // In a separate folder: other flags would force rebuilds in the usual one.
        command.arg("--target-dir").arg(folder(root));
        command.env("RUSTFLAGS", "-C target-feature=+crt-static");
        // The profile determines the build, independent of the settings for other builds.
        command.env_remove("CARGO_INCREMENTAL");
        Ok(Self { paths: built(root, &mut command)?, libraries: Vec::new() })
    }

    /// Takes the programs as `cargo test --workspace` builds them, so that nothing is built twice, and builds no other program.
    pub(crate) fn of_tests(root: &Path) -> Result<Self, BuildError> {
        let programs = NAMES.iter().flat_map(|name| ["--bin", *name]);
        let all = built(root, cargo().args(["build", "--workspace", "--test", TEST]).args(programs))?;
        let folder = folder(root).join("stripped");
        std::fs::create_dir_all(&folder)
            .map_err(|error| BuildError(format!("{}: {error}", folder.display())))?;
        let (mut paths, mut libraries) = (Vec::new(), BTreeSet::new());
        for name in NAMES {
            let program = named(&all, name)?;
            libraries.extend(needed(&run(Command::new("ldd").arg(program))?));
            // Without debug information, which is most of their size.
            let stripped = folder.join(name);
            run(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
            paths.push(stripped);
        }
        Ok(Self { paths, libraries: libraries.into_iter().collect() })
    }

    /// Selects the program with this name.
    pub(crate) fn named(&self, name: &str) -> Result<&Path, BuildError> {
        named(&self.paths, name)
    }
}

fn run(command: &mut Command) -> Result<String, BuildError> {
    output(command).map_err(|error| BuildError(error.to_string()))
}

/// Paths of libraries in the output of `ldd`.
pub(crate) fn needed(text: &str) -> impl Iterator<Item = PathBuf> {
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from)
}

fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").filter(|_| on_path("cargo").is_none());
    Command::new(cargo.unwrap_or_else(|| OsString::from("cargo")))
}

/// Builds the libfabric provider, optimised, as `cargo xtask libfabric --release` does. Returns its path.
pub(crate) fn provider(root: &Path) -> Result<PathBuf, BuildError> {
    let messages = messages(root, cargo().args(["build", "--release", "-p", "fpga-libfabric"]))?;
    let mut files = lines(&messages).flat_map(|line| line.filenames);
    let found = files.find(|path| path.file_name().is_some_and(|name| name == "libfpga_fi.so"));
    found.ok_or_else(|| BuildError("the build produced no libfpga_fi.so".to_owned()))
}

/// Runs a build. Returns the paths of all programs.
fn built(root: &Path, command: &mut Command) -> Result<Vec<PathBuf>, BuildError> {
    let programs = executables(&messages(root, command)?);
    if programs.is_empty() {
        Err(BuildError("the output of cargo names no program".to_owned()))
    } else {
        Ok(programs)
    }
}

/// Runs a build. Returns its messages, one JSON document per line.
fn messages(root: &Path, command: &mut Command) -> Result<Vec<u8>, BuildError> {
    let failed = |error: std::io::Error| BuildError(error.to_string());
    command.arg("--message-format=json-render-diagnostics");
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().map_err(failed)?;
    if !output.status.success() {
        return Err(BuildError(output.status.to_string()));
    }
    Ok(output.stdout)
}

/// Selects the program with this name.
fn named<'a>(programs: &'a [PathBuf], name: &str) -> Result<&'a Path, BuildError> {
    let found = programs.iter().find(|program| program.file_name().is_some_and(|file| file == name));
    found.map(PathBuf::as_path).ok_or_else(|| BuildError(format!("the build produced no program {name}")))
}

fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    root.join(target).join("guest")
}

fn executables(messages: &[u8]) -> Vec<PathBuf> {
    lines(messages).filter_map(|line| line.executable).collect()
}

fn lines(messages: &[u8]) -> impl Iterator<Item = Built> {
    messages.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_names_libraries() {
        let text =
            "\tlinux-vdso.so.1 (0x7f69)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f69)\n\t/lib64/ld.so (0x7f69)\n";
        assert_eq!(
            needed(text).collect::<Vec<_>>(),
            [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld.so")]
        );
        assert_eq!(needed("\tstatically linked\n").count(), 0);
    }

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
