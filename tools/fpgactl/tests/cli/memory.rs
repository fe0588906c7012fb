//! `dma` and `cdma` on a simulated card.

use std::fs;

use crate::support::{file, fpgactl, pattern};

#[test]
fn a_file_is_written_to_card_memory() {
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
fn card_memory_is_read_to_a_file() {
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
fn the_copy_engine_copies() {
    let args = ["cdma", "copy", "--src", "0x1000", "--dst", "1GiB", "--len", "100MiB", "--json"];
    let report = fpgactl(&args).ok().json();
    assert_eq!((report["src"].as_str(), report["dst"].as_str()), (Some("0x1000"), Some("0x40000000")));
    assert_eq!(report["bytes"], 100 << 20);
    assert!(report["card_us"].as_f64().unwrap() > 0.0);
    let text = fpgactl(&["cdma", "copy", "--src", "0", "--dst", "0x2000", "--len", "4KiB"]).ok().stdout;
    assert!(text.contains("card time"), "{text}");
}

#[test]
fn the_copy_engine_gives_up_in_time() {
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
