//! One program of the run: `fpgactl stream`, its output, and its end.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of polls for the end of a program after the request: a minute, not counting times in which the machine is suspended.
const MAX_POLLS: u32 = 12_000;
/// Minimum length of a pause between two reports, which are due every 20 ms.
const PAUSE: Duration = Duration::from_millis(100);

/// Running program; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// Last report, shared with the reading thread.
    last: Arc<Mutex<Value>>,
    pauses: Arc<Mutex<Pauses>>,
    /// Whether its publisher was killed when it seemed not to have found it yet: it continues with the next one, or detects the loss.
    pub(crate) is_orphan: bool,
    ears: Vec<JoinHandle<String>>,
}

/// Times in which a program did not report every few milliseconds: it was stopped, or the machine did not schedule it.
#[derive(Debug)]
struct Pauses {
    /// Time of the last report; the first one has no due time.
    heard: Option<Instant>,
    /// Time at which its output ended: between its last report and this time it reported nothing either.
    ended: Option<Instant>,
    found: Vec<(Instant, Duration)>,
}

impl Pauses {
    fn heard(&mut self, now: Instant) {
        let pause = self.heard.map_or(Duration::ZERO, |heard| now.saturating_duration_since(heard));
        if pause >= PAUSE {
            self.found.push((now, pause));
        }
        self.heard = Some(now);
    }

    fn ended(&mut self, now: Instant) {
        if self.heard.is_some() {
            self.heard(now);
        }
        self.ended = Some(now);
    }

    /// Sum of the pauses within the last `span` before `until`.
    fn within(&self, until: Instant, span: Duration) -> Duration {
        let Some(heard) = self.heard else { return span };
        let since = until.checked_sub(span).unwrap_or(until);
        let last = (until, until.saturating_duration_since(heard));
        let pauses = self.found.iter().copied().chain((last.1 >= PAUSE).then_some(last));
        // A pause counts with its part between `since` and `until`.
        pauses
            .map(|(end, pause)| {
                let start = end.checked_sub(pause).unwrap_or(end);
                end.min(until).saturating_duration_since(start.max(since))
            })
            .sum()
    }
}

/// Result of a program.
#[derive(Debug)]
pub(crate) struct ProgramResult {
    /// Exit status; `None`: a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) report: Value,
    pub(crate) said: String,
    pub(crate) is_orphan: bool,
    pauses: Arc<Mutex<Pauses>>,
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
        let pauses = Arc::new(Mutex::new(Pauses { heard: None, ended: None, found: Vec::new() }));
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (kept, heard) = (Arc::clone(&last), Arc::clone(&pauses));
        let reports = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // After a kill in the middle of a write, the last line may be incomplete.
                heard.lock().unwrap().heard(Instant::now());
                if let Some(report) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) {
                    *kept.lock().unwrap() = report;
                }
            }
            heard.lock().unwrap().ended(Instant::now());
            String::new()
        });
        let complaints = std::thread::spawn(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            said
        });
        Self { child, last, pauses, is_orphan: false, ears: vec![reports, complaints] }
    }

    /// Time within the `span` before `until` in which its reports were overdue.
    pub(crate) fn paused(&self, until: Instant, span: Duration) -> Duration {
        self.pauses.lock().unwrap().within(until, span)
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
        ProgramResult { status, report, said, is_orphan: self.is_orphan, pauses: Arc::clone(&self.pauses) }
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
    /// Time at which its output ended.
    pub(crate) fn ended_at(&self) -> Instant {
        let pauses = self.pauses.lock().unwrap();
        pauses.ended.unwrap_or_else(Instant::now)
    }

    /// Time within the `span` before `until` in which its reports were overdue.
    pub(crate) fn paused(&self, until: Instant, span: Duration) -> Duration {
        self.pauses.lock().unwrap().within(until, span)
    }

    pub(crate) fn count(&self, key: &str) -> u64 {
        self.report[key].as_u64().unwrap_or(0)
    }
}

#[test]
fn pauses_count_within_window_only() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut pauses = Pauses { heard: None, ended: None, found: Vec::new() };
    for heard in [0, 20, 1020, 1040, 1060] {
        pauses.heard(at(heard));
    }
    let within = |until, span| pauses.within(at(until), Duration::from_millis(span)).as_millis();
    assert_eq!(within(1060, 3000), 1000);
    assert_eq!(within(1060, 540), 500);
    assert_eq!(within(520, 3000), 500, "a pause that lasts longer");
    assert_eq!(within(1260, 3000), 1200, "no report since the last one");
}
