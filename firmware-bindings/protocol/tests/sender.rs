//! The sender alone: queues, fairness, retries, and results of transfers.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use std::hash::{DefaultHasher, Hash, Hasher};

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{
    Answer, Command, CommandError, Notify, REGISTRY_TIMEOUT_MARGIN, SEGMENT_SPAN, SendFailure, SendTicket,
    Sender, SenderConfig, SenderConfigError, SenderCounters, TimeoutPolicy, Transmit, TransmitKind,
};
use fpga_registers::CardAddr;

const INCARNATION: Incarnation = Incarnation::new(1);

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn command(node: u32, length: u64) -> Command {
    Command {
        source: CardAddr::new(0x1000),
        node: NodeId::new(node),
        destination: CardAddr::new(0x8000),
        length,
        key: 5,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    }
}

fn sender(change: impl FnOnce(&mut SenderConfig)) -> Sender {
    let mut config = SenderConfig::default();
    // The rules of the tables alone; `feedback::congestion` tests the window.
    config.congestion = None;
    change(&mut config);
    Sender::new(config, INCARNATION).unwrap()
}

fn submit(sender: &mut Sender, node: u32, length: u64) -> SendTicket {
    sender.submit(at(0), command(node, length)).unwrap()
}

fn answer(transmit: &Transmit, op: OpNumber) -> Answer {
    Answer {
        node: transmit.node,
        incarnation: INCARNATION,
        op,
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries: transmit.tries,
        peer_incarnation: Incarnation::new(0),
        notes: fpga_firmware::wire::AnswerNotes::default(),
    }
}

fn acknowledge(sender: &mut Sender, now: Nanos, transmit: &Transmit) {
    for op in transmit.ops.as_slice() {
        sender.handle_ack(now, answer(transmit, *op));
    }
}

#[test]
fn sender_threshold_segment_and_mask_must_fit() {
    let refused = |change: fn(&mut SenderConfig)| {
        let mut config = SenderConfig::default();
        change(&mut config);
        config.validate().unwrap_err()
    };
    assert_eq!(
        refused(|c| c.big_threshold = 16385),
        SenderConfigError::Threshold { threshold: 16385, segment: 16384 }
    );
    assert_eq!(
        refused(|c| c.segment_size = 16385),
        SenderConfigError::SegmentSize { segment: 16385, limit: 16384 }
    );
    assert_eq!(
        refused(|c| c.mask_bits = 31),
        SenderConfigError::SegmentSize { segment: 16384, limit: 15872 }
    );
    assert_eq!(refused(|c| c.packet_size_log2 = 16), SenderConfigError::PacketSize { log2: 16 });
    assert_eq!(refused(|c| c.mask_bits = 257), SenderConfigError::MaskBits { found: 257 });
    assert!(matches!(refused(|c| c.op_entries = 0), SenderConfigError::Size { name: "op_entries", .. }));
    assert!(matches!(
        Sender::new(SenderConfig::default(), INCARNATION).map(|s| s.config().packet_size()),
        Ok(512)
    ));
}

#[test]
fn registry_timeout_longer_than_time_to_give_up_by_packet_lifetimes() {
    let mut config = SenderConfig::default();
    (config.retry.give_up, config.packet_lifetime) = (at(700), at(10));
    assert_eq!(config.min_registry_timeout(), at(700 + 10 * REGISTRY_TIMEOUT_MARGIN));
}

#[test]
fn sender_big_transfer_head_is_cut_in_place() {
    let mut sender = sender(|_| {});
    let ticket = submit(&mut sender, 1, (40 << 10) + 3);
    let mut bases = Vec::new();
    while let Some(transmit) = sender.poll_transmit(at(0)) {
        assert_eq!((transmit.ticket, transmit.segment_count), (ticket, 3));
        assert_eq!(transmit.silent, transmit.segment < 2, "all but the last are silent");
        assert_eq!(transmit.source.get() - 0x1000, transmit.segment_base.get() - 0x8000);
        bases.push((transmit.segment, transmit.segment_base.get() - 0x8000, transmit.segment_length));
        // The last segment first: no premature completion [E1-8].
        if transmit.segment == 2 {
            acknowledge(&mut sender, at(1), &transmit);
            assert_eq!(sender.poll_completion(), None);
        }
    }
    assert_eq!(bases, [(0, 0, 16384), (1, 16384, 16384), (2, 32768, 8195)]);
}

