//! `docs/protocol.md` and its pages against the code: field tables, codes and packet lengths against the contract, parameters against the
//! defaults of the types, and the sections that comments and pages cite.
#![expect(clippy::expect_used, clippy::panic, reason = "a panic is the failure report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use fpga_firmware::generated::Scheme;
use fpga_firmware::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::{adaptive_window, messages, receiver_window, selective};
use fpga_protocol::sender::{SEGMENT_SPAN, SenderConfig, TimeoutPolicy};
use regex::Regex;
use serde_yaml::Value;

use crate::names::{files, root};

/// Entries of a list of the contract.
fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_sequence().map_or(&[], Vec::as_slice)
}

/// A text or number of the contract.
fn text(of: &Value, key: &str) -> String {
    of[key].as_str().map_or_else(|| of[key].as_u64().unwrap_or_default().to_string(), str::to_owned)
}

fn contract() -> Value {
    let text = fs::read_to_string(root().join("firmware-bindings/map/ni.yaml")).expect("the map exists");
    serde_yaml::from_str(&text).expect("the map is valid")
}

/// Texts of the document and of its pages.
fn pages() -> Vec<String> {
    let folder = root().join("docs/protocol");
    let mut files = vec![root().join("docs/protocol.md")];
    files.extend(fs::read_dir(folder).expect("pages exist").flatten().map(|entry| entry.path()));
    files.iter().map(|file| fs::read_to_string(file).expect("a page can be read")).collect()
}

/// Returns the first `columns` cells of each row of the tables that follow `title` in any page.
fn rows(title: &str, columns: usize) -> Vec<Vec<String>> {
    let pages = pages();
    let found: Vec<&str> =
        pages.iter().filter_map(|page| page.split_once(title)).map(|(_, rest)| rest).collect();
    let [rest] = found[..] else { panic!("{title}: in {} pages", found.len()) };
    let table = rest
        .lines()
        .skip(1)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        line.trim_matches('|').split('|').take(columns).map(|cell| cell.trim().to_owned()).collect()
    };
    table.skip(2).map(cells).collect()
}

#[test]
fn protocol_document_field_tables_match_contract() {
    let contract = contract();
    for layout in list(&contract, "layouts") {
        let name = text(layout, "name");
        if layout["packet"].is_null() && !["common", "window_header", "event"].contains(&name.as_str()) {
            continue;
        }
        let tail = layout["extends"]
            .as_str()
            .map_or(String::new(), |it| format!("; begins with the fields of `{it}`"));
        let fields = list(layout, "fields").iter().map(|field| {
            let bytes = match text(field, "type").as_str() {
                "bytes" => text(field, "length"),
                number => (number.trim_start_matches('u').parse::<u32>().expect("a type of the map") / 8)
                    .to_string(),
            };
            vec![text(field, "offset"), bytes, text(field, "name")]
        });
        let title = format!("Layout `{name}`, {} bytes{tail}:", text(layout, "size"));
        assert_eq!(rows(&title, 3), fields.collect::<Vec<_>>(), "{title}");
    }
}

