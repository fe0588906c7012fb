//! `dma`, `info` and `validate` on cards with AXI4-Stream channels.

use std::fs;

use crate::support::{file, fpgactl, pattern, piped};

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
    let args = ["dma", "write", input.to_str().unwrap(), "--timeout", "200ms"];
    let ran = on(LOOPBACK, &args);
    assert!(ran.status == 1 && ran.stderr.contains("accepts no more packets"), "{}", ran.stderr);
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
        &["dma", "read", "--out", input, "--len", "64"],
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
