//! Random traffic of several senders over a network that loses, repeats, reorders and trims packets.

use std::collections::VecDeque;

use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{Arrived, Common, DataHeader, Flags, StartFields};
use fpga_protocol::receiver::{MemoryWindow, ReceiverConfig};
use fpga_registers::CardAddr;
use fpga_registers::cast::{low16, low32};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::lockstep::{Input, Lockstep};
use crate::simulation::{BAD, open_window};

const KEY: u64 = 0xFEED_F00D_0000_0001;
const BASE: u64 = 0x1_0000;
/// Everything up to the addresses that refuse writes, and those.
const LENGTH: u64 = 0xC00_0000;

struct Transfer {
    id: u32,
    flags: Flags,
    base: u64,
    length: u64,
    /// Packets of a full segment, and per segment the packets that were sent already.
    packets: u32,
    sent: Vec<Vec<bool>>,
}

struct Sender {
    node: u32,
    incarnation: u32,
    /// Latest incarnation so far.
    newest: u32,
    next: u32,
    live: VecDeque<Transfer>,
}

/// Generator of inputs. Its choices do not depend on the receiver.
pub(crate) struct Traffic {
    rng: Pcg64,
    config: ReceiverConfig,
    senders: Vec<Sender>,
    /// Packets in the network.
    network: Vec<(DataHeader, Vec<u8>)>,
    /// Transfers whose ARRIVED packet may follow.
    ended: Vec<Arrived>,
    now: u64,
    op: u32,
}

