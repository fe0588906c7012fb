//! The source document's rules, read literally, fail where the errata say so. The corrected model does not fail, and the receiver behaves
//! like the model.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use crate::common;
mod model;
mod numbers;

use common::{BASE, Shape, TestBed, acks, config, events};
use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::ids::Incarnation;
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Answer, Command, Notify, SendFailure, Sender, SenderConfig, Transmit};
use fpga_registers::CardAddr;
use model::{Literal, Model, Packet};

/// Result of a run in which everything is delivered and retransmitted until nothing changes any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RunOutcome {
    /// Notified once, all bytes right.
    right: u32,
    /// Notified with a packet missing or with another transfer's bytes.
    falsely: u32,
    /// Not notified, and nothing changes any more.
    hangs: u32,
    /// Notified more than once.
    doubled: u32,
    /// Notified, but a packet is never acknowledged to the sender, or one is acknowledged that is not in memory.
    unanswered: u32,
    /// Right, but an entry remains in the registry, or bytes were written after completion.
    ghosts: u32,
}

fn operation(transfer: u8, count: u8, address: u8) -> Vec<Packet> {
    (0..count)
        .map(|index| Packet { transfer, segment: 0, segments: 1, index, count, address: address + index })
        .collect()
}

fn permutations(packets: &[Packet], visit: &mut impl FnMut(&[Packet])) {
    fn go(order: &mut Vec<Packet>, left: &mut Vec<Packet>, visit: &mut impl FnMut(&[Packet])) {
        if left.is_empty() {
            return visit(order);
        }
        for at in 0..left.len() {
            let packet = left.remove(at);
            order.push(packet);
            go(order, left, visit);
            order.pop();
            left.insert(at, packet);
        }
    }
    go(&mut Vec::new(), &mut packets.to_vec(), visit);
}

/// Delivers in this order. Then the escape channel's timer expires, the sender retransmits unacknowledged packets, and so on until nothing
/// changes any more. `lost_acks`: the first acknowledgement of each of these packets is lost.
fn run(rule: Literal, order: &[Packet], lost_acks: &[Packet], resend: bool) -> (Model, bool) {
    let mut model = Model::new(2);
    let mut lost = lost_acks.to_vec();
    let mut missing: Vec<Packet> = order.to_vec();
    let mut round = order.to_vec();
    for _ in 0..4 {
        for packet in &round {
            for acknowledged in model.take(rule, *packet) {
                if let Some(at) = lost.iter().position(|lost| *lost == acknowledged) {
                    lost.remove(at);
                } else {
                    missing.retain(|missing| *missing != acknowledged);
                }
            }
        }
        if !resend {
            break;
        }
        model.drop_escaped();
        round.clone_from(&missing);
    }
    (model, missing.is_empty())
}

fn judge(rule: Literal, order: &[Packet], lost_acks: &[Packet], resend: bool) -> RunOutcome {
    let (model, answered) = run(rule, order, lost_acks, resend);
    let mut ends = RunOutcome::default();
    let told = model.told.get(&order[0].transfer).copied().unwrap_or(0);
    let whole = order.iter().all(|packet| model.memory.get(&packet.address) == Some(packet));
    let place = match told {
        0 => &mut ends.hangs,
        2.. => &mut ends.doubled,
        1 if !whole => &mut ends.falsely,
        1 if !answered && resend => &mut ends.unanswered,
        1 if model.occupancy() != (0, 0) || model.late_writes != 0 => &mut ends.ghosts,
        1 => &mut ends.right,
    };
    *place = 1;
    ends
}

fn all_orders(rule: Literal, packets: &[Packet], lost_acks: &[Packet], resend: bool) -> RunOutcome {
    let mut sum = RunOutcome::default();
    permutations(packets, &mut |order| {
        let RunOutcome { right, falsely, hangs, doubled, unanswered, ghosts } =
            judge(rule, order, lost_acks, resend);
        sum.right += right;
        sum.falsely += falsely;
        sum.hangs += hangs;
        sum.doubled += doubled;
        sum.unanswered += unanswered;
        sum.ghosts += ghosts;
    });
    sum
}

