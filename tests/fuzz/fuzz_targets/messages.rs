//! Fuzzes both sides of a node of any message scheme with any packets, in any order, at any time: neither side panics, nothing is written
//! outside open windows, every transfer ends once, and both sides become idle without further input.
#![no_main]

use std::collections::BTreeSet;

use fpga_firmware::generated::{Permissions, Scheme};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{AnswerBody, MAX_PACKET_LENGTH, Message, Packet, finish};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_protocol::scheme::any::{SchemeConfig, SchemeSet};
use fpga_protocol::scheme::messages::{
    Read, ReadConfig, Reads, Receiver, ReceiverConfig, Sender, SenderConfig,
};
use fpga_protocol::scheme::traits::{Action, Header, OutgoingPacket, SchemeReceiver, SchemeSender};
use fpga_protocol::sender::{Command, Notify, SendTicket};
use fpga_registers::CardAddr;
use libfuzzer_sys::fuzz_target;

/// The node under test, which also sends to itself: one network with two sides.
const NODE: NodeId = NodeId::new(2);
const INCARNATION: Incarnation = Incarnation::new(9);
const KEY: u64 = 7;
const BASE: u64 = 0x1000;
const LENGTH: u64 = 0x800;
/// Minimum time between two polls of a caller. The measured round trip may be zero here, and timers derived from it expire at once.
const POLL_INTERVAL: Nanos = Nanos::new(500);
const ROUND_TRIP: Nanos = Nanos::from_micros(2);
const SCHEMES: [Scheme; 3] = [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective];

/// Memory of the window, if it is open; its last bytes return a memory fault.
struct Bounded {
    open: bool,
}

impl ReceiveMemory for Bounded {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert!(self.open, "a write through a closed window");
        let end = at.get().checked_add(bytes.len() as u64).expect("a write inside the address space");
        assert!(at.get() >= BASE && end <= BASE + LENGTH, "{} bytes at {at}", bytes.len());
        if end > BASE + LENGTH - 64 {
            return Err(MemoryFault { address: at, length: bytes.len() as u64 });
        }
        Ok(())
    }
}

fn window(permissions: Permissions) -> MemoryWindow {
    MemoryWindow { source: NodeId::ANY, base: CardAddr::new(BASE), length: LENGTH, key: KEY, permissions }
}

struct TestBed {
    sender: Sender,
    receiver: Receiver,
    reads: Reads,
    memory: Bounded,
    now: Nanos,
    /// Packets sent and not delivered, at most the last 64.
    on_way: Vec<OutgoingPacket>,
    open: BTreeSet<SendTicket>,
    /// All schemes are active, and each transfer chooses one.
    mixed: bool,
}

/// Node with small tables, so that they fill up soon and message numbers wrap around.
fn bed(shape: u8) -> TestBed {
    let scheme = SCHEMES[usize::from(shape) % SCHEMES.len()];
    let rules = SchemeConfig::new(scheme, ROUND_TRIP).expect("no registry");
    let mut sending = SenderConfig::new(NODE, rules);
    let mut receiving = ReceiverConfig::new(NODE, INCARNATION, rules);
    if shape & 0x10 != 0 {
        let all = SCHEMES.iter().filter_map(|scheme| SchemeConfig::new(*scheme, ROUND_TRIP));
        sending.others = all.fold(SchemeSet::NONE, SchemeSet::with);
        receiving.others = sending.others;
    }
    (sending.packet_size_log2, receiving.packet_size_log2) = (6, 6);
    (sending.number_bits, receiving.number_bits) = (3, 3);
    (sending.message_packets, sending.transfers) = (5, 4);
    (sending.contexts, receiving.contexts) = (1 + u32::from(shape >> 5 & 1), 1 + u32::from(shape >> 6 & 1));
    (receiving.peers, receiving.windows) = (3, 1);
    sending.give_up = Nanos::from_micros(300);
    sending.rest = Nanos::from_micros(700);
    receiving.tombstone = Nanos::from_micros(600);
    receiving.silence = Nanos::from_micros(500);
    let mut reading = ReadConfig::new(NODE, INCARNATION);
    (reading.slots, reading.peers) = (2, 3);
    (reading.give_up, reading.silence) = (Nanos::from_micros(300), Nanos::from_micros(500));
    reading.tombstone = Nanos::from_micros(600);
    let mut sender = Sender::new(sending, INCARNATION).expect("a good configuration");
    if shape & 0x80 != 0 {
        let mut config = flow::FlowConfig::new(80_000_000_000, ROUND_TRIP);
        config.receivers = 2;
        sender.control_flow(config);
    }
    let mut receiver = Receiver::new(receiving).expect("a good configuration");
    receiver.access_mut().install(0, window(Permissions::ALL)).expect("a good window");
    TestBed {
        sender,
        receiver,
        reads: Reads::new(reading).expect("a good configuration"),
        memory: Bounded { open: true },
        now: Nanos::ZERO,
        on_way: Vec::new(),
        open: BTreeSet::new(),
        mixed: shape & 0x10 != 0,
    }
}