impl Traffic {
    pub(crate) fn new(config: ReceiverConfig, seed: u64) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let nodes = u32::from(config.sources).min(6) + 1;
        let senders = (0..nodes)
            .map(|node| Sender {
                node: node + 10,
                incarnation: (u32::MAX - 2).wrapping_add(node),
                newest: (u32::MAX - 2).wrapping_add(node),
                // Ids wrap soon.
                next: if node % 2 == 0 { 0xFFFF_FF00 + rng.next_u32() % 256 } else { node },
                live: VecDeque::new(),
            })
            .collect();
        Self { rng, config, senders, network: Vec::new(), ended: Vec::new(), now: 0, op: 0 }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end.max(1)
    }

    fn below32(&mut self, end: u32) -> u32 {
        low32(self.below(end.into()))
    }

    fn below16(&mut self, end: u32) -> u16 {
        low16(self.below32(end))
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    pub(crate) fn begin(&mut self, both: &mut Lockstep) {
        both.input(Input::Install { index: 1, window: open_window(BASE, LENGTH, KEY) });
    }

    /// Gives one packet, and sometimes something else before it.
    pub(crate) fn step(&mut self, both: &mut Lockstep) {
        if self.chance(2) {
            self.host(both);
        }
        let late = match self.below(1000) {
            0 => self.below(3_000_000),
            1..=9 => self.below(100_000),
            _ => self.below(700),
        };
        self.now += late;
        if late > 50_000 || self.chance(1) {
            both.input(Input::Time(self.now));
        }
        if self.chance(3) && !self.ended.is_empty() {
            let index = self.pick(self.ended.len());
            let arrived = if self.chance(70) { self.ended.swap_remove(index) } else { self.ended[index] };
            both.input(Input::Arrived { now: self.now, arrived });
            return;
        }
        while self.network.is_empty() || (self.network.len() < 12 && self.chance(60)) {
            self.send();
        }
        let index = self.pick(self.network.len());
        let (mut header, mut payload) =
            if self.chance(90) { self.network.swap_remove(index) } else { self.network[index].clone() };
        if self.chance(4) {
            self.corrupt(&mut header, &mut payload);
        }
        if self.chance(4) {
            header.common.flags = header.common.flags.with(Flags::TRIMMED);
            payload.clear();
        }
        if self.chance(10) {
            header.common.flags = header.common.flags.with(Flags::MARKED);
        }
        both.input(Input::Packet { now: self.now, header, payload });
    }

    fn host(&mut self, both: &mut Lockstep) {
        match self.below(24) {
            0 => {
                let [escape, registry, lifetime] = [20_000, 400_000, 60_000].map(|most| 1 + self.below(most));
                both.input(Input::Timeouts { escape, registry, lifetime });
            }
            1 => both.input(Input::PacketEvents(self.chance(50))),
            2 | 3 => {
                let slots = if self.chance(30) { u32::MAX } else { self.below32(6) };
                both.input(Input::NoticeSlots(slots));
            }
            4 => {
                // Windows 0 and 1 together allow everything most of the time.
                let base = BASE + self.below(0x8000);
                let source = NodeId::new(10 + self.below32(8));
                let permissions = if self.chance(20) { Permissions::READ } else { Permissions::WRITE };
                let length = if self.chance(10) { 0 } else { self.below(0x4000) };
                let index = 2 + self.below16(self.config.windows - 1);
                let window =
                    MemoryWindow { source, base: CardAddr::new(base), length, key: KEY, permissions };
                both.input(Input::Install { index, window });
            }
            5 => {
                let index = self.below16(self.config.windows);
                both.input(Input::Remove(index));
                both.input(Input::LatchWindow(index));
                both.input(Input::Install { index: index % 2, window: open_window(BASE, LENGTH, KEY) });
                both.input(Input::LatchWindow(index % 2));
            }
            6 if self.chance(10) => {
                let incarnation = Incarnation::new(self.rng.next_u32());
                both.input(Input::Identity { node: self.config.node, incarnation });
            }
            7 if self.chance(3) => {
                both.input(Input::Clear);
                self.begin(both);
                both.input(Input::NoticeSlots(u32::MAX));
            }
            8..=11 => both.input(Input::LatchEntry(self.below16(self.config.registry_entries + 2))),
            12..=15 => both.input(Input::LatchSlot(self.below16(self.config.escape_slots.into()))),
            16 => both.compare_tables(),
            17..=19 => self.restart(),
            _ => self.end_transfer(),
        }
    }

    /// A sender starts again, mostly with a later incarnation than ever before.
    fn restart(&mut self) {
        let index = self.pick(self.senders.len());
        let step = if self.chance(90) { 1 + self.below32(3) } else { u32::MAX - self.below32(2) };
        let next = if self.chance(50) { 0 } else { 0xFFFF_FFF0 };
        let sender = &mut self.senders[index];
        sender.incarnation = sender.newest.wrapping_add(step);
        if step < 4 {
            sender.newest = sender.incarnation;
        }
        sender.live.clear();
        sender.next = next;
    }

    /// A sender gives up a transfer, or takes it for complete.
    fn end_transfer(&mut self) {
        let index = self.pick(self.senders.len());
        let count = self.senders[index].live.len();
        if count != 0 {
            let which = if self.chance(60) { 0 } else { self.pick(count) };
            self.finish(index, which);
        }
    }

    fn finish(&mut self, sender: usize, which: usize) {
        let Sender { node, incarnation, .. } = self.senders[sender];
        let Some(transfer) = self.senders[sender].live.remove(which) else { return };
        let common = Common {
            source: NodeId::new(node),
            destination: self.config.node,
            incarnation: Incarnation::new(incarnation),
            flags: Flags::NONE,
            path: 3,
        };
        self.ended.push(Arrived {
            common,
            transfer: TransferId::new(transfer.id),
            address: CardAddr::new(transfer.base),
            length: transfer.length,
            key: KEY,
        });
        if self.ended.len() > 16 {
            self.ended.remove(0);
        }
    }

    fn open_transfer(&mut self, sender: usize) {
        let most = u64::from(self.config.mask_bits);
        let packets = if self.chance(80) { 1 + self.below(6) } else { 1 + self.below(most) }.min(most);
        let size = u64::from(self.config.packet_size());
        let segments = if self.chance(60) { 1 } else { 1 + self.below(5) };
        let length = (segments - 1) * packets * size + 1 + self.below(packets * size);
        let base = if self.chance(3) { *BAD.start() - self.below(500) } else { BASE + self.below(0x6000) };
        let flags = match self.below(4) {
            0 => Flags::NO_NOTICE,
            1 => Flags::NONE,
            _ => Flags::NOTIFY_RECEIVER,
        };
        let flags = if self.chance(30) { flags.with(Flags::SILENT) } else { flags };
        let sent = (0..segments)
            .map(|segment| {
                let bytes = (length - segment * packets * size).min(packets * size);
                vec![false; usize::try_from(bytes.div_ceil(size)).unwrap()]
            })
            .collect();
        let packets = u32::try_from(packets).unwrap();
        let sender = &mut self.senders[sender];
        sender.live.push_back(Transfer { id: sender.next, flags, base, length, packets, sent });
        sender.next = sender.next.wrapping_add(1);
    }

    /// A sender sends a packet: mostly one that it has not sent before.
    fn send(&mut self) {
        let index = self.pick(self.senders.len());
        let most = 1 + usize::from(self.config.transfers) / 3;
        if self.senders[index].live.is_empty() || (self.senders[index].live.len() < most && self.chance(10)) {
            self.open_transfer(index);
        }
        let which = self.pick(self.senders[index].live.len());
        let segments = self.senders[index].live[which].sent.len();
        let segment = self.pick(segments);
        let sent = self.senders[index].live[which].sent[segment].clone();
        let unsent: Vec<usize> = (0..sent.len()).filter(|packet| !sent[*packet]).collect();
        let packet = if !unsent.is_empty() && self.chance(92) {
            // The START is sent first, and may be overtaken.
            if unsent[0] == 0 && self.chance(70) { 0 } else { unsent[self.pick(unsent.len())] }
        } else {
            self.pick(sent.len())
        };
        let lost = self.chance(5);
        self.senders[index].live[which].sent[segment][packet] = !lost;
        let packet = self.packet(index, which, segment, packet);
        if !lost {
            self.network.push(packet);
        }
        let is_whole = self.senders[index].live[which].sent.iter().flatten().all(|sent| *sent);
        if is_whole && self.chance(30) {
            self.finish(index, which);
        }
    }

    fn packet(
        &mut self,
        sender: usize,
        which: usize,
        segment: usize,
        number: usize,
    ) -> (DataHeader, Vec<u8>) {
        self.op += 1;
        let (op, tries) = (self.op, u8::try_from(1 + self.below(200)).unwrap());
        let path = u8::try_from(self.below(256)).unwrap();
        let Sender { node, incarnation, live, .. } = &self.senders[sender];
        let transfer = &live[which];
        let size = u64::from(self.config.packet_size());
        let full = u64::from(transfer.packets) * size;
        let base = transfer.base + segment as u64 * full;
        let length = (transfer.length - segment as u64 * full).min(full);
        let offset = number as u64 * size;
        let start = (number == 0).then(|| StartFields {
            base: CardAddr::new(base),
            segment_length: u32::try_from(length).unwrap(),
            packets: u16::try_from(length.div_ceil(size)).unwrap(),
            transfer_base: CardAddr::new(transfer.base),
            transfer_length: transfer.length,
        });
        let header = DataHeader {
            common: Common {
                source: NodeId::new(*node),
                destination: self.config.node,
                incarnation: Incarnation::new(*incarnation),
                flags: transfer.flags,
                path,
            },
            transfer: TransferId::new(transfer.id),
            oldest_live: TransferId::new(live[0].id),
            segment: u32::try_from(segment).unwrap(),
            segment_count: u32::try_from(transfer.sent.len()).unwrap(),
            address: CardAddr::new(base + offset),
            key: KEY,
            op: OpNumber::new(op),
            tries,
            packet_size_log2: self.config.packet_size_log2,
            start,
        };
        let mut payload = vec![0; usize::try_from((length - offset).min(size)).unwrap()];
        self.rng.fill_bytes(&mut payload);
        (header, payload)
    }

    /// Changes one field.
    fn corrupt(&mut self, header: &mut DataHeader, payload: &mut Vec<u8>) {
        let delta = 1 + self.below32(3);
        match self.below(17) {
            0 => header.key ^= 1 << self.below(64),
            1 => header.address = CardAddr::new(header.address.get().wrapping_add(u64::from(delta))),
            2 => header.address = CardAddr::new(header.address.get() ^ 64 << self.below(58)),
            3 => header.segment_count = header.segment_count.wrapping_add(delta),
            4 => header.segment = header.segment.wrapping_add(delta * 100),
            5 => header.oldest_live = TransferId::new(header.oldest_live.get().wrapping_add(delta)),
            6 => header.transfer = TransferId::new(header.transfer.get().wrapping_add(delta)),
            7 => header.common.destination = NodeId::new(delta),
            8 => header.common.source = if delta == 1 { NodeId::ANY } else { NodeId::new(delta) },
            9 => header.packet_size_log2 ^= 1,
            10 => payload.push(7),
            11 => payload.truncate(payload.len() - 1),
            12 => {
                header.common.incarnation =
                    Incarnation::new(header.common.incarnation.get().wrapping_sub(delta));
            }
            _ => self.corrupt_start(header),
        }
    }

    fn corrupt_start(&mut self, header: &mut DataHeader) {
        let (field, delta) = (self.below(7), 1 + self.below(100));
        let Some(start) = &mut header.start else { return };
        match field {
            0 => start.base = CardAddr::new(start.base.get() + delta),
            1 => start.segment_length = start.segment_length.wrapping_sub(low32(delta)),
            2 => start.packets = start.packets.wrapping_add(low16(low32(delta))),
            3 => start.transfer_base = CardAddr::new(start.transfer_base.get() - delta),
            4 => start.transfer_length += delta,
            5 => start.transfer_length = u64::MAX - delta,
            _ => {
                // The segment begins before its transfer; both end at the same address.
                let end = start.transfer_base.get().wrapping_add(start.transfer_length);
                start.transfer_base = CardAddr::new(start.base.get() + delta);
                start.transfer_length = end.wrapping_sub(start.transfer_base.get());
            }
        }
    }
}
