//! A big transfer delays a regular command by at most one segment (docs/protocol.md 4.2), for every size of the op table.
//!
//! The tests count big segments whose first packet leaves between a regular command's arrival and its own first packet, while the regular
//! command's destination accepts packets. A destination delays its commands itself if it has its maximum number of packets in flight, does
//! not answer, or has another regular command partly sent. So does a receiver that refuses packets while op numbers are short: each packet
//! that has to give its number back lets one more segment pass.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use std::collections::BTreeSet;

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Answer, Command, Notify, SendTicket, Sender, SenderConfig, Transmit};
use fpga_registers::CardAddr;

const INCARNATION: Incarnation = Incarnation::new(1);

struct TestRng(u64);

impl TestRng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % sides
    }
}

/// A regular command whose first packet was not sent yet.
struct Waiting {
    ticket: SendTicket,
    node: NodeId,
    /// Number of big segments begun since it arrived.
    passed: u64,
    /// Number of packets that had given their number back, each of which let a big transfer that had begun send one segment.
    yielded: u64,
}

/// Parameters of the load.
#[derive(Clone, Copy, Debug)]
struct Load {
    entries: u32,
    /// Maximum number of packets in flight to one destination; 0: the sender's default.
    share: u32,
    segment: u32,
    /// One of this many answers to a segment's first packet is "busy"; 0: none.
    busy: u64,
    seed: u64,
}

fn sender(load: Load) -> Sender {
    let mut config = SenderConfig::default();
    config.op_entries = load.entries;
    // The choice among queues is the subject: no packet is retransmitted.
    config.retry.order_evidence = false;
    config.ops_per_destination = load.share;
    config.live_per_destination = 4096;
    config.segment_size = load.segment;
    config.big_threshold = load.segment;
    Sender::new(config, INCARNATION).unwrap()
}

fn submit(sender: &mut Sender, dice: &mut TestRng, length: u64) -> (SendTicket, NodeId) {
    let node = NodeId::new(u32::try_from(1 + dice.roll(3)).unwrap());
    let command = Command {
        source: CardAddr::new(0x1000),
        node,
        destination: CardAddr::new(0x8000),
        length,
        key: 5,
        notify: Notify::Receiver,
        deadline: None,
        priority: u8::try_from(dice.roll(3)).unwrap(),
    };
    (sender.submit(Nanos::ZERO, command).unwrap(), node)
}

/// Counts the big segments that pass regular commands.
#[derive(Default)]
struct PassCounter {
    segment: u64,
    waiting: Vec<Waiting>,
    /// Destinations with a partly sent regular command.
    half: BTreeSet<NodeId>,
    /// Number of packets that had given their number back when a big segment last began.
    settled: u64,
    regulars: u32,
    most: u64,
}

impl PassCounter {
    /// Records a window that leaves while the destinations in `taking` accept packets.
    fn see(&mut self, transmit: &Transmit, taking: &[NodeId], yielded: u64) {
        let Self { waiting, half, .. } = self;
        if transmit.transfer_length <= self.segment {
            if let Some(place) = waiting.iter().position(|one| one.ticket == transmit.ticket) {
                waiting.remove(place);
                self.regulars += 1;
            }
            if transmit.first_packet + transmit.ops.len() == transmit.segment_packets {
                half.remove(&transmit.node);
            } else if transmit.tries == 1 {
                half.insert(transmit.node);
            }
        } else if transmit.first_packet == 0 && transmit.tries == 1 {
            let delayed = |one: &&mut Waiting| taking.contains(&one.node) && !half.contains(&one.node);
            for one in waiting.iter_mut().filter(delayed) {
                one.passed += 1;
                self.most = one.passed.saturating_sub(yielded - one.yielded).max(self.most);
            }
            self.settled = yielded;
        }
    }
}

/// A sent packet: destination, try count, op number, whether it is the first of its segment, and its segment.
type Sent = (NodeId, u8, OpNumber, bool, (TransferId, SegmentIndex));

