//! `docs/protocol.md` and its pages against the code: field tables, codes and packet lengths against the contract, parameters against the
//! defaults of the types, and the sections that comments and pages cite.
#![expect(clippy::expect_used, clippy::panic, reason = "a panic is the failure report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_firmware::generated::Scheme;
use fpga_firmware::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::{
    adaptive_window, messages, receiver_counter, receiver_window, selective, sender_window,
};
use fpga_protocol::sender::{SEGMENT_SPAN, SenderConfig, TimeoutPolicy};
use regex::Regex;

/// Contract, as far as the document repeats it.
#[derive(serde::Deserialize)]
struct Contract {
    enums: Vec<Enum>,
    bitsets: Vec<Bitset>,
    layouts: Vec<Layout>,
    blocks: Vec<Block>,
}

#[derive(serde::Deserialize)]
struct Enum {
    name: String,
    variants: Vec<Variant>,
}

#[derive(serde::Deserialize)]
struct Variant {
    name: String,
    value: u32,
}

#[derive(serde::Deserialize)]
struct Bitset {
    name: String,
    bits: Vec<Bit>,
}

#[derive(serde::Deserialize)]
struct Bit {
    name: String,
    bit: u32,
}

#[derive(serde::Deserialize)]
struct Layout {
    name: String,
    size: u32,
    extends: Option<String>,
    packet: Option<String>,
    fields: Vec<Field>,
}

#[derive(serde::Deserialize)]
struct Field {
    name: String,
    offset: u32,
    r#type: String,
    #[serde(default)]
    length: u32,
}

#[derive(serde::Deserialize)]
struct Block {
    name: String,
    registers: Vec<Register>,
}

#[derive(serde::Deserialize)]
struct Register {
    name: String,
    reset: Option<u64>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn contract() -> Contract {
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
    let whole_packets = contract.layouts.iter().filter(|layout| layout.packet.is_some());
    let others =
        contract.layouts.iter().filter(|it| ["common", "window_header", "event"].contains(&it.name.as_str()));
    for layout in whole_packets.chain(others) {
        let tail =
            layout.extends.as_ref().map_or(String::new(), |it| format!("; begins with the fields of `{it}`"));
        let fields: Vec<Vec<String>> = layout
            .fields
            .iter()
            .map(|field| {
                let bytes = match field.r#type.as_str() {
                    "bytes" => field.length,
                    number => number.trim_start_matches('u').parse::<u32>().expect("a type of the map") / 8,
                };
                vec![field.offset.to_string(), bytes.to_string(), field.name.clone()]
            })
            .collect();
        let title = format!("Layout `{}`, {} bytes{tail}:", layout.name, layout.size);
        assert_eq!(rows(&title, 3), fields, "{title}");
    }
}

#[test]
fn protocol_document_codes_match_contract() {
    let contract = contract();
    let mut tables: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for it in &contract.enums {
        let codes = it.variants.iter().map(|it| (it.value, it.name.clone())).collect();
        tables.insert(format!("Codes of `{}`:", it.name), codes);
    }
    for it in &contract.bitsets {
        tables.insert(
            format!("Bits of `{}`:", it.name),
            it.bits.iter().map(|it| (it.bit, it.name.clone())).collect(),
        );
    }
    let text = pages().concat();
    let mut seen = 0;
    for (title, codes) in tables.iter().filter(|(title, _)| text.contains(title.as_str())) {
        let expected: Vec<_> =
            codes.iter().map(|(code, name)| vec![code.to_string(), name.clone()]).collect();
        assert_eq!(rows(title, 2), expected, "{title}");
        seen += 1;
    }
    assert_eq!(seen, text.matches("Codes of `").count() + text.matches("Bits of `").count());
    assert!(seen >= 8, "{seen} tables of codes");
}

#[test]
fn protocol_document_packet_lengths_match_contract() {
    let contract = contract();
    let kinds = contract.enums.iter().find(|it| it.name == "PacketKind").expect("the kinds are in the map");
    let expected: Vec<Vec<String>> = kinds
        .variants
        .iter()
        .map(|kind| {
            // Two kinds share the layout of another one.
            let layout = match kind.name.as_str() {
                "Nack" => "Ack",
                "HelloReply" => "Hello",
                name => name,
            };
            let size = contract
                .layouts
                .iter()
                .find(|it| it.packet.as_deref() == Some(layout))
                .expect("a layout")
                .size;
            let name: String = kind.name.chars().enumerate().fold(String::new(), |mut name, (at, c)| {
                if at > 0 && c.is_uppercase() {
                    name.push('_');
                }
                name.extend(c.to_uppercase());
                name
            });
            vec![kind.value.to_string(), name, (size + 4).to_string()]
        })
        .collect();
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
    let ni = contract.blocks.iter().find(|block| block.name == "ni").expect("the NI's block");
    for row in rows("### 2.4 Values of the contract and of the driver", 2) {
        if let Some(name) = row[0].strip_prefix('`') {
            let register =
                ni.registers.iter().find(|it| it.name == name.trim_matches('`')).expect("a register");
            assert_eq!(row[1], register.reset.expect("a reset value").to_string(), "{name}");
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
    let sender = sender_window::SenderWindowConfig::new(trip);
    let counter = receiver_counter::ReceiverCounterConfig::new(trip);
    let adaptive = adaptive_window::AdaptiveWindowConfig::new(trip);
    let Some(SchemeConfig::AdaptiveWindow { overdue: Some(gap), .. }) =
        SchemeConfig::new(Scheme::AdaptiveWindow, trip)
    else {
        panic!("the receiver has a gap time")
    };
    let selective = selective::SelectiveConfig::new(trip);
    let credit = if receiver.credit { "on" } else { "off" };
    let reports = if counter.reports { "on" } else { "off" };
    let expected = [
        receiver.window.to_string(),
        in_trips(receiver.hole_timeout),
        receiver.patience.to_string(),
        credit.to_owned(),
        in_trips(receiver.probe),
        sender.window.to_string(),
        format!("{}, {}", in_trips(sender.timeout), in_trips(sender.longest)),
        in_trips(counter.timeout),
        in_trips(counter.backstop),
        reports.to_owned(),
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
    let outside = Regex::new(r"\bspec,? (?:section )?\d|\b[Dd]ocuments? 00\d").expect("valid");
    let files = Command::new("git")
        .arg("-C")
        .arg(root())
        .args(["ls-files", "*.rs", "*.md", "*.yaml", "*.toml", "*.snap"])
        .output()
        .expect("git lists the files");
    let (files, mut seen) = (String::from_utf8_lossy(&files.stdout).into_owned(), 0);
    for name in files.lines().filter(|name| *name != "docs/dev/words.yaml") {
        let text = fs::read_to_string(root().join(name)).unwrap_or_default();
        for (line, number) in text.lines().zip(1..) {
            for found in cited.captures_iter(line).filter_map(|found| found.get(1)) {
                seen += 1;
                if !sections.contains(found.as_str()) {
                    unknown.push(format!("{name}:{number}: section {}", found.as_str()));
                }
            }
            if outside.is_match(line) {
                unknown
                    .push(format!("{name}:{number}: cites a text outside the repository: {}", line.trim()));
            }
        }
    }
    assert!(seen > 30, "{seen} citations");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
