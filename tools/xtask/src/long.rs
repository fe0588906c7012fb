//! `cargo xtask long`: runs the long tests, the second tier: `#[ignore = "long: SECONDS s: REASON"]`, with the usual time in the profile of
//! `cargo test` on two CPUs.
//!
//! All of them run optimised. `--part SECONDS` runs a part that takes about that time, another one each day, as `cargo test --workspace` has
//! built it. Tests that are ignored for another reason are not run: `child process of TEST`, which TEST starts itself, and `memory: SIZE`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Options of `cargo xtask long`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run a part that takes about this many seconds, and that changes with the day
    #[arg(long, value_name = "SECONDS")]
    part: Option<u64>,
    /// Number of the day that determines the part [default: days since 1970]
    #[arg(long, requires = "part")]
    day: Option<u64>,
    /// List the tests and their usual times, and run nothing
    #[arg(long)]
    list: bool,
    /// Tests to run; all by default
    #[arg(value_name = "TEST", conflicts_with = "part")]
    tests: Vec<String>,
}

/// Reasons why long tests failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LongError {
    /// A file or program could not be used.
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: std::io::Error },
    /// The reason of an ignored test has another form.
    #[error(
        "{}: {name} is ignored because \"{reason}\"; write \"long: SECONDS s: REASON\", \"child process of TEST\" or \"memory: SIZE\"",
        file.display()
    )]
    Reason { file: PathBuf, name: String, reason: String },
    /// There is no such test.
    #[error("there is no long test {0}; see `cargo xtask long --list`")]
    NoTest(String),
    /// Tests failed.
    #[error("cargo test: {0}; see the failures above")]
    Failed(ExitStatus),
    /// Tests were not found by their names.
    #[error(
        "{ran} tests passed instead of {wanted}: a name is not unique, or its test is not built on this machine"
    )]
    Count { ran: usize, wanted: usize },
}

/// A test of the second tier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LongTest {
    package: String,
    name: String,
    seconds: u64,
    reason: String,
}

/// Start of the attribute of an ignored test.
const IGNORED: &str = "#[ignore";

/// Lists or runs the tests.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), LongError> {
    let mut tests = Vec::new();
    collect(root, "", &mut tests)?;
    tests.sort();
    if let Some(name) = options.tests.iter().find(|name| !tests.iter().any(|test| test.name == **name)) {
        return Err(LongError::NoTest(name.clone()));
    }
    tests.retain(|test| options.tests.is_empty() || options.tests.contains(&test.name));
    if let Some(seconds) = options.part {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / (24 * 3600);
        tests = part(&tests, seconds, options.day.unwrap_or(today));
    }
    for LongTest { package, name, seconds, reason } in &tests {
        println!("{seconds:>5} s  {package}  {name}: {reason}");
    }
    if options.list || tests.is_empty() { Ok(()) } else { execute(root, &tests, options.part.is_none()) }
}

/// Part of the tests that takes at most `seconds`. It begins with another test each day; longer tests are in no part.
fn part(tests: &[LongTest], seconds: u64, day: u64) -> Vec<LongTest> {
    let short: Vec<&LongTest> = tests.iter().filter(|test| test.seconds <= seconds).collect();
    let first = usize::try_from(day).unwrap_or(0).checked_rem(short.len()).unwrap_or(0);
    let mut left = seconds;
    let fits = |test: &&&LongTest| {
        let rest = left.checked_sub(test.seconds);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let mut part: Vec<LongTest> =
        short.iter().cycle().skip(first).take(short.len()).filter(fits).map(|test| (*test).clone()).collect();
    part.sort();
    part
}

fn execute(root: &Path, tests: &[LongTest], optimised: bool) -> Result<(), LongError> {
    let path = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut command = Command::new(&path);
    command.current_dir(root).arg("test");
    if optimised {
        let packages: BTreeSet<&str> = tests.iter().map(|test| test.package.as_str()).collect();
        command.arg("--release").args(packages.into_iter().flat_map(|package| ["-p", package]));
    } else {
        // One package alone would be built again, with other features of its dependencies.
        command.arg("--workspace");
    }
    // `--tests` alone: all unit and integration tests. `--lib` would link tests of the Python module, which has none.
    command.args(["--tests", "--no-fail-fast", "--", "--ignored", "--nocapture"]);
    let mut child = command
        .args(tests.iter().map(|test| &test.name))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(at(&path))?;
    let mut ran = 0;
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(at(&path))?;
        ran += passed(&line);
        // Binaries without such tests report nothing of interest.
        if !line.trim().is_empty() && line != "running 0 tests" && !line.contains("ok. 0 passed") {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(at(&path))?;
    let wanted = tests.len();
    if !status.success() {
        Err(LongError::Failed(status))
    } else if ran != wanted {
        Err(LongError::Count { ran, wanted })
    } else {
        Ok(())
    }
}

/// Number of passed tests in the line of a test binary's result.
fn passed(line: &str) -> usize {
    let number = line.strip_prefix("test result: ok. ").and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Collects the long tests of the sources below `folder`, which is part of `package`.
fn collect(folder: &Path, package: &str, tests: &mut Vec<LongTest>) -> Result<(), LongError> {
    let manifest = folder.join("Cargo.toml");
    let text = if manifest.exists() {
        std::fs::read_to_string(&manifest).map_err(at(&manifest))?
    } else {
        String::new()
    };
    let package = name_of(&text).unwrap_or(package);
    for entry in std::fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, package, tests)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(at(&path))?;
            tests.extend(tests_of(&text, package, &path)?);
        }
    }
    Ok(())
}

