//! One test per erratum of the sources 000, 004 and 002 that two ends can show; docs/dev/errata.md lists the others. E0-2, E0-4 and E0-5 are
//! covered in `literal`.

use crate::scheme::carry::{ONE_WAY, ROUND_TRIP, carry};
use crate::scheme::literal_receivers::{self as literal, LiteralVariant};
use crate::scheme::timer_receiver::TimerReceiver;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::receiver_window::{Receiver, ReceiverWindowConfig, Sender};
use fpga_protocol::scheme::{
    AckMap, Answer, Disposition, MAX_MESSAGE_PACKETS, MessageReceiver, MessageSender, Packet,
    adaptive_window, mapping, selective,
};

const START: Nanos = Nanos::ZERO;

fn packet(index: u32, count: u32) -> Packet {
    Packet { index, tail: index + 1 == count, sequence: 0 }
}

fn sender(count: u32) -> Sender {
    Sender::new(ReceiverWindowConfig::new(ROUND_TRIP), count, START)
}

fn receiver(window: u32) -> Receiver {
    Receiver::new(ReceiverWindowConfig { window, ..ReceiverWindowConfig::new(ROUND_TRIP) }, START)
}

fn take(receiver: &mut impl MessageReceiver, index: u32, count: u32) -> Disposition {
    receiver.handle_packet(START, &packet(index, count))
}

fn all_of(sender: &mut impl MessageSender, now: Nanos) -> Vec<u32> {
    std::iter::from_fn(|| sender.poll_packet(now)).map(|packet| packet.index).collect()
}

#[test]
fn e0_1_window_slide_moves_by_all_ones_up_to_full_width() {
    for window in [1, 2, 64, 127, 128] {
        let mut receiver = receiver(window);
        for index in (0..window).rev() {
            assert_eq!((receiver.base(), take(&mut receiver, index, 300)), (0, Disposition::Write));
        }
        assert_eq!(receiver.base(), window, "moved by the whole word");
        assert!(!receiver.has_packet(window) && receiver.has_packet(window - 1));
        // Bits above the contiguous ones move down with them.
        let mut receiver = self::receiver(128);
        let [low, gap] = [window / 2, window / 2 + 1];
        for index in (0..gap).chain([gap + 1]).filter(|index| *index != low) {
            take(&mut receiver, index, 300);
        }
        take(&mut receiver, low, 300);
        assert!(receiver.base() == gap && receiver.has_packet(gap + 1) && !receiver.has_packet(gap + 2));
    }
}

/// The source's own example: after packets 2, 1, 0 the next expected one is 3. Its formula, read literally, gives 2 and never ends.
#[test]
fn e0_3_window_after_packets_2_1_0_expects_3() {
    let mut corrected = receiver(128);
    let mut literal = literal::Receiver::new(LiteralVariant::Document004, 128);
    for index in [2, 1, 0] {
        take(&mut corrected, index, 5);
        take(&mut literal, index, 5);
    }
    assert_eq!(corrected.base(), 3);
    for index in [4, 3] {
        take(&mut corrected, index, 5);
        take(&mut literal, index, 5);
    }
    assert!(corrected.is_complete() && !literal.is_complete());
}

#[test]
fn e0_6_request_beyond_message_sends_nothing() {
    for count in [1, 6, MAX_MESSAGE_PACKETS] {
        let mut sender = sender(count);
        assert_eq!(all_of(&mut sender, START).len(), count as usize);
        for (first, last) in [(count, count), (count, u32::MAX), (u32::MAX, u32::MAX), (count + 1, count)] {
            sender.handle_answer(START, &Answer::Resend { first, last });
            assert_eq!(sender.poll_packet(START), None, "{first} to {last} of {count}");
        }
        // For a range that begins inside the message, only existing packets are sent.
        sender.handle_answer(START, &Answer::Resend { first: count - 1, last: u32::MAX });
        assert_eq!(all_of(&mut sender, START), [count - 1]);
    }
}

