//! Terminal behaviour: narrow terminals, closed pipes, names that are not text, colours, progress bars, signals.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::commands::{CommandEnvironment, Listed, commands};
use crate::support::{file, pattern};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.env_remove("RUST_LOG").env_remove("NO_COLOR").env("TERM", "xterm").env("LANG", "C.UTF-8");
    command.stdin(Stdio::null());
    command
}

/// Terminal of that size that is not a controlling terminal: its own end and the program's.
pub(crate) fn terminal(columns: u16, rows: u16) -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let not_ours = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
    let slave =
        File::options().read(true).write(true).custom_flags(not_ours).open(name.to_str().unwrap()).unwrap();
    tcsetwinsize(&slave, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (master.into(), slave)
}

/// Output of a program on a terminal, and its exit status. Standard error goes there, too.
fn on_terminal(columns: u16, mut command: Command) -> (String, Option<i32>) {
    let (mut master, slave) = terminal(columns, 10);
    let mut child = command.stdout(slave.try_clone().unwrap()).stderr(slave).spawn().unwrap();
    drop(command);
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    // EIO: the last program that had the other end has closed it.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        seen.extend_from_slice(&piece[..count]);
    }
    (String::from_utf8_lossy(&seen).into_owned(), child.wait().unwrap().code())
}

/// Bytes that are not text would change the terminal's state.
#[test]
fn binary_data_to_terminal_is_refused() {
    for words in [
        &["dma", "read", "--addr", "0", "--len", "64", "--out", "-"][..],
        &["dma", "read", "--addr", "0", "--len", "64", "--out", "/dev/stdout"],
        &["transfer", "--size", "64", "--out", "-"],
        &["stream", "subscribe", "127.0.0.1:1", "--out", "-"],
    ] {
        let mut program = command();
        program.args(words);
        let (seen, status) = on_terminal(200, program);
        assert!(status == Some(2) && seen.contains("this is a terminal"), "{words:?}: {seen}");
    }
    // Text, and data behind a pipe, are written.
    let mut program = command();
    program.args(["regs", "read", "h2c0.status", "--record", "-"]);
    assert_eq!(on_terminal(200, program).1, Some(0));
}

#[test]
fn every_command_fits_twenty_columns() {
    let place = CommandEnvironment::new();
    for Listed { words: text, status } in commands() {
        let mut program = command();
        program.args(place.words(text));
        let (seen, ended) = on_terminal(20, program);
        assert_eq!(ended, Some(status), "{text}: {seen}");
        assert!(!seen.contains("panicked") && !seen.is_empty(), "{text}: {seen}");
    }
}

/// `| head`: a closed pipe is not an error.
#[test]
fn every_command_ends_quietly_on_closed_pipe() {
    // One function prints every JSON document: one command, and those that print several documents.
    const JSON: [&str; 4] = ["info", "regs watch", "top", "stream publish"];
    let place = CommandEnvironment::new();
    for Listed { words: text, status } in commands() {
        for json in [&[][..], &["--json"]] {
            if !json.is_empty() && !JSON.iter().any(|name| text.starts_with(name)) {
                continue;
            }
            let mut program = command();
            program.args(place.words(text)).args(json).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = program.spawn().unwrap();
            drop(child.stdout.take());
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(status), "{text}: {said}");
            assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{text}: {said}");
        }
    }
}

/// Standard error without a reader: a message that cannot be written is dropped.
#[test]
fn closed_stderr_does_not_panic() {
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(ours);
    let status = command().args(["regs", "read", "nothing"]).stderr(theirs).stdout(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(2));
}

