//! Receiving node in software: what the network interface of a card does with the packets of one sender (docs/protocol.md 5).
//!
//! | Packet | Treatment |
//! |---|---|
//! | of a transfer that is complete, or older than the sender's oldest live one | acknowledged again, not written |
//! | start of a segment | checked, written, registered, acknowledged; then its early packets are processed |
//! | of a registered segment | written, then marked, then acknowledged; a duplicate is acknowledged again |
//! | of a segment without start | stored as an early packet, unacknowledged; refused if there is no space |
//! | outside the window, with another key, or for a slot that a reader has | refused |
//!
//! No I/O here: answers go to a caller's function.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, SEGMENT_PACKETS_MAX};
use fpga_firmware::wire::NackReason as Refusal;

use crate::fields::{Writer, is_before};
use crate::packet::{self, Common, Data, Start};
use crate::slots::Memory;

/// Maximum number of early packets.
const MAX_EARLY: usize = 256;
/// Time after which an early packet is dropped; its sender retransmits it.
const EARLY_TIMEOUT: Duration = Duration::from_millis(20);
/// Transfers beyond one per slot: statuses, and transfers that were given up.
const MORE_TRANSFERS: usize = 16;
/// Maximum number of completed transfers that are remembered; the sender's oldest live transfer removes them.
const MAX_COMPLETED: usize = 1 << 16;

/// Identity of the node and of its only sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) node: u32,
    pub(crate) incarnation: u32,
    pub(crate) peer: u32,
    pub(crate) peer_incarnation: u32,
    pub(crate) packet_size_log2: u8,
    /// Key of the window that the sender may write.
    pub(crate) key: u64,
}

impl Identity {
    /// Common header of packets to the sender.
    pub(crate) const fn common(&self) -> Common {
        Common { source: self.node, destination: self.peer, incarnation: self.incarnation }
    }
}

#[derive(Debug)]
struct Segment {
    base: u64,
    length: u32,
    packets: u16,
    /// Bit n: packet n is in memory.
    mask: [u64; 4],
}

impl Segment {
    /// Index of the packet with this address and payload length.
    fn position(&self, address: u64, payload: usize, log2: u8) -> Option<u16> {
        let offset = address.checked_sub(self.base)?;
        let rest = u64::from(self.length).checked_sub(offset)?;
        let whole = rest.min(1 << log2);
        let index = u16::try_from(offset >> log2).ok()?;
        let fits = u64::from(index) << log2 == offset && index < self.packets && payload as u64 == whole;
        fits.then_some(index)
    }

    fn contains(&self, index: u16) -> bool {
        self.mask.get(usize::from(index / 64)).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    fn insert(&mut self, index: u16) {
        if let Some(word) = self.mask.get_mut(usize::from(index / 64)) {
            *word |= 1 << (index % 64);
        }
    }

    fn is_complete(&self) -> bool {
        self.mask.iter().map(|word| word.count_ones()).sum::<u32>() == u32::from(self.packets)
    }
}

#[derive(Debug)]
struct Transfer {
    base: u64,
    length: u64,
    segment_count: u32,
    segments: BTreeMap<u32, Segment>,
    done: BTreeSet<u32>,
}

/// Packet that arrived before the start of its segment.
#[derive(Debug)]
struct Early {
    until: Instant,
    transfer: u32,
    segment: u32,
    datagram: Vec<u8>,
}

/// Counts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCounts {
    /// Packets with data, from the publisher.
    pub packets: u64,
    /// Packets that were in memory already.
    pub duplicates: u64,
    /// Packets that arrived before the start of their segment.
    pub early: u64,
    /// Packets that were refused.
    pub refused: u64,
    /// Datagrams that are damaged, or not of the publisher.
    pub foreign: u64,
}

/// Receiving node with one sender.
#[derive(Debug)]
pub(crate) struct ReceivingNode {
    pub(crate) identity: Identity,
    pub(crate) memory: Memory,
    pub(crate) counts: NodeCounts,
    /// Address and length of completed transfers, in the order of completion.
    pub(crate) notices: VecDeque<(u64, u64)>,
    transfers: BTreeMap<u32, Transfer>,
    completed: BTreeSet<u32>,
    oldest_live: Option<u32>,
    early: Vec<Early>,
    max_transfers: usize,
    out: Writer,
}