#[test]
fn sender_partial_window_is_filled_with_available_packets() {
    let mut sender = sender(|c| c.op_entries = 8);
    submit(&mut sender, 1, 5000);
    let first = sender.poll_transmit(at(0)).unwrap();
    // Three quarters of the table are available to one destination.
    assert_eq!((first.first_packet, first.ops.len(), first.segment_packets), (0, 6, 10));
    assert_eq!(first.payload_length, 6 * 512);
    assert_eq!(sender.poll_transmit(at(0)), None, "back-pressure");
    sender.handle_ack(at(1), answer(&first, first.ops.as_slice()[3]));
    let second = sender.poll_transmit(at(1)).unwrap();
    assert_eq!((second.first_packet, second.ops.len(), second.source.get()), (6, 1, 0x1000 + 6 * 512));
    acknowledge(&mut sender, at(2), &first);
    let third = sender.poll_transmit(at(2)).unwrap();
    assert_eq!((third.first_packet, third.ops.len(), third.payload_length), (7, 3, 1024 + 392));
    acknowledge(&mut sender, at(3), &second);
    acknowledge(&mut sender, at(3), &third);
    let completion = sender.poll_completion().unwrap();
    assert_eq!((completion.packets, completion.retransmits), (10, 0));
    let counters = sender.counters();
    assert_eq!((counters.packets, counters.acknowledged), (10, 10));
    assert_eq!(counters.stale, 1, "one was acknowledged twice");
    assert!(sender.is_idle());
}

#[test]
fn sender_big_queues_round_robin_and_regular_sees_one_big_segment() {
    let mut sender = sender(|c| c.op_entries = 4096);
    for node in [1, 2, 3] {
        submit(&mut sender, node, 1 << 20);
    }
    let nodes: Vec<_> = (0..6).map(|_| sender.poll_transmit(at(0)).unwrap().node.get()).collect();
    assert_eq!(nodes, [1, 2, 3, 1, 2, 3], "round robin");
    // A steady stream of regular commands: each waits for at most one big segment, and the big ones still progress.
    let mut waiting: Vec<(SendTicket, u32)> = Vec::new();
    let mut big = 0;
    for round in 0..100 {
        if round % 3 != 2 {
            waiting.push((submit(&mut sender, 9, 100), 0));
        }
        let transmit = sender.poll_transmit(at(0)).unwrap();
        if transmit.segment_length == 100 {
            let place = waiting.iter().position(|(ticket, _)| *ticket == transmit.ticket).unwrap();
            assert_eq!(place, 0, "regular commands keep their order");
            waiting.remove(0);
        } else {
            big += 1;
            for (_, seen) in &mut waiting {
                *seen += 1;
                assert!(*seen <= 1, "two big segments before a regular command's first packet");
            }
        }
        acknowledge(&mut sender, at(0), &transmit);
        while sender.poll_completion().is_some() {}
    }
    assert!(big >= 20, "the big ones starve: {big}");
}

/// There are always waiting regular commands: a big segment goes whenever those that the last one passed have gone.
#[test]
fn sender_steady_regular_commands_do_not_starve_big_transfers() {
    for waiting in 1..6 {
        let mut sender = sender(|c| c.op_entries = 4096);
        submit(&mut sender, 1, 2 << 20);
        let mut issued = Vec::new();
        for _ in 0..120 {
            while sender.queues().map(|queue| queue.regular).sum::<u32>() < waiting {
                submit(&mut sender, 9, 100);
            }
            let transmit = sender.poll_transmit(at(0)).unwrap();
            issued.push(transmit.segment_length > 100);
            acknowledge(&mut sender, at(0), &transmit);
            while sender.poll_completion().is_some() {}
        }
        let regular = waiting as usize;
        let expected = |n: usize| n % (regular + 1) == 1 % (regular + 1);
        let found: Vec<_> = issued.iter().enumerate().filter(|(_, big)| **big).map(|(n, _)| n).collect();
        assert_eq!(found, (0..120).filter(|n| expected(*n)).collect::<Vec<_>>(), "{waiting} wait");
    }
}

