//! The two effects of a signal: an interrupted job fails, and a command that runs until it is asked to end succeeds. Tests of jobs are in
//! `terminal`, of `regs watch` in `maps`, of `card serve` in `serve`, of `top` in `top`.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Served, file};
use crate::terminal::terminal;

fn start(words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(words).env_remove("RUST_LOG").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Reads lines until one contains `wanted`.
fn until(lines: &mut impl BufRead, wanted: &str) -> String {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the output ended without {wanted}");
    }
    line
}

fn rest(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn addresses<const N: usize>() -> [String; N] {
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| format!("udp:{}", socket.local_addr().unwrap()))
}

#[test]
fn stream_signal_ends_both_sides_with_reports() {
    for number in [Signal::INT, Signal::TERM] {
        let [publisher, own] = addresses();
        let links = ["--link", &publisher, "--link", &own];
        let publish =
            ["stream", "publish", "--json", "--rate", "200", "--frame", "1000", "--listen", "127.0.0.1:0"];
        let mut publishing = start(&[&publish[..], &links].concat());
        let mut said = BufReader::new(publishing.stderr.take().unwrap());
        let address = until(&mut said, "ready ").trim().replace("ready ", "");
        let links = ["--node", "2", "--link", &own, "--link", &publisher];
        let subscribe = ["stream", "subscribe", &address, "--json", "--every", "1ms"];
        let mut reading = start(&[&subscribe[..], &links].concat());
        let mut reports = BufReader::new(reading.stdout.take().unwrap());
        let is_some = |line: String| serde_json::from_str::<Value>(&line).unwrap()["frames"] != 0;
        while !is_some(until(&mut reports, "frames")) {}
        signal(&reading, number);
        let last = rest(reports);
        assert_eq!(reading.wait().unwrap().code(), Some(0), "{}", rest(reading.stderr.take().unwrap()));
        let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        assert!(last["frames"] != 0 && last["ended"] == false, "{last}");
        signal(&publishing, number);
        let report = rest(publishing.stdout.take().unwrap());
        assert_eq!(publishing.wait().unwrap().code(), Some(0), "{}", rest(said));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["subscribers"][0]["gone"], "it left", "{report}");
    }
}

/// On a terminal one line changes while the stream runs, and is no longer than the terminal is wide.
#[test]
fn stream_terminal_shows_progress_line() {
    let [publisher, own] = addresses();
    let publish = ["stream", "publish", "--rate", "200", "--frame", "1000", "--listen", "127.0.0.1:0"];
    let mut publishing = start(&[&publish[..], &["--link", &publisher, "--link", &own]].concat());
    let mut said = BufReader::new(publishing.stderr.take().unwrap());
    let address = until(&mut said, "ready ").trim().replace("ready ", "");
    for columns in [80, 20] {
        let (mut master, slave) = terminal(columns, 10);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["stream", "subscribe", &address, "--node", "2", "--link", &own, "--link", &publisher]);
        command.env_remove("RUST_LOG").env("TERM", "xterm").stdin(Stdio::null());
        let mut child = command.stdout(slave.try_clone().unwrap()).stderr(slave).spawn().unwrap();
        drop(command);
        let wanted = if columns == 80 { " missed in " } else { " frames, " };
        let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            let count = master.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..count]);
        }
        signal(&child, Signal::INT);
        // EIO: no process has the other end open any more.
        while let Ok(count @ 1..) = master.read(&mut piece) {
            seen.extend_from_slice(&piece[..count]);
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let seen = String::from_utf8_lossy(&seen).into_owned();
        // Without the sequence that clears a line (ECMA-48, EL).
        let shown = seen.replace("\u{1b}[2K", "");
        let live = shown.split(['\r', '\n']).filter(|line| line.contains(" frames, "));
        assert!(live.clone().all(|line| line.trim_end().chars().count() <= columns.into()), "{seen:?}");
        assert!(live.count() > 0 && seen.contains("goodput"), "{seen:?}");
    }
    signal(&publishing, Signal::INT);
    assert_eq!(publishing.wait().unwrap().code(), Some(0), "{}", rest(said));
}

/// It is not a subscriber yet, so the command fails.
#[test]
fn subscribe_signal_before_connection_fails() {
    let [own, other] = addresses();
    let words = ["stream", "subscribe", "127.0.0.1:1", "--retry", "1h", "-vv", "--json"];
    let mut child = start(&[&words[..], &["--link", &own, "--link", &other]].concat());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    until(&mut said, "retrying the join");
    signal(&child, Signal::INT);
    let said = rest(said);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("looking for the publisher at 127.0.0.1:1: stopped by a signal"), "{said}");
    let report: Value = serde_json::from_str(&rest(child.stdout.take().unwrap())).unwrap();
    assert_eq!(report["error"]["kind"], "operation");
}

