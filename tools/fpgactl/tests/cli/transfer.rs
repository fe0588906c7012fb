//! `transfer` through two simulated cards.

use std::fs;

use serde_json::Value;

use crate::support::{file, fpgactl, pattern};

#[track_caller]
fn transfer(args: &[&str]) -> Value {
    let mut all = vec!["transfer", "--json"];
    all.extend(args);
    let report = fpgactl(&all).ok().json();
    assert_eq!(report["verified"], true, "{report}");
    assert_eq!(report["leftovers"], 0, "{report}");
    assert_eq!(report["transfers"], report["local_completions"]);
    assert_eq!(report["transfers"], report["remote_notifications"]);
    assert_eq!(report["scheme"], "registry");
    report
}

#[test]
fn transfer_json_has_contract_keys() {
    let report = transfer(&["--size", "1MiB", "--seed", "9"]);
    for key in ["bytes", "seconds", "goodput_gb_per_s", "packets_sent", "retransmits", "duplicates_dropped"] {
        assert!(report[key].is_number(), "{key}: {report}");
    }
    for key in ["escape_hits", "escape_dropped", "registrations", "silent_segments", "seed"] {
        assert!(report[key].is_number(), "{key}: {report}");
    }
    assert_eq!(report["bytes"], 1 << 20);
    assert_eq!(report["seed"], 9);
    // 32 segments of 32 KiB, all but the last without a completion event; 8 packets each.
    assert_eq!(report["registrations"], 32);
    assert_eq!(report["silent_segments"], 31);
    let sent = report["packets_sent"].as_u64().unwrap();
    // The other one asks the receiver for its mask.
    assert_eq!(sent - report["retransmits"].as_u64().unwrap(), 256 + 1);
    assert_eq!(report["card_clock"], "virtual");
    assert!(report["local_completion_us"]["mean"].as_f64().unwrap() > 0.0);
    assert!(report["remote_notification_us"]["mean"].as_f64().unwrap() > 0.0);
}

/// A slower part of the cards takes a larger share of the time.
#[test]
fn transfer_reports_where_time_went() {
    let dir = tempfile::tempdir().unwrap();
    // The sender waits while the receiver reads its card.
    let share = |part: &str, ends: &[&str], sections: &str| {
        let card = file(dir.path(), "card.yaml", format!("schema_version: 3\n{sections}\n").as_bytes());
        let card = format!("mock:{}", card.display());
        let report = transfer(&["--size", "1MiB", "--reorder", "0", "--card", &card]);
        let (mut spent, mut all) = (0.0, 0.0);
        for end in ends {
            let time = report[end].as_object().unwrap();
            let whole: f64 = time.values().map(|part| part.as_f64().unwrap()).sum();
            assert!(whole > 1e6 * report["card_seconds"].as_f64().unwrap(), "{report}");
            spent += time[part].as_f64().unwrap();
            all += whole;
        }
        spent / all
    };
    for (part, ends, slow) in [
        ("pcie_us", &["time", "receiver_time"][..], "link: { speed: 1, width: 1 }"),
        ("card_us", &["time"], "cdma: { data_width: 32 }"),
        ("network_us", &["time"], "ni: { megabits_per_second: 1000 }"),
    ] {
        let (usual, slow) = (share(part, ends, ""), share(part, ends, slow));
        assert!(slow > 0.45 && slow > 1.5 * usual, "{part}: {usual} -> {slow}");
    }
    let text = fpgactl(&["transfer", "--size", "1MiB", "--chart"]).ok().stdout;
    for name in ["sender: in PCIe", "sender: in card", "receiver: in network", "receiver: in host"] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains(" µs ") && line.contains(" %  "), "{line}");
    }
}

#[test]
fn transfer_every_scheme_over_lossy_network_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let content = pattern(300_001);
    let input = file(dir.path(), "in", &content);
    for scheme in ["receiver-window", "adaptive-window", "selective"] {
        let output = dir.path().join(scheme);
        let ran = fpgactl(&[
            "transfer",
            "--json",
            input.to_str().unwrap(),
            "--out",
            output.to_str().unwrap(),
            "--scheme",
            scheme,
            "--loss",
            "2%",
            "--duplicate",
            "2%",
            "--corrupt",
            "1%",
            "--segment",
            "8KiB",
            "--chunk",
            "100KiB",
        ]);
        let report = ran.ok().json();
        assert_eq!(
            (&report["verified"], &report["leftovers"]),
            (&Value::from(true), &Value::from(0)),
            "{report}"
        );
        assert_eq!(report["scheme"], scheme);
        assert_eq!(report["bytes"], 300_001);
        assert!(report["retransmits"].as_u64().unwrap() > 0, "{report}");
        // Two chunks of 100 KiB are 13 segments each, the rest is 12.
        assert!(report["registrations"].as_u64().unwrap() >= 38, "{report}");
        assert!(fs::read(&output).unwrap() == content, "{scheme}: arrived changed");
    }
    let ran = fpgactl(&["transfer", "--size", "1KiB", "--scheme", "selective", "--notify", "sender"]);
    assert!(ran.status == 1 && ran.stderr.contains("use --notify receiver"), "{ran:?}");
}

