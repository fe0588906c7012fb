//! Timing of the sender: round trip estimate, retransmissions, and give-up time.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{
    Answer, Command, Notify, RoundTrip, SendFailure, Sender, SenderConfig, SenderConfigError, TimeoutPolicy,
    Transmit,
};
use fpga_registers::CardAddr;
use proptest::prelude::*;

const INCARNATION: Incarnation = Incarnation::new(1);
const NODE: NodeId = NodeId::new(1);

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn sender(change: impl FnOnce(&mut SenderConfig)) -> Sender {
    let mut config = SenderConfig::default();
    // The rules of the timers alone; `loss_detection` tests the others.
    config.retry.order_evidence = false;
    change(&mut config);
    Sender::new(config, INCARNATION).unwrap()
}

fn submit(sender: &mut Sender, now: Nanos, length: u64) {
    let command = Command {
        source: CardAddr::new(0x1000),
        node: NODE,
        destination: CardAddr::new(0x8000),
        length,
        key: 5,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    };
    sender.submit(now, command).unwrap();
}

fn answer(transmit: &Transmit, packet: usize) -> Answer {
    Answer {
        node: NODE,
        incarnation: INCARNATION,
        op: transmit.ops.as_slice()[packet],
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries: transmit.tries,
        peer_incarnation: Incarnation::new(0),
        notes: fpga_firmware::wire::AnswerNotes::default(),
    }
}

fn trip(sender: &Sender) -> RoundTrip {
    sender.queues().next().unwrap().round_trip
}

/// Lets time pass until a packet is retransmitted; returns the time and the packet.
fn next_try(sender: &mut Sender) -> (Nanos, Transmit) {
    loop {
        let now = sender.poll_timeout().unwrap();
        sender.handle_timeout(now);
        if let Some(transmit) = sender.poll_transmit(now) {
            return (now, transmit);
        }
    }
}

/// Sends one packet at `now` and acknowledges it `span` later.
fn round(sender: &mut Sender, now: Nanos, span: Nanos) {
    submit(sender, now, 100);
    let transmit = sender.poll_transmit(now).unwrap();
    sender.handle_ack(now.saturating_add(span), answer(&transmit, 0));
    assert!(sender.poll_completion().unwrap().result.is_ok());
}

#[test]
fn timeout_first_is_initial_then_adapts() {
    let mut sender = sender(|_| {});
    submit(&mut sender, at(0), 100);
    let first = sender.poll_transmit(at(0)).unwrap();
    let (when, _) = next_try(&mut sender);
    assert_eq!(when, at(1000));
    sender.handle_ack(at(1020), Answer { tries: 2, ..answer(&first, 0) });
    assert_eq!(trip(&sender), RoundTrip { samples: 1, mean: at(20), deviation: at(10), max_sample: at(20) });
    submit(&mut sender, at(2000), 100);
    let _ = sender.poll_transmit(at(2000)).unwrap();
    // Eight times the only sample so far.
    assert_eq!(next_try(&mut sender).0, at(2160));
}

#[test]
fn timeout_first_burst_shrinks_after_first_answers() {
    // Twenty packets leave together, the answers come one every 5 us as on a slow link, and packets 7 and 19 are lost.
    let mut sender = sender(|_| {});
    submit(&mut sender, at(0), 20 * 512);
    let first = sender.poll_transmit(at(0)).unwrap();
    let lost = [7, 19];
    let mut now = at(0);
    for packet in 0..20 {
        now = at(10 + 5 * packet as u64);
        sender.handle_timeout(now);
        assert_eq!(sender.poll_transmit(now), None, "nothing is retransmitted while answers arrive");
        if !lost.contains(&packet) {
            sender.handle_ack(now, answer(&first, packet));
        }
    }
    // Eight times the longest round trip, 100 us, after the latest answer; not the initial millisecond.
    let (when, again) = next_try(&mut sender);
    assert_eq!((when, again.first_packet), (at(100 + 800), 7));
    assert!(when > now && when < at(1000));
    let again = sender.poll_transmit(when).unwrap();
    assert_eq!((again.first_packet, again.tries), (19, 2));
    assert_eq!(sender.poll_transmit(when), None);
}

#[test]
fn timeout_is_at_least_two_round_trips_and_minimum() {
    let mut sender = sender(|_| {});
    for n in 0..300 {
        round(&mut sender, at(n * 100), at(20));
    }
    let learnt = trip(&sender);
    assert!(learnt.deviation < Nanos::new(100), "{learnt:?}");
    assert_eq!(learnt.timeout(), Some(learnt.mean.saturating_mul(2)));
    let mut close = sender;
    // Long samples lose their weight.
    for n in 0..3000 {
        round(&mut close, at(100_000 + n * 100), Nanos::new(300));
    }
    submit(&mut close, at(500_000), 100);
    let _ = close.poll_transmit(at(500_000)).unwrap();
    assert_eq!(next_try(&mut close).0, at(500_005));
}