impl TestBed {
    fn submit(&mut self, [node, place, length, odd]: [u8; 4]) {
        let command = Command {
            source: CardAddr::new(BASE),
            node: if odd & 1 != 0 { NodeId::new(u32::from(node)) } else { NODE },
            destination: CardAddr::new(if odd & 2 != 0 {
                u64::MAX - u64::from(length)
            } else {
                BASE + u64::from(place)
            }),
            length: if odd & 4 != 0 { u64::MAX } else { u64::from(length) * 6 },
            key: if odd & 8 != 0 { KEY + 1 } else { KEY },
            notify: if odd & 16 != 0 { Notify::Sender } else { Notify::Receiver },
            deadline: (odd & 32 != 0).then(|| self.now.saturating_add(Nanos::from_micros(u64::from(length)))),
            priority: node >> 6,
        };
        let by = SCHEMES.get(usize::from(odd >> 6) + usize::from(place & 3)).filter(|_| self.mixed);
        let submitted = match by {
            Some(scheme) => self.sender.submit_by(self.now, command, *scheme),
            None => self.sender.submit(self.now, command),
        };
        if let Ok(ticket) = submitted {
            assert!(self.open.insert(ticket), "a ticket names one transfer");
        }
    }

    fn read(&mut self, [node, place, length, odd]: [u8; 4]) {
        let _ = self.reads.start(
            self.now,
            Read {
                node: if odd & 1 != 0 { NodeId::new(u32::from(node)) } else { NODE },
                source: CardAddr::new(BASE + u64::from(place)),
                source_key: if odd & 2 != 0 { KEY + 1 } else { KEY },
                base: CardAddr::new(BASE + u64::from(place) * 3),
                key: if odd & 4 != 0 { KEY + 1 } else { KEY },
                length: if odd & 8 != 0 { u64::MAX } else { u64::from(length) * 2 },
            },
        );
    }

    /// Delivers a packet of any origin.
    fn deliver(&mut self, header: &Header, payload: &[u8]) {
        let now = self.now;
        self.sender.handle_packet(now, header);
        self.receiver.handle_packet(now, header, payload, &mut self.memory);
        if matches!(header, Header::Message(Message::Answer(_) | Message::Read(_))) {
            self.reads.handle_packet(now, header, self.receiver.access(), &mut self.sender);
        }
    }

    /// Checks that a sent packet can be encoded, and that parsing returns the same packet.
    fn sent(&mut self, departure: OutgoingPacket) {
        let OutgoingPacket { header, payload, .. } = departure;
        let mut frame = [0; MAX_PACKET_LENGTH];
        let payload = &[0x5A; 64][..usize::try_from(payload).expect("64 at most")];
        let length = match &header {
            Header::Message(message) => message.encode(payload, &mut frame),
            Header::Link(packet) => packet.encode(&mut frame),
            Header::Data(_) | Header::Control(_) => unreachable!("no packets of this scheme"),
        };
        let length = length.expect("a sent packet can be encoded");
        assert_eq!(length, header.length() + payload.len());
        match Packet::parse(&frame[..length]) {
            Ok(Packet::Message(bytes)) => {
                let (message, _) = bytes.read().expect("a parsed packet can be decoded");
                assert_eq!(Header::Message(message), header);
            }
            Ok(Packet::Link(packet)) => assert_eq!(Header::Link(packet), header),
            other => unreachable!("{other:?}"),
        }
        if self.on_way.len() == 64 {
            self.on_way.remove(0);
        }
        self.on_way.push(departure);
    }

    fn outputs(&mut self) {
        for _ in 0..200 {
            let nowhere = |header| OutgoingPacket { header, source: CardAddr::new(0), payload: 0 };
            let departure = match self.receiver.poll_action() {
                Some(Action::Send(header)) => Some(nowhere(header)),
                Some(Action::Event(event)) => {
                    self.reads.handle_event(&event);
                    continue;
                }
                None => self.reads.poll_packet(self.now),
            };
            let Some(departure) = departure.or_else(|| self.sender.poll_packet(self.now)) else { break };
            self.sent(departure);
        }
        while let Some(done) = self.sender.poll_completion() {
            // The answers to reads were submitted by the read server, and are not in the set.
            self.open.remove(&done.ticket);
            if let Err(error) = done.result {
                assert!(!error.to_string().is_empty());
            }
        }
        while let Some(outcome) = self.reads.poll_outcome() {
            let _ = outcome;
        }
    }