#[test]
fn transfer_long_data_uses_several_transfers() {
    let dir = tempfile::tempdir().unwrap();
    let content = pattern(2 * 65_536 + 7);
    let input = file(dir.path(), "in", &content);
    let output = dir.path().join("out");
    let report = transfer(&[input.to_str().unwrap(), "--chunk", "64KiB", "--out", output.to_str().unwrap()]);
    assert_eq!(report["transfers"], 3);
    let latency = &report["local_completion_us"];
    assert!(
        latency["min"].as_f64() < latency["max"].as_f64(),
        "the last transfer is the shortest: {latency}"
    );
    assert!(fs::read(&output).unwrap() == content);
    // A card with a megabyte of memory: the default chunk shrinks until two fit.
    let card = file(dir.path(), "small.yaml", "schema_version: 1\nmemory: {base: 0, size: 0x100000}\n");
    let report = transfer(&["--card", &format!("mock:{}", card.display()), "--size", "3MiB"]);
    assert!((6..9).contains(&report["transfers"].as_u64().unwrap()), "{report}");
}

/// The sender may end before the receiver polls for the last notification, and the receiver may be slow.
#[test]
fn transfer_receiver_that_falls_behind_gets_everything() {
    let dir = tempfile::tempdir().unwrap();
    let slow = "schema_version: 3\nlink: { speed: 1, width: 1 }\n";
    let slow = format!("mock:{}", file(dir.path(), "slow.yaml", slow.as_bytes()).display());
    for arguments in [
        &["--size", "9MiB", "--reorder", "0", "--card", &slow][..],
        &["--size", "4MiB", "--chunk", "1MiB", "--notify", "sender"],
        &["--size", "2000001", "--chunk", "300001"],
    ] {
        let report = transfer(arguments);
        assert_eq!(report["leftovers"], 0, "{arguments:?}");
    }
}

/// Virtual time passes at once while nothing happens: seconds of it, with an exchange between the cards' threads every 500 ns, would take
/// a quarter of a minute.
#[test]
fn transfer_without_any_frame_fails() {
    let ran = fpgactl(&["transfer", "--size", "64KiB", "--loss", "100%"]);
    assert!(ran.status == 1 && !ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn transfer_same_seed_repeats_run() {
    let run = |seed| {
        let mut report = transfer(&["--size", "300000", "--seed", seed, "--chunk", "100000"]);
        for key in ["seconds", "goodput_gb_per_s"] {
            report[key] = Value::Null;
        }
        report
    };
    // Each card has a thread of its own: which one runs first must not matter.
    let first = run("3");
    for _ in 0..8 {
        assert_eq!(first, run("3"));
    }
    assert_ne!(run("3")["escape_hits"], run("4")["escape_hits"]);
}

#[test]
fn transfer_size_and_notify_options() {
    let report =
        transfer(&["--size", "64KiB", "--notify", "sender", "--packet", "1KiB", "--segment", "8KiB"]);
    assert_eq!(report["notify"], "sender");
    assert_eq!(report["registrations"], 8);
    // The sender's notification is a packet of its own.
    assert_eq!(report["packets_sent"].as_u64().unwrap() - report["retransmits"].as_u64().unwrap(), 64 + 1);
    // At the threshold a transfer is one segment, above it it is cut.
    let report = transfer(&["--size", "4096", "--threshold", "4096"]);
    assert_eq!(report["registrations"], 1);
    let report = transfer(&["--size", "4097", "--threshold", "4096", "--segment", "4096"]);
    assert_eq!(report["registrations"], 2);
}

#[test]
fn transfer_to_other_peer_card() {
    let dir = tempfile::tempdir().unwrap();
    let peer = file(dir.path(), "peer.yaml", "schema_version: 1\nname: other\nni: {node_id: 77}\n");
    let report = transfer(&["--size", "100KiB", "--peer", &format!("mock:{}", peer.display())]);
    assert_eq!((&report["sender"], &report["receiver"]), (&Value::from("mock:0"), &Value::from("mock:1")));
    transfer(&["--size", "1KiB", "--peer", "mock"]);
}

#[test]
fn defaults_file_is_overridden_by_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        "schema_version: 1\njson: true\ntimeout: 5m\ntransfer:\n  size: 3KiB\n  seed: 5\n  notify: sender\n";
    let config = file(dir.path(), "defaults.yaml", text);
    let config = config.to_str().unwrap();
    let report = fpgactl(&["transfer", "--config", config]).ok().json();
    assert_eq!((&report["bytes"], &report["seed"]), (&Value::from(3072), &Value::from(5)));
    assert_eq!(report["notify"], "sender");
    let report =
        fpgactl(&["transfer", "--config", config, "--size", "5KiB", "--notify", "receiver"]).ok().json();
    assert_eq!((&report["bytes"], &report["seed"]), (&Value::from(5120), &Value::from(5)));
    assert_eq!(report["notify"], "receiver");
}

#[test]
fn defaults_file_impairments_are_used_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\ntransfer:\n  size: 1MiB\n  loss: 5%\n  control_loss: 0\n  burst: 3\n  rate: 1Gbit\n";
    let config = file(dir.path(), "lossy.yaml", text);
    let report = transfer(&["--config", config.to_str().unwrap(), "--loss", "2%"]);
    let network = &report["impairments"];
    assert_eq!((&network["loss"], &network["control_loss"]), (&Value::from(0.02), &Value::from(0.0)));
    assert_eq!((&network["burst"], &network["duplicate"]), (&Value::from(3.0), &Value::Null));
    assert_eq!(
        (&network["rate_bits_per_s"], &network["queue_us"]),
        (&Value::from(1_000_000_000), &Value::from(1e3))
    );
    assert!(report["retransmits"].as_u64().unwrap() > 0, "{report}");
    // Never faster than the link: an eighth of a gigabyte per second, headers included.
    assert!(report["card_goodput_gb_per_s"].as_f64().unwrap() < 0.125, "{report}");
    assert_eq!(
        fpgactl(&["transfer", "--size", "1", "--burst", "3"]).status,
        2,
        "--burst without --loss is accepted"
    );
    assert_eq!(
        fpgactl(&["transfer", "--size", "1", "--rate", "10"]).status,
        2,
        "a rate without a unit is accepted"
    );
}

