//! `dma bench`: content of the report, not the speed.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use serde_json::Value;

use crate::support::{CommandResult, file, fpgactl};

/// Runs `dma bench` with short measurements.
fn bench(args: &[&str]) -> CommandResult {
    let short = ["dma", "bench", "--seconds", "0.005", "--samples", "50", "--batches", "4"];
    fpgactl(&[&short, args].concat())
}

fn lines(ran: &CommandResult) -> Vec<Value> {
    ran.json()["results"].as_array().unwrap().clone()
}

#[test]
fn bench_json_has_contract_keys() {
    let ran = bench(&["--sizes", "64,4KiB", "--depth", "32", "--json"]).ok();
    let lines = lines(&ran);
    let found: Vec<(u64, &str)> = lines
        .iter()
        .map(|line| (line["size"].as_u64().unwrap(), line["direction"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(64, "h2c"), (64, "c2h"), (4096, "h2c"), (4096, "c2h")]);
    for line in &lines {
        for key in [
            "ops_per_s",
            "gb_per_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "mmio_reads_per_op",
            "mmio_writes_per_op",
            "interrupts_per_op",
            "thread_cpu_ns_per_op",
        ] {
            assert!(line[key].is_number(), "{key}: {line}");
        }
        assert!(line.as_object().unwrap().contains_key("cpu_ns_per_op"), "{line}");
        assert_eq!((line["depth"].as_u64(), line["mode"].as_str()), (Some(32), Some("poll")));
        assert_eq!((line["ring"].as_str(), line["channels"].as_u64()), (Some("stop"), Some(1)));
        assert_eq!((line["verified"].as_bool(), line["samples"].as_u64()), (Some(true), Some(50)));
        assert!(line["ops_per_s"].as_f64().unwrap() > 0.0, "{line}");
        // At least a whole working set, and its doorbells.
        assert!(line["operations"].as_u64().unwrap() >= 4096, "{line}");
        assert!(line["mmio_writes_per_op"].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn bench_beside_large_operations_is_verified() {
    for way in ["h2c", "c2h", "both"] {
        let args = ["--sizes", "64", "--direction", way, "--beside", "1MiB", "--mode", "poll,irq", "--json"];
        let ran = bench(&args).ok();
        assert_eq!(ran.json()["beside"].as_u64(), Some(1 << 20));
        for line in lines(&ran) {
            assert_eq!(line["verified"].as_bool(), Some(true), "{line}");
            assert!(line["copy_gb_per_s"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
    let refused = bench(&["--channels", "4", "--beside", "64"]);
    assert!(refused.status != 0 && refused.stderr.contains('5'), "{}", refused.stderr);
}

#[test]
fn bench_every_wait_mode_on_several_channels() {
    let args =
        ["--sizes", "512", "--direction", "both", "--mode", "poll,irq,hybrid", "--channels", "2", "--json"];
    let lines = lines(&bench(&args).ok());
    let modes: Vec<&str> = lines.iter().map(|line| line["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["poll", "irq", "hybrid"]);
    for line in &lines {
        assert_eq!((line["direction"].as_str(), line["channels"].as_u64()), (Some("both"), Some(2)));
        assert_eq!(line["verified"], true);
    }
    // 0 where every operation has ended before the wait for its interrupt begins.
    assert!(lines[1]["interrupts_per_op"].is_number(), "{lines:?}");
}

#[test]
fn bench_credit_mode_and_odd_sizes() {
    let args = ["--ring", "credit", "--sizes", "1,100,64KiB", "--depth", "3", "--batch", "2", "--json"];
    let ran = bench(&args);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for line in lines(&ran) {
        assert_eq!(
            (line["ring"].as_str(), line["verified"].as_bool()),
            (Some("credit"), Some(true)),
            "{line}"
        );
    }
}

#[test]
fn bench_parts_can_be_omitted() {
    let args = ["--sizes", "64", "--direction", "h2c", "--samples", "0", "--batches", "0"];
    let args = [&["dma", "bench", "--seconds", "5ms"], &args[..]].concat();
    let line = lines(&fpgactl(&[&args[..], &["--json"]].concat()).ok()).remove(0);
    assert!(line["p50_us"].is_null() && line["cpu_ns_per_op"].is_null(), "{line}");
    let text = fpgactl(&args).ok().stdout;
    for part in ["M OPS/S", "h2c", "256 in flight", "yes"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn bench_shared_cpu_warns_and_measures() {
    let args = ["--sizes", "64KiB", "--direction", "h2c", "--pin", "0,0"];
    let ran = bench(&[&args[..], &["--json"]].concat()).ok();
    assert_eq!(ran.json()["shared_cpu"], true);
    assert_eq!(lines(&ran)[0]["verified"], true);
    let text = bench(&args).ok().stdout;
    assert!(text.contains("share one CPU") && text.contains("--pin"), "{text}");
}

#[test]
fn bench_failure_reports_complete_rows() {
    let dir = tempfile::tempdir().unwrap();
    // The working set of the second size does not fit the memory: the card answers with a decode error.
    let card = "schema_version: 3\npci: {subsystem_device: 7}\nmemory: {base: 0, size: 1048576}\n";
    let card = format!("mock:{}", file(dir.path(), "small.yaml", card).display());
    let args = ["--sizes", "64,4KiB", "--direction", "h2c", "--card", &card];
    let ran = bench(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    let found: Vec<u64> = lines(&ran).iter().map(|line| line["size"].as_u64().unwrap()).collect();
    assert_eq!(found, [64], "{}", ran.stdout);
    assert!(ran.stderr.contains("after 1 of 2 rows"), "{}", ran.stderr);
    let text = bench(&args);
    assert!(text.status == 1 && text.stdout.contains("M OPS/S"), "{}{}", text.stdout, text.stderr);
}
