//! Both ends of every scheme through the enum types, and their timers.

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::{AnyMessageReceiver, AnyMessageSender, SchemeConfig};
use fpga_protocol::scheme::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use fpga_protocol::scheme::{
    Answer, MessageReceiver, MessageSender, Packet, ReceivePath, adaptive_window, selective,
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
    for (scheme, asks) in
        [(Scheme::ReceiverWindow, true), (Scheme::AdaptiveWindow, false), (Scheme::Selective, false)]
    {
        assert_eq!(rules(scheme).sending().requests_context(), asks, "{scheme}");
    }
}

#[test]
fn first_packet_acknowledged_base_and_delay_told() {
    let answered = Nanos::from_micros(3);
    for (scheme, base, delay) in [
        (Scheme::ReceiverWindow, 0, None),
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
    for scheme in [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective] {
        let (_, mut receiving) = ends(scheme, count);
        assert_eq!(receiving.bitmap(count), (0, [0; 8]), "{scheme}");
        for index in (0..300).chain([302]) {
            receiving.handle_packet(START, &Packet { index, tail: false, sequence: index + 1 });
        }
        assert_eq!(receiving.bitmap(count), (300, expected), "{scheme}");
    }
}

#[test]
fn timer_runs_from_first_packet_until_done() {
    for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
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
    for scheme in [Scheme::ReceiverWindow, Scheme::Selective] {
        let (mut sending, _) = ends(scheme, 1);
        assert_eq!(sent(&mut sending, START), [0]);
        let due = sending.poll_timeout().unwrap();
        let early = due.saturating_sub(Nanos::new(1));
        assert_eq!((sending.handle_timeout(early), sent(&mut sending, early)), (0, vec![]), "{scheme}");
        let late = due.saturating_add(Nanos::new(1));
        assert_eq!((sending.handle_timeout(late), sent(&mut sending, late)), (1, vec![0]), "{scheme}");
    }
}
