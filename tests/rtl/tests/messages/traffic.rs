//! Random packets of messages: lost, repeated, reordered, damaged, of senders that restart and move on.

use std::collections::BTreeMap;

use fpga_firmware::generated::{Permissions, Scheme};
use fpga_firmware::ids::{Incarnation, MessageId, NodeId};
use fpga_firmware::wire::{Flags, Message};
use fpga_protocol::receiver::MemoryWindow;
use fpga_protocol::scheme::messages::ReceiverConfig;
use fpga_registers::CardAddr;
use fpga_registers::cast::low32;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::lockstep::{Input, Lockstep};
use super::packets::{KEY, Shape};
use crate::simulation::{BAD, open_window};

const BASE: u64 = 0x1_0000;
/// Everything up to the addresses that refuse writes, and those.
const LENGTH: u64 = 0xC00_0000;
/// Contexts of a sender.
const CONTEXTS: usize = 3;
/// Packets in the network at most.
const NETWORK: usize = 12;

struct Sender {
    node: u32,
    incarnation: u32,
    /// Latest incarnation so far.
    newest: u32,
    /// Number of the next message of each context, and the message in progress with its packets that were not lost.
    numbers: [u32; CONTEXTS],
    messages: [Option<(Shape, Vec<bool>)>; CONTEXTS],
}

/// Generator of inputs.
pub(crate) struct Traffic {
    rng: Pcg64,
    config: ReceiverConfig,
    window: u32,
    senders: Vec<Sender>,
    network: Vec<(Message, Vec<u8>)>,
    /// Contexts of the receiver, as the answers tell them, by node, incarnation and message.
    contexts: BTreeMap<(u32, u32, u32), u32>,
    now: u64,
}

