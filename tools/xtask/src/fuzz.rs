//! `cargo xtask fuzz`: builds the fuzz targets once and runs each for a limited time, one per CPU.
//!
//! libFuzzer needs only the compiler's coverage instrumentation, which the stable compiler has; nothing needs to be installed. Every
//! package but one forbids unsafe code, so that a run without a sanitizer finds what there is to find: panics, failed assertions, hangs,
//! memory use. `--sanitizer address` takes the nightly compiler.
//!
//! The targets are the files in tests/fuzz/fuzz_targets. Inputs that a run finds go to a scratch corpus in the target folder, so that the
//! committed one changes only intentionally.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration of the run of each target.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Sanitizer; `address` needs the nightly compiler.
    #[arg(long, value_enum, default_value_t = Sanitizer::None)]
    sanitizer: Sanitizer,
    /// Targets to run; all by default.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Sanitizer of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sanitizer {
    None,
    Address,
}

/// Reasons why fuzzing failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FuzzError {
    /// There is no nightly compiler.
    #[error("no nightly compiler, which sanitizers need: run `rustup toolchain install nightly`")]
    NoNightly,
    /// There is no such target.
    #[error("there is no fuzz target {wanted}; there are: {}", known.join(", "))]
    NoTarget { wanted: String, known: Vec<String> },
    /// The targets do not build.
    #[error("the fuzz targets do not build; see the errors above")]
    Build,
    /// A program or folder could not be used.
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: std::io::Error },
    /// A target crashed or hung.
    #[error(
        "{}: failed. The output above names the input that caused the failure; replay it with `{} INPUT`",
        names.join(", "), program.display()
    )]
    Found { names: Vec<String>, program: PathBuf },
}

const FUZZ_FOLDER: &str = "tests/fuzz";

/// Coverage instrumentation of libFuzzer: edges, counters in the program, and operands of comparisons.
const INSTRUMENTATION: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
];

/// Lines of output of a failed target that are shown.
const SHOWN_LINES: usize = 60;

/// Builds and runs the targets; continues after a failure.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), FuzzError> {
    let known = list(root)?;
    let targets = choose(&known, &options.targets)?;
    let programs = build(root, options.sanitizer)?;
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || -> Result<(), FuzzError> {
            while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !one(root, &programs, target, options.seconds)?
                    && let Ok(mut failed) = failed.lock()
                {
                    failed.push((*target).to_owned());
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        // A panic of a worker continues here; there is nothing to clean up.
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
    })?;
    let names = failed.into_inner().unwrap_or_default();
    match names.first() {
        None => Ok(()),
        Some(first) => Err(FuzzError::Found { program: programs.join(first), names }),
    }
}

/// Runs one target; prints its last line, or the end of its output after a failure.
fn one(root: &Path, programs: &Path, target: &str, seconds: u32) -> Result<bool, FuzzError> {
    let found = target_folder(root).join("corpus").join(target);
    let artifacts = root.join(FUZZ_FOLDER).join("artifacts").join(target);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).map_err(at(folder))?;
    }
    let committed = root.join(FUZZ_FOLDER).join("corpus").join(target);
    let program = programs.join(target);
    let output = Command::new(&program)
        .current_dir(root)
        // libFuzzer writes new inputs to the first folder and only reads the others.
        .arg(&found)
        .args(committed.is_dir().then_some(&committed))
        .arg(format!("-max_total_time={seconds}"))
        // An input that takes longer is a hang. Usually, an input takes milliseconds.
        .arg("-timeout=60")
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .stdin(Stdio::null())
        .output()
        .map_err(at(&program))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    if output.status.success() {
        let done = lines.iter().rev().find(|line| line.contains("DONE")).unwrap_or(&"no summary");
        println!("fuzz {target}: {done}");
        return Ok(true);
    }
    let end = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default();
    println!("fuzz {target}: FAILED ({})\n{}", output.status, end.join("\n"));
    Ok(false)
}

/// Builds all targets; returns the folder of the programs.
fn build(root: &Path, sanitizer: Sanitizer) -> Result<PathBuf, FuzzError> {
    let mut flags = INSTRUMENTATION.join(" ");
    let name = match sanitizer {
        Sanitizer::None => "plain",
        Sanitizer::Address => "address",
    };
    if sanitizer == Sanitizer::Address {
        flags.push_str(" -Zsanitizer=address");
        let version = cargo(sanitizer).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            return Err(FuzzError::NoNightly);
        }
    }
    let folder = target_folder(root).join(name);
    let triple = host_triple()?;
    let status = cargo(sanitizer)
        // A stated target keeps the instrumentation out of build scripts and procedural macros.
        .args(["build", "--quiet", "--release", "--locked", "--target", &triple, "--manifest-path"])
        .arg(root.join(FUZZ_FOLDER).join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", flags)
        .status()
        .map_err(at(Path::new("cargo")))?;
    if status.success() { Ok(folder.join(triple).join("release")) } else { Err(FuzzError::Build) }
}

/// Cargo of the current toolchain, or nightly's. The latter is run through rustup by name: under `cargo xtask` the environment names the
/// compiler and the toolchain that built this program, which would override `+nightly`.
fn cargo(sanitizer: Sanitizer) -> Command {
    let mut command = Command::new("cargo");
    if sanitizer == Sanitizer::Address {
        command.arg("+nightly");
        for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(variable);
        }
    }
    command
}

fn host_triple() -> Result<String, FuzzError> {
    let output =
        Command::new("rustc").args(["--print", "host-tuple"]).output().map_err(at(Path::new("rustc")))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Names of the targets.
fn list(root: &Path) -> Result<Vec<String>, FuzzError> {
    let folder = root.join(FUZZ_FOLDER).join("fuzz_targets");
    let files = std::fs::read_dir(&folder).map_err(at(&folder))?;
    // Folders have modules of targets.
    let name = |path: PathBuf| Some(path.to_str()?.strip_suffix(".rs")?.rsplit('/').next()?.to_owned());
    let mut names: Vec<String> = files.filter_map(|file| name(file.ok()?.path())).collect();
    names.sort();
    Ok(names)
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

fn at(path: &Path) -> impl Fn(std::io::Error) -> FuzzError {
    move |source| FuzzError::Path { path: path.to_path_buf(), source }
}

/// Folder for programs, and for inputs that a run finds.
fn target_folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    root.join(target).join("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_targets_are_listed_once() {
        let names = list(&fpga_process::workspace_root()).unwrap();
        assert!(names.contains(&"messenger".to_owned()));
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    }

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
