//! The two programs: building the peer, and one run of either.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fpga_process::{ChildGuard, ToolError};

use super::record::RecordError;

/// Time limit of a run; runs of some seconds each are the rule.
const LIMIT: Duration = Duration::from_secs(60);

/// Reasons why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// DPDK is missing.
    #[error(
        "the peer needs DPDK with its software DMA device, a C compiler and pkg-config, and `{missing}` fails: \
         apt-get install gcc pkg-config libdpdk-dev librte-dma-skeleton23 (Debian, Ubuntu; the number follows DPDK's version), or omit --peer"
    )]
    NoDpdk { missing: &'static str },
    /// The program of the release profile was not built.
    #[error("{} does not exist: build it with `cargo build --release -p fpgactl`, or name a program with --fpgactl FILE", path.display())]
    NotBuilt { path: PathBuf },
    #[error(
        "this process may use one CPU only, but the submitting and the copying thread need one each: allow it two CPUs"
    )]
    OneCpu,
    /// A program did not start, failed or does not end.
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(
        "{command} did not end within {LIMIT:?}: the machine is under load, or the threads block each other"
    )]
    Late { command: String },
    #[error("{command} failed: {said}")]
    Failed { command: String, said: String },
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(
        "figures out of bounds: {0}, see above; bounds are about a third of the goals: find the change that costs speed, or check again on an \
         idle machine"
    )]
    OutOfBounds(usize),
}

/// Program, ready to run.
#[derive(Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// Takes an existing program.
    pub(crate) fn existing(path: &Path) -> Result<Self, BenchError> {
        if path.is_file() {
            Ok(Self(path.to_owned()))
        } else {
            Err(BenchError::NotBuilt { path: path.to_owned() })
        }
    }

    /// Builds the peer in `target/bench`.
    pub(crate) fn peer(root: &Path) -> Result<Self, BenchError> {
        let missing = |missing| move |_| BenchError::NoDpdk { missing };
        let mut flags = Command::new("pkg-config");
        flags.args(["--cflags", "--libs", "libdpdk"]);
        let flags = output(flags).map_err(missing("pkg-config --cflags --libs libdpdk"))?;
        let program = root.join("target/bench/dmadev_skeleton");
        let mut compiler = Command::new("sh");
        compiler.args([
            "-c",
            "mkdir -p \"${1%/*}\" && gcc -O3 -march=native -DALLOW_EXPERIMENTAL_API \"$2\" -o \"$1\" $3",
            "sh",
        ]);
        compiler.arg(&program).arg(root.join("tools/bench/peer/dmadev_skeleton.c"));
        compiler.arg(String::from_utf8_lossy(&flags).trim());
        output(compiler)?;
        Ok(Self(program))
    }

    /// Command of `dma bench` with a simulated card.
    pub(crate) fn bench(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--json", "--card", "mock", "dma", "bench"]).args(args);
        command
    }

    /// The same on one CPU alone.
    pub(crate) fn bench_on_one_cpu(&self, args: &[&str]) -> Command {
        let bench = self.bench(args);
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(bench.get_program()).args(bench.get_args());
        command
    }

    /// Command of the peer. The device binds its own thread to its CPU; -l binds the submitting one.
    pub(crate) fn dpdk(&self, host: usize, card: usize, args: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command
            .args([
                "--no-huge",
                "-m",
                "256",
                "--iova-mode=va",
                "--no-pci",
                "--no-shconf",
                "--no-telemetry",
                "--log-level=error",
            ])
            .args(["-l", &host.to_string(), &format!("--vdev=dma_skeleton0,lcore={card}"), "--"])
            .args(args);
        command
    }
}

/// Command line, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs a program to its end, or until the time limit, and returns its output, which has to fit into a pipe's buffer.
pub(crate) fn output(command: Command) -> Result<Vec<u8>, BenchError> {
    let mut child = ChildGuard::spawn("measured program", &command)?;
    match child.wait(LIMIT)? {
        None => Err(BenchError::Late { command: shown(&command) }),
        Some(status) if status.success() => {
            let mut text = Vec::new();
            if let Some(stdout) = &mut child.parts().stdout {
                let failed = |source| ToolError::Watch { program: shown(&command), source };
                stdout.read_to_end(&mut text).map_err(failed)?;
            }
            Ok(text)
        }
        Some(status) => Err(BenchError::Failed {
            command: shown(&command),
            said: format!("{status}: {}", child.stderr_text().trim()),
        }),
    }
}
