//! One guest from its start to its end.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::cache::{CacheError, at};
use super::initramfs::{self, Contents, InitramfsError};
use super::kernel::Bootable;
use super::lines::lines_of;
use super::machine::{self, Files};
use super::plan::{Device, Job, Step};
use super::protocol::{GuestLine, Request};
use super::qemu::Qemu;
use super::qmp::{Qmp, QmpError};
use super::report::{GuestReport, Row, Status, Verdict, judge};
use super::served::{END_TIMEOUT, RTL_VARIABLE, ServeError, Served, serve, serve_rtl};
use fpga_process::{ChildGuard, ToolError, tail};

/// Timeout for a machine to end after the first one of its guest.
const MACHINE_ENDS: Duration = Duration::from_secs(30);
/// Time between two polls of the stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Text in the console line with which a kernel ends.
const PANIC: &str = "Kernel panic";
/// Number of lines of a guest's console that are shown after a failure.
const CONSOLE_TAIL_LINES: usize = 40;

/// Reasons why a guest did not reach its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] CacheError),
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// Its file system could not be built.
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    /// The emulator's control socket failed.
    #[error(transparent)]
    Control(#[from] QmpError),
    /// A card is not served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A pipe to a process is missing.
    #[error("a process has no {0}")]
    Pipe(&'static str),
    /// A time limit was exceeded.
    #[error("timeout after {} s ({})", limit.as_secs(), if doing.is_empty() { "the guest did not boot" } else { doing })]
    Slow { limit: Duration, doing: String },
    /// The emulator ended before its guest was done.
    #[error("the emulator exited during {doing}: {said}")]
    Ended { doing: String, said: String },
    /// Another machine has ended.
    #[error("the other machine ended {} s ago (during {doing})", MACHINE_ENDS.as_secs())]
    OtherEnded { doing: String },
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

/// Parts that all guests share.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) contents: Contents<'a>,
    /// `fpgactl`, which serves cards.
    pub(crate) server: &'a Path,
    pub(crate) root: &'a Path,
    /// Set to request a stop.
    pub(crate) stop: &'a AtomicBool,
    /// Whether to report each step on standard error.
    pub(crate) verbose: bool,
}

/// Runs a guest, with all its files in `folder`. A kernel that ends before the guest's first program is started once more, and reported: on
/// a busy host an emulated machine is sometimes too slow for the kernel's checks of timers.
pub(crate) fn run(parts: &Parts<'_>, kernel: &Bootable, job: &Job, folder: &Path) -> GuestReport {
    let report = run_once(parts, kernel, job, folder);
    let Some(reason) = &report.boot_failure else { return report };
    eprintln!("guest {}: the kernel did not boot ({reason}); it is started again", job.guest.name);
    let mut again = run_once(parts, kernel, job, &folder.join("2"));
    let message = format!("started twice; the first kernel did not boot: {reason}");
    let (name, costs) = ("boot".to_owned(), Vec::new());
    again.rows.insert(0, Row { name, status: Status::Warn, seconds: report.seconds, message, costs });
    again
}

fn run_once(parts: &Parts<'_>, kernel: &Bootable, job: &Job, folder: &Path) -> GuestReport {
    let first_end = OnceLock::new();
    if job.guest.machines == 1 {
        return run_machine(parts, kernel, job, &Files::in_folder(folder), &first_end);
    }
    // The processes of a machine end with the thread that started them.
    let began = Instant::now();
    let one = |number| {
        let files = Files::of_pair(folder, number);
        let report = run_machine(parts, kernel, &job.of_machine(number), &files, &first_end);
        first_end.get_or_init(Instant::now);
        report
    };
    let reports: Vec<GuestReport> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..job.guest.machines).map(|number| scope.spawn(move || one(number))).collect();
        // Propagates a panic of a thread.
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect()
    });
    let mut report = GuestReport::new(&job.guest, kernel);
    for (number, machine) in reports.into_iter().enumerate() {
        report.join(number, machine);
    }
    report.seconds = began.elapsed().as_secs_f64();
    report
}

