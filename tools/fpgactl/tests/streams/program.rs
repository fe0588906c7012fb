//! One program of the run: `fpgactl stream`, what it says, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Whoever was asked to end has ended by then.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// A running program; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// Its last report.
    last: Arc<Mutex<Value>>,
    ears: Vec<JoinHandle<String>>,
}

/// What a program has left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None`: a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) report: Value,
    pub(crate) said: String,
}

impl Program {
    pub(crate) fn start(args: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        // It ends by itself should this one be killed.
        command.args(["--json", "--no-progress", "--timeout", "3h", "stream"]).args(args);
        command.env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let last = Arc::new(Mutex::new(Value::Null));
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let kept = Arc::clone(&last);
        let reports = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // Of one that was killed in the middle of it, the last line may be a part.
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
        Self { child, last, ears: vec![reports, complaints] }
    }

    /// A number of its last report.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.last.lock().unwrap()[key].as_u64().unwrap_or(0)
    }

    /// Waits until it has reported, which is due: before that it may not have got to where a signal finds it.
    pub(crate) fn reported(&mut self) {
        let limit = Instant::now() + PATIENCE;
        // Lines come when they come; nobody else is waited for meanwhile.
        while self.last.lock().unwrap().is_null() && self.is_running() {
            assert!(Instant::now() < limit, "it does not begin");
            std::thread::sleep(LOOK);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Its id is not given away before it is waited for.
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = kill_process(pid, signal);
    }

    /// Waits until it has ended, which is due.
    pub(crate) fn ended(mut self) -> Ended {
        let limit = Instant::now() + PATIENCE;
        // Nobody tells of a child's end but the system, when it is asked.
        while self.is_running() {
            if Instant::now() >= limit {
                let last = self.last.lock().unwrap().clone();
                self.signal(Signal::KILL);
                let said = self.said();
                panic!("it does not end: {last}; {said}");
            }
            std::thread::sleep(LOOK);
        }
        let status = self.child.wait().unwrap().code();
        let said = self.said();
        let report = self.last.lock().unwrap().clone();
        Ended { status, report, said }
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

impl Ended {
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.report[key].as_u64().unwrap_or(0)
    }
}
