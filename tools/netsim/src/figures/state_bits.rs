//! Bits of state per context of every scheme (source 004, table 5), as a bitstream would pack the fields of the state machines: indices
//! as wide as their ranges, times in ticks of 32 bits, one bit per packet of a bitmap.
//!
//! The fields that identify a context (node, incarnation, context, message number, address, key, length) are the same for all schemes but
//! the registry's and are not listed: source 004 compares what the schemes add. The registry's tables are counted from their types.
//!
//! Two other counts stand beside it: `in memory`, the size of each type with its heap memory, and `source 004`, the fields that section 3.1
//! of the source names for its three schemes, in the same widths. The cells of its table 5 are not preserved in the available copy.

use std::fmt::Write as _;

use fpga_firmware::Incarnation;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Receiver, ReceiverConfig};
use fpga_protocol::scheme::{
    MAX_MESSAGE_PACKETS, adaptive_window, mapping, receiver_counter, receiver_window, selective,
    sender_window,
};

use fpga_protocol::sender::{Sender, SenderConfig};

use super::float;
use super::picture::{Curve, CurveKind, Panel, Picture, Scale};
use super::{Figure, RenderedFigure};
use crate::scenario::RECEIVER;

/// CSV header of this figure.
const HEADER: &str = "scheme,side,field,bits,per";
/// Index of a packet, or a count of packets: 0 to 4096 [E0-11].
const INDEX: u32 = MAX_MESSAGE_PACKETS.ilog2() + 1;
const TIME: u32 = 32;
/// Number of a context at its node; number of a round.
const CONTEXT: u32 = u16::BITS;
const ROUND: u32 = u8::BITS;
/// Marks the fields that source 004 names.
const PER_SOURCE: &str = "context as in source 004";
const SEQUENCE: u32 = 32;
/// Number of doublings of a wait: 0 to 4.
const BACK_OFF: u32 = 3;
const WIDTH: u32 = mapping::WIDTH;
/// Statistics of the round trip: mean, deviation, maximum, and whether there is a sample.
const ROUND_TRIP: u32 = 3 * TIME + 1;
/// Statistics of the disorder: two maxima, a mean, a sum, counts of samples and retransmissions, and the margin.
const DISORDER: u32 = 4 * TIME + 7 + 2 * 16 + 6;
/// Number of sendings that a sender with bitmaps remembers.
const fn sendings(window: u32) -> u32 {
    if window > WIDTH { 2 * window } else { 4 * window }
}

struct Field {
    scheme: &'static str,
    side: &'static str,
    field: &'static str,
    bits: u32,
    per: &'static str,
}

const SCHEMES: &[&str] = &[
    "receiver-window",
    "receiver-window credit",
    "sender-window",
    "receiver-counter",
    "adaptive-window",
    "selective",
];

/// Scheme names short enough for the picture.
const SHORT: &[&str] = &[
    "receiver-window",
    "receiver-w. credit",
    "sender-window",
    "receiver-counter",
    "adaptive-window",
    "selective",
];

