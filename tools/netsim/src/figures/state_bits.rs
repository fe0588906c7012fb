//! Bits of state per context of every scheme (source 004, table 5): the fields of the state machines with the sizes of their types, beside
//! the source's own field list ([`document`]).
//!
//! The fields that identify a context (node, incarnation, context, message number, address, key, length) are the same for all schemes but
//! the registry's and are not counted: source 004 compares what the schemes add. Nor are parameters, which all contexts share. The
//! registry has tables instead of contexts.

use std::fmt::Write as _;

use fpga_firmware::Incarnation;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Receiver, ReceiverConfig};
use fpga_protocol::sender::{Sender, SenderConfig};

use super::float;
use super::picture::{Curve, CurveKind, Panel, Picture, Scale};
use super::{Figure, RenderedFigure};
use crate::scenario::RECEIVER;
use crate::scheme::{Rules, Scheme};

mod document;

/// CSV header of this figure. `origin`: `types` (of this implementation) or `004`. `width`: where the number of bits comes from.
const HEADER: &str = "scheme,side,field,bits,per,origin,width";

/// Field of a state machine, or of the source's list.
#[derive(Clone, Debug)]
struct Field {
    scheme: &'static str,
    side: &'static str,
    field: &'static str,
    bits: u32,
    per: &'static str,
    origin: &'static str,
    width: &'static str,
}

/// Origin of the fields of this implementation.
const TYPES: &str = "types";

/// Names of the message schemes on the axis, in the order of [`Scheme::ALL`].
const SCHEMES: &[&str] =
    &["receiver-window", "sender-window", "receiver-counter", "adaptive-window", "selective"];

/// Fields of all schemes, from the sizes of their types, and then those of the source.
fn fields() -> Vec<Field> {
    let mut all = Vec::new();
    for scheme in Scheme::ALL {
        // The sizes do not depend on the round trip.
        let Some(rules) = Rules::new(*scheme, Nanos::from_micros(2)) else { continue };
        for (side, state) in ["sender", "receiver"].into_iter().zip(rules.state()) {
            all.extend(state.iter().map(|table| Field {
                scheme: scheme.name(),
                side,
                field: table.name,
                bits: narrow(table.bits()),
                per: "context",
                origin: TYPES,
                width: "size_of",
            }));
        }
    }
    all.extend(registry());
    all.extend(document::fields());
    all
}

fn narrow(bits: u64) -> u32 {
    u32::try_from(bits).unwrap_or(u32::MAX)
}