/// At most as many as its receiver has records for: segments of a transfer above the oldest incomplete one, and concurrent transfers.
#[test]
fn sender_starts_no_more_than_receiver_has_records() {
    let mut sender = sender(|c| {
        (c.op_entries, c.ops_per_destination) = (4096, 4096);
        (c.segment_size, c.big_threshold) = (512, 512);
    });
    submit(&mut sender, 1, 512 * 2 * u64::from(SEGMENT_SPAN));
    let first = sender.poll_transmit(at(0)).unwrap();
    let mut segments = 1;
    while let Some(transmit) = sender.poll_transmit(at(0)) {
        assert!(transmit.segment < SEGMENT_SPAN);
        acknowledge(&mut sender, at(0), &transmit);
        segments += 1;
    }
    assert_eq!(segments, SEGMENT_SPAN, "the first one is not acknowledged");
    acknowledge(&mut sender, at(0), &first);
    assert_eq!(sender.poll_transmit(at(0)).unwrap().segment, SEGMENT_SPAN);

    let mut sender = self::sender(|c| c.live_per_destination = 3);
    for node in [1, 2] {
        for _ in 0..5 {
            submit(&mut sender, node, 100);
        }
    }
    let begun: Vec<_> = core::iter::from_fn(|| sender.poll_transmit(at(0))).collect();
    let of = |node| begun.iter().filter(|transmit| transmit.node == NodeId::new(node)).count();
    assert_eq!((of(1), of(2)), (3, 3));
    acknowledge(&mut sender, at(0), &begun[0]);
    assert_eq!(sender.poll_transmit(at(0)).unwrap().node, begun[0].node);
    assert_eq!(sender.poll_transmit(at(0)), None);
}

#[test]
fn sender_priority_goes_first_and_started_transfer_finishes() {
    let mut sender = sender(|c| c.op_entries = 16);
    let queue = |sender: &mut Sender, node, length, priority| {
        sender.submit(at(0), Command { priority, ..command(node, length) }).unwrap()
    };
    let low = queue(&mut sender, 1, 16_000, 0);
    let first = sender.poll_transmit(at(0)).unwrap();
    assert_eq!((first.ticket, first.ops.len()), (low, 12));
    let order = [(1, 3), (2, 5), (1, 7), (1, 3), (2, 0)].map(|(node, p)| queue(&mut sender, node, 100, p));
    // Node 1 may have twelve packets in flight: its partly sent transfer comes before the urgent one behind it.
    let mut sent = Vec::new();
    let mut transmits = vec![first];
    while let Some(transmit) = transmits.pop() {
        acknowledge(&mut sender, at(0), &transmit);
        while let Some(next) = sender.poll_transmit(at(0)) {
            sent.push(next.ticket);
            transmits.insert(0, next);
        }
    }
    let of = |wanted: &[SendTicket]| {
        let mut found: Vec<_> = sent.iter().copied().filter(|ticket| wanted.contains(ticket)).collect();
        found.dedup();
        found
    };
    assert_eq!(of(&[low, order[0], order[2], order[3]]), [low, order[2], order[0], order[3]]);
    assert_eq!(of(&[order[1], order[4]]), [order[1], order[4]]);

    // Between destinations the big queue is served by priority too; equal priorities take turns.
    let mut sender = self::sender(|c| c.op_entries = 4096);
    for (node, priority) in [(1, 0), (2, 9), (3, 9)] {
        queue(&mut sender, node, 40_000, priority);
    }
    let nodes: Vec<_> =
        core::iter::from_fn(|| sender.poll_transmit(at(0))).map(|transmit| transmit.node.get()).collect();
    assert_eq!(nodes, [2, 3, 2, 3, 2, 3, 1, 1, 1]);
}