#[test]
fn e2_2_late_answer_gives_round_trip_of_first_try() {
    let mut sender = sender(|_| {});
    round(&mut sender, at(0), at(20));
    submit(&mut sender, at(100), 100);
    let first = sender.poll_transmit(at(100)).unwrap();
    let (again, second) = next_try(&mut sender);
    assert_eq!(second.tries, 2);
    // The first copy's answer arrives one microsecond after the second was sent: not a round trip of one microsecond.
    sender.handle_ack(again.saturating_add(at(1)), answer(&first, 0));
    assert!(sender.poll_completion().unwrap().result.is_ok());
    assert_eq!(trip(&sender).max_sample, again.saturating_add(at(1)).saturating_sub(at(100)));
}

/// The answer to a try that is neither the first nor the last says nothing about the round trip.
#[test]
fn e2_2_answer_to_middle_try_gives_no_sample() {
    let mut sender = sender(|_| {});
    round(&mut sender, at(0), at(20));
    let before = trip(&sender);
    submit(&mut sender, at(100), 100);
    let _ = sender.poll_transmit(at(100)).unwrap();
    let (_, second) = next_try(&mut sender);
    let (again, third) = next_try(&mut sender);
    assert_eq!((second.tries, third.tries), (2, 3));
    sender.handle_ack(again.saturating_add(at(1)), answer(&second, 0));
    assert!(sender.poll_completion().unwrap().result.is_ok());
    assert_eq!(trip(&sender), before);
}

/// The try count saturates at 255: an answer with that count may be to any later try.
#[test]
fn e2_2_try_count_at_limit_gives_no_sample() {
    let mut sender = sender(|c| {
        c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(10), max_tries: 0 };
        c.retry.give_up = at(100_000);
    });
    submit(&mut sender, at(0), 100);
    let mut transmit = sender.poll_transmit(at(0)).unwrap();
    let mut now = at(0);
    for _ in 0..300 {
        (now, transmit) = next_try(&mut sender);
    }
    assert_eq!(transmit.tries, u8::MAX);
    sender.handle_ack(now.saturating_add(at(1)), answer(&transmit, 0));
    assert!(sender.poll_completion().unwrap().result.is_ok());
    assert_eq!(trip(&sender).samples, 0);
}

/// A busy receiver is asked again at growing intervals, up to a limit. After another answer the interval is the initial one again.
#[test]
fn busy_refusals_in_row_double_wait_to_limit() {
    let mut sender = sender(|c| {
        (c.retry.busy_backoff, c.retry.busy_backoff_max) = (at(20), at(1_000));
        c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(50_000), max_tries: 0 };
    });
    submit(&mut sender, at(0), 100);
    let mut transmit = sender.poll_transmit(at(0)).unwrap();
    let mut now = at(0);
    for reason in [NackReason::Busy, NackReason::EscapeFull] {
        let mut waits = Vec::new();
        for _ in 0..9 {
            sender.handle_nack(now, answer(&transmit, 0), reason);
            let refused = now;
            (now, transmit) = next_try(&mut sender);
            waits.push(now.saturating_sub(refused).get() / 1000);
        }
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
        // A timeout in between: the receiver may have space by the next request.
        (now, transmit) = next_try(&mut sender);
    }
}

/// The limit of tries counts consecutive tries without any answer: a refusal is an answer.
#[test]
fn busy_refusal_resets_silent_try_count() {
    let mut sender = sender(|c| c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(1_000), max_tries: 3 });
    submit(&mut sender, at(0), 100);
    let mut transmit = sender.poll_transmit(at(0)).unwrap();
    let mut now = at(0);
    for _ in 0..5 {
        for _ in 0..2 {
            (now, transmit) = next_try(&mut sender);
        }
        sender.handle_nack(now, answer(&transmit, 0), NackReason::Busy);
        (now, transmit) = next_try(&mut sender);
    }
    sender.handle_ack(now, answer(&transmit, 0));
    assert_eq!(sender.poll_completion().unwrap().result, Ok(()));
}