impl Traffic {
    pub(crate) fn new(config: ReceiverConfig, window: u32, seed: u64) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let senders = (0..5)
            .map(|node| Sender {
                node: node + 10,
                incarnation: (u32::MAX - 2).wrapping_add(node),
                newest: (u32::MAX - 2).wrapping_add(node),
                // Numbers wrap soon.
                numbers: std::array::from_fn(
                    |_| if node % 2 == 0 { 0xFFF00 + rng.next_u32() % 256 } else { 1 },
                ),
                messages: Default::default(),
            })
            .collect();
        Self { rng, config, window, senders, network: Vec::new(), contexts: BTreeMap::new(), now: 0 }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end.max(1)
    }

    fn below32(&mut self, end: u32) -> u32 {
        low32(self.below(end.into()))
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    fn path(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    pub(crate) fn begin(both: &mut Lockstep) {
        both.input(Input::Install { index: 1, window: open_window(BASE, LENGTH, KEY) });
    }

    /// Gives one packet, and sometimes something else before it.
    pub(crate) fn step(&mut self, both: &mut Lockstep) {
        if self.chance(2) {
            self.host(both);
        }
        let late = match self.below(1000) {
            0 => self.below(3_000_000),
            1..=9 => self.below(20_000),
            _ => self.below(100),
        };
        self.now += late;
        if late > 1000 || self.chance(3) {
            both.input(Input::Time(self.now));
            // Later packets set no timer that is due already.
            self.now += 1;
        }
        while self.network.is_empty() || (self.network.len() < NETWORK && self.chance(70)) {
            self.send();
        }
        // Mostly in order.
        let index = if self.chance(60) { 0 } else { self.pick(self.network.len()) };
        let (mut message, mut payload) =
            if self.chance(95) { self.network.remove(index) } else { self.network[index].clone() };
        if self.chance(3) {
            self.corrupt(&mut message, &mut payload);
        }
        if self.chance(10) {
            let common = message.common_mut();
            common.flags = common.flags.with(Flags::MARKED);
        }
        both.input(Input::Packet { now: self.now, message, payload });
        for answer in both.last_answers.drain(..) {
            if let Some(context) = answer.context {
                let node = answer.common.destination.get();
                self.contexts.insert((node, answer.peer_incarnation.get(), answer.message.get()), context);
            }
        }
        if self.contexts.len() > 1000 {
            self.contexts.clear();
        }
    }

    fn host(&mut self, both: &mut Lockstep) {
        match self.below(20) {
            0 => {
                let (silence, lifetime) = (1 + self.below(400_000), 1 + self.below(60_000));
                both.input(Input::Timeouts { silence, lifetime });
            }
            1 | 2 => {
                let slots = if self.chance(40) { u32::MAX } else { self.below32(6) };
                both.input(Input::NoticeSlots(slots));
            }
            3 => {
                let source = NodeId::new(10 + self.below32(6));
                let permissions = if self.chance(20) { Permissions::READ } else { Permissions::WRITE };
                let length = if self.chance(10) { 0 } else { self.below(0x4000) };
                let index = u16::try_from(2 + self.below32(self.config.windows - 1)).unwrap();
                let base = CardAddr::new(BASE + self.below(0x8000));
                let window = MemoryWindow { source, base, length, key: KEY, permissions };
                both.input(Input::Install { index, window });
            }
            4 => {
                let index = u16::try_from(self.below32(self.config.windows)).unwrap();
                both.input(Input::Remove(index));
                if self.chance(30) {
                    // Packets in between are violations.
                    let send = self.network.first().cloned();
                    if let Some((message, payload)) = send {
                        both.input(Input::Packet { now: self.now, message, payload });
                    }
                }
                both.input(Input::Install { index: index % 2, window: open_window(BASE, LENGTH, KEY) });
            }
            5 if self.chance(10) => both.input(Input::Identity(Incarnation::new(self.rng.next_u32()))),
            6 if self.chance(3) => {
                both.input(Input::Clear);
                Self::begin(both);
                both.input(Input::NoticeSlots(u32::MAX));
            }
            7..=10 => {
                let index = self.below32(self.config.contexts + 2);
                both.input(Input::Latch(u16::try_from(index).unwrap()));
            }
            11 => both.compare_contexts(),
            12 => self.restart(),
            _ => {
                // A sender gives up a message.
                let sender = self.pick(self.senders.len());
                let context = self.pick(CONTEXTS);
                self.senders[sender].messages[context] = None;
            }
        }
    }

    /// A sender starts again, mostly with a later incarnation than ever before.
    fn restart(&mut self) {
        let index = self.pick(self.senders.len());
        let step = if self.chance(80) { 1 + self.below32(3) } else { u32::MAX - self.below32(2) };
        let sender = &mut self.senders[index];
        sender.incarnation = sender.newest.wrapping_add(step);
        if step < 4 {
            sender.newest = sender.incarnation;
        }
        sender.messages = Default::default();
    }

    fn open_message(&mut self, sender: usize, context: usize) {
        let size = u64::from(self.config.packet_size());
        let packets = match self.below(10) {
            0 => 1,
            1..=5 => 1 + self.below(12),
            6..=8 => 1 + self.below(u64::from(self.window) * 3),
            _ => 1 + self.below(u64::from(self.window) * 4 + 300),
        };
        let length = (packets - 1) * size + 1 + self.below(size);
        let base =
            if self.chance(2) { *BAD.start() - self.below(length + 500) } else { BASE + self.below(0x6000) };
        let number = self.senders[sender].numbers[context];
        let id = MessageId::from_parts(u16::try_from(context).unwrap(), number);
        let mut shape = Shape::new(self.senders[sender].node, id, self.config.packet_size_log2, 1, base);
        let others = if self.chance(50) { 0 } else { 1 + self.below(5) };
        shape.announcement.length = low32(length);
        shape.announcement.transfer_base = CardAddr::new(base - self.below(2) * 100);
        shape.announcement.transfer_length = length + 200 + others;
        shape.announcement.left = low32(others);
        shape.announcement.read = if self.chance(20) { self.rng.next_u32() } else { 0 };
        shape.flags = if self.chance(30) { Flags::NO_NOTICE } else { Flags::NONE };
        shape.incarnation = self.senders[sender].incarnation;
        let step = if self.chance(95) { 1 } else { self.below32(1000) };
        let sender = &mut self.senders[sender];
        sender.numbers[context] = number.wrapping_add(step) & 0xF_FFFF;
        sender.messages[context] = Some((shape, vec![false; usize::try_from(packets).unwrap()]));
    }

    /// A sender sends a packet: mostly the next one.
    fn send(&mut self) {
        let sender = self.pick(self.senders.len().min(1 + usize::try_from(self.now / 50_000 % 5).unwrap()));
        let context = self.pick(CONTEXTS);
        if self.senders[sender].messages[context].is_none() {
            self.open_message(sender, context);
            let path = self.path();
            let (shape, _) = self.senders[sender].messages[context].as_ref().unwrap();
            let request = shape.request(path);
            if self.chance(90) {
                self.network.push((Message::Request(request), Vec::new()));
            }
            return;
        }
        let (shape, sent) = self.senders[sender].messages[context].clone().unwrap();
        let path = self.path();
        let key = (shape.node, shape.incarnation, shape.id.get());
        if self.chance(if self.contexts.contains_key(&key) { 3 } else { 85 }) {
            self.network.push((Message::Request(shape.request(path)), Vec::new()));
            return;
        }
        let highest = sent.iter().rposition(|sent| *sent).map_or(0, |at| at + 1);
        let lowest = sent.iter().position(|sent| !*sent);
        let index = match self.below(100) {
            0..=59 => highest.min(sent.len() - 1),
            60..=84 => lowest.unwrap_or(0),
            85..=94 => self.pick(highest.max(1)),
            95 => sent.len() - 1,
            96 => self.pick(sent.len()),
            _ => (highest + self.pick(8)).min(sent.len() - 1),
        };
        let is_first = !sent[index];
        let lost = self.chance(8);
        let starts = self.chance(10);
        let (mut header, length) = shape.packet(u32::try_from(index).unwrap(), starts, path);
        header.sequence = match self.below(20) {
            0 => self.below32(4),
            _ => 2 - u32::from(is_first),
        };
        header.context = match self.below(20) {
            0 => None,
            1 => Some(self.below32(self.config.contexts + 2)),
            _ => self.contexts.get(&key).copied(),
        };
        if !lost {
            self.senders[sender].messages[context].as_mut().unwrap().1[index] = true;
            let mut payload = vec![0; length];
            self.rng.fill_bytes(&mut payload);
            self.network.push((Message::Data(header), payload));
        }
        let whole = self.senders[sender].messages[context].as_ref().unwrap().1.iter().all(|sent| *sent);
        if whole && self.chance(40) {
            self.senders[sender].messages[context] = None;
        }
    }

    /// Changes one field.
    fn corrupt(&mut self, message: &mut Message, payload: &mut Vec<u8>) {
        let delta = 1 + self.below32(3);
        match (self.below(12), message) {
            (0, message) => message.common_mut().destination = NodeId::new(delta),
            (1, message) => message.common_mut().source = NodeId::ANY,
            (2, message) => {
                let common = message.common_mut();
                common.incarnation = Incarnation::new(common.incarnation.get().wrapping_sub(delta));
            }
            (3, Message::Request(request)) => request.packet_size_log2 ^= 1,
            (4, Message::Request(request)) => request.scheme = Scheme::Selective,
            (5, Message::Request(request)) => request.announcement.key ^= 1 << self.below(64),
            (6, Message::Request(request)) => {
                request.message = MessageId::new(request.message.get().wrapping_sub(delta));
            }
            (3, Message::Data(header)) => header.packet_size_log2 ^= 1,
            (4, Message::Data(header)) => header.scheme = Scheme::AdaptiveWindow,
            (5, Message::Data(header)) => header.index = header.index.wrapping_add(low16(delta)),
            (6, Message::Data(header)) => {
                header.message = MessageId::new(header.message.get().wrapping_sub(delta));
            }
            (7, Message::Data(header)) => {
                header.message = MessageId::new(header.message.get() ^ 1 << self.below(32));
            }
            (8, Message::Data(header)) => header.tail = !header.tail,
            (9, Message::Data(_)) => payload.push(7),
            (10, Message::Data(_)) if payload.len() > 1 => payload.truncate(payload.len() - 1),
            (_, Message::Data(header)) => header.index = low16(self.below32(4096)),
            _ => {}
        }
    }
}

fn low16(value: u32) -> u16 {
    fpga_registers::cast::low16(value)
}
