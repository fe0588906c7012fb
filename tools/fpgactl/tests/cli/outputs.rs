//! Output files: either the old file or the complete new one remains, however the command ends.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{file, fpgactl, pattern};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Transfer that runs until it is stopped, in its second chunk.
fn endless(out: &Path) -> Child {
    let mut child = start(&["transfer", "--size", "64GiB", "--chunk", "1MiB", "-v", "--out", path(out)]);
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("transfer=2") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the command ended before its second chunk");
    }
    // The log must not block.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    child
}

/// Folder with a file, a link to it, and the same for other names.
fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let keep = file(dir.path(), "keep", "old");
    let link = dir.path().join("link");
    symlink("keep", &link).unwrap();
    (dir, keep, link)
}

#[test]
fn refused_command_keeps_output_file() {
    let (dir, keep, link) = folder();
    let missing = dir.path().join("none.yaml");
    for out in [&keep, &link] {
        for args in [
            &["dma", "read", "--addr", "0xffffffffffff0000", "--len", "4KiB", "--out", path(out)][..],
            &["dma", "read", "--addr", "0", "--len", "16GiB", "--out", path(out)],
            &["dma", "read", "--addr", "0", "--len", "1", "--channel", "9", "--out", path(out)],
            &["transfer", "/no/such/file", "--out", path(out)],
            &["transfer", "--size", "1MiB", "--deadline", "1ns", "--out", path(out)],
            &["transfer", "--size", "64MiB", "--timeout", "1ns", "--out", path(out)],
            &["dma", "bench", "--pin", "0,100000", "--sizes", "64", "--svg", path(out)],
            &[
                "info",
                "--card",
                &format!("mock:{}", missing.display()),
                "--config",
                path(&missing),
                "--record",
                path(out),
            ],
            &["card", "serve", "--socket", "/no/such/dir/card", "--stats", path(out)],
        ] {
            let ran = fpgactl(args);
            assert_ne!(ran.status, 0, "{args:?}");
            assert_eq!(fs::read(&keep).unwrap(), b"old", "{args:?}");
            assert!(link.is_symlink());
            assert_eq!(names(dir.path()), ["keep", "link"], "{args:?}");
        }
    }
}

#[test]
fn output_through_link_writes_target_and_keeps_mode() {
    let (dir, keep, link) = folder();
    fs::set_permissions(&keep, fs::Permissions::from_mode(0o640)).unwrap();
    let input = file(dir.path(), "in", pattern(100_000));
    fpgactl(&["transfer", path(&input), "--out", path(&link)]).ok();
    assert!(link.is_symlink() && fs::read(&keep).unwrap() == pattern(100_000));
    assert_eq!(fs::metadata(&keep).unwrap().permissions().mode() & 0o777, 0o640);
    fpgactl(&["info", "--record", path(&link)]).ok();
    assert!(link.is_symlink() && fs::read_to_string(&keep).unwrap().starts_with("register-log 1\n"));
    assert_eq!(names(dir.path()), ["in", "keep", "link"]);
}

#[test]
fn signal_removes_temporary_file_and_keeps_old() {
    for number in [Signal::INT, Signal::TERM] {
        let (dir, keep, link) = folder();
        let mut child = endless(&link);
        assert_eq!(names(dir.path()).len(), 3, "a temporary file is beside it");
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert_eq!(fs::read(&keep).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["keep", "link"]);
    }
}

#[test]
fn sigkill_keeps_old_file_and_recognisable_part() {
    let (dir, keep, _) = folder();
    let mut child = endless(&keep);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(&keep).unwrap(), b"old");
    let there = names(dir.path());
    assert!(there[0].starts_with(".keep.") && there[0].ends_with(".fpgactl-part"), "{there:?}");
    assert_eq!(there[1..], ["keep", "link"]);
}

/// The first signal requests the end, and the command cannot end: it waits for an answer that does not come.
#[test]
fn second_signal_removes_temporary_file() {
    let (dir, keep, _) = folder();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let card = format!("vfio-user:{}", socket.display());
    let args = ["dma", "read", "--addr", "0", "--len", "4KiB", "--out", "-", "--record", path(&keep)];
    let mut child = start(&[&args[..], &["--card", &card, "--message-timeout", "1h"]].concat());
    let (mut silent, _) = listener.accept().unwrap();
    silent.read_exact(&mut [0]).unwrap();
    assert_eq!(names(dir.path()).len(), 4, "a temporary file is beside it");
    signal(&child, Signal::INT);
    signal(&child, Signal::TERM);
    let status = child.wait().unwrap();
    // Either of them may be handled first.
    assert!(matches!(status.code(), Some(130 | 143)), "{status}");
    assert_eq!(names(dir.path()), ["keep", "link", "socket"]);
    assert_eq!(fs::read(&keep).unwrap(), b"old");
}

/// A command that does not check for signals: it ends wherever it waits, after its temporary file is removed.
#[test]
fn signal_without_handler_removes_temporary_file() {
    let (dir, keep, _) = folder();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let card = format!("vfio-user:{}", socket.display());
    let mut child = start(&["dump", "--out", path(&keep), "--card", &card, "--message-timeout", "1h"]);
    // There is no answer.
    let _silent = listener.accept().unwrap();
    assert_eq!(names(dir.path()).len(), 4);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(names(dir.path()), ["keep", "link", "socket"]);
    assert_eq!(fs::read(&keep).unwrap(), b"old");
}

#[test]
fn file_size_limit_is_error_message() {
    let (dir, keep, _) = folder();
    let read = ["dma", "read", "--addr", "0", "--len", "4MiB", "--out", path(&keep)];
    for args in [&read[..], &["dump", "--out", path(&keep)], &["regs", "dump", "--record", path(&keep)]] {
        let mut command = Command::new("sh");
        // 1 KiB, or half of it.
        command.args(["-c", "ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_fpgactl")]).args(args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        for part in [path(&keep), "ulimit -f"] {
            assert!(stderr.contains(part), "{args:?}: {stderr}");
        }
        assert_eq!(fs::read(&keep).unwrap(), b"old", "{args:?}");
        assert_eq!(names(dir.path()), ["keep", "link"], "{args:?}");
    }
}

/// A missing output folder is created; the missing folder of an output file is not.
#[test]
fn missing_folder_created_for_folders_refused_for_files() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("a/b");
    for args in
        [&["man", "--out", path(&new)][..], &["sim", "figure", "state-bits", "--out", path(&new.join("c"))]]
    {
        fpgactl(args).ok();
    }
    assert!(new.join("fpgactl.1").exists() && new.join("c/state-bits.csv").exists());
    let missing = dir.path().join("none/file");
    for args in [
        &["dump", "--out", path(&missing)][..],
        &["dma", "read", "--addr", "0", "--len", "1", "--out", path(&missing)],
        &["transfer", "--size", "1", "--out", path(&missing)],
        &["info", "--record", path(&missing)],
        &["dma", "bench", "--sizes", "64", "--svg", path(&missing)],
        &["card", "serve", "--socket", path(&dir.path().join("s")), "--stats", path(&missing)],
    ] {
        let ran = fpgactl(args);
        let said = "none does not exist\nhelp: create it (mkdir -p)";
        assert!(ran.status == 1 && ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
}