#[test]
fn sender_keeps_eighth_of_op_table_for_regular_commands() {
    let mut sender = sender(|c| c.ops_per_destination = 256);
    submit(&mut sender, 1, 1 << 20);
    let mut packets = 0;
    while let Some(transmit) = sender.poll_transmit(at(0)) {
        packets += transmit.ops.len();
    }
    assert_eq!(packets, 224);
    submit(&mut sender, 2, 16 << 10);
    assert_eq!(sender.poll_transmit(at(0)).unwrap().ops.len(), 32);
}

#[test]
fn unreachable_node_does_not_block_other_nodes() {
    let mut sender = sender(|c| c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(1000), max_tries: 3 });
    for _ in 0..20 {
        submit(&mut sender, 1, 100_000);
        submit(&mut sender, 1, 100);
    }
    while sender.poll_transmit(at(0)).is_some() {}
    // Node 1 does not answer; node 2 is served all the time.
    let (mut now, mut served, mut failed) = (at(0), 0, 0);
    while failed < 40 {
        submit(&mut sender, 2, 100);
        submit(&mut sender, 2, 20_000);
        while let Some(transmit) = sender.poll_transmit(now) {
            if transmit.node == NodeId::new(2) {
                acknowledge(&mut sender, now, &transmit);
            }
        }
        while let Some(completion) = sender.poll_completion() {
            match completion.result {
                Ok(()) => served += 1,
                Err(SendFailure::Unanswered { node, tries, acknowledged, .. }) => {
                    assert_eq!((node, tries, acknowledged), (NodeId::new(1), 3, 0));
                    failed += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        now = sender.poll_timeout().unwrap_or(now).max(now.saturating_add(at(10)));
        sender.handle_timeout(now);
    }
    assert!(served > 0);
    assert_eq!(served % 2, 0, "every transfer to node 2 succeeded");
    assert!(sender.is_idle() || sender.ops().count() == 0);
}

#[test]
fn sender_retransmission_is_single_packet_with_same_op_number() {
    let mut sender = sender(|c| c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(1000), max_tries: 8 });
    submit(&mut sender, 1, 2000);
    let first = sender.poll_transmit(at(0)).unwrap();
    for packet in [0, 1, 3] {
        sender.handle_ack(at(1), answer(&first, first.ops.as_slice()[packet]));
    }
    sender.handle_timeout(at(999));
    assert_eq!(sender.poll_transmit(at(999)), None);
    let timeout = at(1000);
    assert!(sender.poll_timeout().unwrap() <= timeout);
    sender.handle_timeout(timeout);
    let again = sender.poll_transmit(timeout).unwrap();
    assert_eq!((again.first_packet, again.tries, again.payload_length), (2, 2, 512));
    assert_eq!(again.ops.as_slice(), [first.ops.as_slice()[2]]);
    assert_eq!(again.source.get(), 0x1000 + 1024);
    assert_eq!(sender.poll_transmit(timeout), None);
    // The answer to the first try is equally valid.
    sender.handle_ack(timeout, answer(&first, first.ops.as_slice()[2]));
    assert_eq!(sender.poll_completion().unwrap().retransmits, 1);
    let counters = sender.counters();
    assert_eq!((counters.packets, counters.retransmits, counters.timeouts), (4, 1, 1));
}

#[test]
fn sender_busy_answer_does_not_count_as_silence() {
    let mut sender = sender(|c| c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(1000), max_tries: 2 });
    submit(&mut sender, 1, 100);
    let mut transmit = sender.poll_transmit(at(0)).unwrap();
    let mut now = at(0);
    for round in 0..50u8 {
        sender.handle_nack(now, answer(&transmit, transmit.ops.as_slice()[0]), NackReason::Busy);
        assert_eq!(sender.poll_transmit(now), None, "waits first");
        while transmit.tries == round + 1 {
            now = sender.poll_timeout().unwrap();
            sender.handle_timeout(now);
            transmit = sender.poll_transmit(now).unwrap_or(transmit);
        }
    }
    assert_eq!(sender.counters().timeouts, 0);
    acknowledge(&mut sender, now, &transmit);
    assert_eq!(sender.poll_completion().unwrap().result, Ok(()));
}

