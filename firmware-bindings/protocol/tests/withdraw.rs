//! The first packet of a regular command was refused and gave its op number back, but a copy of it is registered. The receiver's only
//! entry then waits for the command, while the sender's only op number belongs to a big transfer, whose next segment the receiver refuses
//! because no entry is free. Both are served in turn, and neither is given up.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper that cannot continue may as well stop the test"
)]

use crate::common;

use common::{INCARNATION, KEY, RECEIVER, SENDER, Shape, TestBed, config};
use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::wire::{Common, Control, DataHeader, Flags, StartFields};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryWindow, Output};
use fpga_protocol::sender::{
    Answer, Command, CommandCompletion, Notify, SendTicket, Sender, SenderConfig, Transmit,
};
use fpga_registers::CardAddr;

const PACKET: u32 = 64;

type Packet = (DataHeader, Vec<u8>);

struct RunOutcome {
    sender: Sender,
    bed: TestBed,
    completions: Vec<CommandCompletion>,
}

impl RunOutcome {
    /// Every table of the sender has one entry, and the receiver has one for operations of two packets.
    fn new() -> Self {
        let mut sending = SenderConfig::default();
        (sending.packet_size_log2, sending.mask_bits) = (6, 2);
        (sending.segment_size, sending.big_threshold) = (2 * PACKET, 2 * PACKET);
        sending.op_entries = 1;
        let mut receiving = config();
        (receiving.mask_bits, receiving.registry_entries) = (2, 1);
        Self {
            sender: Sender::new(sending, INCARNATION).unwrap(),
            bed: TestBed::new(receiving),
            completions: Vec::new(),
        }
    }

    fn submit(&mut self, to: u64, length: u64) {
        let command = Command {
            source: CardAddr::ZERO,
            node: RECEIVER,
            destination: CardAddr::new(to),
            length,
            key: KEY,
            notify: Notify::Receiver,
            deadline: None,
            priority: 0,
        };
        self.sender.submit(self.bed.now, command).unwrap();
    }

    /// Next packet, if one can be sent: there is one op number.
    fn next(&mut self) -> Option<Packet> {
        self.sender.poll_transmit(self.bed.now).map(|transmit| packet(&transmit))
    }

    fn deliver(&mut self, packet: &Packet) {
        let outputs = self.bed.deliver(packet);
        self.take(&outputs);
    }

    fn take(&mut self, outputs: &[Output]) {
        let answer = |common: Common, (transfer, segment), op, tries| Answer {
            node: RECEIVER,
            incarnation: INCARNATION,
            op,
            transfer,
            segment,
            tries,
            peer_incarnation: common.incarnation,
            notes: fpga_firmware::wire::AnswerNotes::default(),
        };
        let now = self.bed.now;
        for output in outputs {
            match output {
                Output::Send(Control::Ack(ack)) if ack.peer_incarnation == INCARNATION => {
                    self.sender
                        .handle_ack(now, answer(ack.common, (ack.transfer, ack.segment), ack.op, ack.tries));
                }
                Output::Send(Control::Nack(nack)) if nack.peer_incarnation == INCARNATION => {
                    let answer = answer(nack.common, (nack.transfer, nack.segment), nack.op, nack.tries);
                    self.sender.handle_nack(now, answer, nack.reason);
                }
                Output::Send(Control::SegmentDone(done)) if done.peer_incarnation == INCARNATION => {
                    let answer = answer(done.common, (done.transfer, done.segment), OpNumber::new(0), 0);
                    self.sender.handle_segment_done(now, answer);
                }
                _ => {}
            }
        }
        self.completions.extend(std::iter::from_fn(|| self.sender.poll_completion()));
    }

    /// Delivers packets as they are sent, and lets time pass when there are none, until the sender is idle.
    fn settle(&mut self) {
        loop {
            while let Some(packet) = self.next() {
                self.deliver(&packet);
            }
            if self.sender.is_idle() {
                return;
            }
            let timers = [self.sender.poll_timeout(), self.bed.receiver.poll_timeout()];
            let at = timers.into_iter().flatten().min().expect("at least one transfer waits");
            let outputs = self.bed.advance(at.saturating_sub(self.bed.now));
            self.sender.handle_timeout(self.bed.now);
            self.take(&outputs);
        }
    }
}

fn packet(transmit: &Transmit) -> Packet {
    let offset = u32::from(transmit.first_packet) * PACKET;
    let start = StartFields {
        base: transmit.segment_base,
        segment_length: transmit.segment_length,
        packets: transmit.segment_packets,
        transfer_base: transmit.transfer_base,
        transfer_length: transmit.transfer_length,
    };
    let header = DataHeader {
        common: Common {
            source: SENDER,
            destination: RECEIVER,
            incarnation: INCARNATION,
            flags: Flags::NOTIFY_RECEIVER,
            path: 0,
        },
        transfer: transmit.transfer,
        oldest_live: transmit.oldest_live,
        segment: transmit.segment,
        segment_count: transmit.segment_count,
        address: CardAddr::new(transmit.segment_base.get() + u64::from(offset)),
        key: KEY,
        op: transmit.ops.as_slice()[0],
        tries: transmit.tries,
        packet_size_log2: 6,
        start: (transmit.first_packet == 0).then_some(start),
    };
    (header, vec![0; usize::try_from(transmit.payload_length).unwrap()])
}

