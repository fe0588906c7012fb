//! Fuzzes the sender with any answers at any time: it does not panic, loses no transfer, ends each of them once, and becomes idle.
#![no_main]

use std::collections::BTreeSet;

use fpga_firmware::event::{Event, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{
    Answer, Command, Notify, SendTicket, Sender, SenderConfig, Transmit, TransmitKind,
};
use fpga_registers::CardAddr;
use libfuzzer_sys::fuzz_target;

const INCARNATION: Incarnation = Incarnation::new(9);
const SOURCE: u64 = 0x1000;
const TARGET: u64 = 0x9000;

/// Sender with small tables, so that they fill up soon and op numbers wrap around.
fn sender(shape: u8) -> Sender {
    let mut config = SenderConfig::default();
    config.packet_size_log2 = 6;
    config.mask_bits = 4;
    config.segment_size = 64 * (1 + u32::from(shape & 3));
    config.big_threshold = config.segment_size;
    config.op_entries = 1 + u32::from(shape >> 2 & 7);
    config.generation_bits = 1 + (shape >> 5 & 1) * 15;
    config.transfers = 6;
    config.destinations = 2;
    config.live_per_destination = 1 + u32::from(shape >> 6);
    config.packet_lifetime = Nanos::from_micros(1);
    // Silent nodes are probed about once per millisecond until then.
    config.retry.give_up = Nanos::from_micros(50_000);
    config.first_transfer = TransferId::new(u32::MAX - 1);
    Sender::new(config, INCARNATION).expect("a good configuration")
}

/// The sender, its sent packets, and the transfers that have not ended.
struct TestBed {
    sender: Sender,
    now: Nanos,
    sent: Vec<Transmit>,
    open: BTreeSet<SendTicket>,
    submitted: u64,
    ended: u64,
}

impl TestBed {
    fn submit(&mut self, [node, length, odd]: [u8; 3]) {
        let destination = if odd & 1 != 0 { u64::MAX - u64::from(length) } else { TARGET };
        let command = Command {
            source: CardAddr::new(SOURCE),
            node: if odd & 2 != 0 { NodeId::ANY } else { NodeId::new(u32::from(node % 3)) },
            destination: CardAddr::new(destination),
            length: if odd & 4 != 0 { u64::MAX } else { u64::from(length) * 5 },
            key: 7,
            notify: if odd & 8 != 0 { Notify::Sender } else { Notify::Receiver },
            deadline: (odd & 16 != 0).then(|| self.now.saturating_add(Nanos::from_micros(u64::from(length)))),
            priority: node >> 6,
        };
        if let Ok(ticket) = self.sender.submit(self.now, command) {
            assert!(self.open.insert(ticket), "a ticket names one transfer");
            self.submitted += 1;
        }
    }

    /// Sends the queued packets, and checks each against its transfer.
    fn transmit(&mut self) {
        for _ in 0..64 {
            let Some(transmit) = self.sender.poll_transmit(self.now) else { return };
            assert!(transmit.transfer.get().wrapping_sub(transmit.oldest_live.get()) < 1 << 31);
            if transmit.kind == TransmitKind::Data {
                assert!(self.open.contains(&transmit.ticket), "a packet of a transfer that has ended");
                let inside = transmit.source.get() - SOURCE;
                assert!(inside + u64::from(transmit.payload_length) <= transmit.transfer_length);
                let offset = transmit.segment_base.get() - transmit.transfer_base.get();
                assert!(offset + u64::from(transmit.segment_length) <= transmit.transfer_length);
                assert!(transmit.first_packet + transmit.ops.len() <= transmit.segment_packets);
                assert!(!transmit.ops.is_empty() && transmit.payload_length != 0);
            }
            if self.sent.len() == 64 {
                self.sent.remove(0);
            }
            self.sent.push(transmit);
        }
    }

    fn completions(&mut self) {
        while let Some(done) = self.sender.poll_completion() {
            assert!(self.open.remove(&done.ticket), "a transfer ends once");
            if let Err(error) = done.result {
                assert!(!error.to_string().is_empty());
            }
            self.ended += 1;
        }
    }

    /// Delivers an answer to a sent packet, sometimes with wrong single fields, as from a broken or hostile node.
    fn answer(&mut self, [which, packet, what, odd]: [u8; 4]) {
        let Some(transmit) = self.sent.get(usize::from(which) % self.sent.len().max(1)) else { return };
        let ops = transmit.ops.as_slice();
        let op = ops.get(usize::from(packet) % ops.len().max(1)).copied().unwrap_or(OpNumber::new(0));
        let answer = Answer {
            node: if odd & 1 != 0 { NodeId::new(u32::from(packet)) } else { transmit.node },
            incarnation: if odd & 2 != 0 { Incarnation::new(u32::from(packet)) } else { INCARNATION },
            op: if odd & 4 != 0 { OpNumber::new(u32::from(packet) << (packet & 31)) } else { op },
            transfer: if odd & 64 != 0 { TransferId::new(u32::from(packet)) } else { transmit.transfer },
            segment: transmit.segment ^ u32::from(odd >> 5 & 1),
            tries: if odd & 8 != 0 { packet } else { transmit.tries },
            peer_incarnation: Incarnation::new(if odd & 16 != 0 { u32::from(packet) } else { 5 }),
 notes: fpga_firmware::wire::AnswerNotes::default(),
        };
        match what % 8 {
            0..=3 => self.sender.handle_ack(self.now, answer),
            4 => self.sender.handle_nack(self.now, answer, NackReason::Busy),
            5 => self.sender.handle_nack(self.now, answer, NackReason::EscapeFull),
            6 => self.sender.handle_segment_done(self.now, answer),
            _ => {
                let reasons = [NackReason::Violation, NackReason::BadPacket];
                self.sender.handle_nack(self.now, answer, reasons[usize::from(odd >> 7)]);
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&shape, mut rest)) = input.split_first() else { return };
    let mut bed = TestBed {
        sender: sender(shape),
        now: Nanos::ZERO,
        sent: Vec::new(),
        open: BTreeSet::new(),
        submitted: 0,
        ended: 0,
    };
    while let Some((&what, tail)) = rest.split_first() {
        rest = tail;
        match what % 8 {
            0 | 1 => {
                let Some((bytes, tail)) = rest.split_first_chunk() else { break };
                rest = tail;
                bed.submit(*bytes);
            }
            // An event in the card's format with any content.
            2 => {
                let Some((bytes, tail)) = rest.split_first_chunk::<64>() else { break };
                rest = tail;
                if let Ok(event) = Event::decode(bytes) {
                    bed.sender.handle_event(bed.now, &event);
                }
            }
            3 => {
                bed.now = bed.now.saturating_add(Nanos::new(1 << (u32::from(what) >> 3)));
                bed.sender.handle_timeout(bed.now);
            }
            4 => {
                if let Some(ticket) = bed.open.iter().nth(usize::from(what >> 3)).copied() {
                    bed.sender.cancel(bed.now, ticket);
                }
            }
            _ => {
                let Some((bytes, tail)) = rest.split_first_chunk() else { break };
                rest = tail;
                bed.answer(*bytes);
            }
        }
        bed.transmit();
        if what & 0x80 == 0 {
            bed.completions();
        }
        assert!(bed.sender.ops().count() <= 8);
    }
    // Without answers every transfer ends: within its give-up time, plus that of the transfers before it.
    for _ in 0..20_000 {
        bed.transmit();
        bed.completions();
        let Some(at) = bed.sender.poll_timeout() else { break };
        bed.now = bed.now.max(at);
        bed.sender.handle_timeout(bed.now);
    }
    bed.transmit();
    bed.completions();
    assert!(bed.open.is_empty(), "{} transfers do not end", bed.open.len());
    assert_eq!(bed.ended, bed.submitted);
    assert!(bed.sender.is_idle() && bed.sender.ops().count() == 0);
    let counters = bed.sender.counters();
    assert_eq!(counters.completed + counters.failed, bed.ended);
});