/// Runs one machine. `first_end`: end of the first machine of the guest.
fn run_machine(
    parts: &Parts<'_>,
    kernel: &Bootable,
    job: &Job,
    files: &Files,
    first_end: &OnceLock<Instant>,
) -> GuestReport {
    let began = Instant::now();
    let mut report = GuestReport::new(&job.guest, kernel);
    let mut cards = Vec::new();
    let outcome = boot(parts, kernel, job, files, first_end, &mut cards, &mut report);
    for (number, card) in cards.iter_mut().flatten().enumerate() {
        match card.finish() {
            Ok(statistics) => report.cards.push(statistics),
            // The first reason counts.
            Err(error) if outcome.is_ok() => report.error = Some(format!("card {number}: {error}")),
            Err(_) => {}
        }
    }
    let console = || {
        let console = fs::read(files.console()).unwrap_or_default();
        String::from_utf8_lossy(&console).replace('\r', "")
    };
    if let Err(error) = outcome {
        if matches!(error, RunError::Ended { .. }) && report.release.is_empty() {
            let panic = console().lines().find(|line| line.contains(PANIC)).map(ToOwned::to_owned);
            report.boot_failure = Some(panic.unwrap_or_else(|| error.to_string()));
        }
        report.error = Some(error.to_string());
    }
    report.close(job);
    report.compare_with_cards();
    if report.verdict() == Verdict::Failed {
        report.console = tail(&console(), CONSOLE_TAIL_LINES);
        for card in cards.iter_mut().flatten() {
            report.console.push_str(&format!(
                "\nstandard error of the card's process:\n{}",
                tail(&card.process.stderr_text(), CONSOLE_TAIL_LINES)
            ));
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    report
}

fn boot(
    parts: &Parts<'_>,
    kernel: &Bootable,
    job: &Job,
    files: &Files,
    first_end: &OnceLock<Instant>,
    cards: &mut Vec<Option<Served>>,
    report: &mut GuestReport,
) -> Result<(), RunError> {
    fs::create_dir_all(files.folder()).map_err(at("make", files.folder()))?;
    for (number, device) in job.guest.devices.iter().enumerate() {
        cards.push(match device {
            Device::Card { file, rtl, .. } => {
                let model = std::env::var_os(RTL_VARIABLE).filter(|_| *rtl);
                Some(match model {
                    Some(model) => serve_rtl(parts.server, files, number, &model)?,
                    None => serve(parts.server, parts.root, files, number, file.as_deref())?,
                })
            }
            Device::Emulated { .. } => None,
        });
    }
    let addresses = machine::addresses(&job.guest.devices);
    let initramfs = initramfs::build(parts.contents, kernel, job, files.number, &addresses)?;
    let path = files.initramfs();
    fs::write(&path, initramfs).map_err(at("write", &path))?;

    let mut emulator = ChildGuard::spawn("QEMU", &machine::command(parts.qemu, kernel, &job.guest, files))?;
    let lines = lines_of(emulator.parts().stdout.take().ok_or(RunError::Pipe("standard output"))?);
    let answers = emulator.parts().stdin.take().ok_or(RunError::Pipe("standard input"))?;
    let (doing, began) = (String::new(), None);
    let mut guest = Conversation { parts, job, files, first_end, cards, answers, doing, began };
    let talked = guest.until_done(&lines, &mut emulator, report);
    drop(guest);
    // A guest that is done powers off; any other is stopped here.
    let limit = if talked.is_ok() { END_TIMEOUT } else { Duration::ZERO };
    if emulator.wait(limit)?.is_none() {
        emulator.end(END_TIMEOUT)?;
    }
    talked
}

/// Conversation between a guest and the test bed.
struct Conversation<'a, 'b> {
    parts: &'a Parts<'b>,
    job: &'a Job,
    files: &'a Files,
    first_end: &'a OnceLock<Instant>,
    cards: &'a [Option<Served>],
    answers: std::process::ChildStdin,
    /// Current step.
    doing: String,
    began: Option<Instant>,
}

impl Conversation<'_, '_> {
    fn until_done(
        &mut self,
        lines: &Receiver<String>,
        emulator: &mut ChildGuard,
        report: &mut GuestReport,
    ) -> Result<(), RunError> {
        let limit = Duration::from_secs(self.job.guest.seconds);
        let started = Instant::now();
        loop {
            if self.parts.stop.load(Ordering::Relaxed) {
                return Err(RunError::Stopped);
            }
            if self.first_end.get().is_some_and(|end| end.elapsed() >= MACHINE_ENDS) {
                return Err(RunError::OtherEnded { doing: self.doing.clone() });
            }
            if started.elapsed() >= limit {
                return Err(RunError::Slow { limit, doing: self.doing.clone() });
            }
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok(line) => {
                    if self.read_line(&line, report)? {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    emulator.end(END_TIMEOUT)?;
                    let doing =
                        if self.doing.is_empty() { "the boot".to_owned() } else { self.doing.clone() };
                    return Err(RunError::Ended { doing, said: emulator.stderr_text() });
                }
            }
        }
    }

    /// Processes one line. Returns whether the guest is done.
    fn read_line(&mut self, line: &str, report: &mut GuestReport) -> Result<bool, RunError> {
        // Any other line comes from the firmware or a crashed kernel: the console contains it, too.
        let Ok(message) = serde_json::from_str::<GuestLine>(line) else { return Ok(false) };
        match message {
            GuestLine::Boot { kernel } => report.release = kernel,
            GuestLine::Begin { step } => {
                self.doing = step;
                self.began = Some(Instant::now());
            }
            GuestLine::End { step, status, stdout, stderr } => {
                let seconds = self.began.take().map_or(0.0, |began| began.elapsed().as_secs_f64());
                if let Some(planned) = self.job.steps.iter().find(|planned| planned.name == step) {
                    self.note(planned, status, &stdout.0, &stderr.0, seconds, report);
                }
            }
            GuestLine::Ask { what } => {
                let answer = match self.execute_request(&what.0) {
                    Ok(said) => format!("ok {}", said.replace(['\n', '\r'], " ")),
                    Err(reason) => reason.replace(['\n', '\r'], " "),
                };
                self.answer(&answer)?;
            }
            GuestLine::Done => {
                self.answer("off")?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn note(
        &self,
        step: &Step,
        status: i32,
        stdout: &str,
        stderr: &str,
        seconds: f64,
        report: &mut GuestReport,
    ) {
        let rows = judge(step, status, stdout, stderr, seconds);
        for row in &rows {
            if self.parts.verbose || row.status == Status::Fail {
                eprintln!("  {}: {row}", self.job.guest.name);
            }
        }
        report.rows.extend(rows);
    }

    fn answer(&mut self, line: &str) -> Result<(), RunError> {
        let sent = self.answers.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.answers.flush());
        sent.map_err(|error| RunError::Ended { doing: self.doing.clone(), said: error.to_string() })
    }

    /// Performs the request of a step. Returns its output.
    fn execute_request(&mut self, what: &str) -> Result<String, String> {
        let request = Request::parse(what).ok_or_else(|| format!("unknown request \"{what}\""))?;
        match request {
            Request::Unplug(device) => {
                let done = self.emulator()?.unplug(&device);
                done.map(|()| String::new()).map_err(|error| error.to_string())
            }
            Request::Monitor(line) => self.monitor(&line),
            // The port reports a poisoned packet: uncorrectable, and not fatal to the link.
            Request::BusError(number) => {
                self.monitor(&format!("pcie_aer_inject_error port{number} POISON_TLP"))
            }
            Request::Control(number, request) => self.card(number)?.ask(&request),
        }
    }

    fn emulator(&self) -> Result<Qmp, String> {
        Qmp::connect(&self.files.control()).map_err(|error| error.to_string())
    }

    fn monitor(&self, line: &str) -> Result<String, String> {
        let printed = self.emulator()?.monitor(line).map_err(|error| error.to_string())?;
        // The monitor answers with text, whether it succeeded or not.
        if self.parts.verbose && !printed.is_empty() {
            eprintln!("  {}: monitor: {printed}", self.job.guest.name);
        }
        if printed.to_ascii_lowercase().contains("error") { Err(printed) } else { Ok(printed) }
    }

    fn card(&self, number: usize) -> Result<&Served, String> {
        let card = self.cards.get(number).and_then(Option::as_ref);
        card.ok_or_else(|| format!("card {number} does not exist or is not served"))
    }
}

impl Row {
    /// Report for a guest that ended before its steps did.
    pub(crate) fn not_run(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            status: Status::Fail,
            seconds: 0.0,
            message: "not run".to_owned(),
            costs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::super::programs::Programs;
    use super::*;

    /// Emulator of a kernel that ends in its first $1 boots. $0: a folder.
    const EMULATOR: &str = r#"
        echo boot >>"$0/boots"
        for option; do
            case $option in file,id=console,path=*) console=${option#*path=} ;; esac
        done
        if [ "$(wc -l <"$0/boots")" -le "$1" ]; then
            echo "[    1.0] Kernel panic - not syncing: the timer does not work" >"$console"
            exit
        fi
        echo '{"event":"boot","kernel":"6.12"}'
        echo '{"event":"end","step":"refused","status":1,"stdout":"","stderr":""}'
        echo '{"event":"done"}'
        read -r answer
    "#;

    fn run_with(failed_boots: u32) -> GuestReport {
        let mut job =
            Plan::load().unwrap().jobs(&["iommu-off".to_owned()], false, None, &[]).unwrap().remove(0);
        job.guest.devices.clear();
        job.steps.retain(|step| step.name == "refused");
        job.steps[0].says.clear();
        let folder = tempfile::tempdir().unwrap();
        let (image, busybox) = (folder.path().join("kernel"), folder.path().join("busybox"));
        fs::write(&busybox, "").unwrap();
        let arguments = ["-c".into(), EMULATOR.into(), folder.path().into(), failed_boots.to_string().into()];
        let parts = Parts {
            qemu: &Qemu::substitute("sh", arguments.into()),
            contents: Contents {
                busybox: &busybox,
                programs: &Programs { paths: Vec::new(), libraries: Vec::new() },
                vendor: &Vec::new(),
                mpi: &Vec::new(),
            },
            server: Path::new("none"),
            root: Path::new("none"),
            stop: &AtomicBool::new(false),
            verbose: false,
        };
        let kernel = Bootable { image, modules: None, version: "6.12".to_owned() };
        run(&parts, &kernel, &job, &folder.path().join("guest"))
    }

    #[test]
    fn failed_boot_is_repeated_once_and_named() {
        let report = run_with(0);
        assert_eq!((report.verdict(), report.rows.len()), (Verdict::Passed, 1), "{report:?}");
        let report = run_with(1);
        assert_eq!((report.verdict(), report.rows[0].status), (Verdict::Passed, Status::Warn), "{report:?}");
        assert!(report.rows[0].message.contains("the timer does not work"), "{report:?}");
        let report = run_with(2);
        assert_eq!((report.verdict(), report.rows[0].status), (Verdict::Failed, Status::Warn), "{report:?}");
    }
}