#[test]
fn withdrawn_packet_registered_late_fails_no_transfer() {
    let mut ends = RunOutcome::new();
    ends.submit(0x1_1000, 384);
    let first = ends.next().unwrap();
    ends.submit(0x1_2000, 128);
    ends.deliver(&first);
    let second = ends.next().unwrap();
    assert_eq!((second.0.segment_count, second.0.segment), (3, 0), "the big transfer has begun");
    ends.deliver(&second);
    // Another node takes the entry.
    let stranger = NodeId::new(7);
    let window = *ends.bed.receiver.access().get(0).unwrap();
    ends.bed.receiver.access_mut().install(1, MemoryWindow { source: stranger, ..window }).unwrap();
    let other = |index| {
        let mut packet = Shape::single(0, 2).packet(index);
        packet.0.common.source = stranger;
        packet
    };
    ends.bed.deliver(&other(0));
    let regular = ends.next().unwrap();
    assert_eq!(regular.0.segment_count, 1, "one big segment has passed");
    ends.deliver(&regular);
    assert_eq!(ends.sender.counters().yielded, 1, "refused, and the big transfer has no op number");
    let refused = ends.next().unwrap();
    assert_eq!((refused.0.segment_count, refused.0.segment), (3, 1));
    ends.deliver(&refused);
    // The other one is done, and the copy of the regular command's first packet arrives.
    ends.bed.deliver(&other(1));
    assert_eq!(ends.bed.receiver.registry_occupancy(), 0);
    ends.deliver(&regular);
    assert_eq!(ends.bed.receiver.registry_occupancy(), 1);
    ends.settle();
    assert_eq!(ends.completions.len(), 2);
    assert!(ends.completions.iter().all(|done| done.result == Ok(())), "{:?}", ends.completions);
    assert!(ends.bed.now < Nanos::from_millis(10), "{}", ends.bed.now);
    assert_eq!(ends.bed.receiver.registry_occupancy(), 0);
}

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

/// Sender with one packet in flight to each node, segments of two packets, and op numbers for more.
fn one_in_flight() -> Sender {
    let mut config = SenderConfig::default();
    (config.packet_size_log2, config.mask_bits) = (6, 2);
    (config.segment_size, config.big_threshold) = (2 * PACKET, 2 * PACKET);
    (config.op_entries, config.ops_per_destination) = (8, 1);
    Sender::new(config, INCARNATION).unwrap()
}

fn submit(sender: &mut Sender, packets: u32) -> SendTicket {
    let command = Command {
        source: CardAddr::ZERO,
        node: RECEIVER,
        destination: CardAddr::new(0x1_0000),
        length: u64::from(packets * PACKET),
        key: KEY,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    };
    sender.submit(at(0), command).unwrap()
}

fn answer(transmit: &Transmit) -> Answer {
    Answer {
        node: RECEIVER,
        incarnation: INCARNATION,
        op: transmit.ops.as_slice()[0],
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries: transmit.tries,
        peer_incarnation: Incarnation::new(0),
        notes: fpga_firmware::wire::AnswerNotes::default(),
    }
}

/// A regular command that a big segment has passed takes the only slot of a big transfer that has begun, and gives it back.
#[test]
fn busy_regular_command_yields_place_to_begun_transfer_and_goes_next() {
    let mut sender = one_in_flight();
    let big = submit(&mut sender, 6);
    let first = sender.poll_transmit(at(0)).unwrap();
    let regular = [1, 1].map(|packets| submit(&mut sender, packets));
    sender.handle_ack(at(1), answer(&first));
    let second = sender.poll_transmit(at(1)).unwrap();
    assert_eq!((first.ticket, second.ticket, second.first_packet), (big, big, 1));
    sender.handle_ack(at(2), answer(&second));
    let passed = sender.poll_transmit(at(2)).unwrap();
    assert_eq!((passed.ticket, sender.poll_transmit(at(2))), (regular[0], None));
    sender.handle_nack(at(3), answer(&passed), NackReason::Busy);
    assert_eq!(sender.counters().yielded, 1);
    // The big transfer's next segment, then the command that has waited longest.
    let mut order = Vec::new();
    while let Some(transmit) = sender.poll_transmit(at(4)) {
        order.push((transmit.ticket, transmit.segment));
        sender.handle_ack(at(4), answer(&transmit));
    }
    let expected = [(big, 1), (big, 1), (regular[0], 0), (regular[1], 0), (big, 2), (big, 2)];
    assert_eq!(order, expected);
    let counters = sender.counters();
    assert_eq!((counters.packets, counters.retransmits, counters.completed), (8, 1, 3));
}

/// No other transfer waits for an op number.
#[test]
fn busy_packet_alone_keeps_op_number() {
    for packets in [1, 6] {
        let mut sender = one_in_flight();
        submit(&mut sender, packets);
        let first = sender.poll_transmit(at(0)).unwrap();
        let (mut now, mut last) = (at(1), first);
        for tries in 2..12 {
            sender.handle_nack(now, answer(&last), NackReason::Busy);
            assert_eq!(sender.poll_transmit(now), None);
            while last.tries < tries {
                now = sender.poll_timeout().unwrap();
                sender.handle_timeout(now);
                last = sender.poll_transmit(now).unwrap_or(last);
            }
            assert_eq!((last.ops, sender.counters().yielded), (first.ops, 0), "{packets} packets");
        }
    }
}
