//! Answers with arbitrary field values, as a defective or hostile node could send them.
//!
//! For every answer, the sender does not panic, ends each transfer once and holds nothing afterwards. An answer that matches no packet in
//! flight is counted as stale and changes nothing. A transfer fails only if the answer contains values that only its receiver can know.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Answer, Command, Notify, SendFailure, Sender, SenderConfig, Transmit};
use fpga_registers::CardAddr;

const INCARNATION: Incarnation = Incarnation::new(9);
const NODE: NodeId = NodeId::new(1);
const PEER: Incarnation = Incarnation::new(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Node,
    Incarnation,
    Op,
    Tries,
    PeerIncarnation,
    Transfer,
    Segment,
}

const FIELDS: [Field; 7] = [
    Field::Node,
    Field::Incarnation,
    Field::Op,
    Field::Tries,
    Field::PeerIncarnation,
    Field::Transfer,
    Field::Segment,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ack,
    Nack(NackReason),
    Done,
}

const KINDS: [Kind; 8] = [
    Kind::Ack,
    Kind::Nack(NackReason::Busy),
    Kind::Nack(NackReason::EscapeFull),
    Kind::Nack(NackReason::Violation),
    Kind::Nack(NackReason::BadPacket),
    Kind::Nack(NackReason::Unknown),
    Kind::Nack(NackReason::Scheme),
    Kind::Done,
];

fn answer(transmit: &Transmit, packet: usize) -> Answer {
    let op = transmit.ops.as_slice()[packet];
    let Transmit { node, transfer, segment, tries, .. } = *transmit;
    Answer {
        node,
        incarnation: INCARNATION,
        op,
        transfer,
        segment,
        tries,
        peer_incarnation: PEER,
        notes: fpga_firmware::wire::AnswerNotes::default(),
    }
}

/// One transfer of two segments of 4 packets, in progress, and its packets that were sent: all of them with 8 op numbers or more.
fn under_way(op_entries: u32) -> (Sender, Vec<Transmit>) {
    let mut config = SenderConfig::default();
    config.packet_size_log2 = 6;
    config.mask_bits = 4;
    (config.segment_size, config.big_threshold) = (256, 256);
    config.op_entries = op_entries;
    let mut sender = Sender::new(config, INCARNATION).unwrap();
    let command = Command {
        source: CardAddr::new(0x1000),
        node: NODE,
        destination: CardAddr::new(0x9000),
        length: 512,
        key: 7,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    };
    sender.submit(Nanos::ZERO, command).unwrap();
    let sent = core::iter::from_fn(|| sender.poll_transmit(Nanos::ZERO)).collect();
    (sender, sent)
}

/// The receiver answers every packet from here on. Returns the results of the transfer.
fn finish(sender: &mut Sender, sent: Vec<Transmit>) -> Vec<Result<(), SendFailure>> {
    let mut now = Nanos::from_micros(10);
    let mut ends = Vec::new();
    let mut open = sent;
    for _ in 0..1000 {
        for transmit in open.drain(..) {
            for packet in 0..usize::from(transmit.ops.len()) {
                sender.handle_ack(now, answer(&transmit, packet));
            }
        }
        ends.extend(core::iter::from_fn(|| sender.poll_completion()).map(|done| done.result));
        open.extend(core::iter::from_fn(|| sender.poll_transmit(now)));
        if open.is_empty() {
            let Some(at) = sender.poll_timeout() else { break };
            now = now.max(at);
            sender.handle_timeout(now);
            open.extend(core::iter::from_fn(|| sender.poll_transmit(now)));
        }
    }
    assert!(sender.is_idle() && sender.ops().count() == 0);
    let counters = sender.counters();
    assert_eq!(counters.completed + counters.failed, ends.len() as u64);
    ends
}

