//! `dma`, `info` and `validate` on cards with AXI4-Stream channels.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Served, file, fpgactl, pattern, piped};

const LOOPBACK: [&str; 2] = ["--card", "mock:us-plus-x8-stream"];
const SOURCE: [&str; 2] = ["--card", "mock:us-plus-x8-source"];

fn on(card: [&str; 2], args: &[&str]) -> crate::support::CommandResult {
    fpgactl(&[args, &card].concat())
}

#[test]
fn dma_write_sends_file_as_packets() {
    let dir = tempfile::tempdir().unwrap();
    for (length, packet, packets) in [(0, "64", 0), (1, "64", 1), (10_000, "4KiB", 3), (40_000, "100", 400)] {
        let input = file(dir.path(), "in", pattern(length));
        let args = ["dma", "write", input.to_str().unwrap(), "--packet", packet, "--json"];
        let report = on(LOOPBACK, &args).ok().json();
        assert_eq!((&report["bytes"], &report["packets"]), (&length.into(), &packets.into()));
        assert!(report["addr"].is_null() && report["channel"] == "h2c0");
    }
    // More than the loopback holds, without a receiver.
    let input = file(dir.path(), "in", pattern(1 << 20));
    let args = ["dma", "write", input.to_str().unwrap(), "--timeout", "10s"];
    let ran = on(LOOPBACK, &args);
    assert!(ran.status == 1 && ran.stderr.contains("accepts no more packets"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the card accepted 16 of 256 packets (64 KiB)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the channel remains running"), "{}", ran.stderr);
    on(SOURCE, &args[..3]).ok();
}

#[test]
fn dma_read_receives_packets_into_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let args = ["dma", "read", "--packets", "20", "--out", out, "--channel", "1", "--json"];
    let report = on(SOURCE, &args).ok().json();
    assert_eq!((&report["packets"], &report["channel"]), (&20.into(), &"c2h1".into()));
    assert_eq!(fs::metadata(out).unwrap().len(), report["bytes"].as_u64().unwrap());
    fs::remove_file(out).unwrap();
    // Too short for the received packets: a clear message, and no file.
    let ran = on(SOURCE, &["dma", "read", "--packets", "50", "--packet", "64", "--out", out]);
    assert!(ran.status == 1 && ran.stderr.contains("a packet is lost"), "{}", ran.stderr);
    assert!(fs::metadata(out).is_err());
    let ran = on(LOOPBACK, &["dma", "read", "--out", out, "--timeout", "100ms"]);
    assert!(ran.status == 1 && ran.stderr.contains("not complete after"), "{}", ran.stderr);
}

#[test]
fn address_and_packet_options_are_exclusive() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "in", pattern(100));
    let input = input.to_str().unwrap();
    let ran = on(LOOPBACK, &["dma", "write", input, "--addr", "0"]);
    assert!(ran.status == 1 && ran.stderr.contains("without --addr"), "{}", ran.stderr);
    for args in [&["dma", "write", input][..], &["dma", "read", "--out", input]] {
        let ran = fpgactl(args);
        assert!(ran.status == 2 && ran.stderr.contains("give --addr"), "{}", ran.stderr);
    }
    for args in [
        &["dma", "write", input, "--addr", "0", "--packet", "64"][..],
        &["dma", "write", input, "--packet", "0"],
        &["dma", "read", "--out", input, "--len", "64", "--packets", "2"],
        &["dma", "read", "--out", input, "--len", "64", "--packet", "64"],
        &["dma", "read", "--out", input, "--len", "64", "--index", input],
    ] {
        assert_eq!(on(LOOPBACK, args).status, 2, "{args:?}");
    }
}

#[test]
fn info_and_validate_on_stream_card() {
    let text = on(LOOPBACK, &["info"]).ok().stdout;
    assert!(text.contains("2 H2C, 2 C2H, AXI4-Stream"), "{text}");
    let test = |report: &serde_json::Value, name: &str| {
        let tests = report["tests"].as_array().unwrap();
        let test = tests.iter().find(|test| test["name"] == name).unwrap();
        (test["status"].as_str().unwrap().to_owned(), test["message"].as_str().unwrap().to_owned())
    };
    let quiet = on(LOOPBACK, &["validate", "--json"]).ok().json();
    assert!(test(&quiet, "streams.packets").0 == "skip" && test(&quiet, "memory.save").0 == "skip");
    let looped = on(LOOPBACK, &["validate", "--streams", "--json"]).ok().json();
    let (status, message) = test(&looped, "streams.packets");
    assert!(status == "pass" && message.contains("c2h1: loopback"), "{message}");
    let source = on(SOURCE, &["validate", "--streams", "--json"]).ok().json();
    let (status, message) = test(&source, "streams.packets");
    assert!(status == "pass" && message.contains("c2h1: a source"), "{message}");
}

