//! One program of the run: `fpgactl stream`, its output, and its end.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of polls for the end of a program after the request: five minutes, not counting times in which the machine is suspended.
const MAX_POLLS: u32 = 60_000;

/// Running program; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// Last report, shared with the reading thread.
    last: Arc<Mutex<Value>>,
    /// Whether its publisher was killed when it seemed not to have found it yet: it continues with the next one, or detects the loss.
    pub(crate) is_orphan: bool,
    ears: Vec<JoinHandle<String>>,
}

/// Result of a program.
#[derive(Debug)]
pub(crate) struct ProgramResult {
    /// Exit status; `None`: a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) report: Value,
    pub(crate) said: String,
    pub(crate) is_orphan: bool,
}

impl Program {
    pub(crate) fn start(args: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        // It ends by itself if this test is killed.
        command.args(["--json", "--no-progress", "--timeout", "3h", "stream"]).args(args);
        command.env_remove("RUST_LOG");
        // Ctrl-C goes to the test only, which ends the programs normally.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let last = Arc::new(Mutex::new(Value::Null));
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let kept = Arc::clone(&last);
        let reports = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // After a kill in the middle of a write, the last line may be incomplete.
                if let Some(report) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) {
                    *kept.lock().unwrap() = report;
                }
            }
            String::new()
        });
        let complaints = std::thread::spawn(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            said
        });
        Self { child, last, is_orphan: false, ears: vec![reports, complaints] }
    }

    /// Number in its last report.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.last.lock().unwrap()[key].as_u64().unwrap_or(0)
    }

    /// Waits until it has reported: before that it may not handle signals yet.
    pub(crate) fn reported(&mut self) {
        let mut polls = 0;
        // Lines have no due time; no other program is waited for meanwhile.
        while self.last.lock().unwrap().is_null() && self.is_running() {
            polls += 1;
            assert!(polls < MAX_POLLS, "the program does not report");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Whether it runs, and its last report.
    pub(crate) fn state(&mut self) -> (bool, Value) {
        (self.is_running(), self.last.lock().unwrap().clone())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Its process id is not reused before it is waited for.
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = kill_process(pid, signal);
    }

    /// Waits until it has ended, up to the timeout.
    pub(crate) fn ended(mut self) -> ProgramResult {
        let mut polls = 0;
        // The end of a child is detected only by polling.
        while self.is_running() {
            polls += 1;
            if polls >= MAX_POLLS {
                let last = self.last.lock().unwrap().clone();
                self.signal(Signal::KILL);
                let said = self.said();
                panic!("it does not end: {last}; {said}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let status = self.child.wait().unwrap().code();
        let said = self.said();
        let report = self.last.lock().unwrap().clone();
        ProgramResult { status, report, said, is_orphan: self.is_orphan }
    }

    fn said(&mut self) -> String {
        self.ears.drain(..).map(|ear| ear.join().unwrap()).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ProgramResult {
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.report[key].as_u64().unwrap_or(0)
    }
}