#[test]
fn sender_refusal_ends_transfer_with_full_error() {
    let mut sender = sender(|_| {});
    submit(&mut sender, 1, 100_000);
    let first = sender.poll_transmit(at(0)).unwrap();
    let second = sender.poll_transmit(at(0)).unwrap();
    sender.handle_ack(at(1), answer(&first, first.ops.as_slice()[0]));
    sender.handle_nack(at(1), answer(&second, second.ops.as_slice()[1]), NackReason::Violation);
    let completion = sender.poll_completion().unwrap();
    let address = CardAddr::new(0x8000 + 16384 + 512);
    let error = SendFailure::Refused {
        node: NodeId::new(1),
        address,
        acknowledged: 1,
        tries: 1,
        reason: NackReason::Violation,
    };
    assert_eq!(completion.result, Err(error));
    assert!(error.to_string().contains("Violation"));
    assert!(sender.is_idle(), "its entries are released");
    acknowledge(&mut sender, at(2), &first);
    assert_eq!(sender.counters().stale, 32);
    assert_eq!(sender.poll_completion(), None);
}

#[test]
fn sender_stale_answers_are_counted_and_ignored() {
    let mut sender = sender(|_| {});
    submit(&mut sender, 1, 100);
    let transmit = sender.poll_transmit(at(0)).unwrap();
    let good = answer(&transmit, transmit.ops.as_slice()[0]);
    sender.handle_ack(at(1), Answer { incarnation: Incarnation::new(2), ..good });
    sender.handle_ack(at(1), Answer { node: NodeId::new(7), ..good });
    sender.handle_ack(at(1), Answer { op: OpNumber::new(0xFFFF_FFFF), ..good });
    sender.handle_nack(
        at(1),
        Answer { op: OpNumber::from_parts(good.op.slot(), 9), ..good },
        NackReason::Violation,
    );
    let other = TransferId::new(good.transfer.get() + 1);
    sender.handle_ack(at(1), Answer { transfer: other, ..good });
    sender.handle_ack(at(1), Answer { segment: good.segment + 1, ..good });
    assert_eq!((sender.counters().stale, sender.poll_completion()), (6, None));
    sender.handle_ack(at(1), good);
    assert!(sender.poll_completion().is_some());
}

#[test]
fn sender_new_receiver_incarnation_ends_started_transfers() {
    let mut sender = sender(|_| {});
    let (begun, fresh) = (submit(&mut sender, 1, 5000), submit(&mut sender, 1, 100));
    let other = submit(&mut sender, 2, 700);
    let first = sender.poll_transmit(at(0)).unwrap();
    let second = sender.poll_transmit(at(0)).unwrap();
    let elsewhere = sender.poll_transmit(at(0)).unwrap();
    let with_incarnation = |incarnation, transmit: &Transmit, packet: usize| Answer {
        peer_incarnation: Incarnation::new(incarnation),
        ..answer(transmit, transmit.ops.as_slice()[packet])
    };
    sender.handle_ack(at(1), with_incarnation(7, &first, 0));
    sender.handle_ack(at(1), with_incarnation(50, &elsewhere, 0));
    // It answers as another incarnation: its part of the first transfer is lost; it had none of the second.
    sender.handle_ack(at(2), with_incarnation(8, &first, 1));
    let completion = sender.poll_completion().unwrap();
    assert_eq!(completion.ticket, begun);
    assert!(matches!(completion.result, Err(SendFailure::Forgotten { acknowledged: 1, .. })));
    // A late answer of the earlier incarnation is ignored and does not make that incarnation current again.
    sender.handle_ack(at(3), with_incarnation(7, &second, 0));
    assert_eq!(sender.poll_completion(), None);
    sender.handle_ack(at(4), with_incarnation(8, &second, 0));
    assert_eq!(sender.poll_completion().unwrap().ticket, fresh);
    sender.handle_ack(at(5), with_incarnation(0, &elsewhere, 1));
    let completion = sender.poll_completion().unwrap();
    assert_eq!((completion.ticket, completion.result), (other, Ok(())));
    assert!(sender.is_idle());
}