#[test]
fn dma_read_packet_boundaries_in_json_and_index() {
    let dir = tempfile::tempdir().unwrap();
    let (out, index) = (dir.path().join("out"), dir.path().join("out.csv"));
    let args = [
        "dma",
        "read",
        "--packets",
        "20",
        "--out",
        out.to_str().unwrap(),
        "--index",
        index.to_str().unwrap(),
        "--json",
    ];
    let report = on(SOURCE, &args).ok().json();
    let lengths: Vec<u64> =
        report["packet_lengths"].as_array().unwrap().iter().map(|length| length.as_u64().unwrap()).collect();
    assert_eq!((lengths.len(), lengths.iter().sum::<u64>()), (20, fs::metadata(&out).unwrap().len()));
    let mut expected = "packet,offset,length\n".to_owned();
    let mut offset = 0;
    for (packet, length) in lengths.iter().enumerate() {
        expected += &format!("{packet},{offset},{length}\n");
        offset += length;
    }
    assert_eq!(fs::read_to_string(&index).unwrap(), expected);
    assert!(report["index"] == index.to_str().unwrap() && lengths.iter().any(|length| *length != lengths[0]));
    // Neither file is ever incomplete, however the command ends.
    let args = [
        "dma",
        "read",
        "--packets",
        "50",
        "--packet",
        "64",
        "--out",
        out.to_str().unwrap(),
        "--index",
        index.to_str().unwrap(),
    ];
    assert_eq!(on(SOURCE, &args).status, 1);
    assert_eq!(fs::read_to_string(&index).unwrap(), expected);
    assert_eq!(fs::metadata(&out).unwrap().len(), offset);
}

#[test]
fn dma_write_packets_from_stdin() {
    for (length, packets) in [(0_usize, 0), (1, 1), (10_000, 3)] {
        let args = ["dma", "write", "-", "--packet", "4KiB", "--json", "--card", LOOPBACK[1]];
        let (status, stdout, stderr) = piped(&args, &pattern(length));
        assert_eq!(status, 0, "{stderr}");
        let report: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        assert_eq!((&report["bytes"], &report["packets"]), (&length.into(), &packets.into()));
    }
}

/// Description of a capture card with this source.
fn source(dir: &Path, source: &str) -> String {
    let text = format!(
        "schema_version: 3\npci: {{ device: 0x9038, subsystem_device: 0x0007 }}\n\
         bars: {{ user: null, dma: {{ size: 0x10000, width: 64 }}, bypass: null }}\n\
         xdma: {{ h2c_channels: 1, c2h_channels: 2, data_width: 256, stream: true }}\n\
         memory: {{ base: 0, size: 0x10000 }}\nstream: {{ logic: source, source: {{ {source} }} }}\n"
    );
    file(dir, "card.yaml", text).to_str().unwrap().to_owned()
}

const THREE: &str = "shortest: 1000, longest: 1000, packets: 3";

#[test]
fn dma_read_source_ends_early_received_packets_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let card = format!("mock:{}", source(dir.path(), THREE));
    let (out, index) = (file(dir.path(), "out", "old"), dir.path().join("index"));
    let (out, index) = (out.to_str().unwrap(), index.to_str().unwrap());
    let args = ["dma", "read", "--out", out, "--card", &card, "--timeout", "10s", "--json"];
    let ran = fpgactl(&[&args[..], &["--packets", "5", "--index", index]].concat());
    assert!(ran.status == 1 && ran.stderr.contains("3 of 5 packets (3000 bytes) were received"), "{ran:?}");
    let report = ran.json();
    assert_eq!((&report["packets"], &report["bytes"]), (&3.into(), &3000.into()));
    assert!(
        report["error"]["kind"] == "operation" && report["packet_lengths"].as_array().unwrap().len() == 3
    );
    assert_eq!(fs::metadata(out).unwrap().len(), 3000);
    let lines = "packet,offset,length\n0,0,1000\n1,1000,1000\n2,2000,1000\n";
    assert_eq!(fs::read_to_string(index).unwrap(), lines);
    // Bytes instead of packets, and nothing at all.
    let ran = fpgactl(&[&args[..], &["--len", "5000"]].concat());
    assert!(ran.status == 1 && ran.stderr.contains("3000 of 5000 bytes were received"), "{ran:?}");
    let silent = ["dma", "read", "--packets", "2", "--out", out, "--timeout", "10s", "--json"];
    let ran = on(LOOPBACK, &silent);
    assert!(ran.status == 1 && ran.stderr.contains("0 of 2 packets (0 bytes) were received"), "{ran:?}");
    assert!(ran.json()["error"]["message"].as_str().unwrap().contains("was not written"));
    assert_eq!(fs::metadata(out).unwrap().len(), 3000, "the file is not changed");
}