#[test]
fn packet_waiting_for_first_packet_gives_no_sample() {
    let mut sender = sender(|_| {});
    round(&mut sender, at(0), at(20));
    let before = trip(&sender);
    submit(&mut sender, at(100), 1500);
    let first = sender.poll_transmit(at(100)).unwrap();
    let (again, start) = next_try(&mut sender);
    assert_eq!((start.first_packet, start.ops.len()), (0, 1));
    assert_eq!(sender.poll_transmit(again), None, "the first packet alone: the others wait for it");
    assert_eq!(sender.counters().deferred, 2);
    let later = again.saturating_add(at(20));
    sender.handle_ack(later, answer(&start, 0));
    let learnt = trip(&sender);
    assert_eq!(learnt.samples, before.samples + 1);
    for packet in [1, 2] {
        sender.handle_ack(later, answer(&first, packet));
    }
    assert_eq!(trip(&sender), learnt);
    assert_eq!(sender.poll_completion().unwrap().retransmits, 1);
}

#[test]
fn packet_lost_with_first_packet_is_retransmitted_afterwards() {
    let mut sender = sender(|_| {});
    round(&mut sender, at(0), at(20));
    submit(&mut sender, at(100), 1500);
    let first = sender.poll_transmit(at(100)).unwrap();
    let (again, start) = next_try(&mut sender);
    sender.handle_ack(again.saturating_add(at(20)), answer(&start, 0));
    sender.handle_ack(again.saturating_add(at(20)), answer(&first, 2));
    let (_, second) = next_try(&mut sender);
    assert_eq!((second.first_packet, second.tries), (1, 2));
    sender.handle_ack(again.saturating_add(at(90)), answer(&second, 0));
    assert!(sender.poll_completion().unwrap().result.is_ok());
}

#[test]
fn e2_5_silence_doubles_wait_and_gives_up_after_one_second() {
    let mut sender = sender(|_| {});
    round(&mut sender, at(0), at(20));
    submit(&mut sender, at(1000), 700);
    let first = sender.poll_transmit(at(1000)).unwrap();
    sender.handle_ack(at(1020), answer(&first, 0));
    let wait = trip(&sender).timeout().unwrap();
    let mut now = at(1000);
    let mut waits = Vec::new();
    let completion = loop {
        let next = sender.poll_timeout().unwrap();
        sender.handle_timeout(next);
        if sender.poll_transmit(next).is_some() {
            waits.push(next.saturating_sub(now));
            now = next;
        }
        if let Some(completion) = sender.poll_completion() {
            now = next;
            break completion;
        }
    };
    // Its first deadline was set before the latest sample.
    for (n, found) in (1u32..).zip(&waits[1..]) {
        assert_eq!(*found, wait.saturating_mul(1 << n).min(Nanos::from_millis(100)));
    }
    // One second after the acknowledgement, and not later.
    assert_eq!(now, at(1_001_020));
    let Err(SendFailure::Unanswered { node, address, acknowledged, tries }) = completion.result else {
        panic!("{completion:?}")
    };
    assert_eq!((node, address, acknowledged), (NODE, CardAddr::new(0x8000 + 512), 1));
    assert_eq!(usize::from(tries), waits.len() + 1);
    assert!(sender.is_idle());
}

/// No packet is in flight, because all op numbers are in their reuse delay. To its receiver it is a sender that sends nothing, and may be
/// forgotten before a number is free again.
#[test]
fn transfer_without_op_number_is_given_up_in_time() {
    let mut sender = sender(|c| {
        (c.op_entries, c.generation_bits) = (1, 1);
        c.packet_lifetime = Nanos::from_secs(2);
    });
    submit(&mut sender, at(0), 2048);
    for now in [10, 20].map(at) {
        let transmit = sender.poll_transmit(now).unwrap();
        sender.handle_ack(now, answer(&transmit, 0));
    }
    let (mut now, mut end) = (at(20), None);
    while end.is_none() {
        assert_eq!(sender.poll_transmit(now), None);
        now = sender.poll_timeout().unwrap().max(now);
        sender.handle_timeout(now);
        end = sender.poll_completion();
    }
    assert_eq!(now, at(1_000_020));
    let result = end.unwrap().result;
    assert!(matches!(result, Err(SendFailure::Unanswered { acknowledged: 2, tries: 0, .. })), "{result:?}");
}

#[test]
fn any_answer_counts_as_progress() {
    let mut sender = sender(|c| c.retry.give_up = at(3_000));
    submit(&mut sender, at(0), 100);
    let mut transmit = sender.poll_transmit(at(0)).unwrap();
    // Refused every two milliseconds for a second: the receiver is busy but answers.
    let mut now = at(0);
    for _ in 0..500 {
        now = now.saturating_add(at(2_000));
        sender.handle_timeout(now);
        transmit = sender.poll_transmit(now).unwrap_or(transmit);
        sender.handle_nack(now, answer(&transmit, 0), NackReason::Busy);
        assert_eq!(sender.poll_completion(), None);
    }
    let end = loop {
        let next = sender.poll_timeout().unwrap();
        sender.handle_timeout(next);
        let _ = sender.poll_transmit(next);
        if sender.poll_completion().is_some() {
            break next;
        }
    };
    assert_eq!(end, now.saturating_add(at(3_000)));
}