/// Sum of the fields of one side of a scheme.
fn sum(fields: &[Field], origin: &str, scheme: &str, side: &str) -> u32 {
    let own =
        fields.iter().filter(|field| (field.origin, field.scheme, field.side) == (origin, scheme, side));
    own.map(|field| field.bits).sum()
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
        bits: narrow(bits),
        per: per(name),
        origin: TYPES,
        width: "size_of",
    };
    let incarnation = Incarnation::new(1);
    let mut fields = Vec::new();
    let mut config = SenderConfig::default();
    config.congestion = None;
    if let Ok(sender) = Sender::new(config, incarnation) {
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
    for Field { scheme, side, field, bits, per, origin, width } in &fields {
        // No field contains a comma or a quote.
        let _ = writeln!(csv, "{scheme},{side},{field},{bits},{per},{origin},{width}");
    }
    let curve = |name: &'static str, origin: &str, side: &str, colour, apart: f64| {
        let points = (0_u32..).zip(SCHEMES).filter_map(|(at, scheme)| {
            let bits = sum(&fields, origin, scheme, side);
            (bits > 0).then(|| (f64::from(at) + apart, float(bits.into()), 0.0))
        });
        Curve::new(name, colour).style(CurveKind::Dots).points(points)
    };
    let mut findings: Vec<String> = SCHEMES
        .iter()
        .map(|scheme| {
            let [sender, receiver] = ["sender", "receiver"].map(|side| sum(&fields, TYPES, scheme, side));
            format!("{scheme}: {sender} bits at the sender, {receiver} at the receiver, per context")
        })
        .collect();
    findings.extend(document::findings());
    let picture = Picture {
        title: "Bits of state per context".to_owned(),
        caption: vec![
            "Types: sizes of the fields in this implementation's memory, for messages of up to 4096 packets; indices have 32 bits, times 64, windows 128 (selective: 512). Identity of a context and parameters are not counted.".to_owned(),
            document::CAPTION.to_owned(),
            "The registry is not shown: it has no contexts, but state per packet and per operation, which the CSV file lists.".to_owned(),
        ],
        columns: 1,
        panels: vec![Panel {
            x_label: "scheme".to_owned(),
            y_label: "bits".to_owned(),
            x_scale: Scale::Names(SCHEMES),
            y_scale: Scale::Decades,
            curves: vec![
                curve("types, sender", TYPES, "sender", 0, -0.12),
                curve("types, receiver", TYPES, "receiver", 1, -0.04),
                curve("source 004, sender", document::ORIGIN, "sender", 2, 0.04),
                curve("source 004, receiver", document::ORIGIN, "receiver", 3, 0.12),
            ],
            ..Panel::default()
        }],
    };
    let points = fields.len() as u64;
    RenderedFigure { figure, csv, intervals: String::new(), picture, findings, points, failures: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{receiver_counter, sender_window};
    use fpga_protocol::scheme::{adaptive_window, mapping, receiver_window, selective};

    /// The fields of an end are most of its type and what it owns: nothing is counted twice, and little is omitted (parameters, pending
    /// answers, padding).
    #[test]
    fn state_bits_account_for_type_size() {
        let fields = fields();
        // Heap memory: bytes of a set of 4096 packets, of the times of 128 packets, of packets in flight with their transmissions.
        let (set, times) = (4096 / 8, 128 * 8);
        let flight = |window: usize, each: usize| window * (8 + each * 16);
        let cases = [
            ("receiver-window", "sender", size_of::<receiver_window::Sender>(), set),
            ("receiver-window", "receiver", size_of::<receiver_window::Receiver>(), times),
            ("sender-window", "sender", size_of::<sender_window::Sender>(), times),
            ("sender-window", "receiver", size_of::<sender_window::Receiver>(), set),
            ("receiver-counter", "sender", size_of::<receiver_counter::Sender>(), 0),
            ("receiver-counter", "receiver", size_of::<receiver_counter::Receiver>(), set),
            ("adaptive-window", "sender", size_of::<adaptive_window::Sender>(), flight(128, 4) + 64 * 8),
            ("adaptive-window", "receiver", size_of::<mapping::Receiver>(), times),
            ("selective", "sender", size_of::<selective::Sender>(), flight(512, 2)),
            ("selective", "receiver", size_of::<mapping::Receiver>(), 0),
        ];
        for (scheme, side, inline, heap) in cases {
            let bits = sum(&fields, TYPES, scheme, side) as usize;
            assert!(bits <= (inline + heap) * 8, "{scheme}, {side}: {bits} bits in {inline} + {heap} bytes");
            assert!(bits > heap * 8, "{scheme}, {side}: {bits} bits do not contain the heap's {heap} bytes");
        }
        assert_eq!(cases.len(), 2 * SCHEMES.len());
    }

    #[test]
    fn state_bits_csv_has_contract_fields() {
        let made = make(Figure::StateBits);
        let mut lines = made.csv.lines();
        assert_eq!(lines.next(), Some(HEADER));
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields.len(), HEADER.split(',').count(), "{line}");
            assert!(fields[3].parse::<u32>().is_ok_and(|bits| bits > 0), "{line}");
            assert!(matches!(fields[5], "types" | "004"), "{line}");
            assert_eq!(fields[5] == "types", fields[6] == "size_of", "{line}");
        }
        for scheme in SCHEMES.iter().chain(&["registry"]) {
            for side in ["sender", "receiver"] {
                assert!(made.csv.contains(&format!("\n{scheme},{side},")), "{scheme}, {side}");
            }
        }
        // One line per field of the source, beside the implementation's.
        let own = |scheme| {
            made.csv.lines().filter(|line| line.contains(",004,") && line.starts_with(scheme)).count()
        };
        assert_eq!(["receiver-window", "sender-window", "receiver-counter"].map(own), [4, 1, 5]);
    }
}
