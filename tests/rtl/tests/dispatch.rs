//! `ni_dispatch` against a simulated card with the registry scheme only, or receiver-window only: the same packets give the same events and
//! answers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use fpga_card::{BarRole, Card, CardDescription, NoHost};
use fpga_firmware::generated::{Capabilities, Scheme, counters, ni};
use fpga_firmware::ids::MessageId;
use fpga_firmware::wire::{
    Ack, Announcement, AnswerBody, Arrived, CRC_LENGTH, Common, Control, DataHeader, Flags, Hello,
    LinkFeedback, LinkPacket, MAX_CONTROL_LENGTH, Message, MessageAnswer, MessageHeader, MessageRequest,
    Nack, NackReason, ReadRequest, SegmentDone,
};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_ni_tests::{Model, start};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

const NODE_BYTE: u8 = 1;
const NODE: u32 = NODE_BYTE as u32;
const INCARNATION: u32 = 0x1234;
const RING_ENTRIES: u32 = 1024;
const EVENT: usize = 64;
/// Bytes that the module reads of a header.
const HEADER: usize = 88;

/// Card with an event ring, and the operations for the module with the expected outputs.
struct Script {
    card: Card,
    user: u8,
    bypass: u8,
    now: u64,
    consumed: u32,
    text: String,
    events: Vec<String>,
    answers: Vec<String>,
    counts: Vec<String>,
    received: usize,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

impl Script {
    fn new(scheme: Scheme) -> Self {
        let commands = 16 * u32::from(scheme != Scheme::Registry);
        let text = format!(
            "schema_version: 3\nmemory: {{base: 0, size: 0x100000}}\nni: {{commands: {commands}, event_push: false}}\n"
        );
        let mut card =
            Card::new(CardDescription::parse(std::path::Path::new("card.yaml"), &text).unwrap()).unwrap();
        card.set_command(true, true);
        let bar = |card: &Card, role| card.bars().iter().find(|layout| layout.role == role).unwrap().index;
        let (user, bypass) = (bar(&card, BarRole::User), bar(&card, BarRole::Bypass));
        let text = format!("n {NODE:x} {INCARNATION:x} {:x}\nm {}\n", 2_000_000, scheme.value());
        let (events, answers, counts) = (Vec::new(), Vec::new(), Vec::new());
        let mut script =
            Self { card, user, bypass, now: 0, consumed: 0, text, events, answers, counts, received: 0 };
        script.write(ni::INCARNATION, INCARNATION);
        script.write(ni::SCHEME, scheme.value());
        script.write(ni::EVENT_RING_SIZE, RING_ENTRIES);
        script.write(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
        script
    }

    fn write(&mut self, register: u32, value: u32) {
        let at = ni::BLOCK_OFFSET + register;
        self.card.bar_write(self.user, at.into(), &value.to_le_bytes(), &mut NoHost);
    }

    fn read(&mut self, at: u32) -> u32 {
        let mut bytes = [0; 4];
        self.card.bar_read(self.user, at.into(), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Takes what the card has sent and written, and lets the module settle.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.now += 10_000;
            self.card.step(Nanos::new(self.now), &mut NoHost);
        }
        while let Some(frame) = self.card.take_frame() {
            self.answers.push(format!("a {}", hex(&frame[..frame.len() - CRC_LENGTH])));
        }
        let produced = self.read(ni::BLOCK_OFFSET + ni::EVENT_PRODUCED);
        while self.consumed != produced {
            let mut bytes = [0; EVENT];
            let at = u64::from(self.consumed % RING_ENTRIES) * EVENT as u64;
            self.card.bar_read(self.bypass, at, &mut bytes);
            // The ring numbers the events.
            bytes[60..].fill(0);
            self.events.push(format!("e {}", hex(&bytes)));
            self.consumed = self.consumed.wrapping_add(1);
        }
        self.write(ni::EVENT_CONSUMED, produced);
        let bad = self.read(counters::BLOCK_OFFSET + counters::BAD_PACKET);
        self.counts.push(format!("b {bad}"));
        self.text.push_str("s\n");
    }

    fn packet(&mut self, frame: &[u8], header_length: usize) {
        self.now += 1_000;
        self.card.receive_frame(Nanos::new(self.now), frame);
        let mut header = [0; HEADER];
        header[..header_length].copy_from_slice(&frame[..header_length]);
        writeln!(self.text, "p {:x} {}", self.now, hex(&header)).unwrap();
    }

    fn ask(&mut self, node: u32) {
        self.write(ni::HELLO, node);
        writeln!(self.text, "h {node:x}").unwrap();
        self.settle();
    }
}

/// Packets of all kinds but those of the registry's receiver, which only the message schemes refuse.
struct Packets(Pcg64, Scheme);

impl Packets {
    fn below(&mut self, limit: u32) -> u32 {
        self.0.next_u32() % limit
    }

