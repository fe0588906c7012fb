//! The baselines of source 004, which live in the simulator alone: their ends, and all states that they can reach with a few packets.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

#[path = "../../../../firmware-bindings/protocol/tests/scheme/carry.rs"]
mod carry;
#[path = "../../../../firmware-bindings/protocol/tests/scheme/explore.rs"]
mod explore;
#[path = "../../../../firmware-bindings/protocol/tests/scheme/search.rs"]
mod search;
mod small;

use carry::{ROUND_TRIP, carry};
use fpga_netsim::scheme::receiver_counter::{self, ReceiverCounterConfig, short};
use fpga_netsim::scheme::sender_window::{Receiver, Sender, SenderWindowConfig, acknowledgement};
use fpga_netsim::scheme::{Rules, Scheme};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use fpga_protocol::scheme::{Answer, Disposition, MessageReceiver, MessageSender, Packet, ReceivePath};
use fpga_protocol::sender::RoundTrip;

const START: Nanos = Nanos::ZERO;

fn all_of(sender: &mut impl MessageSender, now: Nanos) -> Vec<u32> {
    std::iter::from_fn(|| sender.poll_packet(now)).map(|packet| packet.index).collect()
}

/// Both ends of a message of `count` packets.
fn ends<M: MessageScheme>(rules: M, count: u32) -> (M::Sender, M::Receiver) {
    let (mut sending, mut receiving) = (rules.sending(), rules.receiving());
    sending.begin(START, count, true, &RoundTrip::UNKNOWN);
    receiving.begin(START, count, ReceivePath::default());
    (sending, receiving)
}

/// Answers of both ends to the node around them: only the sender window's receiver acknowledges packets.
#[test]
fn baseline_ends_report_what_they_measure() {
    fn check(rules: impl MessageScheme, asks: bool, acknowledges: bool) {
        let answered = Nanos::from_micros(3);
        let (mut sending, mut receiving) = ends(rules, 400);
        assert_eq!((sending.requests_context(), sending.uses_one_route()), (asks, asks));
        assert_eq!((sending.base(), sending.take_delay(), sending.poll_timeout()), (0, None, None));
        let first = sending.poll_packet(START).unwrap();
        assert_eq!(sending.in_flight(), acknowledges.then_some((1, 0)));
        receiving.handle_packet(Nanos::from_micros(1), &first);
        while let Some(answer) = receiving.poll_answer() {
            sending.handle_answer(answered, &answer);
        }
        let expected = (u32::from(acknowledges), acknowledges.then_some(answered));
        assert_eq!((sending.base(), sending.take_delay()), expected);
        assert_eq!(sending.take_delay(), None, "once");
        for index in (1..300).chain([302]) {
            receiving.handle_packet(START, &Packet { index, tail: false, sequence: 0 });
        }
        // Packet 302 is bit 2; from bit 100 on there are no packets.
        let words = [4, 0, 0, 0xFFFF_FFF0, u32::MAX, u32::MAX, u32::MAX, u32::MAX];
        assert_eq!(receiving.bitmap(400), (300, words));
    }
    check(SenderWindowConfig::new(ROUND_TRIP), false, true);
    check(ReceiverCounterConfig::new(ROUND_TRIP), true, false);
}

#[test]
fn baseline_sender_repeats_packet_only_once_due() {
    fn check(rules: impl MessageScheme) {
        let (mut sending, _) = ends(rules, 1);
        assert_eq!(all_of(&mut sending, START), [0]);
        let due = sending.poll_timeout().unwrap();
        let early = due.saturating_sub(Nanos::new(1));
        assert_eq!((sending.handle_timeout(early), all_of(&mut sending, early)), (0, vec![]));
        assert_eq!((sending.handle_timeout(due), all_of(&mut sending, due)), (1, vec![0]));
        sending.handle_answer(due, &Answer::Done);
        assert_eq!((sending.is_done(), sending.poll_timeout()), (true, None));
    }
    check(SenderWindowConfig::new(ROUND_TRIP));
    check(ReceiverCounterConfig::new(ROUND_TRIP));
}

#[test]
fn baseline_state_lists_fields_with_heap_memory() {
    let fields = |scheme| {
        let state = Rules::new(scheme, ROUND_TRIP).unwrap().state();
        state.map(|tables| tables.iter().map(|table| (table.name, table.bytes)).collect::<Vec<_>>())
    };
    let [sender, receiver] = fields(Scheme::SenderWindow);
    let expected = [
        ("count", 4),
        ("base", 4),
        ("next", 4),
        ("acknowledged", 16),
        ("retransmit", 16),
        ("repeated", 16),
        // A pointer, and 128 times.
        ("sent", 8 + 128 * 8),
        ("deadline", 8),
        ("silent", 4),
        ("trip", 32),
    ];
    assert_eq!(sender, expected);
    // A pointer with length and a count, and a bit per packet.
    assert_eq!(receiver, [("here", 24 + 4096 / 8), ("count", 8)]);
    let [_, receiver] = fields(Scheme::ReceiverCounter);
    assert_eq!(receiver[..4], [("count", 4), ("round", 1), ("received", 4), ("here", 24 + 4096 / 8)]);
}

/// Timers shorter than the round trip retransmit at first; then they follow it.
#[test]
fn sender_window_short_timer_does_not_collapse() {
    let sent = |adaptive: bool| {
        let config = SenderWindowConfig { adaptive, ..SenderWindowConfig::new(Nanos::new(100)) };
        let sender = Sender::new(config, 512);
        let went = carry(sender, Receiver::new(512), &[100, 300], Nanos::from_millis(10));
        assert!(went.done.is_some());
        went.sent
    };
    assert!(sent(true) < 512 + 5 * 32, "{}", sent(true));
    assert!(sent(false) > 2 * 512, "{}", sent(false));
}