fn right(count: u32) -> RunOutcome {
    RunOutcome { right: count, ..RunOutcome::default() }
}

#[test]
fn literal_corrected_model_is_right_in_every_order() {
    assert_eq!(all_orders(Literal::None, &operation(0, 6, 0), &[], false), right(720));
    let packets = operation(0, 5, 0);
    for lost in &packets {
        assert_eq!(all_orders(Literal::None, &packets, &[*lost], true), right(120));
    }
    let mut doubled = operation(0, 4, 0);
    doubled.extend(operation(0, 4, 0).into_iter().take(2));
    assert_eq!(all_orders(Literal::None, &doubled, &[], false), right(720));
}

#[test]
fn e1_1_literal_printed_mask_never_completes() {
    let packets = operation(0, 8, 0);
    assert_eq!(judge(Literal::None, &packets, &[], false), right(1));
    // In every order: its upper four ones belong to no packet and to no bit.
    assert_eq!(
        judge(Literal::MaskOf36Bits, &packets, &[], true),
        RunOutcome { hangs: 1, ..RunOutcome::default() }
    );
}

#[test]
fn e1_2_literal_no_rescan_finishes_only_start_first() {
    let ends = all_orders(Literal::NoRescan, &operation(0, 6, 0), &[], false);
    assert_eq!(ends, RunOutcome { right: 120, hangs: 600, ..RunOutcome::default() });
}

#[test]
fn e1_3_literal_second_start_clears_mask() {
    let mut packets = operation(0, 3, 0);
    packets.push(packets[0]);
    let ends = all_orders(Literal::EveryStartRegisters, &packets, &[], false);
    // 4! orders, each of them twice, because the two starts are equal. A packet between the starts is marked by the first and lost with
    // the second.
    assert_eq!(ends, RunOutcome { right: 16, hangs: 8, ..RunOutcome::default() });
    assert_eq!(all_orders(Literal::None, &packets, &[], false), right(24));
}

#[test]
fn e1_4_literal_no_tombstones_registers_late_start() {
    let mut packets = operation(0, 3, 0);
    packets.push(packets[0]);
    let mut ghosts = 0;
    permutations(&packets, &mut |order| {
        let (model, _) = run(Literal::NoTombstones, order, &[], false);
        // The operation completes before its last packet exactly if the copy arrives last.
        let ghost = model.occupancy().0 == 1 && model.late_writes == 1;
        assert_eq!(ghost, order[3].index == 0);
        ghosts += u32::from(ghost);
    });
    assert_eq!(ghosts, 12);
}

#[test]
fn e1_5_literal_match_by_address_completes_with_foreign_bytes() {
    let (old, new) = (operation(0, 3, 0), operation(1, 3, 0));
    // Two operations to the same address, one of them incomplete: its packet sets the other's bit.
    let order = [new[0], new[1], old[2]];
    let (model, _) = run(Literal::MatchByAddress, &order, &[], false);
    assert_eq!(model.told.get(&1), Some(&1), "notified of the new one");
    assert_eq!(model.memory[&2], old[2], "with the old one's bytes");
    let (model, _) = run(Literal::None, &order, &[], false);
    assert_eq!(model.told.get(&1), None);
}

#[test]
fn e1_6_literal_acknowledge_on_escape_loses_data() {
    let packets = operation(0, 3, 0);
    // Early packets are acknowledged, dropped at their timeout, and never retransmitted.
    let order = [packets[1], packets[2]];
    let mut model = Model::new(2);
    let acknowledged: usize =
        order.iter().map(|packet| model.take(Literal::AcknowledgeOnEscape, *packet).len()).sum();
    model.drop_escaped();
    model.take(Literal::AcknowledgeOnEscape, packets[0]);
    assert_eq!(
        (acknowledged, model.told.len()),
        (2, 0),
        "everything is acknowledged and nothing will ever complete"
    );
    assert!(model.memory.len() == 1);
}