    fn common(&mut self, flags: Flags) -> Common {
        let marked = if self.below(4) == 0 { Flags::MARKED } else { Flags::NONE };
        Common {
            source: NodeId::new(2 + self.below(5)),
            destination: NodeId::new(if self.below(6) == 0 { 9 } else { NODE }),
            incarnation: Incarnation::new(self.0.next_u32()),
            flags: flags.with(marked),
            path: self.0.next_u32().to_le_bytes()[0],
        }
    }

    fn answer(&mut self) -> Common {
        let echo = if self.below(2) == 0 { Flags::ECHO } else { Flags::NONE };
        self.common(echo)
    }

    fn peer_incarnation(&mut self) -> Incarnation {
        Incarnation::new(if self.below(4) == 0 { 7 } else { INCARNATION })
    }

    fn announcement(&mut self) -> Announcement {
        let base = CardAddr::new(u64::from(self.0.next_u32()));
        Announcement {
            length: 100,
            base,
            key: self.0.next_u64(),
            transfer_base: base,
            transfer_length: 100,
            transfer: TransferId::new(self.0.next_u32()),
            read: self.0.next_u32(),
            left: 0,
        }
    }

    /// A frame, and the length of its header.
    fn next(&mut self) -> (Vec<u8>, usize) {
        let mut buffer = [0; 512];
        let kinds = if self.1 == Scheme::Registry { 11 } else { 13 };
        let control = match self.below(kinds) {
            0 | 1 => Control::Ack(Ack {
                common: self.answer(),
                op: OpNumber::new(self.0.next_u32()),
                transfer: TransferId::new(self.0.next_u32()),
                segment: self.0.next_u32(),
                peer_incarnation: self.peer_incarnation(),
                tries: 3,
                senders: self.0.next_u32().to_le_bytes()[0],
                delay: 0x1234,
            }),
            2 => Control::Nack(Nack {
                common: self.answer(),
                op: OpNumber::new(self.0.next_u32()),
                transfer: TransferId::new(self.0.next_u32()),
                segment: self.0.next_u32(),
                peer_incarnation: self.peer_incarnation(),
                tries: 200,
                reason: NackReason::Busy,
                delay: 5,
            }),
            3 => Control::SegmentDone(SegmentDone {
                common: self.common(Flags::NONE),
                transfer: TransferId::new(self.0.next_u32()),
                segment: self.0.next_u32(),
                peer_incarnation: self.peer_incarnation(),
            }),
            kind @ (4 | 5) => {
                let hello = Hello {
                    common: self.common(Flags::NONE),
                    packet_size_log2: 9,
                    wire_version: 4,
                    mask_bits: 64,
                    capabilities: Capabilities::PACKET_EVENTS,
                    schemes: 0x13,
                    registry_timeout_us: self.0.next_u32(),
                };
                if kind == 4 { Control::Hello(hello) } else { Control::HelloReply(hello) }
            }
            11 => Control::Arrived(Arrived {
                common: self.common(Flags::NONE),
                length: 1,
                ..Arrived::default()
            }),
            12 => return self.segment(),
            other => return self.other(other),
        };
        let length = control.encode(&mut buffer[..MAX_CONTROL_LENGTH]).unwrap();
        (buffer[..length].to_vec(), length - CRC_LENGTH)
    }

    fn segment(&mut self) -> (Vec<u8>, usize) {
        let header = DataHeader {
            common: self.common(Flags::NONE),
            transfer: TransferId::new(5),
            oldest_live: TransferId::new(5),
            segment: self.below(3),
            segment_count: 3,
            address: CardAddr::new(64),
            key: self.0.next_u64(),
            op: OpNumber::new(self.0.next_u32()),
            tries: 7,
            packet_size_log2: 9,
            start: None,
        };
        let mut buffer = [0; 512];
        let length = header.encode(&[1; 100], &mut buffer).unwrap();
        (buffer[..length].to_vec(), length - CRC_LENGTH - 100)
    }