#[test]
fn events_signal_ends_with_status_0() {
    let served = Served::start();
    let mut child = start(&["events", "--card", &served.card()]);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    until(&mut said, "watching");
    signal(&child, Signal::INT);
    let said = rest(said);
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn events_killed_server_ends_with_status_1() {
    let mut served = Served::start();
    let mut child = start(&["events", "--card", &served.card(), "--json"]);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    until(&mut said, "watching");
    served.kill();
    let said = rest(said);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("the process that serves the card has ended"), "{said}");
    let lines = rest(child.stdout.take().unwrap());
    let event: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(event["event"], "server-gone", "{lines}");
}

/// The log waits for an hour between two accesses.
#[test]
fn replay_signal_fails() {
    let dir = tempfile::tempdir().unwrap();
    let log = file(
        dir.path(),
        "log",
        "register-log 1\n0 read bar1 0x2000 any\n0 write bar1 0x2090 0x1\n3600 read bar1 0x2000 any\n",
    );
    let served = Served::start();
    let card = served.card();
    let mut child = start(&["replay", log.to_str().unwrap(), "--paced", "--json", "-vv", "--card", &card]);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    until(&mut said, "waiting for the time of the next access");
    signal(&child, Signal::TERM);
    let said = rest(said);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("stopped by a signal after 2 of 3 accesses of the log"), "{said}");
    let report: Value = serde_json::from_str(&rest(child.stdout.take().unwrap())).unwrap();
    assert_eq!((&report["stopped"], &report["same"]), (&true.into(), &true.into()), "{report}");
}

fn fifo(dir: &Path) -> String {
    let pipe = dir.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    pipe.to_str().unwrap().to_owned()
}

/// Every command that names a file, with a pipe whose other end is not opened.
#[test]
fn pipe_without_partner_ends_at_time_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, socket) = (&fifo(dir.path()), &dir.path().join("socket").display().to_string());
    let card = &format!("mock:{pipe}");
    let commands: [&[&str]; 10] = [
        &["card", "serve", "--socket", socket, "--card-file", pipe],
        &["card", "serve", "--socket", socket, "--stats", pipe],
        &["card", "check", pipe],
        &["dma", "read", "--addr", "0", "--len", "4096", "--out", pipe],
        &["dump", "--out", pipe],
        &["info", "--card", card],
        &["info", "--config", pipe],
        &["info", "--record", pipe],
        &["regs", "list", "--map", pipe],
        &["sim", "run", pipe],
    ];
    for words in commands {
        let child = start(&[words, &["--timeout", "50ms"]].concat());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("not done after 50ms") && said.contains(pipe.as_str()), "{words:?}: {said}");
    }
}

#[test]
fn pipe_without_reader_signal_ends_command() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, socket) = (&fifo(dir.path()), &dir.path().join("socket").display().to_string());
    for words in [
        &["card", "serve", "--socket", socket, "--stats", pipe][..],
        &["dma", "read", "--addr", "0", "--len", "4096", "--out", pipe],
        &["transfer", "--size", "4096", "--out", pipe],
    ] {
        let mut child = start(&[words, &["-v"]].concat());
        let mut said = BufReader::new(child.stderr.take().unwrap());
        until(&mut said, "waiting for a reader of");
        signal(&child, Signal::TERM);
        let said = rest(said);
        assert_eq!(child.wait().unwrap().code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("stopped by a signal"), "{words:?}: {said}");
    }
}

/// A socket as standard output is shared with other processes, so that a write to it blocks, and the first signal cannot end it.
#[test]
fn second_signal_ends_command_at_once() {
    let (reader, out) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(["dma", "read", "--addr", "0", "--len", "1GiB", "--out", "-"]).stdin(Stdio::null());
    let mut child = command.stdout(OwnedFd::from(out)).stderr(Stdio::null()).spawn().unwrap();
    // The command runs; most of the data is still to come.
    (&reader).read_exact(&mut [0; 4096]).unwrap();
    // The system may merge two signals of the same kind.
    signal(&child, Signal::INT);
    signal(&child, Signal::TERM);
    let status = child.wait().unwrap().code();
    // The first signal ends the command normally if it arrives between two writes; otherwise the second one ends it.
    assert!(matches!(status, Some(1 | 130 | 143)), "{status:?}");
}

/// The reader of the pipe is gone, and the command cannot write its data.
#[test]
fn full_pipe_signal_ends_command() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = Path::new(&fifo(dir.path())).to_owned();
    let mut child = start(&["dma", "read", "--addr", "0", "--len", "1GiB", "--out", pipe.to_str().unwrap()]);
    let reader = File::open(&pipe).unwrap();
    let size = u64::try_from(rustix::pipe::fcntl_getpipe_size(&reader).unwrap()).unwrap();
    let until_full = || {
        while rustix::io::ioctl_fionread(&reader).unwrap() < size {
            std::thread::yield_now();
        }
    };
    until_full();
    signal(&child, Signal::INT);
    let said = rest(child.stderr.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("stopped by a signal"), "{said}");
}

/// A kernel may be built without networking. A pair of sockets for signals would then be an error of every command.
#[test]
fn command_on_built_in_card_opens_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut child = start(&["dma", "read", "--addr", "0", "--len", "1GiB", "--out", pipe.to_str().unwrap()]);
    let mut reader = File::open(&pipe).unwrap();
    // Data arrives, so the card is open and signals are handled; most of the data is still to come.
    reader.read_exact(&mut [0]).unwrap();
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let open: Vec<_> = open.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(open.contains(&pipe), "{open:?}");
    assert!(open.iter().all(|file| !file.to_string_lossy().starts_with("socket:")), "{open:?}");
}

