//! The program of the other simulator for `sim clos`: one process for each run.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fpga_netsim::Flow;
use fpga_netsim::clos_table::{ClosRow, RowSample, htsim};

use crate::error::CliError;

/// Time between two checks of a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of characters of a failed program's standard error that an error shows.
const MAX_SHOWN: usize = 400;

/// CPU time of the child processes that have ended.
pub(super) fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc_pid_stat(5): cutime and cstime are the fields 16 and 17; field 2, the name in parentheses, may contain spaces.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 1000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Child process that does not outlive its use.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Program of the other simulator.
#[derive(Debug)]
pub(super) struct Htsim<'a> {
    pub(super) program: &'a Path,
    /// Maximum wall-clock time of a run.
    pub(super) timeout: Duration,
}

impl Htsim<'_> {
    /// Runs the program once and reads its results. An error of `check` ends it.
    pub(super) fn run(
        &self,
        row: &ClosRow,
        flows: &[Flow],
        seed: u64,
        check: &dyn Fn() -> Result<(), CliError>,
    ) -> Result<RowSample, CliError> {
        let temporary = |source| CliError::file(&std::env::temp_dir(), "create a folder there", source);
        let folder = tempfile::tempdir().map_err(temporary)?;
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [(htsim::MATRIX, htsim::matrix(flows)), (htsim::TOPOLOGY, htsim::topology(row))] {
            fs::write(path(name), text).map_err(|source| CliError::file(&path(name), "write it", source))?;
        }
        let create =
            |name| File::create(path(name)).map_err(|source| CliError::file(&path(name), "write it", source));
        let arguments = htsim::arguments(row, seed);
        let command = format!("{} {}", self.program.display(), arguments.join(" "));
        let failed = |problem: String| CliError::failed(format!("{command}: {problem}"));
        // The program's working directory is the folder.
        let program = self.program.canonicalize().map_err(|source| failed(source.to_string()))?;
        let child = Command::new(program)
            .args(&arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(create("stdout")?)
            .stderr(create("stderr")?)
            .spawn()
            .map_err(|source| failed(format!("cannot be started: {source}")))?;
        let mut running = Running(child);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = running.0.try_wait().map_err(|source| failed(source.to_string()))? {
                break status;
            }
            check()?;
            if begun.elapsed() > self.timeout {
                return Err(failed(format!("not ended after {:?} (--htsim-timeout)", self.timeout)));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        let read = |name| {
            fs::read(path(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        if !status.success() {
            let stderr = read("stderr");
            let shown: String = stderr.trim().chars().take(MAX_SHOWN).collect();
            return Err(failed(format!("{status}{}{shown}", if shown.is_empty() { "" } else { ": " })));
        }
        htsim::results(flows, &read("stdout")).ok_or_else(|| {
            failed(format!("{status}, but its output has no line \"New: N Rtx: N\", or an invalid one"))
        })
    }
}