#[test]
fn dma_read_packet_too_long_earlier_packets_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let card = format!("mock:{}", source(dir.path(), "shortest: 64, longest: 4096"));
    let out = dir.path().join("out");
    let args = ["dma", "read", "--packets", "50", "--out", out.to_str().unwrap(), "--card", &card, "--json"];
    let lengths: Vec<u64> = fpgactl(&args).ok().json()["packet_lengths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|length| length.as_u64().unwrap())
        .collect();
    let whole = fs::read(&out).unwrap();
    let most = lengths[0].next_multiple_of(64);
    let kept = lengths.iter().position(|length| *length > most).unwrap();
    let ran = fpgactl(&[&args[..], &["--packet", &most.to_string()]].concat());
    assert!(ran.status == 1 && ran.stderr.contains("a packet is lost"), "{ran:?}");
    assert_eq!(ran.json()["packets"], kept);
    let bytes: u64 = lengths[..kept].iter().sum();
    assert_eq!(fs::read(&out).unwrap(), whole[..usize::try_from(bytes).unwrap()]);
}

/// The first process leaves the stream inside the first packet.
#[test]
fn dma_read_stream_left_inside_packet_next_process_gets_whole_packet() {
    let dir = tempfile::tempdir().unwrap();
    let path = source(dir.path(), "shortest: 3000, longest: 3100");
    let out = dir.path().join("out");
    let args = ["dma", "read", "--out", out.to_str().unwrap(), "--json"];
    let mock = format!("mock:{path}");
    let report = fpgactl(&[&args[..], &["--packets", "2", "--card", &mock]].concat()).ok().json();
    let first = usize::try_from(report["packet_lengths"][0].as_u64().unwrap()).unwrap();
    let second = fs::read(&out).unwrap().split_off(first);
    let served = Served::with(&["--card-file", &path]);
    let card = served.card();
    for partial in [&["--packets", "1", "--packet", "1000"][..], &["--len", "1000"]] {
        let expected = i32::from(partial[0] == "--packets");
        assert_eq!(fpgactl(&[&args[..], partial, &["--card", &card]].concat()).status, expected);
        if expected == 0 {
            continue;
        }
        let report = fpgactl(&[&args[..], &["--card", &card]].concat()).ok().json();
        assert_eq!((&report["packets"], &report["discarded_bytes"]), (&1.into(), &(first - 1024).into()));
        assert_eq!(fs::read(&out).unwrap(), second);
    }
    // Inside the third packet now.
    let report = fpgactl(&[&args[..], &["--card", &card]].concat()).ok().json();
    assert!(report["bytes"].as_u64().unwrap() >= 3000 && report["discarded_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn dma_read_stream_without_packet_ends_fills_length() {
    let dir = tempfile::tempdir().unwrap();
    let card = format!("mock:{}", source(dir.path(), "shortest: 4000, longest: 9000, endless_packet: true"));
    let (out, longer) = (dir.path().join("out"), dir.path().join("longer"));
    for (path, length) in [(&out, 100_001), (&longer, 200_000)] {
        let length = length.to_string();
        let args =
            ["dma", "read", "--len", &length, "--out", path.to_str().unwrap(), "--card", &card, "--json"];
        let report = fpgactl(&args).ok().json();
        assert_eq!((report["bytes"].to_string(), &report["packets"]), (length, &0.into()));
    }
    assert_eq!(fs::read(&out).unwrap(), fs::read(&longer).unwrap()[..100_001]);
}

/// Standard output shows that the packets have arrived, so that the command waits for the next one.
#[test]
fn dma_read_signal_keeps_received_packets() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index");
    for number in [Signal::INT, Signal::TERM] {
        let served = Served::with(&["--card-file", &source(dir.path(), THREE)]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["dma", "read", "--packets", "5", "--out", "-", "--card", &served.card()]);
        command.arg("--index").arg(&index).env_remove("RUST_LOG").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3000]).unwrap();
        kill_process(Pid::from_child(&child), number).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("3 of 5 packets (3000 bytes) were received"), "{said}");
        assert!(said.contains("stopped by a signal"), "{said}");
        assert_eq!(fs::read_to_string(&index).unwrap().lines().count(), 4);
    }
}

/// The first MiB arrives; an access to the second one is never answered. It needs its time for the driver's wait until the engine is idle
/// (2 s), which no option of the command shortens.
#[test]
fn dma_write_signal_during_silent_access_reports_progress() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 3\nquirks: { silent_memory: { base: 0x100000, size: 0x1000000 } }\n";
    let card_file = file(dir.path(), "card.yaml", text);
    let served = Served::with(&["--card-file", card_file.to_str().unwrap()]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(["dma", "write", "-", "--addr", "0", "--card", &served.card(), "--timeout", "1h"]);
    command.env_remove("RUST_LOG").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The command takes four chunks, and one more when the first one has arrived.
    stdin.write_all(&vec![7; 5 << 20]).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped by a signal; 1048576 bytes (1 MiB) in card memory"), "{said}");
}
