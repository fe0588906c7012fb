//! `cargo xtask startup`: measures duration and memory of each command. Commands that move no significant data have limits.
//!
//! Commands are started as a shell starts them and timed from outside, in turn, so that a slow moment of the machine affects all of them.
//! Memory is the maximum resident set as GNU time reports it.
//!
//! The limit applies to the median on an otherwise idle machine. On a busy one (`--busy`, as in continuous integration), the best run of
//! each command may take three times as long: that detects slow commands and tolerates other load.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fpga_process::{ChildGuard, ToolError, on_path, output};

/// Maximum duration of a command that moves no data.
const LIMIT: Duration = Duration::from_millis(20);
/// Factor on the limit for the best run on a machine with other load.
const BUSY: u32 = 3;
const MAX_RSS_KIB: u64 = 50 << 10;

/// Options of `cargo xtask startup`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of runs of each command
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// For a machine with other load: compare the best run with three times the limit, instead of the median with the limit, and skip
    /// commands that move data
    #[arg(long)]
    busy: bool,
    /// fpgactl program to run; by default it is built
    #[arg(long, value_name = "FILE")]
    fpgactl: Option<PathBuf>,
}

/// Reasons why the measurement fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    /// GNU time is missing on this machine.
    #[error("GNU time is not installed: run `apt-get install time`")]
    NoTime,
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// No folder for files could be created.
    #[error("temporary folder: {0}")]
    Folder(std::io::Error),
    /// Commands exceed a limit, or have an unexpected exit status.
    #[error("commands above {} ms ({which}) or {} MiB, or with an unexpected exit status: {}", limit.as_millis(), MAX_RSS_KIB >> 10, commands.join("; "))]
    BudgetExceeded { limit: Duration, which: &'static str, commands: Vec<String> },
}

impl StartupError {
    pub(crate) const fn exit_status(&self) -> u8 {
        // The exit status of a skipped task, as for a package.
        if matches!(self, Self::NoTime) { 3 } else { 1 }
    }
}

/// All commands, with their exit status and whether limits apply. A test of fpgactl checks that none is missing.
const COMMANDS: &str = include_str!("../../fpgactl/tests/commands.txt");

/// Line of the list.
struct Listed {
    status: i32,
    /// Whether it moves data, computes or waits (a node without a state file, for its incarnation): then the limits do not apply.
    works: bool,
    words: &'static str,
}

fn commands() -> impl Iterator<Item = Listed> {
    COMMANDS.lines().filter_map(|line| {
        let (status, rest) = line.split_once(' ')?;
        let (kind, words) = rest.split_once(' ')?;
        Some(Listed { status: status.parse().ok()?, works: kind == "work", words })
    })
}

/// Objects that the words of the list stand for: files, a machine, and a card that is served for the lifetime of this value.
struct CommandEnvironment {
    folder: tempfile::TempDir,
    _served: ChildGuard,
}

impl CommandEnvironment {
    fn new(program: &Path) -> Result<Self, StartupError> {
        let folder = tempfile::tempdir().map_err(StartupError::Folder)?;
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [
            ("data", "sixteen bytes .."),
            ("card.yaml", "schema_version: 1\n"),
            (
                "scenario.yaml",
                "schema_version: 1\ntopology: {torus: {side: 3}}\ntraffic:\n  flows:\n    - {from: 0, to: 5, bytes: 90000}\n",
            ),
            (
                "map.yaml",
                "schema_version: 1\nname: map\nblocks: [{name: block, offset: 0, registers: [{name: control, offset: 0}]}]\n",
            ),
            ("log", "register-log 1\n0 read bar1 0x2000 any\n"),
        ] {
            std::fs::write(at(name), text).map_err(StartupError::Folder)?;
        }
        fpga_host::testing::machine("ready", &at("machine")).map_err(StartupError::Folder)?;
        let mut command = Command::new(program);
        command.args(["card", "serve", "--socket"]).arg(at("card")).arg("--control").arg(at("control"));
        let mut served = ChildGuard::spawn("fpgactl card serve", &command)?;
        if let Some(stdout) = served.parts().stdout.take() {
            // It prints a line when it can be reached.
            BufReader::new(stdout).read_line(&mut String::new()).map_err(StartupError::Folder)?;
        }
        Ok(Self { folder, _served: served })
    }