#[test]
fn non_utf8_file_names_work() {
    let folder = tempfile::tempdir().unwrap();
    let name = |text: &[u8]| folder.path().join(OsStr::from_bytes(text));
    let (input, output) = (name(b"in-\xFF"), name(b"out-\xFF\xFE"));
    fs::write(&input, pattern(5000)).unwrap();
    let run = |words: &[&OsStr]| -> (i32, String, String) {
        let ran = command().args(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
    };
    let plain = |text: &'static str| OsStr::new(text);
    let manual = name(b"man-\xFF");
    let (status, _, said) = run(&[plain("transfer"), input.as_ref(), plain("--out"), output.as_ref()]);
    assert_eq!(status, 0, "{said}");
    assert_eq!(fs::read(&output).unwrap(), fs::read(&input).unwrap());
    for words in [
        vec![plain("dma"), plain("write"), input.as_ref(), plain("--addr"), plain("0")],
        vec![
            plain("dma"),
            plain("read"),
            plain("--addr"),
            plain("0"),
            plain("--len"),
            plain("64"),
            plain("--out"),
            output.as_ref(),
        ],
        vec![plain("dump"), plain("--out"), output.as_ref()],
        vec![plain("man"), plain("--out"), manual.as_ref()],
    ] {
        for json in [false, true] {
            let mut words = words.clone();
            words.extend(json.then_some(plain("--json")));
            let (status, out, said) = run(&words);
            assert_eq!(status, 0, "{words:?}: {said}");
            // As far as it can be represented.
            assert!(out.contains('\u{FFFD}'), "{words:?}: {out}");
        }
    }
    let missing = name(b"missing-\xFF");
    let (status, _, said) = run(&[plain("card"), plain("check"), missing.as_ref()]);
    assert!(status == 1 && said.contains("missing-\u{FFFD}"), "{said}");
    let card = OsStr::from_bytes(b"mock:card-\xFF.yaml");
    let (status, _, said) = run(&[plain("info"), plain("--card"), card]);
    assert!(status == 2 && said.contains("UTF-8"), "{said}");
}

const ESCAPE: char = '\u{1b}';

#[test]
fn colours_follow_terminal_and_option() {
    let words = ["validate", "--no-progress", "--scratch", "0", "--scratch-size", "64KiB"];
    let piped = |more: &[&str]| {
        let ran = command().args(words).args(more).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    assert!(!piped(&[]).contains(ESCAPE) && !piped(&["--color", "never"]).contains(ESCAPE));
    assert!(piped(&["--color", "always"]).contains("\u{1b}[32mpass\u{1b}[0m"));
    assert!(!piped(&["--color", "always", "--json"]).contains(ESCAPE));
    let terminal = |more: &[&str], variable: Option<(&str, &str)>| {
        let mut program = command();
        program.args(words).args(more).envs(variable);
        on_terminal(100, program).0
    };
    assert!(terminal(&[], None).contains("\u{1b}[32mpass"));
    for (more, variable) in
        [(&["--color", "never"][..], None), (&[], Some(("NO_COLOR", "1"))), (&[], Some(("TERM", "dumb")))]
    {
        assert!(!terminal(more, variable).contains(ESCAPE), "{more:?} {variable:?}");
    }
    let ran = command().args(["info", "--color", "sometimes"]).output().unwrap();
    assert!(
        ran.status.code() == Some(2) && String::from_utf8_lossy(&ran.stderr).contains("auto, always, never")
    );
}

#[test]
fn progress_is_shown_on_terminals_only() {
    let words = ["transfer", "--size", "2MiB"];
    let piped = command().args(words).output().unwrap();
    assert_eq!((piped.status.code(), piped.stderr.as_slice()), (Some(0), &b""[..]));
    for (more, bar) in [(&[][..], true), (&["--no-progress"], false)] {
        let mut program = command();
        program.args(words).args(more);
        let (seen, status) = on_terminal(100, program);
        assert_eq!(status, Some(0));
        // Beginning of a bar, and its end: the report begins on a clean line.
        assert_eq!(seen.contains("[=") || seen.contains("[>") || seen.contains("[ "), bar, "{seen:?}");
    }
}

/// Starts a program whose standard error is read, and waits until it contains `wanted`.
fn started(words: &[&str], wanted: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut program = command();
    program.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "{wanted} was never said");
    }
    (child, said)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signal_mid_transfer_stops_cleanly_with_progress() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for number in [Signal::INT, Signal::TERM] {
        // Far longer than any test run.
        let out = out.to_str().unwrap();
        let words = ["transfer", "--size", "64GiB", "--chunk", "1MiB", "-v", "--out", out];
        let (mut child, mut said) = started(&words, "transfer=2");
        signal(&child, number);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
        let told = rest.lines().last().unwrap();
        assert!(told.contains("stopped by a signal after ") && told.contains("MiB)"), "{told}");
        assert!(!told.contains("after 0 bytes"), "{told}");
        assert!(!Path::new(out).exists(), "an incomplete output file remains");
    }
    let (mut child, mut said) =
        started(&["dma", "bench", "--seconds", "3600", "--sizes", "64", "-v"], "measuring");
    signal(&child, Signal::INT);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().code() == Some(1) && rest.contains(": stopped by a signal"), "{rest}");
}