#[test]
fn sender_answer_with_one_wrong_field_keeps_invariants() {
    let values = [0, 1, 2, 3, 4, 5, 6, 7, 9, 0x1_0000, 0x1_0003, 0xFFFF, u32::MAX - 1, u32::MAX];
    let mut stale = 0;
    // Before the receiver has answered anything, and after it has acknowledged the first packet.
    for known in [false, true] {
        for kind in KINDS {
            for field in FIELDS {
                for value in values {
                    let what = format!("{kind:?}, {field:?} {value:#x}, known: {known}");
                    let (mut sender, sent) = under_way(16);
                    assert_eq!(sent.len(), 2);
                    if known {
                        sender.handle_ack(Nanos::ZERO, answer(&sent[0], 0));
                    }
                    let mut wrong = answer(&sent[0], 1);
                    match field {
                        Field::Node => wrong.node = NodeId::new(value),
                        Field::Incarnation => wrong.incarnation = Incarnation::new(value),
                        Field::Op => wrong.op = OpNumber::new(value),
                        Field::Tries => wrong.tries = value.to_le_bytes()[0],
                        Field::PeerIncarnation => wrong.peer_incarnation = Incarnation::new(value),
                        Field::Transfer => wrong.transfer = TransferId::new(value),
                        Field::Segment => wrong.segment = value,
                    }
                    let live: Vec<_> = sender.ops().map(|op| op.number).collect();
                    let owner = sent.iter().find(|transmit| transmit.ops.as_slice().contains(&wrong.op));
                    let is_about = owner.is_some_and(|owner| {
                        (owner.transfer, owner.segment) == (wrong.transfer, wrong.segment)
                    });
                    // Answers of an earlier incarnation than the known one of the node are ignored.
                    let is_later = PEER.is_earlier_than(wrong.peer_incarnation);
                    let is_other =
                        field == Field::PeerIncarnation && wrong.peer_incarnation != PEER && value != 0;
                    let is_ignored = is_other && known && !is_later;
                    let is_ours = !is_ignored
                        && wrong.node == NODE
                        && wrong.incarnation == INCARNATION
                        && is_about
                        && live.contains(&wrong.op);
                    let before = sender.counters().stale;
                    let now = Nanos::from_micros(5);
                    match kind {
                        Kind::Ack => sender.handle_ack(now, wrong),
                        Kind::Nack(reason) => sender.handle_nack(now, wrong, reason),
                        Kind::Done => sender.handle_segment_done(now, wrong),
                    }
                    if kind != Kind::Done && !is_ours {
                        assert_eq!(sender.counters().stale, before + 1, "{what}");
                        assert_eq!(sender.ops().count(), live.len(), "{what}");
                        stale += 1;
                    }
                    let ends = finish(&mut sender, sent);
                    let [end] = ends.as_slice() else { panic!("{what}: {ends:?}") };
                    // A node that reports a later incarnation has lost what the earlier one had acknowledged, and answers of the
                    // earlier one do not count any more. A final refusal of one of the transfer's packets also counts.
                    let begins = !known && matches!(kind, Kind::Ack | Kind::Done);
                    let is_lost = is_other && (is_later || begins);
                    let is_final = matches!(
                        kind,
                        Kind::Nack(
                            NackReason::Violation
                                | NackReason::BadPacket
                                | NackReason::Unknown
                                | NackReason::Scheme
                        )
                    );
                    // A refusal of a packet that was sent before the first one was acknowledged proves nothing.
                    assert_eq!(end.is_ok(), !(is_ours && is_final || is_lost), "{what}: {end:?}");
                }
            }
        }
    }
    assert!(stale > 100, "{stale}");
}

/// An answer about a segment with unsent packets: no receiver can have it completely.
#[test]
fn segment_done_for_unsent_segment_is_ignored() {
    let (mut sender, sent) = under_way(3);
    let [first] = sent.as_slice() else { unreachable!("there are three op numbers") };
    assert!(first.ops.len() < first.segment_packets);
    sender.handle_segment_done(Nanos::from_micros(1), answer(first, 0));
    assert_eq!((sender.counters().stale, sender.ops().count()), (1, usize::from(first.ops.len())));
    assert_eq!(finish(&mut sender, sent), [Ok(())]);
}
