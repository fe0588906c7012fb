//! A sender's host that pauses for longer than its receiver remembers: stopped by a signal, or with its machine suspended. The card keeps
//! running, and its answers are there when the host resumes.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use crate::common;

use common::{BASE, INCARNATION, KEY, RECEIVER, SENDER, TestBed, config, events, pattern};
use fpga_firmware::event::EventKind;
use fpga_firmware::ids::OpNumber;
use fpga_firmware::wire::{Common, Control, DataHeader, Flags, StartFields};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Output, ReceiverConfig};
use fpga_protocol::sender::{
    Answer, Command, CommandCompletion, Notify, SendFailure, Sender, SenderConfig, Transmit,
};
use fpga_registers::CardAddr;
use proptest::prelude::*;

type Packet = (DataHeader, Vec<u8>);

/// A sender and a receiver, the notifications of the receiving application, and answers that the sender's host has not read.
struct Pair {
    sender: Sender,
    bed: TestBed,
    notices: usize,
    waiting: Vec<Control>,
    /// Number of writes after the transfer's notification.
    late: usize,
}

impl Pair {
    fn new(receiver: ReceiverConfig, change: impl FnOnce(&mut SenderConfig)) -> Self {
        let mut sender = SenderConfig::default();
        sender.packet_size_log2 = 6;
        sender.segment_size = 4 * 64;
        sender.big_threshold = 4 * 64;
        change(&mut sender);
        let sender = Sender::new(sender, INCARNATION).unwrap();
        Self { sender, bed: TestBed::new(receiver), notices: 0, waiting: Vec::new(), late: 0 }
    }

    fn submit(&mut self, length: u64) {
        let command = Command {
            source: CardAddr::new(0),
            node: RECEIVER,
            destination: CardAddr::new(BASE),
            length,
            key: KEY,
            notify: Notify::Receiver,
            deadline: None,
            priority: 0,
        };
        self.sender.submit(self.bed.now, command).unwrap();
    }

    /// All packets that the sender can send now.
    fn packets(&mut self) -> Vec<Packet> {
        let now = self.bed.now;
        std::iter::from_fn(|| self.sender.poll_transmit(now)).flat_map(|t| packets(&t)).collect()
    }

    /// Delivers packets; the answers wait for the sender's host.
    fn deliver(&mut self, packets: &[Packet]) {
        for packet in packets {
            let before = self.bed.memory.writes.len();
            let told = self.notices != 0;
            let outputs = self.bed.deliver(packet);
            self.late += usize::from(told) * (self.bed.memory.writes.len() - before);
            self.take(&outputs);
        }
    }

    fn take(&mut self, outputs: &[Output]) {
        self.notices += events(outputs, EventKind::Notice).len();
        self.waiting.extend(outputs.iter().filter_map(|output| match output {
            Output::Send(control) => Some(*control),
            _ => None,
        }));
    }

    /// The receiver's card keeps running.
    fn pause(&mut self, span: Nanos) {
        let end = self.bed.now.saturating_add(span);
        while let Some(next) = self.bed.receiver.poll_timeout().filter(|next| *next <= end) {
            let outputs = self.bed.advance(next.saturating_sub(self.bed.now).max(Nanos::new(1)));
            self.take(&outputs);
        }
        let outputs = self.bed.advance(end.saturating_sub(self.bed.now));
        self.take(&outputs);
    }

    /// The sender's host resumes: it reads the answers first, then serves its timers.
    fn wake(&mut self) {
        let now = self.bed.now;
        for control in std::mem::take(&mut self.waiting) {
            let (common, op, tries, (transfer, segment)) = match control {
                Control::Ack(ack) => (ack.common, ack.op, ack.tries, (ack.transfer, ack.segment)),
                Control::Nack(nack) => (nack.common, nack.op, nack.tries, (nack.transfer, nack.segment)),
                Control::SegmentDone(done) => {
                    (done.common, OpNumber::new(0), 0, (done.transfer, done.segment))
                }
                _ => continue,
            };
            let incarnation = common.incarnation;
            let answer = Answer {
                node: RECEIVER,
                incarnation: INCARNATION,
                op,
                transfer,
                segment,
                tries,
                peer_incarnation: incarnation,
                notes: fpga_firmware::wire::AnswerNotes::default(),
            };
            match control {
                Control::Ack(_) => self.sender.handle_ack(now, answer),
                Control::Nack(nack) => self.sender.handle_nack(now, answer, nack.reason),
                Control::SegmentDone(_) => self.sender.handle_segment_done(now, answer),
                _ => {}
            }
        }
        self.sender.handle_timeout(now);
    }