/// The signal arrives in the third of a thousand rows.
#[test]
fn dma_bench_signal_prints_complete_rows() {
    let sizes = vec!["64"; 500].join(",");
    let words = [
        "dma",
        "bench",
        "--seconds",
        "5ms",
        "--samples",
        "0",
        "--batches",
        "0",
        "--json",
        "-v",
        "--sizes",
        &sizes,
    ];
    let mut child = command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    for _ in 0..3 {
        while !line.contains("measuring") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the command ended without a signal");
        }
        line.clear();
    }
    signal(&child, Signal::INT);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let mut report = String::new();
    child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let rows = report["results"].as_array().unwrap();
    assert!((2..1000).contains(&rows.len()), "{} rows", rows.len());
    assert!(rows.iter().all(|row| row["verified"] == true), "{report}");
    let told = rest.lines().last().unwrap();
    let expected = format!("stopped by a signal, after {} of 1000 rows", rows.len());
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn dma_bench_timeout_prints_complete_rows() {
    let words =
        ["dma", "bench", "--seconds", "5ms", "--samples", "0", "--batches", "0", "--json", "--timeout", "1s"];
    // Far more rows than fit into the time.
    let sizes = vec!["64"; 4000].join(",");
    let ran = command().args(words).args(["--sizes", &sizes]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    // A machine that does not measure a row in that time reports that without a table.
    assert!(
        report["results"].is_array() && said.contains("of 8000 rows") || said.contains("--timeout"),
        "{said}"
    );
}

#[test]
fn dma_bench_shows_progress_on_terminal() {
    let mut program = command();
    program.args(["dma", "bench", "--seconds", "5ms", "--sizes", "64", "--samples", "10", "--batches", "1"]);
    let (seen, ended) = on_terminal(100, program);
    assert_eq!(ended, Some(0), "{seen}");
    // Two rows of 5 ms. The words drawn beside them depend on the time between two updates.
    assert!(seen.contains("/10 ms"), "{seen}");
}

/// The data goes into a pipe that fills, so the signal arrives in the middle.
#[test]
fn dma_read_signal_is_reported_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let words = ["dma", "read", "--addr", "0", "--len", "3GiB", "--out", pipe.to_str().unwrap(), "--json"];
    let mut child = command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = File::open(&pipe).unwrap();
    let mut piece = vec![0; 1 << 20];
    reader.read_exact(&mut piece).unwrap();
    signal(&child, Signal::INT);
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    let mut report = String::new();
    child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains("stopped by a signal after"), "{message}");
}

