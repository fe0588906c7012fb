//! Failures of one of two processes, of its card and of the system: the other process ends with an error that names the peer, nothing stays in
//! the folder of links, and the next job works.
//!
//! Times are upper limits only, for a busy machine.

use crate::exclusive::Exclusive;
use crate::shared::Served;
use crate::{Installed, compiled, has_sanitizer};
use fpga_pci::testing::skipped;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Maximum time until a process has printed a line or has ended.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Result of the program after a failure.
const FAILED: i32 = 3;
/// Rounds of a job without a failure.
const ROUNDS: &str = "256";
/// Variable with the path of the socket at which a child process of the test serves a card.
const SOCKET: &str = "FPGA_TEST_SOCKET";

/// Process of a job.
struct Rank {
    child: Child,
    lines: Receiver<String>,
    /// Lines that were read.
    text: String,
    warnings: PathBuf,
}

impl Rank {
    fn start(mut command: Command, warnings: PathBuf) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&warnings).unwrap());
        let mut child = command.spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, text: String::new(), warnings }
    }

    fn warnings(&self) -> String {
        std::fs::read_to_string(&self.warnings).unwrap()
    }

    /// Waits for a line, and returns what follows `start` in it.
    fn wait_for(&mut self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            assert!(line.is_ok(), "no line `{start}`: {line:?}\n{}{}", self.text, self.warnings());
            let line = line.unwrap();
            self.text += &format!("{line}\n");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    /// Waits for the number of a round after all lines that have been printed so far.
    fn wait_for_progress(&mut self) {
        while self.lines.try_recv().is_ok() {}
        self.wait_for("round ");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of the process, and returns its result and its last lines.
    fn end(&mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < TIMEOUT, "does not end\n{}{}", self.text, self.warnings());
            std::thread::sleep(Duration::from_millis(5));
        };
        let rest: Vec<String> = self.lines.iter().collect();
        (status.code(), rest.join("\n"))
    }

    /// Checks that the process ends with an error completion and a warning, both of which contain `text`.
    fn check_fails(&mut self, text: &str) {
        let (code, lines) = self.end();
        let warnings = self.warnings();
        assert!(code == Some(FAILED), "{code:?}\n{lines}\n{warnings}");
        let error = lines.lines().find(|line| line.starts_with("error "));
        assert!(error.is_some_and(|line| line.contains(text)), "{text}: {lines}\n{warnings}");
        assert_eq!(warnings.matches(text).count(), 1, "{text}: {warnings}");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The provider and the program.
struct Bench {
    installed: Installed,
    program: PathBuf,
}

impl Bench {
    /// `None` if libfabric is missing, or if a sanitizer makes processes too slow for their times.
    fn new() -> Option<Self> {
        if has_sanitizer() {
            return None;
        }
        let installed = Installed::new();
        let program = compiled("failures.c", installed.0.path())?;
        Some(Self { installed, program })
    }

    fn start(&self, arguments: &[&str], card: &str, give_up: &str) -> Rank {
        let mut command = Command::new(&self.program);
        self.installed.prepare(&mut command);
        command.args(arguments).env("FPGA_CARD", card).env("FPGA_GIVE_UP", give_up);
        let role = if arguments.first() == Some(&"first") { "first" } else { "second" };
        Rank::start(command, self.installed.0.path().join(format!("{role}.warnings")))
    }

    /// Starts two processes on a card each, and waits until they exchange messages. Returns them and their addresses.
    fn pair(&self, cards: [&str; 2], give_up: &str) -> ([Rank; 2], String) {
        let mut first = self.start(&["first"], cards[0], give_up);
        let address = first.wait_for("address ");
        let mut second = self.start(&[&address], cards[1], give_up);
        first.wait_for("round ");
        second.wait_for("round ");
        ([first, second], address)
    }

    /// Runs a job without a failure, after which no file of any process is left in the folder of links.
    fn check_next_job(&self, cards: [&str; 2]) {
        let mut first = self.start(&["first", ROUNDS], cards[0], "60");
        let address = first.wait_for("address ");
        let mut second = self.start(&[&address, ROUNDS], cards[1], "60");
        for rank in [&mut first, &mut second] {
            let (code, lines) = rank.end();
            assert!(code == Some(0) && lines.ends_with("ok"), "{code:?} {lines} {}", rank.warnings());
            assert_eq!(rank.warnings(), "");
        }
        // The owner of a shared card notices the end of a process later.
        let begun = Instant::now();
        while !links(&self.installed).is_empty() {
            assert!(begun.elapsed() < TIMEOUT, "{:?} are left", links(&self.installed));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Files in the folder of links besides its lock.
pub(crate) fn links(installed: &Installed) -> Vec<OsString> {
    let entries = std::fs::read_dir(installed.0.path().join("fpga-messages")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name()).filter(|name| name != "lock").collect()
}

const MOCKS: [&str; 2] = ["mock", "mock"];

#[test]
fn process_killed_fails_its_peer() {
    let Some(bench) = Bench::new() else { return };
    for killed in [0, 1] {
        // The peer notices it without this time.
        let ([first, second], address) = bench.pair(MOCKS, "3600");
        let (mut victim, mut other) = if killed == 0 { (first, second) } else { (second, first) };
        victim.kill();
        let text = if killed == 0 { &address } else { "fpga://127.0.0.1:" };
        other.check_fails(&format!("{text}{}", if killed == 0 { " does not answer" } else { "" }));
        assert_eq!(links(&bench.installed), Vec::<OsString>::new());
        bench.check_next_job(MOCKS);
    }
}

/// Both processes are killed: none can remove their files but those of the next job.
#[test]
fn processes_killed_leave_nothing_to_the_next_job() {
    let Some(bench) = Bench::new() else { return };
    let ([mut first, mut second], _) = bench.pair(MOCKS, "3600");
    first.signal("-STOP");
    second.kill();
    first.kill();
    assert_eq!(links(&bench.installed).len(), 2);
    bench.check_next_job(MOCKS);
}

#[test]
fn process_stopped_for_ever_fails_its_peer() {
    let Some(bench) = Bench::new() else { return };
    let ([mut first, mut second], address) = bench.pair(MOCKS, "2");
    first.signal("-STOP");
    second.check_fails(&format!("{address} does not answer"));
    // It runs again, and finds that its peer has ended.
    first.signal("-CONT");
    let (code, lines) = first.end();
    assert!(code == Some(FAILED) && lines.contains("error "), "{code:?} {lines}");
    assert_eq!(links(&bench.installed), Vec::<OsString>::new());
    bench.check_next_job(MOCKS);
}

#[test]
fn process_stopped_for_three_seconds_goes_on() {
    let Some(bench) = Bench::new() else { return };
    let ([mut first, mut second], _) = bench.pair(MOCKS, "60");
    for stopped in [0, 1] {
        let rank = if stopped == 0 { &first } else { &second };
        rank.signal("-STOP");
        // The test's condition, not its verdict.
        std::thread::sleep(Duration::from_secs(3));
        rank.signal("-CONT");
        first.wait_for_progress();
        second.wait_for_progress();
    }
    assert_eq!(first.warnings() + &second.warnings(), "");
}

#[test]
#[ignore = "child process of owner_killed_fails_its_processes"]
fn child_that_owns_a_card() {
    let _owner = Served::at(Path::new(&std::env::var_os(SOCKET).unwrap()));
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn owner_killed_fails_its_processes() {
    let Some(bench) = Bench::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let card = format!("vfio-user:{}", socket.display());
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        bench.installed.prepare(&mut command);
        command.args(["--ignored", "--exact", "failures::child_that_owns_a_card"]).env(SOCKET, &socket);
        let owner = Rank::start(command, folder.path().join("owner"));
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "no owner: {}", owner.warnings());
            std::thread::sleep(Duration::from_millis(5));
        }
        owner
    };
    let mut owner = start();
    let (mut ranks, _) = bench.pair([&card, &card], "3600");
    owner.kill();
    for rank in &mut ranks {
        rank.check_fails(&socket.display().to_string());
    }
    let mut owner = start();
    bench.check_next_job([&card, &card]);
    owner.kill();
}

#[test]
fn card_removed_fails_both_processes() {
    let Some(bench) = Bench::new() else { return };
    let cards = Exclusive::new();
    let names = [0, 1].map(|number| format!("{}{number}", cards.cards()));
    let ([mut first, mut second], address) = bench.pair([&names[0], &names[1]], "2");
    cards.remove(0);
    let (code, lines) = first.end();
    let warnings = first.warnings();
    assert!(
        code == Some(FAILED) && lines.contains("error ") && warnings.contains("the card"),
        "{lines}{warnings}"
    );
    second.check_fails(&format!("{address} does not answer"));
    drop(cards);
    let cards = Exclusive::new();
    let names = [0, 1].map(|number| format!("{}{number}", cards.cards()));
    bench.check_next_job([&names[0], &names[1]]);
}

/// Runs a program in a mount namespace, after `prepare`. Returns whether it succeeds, and its output; `None` if this user cannot have one.
fn in_namespace(
    installed: &Installed,
    prepare: &str,
    program: &Path,
    arguments: &[&str],
) -> Option<(bool, String)> {
    let mut command = Command::new("unshare");
    installed.prepare(&mut command);
    let small = installed.0.path().join("small");
    std::fs::create_dir_all(&small).unwrap();
    command.env("XDG_RUNTIME_DIR", small);
    let script = format!("{prepare} && echo prepared && exec \"$0\" \"$@\" 2>&1");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(program).args(arguments);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.starts_with("prepared\n") {
        skipped(format!("no mount namespace: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some((output.status.success(), text))
}

/// Without space for its socket, a process states which folder is full, and what to do.
#[test]
fn folder_of_links_full_is_reported() {
    let Some(bench) = Bench::new() else { return };
    for inodes in [1, 2, 3] {
        let prepare = format!("mount -t tmpfs -o nr_inodes={inodes},mode=700 none \"$XDG_RUNTIME_DIR\"");
        let Some((succeeds, text)) =
            in_namespace(&bench.installed, &prepare, &bench.program, &["first", "1"])
        else {
            return;
        };
        let folder = bench.installed.0.path().join("small/fpga-messages");
        assert!(!succeeds, "{text}");
        for part in [&*folder.display().to_string(), "No space left on device", "has space"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// The memory that processes share has no file in /dev/shm.
#[test]
fn shared_memory_file_system_full_changes_nothing() {
    let Some(bench) = Bench::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled("transfers.c", directory.path()) else { return };
    let fill = "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full";
    let Some((succeeds, text)) = in_namespace(&bench.installed, fill, &program, &[]) else { return };
    assert!(succeeds && text.ends_with("ok\n"), "{text}");
}