/// Name of the package of a manifest.
fn name_of(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[package]")?;
    package.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// Long tests of a source file.
fn tests_of(text: &str, package: &str, file: &Path) -> Result<Vec<LongTest>, LongError> {
    let mut tests = Vec::new();
    let mut ignored: Option<&str> = None;
    for line in text.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix(IGNORED) {
            ignored = Some(rest.trim_start_matches(" = \"").trim_end_matches("\"]"));
        } else if let Some(reason) = ignored
            && let Some((_, name)) = line.split_once("fn ")
        {
            let name = name.split('(').next().unwrap_or_default().to_owned();
            ignored = None;
            let other = || LongError::Reason { file: file.into(), name: name.clone(), reason: reason.into() };
            if let Some(long) = reason.strip_prefix("long: ") {
                let (seconds, reason) = long.split_once(" s: ").ok_or_else(other)?;
                let seconds = seconds.parse().map_err(|_| other())?;
                tests.push(LongTest { package: package.into(), name, seconds, reason: reason.into() });
            } else if !["child process of ", "memory: "].iter().any(|kind| reason.starts_with(kind)) {
                return Err(other());
            }
        }
    }
    Ok(tests)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> LongError {
    move |source| LongError::Path { path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, seconds: u64) -> LongTest {
        LongTest { package: "p".into(), name: name.into(), seconds, reason: "many states".into() }
    }

    #[test]
    fn long_tests_are_found_by_their_attribute() {
        // Not as text of this file: it is searched, too.
        let text = |reason: &str| {
            format!("#[test]\n{IGNORED} = \"{reason}\"]\nfn search() {{}}\n#[test]\nfn other() {{}}\n")
        };
        let find = |reason: &str| tests_of(&text(reason), "p", Path::new("a.rs"));
        assert_eq!(find("long: 40 s: many states").unwrap(), [test("search", 40)]);
        assert_eq!(find("child process of other").unwrap(), []);
        assert_eq!(find("memory: 3 GiB").unwrap(), []);
        for reason in ["minutes", "long: minutes"] {
            assert!(find(reason).unwrap_err().to_string().contains("search is ignored because"));
        }
    }

    #[test]
    fn long_tests_of_workspace_state_their_times() {
        let mut tests = Vec::new();
        collect(&fpga_process::workspace_root(), "", &mut tests).unwrap();
        assert!(!tests.is_empty() && tests.iter().all(|test| !test.package.is_empty()), "{tests:?}");
        let names: BTreeSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names.len(), tests.len(), "tests are selected by their names");
    }

    #[test]
    fn long_part_changes_with_the_day_and_covers_all_that_fit() {
        let tests = [test("a", 30), test("b", 20), test("c", 90), test("d", 40)];
        let names = |day| part(&tests, 60, day).into_iter().map(|test| test.name).collect::<Vec<_>>();
        assert_eq!([names(0), names(1), names(2)], [vec!["a", "b"], vec!["b", "d"], vec!["b", "d"]]);
        assert_eq!(names(3), names(0));
        assert_eq!(part(&tests, 10, 5), []);
    }

    #[test]
    fn long_passed_tests_are_counted() {
        assert_eq!(passed("test result: ok. 12 passed; 0 failed; 0 ignored"), 12);
        assert_eq!(passed("test result: FAILED. 1 passed; 1 failed"), 0);
        assert_eq!(passed("test a ... ok"), 0);
    }
}