impl ReceivingNode {
    pub(crate) fn new(identity: Identity, memory: Memory, slots: usize) -> Self {
        Self {
            identity,
            memory,
            counts: NodeCounts::default(),
            notices: VecDeque::new(),
            transfers: BTreeMap::new(),
            completed: BTreeSet::new(),
            oldest_live: None,
            early: Vec::new(),
            max_transfers: slots + MORE_TRANSFERS,
            out: Writer::default(),
        }
    }

    /// Handles a DATA or START packet of the sender. `datagram` is the whole datagram.
    pub(crate) fn data(
        &mut self,
        now: Instant,
        from: Common,
        data: &Data<'_>,
        datagram: &[u8],
        send: &mut impl FnMut(&[u8]),
    ) {
        self.counts.packets += 1;
        if !self.is_allowed(from, data) {
            self.answer(data, from, Some(Refusal::Violation), send);
            return;
        }
        self.advance_oldest(data.oldest_live);
        if self.is_over(data) {
            self.counts.duplicates += 1;
            self.answer(data, from, None, send);
            return;
        }
        let registered =
            self.transfers.get(&data.transfer).is_some_and(|it| it.segments.contains_key(&data.segment));
        match data.start {
            _ if registered => self.expected(from, data, send),
            None => self.store_early(now, from, data, datagram, send),
            Some(start) => match self.register(data, &start) {
                Ok(()) => {
                    self.expected(from, data, send);
                    self.process_early(now, data, send);
                }
                Err(reason) => self.answer(data, from, Some(reason), send),
            },
        }
    }

    fn is_allowed(&self, from: Common, data: &Data<'_>) -> bool {
        let end = data.address.checked_add(data.payload.len() as u64);
        let payload = data.payload.len() as u64;
        from.incarnation == self.identity.peer_incarnation
            && data.key == self.identity.key
            && data.packet_size_log2 == self.identity.packet_size_log2
            && payload <= 1 << data.packet_size_log2.min(PACKET_SIZE_LOG2_MAX)
            && end.is_some_and(|end| end <= self.memory.length())
    }

    fn advance_oldest(&mut self, oldest: u32) {
        if self.oldest_live.is_some_and(|known| !is_before(known, oldest)) {
            return;
        }
        self.oldest_live = Some(oldest);
        self.completed.retain(|transfer| !is_before(*transfer, oldest));
        self.transfers.retain(|transfer, _| !is_before(*transfer, oldest));
    }

    /// Whether the segment of the packet is complete, or its sender has ended the transfer.
    fn is_over(&self, data: &Data<'_>) -> bool {
        self.oldest_live.is_some_and(|oldest| is_before(data.transfer, oldest))
            || self.completed.contains(&data.transfer)
            || self.transfers.get(&data.transfer).is_some_and(|it| it.done.contains(&data.segment))
    }

    fn register(&mut self, data: &Data<'_>, start: &Start) -> Result<(), Refusal> {
        let size = 1_u32 << self.identity.packet_size_log2.min(PACKET_SIZE_LOG2_MAX);
        let end = start.base.checked_add(start.segment_length.into());
        let transfer_end = start.transfer_base.checked_add(start.transfer_length);
        let (Some(end), Some(transfer_end)) = (end, transfer_end) else { return Err(Refusal::BadPacket) };
        let is_first = data.segment == 0;
        let is_last = data.segment.checked_add(1) == Some(data.segment_count);
        let sound = data.segment < data.segment_count
            && start.segment_length > 0
            && start.segment_length.div_ceil(size) == u32::from(start.packets)
            && start.packets <= SEGMENT_PACKETS_MAX
            && data.address == start.base
            && data.payload.len() as u64 == u64::from(start.segment_length.min(size))
            && start.base >= start.transfer_base
            && end <= transfer_end
            && is_first == (start.base == start.transfer_base)
            && is_last == (end == transfer_end);
        if !sound {
            return Err(Refusal::BadPacket);
        }
        if transfer_end > self.memory.length() {
            return Err(Refusal::Violation);
        }
        if !self.transfers.contains_key(&data.transfer)
            && (self.transfers.len() >= self.max_transfers || self.completed.len() >= MAX_COMPLETED)
        {
            return Err(Refusal::Busy);
        }
        let transfer = self.transfers.entry(data.transfer).or_insert_with(|| Transfer {
            base: start.transfer_base,
            length: start.transfer_length,
            segment_count: data.segment_count,
            segments: BTreeMap::new(),
            done: BTreeSet::new(),
        });
        let described = (transfer.base, transfer.length, transfer.segment_count);
        if described != (start.transfer_base, start.transfer_length, data.segment_count) {
            return Err(Refusal::BadPacket);
        }
        let (base, length, packets) = (start.base, start.segment_length, start.packets);
        transfer.segments.insert(data.segment, Segment { base, length, packets, mask: [0; 4] });
        Ok(())
    }

