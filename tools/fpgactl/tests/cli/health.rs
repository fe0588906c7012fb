//! `validate`, `abort` and `reset`.

use serde_json::Value;

use crate::support::{file, fpgactl};

fn statuses(report: &Value) -> Vec<(&str, &str)> {
    let tests = report["tests"].as_array().map_or(&[][..], Vec::as_slice);
    tests.iter().filter_map(|test| Some((test["name"].as_str()?, test["status"].as_str()?))).collect()
}

#[test]
fn validate_healthy_card_exits_0() {
    let report = fpgactl(&["validate", "--json"]).ok().json();
    assert_eq!(report["card"], "mock:0");
    let tests = statuses(&report);
    assert!(tests.len() > 30 && tests.iter().all(|(_, status)| *status == "pass"), "{tests:?}");
    assert_eq!(report["passed"], tests.len());
    assert_eq!((&report["failed"], &report["warned"], &report["skipped"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(report["credit_ring_works"], true);
    assert_eq!(report["scratch"]["bytes"], 2 << 20);
    let message = report["tests"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("10ee:903f"), "{message}");

    let text = fpgactl(&["validate", "--seed", "5", "--timeout", "1m"]).ok().stdout;
    for part in ["STATUS", "transfer.c2h3", "ni.loopback", "0 failed, 0 skipped", "2 MiB of card memory"] {
        assert!(text.contains(part), "\"{part}\" is not in {text}");
    }
}

#[test]
fn validate_warnings_and_skips_exit_0() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\npci: {subsystem_device: 7}\nxdma: {long_descriptor_quirk: true, h2c_channels: 1, c2h_channels: 1}\n";
    let card = format!("mock:{}", file(dir.path(), "plain.yaml", text).display());
    let report = fpgactl(&["validate", "--card", &card, "--json"]).ok().json();
    let tests = statuses(&report);
    assert!(
        tests.contains(&("transfer.h2c0", "skip")) && tests.contains(&("registers.masks", "pass")),
        "{tests:?}"
    );
    assert!(report["scratch"].is_null() && report["writeback_needs_enable"].is_null());

    let args = ["validate", "--card", &card, "--scratch", "0x10000", "--scratch-size", "64KiB", "--json"];
    let report = fpgactl(&args).ok().json();
    let tests = statuses(&report);
    assert!(
        tests.contains(&("transfer.h2c0", "pass")) && tests.contains(&("descriptors.long", "warn")),
        "{tests:?}"
    );
    assert_eq!(
        (&report["scratch"]["addr"], &report["scratch"]["bytes"]),
        (&"0x10000".into(), &65_536.into())
    );
    assert_eq!((&report["long_blocks_work"], &report["warned"]), (&false.into(), &1.into()));
}

#[test]
fn validate_failed_test_exits_1_after_full_report() {
    let args = ["validate", "--scratch", "8GiB"];
    let ran = fpgactl(&args);
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains("fail") && ran.stdout.contains("memory.save"), "{}", ran.stdout);
    assert!(ran.stderr.contains("1 of ") && ran.stderr.contains("tests failed"), "{}", ran.stderr);
    let ran = fpgactl(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.status, 1);
    // Exactly one document, which is the report.
    let report = ran.json();
    assert!(statuses(&report).contains(&("memory.save", "fail")));
    assert_eq!(report["failed"], 1);
    assert!(report["error"].is_null());
}

#[test]
fn abort_reports_state_of_each_channel() {
    let report = fpgactl(&["abort", "--json"]).ok().json();
    assert_eq!((&report["well"], &report["was_reset"]), (&true.into(), &false.into()));
    let rungs = report["rungs"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(rungs.len(), 11);
    assert!(rungs.iter().all(|rung| rung["outcome"] == "not-needed" && rung["level"] == "channel"));
    assert_eq!((&rungs[5]["name"], &rungs[5]["found"]), (&"c2h1".into(), &"idle".into()));
    let text = fpgactl(&["abort", "--channel", "c2h1"]).ok().stdout;
    assert!(text.contains("c2h1: idle; no other part") && !text.contains("h2c0"), "{text}");
    let report = fpgactl(&["abort", "--channel", "1", "--json"]).ok().json();
    assert_eq!(report["scope"], "h2c1, c2h1");
    assert_eq!(report["rungs"].as_array().map(Vec::len), Some(2));
}

#[test]
fn reset_escalates_to_requested_level() {
    for (level, outcome, reached, was_reset, status) in [
        ("channel", None, "channel", false, 0),
        ("function", Some("unsupported"), "channel", false, 1),
        ("bus", Some("recovered"), "bus", true, 0),
    ] {
        let ran = fpgactl(&["reset", "--level", level, "--json"]);
        assert_eq!(ran.status, status, "{level}: {}", ran.stderr);
        let report = ran.json();
        assert_eq!((&report["well"], &report["was_reset"]), (&true.into(), &was_reset.into()));
        assert_eq!(report["reached"], reached);
        let last = report["rungs"].as_array().and_then(|rungs| rungs.last().cloned()).unwrap_or_default();
        assert_eq!(last["level"], level);
        if let Some(outcome) = outcome {
            assert_eq!((&last["name"], &last["outcome"]), (&level.into(), &outcome.into()));
        }
    }
    // The card is healthy, and was not reset: the message states that the requested reset is unsupported, and which option enables it.
    let ran = fpgactl(&["reset", "--level", "function"]);
    assert!(ran.stdout.contains("unsupported") && ran.stdout.contains("FLReset-"), "{}", ran.stdout);
    assert!(
        ran.status == 1 && ran.stderr.contains("not reset") && ran.stderr.contains("--level bus"),
        "{}",
        ran.stderr
    );
    let text = fpgactl(&["reset"]).ok().stdout;
    assert!(text.contains("interrupts") && text.contains("answers and is idle"), "{text}");
}

#[test]
fn health_help_has_examples() {
    for (command, part) in
        [("validate", "--scratch-size 1MiB"), ("abort", "--channel c2h1"), ("reset", "--level bus --json")]
    {
        let help = fpgactl(&[command, "--help"]).ok().stdout;
        assert!(help.contains("Examples:") && help.contains(part), "{help}");
    }
}