fn fields() -> Vec<Field> {
    let trip = Nanos::from_micros(2);
    let window = receiver_window::ReceiverWindowConfig::new(trip);
    let sending = sender_window::SenderWindowConfig::new(trip);
    let adaptive = adaptive_window::AdaptiveWindowConfig::new(trip);
    let selective = selective::SelectiveConfig::new(trip);
    let mut all = Vec::new();
    let mut add = |scheme, side, fields: &[(&'static str, u32)]| {
        all.extend(fields.iter().map(|(field, bits)| Field {
            scheme,
            side,
            field,
            bits: *bits,
            per: "context",
        }));
    };
    for (scheme, credit) in [("receiver-window", false), ("receiver-window credit", true)] {
        let mut sender = vec![
            ("count", INDEX),
            ("next", INDEX),
            ("never sent from", INDEX),
            ("round trip", ROUND_TRIP),
            ("requested", MAX_MESSAGE_PACKETS),
            ("active", TIME),
            ("probing", 1),
            ("silent", BACK_OFF),
            ("done", 1),
        ];
        if credit {
            sender.push(("limit", INDEX));
        }
        add(scheme, "sender", &sender);
        let strikes = u32::from(window.patience).ilog2() + 1;
        add(
            scheme,
            "receiver",
            &[
                ("base", INDEX),
                ("received bitmap", window.window),
                ("count", INDEX),
                ("tail seen", 1),
                ("deadline", TIME),
                ("strikes", strikes),
                ("ranges", BACK_OFF + 1),
                // Order evidence and measured timers.
                ("highest", INDEX),
                ("announced count", INDEX),
                ("times of gaps and requests", window.window * TIME),
                ("requested, repeatedly, to be requested", 3 * window.window),
                ("last new packet", TIME),
                ("acceptance", TIME + 1),
                ("round trip", ROUND_TRIP),
                ("disorder", DISORDER),
            ],
        );
        if !credit {
            add(scheme, "receiver", &[("dropped beyond the window", WIDTH + 2 * INDEX + 1)]);
        }
    }
    add(
        "sender-window",
        "sender",
        &[
            ("count", INDEX),
            ("base", INDEX),
            ("next", INDEX),
            ("acknowledged", sending.window),
            ("retransmit", sending.window),
            ("repeated", sending.window),
            ("send times", sending.window * TIME),
            ("round trip", ROUND_TRIP),
            ("deadline", TIME),
            ("silent", 5),
        ],
    );
    add(
        "sender-window",
        "receiver",
        &[("received bitmap", MAX_MESSAGE_PACKETS), ("count", INDEX), ("tail seen", 1)],
    );
    add(
        "receiver-counter",
        "sender",
        &[
            ("count", INDEX),
            ("next", INDEX),
            ("round", 8),
            ("deadline", TIME),
            ("silent", BACK_OFF),
            ("done", 1),
        ],
    );
    add(
        "receiver-counter",
        "receiver",
        &[
            ("count", INDEX),
            ("round", 8),
            ("received", INDEX),
            ("deadline", TIME),
            ("complete", 1),
            ("received bitmap (detects duplicates)", MAX_MESSAGE_PACKETS),
        ],
    );
    let flight = |window: u32| {
        [
            ("count", INDEX),
            ("base", INDEX),
            ("next", INDEX),
            ("acknowledged", window),
            ("retransmit", window),
            ("sequence", SEQUENCE),
            ("oldest transmission", SEQUENCE),
            ("packets in flight", window * (SEQUENCE + 8)),
            ("transmissions", sendings(window) * (SEQUENCE + INDEX + TIME)),
        ]
    };
    add("adaptive-window", "sender", &flight(adaptive.window));
    add(
        "adaptive-window",
        "sender",
        &[
            ("delay samples", adaptive.samples * TIME),
            ("their sum", TIME + adaptive.samples.ilog2()),
            ("their squares", 2 * TIME + adaptive.samples.ilog2()),
            ("mean and deviation", 2 * TIME),
            ("walk", TIME),
            ("inquire", 1),
        ],
    );
    add("selective", "sender", &flight(selective.window));
    add(
        "selective",
        "sender",
        &[
            ("mean and deviation", 2 * TIME),
            ("shortest and longest delays", 3 * TIME + 8 + 6),
            ("latest", SEQUENCE + INDEX + TIME),
            ("due", TIME),
            ("probe", TIME),
            ("silent", 5),
        ],
    );
    let map = |window| [("base", INDEX), ("received bitmap", window), ("count", INDEX), ("tail seen", 1)];
    add("adaptive-window", "receiver", &map(WIDTH));
    add("adaptive-window", "receiver", &[("highest seen now and before", 3 * INDEX), ("mark", TIME)]);
    add("selective", "receiver", &map(selective.window));
    all.extend(in_memory());
    all.extend(source());
    all.extend(registry());
    all
}

/// Sizes of the types of both ends in bits, with their heap memory: sets of packets, tables of times and of transmissions.
fn types() -> [(&'static str, &'static str, usize); 12] {
    let set = MAX_MESSAGE_PACKETS as usize;
    let times = 128 * 64;
    let flight = |window: u32| ((window * 8 + sendings(window) * 16) * 8) as usize;
    [
        ("receiver-window", "sender", size_of::<receiver_window::Sender>() * 8 + set),
        ("receiver-window", "receiver", size_of::<receiver_window::Receiver>() * 8 + times),
        ("receiver-window credit", "sender", size_of::<receiver_window::Sender>() * 8 + set),
        ("receiver-window credit", "receiver", size_of::<receiver_window::Receiver>() * 8 + times),
        ("sender-window", "sender", size_of::<sender_window::Sender>() * 8 + times),
        ("sender-window", "receiver", size_of::<sender_window::Receiver>() * 8 + set),
        ("receiver-counter", "sender", size_of::<receiver_counter::Sender>() * 8),
        ("receiver-counter", "receiver", size_of::<receiver_counter::Receiver>() * 8 + set),
        ("adaptive-window", "sender", size_of::<adaptive_window::Sender>() * 8 + flight(WIDTH) + 64 * 64),
        ("adaptive-window", "receiver", size_of::<mapping::Receiver>() * 8),
        ("selective", "sender", size_of::<selective::Sender>() * 8 + flight(512)),
        ("selective", "receiver", size_of::<mapping::Receiver>() * 8),
    ]
}

fn in_memory() -> impl Iterator<Item = Field> {
    types().into_iter().map(|(scheme, side, bits)| Field {
        scheme,
        side,
        field: "type",
        bits: u32::try_from(bits).unwrap_or(u32::MAX),
        per: "context in memory",
    })
}

/// Fields that source 004, section 3.1, names.
fn source() -> Vec<Field> {
    let trip = Nanos::from_micros(2);
    let window = receiver_window::ReceiverWindowConfig::new(trip).window;
    let buffer = sender_window::SenderWindowConfig::new(trip).window * 512 * 8;
    let fields = [
        ("receiver-window", "receiver", "window base", INDEX),
        ("receiver-window", "receiver", "receive vector", window),
        ("receiver-window", "receiver", "timeout counter", TIME),
        ("receiver-window", "receiver", "tail flag", 1),
        ("receiver-counter", "receiver", "timeout counter", TIME),
        ("receiver-counter", "receiver", "sender context", CONTEXT),
        ("receiver-counter", "receiver", "number of packets", INDEX),
        ("receiver-counter", "receiver", "packets received", INDEX),
        ("receiver-counter", "receiver", "retry index", ROUND),
        (
            "sender-window",
            "sender",
            "retransmission buffer per receiving node (32 packets of 512 bytes)",
            buffer,
        ),
    ];
    fields.map(|(scheme, side, field, bits)| Field { scheme, side, field, bits, per: PER_SOURCE }).into()
}

/// Tables of the registry, with the sizes of their types.
fn registry() -> Vec<Field> {
    let per = |table: &str| match table {
        "op table" => "packet in flight",
        "segments" => "segment in progress",
        "transfers" | "queues" => "transfer",
        "destinations" | "senders" => "node",
        "registry" => "operation in progress",
        "escape channel" => "early packet",
        "tombstones" => "run of completed transfers",
        "answers and events" => "answer or event",
        _ => "window",
    };
    let field = |side, name, bits: u64| Field {
        scheme: "registry",
        side,
        field: name,
        bits: u32::try_from(bits).unwrap_or(u32::MAX),
        per: per(name),
    };
    let incarnation = Incarnation::new(1);
    let mut fields = Vec::new();
    if let Ok(sender) = Sender::new(SenderConfig::default(), incarnation) {
        fields.extend(sender.state().map(|table| field("sender", table.name, table.bits())));
    }
    if let Ok(receiver) = Receiver::new(ReceiverConfig::new(RECEIVER, incarnation)) {
        fields.extend(receiver.state().map(|table| field("receiver", table.name, table.bits())));
    }
    fields
}

pub(super) fn make(figure: Figure) -> RenderedFigure {
    let fields = fields();
    let mut csv = format!("{HEADER}\n");
    for Field { scheme, side, field, bits, per } in &fields {
        // No field contains a comma or a quote.
        let _ = writeln!(csv, "{scheme},{side},{field},{bits},{per}");
    }
    let sum = |scheme: &str, side: &str, per: &str| -> u32 {
        fields
            .iter()
            .filter(|field| (field.scheme, field.side, field.per) == (scheme, side, per))
            .map(|field| field.bits)
            .sum()
    };
    let curve = |side: &'static str, colour, apart: f64| {
        let points = (0_u32..)
            .zip(SCHEMES)
            .map(|(at, scheme)| (f64::from(at) + apart, float(sum(scheme, side, "context").into()), 0.0));
        Curve::new(side, colour).style(CurveKind::Dots).points(points)
    };
    let findings = SCHEMES
        .iter()
        .map(|scheme| {
            let [own, memory, source] = ["context", "context in memory", PER_SOURCE]
                .map(|per| [sum(scheme, "sender", per), sum(scheme, "receiver", per)]);
            let of = |text: &str, [sender, receiver]: [u32; 2]| match (sender, receiver) {
                (0, 0) => String::new(),
                (0, _) => format!("; {text} {receiver} at the receiver"),
                (_, 0) => format!("; {text} {sender} at the sender"),
                _ => format!("; {text} {sender} and {receiver}"),
            };
            let [sender, receiver] = own;
            format!(
                "{scheme}: {sender} bits at the sender, {receiver} at the receiver, per context{}{}",
                of("in memory", memory),
                of("the fields that source 004 names:", source)
            )
        })
        .collect();
    let picture = Picture {
        title: "Bits of state per context".to_owned(),
        caption: vec![
            "Fields of the state machines, packed: indices of 13 bits, times of 32 bits; messages of up to 4096 packets, windows of 128 packets (sender-window: 32, selective: 512). receiver-w. credit: receiver-window in credit mode. The identity of a context is the same for all schemes and not counted.".to_owned(),
            "The registry is not shown: it has no contexts, but state per packet and per operation, which the CSV file lists.".to_owned(),
        ],
        columns: 1,
        panels: vec![Panel {
            x_label: "scheme".to_owned(),
            y_label: "bits".to_owned(),
            x_scale: Scale::Names(SHORT),
            y_scale: Scale::Decades,
            curves: vec![curve("sender", 0, -0.08), curve("receiver", 1, 0.08)],
            ..Panel::default()
        }],
    };
    let points = fields.len() as u64;
    RenderedFigure { figure, csv, intervals: String::new(), picture, findings, points, failures: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that source 004 names are a part of ours, except for its retransmission buffer: here the memory is read again.
    #[test]
    fn state_bits_of_source_004_stand_beside_ours() {
        let sum = |scheme: &str| -> u32 {
            let named =
                fields().into_iter().filter(|field| (field.scheme, field.per) == (scheme, PER_SOURCE));
            named.map(|field| field.bits).sum()
        };
        let sums = ["receiver-window", "receiver-counter", "sender-window"].map(sum);
        assert_eq!(sums, [13 + 128 + 32 + 1, 32 + 16 + 13 + 13 + 8, 32 * 512 * 8]);
    }

    /// The packed fields of an end are not wider than its type in memory: the list is complete.
    #[test]
    fn state_bits_fit_type_size() {
        let fields = fields();
        let sum = |scheme: &str, side: &str| -> usize {
            let own = fields
                .iter()
                .filter(|field| (field.scheme, field.side, field.per) == (scheme, side, "context"));
            own.map(|field| field.bits as usize).sum()
        };
        for (scheme, side, most) in types() {
            let bits = sum(scheme, side);
            assert!(bits > 0 && bits <= most, "{scheme}, {side}: {bits} bits in {most}");
        }
    }

    #[test]
    fn state_bits_csv_has_contract_fields() {
        let made = make(Figure::StateBits);
        let mut lines = made.csv.lines();
        assert_eq!(lines.next(), Some(HEADER));
        for line in lines {
            let (rest, _per) = line.rsplit_once(',').unwrap();
            let (_, bits) = rest.rsplit_once(',').unwrap();
            assert!(bits.parse::<u32>().is_ok_and(|bits| bits > 0), "{line}");
        }
        for scheme in [
            "registry",
            "receiver-window",
            "sender-window",
            "receiver-counter",
            "adaptive-window",
            "selective",
        ] {
            for side in ["sender", "receiver"] {
                assert!(made.csv.contains(&format!("\n{scheme},{side},")), "{scheme}, {side}");
            }
        }
    }
}