#[test]
fn forgotten_operation_is_detected_immediately() {
    let mut sender = sender(|_| {});
    submit(&mut sender, at(0), 1000);
    let first = sender.poll_transmit(at(0)).unwrap();
    // Sent before the first packet was acknowledged: it may have waited for it without result, which proves nothing.
    sender.handle_ack(at(10), answer(&first, 0));
    sender.handle_nack(at(11), answer(&first, 1), NackReason::Busy);
    assert_eq!(sender.poll_completion(), None);
    // Sent afterwards: the receiver had registered the operation, and would have acknowledged the packet if it had completed.
    let (now, second) = next_try(&mut sender);
    assert_eq!((second.first_packet, second.tries), (1, 2));
    sender.handle_nack(now, answer(&second, 0), NackReason::EscapeFull);
    let completion = sender.poll_completion().unwrap();
    let Err(SendFailure::Forgotten { address, acknowledged, tries, .. }) = completion.result else {
        panic!("{completion:?}")
    };
    assert_eq!((address, acknowledged, tries), (CardAddr::new(0x8000 + 512), 1, 2));
    assert!(sender.is_idle());
}

#[test]
fn refused_first_packet_is_not_forgotten() {
    let mut sender = sender(|_| {});
    submit(&mut sender, at(0), 1000);
    let mut start = sender.poll_transmit(at(0)).unwrap();
    for _ in 0..20 {
        sender.handle_nack(at(1), answer(&start, 0), NackReason::Busy);
        start = next_try(&mut sender).1;
        assert_eq!(start.first_packet, 0);
    }
    assert_eq!(sender.poll_completion(), None);
}

#[test]
fn zero_time_policies_are_refused() {
    for change in [
        |c: &mut SenderConfig| c.retry.timeout = TimeoutPolicy::Fixed { timeout: Nanos::ZERO, max_tries: 1 },
        |c: &mut SenderConfig| {
            c.retry.timeout = TimeoutPolicy::Adaptive { initial: Nanos::ZERO, least: at(1), most: at(1) };
        },
        |c: &mut SenderConfig| {
            c.retry.timeout = TimeoutPolicy::Adaptive { initial: at(1), least: at(1), most: Nanos::ZERO };
        },
        |c: &mut SenderConfig| c.retry.give_up = Nanos::ZERO,
    ] {
        let mut config = SenderConfig::default();
        change(&mut config);
        assert_eq!(config.validate(), Err(SenderConfigError::Retry));
    }
}

#[test]
fn fixed_timeout_without_try_limit_ends_at_give_up_time() {
    let mut sender = sender(|c| c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(10), max_tries: 0 });
    submit(&mut sender, at(0), 100);
    let _ = sender.poll_transmit(at(0)).unwrap();
    let end = loop {
        let now = sender.poll_timeout().unwrap();
        sender.handle_timeout(now);
        let _ = sender.poll_transmit(now);
        if let Some(completion) = sender.poll_completion() {
            assert!(matches!(completion.result, Err(SendFailure::Unanswered { tries: 255, .. })));
            break now;
        }
    };
    assert_eq!(end, Nanos::from_secs(1));
}

proptest! {
    /// For all samples: the estimate stays between their minimum and maximum, and the timeout is at least twice the mean, so that nothing
    /// overflows or diverges.
    #[test]
    fn round_trip_estimate_stays_within_samples(spans in prop::collection::vec(1u64..1 << 40, 1..200)) {
        let mut sender = sender(|c| c.retry.give_up = Nanos::MAX);
        let mut now = Nanos::ZERO;
        for span in &spans {
            submit(&mut sender, now, 1);
            let transmit = sender.poll_transmit(now).unwrap();
            now = now.saturating_add(Nanos::new(*span));
            sender.handle_ack(now, answer(&transmit, 0));
            prop_assert!(sender.poll_completion().is_some());
        }
        let learnt = trip(&sender);
        let (least, most) = (spans.iter().min().unwrap(), spans.iter().max().unwrap());
        prop_assert!(learnt.mean.get() + 8 >= *least && learnt.mean.get() <= *most + 8, "{learnt:?}");
        prop_assert!(learnt.deviation.get() <= *most);
        prop_assert!(learnt.timeout().unwrap() >= learnt.mean.saturating_mul(2));
    }
}