/// 256 KiB through a window of 64, and one packet lost. With a timer for the hole it completes in some 40 microseconds. With a timer for
/// any packet it does not complete in a millisecond, and most transmissions are spurious: read literally, it never ends.
#[test]
fn e0_7_any_packet_timer_never_expires_in_request_storm() {
    let config = ReceiverWindowConfig { window: 64, ..ReceiverWindowConfig::new(ROUND_TRIP) };
    let sender = || Sender::new(config, 512, START);
    let limit = Nanos::from_millis(1);
    let literal = carry(sender(), TimerReceiver::new(config, true, START), &[10], limit);
    let corrected = carry(sender(), Receiver::new(config, START), &[10], limit);
    println!("literal: {literal:?}, corrected: {corrected:?}");
    assert!(literal.done.is_none() && literal.sent > 30 * 512, "{literal:?}");
    assert!(corrected.done.is_some_and(|done| done < Nanos::from_micros(60)), "{corrected:?}");
    assert!(corrected.sent < 512 * 2, "{corrected:?}");
    // Without the loss there is no difference.
    for went in [
        carry(sender(), TimerReceiver::new(config, true, START), &[], limit),
        carry(sender(), Receiver::new(config, START), &[], limit),
    ] {
        assert!(went.done.is_some() && went.sent == 512, "{went:?}");
    }
}

/// Packets beyond the window are requested together when the window reaches them; a sender with credits never sends them.
#[test]
fn e0_8_packets_beyond_window_are_requested_together() {
    let config = ReceiverWindowConfig { window: 64, ..ReceiverWindowConfig::new(ROUND_TRIP) };
    let mut receiver = Receiver::new(config, START);
    for index in 1..64 {
        assert_eq!(take(&mut receiver, index, 512), Disposition::Write);
    }
    for _ in 0..3 {
        for index in 64..71 {
            assert_eq!(take(&mut receiver, index, 512), Disposition::Dropped);
        }
    }
    assert_eq!(receiver.poll_answer(), None, "few, and no place for them yet");
    assert_eq!(take(&mut receiver, 0, 512), Disposition::Write);
    assert_eq!(receiver.poll_answer(), Some(Answer::Resend { first: 64, last: 70 }));
    assert_eq!(receiver.poll_answer(), None);
    let lost = [10, 200, 400];
    let went = |config: ReceiverWindowConfig| {
        let sender = Sender::new(config, 512, START);
        carry(sender, Receiver::new(config, START), &lost, Nanos::from_millis(1))
    };
    let sender = Sender::new(config, 512, START);
    let each = carry(sender, TimerReceiver::new(config, false, START), &lost, Nanos::from_millis(1));
    let together = went(config);
    let credit = went(ReceiverWindowConfig { credit: true, ..config });
    println!("each: {each:?}, together: {together:?}, credit: {credit:?}");
    assert!(each.sent > together.sent && together.sent >= credit.sent, "{each:?} {together:?} {credit:?}");
    assert!([each, together, credit].iter().all(|went| went.done.is_some()));
    assert_eq!(credit.sent, 512 + 3, "the lost packets, and no others");
}

/// A request for packets that are still beyond the window would only make the path drop more, if it drops them because it is full.
#[test]
fn receiver_window_retransmissions_beyond_window_wait_for_it() {
    let mut receiver = receiver(64);
    let dropped = |receiver: &mut Receiver, sequence| {
        let mut answers = Vec::new();
        for index in 64..80 {
            let packet = Packet { sequence, ..packet(index, 512) };
            assert_eq!(receiver.handle_packet(START, &packet), Disposition::Dropped);
            answers.extend(std::iter::from_fn(|| receiver.poll_answer()));
        }
        answers
    };
    for index in 1..64 {
        take(&mut receiver, index, 512);
    }
    // As soon as eight are remembered.
    assert_eq!(
        dropped(&mut receiver, 1),
        [Answer::Resend { first: 64, last: 71 }, Answer::Resend { first: 72, last: 79 }]
    );
    for _ in 0..100 {
        assert_eq!(dropped(&mut receiver, 2), []);
    }
    assert_eq!(take(&mut receiver, 0, 512), Disposition::Write);
    assert_eq!(receiver.poll_answer(), Some(Answer::Resend { first: 64, last: 79 }));
}

/// The round trip is measured, so configured timers are a first guess; with a constant timer, each loss costs one.
#[test]
fn receiver_window_long_timers_cost_nothing_after_first_sample() {
    let lost = [10, 200, 201, 400, 511];
    let took = |times: u64, adaptive: bool| {
        let config =
            ReceiverWindowConfig { adaptive, ..ReceiverWindowConfig::new(ROUND_TRIP.saturating_mul(times)) };
        let sender = Sender::new(config, 512, START);
        let went = carry(sender, Receiver::new(config, START), &lost, Nanos::from_millis(10));
        (went.done.unwrap_or(Nanos::MAX), went.sent)
    };
    let (right, sent) = took(1, true);
    assert!(sent <= 512 + 8, "{sent}");
    for times in [4, 50] {
        let (long, sent) = took(times, true);
        assert!(long <= right.saturating_add(ROUND_TRIP), "{times} times: {long}, not {right}");
        assert!(sent <= 512 + 8, "{sent}");
    }
    // Constant timers: the reorder window is an eighth of the configured round trip, so of fifty.
    let constant = took(50, false).0;
    assert!(constant > right.saturating_add(ROUND_TRIP.saturating_mul(5)), "{constant}, not {right}");
}

