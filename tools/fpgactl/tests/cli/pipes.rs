//! `-` for standard input and output: they carry only the data, and reports go to standard error.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test, a panic is the failure report")]

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Served, file, fpgactl, pattern, piped};

fn json(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(value["schema_version"], 1);
    value
}

/// Register map that is shipped as an example.
fn map() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/maps/simulated-card.yaml")).unwrap()
}

#[test]
fn dma_between_pipes_moves_bytes() {
    let served = Served::start();
    let card = served.card();
    for length in [0_usize, 1, (1 << 20) - 1, (5 << 20) + 3] {
        let data = pattern(length);
        let write = ["dma", "write", "-", "--addr", "0x1000", "--json", "--card", &card];
        let (status, stdout, stderr) = piped(&write, &data);
        assert_eq!((status, stderr.as_str()), (0, ""), "{stderr}");
        let report = json(std::str::from_utf8(&stdout).unwrap());
        assert_eq!((&report["bytes"], &report["file"]), (&length.into(), &"-".into()));
        let len = length.to_string();
        let read =
            ["dma", "read", "--addr", "0x1000", "--len", &len, "--out", "-", "--json", "--card", &card];
        let (status, stdout, stderr) = piped(&read, &[]);
        assert_eq!(status, 0, "{stderr}");
        assert!(stdout == data, "{length}");
        assert_eq!(json(&stderr)["bytes"], length);
    }
    let read = ["dma", "read", "--addr", "0x1000", "--len", "16", "--out", "/dev/stdout", "--card", &card];
    let (status, stdout, stderr) = piped(&read, &[]);
    assert_eq!((status, stdout), (0, pattern(16)));
    assert!(stderr.contains("16 (16 B)") || stderr.contains("bytes"), "{stderr}");
}

#[test]
fn dma_write_from_pipe_ends_at_memory_border() {
    let dir = tempfile::tempdir().unwrap();
    let small = file(dir.path(), "small.yaml", "schema_version: 1\nmemory: {base: 0, size: 0x1000000}\n");
    let served = Served::with(&["--card-file", small.to_str().unwrap()]);
    let card = served.card();
    let data = pattern(3 << 20);
    let addr = (0x100_0000 - (2 << 20)).to_string();
    let at_end = || {
        let args = ["dma", "read", "--addr", &addr, "--len", "2MiB", "--out", "-", "--card", &card];
        piped(&args, &[]).1
    };
    // The length of a file is known.
    let input = file(dir.path(), "in", &data);
    let write = ["dma", "write", "-", "--addr", &addr, "--card", &card];
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    let output = command.args(write).stdin(File::open(&input).unwrap()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && stderr.contains("3145728 bytes at card address"), "{stderr}");
    assert!(at_end() == vec![0; 2 << 20], "nothing was written");
    let (status, _, stderr) = piped(&write, &data);
    assert!(status == 1 && stderr.contains("2097152 bytes written"), "{stderr}");
    assert!(at_end() == data[..2 << 20]);
}

#[test]
fn transfer_between_pipes_moves_every_chunk() {
    for (length, transfers) in [(0_usize, 0), (1, 1), (64 << 10, 1), ((64 << 10) + 1, 2), (300_000, 5)] {
        let data = pattern(length);
        let args = ["transfer", "-", "--out", "-", "--chunk", "64KiB", "--json"];
        let (status, stdout, stderr) = piped(&args, &data);
        assert_eq!(status, 0, "{stderr}");
        assert!(stdout == data, "{length}");
        let report = json(&stderr);
        assert_eq!((&report["bytes"], &report["transfers"]), (&length.into(), &transfers.into()));
        assert!(report["verified"] == true && report["source"] == "standard input", "{stderr}");
    }
    let (status, stdout, stderr) = piped(&["transfer", "-", "--chunk", "64KiB"], &pattern(100_000));
    assert!(status == 0 && String::from_utf8(stdout).unwrap().contains("standard input"), "{stderr}");
}

#[test]
fn replay_reads_record_through_pipe() {
    let (status, log, stderr) = piped(&["regs", "read", "ni.node_id", "--record", "-", "--json"], &[]);
    assert_eq!((status, json(&stderr)["name"].as_str()), (0, Some("ni.node_id")), "{stderr}");
    assert!(log.starts_with(b"register-log 1\n"));
    let (status, stdout, stderr) = piped(&["replay", "-", "--json"], &log);
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(json(std::str::from_utf8(&stdout).unwrap())["same"], true);
}

#[test]
fn dump_figure_and_map_through_pipes() {
    let (status, stdout, stderr) = piped(&["dump", "--out", "-", "--json"], &[]);
    assert!(status == 0 && stdout.starts_with(b"fpgactl bug report"), "{stderr}");
    assert_eq!(json(&stderr)["bytes"], stdout.len());
    let dir = tempfile::tempdir().unwrap();
    let figure = ["sim", "figure", "state-bits", "--out"];
    fpgactl(&[&figure[..], &[dir.path().to_str().unwrap()]].concat()).ok();
    let (status, stdout, stderr) = piped(&[&figure[..], &["-", "--json"]].concat(), &[]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stdout == fs::read(dir.path().join("state-bits.csv")).unwrap());
    assert!(json(&stderr)["figures"][0]["svg"].is_null(), "{stderr}");
    let (status, stdout, stderr) = piped(&["regs", "list", "copier", "--map", "-"], &map());
    assert!(status == 0 && String::from_utf8(stdout).unwrap().contains("copier.length"), "{stderr}");
}

#[test]
fn closed_pipe_ends_command_with_status_0() {
    for args in [
        &["dma", "read", "--addr", "0", "--len", "3GiB", "--out", "-"][..],
        &["transfer", "--size", "64GiB", "--chunk", "1MiB", "--out", "-"],
        &["dump", "--out", "-"],
        &["regs", "dump", "--record", "-"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // As `head -c 1` does.
        let mut stdout = child.stdout.take().unwrap();
        if args.contains(&"--len") || args.contains(&"--size") {
            stdout.read_exact(&mut [0]).unwrap();
        }
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        assert!(!stderr.contains("fpgactl: ") && !stderr.contains("panic"), "{args:?}: {stderr}");
    }
}

#[test]
fn one_pipe_for_two_files_is_wrong_usage() {
    for (args, part) in [
        (&["transfer", "--out", "-", "--record", "-"][..], "two outputs"),
        (&["dma", "write", "-", "--addr", "0", "--map", "-"], "two inputs"),
        (&["sim", "figure", "all", "--out", "-", "--runs", "1"], "one figure"),
        (&["man", "--out", "-"], "name a folder"),
    ] {
        let (status, stdout, stderr) = piped(args, &map());
        assert!(status == 2 && stdout.is_empty() && stderr.contains(part), "{args:?}: {stderr}");
    }
    // One document on standard error, and no other line.
    let (status, _, stderr) = piped(&["transfer", "--out", "-", "--record", "-", "--json"], &[]);
    assert_eq!((status, json(&stderr)["error"]["kind"].as_str()), (2, Some("usage")));
}