#[test]
fn sender_segment_done_replaces_lost_acknowledgements() {
    let mut sender = sender(|_| {});
    submit(&mut sender, 1, 20_000);
    let first = sender.poll_transmit(at(0)).unwrap();
    let done = |sender: &mut Sender, segment| {
        let told = answer(&first, OpNumber::new(0));
        sender.handle_segment_done(at(1), Answer { segment, ..told });
    };
    done(&mut sender, 1);
    let second = sender.poll_transmit(at(0)).unwrap();
    sender.handle_ack(at(1), answer(&first, first.ops.as_slice()[5]));
    done(&mut sender, 0);
    done(&mut sender, 0);
    assert_eq!(sender.ops().count(), usize::from(second.ops.len()));
    acknowledge(&mut sender, at(1), &second);
    assert_eq!(sender.poll_completion().unwrap().result, Ok(()));
    assert!(sender.is_idle());
}

#[test]
fn sender_deadline_cancel_and_sender_notice() {
    let mut sender = sender(|_| {});
    let mut late = command(1, 50_000);
    late.deadline = Some(at(300));
    sender.submit(at(0), late).unwrap();
    let _ = sender.poll_transmit(at(0)).unwrap();
    let cancelled = submit(&mut sender, 1, 50_000);
    assert!(sender.cancel(at(1), cancelled));
    assert!(!sender.cancel(at(1), cancelled), "it has ended");
    assert!(matches!(sender.poll_completion().unwrap().result, Err(SendFailure::Cancelled { .. })));
    assert!(sender.poll_timeout().unwrap() <= at(300));
    sender.handle_timeout(at(299));
    assert_eq!(sender.poll_completion(), None);
    sender.handle_timeout(at(300));
    let completion = sender.poll_completion().unwrap();
    assert!(matches!(completion.result, Err(SendFailure::Deadline { tries: 1, acknowledged: 0, .. })));
    assert!(sender.is_idle());

    let mut announced = command(1, 700);
    announced.notify = Notify::Sender;
    sender.submit(at(400), announced).unwrap();
    let transmit = sender.poll_transmit(at(400)).unwrap();
    acknowledge(&mut sender, at(401), &transmit);
    assert_eq!(sender.poll_completion(), None, "the notice goes first");
    let notice = sender.poll_transmit(at(402)).unwrap();
    assert_eq!((notice.kind, notice.ops.len(), notice.transfer_length), (TransmitKind::Arrival, 0, 700));
    assert_eq!((notice.source.get(), notice.segment_base.get(), notice.payload_length), (0x1000, 0x8000, 0));
    assert_eq!(sender.poll_completion().unwrap().finished, at(401));
}

#[test]
fn sender_destination_after_only_transfer_failed_is_retried() {
    let mut sender = sender(|_| {});
    let ticket = submit(&mut sender, 1, 100);
    let _ = sender.poll_transmit(at(0)).unwrap();
    for time in [250, 750] {
        sender.handle_timeout(at(time));
        assert_eq!(sender.poll_transmit(at(time)).unwrap().ticket, ticket, "a probe");
    }
    let waiting = submit(&mut sender, 1, 200);
    assert_eq!(sender.poll_transmit(at(1000)), None, "nothing new while the node is silent");
    assert!(sender.cancel(at(1001), ticket));
    assert_eq!(sender.poll_transmit(at(1001)).unwrap().ticket, waiting);
}