#[test]
fn protocol_document_codes_match_contract() {
    let contract = contract();
    let pages = pages().concat();
    let mut seen = 0;
    for (kind, entries, names, number) in
        [("Codes", "enums", "variants", "value"), ("Bits", "bitsets", "bits", "bit")]
    {
        for it in list(&contract, entries) {
            let title = format!("{kind} of `{}`:", text(it, "name"));
            if pages.contains(&title) {
                let codes = list(it, names).iter().map(|code| vec![text(code, number), text(code, "name")]);
                assert_eq!(rows(&title, 2), codes.collect::<Vec<_>>(), "{title}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, pages.matches("Codes of `").count() + pages.matches("Bits of `").count());
    assert!(seen >= 8, "{seen} tables of codes");
}

#[test]
fn protocol_document_packet_lengths_match_contract() {
    let contract = contract();
    let kinds =
        list(&contract, "enums").iter().find(|it| it["name"] == "PacketKind").expect("a list of kinds");
    let row = |kind: &Value| {
        let name = text(kind, "name");
        // Two kinds share the layout of another one.
        let layout = match name.as_str() {
            "Nack" => "Ack",
            "HelloReply" => "Hello",
            name => name,
        };
        let layout = list(&contract, "layouts").iter().find(|it| it["packet"] == layout).expect("a layout");
        let size = layout["size"].as_u64().expect("a size");
        let name =
            Regex::new("([a-z])([A-Z])").expect("valid").replace_all(&name, "${1}_${2}").to_uppercase();
        vec![text(kind, "value"), name, (size + 4).to_string()]
    };
    let expected: Vec<_> = list(kinds, "variants").iter().map(row).collect();
    assert_eq!(rows("### 3.1 Structure", 3), expected);
}

/// Returns a time in the unit that the document uses for it.
fn span(time: Nanos) -> String {
    match time.get() {
        ns if ns % 1_000_000_000 == 0 => format!("{} s", ns / 1_000_000_000),
        ns if ns % 1_000_000 == 0 => format!("{} ms", ns / 1_000_000),
        ns => format!("{} us", ns / 1_000),
    }
}

/// Returns the defaults of all parameters of sections 2.1 and 2.2, by constant or field.
fn defaults() -> BTreeMap<&'static str, String> {
    let sender = SenderConfig::default();
    let receiver = ReceiverConfig::new(NodeId::new(1), Incarnation::new(1));
    let rules = SchemeConfig::new(Scheme::Selective, Nanos::from_micros(1)).expect("a message scheme");
    let sending = messages::SenderConfig::new(NodeId::new(1), rules);
    let receiving = messages::ReceiverConfig::new(NodeId::new(1), Incarnation::new(1), rules);
    let reads = messages::ReadConfig::new(NodeId::new(1), Incarnation::new(1));
    let TimeoutPolicy::Adaptive { initial, least, most } = sender.retry.timeout else {
        panic!("the default is adaptive")
    };
    let three_quarters = |whole: u32| (whole - whole / 4).to_string();
    assert_eq!((sender.ops_per_destination, sending.contexts_per_node), (0, 0), "0: three quarters");
    BTreeMap::from([
        ("SenderConfig::packet_size_log2", sender.packet_size().to_string()),
        ("SenderConfig::mask_bits", sender.mask_bits.to_string()),
        ("SenderConfig::segment_size", sender.segment_size.to_string()),
        ("SenderConfig::big_threshold", sender.big_threshold.to_string()),
        ("SEGMENT_SPAN", SEGMENT_SPAN.to_string()),
        ("SenderConfig::op_entries", sender.op_entries.to_string()),
        ("SenderConfig::generation_bits", sender.generation_bits.to_string()),
        ("SenderConfig::ops_per_destination", three_quarters(sender.op_entries)),
        ("SenderConfig::transfers", sender.transfers.to_string()),
        ("SenderConfig::destinations", sender.destinations.to_string()),
        ("SenderConfig::live_per_destination", sender.live_per_destination.to_string()),
        ("ReceiverConfig::registry_entries", receiver.registry_entries.to_string()),
        ("ReceiverConfig::hashed_registry", if receiver.hashed_registry { "yes" } else { "no" }.to_owned()),
        ("ReceiverConfig::escape_slots", receiver.escape_slots.to_string()),
        ("ReceiverConfig::transfers", receiver.transfers.to_string()),
        ("ReceiverConfig::sources", receiver.sources.to_string()),
        ("ReceiverConfig::nodes", receiver.nodes.to_string()),
        ("ReceiverConfig::tombstones", receiver.tombstones.to_string()),
        ("ReceiverConfig::windows", receiver.windows.to_string()),
        ("messages::SenderConfig::message_packets", sending.message_packets.to_string()),
        ("messages::SenderConfig::contexts", sending.contexts.to_string()),
        ("messages::SenderConfig::contexts_per_node", three_quarters(sending.contexts)),
        ("messages::ReceiverConfig::contexts", receiving.contexts.to_string()),
        ("messages::ReceiverConfig::peers", receiving.peers.to_string()),
        ("messages::SenderConfig::number_bits", sending.number_bits.to_string()),
        ("ReadConfig::slots", reads.slots.to_string()),
        ("SenderConfig::packet_lifetime", span(sender.packet_lifetime)),
        ("OpTable", span(sender.packet_lifetime.saturating_mul(2))),
        ("TimeoutPolicy (initial)", span(initial)),
        ("TimeoutPolicy (least)", span(least)),
        ("TimeoutPolicy (most)", span(most)),
        ("RetryPolicy::give_up", span(sender.retry.give_up)),
        ("RetryPolicy::busy_backoff", span(sender.retry.busy_backoff)),
        ("RetryPolicy::busy_backoff_max", span(sender.retry.busy_backoff_max)),
        ("ReceiverConfig::escape_timeout", span(receiver.escape_timeout)),
        ("ReceiverConfig::registry_timeout", span(receiver.registry_timeout)),
        ("messages::SenderConfig::ask", span(sending.ask)),
        ("messages::SenderConfig::give_up", span(sending.give_up)),
        ("messages::SenderConfig::rest", span(sending.rest)),
        ("messages::ReceiverConfig::silence", span(receiving.silence)),
        ("messages::ReceiverConfig::tombstone", span(receiving.tombstone)),
        ("messages::ReceiverConfig::lifetime", span(receiving.lifetime)),
        ("ReadConfig::ask", span(reads.ask)),
        ("ReadConfig::give_up", span(reads.give_up)),
        ("ReadConfig::silence", span(reads.silence)),
        ("ReadConfig::tombstone", span(reads.tombstone)),
    ])
}

#[test]
fn protocol_document_parameters_match_defaults() {
    let stated: BTreeMap<String, String> = [rows("### 2.1 Sizes", 4), rows("### 2.2 Timers", 4)]
        .concat()
        .into_iter()
        .map(|row| (row[3].replace('`', ""), row[1].clone()))
        .collect();
    let expected: BTreeMap<String, String> =
        defaults().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(stated, expected);
    let contract = contract();
    let ni = list(&contract, "blocks").iter().find(|block| block["name"] == "ni").expect("the NI's block");
    for row in rows("### 2.4 Values of the contract and of the driver", 2) {
        if let Some(name) = row[0].strip_prefix('`') {
            let name = name.trim_matches('`');
            let register = list(ni, "registers").iter().find(|it| it["name"] == name).expect("a register");
            assert_eq!(row[1], text(register, "reset"), "{name}");
        }
    }
}

#[test]
fn protocol_document_scheme_parameters_match_defaults() {
    let trip = Nanos::new(1000);
    let in_trips = |time: Nanos| match time.get() {
        ns if ns % 1000 == 0 => format!("{} RTT", ns / 1000),
        251 => "RTT/4 + 1 ns".to_owned(),
        ns => format!("{ns} ns"),
    };
    let receiver = receiver_window::ReceiverWindowConfig::new(trip);
    let adaptive = adaptive_window::AdaptiveWindowConfig::new(trip);
    let Some(SchemeConfig::AdaptiveWindow { overdue: Some(gap), .. }) =
        SchemeConfig::new(Scheme::AdaptiveWindow, trip)
    else {
        panic!("the receiver has a gap time")
    };
    let selective = selective::SelectiveConfig::new(trip);
    let credit = if receiver.credit { "on" } else { "off" };
    let expected = [
        receiver.window.to_string(),
        in_trips(receiver.hole_timeout),
        receiver.patience.to_string(),
        credit.to_owned(),
        in_trips(receiver.probe),
        adaptive.window.to_string(),
        adaptive.samples.to_string(),
        in_trips(adaptive.walk),
        format!("more than {}", adaptive.late),
        format!("{}, {}", in_trips(adaptive.initial), in_trips(adaptive.longest)),
        in_trips(gap),
        selective.window.to_string(),
        in_trips(selective.longest),
    ];
    let stated: Vec<String> = rows("### 8.7 Parameters", 3).into_iter().map(|row| row[2].clone()).collect();
    assert_eq!(stated, expected);
}

/// Numbers of all headings of the document, such as `5` and `5.4`.
fn sections() -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    for line in pages().iter().flat_map(|page| page.lines()).filter(|line| line.starts_with("##")) {
        let number = line.trim_start_matches('#').trim().split(' ').next().unwrap_or_default();
        assert!(sections.insert(number.to_owned()), "{line}: the number occurs twice");
    }
    sections
}

#[test]
fn cited_protocol_sections_exist() {
    let sections = sections();
    assert!((1..=12).all(|chapter| sections.contains(&chapter.to_string())), "{sections:?}");
    let mut unknown = Vec::new();
    // In the pages: `(4.5)`, `(4.5, 7.2)`.
    let inside = Regex::new(r"\((?:section )?(\d+\.\d+(?:, \d+\.\d+)*)\)").expect("valid");
    for page in pages() {
        let cited = inside.captures_iter(&page).filter_map(|found| found.get(1));
        unknown.extend(
            cited
                .flat_map(|numbers| numbers.as_str().split(", "))
                .filter(|number| !sections.contains(*number))
                .map(|number| format!("docs/protocol: section {number}")),
        );
    }
    let cited = Regex::new(r"protocol\.md (\d+(?:\.\d+)?)").expect("valid");
    let mut seen = 0;
    for (name, text) in files(&["*.rs", "*.md", "*.yaml", "*.toml", "*.snap"]) {
        for found in cited.captures_iter(&text).filter_map(|found| found.get(1)) {
            seen += 1;
            if !sections.contains(found.as_str()) {
                unknown.push(format!("{name}: section {}", found.as_str()));
            }
        }
    }
    assert!(seen > 30, "{seen} citations");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