    /// Runs to the end without further losses.
    fn settle(&mut self) -> CommandCompletion {
        for _ in 0..10_000 {
            self.wake();
            let packets = self.packets();
            self.deliver(&packets);
            if let Some(completion) = self.sender.poll_completion() {
                assert!(self.sender.is_idle());
                return completion;
            }
            self.pause(Nanos::from_micros(100));
        }
        unreachable!("it hangs");
    }

    fn assert_exactly_once(&self, completion: &CommandCompletion) {
        assert!(self.notices <= 1, "notified {} times", self.notices);
        assert_eq!(self.late, 0, "written after the notification");
        assert!(completion.result.is_err() || self.notices == 1, "succeeded without a notification");
    }
}

fn packets(transmit: &Transmit) -> Vec<Packet> {
    let common = Common {
        source: SENDER,
        destination: RECEIVER,
        incarnation: INCARNATION,
        flags: Flags::NOTIFY_RECEIVER,
        path: 0,
    };
    (transmit.first_packet..)
        .zip(transmit.ops.as_slice())
        .map(|(packet, op)| {
            let offset = u32::from(packet) * 64;
            let address = transmit.segment_base.get() + u64::from(offset);
            let length = (transmit.segment_length - offset).min(64);
            let header = DataHeader {
                common,
                transfer: transmit.transfer,
                oldest_live: transmit.oldest_live,
                segment: transmit.segment,
                segment_count: transmit.segment_count,
                address: CardAddr::new(address),
                key: KEY,
                op: *op,
                tries: transmit.tries,
                packet_size_log2: 6,
                start: (packet == 0).then_some(StartFields {
                    base: transmit.segment_base,
                    segment_length: transmit.segment_length,
                    packets: transmit.segment_packets,
                    transfer_base: transmit.transfer_base,
                    transfer_length: transmit.transfer_length,
                }),
            };
            (header, (address..address + u64::from(length)).map(pattern).collect())
        })
        .collect()
}

fn is_start(control: &Control, op: OpNumber) -> bool {
    matches!(control, Control::Ack(ack) if ack.op == op)
}

fn forgotten(completion: &CommandCompletion) -> bool {
    matches!(completion.result, Err(SendFailure::Forgotten { .. }))
}

const PAUSE: Nanos = Nanos::from_secs(3);

#[test]
fn pause_expired_operation_is_not_restarted() {
    // The first packet's acknowledgement and the last packet are lost. A restarted operation would wait for the two packets in between,
    // which the sender has acknowledgements for.
    let mut pair = Pair::new(config(), |_| {});
    pair.submit(4 * 64);
    let packets = pair.packets();
    pair.deliver(&packets[..3]);
    pair.waiting.retain(|control| !is_start(control, packets[0].0.op));
    assert_eq!(pair.waiting.len(), 2);
    pair.pause(PAUSE);
    let completion = pair.settle();
    pair.assert_exactly_once(&completion);
    assert!(forgotten(&completion), "{completion:?}");
    assert_eq!((completion.packets, pair.bed.receiver.counters().registrations), (4, 1));
}

#[test]
fn pause_forgotten_complete_operation_is_not_restarted() {
    // Everything arrived and was notified. The first packet's acknowledgement and the SEGMENT_DONE are lost. The receiver has forgotten
    // even the sender.
    let mut pair = Pair::new(config(), |_| {});
    pair.submit(4 * 64);
    let packets = pair.packets();
    pair.deliver(&packets);
    assert_eq!(pair.notices, 1);
    let start = packets[0].0.op;
    pair.waiting.retain(|control| matches!(control, Control::Ack(ack) if ack.op != start));
    assert_eq!(pair.waiting.len(), 3);
    pair.pause(PAUSE);
    let completion = pair.settle();
    pair.assert_exactly_once(&completion);
    assert!(forgotten(&completion), "{completion:?}");
    assert_eq!(pair.bed.receiver.counters().registrations, 1);
}

#[test]
fn pause_forgotten_first_segments_end_transfer() {
    // Three segments and op numbers for one at a time: nothing is lost, and no answer is missing.
    let mut pair = Pair::new(config(), |c| c.op_entries = 5);
    pair.submit(12 * 64);
    let packets = pair.packets();
    pair.deliver(&packets);
    pair.pause(PAUSE);
    let completion = pair.settle();
    pair.assert_exactly_once(&completion);
    assert!(forgotten(&completion), "{completion:?}");
}

