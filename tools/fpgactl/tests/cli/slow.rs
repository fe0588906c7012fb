//! A server that is stopped for a while is neither a removed card nor a broken connection.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Served, file, fpgactl, pattern};

/// Bytes that the command has taken before the server is stopped, and bytes after that: much more than a pipe holds.
const HALF: usize = 8 << 20;

/// `dma write` of standard input, whose first half has been taken.
fn writing(card: &str, options: &[&str], data: &[u8]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(["dma", "write", "-", "--addr", "0x1000", "--card", card]).args(options);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&data[..HALF]).unwrap();
    child
}

fn signal(served: &Served, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(served.id()).unwrap()).unwrap(), signal).unwrap();
}

/// Exit status and standard error of a command whose other half is written.
fn finish(mut child: Child, rest: &[u8]) -> (Option<i32>, String) {
    // The command may have ended with an error.
    let _ = child.stdin.take().unwrap().write_all(rest);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// The error names the server and the option, and the same server serves the next command.
#[test]
fn stopped_server_is_called_slow_and_not_gone() {
    let served = Served::start();
    let data = pattern(2 * HALF);
    let child = writing(&served.card(), &["--message-timeout", "300ms"], &data);
    signal(&served, Signal::STOP);
    let (status, said) = finish(child, &data[HALF..]);
    signal(&served, Signal::CONT);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("answer") && said.contains("within 300ms"), "{said}");
    assert!(said.contains("--message-timeout"), "{said}");
    assert!(!said.contains("gone") && !said.contains("slot"), "{said}");
    fpgactl(&["info", "--card", &served.card()]).ok();
}

/// A server that ends is a broken connection: another message and another advice.
#[test]
fn ended_server_is_called_disconnected_and_not_gone() {
    let mut served = Served::start();
    let data = pattern(2 * HALF);
    let child = writing(&served.card(), &[], &data);
    served.kill();
    let (status, said) = finish(child, &data[HALF..]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("server") && said.contains("closed"), "{said}");
    assert!(!said.contains("card is gone") && !said.contains("--message-timeout"), "{said}");
}

/// Stopped for longer than the former limit of 5 s.
#[test]
#[ignore = "long: 8 s: the server is stopped for 7 s"]
fn server_stopped_for_seven_seconds_serves_whole_transfer() {
    let served = Served::start();
    let data = pattern(2 * HALF);
    let child = writing(&served.card(), &[], &data);
    signal(&served, Signal::STOP);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(7));
            signal(&served, Signal::CONT);
        });
        let (status, said) = finish(child, &data[HALF..]);
        assert_eq!(status, Some(0), "{said}");
    });
    assert!(began.elapsed() >= Duration::from_secs(7));
    let folder = tempfile::tempdir().unwrap();
    let copy = file(folder.path(), "copy", "");
    let length = data.len().to_string();
    let read =
        ["dma", "read", "--out", copy.to_str().unwrap(), "--addr", "0x1000", "--len", &length, "--card"];
    fpgactl(&[&read[..], &[&served.card()]].concat()).ok();
    assert!(std::fs::read(&copy).unwrap() == data);
}
