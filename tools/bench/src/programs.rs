//! The two programs: building them, and one run of each.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::cells::{Cell, Setting};
use super::record::{CopyChoice, Record, RecordError, ResultRow, copy_choices, rows};

/// Time limit of a run: the maximum duration that can be requested, plus the same for setup.
const LIMIT: Duration = Duration::from_secs(180);
/// Time between two polls of a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reasons why a program could not be built or run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// DPDK is missing.
    #[error(
        "the peer needs DPDK with its software DMA device, a C compiler and pkg-config, and `{missing}` fails: \
         apt-get install gcc pkg-config libdpdk-dev librte-dma-skeleton23 (Debian, Ubuntu; the number follows DPDK's version), or omit --peer"
    )]
    NoDpdk { missing: &'static str },
    /// A program did not build.
    #[error("{what} does not build: {reason}")]
    Build { what: &'static str, reason: String },
    /// The program of the release profile was not built.
    #[error(
        "{} does not exist: build it with `cargo build --release -p fpgactl`, or name a program with --fpgactl FILE",
        path.display()
    )]
    NotBuilt { path: PathBuf },
    /// A program did not start or failed.
    #[error("{what} failed: {reason}")]
    Failed { what: String, reason: String },
    /// The printed output cannot be used.
    #[error("{what}: {source}")]
    Record { what: String, source: RecordError },
}

/// Peer program, ready to run.
#[derive(Debug)]
pub(crate) struct Peer {
    program: PathBuf,
    pub(crate) dpdk: String,
}

fn output_of(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Compiler flags of the peer.
pub(crate) const PEER_FLAGS: [&str; 3] = ["-O3", "-march=native", "-DALLOW_EXPERIMENTAL_API"];

impl Peer {
    /// Builds the peer below `scratch`.
    pub(crate) fn build(root: &Path, scratch: &Path) -> Result<Self, ProgramError> {
        let missing = |missing| ProgramError::NoDpdk { missing };
        let dpdk = output_of("pkg-config", &["--modversion", "libdpdk"])
            .ok_or_else(|| missing("pkg-config --modversion libdpdk"))?;
        let flags = output_of("pkg-config", &["--cflags", "--libs", "libdpdk"])
            .ok_or_else(|| missing("pkg-config --cflags --libs libdpdk"))?;
        let failed = |reason: String| ProgramError::Build { what: "the peer", reason };
        std::fs::create_dir_all(scratch)
            .map_err(|error| failed(format!("{}: {error}", scratch.display())))?;
        let program = scratch.join("dmadev_skeleton");
        let output = Command::new("gcc")
            .args(PEER_FLAGS)
            .arg(root.join("tools/bench/peer/dmadev_skeleton.c"))
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .output()
            .map_err(|_| missing("gcc"))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(Self { program, dpdk })
    }

    pub(crate) fn run(
        &self,
        setting: &Setting,
        cell: &Cell,
        amount: &Amount,
    ) -> Result<Record, ProgramError> {
        let [host, card] = setting.cpus;
        let mut command = Command::new(&self.program);
        // The device binds its own thread to its CPU; -l binds this one.
        command
            .args(["--no-huge", "-m", "256", "--iova-mode=va", "--no-pci", "--no-shconf", "--no-telemetry"])
            .args([
                "--log-level=error",
                "-l",
                &host.to_string(),
                &format!("--vdev=dma_skeleton0,lcore={card}"),
            ])
            .arg("--")
            .args(["--depth", &setting.depth.to_string(), "--size", &cell.size.to_string()])
            .args(amount.args());
        record("the peer", &mut command, Record::of_peer)
    }
}

/// Amount of work of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Amount {
    /// Duration of the throughput run in seconds.
    pub(crate) seconds: f64,
    /// Number of operations whose latency is measured.
    pub(crate) samples: u64,
    /// Number of batches whose CPU time is measured.
    pub(crate) batches: u64,
}

impl Amount {
    /// Command-line options for both programs.
    fn args(&self) -> [String; 6] {
        let Self { seconds, samples, batches } = self;
        let of = |name: &str, value: &dyn ToString| [format!("--{name}"), value.to_string()];
        let [[a, b], [c, d], [e, f]] =
            [of("seconds", seconds), of("samples", samples), of("batches", batches)];
        [a, b, c, d, e, f]
    }
}

/// Words before the options of `dma bench` with a simulated card.
const BENCH: [&str; 5] = ["--json", "--card", "mock", "dma", "bench"];

/// This project's program, ready to run.
#[derive(Debug)]
pub(crate) struct DriverProgram {
    program: PathBuf,
}

/// Line of `cargo build --message-format=json` that names a program.
#[derive(Deserialize)]
struct Built {
    executable: Option<PathBuf>,
}

