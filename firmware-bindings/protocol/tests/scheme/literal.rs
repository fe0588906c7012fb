//! The sources' receiver windows read literally: all arrival orders of six packets, without loss (docs/protocol.md 8.8).

use crate::scheme::literal_receivers::{LiteralVariant, Receiver};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::receiver_window::{self, ReceiverWindowConfig};
use fpga_protocol::scheme::{Disposition, MessageReceiver, Packet};

const COUNT: u32 = 6;

/// Results of all orders.
#[derive(Debug, Default, PartialEq, Eq)]
struct RunOutcome {
    finished: u32,
    hung: u32,
    falsely: u32,
}

/// Calls `each` with every order of the numbers.
fn orders(rest: &mut Vec<u32>, order: &mut Vec<u32>, each: &mut impl FnMut(&[u32])) {
    if rest.is_empty() {
        return each(order);
    }
    for place in 0..rest.len() {
        order.push(rest.remove(place));
        orders(rest, order, each);
        if let Some(number) = order.pop() {
            rest.insert(place, number);
        }
    }
}

fn ends(receiver: impl MessageReceiver + Clone) -> RunOutcome {
    let mut ends = RunOutcome::default();
    orders(&mut (0..COUNT).collect(), &mut Vec::new(), &mut |order| {
        let mut receiver = receiver.clone();
        let mut written = 0;
        for (sequence, index) in (1..).zip(order) {
            let packet = Packet { index: *index, tail: index + 1 == COUNT, sequence };
            if receiver.handle_packet(Nanos::ZERO, &packet) == Disposition::Write {
                written += 1;
            }
            if receiver.is_complete() {
                break;
            }
        }
        match (receiver.is_complete(), written == COUNT) {
            (true, true) => ends.finished += 1,
            (true, false) => ends.falsely += 1,
            (false, _) => ends.hung += 1,
        }
    });
    ends
}

#[test]
fn e0_2_document_000_hangs_in_every_order() {
    let literal = Receiver::new(LiteralVariant::Document000, 128);
    assert_eq!(ends(literal), RunOutcome { hung: 720, ..RunOutcome::default() });
}

#[test]
fn e0_4_base_bit_rule_finishes_only_tail_last() {
    let literal = Receiver::new(LiteralVariant::Document000BaseBit, 128);
    assert_eq!(ends(literal), RunOutcome { hung: 600, finished: 120, ..RunOutcome::default() });
}

#[test]
fn e0_5_document_004_completes_with_missing_packet() {
    let literal = Receiver::new(LiteralVariant::Document004, 128);
    assert_eq!(ends(literal), RunOutcome { hung: 576, finished: 120, falsely: 24 });
}

#[test]
fn receiver_window_corrected_finishes_in_every_order() {
    for window in COUNT..=10 {
        let config = ReceiverWindowConfig { window, ..ReceiverWindowConfig::new(Nanos::new(1000)) };
        let corrected = receiver_window::Receiver::new(config, Nanos::ZERO);
        assert_eq!(ends(corrected), RunOutcome { finished: 720, ..RunOutcome::default() });
    }
}
