//! `ops`, `queues`, `registry`, `escape`, `stats`: listings in the middle of a transfer.

use serde_json::Value;

use crate::support::fpgactl;

/// Transfer with several impairments.
const LOAD: [&str; 8] = ["--size", "1MiB", "--loss", "5%", "--reorder", "128", "--seed", "7"];

#[track_caller]
fn listing(command: &str, more: &[&str]) -> Value {
    let mut args = vec![command, "--json"];
    args.extend(LOAD);
    args.extend(more);
    fpgactl(&args).ok().json()
}

#[track_caller]
fn text(command: &str) -> String {
    let mut args = vec![command];
    args.extend(LOAD);
    fpgactl(&args).ok().stdout
}

#[test]
fn registry_masks_are_drawn_and_match_words() {
    let report = listing("registry", &[]);
    let entries = report["entries"].as_array().unwrap();
    assert_eq!(report["occupancy"], entries.len());
    assert!(!entries.is_empty(), "{report}");
    for entry in entries {
        let (bits, expected) = (entry["bits"].as_str().unwrap(), entry["expected"].as_u64().unwrap());
        assert_eq!(bits.len() as u64, expected);
        let word = entry["mask"][0].as_str().unwrap().trim_start_matches("0x");
        let word = u64::from_str_radix(word, 16).unwrap();
        let drawn = bits.bytes().take(32).enumerate().filter(|(_, bit)| *bit == b'#');
        let set = drawn.fold(0, |set, (at, _)| set | 1_u64 << at);
        assert_eq!(word & !(!0 << expected.min(32)), set, "{entry}");
        assert_eq!(entry["received"].as_u64().unwrap(), u64::from(set.count_ones()));
        assert!(entry["received"].as_u64() < entry["expected"].as_u64(), "a complete entry is free");
        assert!(entry["age_us"].is_number());
    }
    assert_eq!(report["mirror"]["differences"], Value::Array(Vec::new()), "{report}");
    assert_eq!(report["mirror"]["occupancy"], report["occupancy"]);
    let text = text("registry");
    assert!(text.contains("registry entries in use") && text.contains('#') && text.contains('.'), "{text}");
    assert!(text.contains("no field differs"), "{text}");
}

#[test]
fn ops_shows_tries_ages_and_deadlines() {
    let report = listing("ops", &[]);
    let ops = report["ops"].as_array().unwrap();
    assert_eq!((&report["in_use"], &report["capacity"]), (&Value::from(ops.len()), &Value::from(4087)));
    assert!(!ops.is_empty());
    for op in ops {
        assert!(op["tries"].as_u64().unwrap() >= 1 && op["age_us"].is_number(), "{op}");
        assert_eq!((&op["node"], &op["transfer"]), (&Value::from(2), &Value::from(0)), "{op}");
    }
    assert!(ops.iter().any(|op| op["deadline_us"].as_f64() > Some(0.0)), "{report}");
    let acknowledged = report["acknowledged_bytes"].as_u64().unwrap();
    assert!((512 << 10..1 << 20).contains(&acknowledged), "{acknowledged}");
    let text = text("ops");
    assert!(text.contains("in flight") && text.contains("tries") && text.contains("in "), "{text}");
}

