//! Both ends of every scheme through the enum types, and their timers.

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::{AnyMessageReceiver, AnyMessageSender, SchemeConfig};
use fpga_protocol::scheme::{
    Answer, Disposition, MessageReceiver, MessageSender, Packet, ReceivePath, adaptive_window,
    receiver_counter, selective,
};
use fpga_protocol::sender::RoundTrip;

const ROUND_TRIP: Nanos = Nanos::from_micros(4);
const START: Nanos = Nanos::ZERO;

fn rules(scheme: Scheme) -> SchemeConfig {
    SchemeConfig::new(scheme, ROUND_TRIP).unwrap()
}

/// Both ends of a message of `count` packets.
fn ends(scheme: Scheme, count: u32) -> (AnyMessageSender, AnyMessageReceiver) {
    let (mut sending, mut receiving) = (rules(scheme).sending(), rules(scheme).receiving());
    sending.begin(START, count, true, &RoundTrip::UNKNOWN);
    receiving.begin(START, count, ReceivePath::default());
    (sending, receiving)
}

fn sent(sender: &mut impl MessageSender, now: Nanos) -> Vec<u32> {
    std::iter::from_fn(|| sender.poll_packet(now)).map(|packet| packet.index).collect()
}

#[test]
fn asks_first_where_receiver_has_timers() {
    for (scheme, asks) in [
        (Scheme::ReceiverWindow, true),
        (Scheme::SenderWindow, false),
        (Scheme::ReceiverCounter, true),
        (Scheme::AdaptiveWindow, false),
        (Scheme::Selective, false),
    ] {
        assert_eq!(rules(scheme).sending().requests_context(), asks, "{scheme}");
    }
}

#[test]
fn first_packet_acknowledged_base_and_delay_told() {
    let answered = Nanos::from_micros(3);
    for (scheme, base, delay) in [
        (Scheme::ReceiverWindow, 0, None),
        (Scheme::SenderWindow, 1, Some(answered)),
        (Scheme::ReceiverCounter, 0, None),
        (Scheme::AdaptiveWindow, 1, Some(answered)),
        (Scheme::Selective, 1, Some(answered)),
    ] {
        let (mut sending, mut receiving) = ends(scheme, 3);
        assert_eq!((sending.base(), sending.take_delay()), (0, None), "{scheme}");
        receiving.handle_packet(Nanos::from_micros(1), &sending.poll_packet(START).unwrap());
        while let Some(answer) = receiving.poll_answer() {
            sending.handle_answer(answered, &answer);
        }
        assert_eq!((sending.base(), sending.take_delay()), (base, delay), "{scheme}");
        assert_eq!(sending.take_delay(), None, "{scheme}: notified once");
    }
}

#[test]
fn packets_with_gap_shown_from_first_missing_one() {
    let count = 400;
    // Packet 302 is bit 2; from bit 100 on there are no packets.
    let expected = [4, 0, 0, 0xFFFF_FFF0, u32::MAX, u32::MAX, u32::MAX, u32::MAX];
    for scheme in [
        Scheme::ReceiverWindow,
        Scheme::SenderWindow,
        Scheme::ReceiverCounter,
        Scheme::AdaptiveWindow,
        Scheme::Selective,
    ] {
        let (_, mut receiving) = ends(scheme, count);
        assert_eq!(receiving.bitmap(count), (0, [0; 8]), "{scheme}");
        for index in (0..300).chain([302]) {
            receiving.handle_packet(START, &Packet { index, tail: false, round: 0, sequence: index + 1 });
        }
        assert_eq!(receiving.bitmap(count), (300, expected), "{scheme}");
    }
}

#[test]
fn timer_runs_from_first_packet_until_done() {
    for scheme in [Scheme::SenderWindow, Scheme::ReceiverCounter, Scheme::AdaptiveWindow, Scheme::Selective] {
        let (mut sending, _) = ends(scheme, 1);
        assert_eq!(sending.poll_timeout(), None, "{scheme}: nothing was sent");
        assert_eq!(sent(&mut sending, START), [0]);
        assert!(sending.poll_timeout().is_some(), "{scheme}");
        sending.handle_answer(START, &Answer::Done);
        assert_eq!((sending.is_done(), sending.poll_timeout()), (true, None), "{scheme}");
    }
}

#[test]
fn adaptive_window_more_packets_late_than_limit_inquires_once() {
    let late = |count| {
        let mut sender =
            adaptive_window::Sender::new(adaptive_window::AdaptiveWindowConfig::new(ROUND_TRIP), count);
        sent(&mut sender, START);
        // The initial timeout, before any delay was measured.
        let now = ROUND_TRIP.saturating_mul(4);
        assert_eq!(sender.handle_timeout(now), count);
        [sender.take_inquiry(), sender.take_inquiry()]
    };
    assert_eq!((late(3), late(4)), ([false, false], [true, false]));
}

#[test]
fn selective_without_answers_probes_with_doubled_waits() {
    let mut sender = selective::Sender::new(selective::SelectiveConfig::new(ROUND_TRIP), 3);
    assert_eq!(sent(&mut sender, START), [0, 1, 2]);
    let mut last = START;
    let mut waits = Vec::new();
    // The last packet alone, then the first one too.
    for probes in [&[2][..], &[0, 2], &[0, 2]] {
        let now = sender.poll_timeout().unwrap();
        assert_eq!(sender.handle_timeout(now), 1);
        assert_eq!(sent(&mut sender, now), probes);
        waits.push(now.saturating_sub(last));
        last = now;
    }
    assert_eq!(waits, [1, 2, 4].map(|times| waits[0].saturating_mul(times)));
}