    fn words(&self, text: &str) -> Vec<String> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let source = |name: &str| fpga_process::workspace_root().join(name).display().to_string();
        let word = |word: &str| match word {
            "@" => at("data"),
            "#" => at("machine"),
            "!card" => at("card.yaml"),
            "!map" => at("map.yaml"),
            "!scenario" => at("scenario.yaml"),
            "!log" => at("log"),
            "!clos" => source("examples/scenarios/clos"),
            "!htsim" => source("tools/fpgactl/tests/cli/htsim.sh"),
            "!control" => at("control"),
            // Excludes the percent sign in `5%`.
            other if other.starts_with('%') => other.replacen('%', &at("out"), 1),
            other => other.to_owned(),
        };
        text.split(' ').map(word).collect()
    }
}

/// Builds fpgactl as it is released, and returns its path.
pub(crate) fn release_fpgactl(root: &Path) -> Result<PathBuf, ToolError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "--release", "--locked", "--package", "fpgactl"];
    output(Command::new(cargo).args(words).current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/fpgactl"))
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), StartupError> {
    let time = on_path("time").ok_or(StartupError::NoTime)?;
    let program = match &options.fpgactl {
        Some(program) => program.clone(),
        None => release_fpgactl(root)?,
    };
    let place = CommandEnvironment::new(&program)?;
    // Commands that move data, compute or wait have no limit.
    let list: Vec<Listed> = commands().filter(|listed| !(options.busy && listed.works)).collect();
    let mut spans: Vec<Vec<Duration>> = vec![Vec::new(); list.len()];
    let mut wrong = Vec::new();
    for run in 0..options.runs {
        for (listed, spans) in list.iter().zip(&mut spans) {
            let mut command = Command::new(&program);
            command.args(place.words(listed.words));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let began = Instant::now();
            let ended = command.status();
            spans.push(began.elapsed());
            let ended = ended
                .map_err(|source| ToolError::Start { program: program.display().to_string(), source })?;
            if run == 0 && ended.code() != Some(listed.status) {
                wrong.push(format!("{} ended with {ended}, not with {}", listed.words, listed.status));
            }
        }
    }
    let (limit, which) = if options.busy { (LIMIT * BUSY, "best run") } else { (LIMIT, "median") };
    println!("{:<40} {:>8} {:>8} {:>8} {:>8}", "command", "min ms", "median", "max", "MiB");
    for (Listed { words: text, works, .. }, mut spans) in list.iter().zip(spans) {
        spans.sort_unstable();
        let millis = |span: Option<&Duration>| span.map_or(0.0, |span| span.as_secs_f64() * 1e3);
        let median = spans.get(spans.len() / 2).copied().unwrap_or_default();
        let kib = memory(&time, &program, &place.words(text))?;
        #[expect(clippy::cast_precision_loss, reason = "mebibytes with a digit")]
        let mib = kib as f64 / 1024.0;
        let shown: String = text.chars().take(40).collect();
        println!(
            "{shown:<40} {:>8.1} {:>8.1} {:>8.1} {mib:>8.1}",
            millis(spans.first()),
            millis(Some(&median)),
            millis(spans.last())
        );
        let judged = if options.busy { spans.first().copied().unwrap_or_default() } else { median };
        if !works && (judged > limit || kib > MAX_RSS_KIB) {
            wrong.push(format!("{text} ({:.1} ms, {mib:.1} MiB)", millis(Some(&judged))));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(StartupError::BudgetExceeded { limit, which, commands: wrong })
    }
}

/// Maximum resident set in KiB.
fn memory(time: &Path, program: &Path, words: &[String]) -> Result<u64, ToolError> {
    let ended = Command::new(time)
        .args(["--quiet", "--format", "%M"])
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|source| ToolError::Start { program: time.display().to_string(), source })?;
    // The program's own messages may precede the last line.
    let said = String::from_utf8_lossy(&ended.stderr);
    Ok(said.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or(u64::MAX))
}
