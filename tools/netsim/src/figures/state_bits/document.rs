//! Field list of source 004 (3.1) for the three schemes of its table 5.
//!
//! The available text of the source has the caption of table 5, but not its body, nor that of table 4: the totals that it prints are not
//! known. This is the list of the running text. It names the fields and gives few widths. The others follow from its example (4096 packets,
//! numbered 0 to 4095), or are assumptions; each row states which.

use crate::scheme::sender_window::SenderWindowConfig;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::{MAX_MESSAGE_PACKETS, mapping};

use super::Field;
use crate::Scenario;

/// Origin of these fields in the CSV file.
pub(super) const ORIGIN: &str = "004";

/// Explanation for the figure.
pub(super) const CAPTION: &str = "Source 004: the fields that its section 3.1 names, packed. It gives few widths: numbers and counts follow from its 4096 packets; assumed are timers of 32 bits, a retry index of 8, a context number of 6 and a buffer of 32 packets of 512 bytes.";

/// In the text of source 004 or 000.
const GIVEN: &str = "given";
/// From the 4096 packets of the example.
const DERIVED: &str = "derived";
/// In neither.
const ASSUMED: &str = "assumed";

/// Number of a packet, 0 to 4095. Source 000: log2 M, rounded up.
const NUMBER: u32 = MAX_MESSAGE_PACKETS.ilog2();
/// Number of packets, up to 4096.
const COUNT: u32 = NUMBER + 1;
/// Ticks of a hardware timer.
const TIMER: u32 = u32::BITS;
/// Number of one of 64 contexts.
const CONTEXT: u32 = 6;
/// As wide as the number of the round in this implementation.
const RETRY_INDEX: u32 = u8::BITS;

/// Returns the fields in the order of the text.
pub(super) fn fields() -> Vec<Field> {
    let field = |scheme, side, field, bits, width| Field {
        scheme,
        side,
        field,
        bits,
        per: "context",
        origin: ORIGIN,
        width,
    };
    // Whole packets, one buffer per receiving node. The source gives neither their number nor their size.
    let window = SenderWindowConfig::new(Nanos::ZERO).window;
    let buffer = window * Scenario::new(1).sender.packet_size() * u8::BITS;
    let (window, counter) = ("receiver-window", "receiver-counter");
    vec![
        Field {
            per: "receiving node",
            ..field("sender-window", "sender", "retransmission buffer", buffer, ASSUMED)
        },
        field(counter, "receiver", "timeout counter", TIMER, ASSUMED),
        field(counter, "receiver", "sender's context number", CONTEXT, ASSUMED),
        field(counter, "receiver", "total packets", COUNT, DERIVED),
        field(counter, "receiver", "received packets", COUNT, DERIVED),
        field(counter, "receiver", "retry index", RETRY_INDEX, ASSUMED),
        field(window, "receiver", "window base", NUMBER, DERIVED),
        field(window, "receiver", "receive vector", mapping::WIDTH, GIVEN),
        field(window, "receiver", "timeout counter", TIMER, ASSUMED),
        field(window, "receiver", "tail flag", 1, GIVEN),
    ]
}

/// Sums, and the claim of 3.1 that they contradict.
pub(super) fn findings() -> Vec<String> {
    let fields = fields();
    let sum = |scheme, side| super::sum(&fields, ORIGIN, scheme, side);
    let [window, counter] = ["receiver-window", "receiver-counter"].map(|scheme| sum(scheme, "receiver"));
    let buffer = sum("sender-window", "sender");
    vec![
        format!(
            "source 004's own fields: receiver-window {window} bits at the receiver, receiver-counter {counter}, sender-window {buffer} at the \
             sender per receiving node"
        ),
        format!(
            "source 004 states that the receiver window's context contains less than the counter's; by its own fields, with these widths, it has {} bits more",
            i64::from(window) - i64::from(counter)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(scheme: &str, side: &str) -> u32 {
        super::super::sum(&fields(), ORIGIN, scheme, side)
    }

    /// Independently typed widths. The source's printed totals are not known, so the sums are compared with nothing else.
    #[test]
    fn document_fields_add_up() {
        assert_eq!(sum("receiver-window", "receiver"), 12 + 128 + 32 + 1);
        assert_eq!(sum("receiver-counter", "receiver"), 32 + 6 + 13 + 13 + 8);
        assert_eq!(sum("sender-window", "sender"), 32 * 512 * 8);
        // Sides that the text does not list.
        for (scheme, side) in
            [("receiver-window", "sender"), ("receiver-counter", "sender"), ("sender-window", "receiver")]
        {
            assert_eq!(sum(scheme, side), 0, "{scheme}, {side}");
        }
    }

    /// Source 004, 3.1: the receiver window's context contains less than the counter's. Its own fields say the opposite, for any timer
    /// (both have one), unless context number and retry index together have more than 114 bits.
    #[test]
    fn document_fields_contradict_claim_of_least_state() {
        let [window, counter] = ["receiver-window", "receiver-counter"].map(|scheme| sum(scheme, "receiver"));
        assert!(window > counter, "{window}, {counter}");
        let known = |scheme: &str| -> u32 {
            let own = fields().into_iter().filter(|field| field.scheme == scheme && field.width != ASSUMED);
            own.map(|field| field.bits).sum()
        };
        assert_eq!(known("receiver-window") - known("receiver-counter"), 115);
        // Only the sender window's buffer is larger than both.
        assert!(sum("sender-window", "sender") > 100 * window);
    }
}