#[test]
fn transfer_text_matches_json() {
    let text = fpgactl(&["transfer", "--size", "64KiB"]).ok().stdout;
    for part in
        ["64 KiB", "every byte verified", "virtual card time", "GB/s", "µs", "still allocated", "0 (op table"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn transfer_failed_leaves_no_partial_file() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out");
    let ran =
        fpgactl(&["transfer", "--size", "64MiB", "--timeout", "1us", "--out", output.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("--timeout"), "{}", ran.stderr);
    assert!(!output.exists());
}

#[test]
fn logs_go_to_stderr() {
    let ran = fpgactl(&["transfer", "--size", "4KiB", "--json", "-vv"]);
    assert_eq!(ran.status, 0);
    assert!(ran.stderr.contains("arrived"), "{}", ran.stderr);
    assert_eq!(ran.json()["bytes"], 4096);
}

/// All built-in cards have the same node id; the second one gets the next.
#[test]
fn transfer_between_built_in_cards_is_verified() {
    for cards in [["mock", "mock:us-x8"], ["mock:us-x8", "mock:us-x8"]] {
        let ran =
            fpgactl(&["transfer", "--json", "--card", cards[0], "--peer", cards[1], "--size", "100000"]);
        assert_eq!(ran.ok().json()["verified"], true, "{cards:?}");
    }
}

#[test]
fn transfer_baselines_of_simulator_are_refused() {
    for scheme in ["sender-window", "receiver-counter", "registry-literal"] {
        let ran = fpgactl(&["transfer", "--scheme", scheme]);
        let known = "registry, receiver-window, adaptive-window, selective";
        assert!(ran.status == 2 && ran.stderr.contains(known), "{ran:?}");
    }
}

/// Without loss, the receiving card counts the packets that the sending card counts.
#[test]
fn transfer_without_loss_receives_what_was_sent() {
    for scheme in ["registry", "receiver-window"] {
        let report = fpgactl(&["transfer", "--size", "1MiB", "--scheme", scheme, "--no-progress", "--json"])
            .ok()
            .json();
        assert_eq!(report["packets_received"], report["packets_sent"], "{scheme}: {report}");
    }
}

/// Delays that vary by a thousand times the usual round trip: early packets wait for the first of their segment, and those that find no space
/// there do not count as lost in the network.
#[test]
fn transfer_over_varying_delay_takes_few_round_trips() {
    let report = transfer(&["--size", "1MiB", "--reorder", "0", "--jitter", "1ms"]);
    assert!(report["card_seconds"].as_f64().unwrap() <= 0.002 * 50.0, "{report}");
    // Of 2048 packets, beside those for which the escape channel had no slot.
    let spurious = report["retransmits"].as_u64().unwrap() - report["escape_dropped"].as_u64().unwrap();
    assert!(spurious <= 60, "{report}");
}

/// Without congestion windows a slow port drops many packets, unless the receiver limits the sender.
#[test]
fn transfer_without_congestion_window_loses_more() {
    let retransmits = |scheme: &str, more: &[&str]| {
        let load =
            ["transfer", "--size", "1MiB", "--hop", "10Gbit", "--reorder", "0", "--scheme", scheme, "--json"];
        fpgactl(&[&load[..], &["--packet", "512"], more].concat()).ok().json()["retransmits"]
            .as_u64()
            .unwrap()
    };
    for scheme in ["registry", "selective", "receiver-window"] {
        let (with, without) = (retransmits(scheme, &[]), retransmits(scheme, &["--no-congestion-window"]));
        assert!(with * 2 < without, "{scheme}: {with} and {without}");
    }
    let limited = retransmits("receiver-window", &["--no-congestion-window", "--credit"]);
    let free = retransmits("receiver-window", &["--no-congestion-window"]);
    assert!(limited < free, "{limited} and {free}");
}
