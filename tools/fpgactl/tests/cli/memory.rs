//! `dma` and `cdma` on a simulated card.

use std::fs;

use crate::support::{Served, file, fpgactl, pattern};

#[test]
fn dma_write_file_reaches_card_memory() {
    let dir = tempfile::tempdir().unwrap();
    for length in [0, 1, 4096, 3 << 20] {
        let input = file(dir.path(), "in", pattern(length));
        let input = input.to_str().unwrap();
        for channel in ["0", "3"] {
            let args = ["dma", "write", input, "--addr", "0x1000", "--channel", channel, "--json"];
            let report = fpgactl(&args).ok().json();
            assert_eq!(report["bytes"], length);
            assert_eq!(report["addr"], "0x1000");
            assert_eq!(report["channel"], format!("h2c{channel}"));
            assert!(report["gb_per_s"].is_number() && report["seconds"].is_number());
        }
        let text = fpgactl(&["dma", "write", input, "--addr", "4KiB"]).ok().stdout;
        assert!(text.contains("GB/s") && text.contains("mock:0 0x1000"), "{text}");
    }
}

#[test]
fn dma_read_writes_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    for length in [0_usize, 1, 5 << 20] {
        let args = ["dma", "read", "--addr", "1MiB", "--len", &length.to_string(), "--out", out, "--json"];
        let report = fpgactl(&args).ok().json();
        assert_eq!(report["bytes"], length);
        assert_eq!(report["channel"], "c2h0");
        // A fresh card's memory reads as zeros.
        assert!(fs::read(out).unwrap() == vec![0; length]);
    }
    let text = fpgactl(&["dma", "read", "--addr", "0", "--len", "4KiB", "--out", out]).ok().stdout;
    assert!(text.contains("4096 (4 KiB)"), "{text}");
}

#[test]
fn cdma_copy_copies() {
    let args = ["cdma", "copy", "--src", "0x1000", "--dst", "1GiB", "--len", "100MiB", "--json"];
    let report = fpgactl(&args).ok().json();
    assert_eq!((report["src"].as_str(), report["dst"].as_str()), (Some("0x1000"), Some("0x40000000")));
    assert_eq!(report["bytes"], 100 << 20);
    assert!(report["card_us"].as_f64().unwrap() > 0.0);
    let text = fpgactl(&["cdma", "copy", "--src", "0", "--dst", "0x2000", "--len", "4KiB"]).ok().stdout;
    assert!(text.contains("card time"), "{text}");
}

#[test]
fn cdma_copy_ends_at_timeout() {
    let copy = ["cdma", "copy", "--src", "0", "--dst", "1GiB", "--len", "64MiB", "--timeout"];
    let late = fpgactl(&[&copy[..], &["1ns"]].concat());
    assert_eq!((late.status, late.stdout.as_str()), (1, ""));
    assert!(
        late.stderr.contains("0 of 67108864 bytes") && late.stderr.contains("--timeout"),
        "{}",
        late.stderr
    );
    fpgactl(&[&copy[..], &["1h"]].concat()).ok();
}

/// The limit counts wall-clock time although the card's clock is virtual: there, this copy takes some milliseconds.
#[test]
fn cdma_long_copy_ends_at_wall_clock_timeout() {
    let copy = ["cdma", "copy", "--src", "0", "--dst", "4GiB", "--len", "4GiB", "--timeout", "20ms"];
    let late = fpgactl(&copy);
    assert_eq!((late.status, late.stdout.as_str()), (1, ""));
    assert!(late.stderr.contains(" of 4294967296 bytes") && late.stderr.contains("20ms"), "{}", late.stderr);
}

#[test]
fn dma_range_beyond_memory_moves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let description = "schema_version: 1\nmemory: {base: 0, size: 0x1000000}\n";
    let small = file(dir.path(), "small.yaml", description);
    let served = Served::with(&["--card-file", small.to_str().unwrap()]);
    let card = served.card();
    let input = file(dir.path(), "in", pattern(3 << 20));
    let keep = file(dir.path(), "keep", "old");
    let (input, out) = (input.to_str().unwrap(), keep.to_str().unwrap());
    let addr = (0x100_0000 - (2 << 20)).to_string();
    let write = fpgactl(&["dma", "write", input, "--addr", &addr, "--card", &card]);
    assert_eq!(write.status, 1);
    for part in ["h2c0", "3145728 bytes at card address", "0x0 to 0xffffff"] {
        assert!(write.stderr.contains(part), "{part}: {}", write.stderr);
    }
    fpgactl(&["dma", "read", "--addr", &addr, "--len", "2MiB", "--out", out, "--card", &card]).ok();
    assert!(fs::read(&keep).unwrap() == vec![0; 2 << 20], "nothing was written to the card");
    fs::write(&keep, "old").unwrap();
    for (addr, len) in
        [("0", "16GiB"), ("0xffffffffffff0000", "4KiB"), ("0xffffffffffffffff", "2"), (addr.as_str(), "3MiB")]
    {
        let read = fpgactl(&["dma", "read", "--addr", addr, "--len", len, "--out", out, "--card", &card]);
        assert!(read.status == 1 && read.stderr.contains("card's memory"), "{}", read.stderr);
        assert_eq!(fs::read(&keep).unwrap(), b"old");
        let copy = fpgactl(&["cdma", "copy", "--src", "0", "--dst", addr, "--len", len, "--card", &card]);
        assert!(copy.status == 1 && copy.stderr.contains("CDMA"), "{}", copy.stderr);
    }
    // The description states it if the card does not.
    let text = format!("{description}pci: {{subsystem_device: 7}}\n");
    let plain = format!("mock:{}", file(dir.path(), "plain.yaml", text).display());
    let read = ["dma", "read", "--out", out, "--card", &plain, "--addr"];
    let ran = fpgactl(&[&read[..], &[&addr, "--len", "3MiB"]].concat());
    assert!(ran.status == 1 && ran.stderr.contains("0x0 to 0xffffff"), "{}", ran.stderr);
    assert_eq!(fs::read(&keep).unwrap(), b"old");
    fpgactl(&[&read[..], &[&addr, "--len", "2MiB"]].concat()).ok();
}

#[test]
fn dma_range_of_unknown_memory_is_checked_against_address_space() {
    let dir = tempfile::tempdir().unwrap();
    let plain = file(dir.path(), "plain.yaml", "schema_version: 1\npci: {subsystem_device: 7}\n");
    let served = Served::with(&["--card-file", plain.to_str().unwrap()]);
    let input = file(dir.path(), "in", pattern(3 << 20));
    let keep = file(dir.path(), "keep", "old");
    let addr = "0xfffffffffff00000";
    let write = ["dma", "write", input.to_str().unwrap(), "--addr", addr, "--card", &served.card()];
    let read = [
        "dma",
        "read",
        "--addr",
        addr,
        "--len",
        "3MiB",
        "--out",
        keep.to_str().unwrap(),
        "--card",
        &served.card(),
    ];
    for args in [&write[..], &read] {
        let ran = fpgactl(args);
        assert!(ran.status == 1 && ran.stderr.contains("exceeds the 64 address bits"), "{}", ran.stderr);
    }
    assert_eq!(fs::read(&keep).unwrap(), b"old");
}
