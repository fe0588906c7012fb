//! `cargo xtask startup`: how long each command takes that moves no data to speak of, and how much memory.
//!
//! Commands are started as a shell starts them and timed from outside, in turn, so that a slow moment of the machine strikes all of
//! them. Memory is what GNU time sees: the largest resident set.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::{ToolError, on_path, output};

/// What a command may take, where it moves no data.
const LIMIT: Duration = Duration::from_millis(20);
const MOST_KIB: u64 = 50 << 10;

/// What the task takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each command is run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The program, instead of one that is built
    #[arg(long, value_name = "FILE")]
    fpgactl: Option<PathBuf>,
}

/// Why there is no table, or why it is no good.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    /// This machine cannot do it.
    #[error("GNU time is not there: apt-get install time")]
    NoTime,
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A place for files.
    #[error("temporary folder: {0}")]
    Folder(std::io::Error),
    /// Commands that take too long or too much.
    #[error("more than {} ms (median) or {} MiB: {}", LIMIT.as_millis(), MOST_KIB >> 10, .0.join("; "))]
    TooMuch(Vec<String>),
}

/// Every command that reports on a card or on this machine, on the simulated card. `@` is a file of a few bytes, `%` one to write.
const COMMANDS: &[&str] = &[
    "--version",
    "--help",
    "list",
    "doctor",
    "info",
    "regs list",
    "regs dump",
    "regs read h2c0.status",
    "regs write h2c0.interrupt_enable 0",
    "peek dma 0 16",
    "poke dma 0x90 0",
    "dma write @ --addr 0",
    "dma read --addr 0 --len 16 --out %",
    "cdma copy --src 0 --dst 4096 --len 64",
    "transfer --size 4KiB",
    "ops --size 64KiB",
    "queues --size 64KiB",
    "registry --size 64KiB",
    "escape --size 64KiB",
    "stats --size 64KiB",
    "top --once --size 64KiB",
    "abort",
    "reset",
    "dump --out %",
    "completions bash",
    "man --out %.man",
];

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), StartupError> {
    let time = on_path("time").ok_or(StartupError::NoTime)?;
    let program = match &options.fpgactl {
        Some(program) => program.clone(),
        None => {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let words = ["build", "--release", "--locked", "--package", "fpgactl"];
            output(Command::new(cargo).args(words).current_dir(root))?;
            let target =
                std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
            target.join("release/fpgactl")
        }
    };
    let folder = tempfile::tempdir().map_err(StartupError::Folder)?;
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    std::fs::write(&data, "sixteen bytes ..").map_err(StartupError::Folder)?;
    let words = |text: &str| -> Vec<String> {
        let place = |word: &str| {
            word.replace('@', &data.display().to_string()).replace('%', &out.display().to_string())
        };
        text.split(' ').map(place).collect()
    };
    let mut spans: Vec<Vec<Duration>> = vec![Vec::new(); COMMANDS.len()];
    for _ in 0..options.runs {
        for (text, spans) in COMMANDS.iter().zip(&mut spans) {
            let mut command = Command::new(&program);
            command.args(words(text)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let began = Instant::now();
            // A machine that is not ready for cards is a status of 1: `doctor`.
            let ended = command.status();
            spans.push(began.elapsed());
            ended.map_err(|source| ToolError::Start { program: program.display().to_string(), source })?;
        }
    }
    println!("{:<40} {:>8} {:>8} {:>8} {:>8}", "command", "min ms", "median", "max", "MiB");
    let mut wrong = Vec::new();
    for (text, mut spans) in COMMANDS.iter().zip(spans) {
        spans.sort_unstable();
        let millis = |span: Option<&Duration>| span.map_or(0.0, |span| span.as_secs_f64() * 1e3);
        let median = spans.get(spans.len() / 2).copied().unwrap_or_default();
        let kib = memory(&time, &program, &words(text))?;
        #[expect(clippy::cast_precision_loss, reason = "mebibytes with a digit")]
        let mib = kib as f64 / 1024.0;
        println!(
            "{text:<40} {:>8.1} {:>8.1} {:>8.1} {mib:>8.1}",
            millis(spans.first()),
            millis(Some(&median)),
            millis(spans.last())
        );
        if median > LIMIT || kib > MOST_KIB {
            wrong.push(format!("{text} ({:.1} ms, {mib:.1} MiB)", millis(Some(&median))));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(StartupError::TooMuch(wrong)) }
}

/// The largest resident set, in KiB.
fn memory(time: &Path, program: &Path, words: &[String]) -> Result<u64, ToolError> {
    let ended = Command::new(time)
        .args(["--quiet", "--format", "%M"])
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|source| ToolError::Start { program: time.display().to_string(), source })?;
    // The program may have said something before.
    let said = String::from_utf8_lossy(&ended.stderr);
    Ok(said.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or(u64::MAX))
}