#[test]
fn e1_7_literal_dropped_duplicate_is_retransmitted_forever() {
    let packets = operation(0, 3, 0);
    let first_two = [packets[0], packets[1]];
    // An acknowledgement is lost while the operation is in progress: its packet is retransmitted again and again.
    let mut model = Model::new(2);
    for packet in first_two {
        model.take(Literal::DropDuplicates, packet);
    }
    for _ in 0..100 {
        assert!(model.take(Literal::DropDuplicates, packets[1]).is_empty());
    }
    let mut model = Model::new(2);
    for packet in first_two {
        model.take(Literal::None, packet);
    }
    assert_eq!(model.take(Literal::None, packets[1]), [packets[1]]);
}

fn three_segments() -> Vec<Packet> {
    (0..3)
        .map(|segment| Packet { transfer: 0, segment, segments: 3, index: 0, count: 1, address: segment })
        .collect()
}

fn command(length: u64) -> Command {
    Command {
        source: CardAddr::ZERO,
        node: common::RECEIVER,
        destination: CardAddr::new(BASE),
        length,
        key: 0,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    }
}

fn answer(transmit: &Transmit) -> Answer {
    let op = transmit.ops.as_slice()[0];
    Answer {
        node: transmit.node,
        incarnation: common::INCARNATION,
        op,
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries: transmit.tries,
        peer_incarnation: Incarnation::new(0),
        notes: fpga_firmware::wire::AnswerNotes::default(),
    }
}

#[test]
fn e1_8_literal_last_segment_answer_may_come_first() {
    // Literally: complete when the unflagged segment is acknowledged. In 2 of the 6 orders of three answers it is the last one.
    let mut early = 0;
    permutations(&three_segments(), &mut |answers| {
        let mut config = SenderConfig::default();
        config.congestion = None;
        let mut sender = Sender::new(config, common::INCARNATION).unwrap();
        let SenderConfig { segment_size, .. } = *sender.config();
        sender.submit(Nanos::ZERO, command(2 * u64::from(segment_size) + 1)).unwrap();
        let sent: Vec<_> = core::iter::from_fn(|| sender.poll_transmit(Nanos::ZERO)).collect();
        assert_eq!(sent.iter().map(|transmit| transmit.silent).collect::<Vec<_>>(), [true, true, false]);
        for (n, packet) in answers.iter().enumerate() {
            let transmit = &sent[usize::from(packet.segment)];
            for op in transmit.ops.as_slice() {
                sender.handle_ack(Nanos::ZERO, Answer { op: *op, ..answer(transmit) });
            }
            early += u32::from(!transmit.silent && n < 2);
            // By count, as corrected: with the third answer, in every order.
            assert_eq!(sender.poll_completion().is_some(), n == 2);
        }
    });
    assert_eq!(early, 4);
}

/// A transfer to a receiver whose registry is full for a second and a half. `refuses`: as corrected. Literally there is no entry to match
/// and none to register, so nothing is answered.
fn to_a_full_registry(refuses: bool) -> Result<(), SendFailure> {
    let mut sender = Sender::new(SenderConfig::default(), common::INCARNATION).unwrap();
    let mut bed = TestBed::new(config());
    for transfer in 0..bed.receiver.config().registry_entries {
        bed.send(&Shape::single(transfer, 2), 0);
    }
    let full_until = Nanos::from_millis(1500);
    sender.submit(Nanos::ZERO, command(64)).unwrap();
    let mut now = Nanos::ZERO;
    loop {
        while let Some(transmit) = sender.poll_transmit(now) {
            bed.now = now;
            if now >= full_until {
                bed.send(&Shape::single(0, 2), 1);
            }
            let outputs = bed.send(&Shape { transfer: 9, ..Shape::single(9, 1) }, 0);
            if !acks(&outputs).is_empty() {
                sender.handle_ack(now, answer(&transmit));
            } else if refuses {
                let reason = common::nacks(&outputs)[0];
                assert_eq!(reason, NackReason::Busy);
                sender.handle_nack(now, answer(&transmit), reason);
            }
        }
        if let Some(completion) = sender.poll_completion() {
            return completion.result;
        }
        now = sender.poll_timeout().unwrap().max(now);
        sender.handle_timeout(now);
    }
}