/// Serves random commands until some hundred segments have arrived. Returns the maximum number of big segments that went before a regular
/// command.
fn max_passed(load: Load) -> u64 {
    let mut dice = TestRng(load.seed);
    let mut sender = sender(load);
    let (segment, share) = (u64::from(load.segment), sender.config().ops_per_destination);
    let share = if share == 0 { load.entries - load.entries / 4 } else { share };
    let mut now = Nanos::ZERO;
    let mut watch = PassCounter { segment, ..PassCounter::default() };
    let mut out: Vec<Sent> = Vec::new();
    while sender.counters().segments < 400 || watch.regulars < 100 {
        if dice.roll(3) == 0 && sender.queues().map(|queue| queue.regular + queue.big).sum::<u32>() < 20 {
            if dice.roll(3) == 0 {
                let length = segment + 1 + dice.roll(3 * segment);
                submit(&mut sender, &mut dice, length);
            } else {
                let length = 1 + dice.roll(segment);
                let (ticket, node) = submit(&mut sender, &mut dice, length);
                watch.waiting.push(Waiting { ticket, node, passed: 0, yielded: watch.settled });
            }
        }
        let takes = sender.queues().filter(|queue| queue.in_flight < share && !queue.suspect);
        let taking: Vec<_> = takes.map(|queue| queue.node).collect();
        if let Some(transmit) = sender.poll_transmit(now) {
            watch.see(&transmit, &taking, sender.counters().yielded);
            for (packet, op) in (transmit.first_packet..).zip(transmit.ops.as_slice()) {
                out.push((
                    transmit.node,
                    transmit.tries,
                    *op,
                    packet == 0,
                    (transmit.transfer, transmit.segment),
                ));
            }
        }
        if dice.roll(2) == 0 && !out.is_empty() {
            let (node, tries, op, start, (transfer, segment)) =
                out.remove(usize::try_from(dice.roll(out.len() as u64)).unwrap());
            let incarnation = Incarnation::new(0);
            let answer = Answer {
                node,
                incarnation: INCARNATION,
                op,
                transfer,
                segment,
                tries,
                peer_incarnation: incarnation,
                notes: fpga_firmware::wire::AnswerNotes::default(),
            };
            if start && load.busy != 0 && dice.roll(load.busy) == 0 {
                sender.handle_nack(now, answer, NackReason::Busy);
            } else {
                sender.handle_ack(now, answer);
            }
        }
        while let Some(completion) = sender.poll_completion() {
            assert_eq!(completion.result, Ok(()), "{load:?}");
        }
        now = now.saturating_add(Nanos::from_micros(1));
        if sender.poll_timeout().is_some_and(|at| at <= now) {
            sender.handle_timeout(now);
        }
    }
    watch.most
}

#[test]
fn fairness_regular_command_waits_for_at_most_one_big_segment() {
    check_fairness([1, 2, 3, 5, 16, 64, 256], 2);
}

#[test]
#[ignore = "long: 5 s: every number of entries"]
fn fairness_regular_command_waits_for_at_most_one_big_segment_at_every_number_of_entries() {
    check_fairness((1..=64).chain([256, 2048]), 3);
}

fn check_fairness(entries: impl IntoIterator<Item = u32>, seeds: u64) {
    for entries in entries {
        for (segment, share, busy) in [
            (16 << 10, 0, 0),
            (16 << 10, entries, 0),
            (512, 0, 0),
            (2048, entries, 0),
            (1024, 0, 3),
            (2048, entries, 5),
        ] {
            for seed in 1..=seeds {
                let load = Load { entries, share, segment, busy, seed };
                let most = max_passed(load);
                // Where op numbers had to be given back, the transfer that they were given back for may not be the first to take one.
                let bound = if busy == 0 { 1 } else { 2 };
                assert!(most <= bound, "{most} big segments went first: {load:?}");
            }
        }
    }
}