#[test]
fn pause_first_packet_without_window_too_long_is_not_retransmitted() {
    let mut pair = Pair::new(config(), |_| {});
    pair.submit(4 * 64);
    let packets = pair.packets();
    pair.deliver(&packets[..3]);
    pair.waiting.retain(|control| !is_start(control, packets[0].0.op));
    pair.pause(Nanos::from_millis(500));
    // Its timer expires, but no transmit window is free, so the sender is not polled for packets.
    pair.wake();
    pair.pause(PAUSE);
    let packets = pair.packets();
    assert!(packets.iter().all(|(header, _)| header.start.is_none()), "{packets:?}");
    let completion = pair.settle();
    pair.assert_exactly_once(&completion);
}

#[test]
fn pause_refused_first_packet_ages_from_refusal() {
    // Refused because no entry is free; a later copy gets an entry and completes a transfer of one packet. The host reads the refusal
    // after the receiver has forgotten everything.
    let mut small = config();
    small.registry_entries = 1;
    let mut pair = Pair::new(small, |_| {});
    let other = common::Shape::single(9, 2);
    pair.bed.send(&other, 0);
    pair.submit(64);
    let packets = pair.packets();
    pair.deliver(&packets);
    assert!(matches!(pair.waiting[..], [Control::Nack(_)]), "{:?}", pair.waiting);
    pair.bed.send(&other, 1);
    let refusal = std::mem::take(&mut pair.waiting);
    pair.deliver(&packets);
    assert_eq!(pair.notices, 1);
    pair.waiting = refusal;
    pair.pause(PAUSE);
    let completion = pair.settle();
    pair.assert_exactly_once(&completion);
}

#[test]
fn pause_with_all_answers_present_costs_nothing() {
    for (pause, length) in [(PAUSE, 4 * 64), (Nanos::from_millis(900), 12 * 64)] {
        let mut pair = Pair::new(config(), |c| c.op_entries = 5);
        pair.submit(length);
        let packets = pair.packets();
        pair.deliver(&packets);
        pair.pause(pause);
        let completion = pair.settle();
        assert_eq!(completion.result, Ok(()));
        pair.assert_exactly_once(&completion);
    }
}

#[test]
fn pause_first_packet_may_be_refused_longer_than_give_up_time() {
    let mut small = config();
    small.registry_entries = 1;
    let mut pair = Pair::new(small, |_| {});
    let mut other = (common::Shape::single(9, 32), 0);
    pair.submit(3 * 64);
    for n in 0..3000 {
        if n % 100 == 0 {
            // Keeps the only entry.
            pair.bed.send(&other.0, other.1);
            other.1 += 1;
        }
        pair.wake();
        let packets = pair.packets();
        pair.deliver(&packets);
        assert_eq!(pair.sender.poll_completion(), None);
        pair.pause(Nanos::from_millis(1));
    }
    for packet in other.1..32 {
        pair.bed.send(&other.0, packet);
    }
    let completion = pair.settle();
    assert_eq!(completion.result, Ok(()));
    pair.assert_exactly_once(&completion);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Any packets and answers lost, any pauses: a transfer that succeeded was notified once, none is notified twice, and nothing is
    /// written afterwards.
    #[test]
    fn pause_any_losses_deliver_exactly_once(
        length in 1u64..20 * 64,
        ops in prop::sample::select(vec![2u32, 5, 9, 64]),
        steps in prop::collection::vec((any::<u16>(), any::<u16>(), prop::sample::select(vec![0u64, 1, 10, 300, 700, 1_200, 2_100, 5_000])), 1..12),
    ) {
        let mut pair = Pair::new(config(), |c| c.op_entries = ops);
        pair.submit(length);
        let mut end = None;
        for (lost, unheard, millis) in steps {
            let mut packets = pair.packets();
            let mut at = 0;
            packets.retain(|_| { at += 1; lost >> (at % 16) & 1 == 0 });
            let before = pair.waiting.len();
            pair.deliver(&packets);
            let fresh = pair.waiting.split_off(before);
            pair.waiting.extend(fresh.into_iter().enumerate().filter(|(at, _)| unheard >> (at % 16) & 1 == 0).map(|(_, c)| c));
            pair.pause(Nanos::from_millis(millis));
            pair.wake();
            end = pair.sender.poll_completion();
            if end.is_some() {
                break;
            }
        }
        let end = end.unwrap_or_else(|| pair.settle());
        pair.assert_exactly_once(&end);
    }
}