/// The time until a probe arrives contains the sender's timer: as a round trip it would delay all requests of the messages that follow.
#[test]
fn probe_that_arrives_first_gives_no_round_trip() {
    let (mut sender, mut receiver) = (sender(3), receiver(128));
    assert_eq!(all_of(&mut sender, START), [0, 1, 2], "all of them are lost");
    let due = sender.poll_timeout().unwrap();
    sender.handle_timeout(due);
    let probe = sender.poll_packet(due).unwrap();
    let arrival = due.saturating_add(ONE_WAY);
    assert_eq!(receiver.handle_packet(arrival, &probe), Disposition::Write);
    assert_eq!(receiver.trip().samples, 0);
    // The others are requested when nothing has arrived for two round trips.
    let limit = arrival.saturating_add(ROUND_TRIP.saturating_mul(2));
    while receiver.poll_timeout().is_some_and(|due| due <= limit) {
        receiver.handle_timeout(receiver.poll_timeout().unwrap());
        if let Some(request) = receiver.poll_answer() {
            assert_eq!(request, Answer::Resend { first: 0, last: 1 });
            return;
        }
    }
    panic!("packets 0 and 1 are not requested");
}

#[test]
fn e0_9_single_resend_moves_no_other_position() {
    let mut sender = sender(8);
    let first: Vec<u32> =
        (0..4).filter_map(|_| sender.poll_packet(START)).map(|packet| packet.index).collect();
    assert_eq!(first, [0, 1, 2, 3]);
    sender.handle_answer(START, &Answer::Resend { first: 1, last: 1 });
    assert_eq!(all_of(&mut sender, START), [1, 4, 5, 6, 7], "the one asked for, and none is skipped");
}

#[test]
fn e0_10_last_packet_carries_tail_at_every_sending() {
    for count in [1, 2, 9] {
        let mut sender = sender(count);
        let mut tails = Vec::new();
        for round in 0..4 {
            while let Some(packet) = sender.poll_packet(START) {
                assert_eq!(packet.tail, packet.index + 1 == count, "round {round}: {packet:?}");
                tails.extend(packet.tail.then_some(round));
            }
            match round {
                0 => sender.handle_answer(START, &Answer::Resend { first: count - 1, last: count - 1 }),
                1 => sender.handle_answer(START, &Answer::Resend { first: 0, last: u32::MAX }),
                _ => {
                    let due = sender.poll_timeout().unwrap_or(START);
                    sender.handle_timeout(due);
                }
            }
        }
        assert_eq!(tails, [0, 1, 2, 3], "{count}: at first, one by one, in a range, as a probe");
    }
}

/// A base has to represent the count itself: 4096 takes 13 bits.
#[test]
fn e0_11_message_of_4096_packets_completes() {
    let mut receiver = receiver(128);
    for index in 0..MAX_MESSAGE_PACKETS {
        assert!(!receiver.is_complete());
        assert_eq!(take(&mut receiver, index, MAX_MESSAGE_PACKETS), Disposition::Write);
    }
    assert_eq!((receiver.base(), receiver.poll_answer()), (MAX_MESSAGE_PACKETS, Some(Answer::Done)));
    assert_eq!(MAX_MESSAGE_PACKETS.ilog2() + 1, 13);
}

#[test]
fn e0_12_window_holds_exactly_its_size() {
    for window in [1, 31, 64, 128] {
        for base in [0, 5, 1000] {
            let mut receiver = receiver(window);
            for index in 0..base {
                take(&mut receiver, index, 4096);
            }
            assert_eq!(take(&mut receiver, base + window, 4096), Disposition::Dropped);
            assert_eq!(receiver.poll_answer(), None, "requested when the window reaches it");
            assert_eq!(take(&mut receiver, base + window - 1, 4096), Disposition::Write);
        }
    }
}