#[test]
fn queues_shows_progress_of_each_transfer() {
    let report = listing("queues", &["--at", "10%"]);
    let transfers = report["transfers"].as_array().unwrap();
    let [transfer] = transfers.as_slice() else { panic!("{report}") };
    assert_eq!((&transfer["queue"], &transfer["stage"]), (&Value::from("big"), &Value::from("in flight")));
    assert_eq!((&transfer["length"], &transfer["segments"]), (&Value::from(1 << 20), &Value::from(64)));
    let [queue] = report["destinations"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(queue["big_head_remaining"], transfer["remaining"]);
    assert!(queue["packets_in_flight"].as_u64().unwrap() > 0);
    assert!(text("queues").contains("in flight"));
}

#[test]
fn escape_shows_waiting_packets() {
    let waiting = (1..=20).find_map(|percent| {
        let report = listing("escape", &["--at", &format!("{percent}%")]);
        assert_eq!(report["occupancy"], report["slots"].as_array().unwrap().len());
        assert_eq!(report["mirror"]["differences"], Value::Array(Vec::new()), "{report}");
        report["slots"].as_array().unwrap().first().cloned()
    });
    let slot = waiting.expect("no escaped packet waits for its start packet at 5 % loss");
    assert!(slot["length"] == 512 && slot["age_us"].is_number() && slot["source"] == 1, "{slot}");
    assert!(text("escape").contains("escape slots in use"));
}

#[test]
fn stats_shows_both_ends() {
    let report = listing("stats", &["--at", "100%"]);
    let [sender, receiver] = report["ends"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(sender["driver"]["packets"], 2048);
    assert!(sender["driver"]["retransmits"].as_u64().unwrap() > 0);
    assert!(sender["driver"]["yielded"].is_number(), "{sender}");
    assert_eq!(receiver["interface"]["registrations"], 64);
    assert!(receiver["interface"]["rx_packets"].as_u64().unwrap() >= 2048);
    assert!(text("stats").contains("acknowledgements"));
}

/// A transfer through a congested hop: the controlled list names the receiver, with its rate.
#[test]
fn ops_lists_controlled_receivers() {
    let load = ["--size", "1MiB", "--reorder", "0", "--hop", "2Gbit", "--at", "90%", "--round-trip", "20us"];
    for (scheme, sender) in [("registry", "host"), ("adaptive-window", "card")] {
        for controller in [&[][..], &["--controller", "2"]] {
            let run = |json: &[&str]| {
                let args =
                    [&["ops", "--scheme", scheme, "--link-feedback"][..], json, &load, controller].concat();
                fpgactl(&args).ok()
            };
            let report = run(&["--json"]).json();
            let feedback = &report["link_feedback"];
            assert_eq!(feedback["controlled"], Value::from(vec![2]), "{scheme}: {report}");
            let [rate] = feedback["rates"].as_array().unwrap().as_slice() else { panic!("{feedback}") };
            assert_eq!((&rate["sender"], &rate["node"]), (&Value::from(sender), &Value::from(2)), "{rate}");
            assert!(rate["controlled"] == true && rate["rate"].as_f64().unwrap() < 1.0, "{rate}");
            if controller.is_empty() {
                let shown = run(&[]).stdout;
                assert!(shown.contains("link feedback: 1 receiver at a lowered rate"), "{shown}");
            }
        }
    }
    // A hop that drops link packets, and no link feedback at all.
    let args = ["ops", "--json", "--link-feedback", "--hop-feedback", "drops"];
    let report = fpgactl(&[&args[..], &load].concat()).ok().json();
    assert_eq!(report["link_feedback"]["controlled"], Value::Array(Vec::new()), "{report}");
    let report = fpgactl(&[&["ops", "--json"][..], &load].concat()).ok().json();
    assert!(report["link_feedback"].is_null(), "{report}");
    let stats = fpgactl(&[&["stats", "--json", "--link-feedback"][..], &load].concat()).ok().json();
    let interface = &stats["ends"][0]["interface"];
    assert!(interface["link_inquiries_sent"].as_u64() > Some(0), "{stats}");
    assert!(interface["link_passive_received"].as_u64() > Some(0), "{stats}");
}

/// If the card sends, its contexts are listed, and the mirror follows the receiver's.
#[test]
fn ops_lists_message_contexts() {
    let scheme = ["--scheme", "selective", "--segment", "16KiB"];
    let report = listing("ops", &scheme);
    let messages = report["messages"].as_array().unwrap();
    assert_eq!((&report["scheme"], &report["capacity"]), (&Value::from("selective"), &Value::from(64)));
    assert!(!messages.is_empty(), "{report}");
    for message in messages {
        assert_eq!((&message["node"], &message["transfer"]), (&Value::from(2), &Value::from(0)), "{message}");
        let order = ["first_open", "first_unsent", "packets"].map(|key| message[key].as_u64().unwrap());
        assert!(order.is_sorted() && order[2] == 32, "{message}");
    }
    let report = listing("registry", &scheme);
    let entries = report["entries"].as_array().unwrap();
    assert!(!entries.is_empty() && report["scheme"] == "selective", "{report}");
    for entry in entries {
        let (first, received) = (entry["first"].as_u64().unwrap(), entry["received"].as_u64().unwrap());
        assert!(first <= received && received < entry["expected"].as_u64().unwrap(), "{entry}");
    }
    assert_eq!(report["mirror"]["differences"], Value::Array(Vec::new()), "{report}");
    assert_eq!(report["mirror"]["occupancy"], report["occupancy"]);
    let report = listing("queues", &scheme);
    assert_eq!(report["card_sends"], true);
    let [transfer] = report["transfers"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((&transfer["stage"], &transfer["segments"]), (&Value::from("in flight"), &Value::from(64)));
}

#[test]
fn listing_unavailable_is_refused() {
    for (args, status, part) in [
        (["registry", "--at", "101%"], 2, "not a probability"),
        (["ops", "--loss", "2"], 2, "not a probability"),
        (["escape", "--card", "vfio-user:/nowhere"], 1, "/nowhere"),
        (["stats", "--blackout", "5ms"], 2, "is not a blackout"),
    ] {
        let ran = fpgactl(&args);
        assert_eq!(ran.status, status, "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    let ran = fpgactl(&["registry", "--card", "vfio-user:/nowhere", "--size", "1", "--loss", "1%"]);
    assert!(ran.status == 2 && ran.stderr.contains("simulated network"), "{ran:?}");
}