#[test]
fn e1_12_literal_unanswered_full_registry_fails_transfer() {
    assert!(matches!(to_a_full_registry(false), Err(SendFailure::Unanswered { acknowledged: 0, .. })));
    assert_eq!(to_a_full_registry(true), Ok(()));
}

#[test]
fn e1_9_literal_notice_per_segment_notifies_three_times() {
    let ends = all_orders(Literal::NoticePerSegment, &three_segments(), &[], false);
    assert_eq!(ends, RunOutcome { doubled: 6, ..RunOutcome::default() });
    assert_eq!(all_orders(Literal::None, &three_segments(), &[], false), right(6));
}

/// Random packets of a few overlapping operations: the receiver acknowledges, writes, completes and notifies like the model.
#[test]
fn receiver_random_packets_match_model() {
    let mut dice = 3u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (dice >> 33) % sides
    };
    for _ in 0..3000 {
        let mut config = config();
        config.registry_entries = 8;
        config.escape_slots = 64;
        config.transfers = 8;
        config.tombstones = 16;
        let mut bed = TestBed::new(config);
        let mut model = Model::new(8);
        // Three transfers of one to three segments of one to four packets, to adjacent addresses.
        let shapes: Vec<(Shape, Packet)> = (0..3u8)
            .flat_map(|transfer| {
                let (segments, count, at) = (1 + roll(3), 1 + roll(4), roll(4));
                (0..segments).map(move |segment| {
                    let base = BASE + (at + segment * count) * 64;
                    let length = u32::try_from(count * 64).unwrap();
                    let shape = Shape {
                        segment: u32::try_from(segment).unwrap(),
                        segment_count: u32::try_from(segments).unwrap(),
                        base,
                        length,
                        transfer_base: BASE + at * 64,
                        transfer_length: segments * count * 64,
                        ..Shape::single(transfer.into(), 1)
                    };
                    let byte = |value: u64| u8::try_from(value).unwrap();
                    let packet = Packet {
                        transfer,
                        segment: byte(segment),
                        segments: byte(segments),
                        index: 0,
                        count: byte(count),
                        address: byte(at + segment * count),
                    };
                    (shape, packet)
                })
            })
            .collect();
        let mut told = std::collections::BTreeMap::new();
        for _ in 0..60 {
            let (shape, first) = &shapes[usize::try_from(roll(shapes.len() as u64)).unwrap()];
            let index = u8::try_from(roll(first.count.into())).unwrap();
            let packet = Packet { index, address: first.address + index, ..*first };
            let outputs = bed.send(shape, index.into());
            let expected = model.take(Literal::None, packet);
            let mut found: Vec<u16> = acks(&outputs).iter().map(|op| op.slot()).collect();
            let mut wanted: Vec<u16> = expected.iter().map(|packet| packet.index.into()).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted);
            for notice in events(&outputs, EventKind::Notice) {
                *told.entry(u8::try_from(notice.transfer.get()).unwrap()).or_insert(0u8) += 1;
            }
            assert_eq!(told, model.told);
            let (entries, escaped) = model.occupancy();
            assert_eq!(bed.receiver.registry_occupancy() as usize, entries);
            assert_eq!(usize::from(bed.receiver.escape_occupancy()), escaped);
            let written: std::collections::BTreeSet<u64> =
                bed.memory.writes.iter().map(|(at, _)| *at).collect();
            let expected: std::collections::BTreeSet<u64> =
                model.memory.keys().map(|at| BASE + u64::from(*at) * 64).collect();
            assert_eq!(written, expected);
            assert_eq!(model.late_writes, 0);
        }
    }
}