/// A self-test restores the saved memory, and reports the skipped tests.
#[test]
fn validate_signal_restores_memory() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let path = socket.to_str().unwrap();
    let mut server = command();
    server.args(["card", "serve", "--socket", path]).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let card = format!("vfio-user:{path}");
    let data = file(folder.path(), "data", pattern(4096));
    let run = |words: &[&str]| command().args(words).args(["--card", &card]).output().unwrap();
    assert!(run(&["dma", "write", data.to_str().unwrap(), "--addr", "0x10000"]).status.success());
    // The first transfer has used this memory then.
    let words =
        ["validate", "--scratch", "0x10000", "--scratch-size", "64KiB", "-v", "--json", "--card", &card];
    let (mut child, mut said) = started(&words, "transfer.h2c0");
    signal(&child, Signal::INT);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let mut report = String::new();
    child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let tests = report["tests"].as_array().unwrap();
    let stopped = tests.iter().filter(|test| test["message"] == "the test was stopped").count();
    assert!(child.wait().unwrap().code() == Some(1) && stopped > 5, "{stopped}: {rest}");
    assert!(rest.contains("stopped by a signal after") && rest.contains("is restored"), "{rest}");
    let last = tests.last().unwrap();
    assert_eq!((&last["name"], &last["status"]), (&"memory.restore".into(), &"pass".into()));
    let out = folder.path().join("out");
    assert!(
        run(&["dma", "read", "--addr", "0x10000", "--len", "4096", "--out", out.to_str().unwrap()])
            .status
            .success()
    );
    assert_eq!(fs::read(&out).unwrap(), pattern(4096));
    signal(&server, Signal::TERM);
    assert!(server.wait().unwrap().success());
}

/// Lines that a program shows on its own terminal for standard error, until `enough` returns true.
fn progress_on(columns: u16, words: &[&str], mut enough: impl FnMut(&[String]) -> bool) -> Vec<String> {
    let (mut master, slave) = terminal(columns, 10);
    let mut program = command();
    let mut child = program.args(words).stdout(Stdio::null()).stderr(slave).spawn().unwrap();
    drop(program);
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    let mut stopped = false;
    let lines = |seen: &[u8]| -> Vec<String> {
        // Without the sequences that clear lines and move the cursor (ECMA-48).
        let text = String::from_utf8_lossy(seen).replace("\u{1b}[2K", "\r").replace("\u{1b}[1A", "\r");
        text.split(['\r', '\n']).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    // EIO: no process has the other end open any more.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        seen.extend_from_slice(&piece[..count]);
        if !stopped && enough(&lines(&seen)) {
            stopped = true;
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
    }
    child.wait().unwrap();
    lines(&seen)
}

#[test]
fn progress_lines_fit_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, output, out) = (path("in"), path("out"), path("results"));
    fs::write(&input, pattern(2 << 20)).unwrap();
    for columns in [20, 40, 80, 200] {
        for words in [
            &["transfer", &input, "--out", &output][..],
            &["dma", "write", &input, "--addr", "0"],
            &["dma", "read", "--addr", "0", "--len", "2MiB", "--out", &output],
            &["validate", "--scratch", "0", "--scratch-size", "64KiB"],
            &["sim", "figure", "loss-free", "--runs", "1", "--out", &out],
        ] {
            // One layout serves all commands: the widths above the narrowest are tried with one of them.
            if columns > 20 && words[0] != "transfer" {
                continue;
            }
            let lines = progress_on(columns, words, |_| false);
            assert!(!lines.is_empty(), "{words:?}: nothing was shown");
            for line in &lines {
                assert!(line.chars().count() <= columns.into(), "{words:?} on {columns} columns: {line:?}");
            }
        }
    }
}

/// One long run: the line changes before it is done.
#[test]
fn progress_moves_while_nothing_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\ntraffic:\n  flows:\n    - {from: 0, to: 1, bytes: 1073741824}\n    - {from: 1, to: 0, bytes: 1073741824}\n";
    let scenario = file(folder.path(), "long.yaml", text);
    let out = folder.path().join("out");
    let words = ["sim", "run", scenario.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let lines = progress_on(80, &words, |lines| {
        let mut shown: Vec<&String> = lines.iter().filter(|line| line.contains(" 0/1 runs ")).collect();
        shown.dedup();
        shown.len() >= 3
    });
    assert!(lines.iter().any(|line| line.contains("stopped by a signal; nothing was written")), "{lines:?}");
}