impl DriverProgram {
    /// Builds `fpgactl` in release mode.
    pub(crate) fn build(root: &Path) -> Result<Self, ProgramError> {
        let failed = |reason: String| ProgramError::Build { what: "fpgactl", reason };
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "-p", "fpgactl", "--message-format=json-render-diagnostics"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(output.status.to_string()));
        }
        match executable(&output.stdout) {
            Some(program) => Ok(Self { program }),
            None => Err(failed("the output of cargo names no program".to_owned())),
        }
    }

    /// Takes an existing program.
    pub(crate) fn existing(program: &Path) -> Result<Self, ProgramError> {
        if !program.is_file() {
            return Err(ProgramError::NotBuilt { path: program.to_owned() });
        }
        Ok(Self { program: program.to_owned() })
    }

    /// Command of `dma bench` with these options, on one CPU alone if `cpu` names it.
    pub(crate) fn bench_command(&self, cpu: Option<usize>, args: &[&str]) -> Command {
        let mut command = match cpu {
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &cpu.to_string()]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(BENCH).args(args);
        command
    }

    /// Runs `dma bench` with options that give one result.
    pub(crate) fn bench(&self, cpu: Option<usize>, args: &[&str]) -> Result<Record, ProgramError> {
        record("fpgactl", &mut self.bench_command(cpu, args), Record::of_ours)
    }

    /// Runs a command of [`DriverProgram::bench_command`], for at most `limit`.
    pub(crate) fn bench_rows(command: &mut Command, limit: Duration) -> Result<Vec<ResultRow>, ProgramError> {
        parsed("fpgactl", command, limit, rows)
    }

    /// Copy routines that the program chooses on this machine.
    pub(crate) fn copy_choices(&self) -> Result<Vec<CopyChoice>, ProgramError> {
        let args =
            ["--sizes", "64", "--direction", "h2c", "--seconds", "0.05", "--samples", "0", "--batches", "0"];
        parsed("fpgactl", &mut self.bench_command(None, &args), LIMIT, copy_choices)
    }

    /// One run of a pair.
    pub(crate) fn run(
        &self,
        setting: &Setting,
        cell: &Cell,
        amount: &Amount,
    ) -> Result<Record, ProgramError> {
        let [host, card] = setting.cpus;
        let mut command = Command::new(&self.program);
        command
            .args(BENCH)
            .args(["--mode", "poll", "--channels", "1"])
            .args(["--sizes", &cell.size.to_string(), "--direction", cell.direction.name()])
            .args(["--ring", cell.ring.name(), "--depth", &setting.depth.to_string()])
            .args(["--pin", &format!("{card},{host}")])
            .args(amount.args());
        record("fpgactl", &mut command, Record::of_ours)
    }
}

/// Last program that cargo built.
fn executable(messages: &[u8]) -> Option<PathBuf> {
    let lines = messages.split(|byte| *byte == b'\n');
    lines.rev().find_map(|line| serde_json::from_slice::<Built>(line).ok()?.executable)
}

fn record(
    name: &str,
    command: &mut Command,
    parse: fn(&[u8]) -> Result<Record, RecordError>,
) -> Result<Record, ProgramError> {
    parsed(name, command, LIMIT, parse)
}

fn parsed<T>(
    name: &str,
    command: &mut Command,
    limit: Duration,
    parse: fn(&[u8]) -> Result<T, RecordError>,
) -> Result<T, ProgramError> {
    let args: Vec<String> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let what = || format!("{name} ({})", args.join(" "));
    let Output { status, stdout, stderr } =
        output_within(command, limit).map_err(|reason| ProgramError::Failed { what: what(), reason })?;
    if !status.success() {
        let reason = format!("{status}: {}", String::from_utf8_lossy(&stderr).trim());
        return Err(ProgramError::Failed { what: what(), reason });
    }
    parse(&stdout).map_err(|source| ProgramError::Record { what: what(), source })
}

/// Runs a program to its end, or until the time limit. Its output has to fit into a pipe's buffer.
fn output_within(command: &mut Command, limit: Duration) -> Result<Output, String> {
    let failed = |error: std::io::Error| error.to_string();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let began = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if began.elapsed() >= limit {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(format!(
                "it did not end within {limit:?}: the machine is under load, or the threads block each other"
            ));
        }
        // Rare enough not to affect the measurement.
        std::thread::sleep(POLL_INTERVAL);
    }
    child.wait_with_output().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_not_ending_is_killed() {
        let error =
            output_within(Command::new("tail").args(["-f", "/dev/null"]), Duration::ZERO).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
    }

    #[test]
    fn cargo_output_names_built_program() {
        let messages = b"{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/x/fpgactl\"}\n{\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/x/fpgactl")));
        assert_eq!(executable(b"nonsense\n"), None);
    }
}
