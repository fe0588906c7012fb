//! `card share`: several programs use one card.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{file, fpgactl};

/// Owner that is ready.
struct Owner {
    child: Child,
    folder: tempfile::TempDir,
}

impl Owner {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("card");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["card", "share", "--socket"]).arg(&socket).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("ready {}\n", socket.display()));
        Self { child, folder }
    }

    fn card(&self) -> String {
        format!("vfio-user:{}", self.folder.path().join("card").display())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn share_programs_see_each_others_data() {
    let owner = Owner::start(&[]);
    let card = owner.card();
    let data: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let source = owner.folder.path().join("in");
    std::fs::write(&source, &data).unwrap();
    // A program that holds the card while others come and go.
    let mut holding = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    holding.args([
        "run",
        "--card",
        &card,
        "--",
        "sh",
        "-c",
        "echo ready; read _; dd if=/dev/xdma0_c2h_0 bs=300000 count=1 status=none",
    ]);
    let mut held = holding.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(held.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    fpgactl(&["dma", "write", source.to_str().unwrap(), "--addr", "0", "--card", &card]).ok();
    let copy = owner.folder.path().join("out");
    fpgactl(&[
        "dma",
        "read",
        "--addr",
        "0",
        "--len",
        "300000",
        "--out",
        copy.to_str().unwrap(),
        "--card",
        &card,
    ])
    .ok();
    assert!(std::fs::read(&copy).unwrap() == data);
    let top = fpgactl(&["top", "--count", "1", "--card", &card]).ok().stdout;
    assert!(top.contains("h2c0"), "{top}");
    fpgactl(&["info", "--card", &card]).ok();
    drop(held.stdin.take());
    let mut seen = Vec::new();
    std::io::Read::read_to_end(&mut said, &mut seen).unwrap();
    assert!(held.wait().unwrap().success() && seen == data);
}

#[test]
fn share_passes_self_test_of_view() {
    let owner = Owner::start(&["--card", "mock:us-plus-x16"]);
    let ran = fpgactl(&["validate", "--scratch", "0", "--scratch-size", "64KiB", "--card", &owner.card()]);
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn share_ends_at_signal_or_with_last_client() {
    let mut owner = Owner::start(&[]);
    kill_process(Pid::from_child(&owner.child), Signal::TERM).unwrap();
    assert_eq!(owner.child.wait().unwrap().code(), Some(0));
    assert!(!owner.folder.path().join("card").exists());
    let mut owner = Owner::start(&["--until-unused"]);
    fpgactl(&["info", "--card", &owner.card()]).ok();
    assert_eq!(owner.child.wait().unwrap().code(), Some(0));
    // A second owner of one socket is refused.
    let owner = Owner::start(&[]);
    let socket = owner.folder.path().join("card");
    let ran = fpgactl(&["card", "share", "--socket", socket.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("socket of a running server"), "{}", ran.stderr);
}

#[test]
fn share_killed_programs_leave_card_to_others() {
    let owner = Owner::start(&[]);
    let card = owner.card();
    for _ in 0..20 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command
            .args(["dma", "bench", "--sizes", "1MiB", "--seconds", "10", "--card", &card])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Wherever it is by now.
        fpgactl(&["info", "--card", &card]).ok();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let source = file(owner.folder.path(), "in", "x".repeat(100_000));
    fpgactl(&["dma", "write", source.to_str().unwrap(), "--addr", "0x1000", "--card", &card]).ok();
    let copy = owner.folder.path().join("out");
    fpgactl(&[
        "dma",
        "read",
        "--addr",
        "0x1000",
        "--len",
        "100000",
        "--out",
        copy.to_str().unwrap(),
        "--card",
        &card,
    ])
    .ok();
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "x".repeat(100_000));
}

#[test]
fn share_streams_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let ran =
        fpgactl(&["card", "share", "--card", "mock:us-plus-x8-stream", "--socket", socket.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("channels are streams cannot be shared"), "{}", ran.stderr);
}