#[test]
fn handle_timeout_sends_again_only_once_due() {
    for scheme in [Scheme::ReceiverWindow, Scheme::SenderWindow, Scheme::ReceiverCounter, Scheme::Selective] {
        let (mut sending, _) = ends(scheme, 1);
        assert_eq!(sent(&mut sending, START), [0]);
        let due = sending.poll_timeout().unwrap();
        let early = due.saturating_sub(Nanos::new(1));
        assert_eq!((sending.handle_timeout(early), sent(&mut sending, early)), (0, vec![]), "{scheme}");
        let late = due.saturating_add(Nanos::new(1));
        assert_eq!((sending.handle_timeout(late), sent(&mut sending, late)), (1, vec![0]), "{scheme}");
    }
}

#[test]
fn receiver_counter_short_round_starts_next_once_all_sent() {
    let mut sender =
        receiver_counter::Sender::new(receiver_counter::ReceiverCounterConfig::new(ROUND_TRIP), 2);
    let short = |round| Answer::Short { round };
    let rounds = |sender: &mut receiver_counter::Sender| -> Vec<_> {
        std::iter::from_fn(|| sender.poll_packet(START)).map(|packet| (packet.round, packet.index)).collect()
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

/// With reports a round ends as soon as a packet is known to be lost, four times per message.
#[test]
fn receiver_counter_reports_end_rounds_early() {
    let config = receiver_counter::ReceiverCounterConfig {
        reports: true,
        ..receiver_counter::ReceiverCounterConfig::new(ROUND_TRIP)
    };
    let count = 1000;
    let mut sender = receiver_counter::Sender::new(config, count);
    let mut lengths = vec![];
    while !sender.is_done() {
        let mut length = 0;
        let mut round = None;
        while let Some(packet) = sender.poll_packet(START) {
            if round.is_some_and(|round| round != packet.round) {
                assert_eq!((packet.index, lengths.len()), (0, usize::from(packet.round) - 1));
                lengths.push(std::mem::replace(&mut length, 0));
            }
            (round, length) = (Some(packet.round), length + 1);
            // Packet 0 is always lost.
            if packet.index != 0 {
                let received = Answer::Received { index: packet.index, round: packet.round };
                sender.handle_answer(START, &received);
                assert!(sender.in_flight().unwrap().0 <= 4, "{:?}", sender.in_flight());
            }
        }
        lengths.push(length);
        if lengths.len() > 4 {
            sender.handle_answer(START, &Answer::Done);
        }
    }
    // A packet is overtaken by 3, 12, 48 and 192 others.
    assert_eq!(lengths, [4, 13, 49, 193, count]);
    assert_eq!(sender.in_flight().unwrap().1, 4, "one loss per round that ended");
}

/// A round is over at the receiver a round trip after its last packet at the earliest: a request from before was for the pauses of a
/// sender that was held back.
#[test]
fn receiver_counter_with_reports_ignores_request_of_unfinished_round() {
    let config = receiver_counter::ReceiverCounterConfig {
        reports: true,
        ..receiver_counter::ReceiverCounterConfig::new(ROUND_TRIP)
    };
    let mut trip = RoundTrip::default();
    (trip.samples, trip.mean, trip.max_sample) = (1, ROUND_TRIP, ROUND_TRIP);
    let mut sender = receiver_counter::Sender::new(config, 2);
    sender.begin(2, &trip);
    for now in [0, 5] {
        let now = ROUND_TRIP.saturating_mul(now);
        assert!(sender.poll_packet(now).is_some());
        sender.handle_answer(now, &Answer::Short { round: 0 });
        assert!(sender.poll_timeout().is_some());
    }
    assert_eq!(sender.poll_packet(ROUND_TRIP.saturating_mul(5)), None);
    sender.handle_answer(ROUND_TRIP.saturating_mul(6), &Answer::Short { round: 0 });
    assert_eq!(sender.poll_packet(ROUND_TRIP.saturating_mul(6)).map(|packet| packet.round), Some(1));
}

/// Packets without reports for a timeout are no longer in flight, so that a window opens again.
#[test]
fn receiver_counter_without_answers_gives_packets_in_flight_up() {
    let config = receiver_counter::ReceiverCounterConfig {
        reports: true,
        ..receiver_counter::ReceiverCounterConfig::new(ROUND_TRIP)
    };
    let mut sender = receiver_counter::Sender::new(config, 100);
    for round in 0..6 {
        let round = u8::try_from(round).unwrap().min(4);
        for _ in 0..10 {
            assert_eq!(sender.poll_packet(START).map(|packet| packet.round), Some(round));
        }
        let due = sender.poll_timeout().unwrap();
        assert_eq!(sender.handle_timeout(due.saturating_sub(Nanos::new(1))), 0);
        assert_eq!((sender.handle_timeout(due), sender.in_flight().unwrap().0), (1, 0));
    }
}

#[test]
fn receiver_counter_says_once_that_round_is_short() {
    let config = receiver_counter::ReceiverCounterConfig::new(ROUND_TRIP);
    let mut receiver = receiver_counter::Receiver::new(config, 2);
    let packet = |round, index| Packet { index, tail: index == 1, round, sequence: 0 };
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
        assert_eq!((receiver.poll_answer(), receiver.poll_timeout()), (Some(Answer::Short { round }), None));
    }
    receiver.handle_packet(ROUND_TRIP.saturating_mul(20), &packet(1, 1));
    assert_eq!((receiver.poll_answer(), receiver.poll_timeout()), (Some(Answer::Done), None));
}