/// Packets that a timeout retransmits when eight were sent, and 1, 3 and 4 are acknowledged.
fn retransmitted(config: SenderWindowConfig, meanwhile: &[u32]) -> Vec<u32> {
    let config = SenderWindowConfig { window: 8, ..config };
    let mut sender = Sender::new(config, 20);
    assert_eq!(all_of(&mut sender, START), (0..8).collect::<Vec<_>>());
    for index in [1, 3, 4] {
        sender.handle_answer(START, &acknowledgement(index));
    }
    assert_eq!(all_of(&mut sender, START), [], "the base is missing, so the window is closed");
    let due = sender.poll_timeout().unwrap();
    assert_eq!(sender.handle_timeout(due), 1);
    // Two configured round trips, although the answers took no time.
    assert!(config.adaptive || due == ROUND_TRIP.saturating_mul(2), "{due}");
    for &index in meanwhile {
        sender.handle_answer(due, &acknowledgement(index));
    }
    all_of(&mut sender, due)
}

#[test]
fn sender_window_literal_timeout_retransmits_whole_buffer() {
    let (usual, literal) = (SenderWindowConfig::new(ROUND_TRIP), SenderWindowConfig::literal(ROUND_TRIP));
    assert_eq!(retransmitted(usual, &[]), [0, 2, 5, 6, 7]);
    assert_eq!(retransmitted(literal, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Answers before the retransmission: only packets that leave the buffer with the base are spared.
    assert_eq!(retransmitted(usual, &[5]), [0, 2, 6, 7]);
    assert_eq!(retransmitted(literal, &[5]), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(retransmitted(usual, &[0]), [2, 5, 6, 7, 8, 9]);
    assert_eq!(retransmitted(literal, &[0]), [2, 3, 4, 5, 6, 7, 8, 9]);
}

/// Every packet is acknowledged, the duplicates of a whole buffer too.
#[test]
fn sender_window_literal_receiver_acknowledges_every_packet() {
    let mut receiver = Receiver::new(4);
    for index in [0, 2, 0, 1, 2, 3] {
        receiver.handle_packet(START, &Packet { index, tail: index == 3, sequence: 0 });
        assert_eq!(receiver.poll_answer(), Some(acknowledgement(index)));
        assert_eq!(receiver.poll_answer(), None);
    }
    assert!(receiver.is_complete());
}

/// One lost packet costs the literal form a whole window; the timer stays constant, whatever round trips it could measure.
#[test]
fn sender_window_literal_loss_costs_whole_window() {
    let went = |config| {
        let sender = Sender::new(config, 512);
        carry(sender, Receiver::new(512), &[100], Nanos::from_millis(10))
    };
    let usual = went(SenderWindowConfig::new(ROUND_TRIP));
    let literal = went(SenderWindowConfig::literal(ROUND_TRIP));
    // The last packet of the window is spared: the answer to the first one arrives before its turn, after 30 packets, and empties
    // the buffer.
    assert_eq!((usual.sent, literal.sent), (512 + 1, 512 + 31), "{usual:?}, {literal:?}");
    let slow = went(SenderWindowConfig::literal(ROUND_TRIP.saturating_mul(50)));
    let late = literal.done.unwrap().saturating_add(ROUND_TRIP.saturating_mul(98));
    assert!(slow.done.unwrap() >= late, "{slow:?}, not {late}");
}

#[test]
fn receiver_counter_short_round_starts_next_once_all_sent() {
    let mut sender = receiver_counter::Sender::new(ReceiverCounterConfig::new(ROUND_TRIP), 2);
    let rounds = |sender: &mut receiver_counter::Sender| -> Vec<_> {
        std::iter::from_fn(|| sender.poll_packet(START))
            .map(|packet| (packet.sequence, packet.index))
            .collect()
    };
    assert_eq!(sender.poll_packet(START).map(|packet| packet.index), Some(0));
    sender.handle_answer(START, &short(0));
    assert_eq!(rounds(&mut sender), [(0, 1)], "packets may still be in flight");
    sender.handle_answer(START, &short(0));
    assert_eq!(rounds(&mut sender), [(1, 0), (1, 1)]);
    sender.handle_answer(START, &short(0));
    assert_eq!(rounds(&mut sender), [], "of a former round");
    sender.handle_answer(START, &Answer::Done);
    assert!(sender.is_done());
}

#[test]
fn receiver_counter_says_once_that_round_is_short() {
    let config = ReceiverCounterConfig::new(ROUND_TRIP);
    let mut receiver = receiver_counter::Receiver::new(config, 2);
    let packet = |round: u8, index| Packet { index, tail: index == 1, sequence: round.into() };
    assert_eq!(receiver.poll_timeout(), None);
    // The second round follows its request after two round trips: a wait of three samples, doubled for the second round.
    for (round, now, wait) in [(0, 0, 2), (1, 4, 12)] {
        let now = ROUND_TRIP.saturating_mul(now);
        assert_eq!(receiver.handle_packet(now, &packet(round, 0)), Disposition::Write);
        let due = now.saturating_add(ROUND_TRIP.saturating_mul(wait));
        assert_eq!(receiver.poll_timeout(), Some(due));
        receiver.handle_timeout(due.saturating_sub(Nanos::new(1)));
        assert_eq!(receiver.poll_answer(), None);
        receiver.handle_timeout(due);
        assert_eq!((receiver.poll_answer(), receiver.poll_timeout()), (Some(short(round)), None));
    }
    receiver.handle_packet(ROUND_TRIP.saturating_mul(20), &packet(1, 1));
    assert_eq!((receiver.poll_answer(), receiver.poll_timeout()), (Some(Answer::Done), None));
}