#[test]
fn sender_invalid_submission_refused_and_zero_length_completes() {
    let mut sender = sender(|c| {
        c.transfers = 2;
        c.destinations = 1;
    });
    let ticket = submit(&mut sender, 1, 0);
    assert_eq!(sender.poll_transmit(at(0)), None);
    let completion = sender.poll_completion().unwrap();
    assert_eq!((completion.ticket, completion.result, completion.transfer), (ticket, Ok(()), None));
    let mut beyond = command(1, 2);
    beyond.destination = CardAddr::new(u64::MAX);
    assert!(matches!(sender.submit(at(0), beyond), Err(CommandError::Address { .. })));
    assert!(matches!(sender.submit(at(0), command(1, u64::MAX >> 1)), Err(CommandError::TooLong { .. })));
    assert!(matches!(sender.submit(at(0), command(u32::MAX, 1)), Err(CommandError::Node { .. })));
    submit(&mut sender, 1, 1);
    assert!(matches!(sender.submit(at(0), command(2, 1)), Err(CommandError::Destinations { .. })));
    submit(&mut sender, 1, 1);
    assert_eq!(sender.submit(at(0), command(1, 1)), Err(CommandError::Full { capacity: 2 }));
}

#[test]
fn sender_transfer_ids_per_node_are_consecutive() {
    let mut sender = sender(|c| c.destinations = 2);
    let mut next = [0u32; 8];
    for n in 0..40u32 {
        let node = n * n % 5;
        submit(&mut sender, node, 10);
        let transmit = sender.poll_transmit(at(0)).unwrap();
        let place = &mut next[node as usize];
        // After its record was given to another node, numbering continues above.
        assert!(transmit.transfer.get() >= *place);
        assert_eq!(transmit.oldest_live, transmit.transfer);
        *place = transmit.transfer.get() + 1;
        acknowledge(&mut sender, at(0), &transmit);
        assert!(sender.poll_completion().is_some());
    }
}

#[test]
fn ticket_slot_reused_generation_differs() {
    let mut sender = sender(|c| c.transfers = 1);
    let tickets = [0, 1, 2].map(|generation| {
        let ticket = submit(&mut sender, 1, 10);
        assert_eq!((ticket.slot(), ticket.generation()), (0, generation));
        let transmit = sender.poll_transmit(at(0)).unwrap();
        acknowledge(&mut sender, at(0), &transmit);
        assert_eq!(sender.poll_completion().unwrap().ticket, ticket);
        ticket
    });
    let current = submit(&mut sender, 1, 10);
    assert!(tickets.iter().all(|former| !sender.cancel(at(0), *former)));
    assert!(sender.cancel(at(0), current));
}

#[test]
fn counters_plus_sums_every_field() {
    let counters = |first: u64| {
        let mut counters = SenderCounters::default();
        let fields = [
            &mut counters.packets,
            &mut counters.retransmits,
            &mut counters.acknowledged,
            &mut counters.stale,
            &mut counters.busy,
            &mut counters.not_ready,
            &mut counters.refused,
            &mut counters.timeouts,
            &mut counters.deferred,
            &mut counters.yielded,
            &mut counters.segments,
            &mut counters.completed,
            &mut counters.failed,
        ];
        (first..).step_by(2).zip(fields).for_each(|(value, field)| *field = value);
        counters
    };
    let doubled = counters(1).merged(&counters(1));
    assert_eq!((doubled.packets, doubled.retransmits, doubled.failed), (2, 6, 50));
    assert_eq!(counters(0).merged(&counters(2)), doubled);
    assert_eq!(doubled.merged(&SenderCounters::default()), doubled);
}

/// State searches distinguish the states of a sender by their hashes.
#[test]
fn hash_segments_with_different_knowledge_differ() {
    // Two packets are acknowledged, the first one at a different time: nothing else differs afterwards.
    let hash_of = |first: u64| {
        let mut sender =
            sender(|c| c.retry.timeout = TimeoutPolicy::Fixed { timeout: at(1000), max_tries: 8 });
        submit(&mut sender, 1, 2000);
        let transmit = sender.poll_transmit(at(0)).unwrap();
        sender.handle_ack(at(first), answer(&transmit, transmit.ops.as_slice()[0]));
        sender.handle_ack(at(5), answer(&transmit, transmit.ops.as_slice()[1]));
        let mut hasher = DefaultHasher::new();
        sender.hash(&mut hasher);
        hasher.finish()
    };
    assert_eq!(hash_of(1), hash_of(1));
    assert_ne!(hash_of(1), hash_of(2));
}
