//! A simple, obviously correct receiver and sender of the registry scheme. Single rules can be replaced by the source document's literal
//! wording.
//!
//! SPECIMENS: every [`Literal`] except `None` is *wrong*. The tests show that they fail.

use std::collections::{BTreeMap, BTreeSet};

/// A rule of a source in its literal form, in place of the corrected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    /// No literal rule: every rule as corrected.
    None,
    /// The mask for 8 packets in 32 bits as the source prints it: 36 bits [E1-1].
    MaskOf36Bits,
    /// A start packet registers, but the buffer of early packets is not searched then [E1-2].
    NoRescan,
    /// Every start packet registers, even for an operation in progress [E1-3].
    EveryStartRegisters,
    /// A completed operation leaves no trace [E1-4].
    NoTombstones,
    /// A packet belongs to the entry whose address range it falls into [E1-5].
    MatchByAddress,
    /// A packet is acknowledged when it enters the escape channel, and dropped there at its timeout [E1-6].
    AcknowledgeOnEscape,
    /// A duplicate is dropped at once, without an answer [E1-7].
    DropDuplicates,
    /// The application is notified of every completed operation [E1-9].
    NoticePerSegment,
}

/// A packet: its transfer and segment, its index and the number of packets, its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Packet {
    pub(crate) transfer: u8,
    pub(crate) segment: u8,
    pub(crate) segments: u8,
    pub(crate) index: u8,
    pub(crate) count: u8,
    /// In packets, from the start of memory.
    pub(crate) address: u8,
}

impl Packet {
    pub(crate) fn key(&self) -> (u8, u8) {
        (self.transfer, self.segment)
    }
}

/// An operation in progress.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    key: (u8, u8),
    segments: u8,
    base: u8,
    count: u8,
    mask: u64,
    all: u64,
}

/// Receiver of the model. It keeps everything in sets and never drops required state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Model {
    entries: Vec<Entry>,
    capacity: usize,
    escaped: BTreeSet<Packet>,
    done: BTreeSet<(u8, u8)>,
    /// Content of memory: packet by address.
    pub(crate) memory: BTreeMap<u8, Packet>,
    /// Notified transfers, with the number of notifications.
    pub(crate) told: BTreeMap<u8, u8>,
    /// Packets that were written after their operation was complete.
    pub(crate) late_writes: u8,
}

/// The source's mask rule: `(all ones << n) | 1` over 32 bits.
fn mask(rule: Literal, count: u8) -> (u64, u64) {
    match rule {
        // 29 ones, seven zeros, a one at the bottom: four bits more than the mask has.
        Literal::MaskOf36Bits if count == 8 => (0xF_FFFF_FF01, 0xFFFF_FFFF),
        _ => ((u64::from(u32::MAX) << count | 1) & u64::from(u32::MAX), u64::from(u32::MAX)),
    }
}

impl Model {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::new(),
            capacity,
            escaped: BTreeSet::new(),
            done: BTreeSet::new(),
            memory: BTreeMap::new(),
            told: BTreeMap::new(),
            late_writes: 0,
        }
    }

    /// Number of entries and of escaped packets that are still in use.
    pub(crate) fn occupancy(&self) -> (usize, usize) {
        (self.entries.len(), self.escaped.len())
    }

    /// Processes a packet; returns the packets that are acknowledged.
    pub(crate) fn take(&mut self, rule: Literal, packet: Packet) -> Vec<Packet> {
        if rule != Literal::NoTombstones && self.done.contains(&packet.key()) {
            return vec![packet];
        }
        let found = self.entries.iter().position(|entry| match rule {
            Literal::MatchByAddress => (entry.base..entry.base + entry.count).contains(&packet.address),
            _ => entry.key == packet.key(),
        });
        let start = packet.index == 0;
        match found {
            Some(at) if !(start && rule == Literal::EveryStartRegisters) => self.expected(rule, at, packet),
            _ if start => self.register(rule, packet),
            _ => {
                self.escaped.insert(packet);
                if rule == Literal::AcknowledgeOnEscape { vec![packet] } else { vec![] }
            }
        }
    }

    fn expected(&mut self, rule: Literal, at: usize, packet: Packet) -> Vec<Packet> {
        let entry = &mut self.entries[at];
        let bit = 1 << (packet.address - entry.base);
        if entry.mask & bit != 0 {
            return if rule == Literal::DropDuplicates { vec![] } else { vec![packet] };
        }
        entry.mask |= bit;
        self.write(packet);
        self.complete(rule, at);
        vec![packet]
    }

    fn register(&mut self, rule: Literal, packet: Packet) -> Vec<Packet> {
        let Packet { segments, count, address: base, .. } = packet;
        if self.entries.len() == self.capacity && rule != Literal::EveryStartRegisters {
            return vec![];
        }
        let (mask, all) = mask(rule, count);
        let key = packet.key();
        self.entries.retain(|entry| entry.key != key);
        self.write(packet);
        self.entries.push(Entry { key, segments, base, count, mask, all });
        let mut acknowledged = vec![packet];
        let at = self.entries.len() - 1;
        self.complete(rule, at);
        if rule != Literal::NoRescan {
            let early: Vec<_> = self.escaped.iter().copied().filter(|early| early.key() == key).collect();
            for packet in early {
                self.escaped.remove(&packet);
                acknowledged.extend(self.take(rule, packet));
            }
        }
        acknowledged
    }

    fn write(&mut self, packet: Packet) {
        self.late_writes += u8::from(self.done.contains(&packet.key()));
        self.memory.insert(packet.address, packet);
    }

    fn complete(&mut self, rule: Literal, at: usize) {
        let entry = &self.entries[at];
        if entry.mask != entry.all {
            return;
        }
        let Entry { key, segments, .. } = self.entries.remove(at);
        self.done.insert(key);
        let whole = (0..segments).all(|segment| self.done.contains(&(key.0, segment)));
        if whole || rule == Literal::NoticePerSegment {
            *self.told.entry(key.0).or_default() += 1;
        }
    }

    /// Expiry of the escape channel's timer.
    pub(crate) fn drop_escaped(&mut self) {
        self.escaped.clear();
    }
}