/// Two hosts, and a flow that takes a moment of this machine's time.
const SCENARIO: &str = "schema_version: 1\ntraffic:\n  flows:\n    - {from: 0, to: 1, bytes: 1000000}\n";

/// Names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn simulation_stopped_by_signal_fails_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = file(dir.path(), "long.yaml", SCENARIO);
    let scenario = scenario.to_str().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    for (words, named) in [
        (
            &["sim", "run", scenario, "--runs", "1000000"][..],
            "of 1000000 runs: stopped by a signal; nothing was written",
        ),
        (&["sim", "figure", "lossy", "--runs", "1000000"], "sim figure lossy after "),
    ] {
        for number in [Signal::INT, Signal::TERM] {
            let mut child = start(&[words, &["--out", out, "-v", "--json"]].concat());
            let mut said = BufReader::new(child.stderr.take().unwrap());
            until(&mut said, "simulating");
            signal(&child, number);
            let said = rest(said);
            assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
            assert!(said.contains(named) && said.contains("nothing was written"), "{said}");
            let report: Value = serde_json::from_str(&rest(child.stdout.take().unwrap())).unwrap();
            assert_eq!(report["error"]["kind"], "operation", "{report}");
            assert_eq!(names(Path::new(out)), [""; 0]);
        }
    }
}

/// Server that accepts connections and never answers.
fn unresponsive_server(path: &Path) -> UnixListener {
    UnixListener::bind(path).unwrap()
}

/// Commands that wait for a server: wherever they wait, a signal ends them with a message, and none of their files remains.
#[test]
fn signal_ends_command_waiting_for_server() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("card");
    let server = unresponsive_server(&socket);
    let card = format!("vfio-user:{}", socket.display());
    for (words, name, left) in [
        (&["info"][..], "info", "nothing was changed"),
        (&["regs", "dump"], "regs dump", "nothing was changed"),
        (&["regs", "write", "ni.control", "0"], "regs write", "read the register"),
        (&["peek", "dma", "0"], "peek", "nothing was changed"),
        (&["abort"], "abort", "`fpgactl reset`"),
        (&["reset"], "reset", "`fpgactl reset`"),
        (&["cdma", "copy", "--src", "0", "--dst", "4096", "--len", "64"], "cdma copy", "`fpgactl abort`"),
    ] {
        for number in [Signal::INT, Signal::TERM] {
            let mut child = start(&[words, &["--card", &card, "--message-timeout", "1h", "--json"]].concat());
            // After its request, it waits for the answer.
            let (mut connection, _) = server.accept().unwrap();
            assert_ne!(connection.read(&mut [0; 16]).unwrap(), 0);
            signal(&child, number);
            let said = rest(child.stderr.take().unwrap());
            assert_eq!(child.wait().unwrap().code(), Some(1), "{words:?}: {said}");
            assert!(said.starts_with(&format!("fpgactl: {name}: stopped by a signal; ")), "{said}");
            assert!(said.contains(left) && said.lines().count() == 1, "{said}");
            let report: Value = serde_json::from_str(&rest(child.stdout.take().unwrap())).unwrap();
            assert_eq!(report["error"]["kind"], "operation", "{report}");
        }
    }
}

/// A file that is a pipe without a writer blocks a command before it has begun.
#[test]
fn signal_ends_command_waiting_for_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let path = pipe.to_str().unwrap();
    let card = &format!("mock:{path}");
    for words in [
        &["sim", "run", path][..],
        &["replay", path],
        &["info", "--config", path],
        &["regs", "list", "--map", path],
        &["card", "check", path],
        &["cdma", "copy", "--src", "0", "--dst", "4096", "--len", "64", "--card", card],
    ] {
        let mut child = start(words);
        // Opens when the command does, and writes nothing.
        let writer = File::options().write(true).open(&pipe).unwrap();
        signal(&child, Signal::INT);
        let said = rest(child.stderr.take().unwrap());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(": stopped by a signal; "), "{words:?}: {said}");
        // A card inside the process is gone with it.
        assert!(!said.contains("fpgactl abort"), "{said}");
        drop(writer);
    }
}

/// The incomplete record is kept for every kind of end.
#[test]
fn record_of_interrupted_command_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let log = file(dir.path(), "log", "register-log 1\n0 read bar1 0x2000 any\n3600 read bar1 0x2000 any\n");
    let served = Served::start();
    let card = served.card();
    let words = ["replay", log.to_str().unwrap(), "--paced", "-vv", "--card", &card, "--record"];
    let mut child = start(&[&words[..], &[record.to_str().unwrap()]].concat());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    until(&mut said, "waiting for the time of the next access");
    signal(&child, Signal::INT);
    let said = rest(said);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.contains(" read    bar1 0x2000 "), "{text}");
}