/// A slide passes exactly the contiguous ones.
#[test]
fn e0_13_window_slide_stops_before_next_hole() {
    for ones in 1..=20 {
        let mut receiver = receiver(64);
        for index in (0..ones).rev() {
            take(&mut receiver, index, 100);
        }
        assert_eq!(receiver.base(), ones);
        assert!((0..ones).all(|index| take(&mut receiver.clone(), index, 100) == Disposition::Duplicate));
        assert_eq!(
            take(&mut receiver, ones, 100),
            Disposition::Write,
            "the packet behind the ones was not here"
        );
    }
}

#[test]
fn e0_15_silent_receiver_is_probed_with_last_packet() {
    let mut sender = sender(5);
    let _ = all_of(&mut sender, START);
    let mut waits = Vec::new();
    let mut last = START;
    for _ in 0..7 {
        let due = sender.poll_timeout().unwrap_or(START);
        assert_eq!(sender.handle_timeout(due), 1);
        assert_eq!(all_of(&mut sender, due), [4]);
        waits.push(due.saturating_sub(last).get() / ROUND_TRIP.get());
        last = due;
    }
    assert_eq!(waits, [4, 8, 16, 32, 64, 64, 64], "round trips; the owner ends it");
}

#[test]
fn e0_18_request_count_restarts_after_slide_and_range() {
    let mut receiver = receiver(64);
    take(&mut receiver, 9, 10);
    let asked = |receiver: &mut Receiver| {
        let due = receiver.poll_timeout().unwrap_or(START);
        receiver.handle_timeout(due);
        match std::iter::from_fn(|| receiver.poll_answer()).last() {
            Some(Answer::Resend { first, last }) => Some((first, last)),
            _ => None,
        }
    };
    let asked = |receiver: &mut Receiver| (0..9).find_map(|_| asked(receiver));
    let round: Vec<_> = (0..9).map(|_| asked(&mut receiver)).collect();
    let (one, all) = (Some((0, 8)), Some((0, 9)));
    // The first request follows evidence; each of the next ones follows an expired wait.
    assert_eq!(round, [one, one, one, one, all, one, one, one, all]);
    let now = receiver.poll_timeout().unwrap();
    receiver.handle_packet(now, &packet(0, 10));
    assert_eq!([(); 4].map(|()| asked(&mut receiver)), [(1, 8), (1, 8), (1, 8), (1, 9)].map(Some));
    // Before the tail was received: from the base on.
    let mut receiver = self::receiver(64);
    assert_eq!([(); 4].map(|()| asked(&mut receiver)), [(0, 0), (0, 0), (0, 0), (0, u32::MAX)].map(Some));
}

/// Four packets lost at the same time: requesting only the lowest hole needs a timeout for each; a map reports all of them.
#[test]
fn e0_19_bitmap_reports_all_holes_at_once() {
    let lost = [50, 60, 70, 80];
    let limit = Nanos::from_millis(1);
    let went = |lost: &[u32]| {
        let config = ReceiverWindowConfig { window: 128, ..ReceiverWindowConfig::new(ROUND_TRIP) };
        let timer = TimerReceiver::new(config, false, START);
        let timer = carry(Sender::new(config, 100, START), timer, lost, limit);
        let window = carry(Sender::new(config, 100, START), Receiver::new(config, START), lost, limit);
        let config = selective::SelectiveConfig::new(ROUND_TRIP);
        let map =
            carry(selective::Sender::new(config, 100), selective::Receiver::new(512, None), lost, limit);
        [timer, map, window].map(|went| went.done.map_or(u64::MAX, Nanos::get))
    };
    let (clean, holes) = (went(&[]), went(&lost));
    let trips = |at: usize| (holes[at] - clean[at]) / ROUND_TRIP.get();
    assert!(trips(0) >= 4 * 2, "{} round trips for four holes, by the lowest alone", trips(0));
    assert!(trips(1) <= 3, "{} round trips by a map", trips(1));
    assert!(trips(2) <= 3, "{} round trips by order", trips(2));
}

/// A packet below the base is a duplicate, regardless of the vector: source 004's text about it is truncated, 000's is not.
#[test]
fn e0_22_packet_below_base_is_duplicate() {
    let mut receiver = receiver(8);
    for index in [0, 1, 2, 4] {
        take(&mut receiver, index, 6);
    }
    let before = receiver.clone();
    for index in 0..3 {
        assert_eq!(take(&mut receiver, index, 6), Disposition::Duplicate);
    }
    assert_eq!(receiver, before);
}