    /// Handles a packet whose segment is registered.
    fn expected(&mut self, from: Common, data: &Data<'_>, send: &mut impl FnMut(&[u8])) {
        let Some(transfer) = self.transfers.get_mut(&data.transfer) else { return };
        let Some(segment) = transfer.segments.get_mut(&data.segment) else { return };
        let log2 = self.identity.packet_size_log2.min(PACKET_SIZE_LOG2_MAX);
        let Some(index) = segment.position(data.address, data.payload.len(), log2) else {
            self.answer(data, from, Some(Refusal::BadPacket), send);
            return;
        };
        if segment.contains(index) {
            self.counts.duplicates += 1;
            self.answer(data, from, None, send);
            return;
        }
        // Written first: a set bit asserts that the bytes are in memory.
        if !self.memory.write(data.address, data.payload) {
            self.answer(data, from, Some(Refusal::Violation), send);
            return;
        }
        segment.insert(index);
        let complete = segment.is_complete();
        if complete {
            transfer.segments.remove(&data.segment);
            transfer.done.insert(data.segment);
            let count = u32::try_from(transfer.done.len()).unwrap_or(u32::MAX);
            if count == transfer.segment_count {
                if data.notify {
                    self.notices.push_back((transfer.base, transfer.length));
                }
                self.transfers.remove(&data.transfer);
                self.completed.insert(data.transfer);
            }
        }
        self.answer(data, from, None, send);
        if complete {
            packet::segment_done(&mut self.out, self.identity.common(), data, from.incarnation);
            send(&self.out.0);
        }
    }

    fn answer(
        &mut self,
        data: &Data<'_>,
        from: Common,
        reason: Option<Refusal>,
        send: &mut impl FnMut(&[u8]),
    ) {
        self.counts.refused += u64::from(reason.is_some());
        packet::answer(&mut self.out, self.identity.common(), data, from.incarnation, reason);
        send(&self.out.0);
    }

    fn store_early(
        &mut self,
        now: Instant,
        from: Common,
        data: &Data<'_>,
        datagram: &[u8],
        send: &mut impl FnMut(&[u8]),
    ) {
        self.early.retain(|early| early.until > now);
        if self.early.len() >= MAX_EARLY {
            self.answer(data, from, Some(Refusal::EscapeFull), send);
            return;
        }
        self.counts.early += 1;
        self.early.push(Early {
            until: now + EARLY_TIMEOUT,
            transfer: data.transfer,
            segment: data.segment,
            datagram: datagram.to_vec(),
        });
    }

    /// Processes the early packets of a segment that was just registered, as if they arrived now.
    fn process_early(&mut self, now: Instant, start: &Data<'_>, send: &mut impl FnMut(&[u8])) {
        let (due, rest) = std::mem::take(&mut self.early)
            .into_iter()
            .partition(|early| (early.transfer, early.segment) == (start.transfer, start.segment));
        self.early = rest;
        let due: Vec<Early> = due;
        for early in due {
            if let Some((from, packet::Packet::Data(data))) = packet::parse(&early.datagram) {
                self.data(now, from, &data, &[], send);
            }
        }
    }
}

#[cfg(test)]
mod tests;
