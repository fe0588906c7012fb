//! The work for a packet does not grow with the number of destinations and transfers: counts of the records read.

use alloc::collections::VecDeque;

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::wire::AnswerNotes;
use fpga_registers::CardAddr;

use crate::Nanos;
use crate::sender::{Answer, Command, Notify, Sender, SenderConfig};

const OURS: Incarnation = Incarnation::new(1);
const TRIP: u64 = 20_000;

/// Sender, and a network that answers each packet in order.
struct Network {
    sender: Sender,
    now: u64,
    answers: VecDeque<(u64, Answer, bool)>,
    peers: u32,
    next: u32,
    length: u64,
    /// One of this many packets is lost, and one of this many first packets of segments is refused; 0: none.
    faults: u64,
    dice: u64,
}

impl Network {
    fn new(peers: u32, transfers: u32, length: u64, faults: u64) -> Self {
        let mut config = SenderConfig::default();
        (config.transfers, config.destinations, config.op_entries) = (1 << 15, 1 << 10, 1 << 12);
        config.segment_size = 4096;
        config.big_threshold = 4096;
        let sender = Sender::new(config, OURS).unwrap();
        let answers = VecDeque::new();
        let mut network = Self { sender, now: 1, answers, peers, next: 0, length, faults, dice: 1 };
        for _ in 0..transfers {
            network.submit();
        }
        network
    }

    fn roll(&mut self, sides: u64) -> bool {
        self.dice = self.dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        sides != 0 && (self.dice >> 33).is_multiple_of(sides)
    }

    fn submit(&mut self) {
        self.next = (self.next + 1) % self.peers;
        let command = Command {
            source: CardAddr::ZERO,
            node: NodeId::new(1 + self.next),
            destination: CardAddr::ZERO,
            length: self.length,
            key: 0,
            notify: Notify::Receiver,
            deadline: None,
            priority: 0,
        };
        self.sender.submit(Nanos::new(self.now), command).unwrap();
    }

    fn transmit(&mut self) {
        while let Some(transmit) = self.sender.poll_transmit(Nanos::new(self.now)) {
            let mut answer = Answer {
                node: transmit.node,
                incarnation: OURS,
                op: OpNumber::new(0),
                transfer: transmit.transfer,
                segment: transmit.segment,
                tries: transmit.tries,
                peer_incarnation: Incarnation::new(2),
                notes: AnswerNotes::default(),
            };
            for (packet, op) in (transmit.first_packet..).zip(transmit.ops.as_slice()) {
                answer.op = *op;
                if !self.roll(self.faults) {
                    let refused = self.roll(self.faults) && packet == 0 && transmit.tries == 1;
                    self.answers.push_back((self.now + TRIP, answer, refused));
                }
            }
        }
    }

    /// Handles the next answer.
    fn step(&mut self) {
        self.transmit();
        self.now += 41;
        let timeout = self.sender.poll_timeout().map_or(u64::MAX, Nanos::get);
        match self.answers.front().copied() {
            Some((at, answer, refused)) if at <= timeout.max(self.now) => {
                self.answers.pop_front();
                self.now = self.now.max(at);
                let now = Nanos::new(self.now);
                if refused {
                    self.sender.handle_nack(now, answer, NackReason::Busy);
                } else {
                    self.sender.handle_ack(now, answer);
                    // An answer to a segment that is over, as every one is after its last acknowledgement.
                    self.sender.handle_segment_done(now, Answer { segment: u32::MAX, ..answer });
                }
            }
            _ => self.now = self.now.max(timeout),
        }
        self.sender.handle_timeout(Nanos::new(self.now));
        while let Some(done) = self.sender.poll_completion() {
            assert!(done.result.is_ok(), "{done:?}");
            self.submit();
        }
    }

    /// Returns the records read per hundred acknowledged packets, in the steady state.
    fn visits(mut self) -> u64 {
        while self.sender.counters().acknowledged < 20_000 {
            self.step();
        }
        let (before, acknowledged) = (self.sender.visits(), self.sender.counters().acknowledged);
        while self.sender.counters().acknowledged < acknowledged + 10_000 {
            self.step();
        }
        (self.sender.visits() - before) / 100
    }
}

#[track_caller]
fn assert_level(length: u64, faults: u64, small: (u32, u32)) {
    let one = Network::new(small.0, small.1, length, faults).visits();
    let many = Network::new(1_000, 30_000, length, faults).visits();
    assert!(many <= one * 3 / 2, "{many} records per hundred packets of 1,000 peers, {one} of {small:?}");
}

#[test]
fn packet_cost_of_many_peers_is_that_of_one_peer() {
    assert_level(512, 0, (1, 1));
}

/// With one transfer its packets leave in one window; with many they fill the congestion windows, and leave one by one.
#[test]
fn packet_cost_of_segments_is_that_of_few_peers() {
    assert_level(4096, 0, (10, 300));
}

#[test]
fn packet_cost_of_big_transfers_is_that_of_few_peers() {
    assert_level(64 << 10, 0, (10, 300));
}

#[test]
fn packet_cost_with_losses_is_that_of_few_peers() {
    assert_level(4096, 100, (10, 300));
}