fn adaptive(count: u32) -> (adaptive_window::Sender, mapping::Receiver) {
    let config = adaptive_window::AdaptiveWindowConfig::new(ROUND_TRIP);
    let receiver = mapping::Receiver::new(mapping::WIDTH, Some(ROUND_TRIP));
    (adaptive_window::Sender::new(config, count), receiver)
}

fn map_of(receiver: &mut mapping::Receiver, now: Nanos, packet: &Packet) -> AckMap {
    receiver.handle_packet(now, packet);
    match receiver.poll_answer() {
        Some(Answer::Map(map)) => map,
        other => panic!("{other:?}"),
    }
}

/// The answer to the first transmission arrives after the second transmission: it is timed from the first one.
#[test]
fn e2_2_answer_is_timed_from_answered_transmission() {
    let (mut sender, mut receiver) = adaptive(1);
    let Some(first) = sender.poll_packet(START) else { panic!("nothing to send") };
    let mut now = START;
    let second = loop {
        now = sender.poll_timeout().unwrap_or(now);
        sender.handle_timeout(now);
        if let Some(packet) = sender.poll_packet(now) {
            break packet;
        }
    };
    assert_ne!(first.sequence, second.sequence);
    let later = now.saturating_add(Nanos::new(10));
    let map = map_of(&mut receiver, later, &first);
    sender.handle_answer(later, &Answer::Map(map));
    assert_eq!(sender.take_delay(), Some(later), "not the 10 ns since the second sending");
}

#[test]
fn e2_3_one_acknowledgement_covers_all_lost_ones() {
    for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 1, 5, 0, 4, 2]] {
        let (mut sender, mut receiver) = adaptive(6);
        let packets: Vec<Packet> = std::iter::from_fn(|| sender.poll_packet(START)).collect();
        let mut last = None;
        for index in order {
            last = Some(map_of(&mut receiver, ONE_WAY, &packets[index]));
        }
        let Some(map) = last else { panic!("no answer") };
        sender.handle_answer(ROUND_TRIP, &Answer::Map(map));
        assert!(sender.is_done(), "{order:?}");
    }
    // A duplicate is answered, too, with all received packets.
    let (mut sender, mut receiver) = adaptive(2);
    let packets: Vec<Packet> = std::iter::from_fn(|| sender.poll_packet(START)).collect();
    let first = map_of(&mut receiver, ONE_WAY, &packets[0]);
    let again = map_of(&mut receiver, ONE_WAY, &packets[0]);
    assert_eq!((again.base, again.duplicate, first.duplicate), (first.base, true, false));
}

/// A gap is not requested at once, but when it has existed for longer than packets overtake each other.
#[test]
fn e2_4_gap_is_requested_after_reorder_window() {
    let (_, mut receiver) = adaptive(40);
    let wanted = |receiver: &mut mapping::Receiver, index: u32, now: u64| {
        let packet = Packet { sequence: index + 1, ..packet(index, 40) };
        map_of(receiver, Nanos::new(now), &packet).overdue
    };
    assert_eq!(wanted(&mut receiver, 0, 0), 0);
    // Packet 1 is missing from here on.
    for (index, now) in [(2, 55), (3, 110), (4, 165), (5, 700)] {
        assert_eq!(wanted(&mut receiver, index, now), 0, "at {now} ns");
    }
    let mut now = 700;
    let mut index = 6;
    while wanted(&mut receiver, index, now) == 0 {
        (index, now) = (index + 1, now + 100);
    }
    let waited = now - 55;
    assert!(
        waited >= ROUND_TRIP.get() && waited <= ROUND_TRIP.get() * 2,
        "wanted after {waited} ns, {} after a round trip",
        waited.abs_diff(ROUND_TRIP.get())
    );
}

/// An unanswered packet is retransmitted with a doubled wait each time, up to sixty-four round trips.
#[test]
fn e2_5_adaptive_sender_silence_doubles_wait() {
    let (mut sender, _) = adaptive(1);
    let _ = sender.poll_packet(START);
    let (mut now, mut last, mut waits) = (START, START, Vec::new());
    while waits.len() < 8 {
        now = sender.poll_timeout().unwrap_or(now);
        sender.handle_timeout(now);
        if sender.poll_packet(now).is_some() {
            waits.push(now.saturating_sub(last).get() / ROUND_TRIP.get());
            last = now;
        }
    }
    assert_eq!(waits, [4, 8, 16, 32, 64, 64, 64, 64]);
}