    fn other(&mut self, kind: u32) -> (Vec<u8>, usize) {
        let mut buffer = [0; 512];
        let message = MessageId::new(self.0.next_u32());
        let (scheme, packet_size_log2) = (Scheme::ReceiverWindow, 9);
        let packet = match kind {
            6 => Message::Request(MessageRequest {
                common: self.common(Flags::NONE),
                message,
                scheme,
                packet_size_log2,
                announcement: self.announcement(),
            }),
            7 => Message::Data(MessageHeader {
                common: self.common(Flags::NONE),
                message,
                context: None,
                sequence: self.0.next_u32(),
                index: 0,
                tail: true,
                scheme,
                packet_size_log2,
                announcement: (self.below(2) == 0).then(|| self.announcement()),
            }),
            8 => Message::Answer(MessageAnswer {
                common: self.answer(),
                message,
                peer_incarnation: self.peer_incarnation(),
                context: None,
                senders: 0,
                body: AnswerBody::Refused(NackReason::Busy, 3),
            }),
            9 => Message::Read(ReadRequest {
                common: self.common(Flags::NONE),
                read: MessageId::new(1 + self.below(1000)),
                source: CardAddr::new(64),
                source_key: self.0.next_u64(),
                base: CardAddr::new(128),
                key: self.0.next_u64(),
                length: 100,
            }),
            _ => {
                let word = LinkFeedback::Slow { receiver: NodeId::new(4) };
                let length =
                    LinkPacket { common: self.common(Flags::NONE), word }.encode(&mut buffer).unwrap();
                return (buffer[..length].to_vec(), length - CRC_LENGTH);
            }
        };
        let payload: &[u8] = if kind == 7 { &[1; 100] } else { &[] };
        let length = packet.encode(payload, &mut buffer).unwrap();
        (buffer[..length].to_vec(), length - CRC_LENGTH - payload.len())
    }
}

fn build(scheme: Scheme) -> Option<PathBuf> {
    // As the card: it has link feedback, which is off. Cards with message schemes have commands, and several schemes at once.
    let (name, capabilities) =
        if scheme == Scheme::Registry { ("dispatch", 0x4c) } else { ("dispatch_messages", 0x7c) };
    let model = Model {
        name,
        top: "ni_dispatch",
        files: &["ni_dispatch.sv"],
        parameters: &[("PACKET_LOG2", 9), ("MASK_BITS", 32), ("CAPABILITIES", capabilities)],
        driver: "dispatch.cpp",
    };
    model.build().unwrap()
}

fn compare(scheme: Scheme) {
    let Some(program) = build(scheme) else { return };
    for (seed, percent) in [(1, 100), (2, 40), (3, 70)] {
        let mut packets = Packets(Pcg64::seed_from_u64(seed.into()), scheme);
        let mut script = Script::new(scheme);
        for _ in 0..200 {
            for _ in 0..packets.below(8) {
                let (frame, header_length) = packets.next();
                if scheme != Scheme::Registry && matches!(frame[1], 9..=11) && frame[8] == NODE_BYTE {
                    // A packet for the receiver, which the card does not get.
                    writeln!(script.text, "p 0 {}", hex(&frame[..header_length])).unwrap();
                    script.received += 1;
                    continue;
                }
                script.packet(&frame, header_length);
                if scheme == Scheme::Registry && packets.below(12) == 0 {
                    // The same with the registry.
                    let common = packets.common(Flags::NONE);
                    let arrived = Control::Arrived(Arrived { common, length: 1, ..Arrived::default() });
                    let mut buffer = [0; MAX_CONTROL_LENGTH];
                    let length = arrived.encode(&mut buffer).unwrap();
                    writeln!(script.text, "p 0 {}", hex(&buffer[..length - CRC_LENGTH])).unwrap();
                    script.received += 1;
                }
            }
            script.settle();
            match packets.below(6) {
                0 | 1 => script.ask(3 + packets.below(3)),
                2 if packets.below(8) == 0 => {
                    script.write(ni::CONTROL, 0b111);
                    script.consumed = 0;
                    script.text.push_str("c\n");
                }
                _ => {}
            }
        }
        let mut child = start(&program, seed, &[&seed.to_string(), &percent.to_string()]).unwrap();
        let mut input = child.stdin.take().unwrap();
        let text = script.text.clone();
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let found = String::from_utf8(output.stdout).unwrap();
        for (start, expected) in [("e ", &script.events), ("a ", &script.answers), ("b ", &script.counts)] {
            let found: Vec<_> = found.lines().filter(|line| line.starts_with(start)).collect();
            let different = found.iter().zip(expected).find(|(found, expected)| *found != expected);
            assert_eq!(different, None, "seed {seed}");
            assert_eq!(found.len(), expected.len(), "seed {seed}: {start}");
        }
        assert_eq!(found.lines().filter(|line| *line == "r").count(), script.received, "seed {seed}");
        assert!(!script.events.is_empty() && !script.answers.is_empty());
    }
}

#[test]
fn dispatch_of_random_packets_matches_card() {
    compare(Scheme::Registry);
}

#[test]
fn dispatch_of_random_packets_matches_card_that_receives_messages() {
    compare(Scheme::ReceiverWindow);
}