    /// Delivers one of the packets in flight, sometimes with a changed field, as from a broken or hostile node.
    fn arrive(&mut self, [which, keep, odd, value]: [u8; 4]) {
        if self.on_way.is_empty() {
            return;
        }
        let at = usize::from(which) % self.on_way.len();
        let mut departure = self.on_way[at];
        if keep & 1 == 0 {
            self.on_way.remove(at);
        }
        let wide = u32::from(value) << (value & 15);
        if let Header::Message(Message::Data(header)) = &mut departure.header {
            match odd {
                1 => header.index = u16::from(value),
                2 => header.sequence = wide,
                4 => header.tail = !header.tail,
                5 => header.context = Some(wide),
                6 => header.common.incarnation = Incarnation::new(wide),
                7 => header.common.source = NodeId::new(u32::from(value)),
                8 => header.announcement = None,
                _ => {}
            }
        }
        if let Header::Message(Message::Answer(answer)) = &mut departure.header {
            answer.body = match (odd, answer.body) {
                (1, AnswerBody::Map { base, ahead, echo, again, here, wanted }) => {
                    AnswerBody::Map { base: base ^ wide, ahead, echo, again, here, wanted }
                }
                (2, AnswerBody::Map { base, ahead, echo, again, here, wanted }) => AnswerBody::Map {
                    base,
                    ahead,
                    echo: echo ^ wide,
                    again,
                    here: [!here[0], here[1]],
                    wanted,
                },
                (3, AnswerBody::Map { base, echo, here, wanted, again, .. }) => AnswerBody::Map {
                    base,
                    ahead: u16::from(value) << 8,
                    echo,
                    again,
                    here,
                    wanted: [!wanted[0], 0],
                },
                (4, _) => AnswerBody::Resend { first: wide, last: u32::from(value) },
                (5, _) => AnswerBody::Limit { first: wide, above: value.into(), index: (value < 128).then_some(wide) },
                (8, _) => AnswerBody::Done,
                (_, body) => body,
            };
            if odd == 9 {
                answer.common.incarnation = Incarnation::new(wide);
            }
        }
        let payload = &[0xA5; 64][..usize::try_from(departure.payload).unwrap_or(0).min(64)];
        self.deliver(&departure.header, payload);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&shape, mut rest)) = input.split_first() else { return };
    let mut bed = bed(shape);
    while let Some((&what, tail)) = rest.split_first() {
        rest = tail;
        match what % 8 {
            0 | 1 => {
                let Some((bytes, tail)) = rest.split_first_chunk() else { break };
                rest = tail;
                if what % 8 == 0 || what & 0x10 != 0 { bed.submit(*bytes) } else { bed.read(*bytes) }
            }
            // A whole packet from the input, with the checksum repaired and the fields unchanged.
            2 => {
                let length = rest.len().min(160);
                let mut frame = rest[..length].to_vec();
                rest = &rest[length..];
                let Some(body) = length.checked_sub(4) else { continue };
                if finish(&mut frame, body).is_err() {
                    continue;
                }
                match Packet::parse(&frame) {
                    Ok(Packet::Message(bytes)) => {
                        let (message, payload) = bytes.read().expect("a parsed packet can be decoded");
                        bed.deliver(&Header::Message(message), payload);
                    }
                    Ok(Packet::Link(packet)) => bed.deliver(&Header::Link(packet), &[]),
                    _ => {}
                }
            }
            3 => {
                bed.now = bed.now.saturating_add(Nanos::new(1 << (u32::from(what) >> 3)));
                bed.sender.handle_timeout(bed.now);
                bed.receiver.handle_timeout(bed.now);
                bed.reads.handle_timeout(bed.now, &bed.receiver);
            }
            4 if what & 0x80 != 0 => {
                if let Some(ticket) = bed.open.iter().nth(usize::from(what >> 3 & 15)).copied() {
                    bed.sender.cancel(bed.now, ticket);
                }
            }
            // The host closes the window, opens it for reads only, or opens it again.
            4 => {
                let access = bed.receiver.access_mut();
                bed.memory.open = what & 0x10 != 0;
                let result = match what >> 3 & 3 {
                    0 => access.remove(0),
                    1 => access.install(0, window(Permissions::READ)),
                    _ => access.install(0, window(Permissions::ALL)),
                };
                result.expect("window 0 exists");
            }
            _ => {
                let Some((bytes, tail)) = rest.split_first_chunk() else { break };
                rest = tail;
                bed.arrive(*bytes);
            }
        }
        if what & 0x80 == 0 {
            bed.outputs();
        }
        assert!(bed.receiver.live() <= 2 && bed.sender.live() <= 2);
    }
    // Without further input every transfer ends, and all state is released.
    for _ in 0..20_000 {
        bed.outputs();
        bed.on_way.clear();
        let timeouts = [bed.sender.poll_timeout(), bed.receiver.poll_timeout(), bed.reads.poll_timeout()];
        let Some(at) = timeouts.into_iter().flatten().min() else { break };
        bed.now = at.max(bed.now.saturating_add(POLL_INTERVAL));
        bed.sender.handle_timeout(bed.now);
        bed.receiver.handle_timeout(bed.now);
        bed.reads.handle_timeout(bed.now, &bed.receiver);
    }
    bed.outputs();
    assert!(bed.open.is_empty(), "{} transfers do not end", bed.open.len());
    assert!(bed.sender.is_idle() && bed.sender.live() == 0);
    assert_eq!(bed.receiver.live(), 0);
});
