//! Fixed tables of the sender: transfers, segments in progress, and destinations.

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::retry::RoundTrip;
use super::types::{Command, SendFailure};
use crate::disorder::Disorder;
use crate::feedback::congestion::{CongestionConfig, CongestionWindow};
use crate::free::FreeSlots;
use crate::list::{List, ListLinks};
use crate::receiver::SegmentWindow;
use crate::scheme::bits::PacketSet;
use crate::segment::TransferClass;
use crate::slot_index::SlotIndex;
use crate::time::Nanos;
use fpga_registers::cast::{index, low16, low32};

use super::marks::Marks;

/// State of a transfer.
///
/// free -> queued (submit) -> in progress (first packet) -> announcing (all acknowledged, the sender notifies) ->
/// finished (acknowledged, given up or cancelled; from any state but free) -> free (polled).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum TransferState {
    #[default]
    Free,
    Queued,
    InProgress,
    Announcing,
    Finished,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) generation: u32,
    pub(super) state: TransferState,
    pub(super) class: TransferClass,
    pub(super) command: Command,
    pub(super) destination: u32,
    /// Id on the wire; valid from the first packet on.
    pub(super) id: TransferId,
    /// Start of the next segment; the transfer at the head is cut in place (docs/protocol.md 4.2).
    pub(super) next_source: CardAddr,
    pub(super) next_base: CardAddr,
    pub(super) remaining: u64,
    /// Length of its full segments.
    pub(super) segment_size: u32,
    pub(super) next_segment: u32,
    pub(super) segments: u32,
    /// Segment of which some packets have no op number yet.
    pub(super) partial: Option<u16>,
    /// Segments cut and not acknowledged.
    pub(super) outstanding: u32,
    pub(super) done: SegmentWindow,
    pub(super) acknowledged: u64,
    pub(super) packets: u64,
    pub(super) retransmits: u64,
    /// Sequence number of arrival; `big_issues_at_arrival`: number of big segments issued by then.
    pub(super) arrival: u64,
    pub(super) big_issues_at_arrival: u64,
    pub(super) started: Nanos,
    pub(super) finished: Nanos,
    /// Time of the last answer, or of the first packet.
    pub(super) progress: Nanos,
    /// Send time of the latest packet that was answered, or of the first one: the receiver had the transfer's record at
    /// that time. Earlier than `progress`, and by a large margin if answers have waited for a suspended host.
    pub(super) remembered: Nanos,
    /// Time of the first of the consecutive "receiver not ready" answers.
    pub(super) not_ready: Option<Nanos>,
    pub(super) result: Result<(), SendFailure>,
}

impl Transfer {
    pub(super) const EMPTY: Self = Self {
        generation: 0,
        state: TransferState::Free,
        class: TransferClass::Regular,
        command: Command {
            source: CardAddr::ZERO,
            node: NodeId::ANY,
            destination: CardAddr::ZERO,
            length: 0,
            key: 0,
            notify: super::types::Notify::Receiver,
            deadline: None,
            priority: 0,
        },
        destination: 0,
        id: TransferId::new(0),
        next_source: CardAddr::ZERO,
        next_base: CardAddr::ZERO,
        remaining: 0,
        segment_size: 0,
        next_segment: 0,
        segments: 0,
        partial: None,
        outstanding: 0,
        done: SegmentWindow::EMPTY,
        acknowledged: 0,
        packets: 0,
        retransmits: 0,
        arrival: 0,
        big_issues_at_arrival: 0,
        started: Nanos::ZERO,
        finished: Nanos::ZERO,
        progress: Nanos::ZERO,
        remembered: Nanos::ZERO,
        not_ready: None,
        result: Ok(()),
    };
}

/// Segment from its cut to its last acknowledgement.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Segment {
    pub(super) in_use: bool,
    /// Key in the index of segments ([`Segments::key`]).
    pub(super) key: u32,
    pub(super) transfer: u32,
    pub(super) index: u32,
    pub(super) source: CardAddr,
    pub(super) base: CardAddr,
    pub(super) length: u32,
    pub(super) packets: u16,
    /// Number of packets with an op number.
    pub(super) issued: u16,
    pub(super) acknowledged: u16,
    pub(super) start: StartState,
    /// Time at which its latest new packet left.
    pub(super) latest: Nanos,
}

impl Segment {
    /// Whether the receiver expects its packets, as far as the sender knows.
    pub(super) fn is_expected(&self) -> bool {
        self.start.known != Nanos::MAX
    }
}

/// State of a segment's first packet. The receiver cannot process the others before it and holds them in its escape
/// channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StartState {
    /// Op number of the first packet.
    pub(super) op: OpNumber,
    /// Time of the first sending, or of the latest try that was refused: the receiver had no entry before.
    pub(super) first: Nanos,
    /// Time of the last retransmission; zero without one.
    pub(super) again: Nanos,
    /// Time of the acknowledgement: the receiver expects every packet sent from then on. [`Nanos::MAX`] if it is not
    /// acknowledged.
    pub(super) known: Nanos,
}

impl Default for StartState {
    fn default() -> Self {
        Self { op: OpNumber::new(0), first: Nanos::ZERO, again: Nanos::ZERO, known: Nanos::MAX }
    }
}

/// Segment records and the free list.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    records: Box<[Segment]>,
    free: FreeSlots,
    /// Records by their keys.
    slots: SlotIndex,
    /// Number of records read.
    #[cfg(test)]
    visits: core::cell::Cell<u64>,
}

impl Segments {
    /// Bytes of state of one record, of its slot in the free list and of its place in the index.
    pub(super) const BYTES: usize = size_of::<Segment>() + size_of::<u16>() + SlotIndex::BYTES;

    /// Returns the key of a segment in the index. Different segments may have the same key.
    pub(super) const fn key(node: NodeId, transfer: TransferId, index: SegmentIndex) -> u32 {
        let name = (node.get() as u64) << 32 | transfer.get() as u64;
        low32(name.wrapping_mul(0xD134_2543_DE82_EF95) >> 32).wrapping_add(index.wrapping_mul(0x85EB_CA6B))
    }

    pub(super) fn capacity(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn new(capacity: u16) -> Self {
        Self {
            records: alloc::vec![Segment::default(); usize::from(capacity)].into_boxed_slice(),
            free: FreeSlots::all(capacity.into()),
            slots: SlotIndex::new(capacity.into()),
            #[cfg(test)]
            visits: core::cell::Cell::new(0),
        }
    }

    pub(super) fn take(&mut self, segment: Segment) -> Option<u16> {
        let slot = self.free.pop()?;
        self.records[usize::from(slot)] = Segment { in_use: true, ..segment };
        self.slots.insert(segment.key.into(), slot);
        Some(slot)
    }

    pub(super) fn release(&mut self, slot: u16) {
        let record = &mut self.records[usize::from(slot)];
        if core::mem::take(&mut record.in_use) {
            self.slots.remove(record.key.into(), slot);
            self.free.push(slot);
        }
    }

    #[cfg(test)]
    pub(super) fn visits(&self) -> u64 {
        self.visits.get()
    }

    pub(super) fn get(&self, slot: u16) -> &Segment {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &self.records[usize::from(slot)]
    }

    pub(super) fn get_mut(&mut self, slot: u16) -> &mut Segment {
        &mut self.records[usize::from(slot)]
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.len() != 0
    }

    pub(super) fn in_use(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// Returns the records in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Segment)> {
        (0..).zip(&self.records).filter(|(_, record)| record.in_use)
    }

    /// Returns the segment with `key` that is `wanted`.
    pub(super) fn find_key(&self, key: u32, wanted: impl Fn(&Segment) -> bool) -> Option<u16> {
        self.slots.find(key.into(), |slot| wanted(self.get(slot)))
    }

    /// Returns the first segment that is `wanted`, by a search over all records.
    pub(super) fn find(&self, mut wanted: impl FnMut(&Segment) -> bool) -> Option<u16> {
        let slot = self.records.iter().position(|record| {
            #[cfg(test)]
            self.visits.set(self.visits.get() + 1);
            record.in_use && wanted(record)
        })?;
        u16::try_from(slot).ok()
    }
}

/// Times of answers of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleTimes {
    /// Time of the first round trip sample. Packets sent before have no deadline of their own.
    pub(super) first: Nanos,
    /// Time of the latest acknowledgement or refusal.
    pub(super) latest: Nanos,
}

/// Latest transmission to a destination that is known to have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatestArrival {
    /// Number of the transmission; 0: none.
    pub(super) sequence: u32,
    /// Its round trip.
    pub(super) trip: Nanos,
}

/// Node that has, or had, transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) node: NodeId,
    /// Id of the next transfer that starts.
    pub(super) next_id: TransferId,
    pub(super) regular: List,
    pub(super) big: List,
    /// Transfers in progress, by id: the head is the oldest live one.
    pub(super) live: List,
    /// Number of transfers in either queue or in progress.
    pub(super) transfers: u32,
    pub(super) in_flight: u32,
    /// Whether the last event was an expired deadline: no new packets until an answer arrives.
    pub(super) suspect: bool,
    /// Number of transfers in progress whose notification has no slot at the receiving host.
    pub(super) not_ready: u32,
    /// Number of regular commands that were in the queue when the last big segment was issued, as of big segment
    /// `settled`. Later ones count the whole queue, which has not changed since.
    must_pass: u32,
    settled: u64,
    pub(super) trip: RoundTrip,
    /// Times of the first and the latest sample of `trip`.
    pub(super) sampled: SampleTimes,
    /// Packets in flight in the order of sending.
    pub(super) order: List,
    /// Packets to be retransmitted that its congestion window holds back. They use the links of the order.
    pub(super) held: List,
    pub(super) latest: LatestArrival,
    pub(super) disorder: Disorder,
    /// Time at which the next packet counts as lost.
    pub(super) lost_at: Nanos,
    /// Time of the last transmission or acknowledgement; `probes`: number of probes since the last answer.
    pub(super) active: Nanos,
    pub(super) probes: u8,
    /// Newest known incarnation of the node; 0 if unknown.
    pub(super) incarnation: Incarnation,
    /// Earlier incarnation whose answers were ignored since the last one of the known incarnation; 0 if none.
    pub(super) ignored: Incarnation,
}

impl Destination {
    /// Returns the number of regular commands in the queue that let the last of `issued` big segments pass.
    pub(super) const fn must_pass(&self, issued: u64) -> u32 {
        if self.settled == issued { self.must_pass } else { self.regular.len() }
    }

    /// Records that number before the regular queue changes.
    pub(super) const fn settle(&mut self, issued: u64) {
        (self.must_pass, self.settled) = (self.must_pass(issued), issued);
    }

    /// Records that one of these commands has left the queue.
    pub(super) const fn note_passed(&mut self, issued: u64) {
        self.settle(issued);
        self.must_pass = self.must_pass.saturating_sub(1);
    }
}

/// Congestion window of a destination.
#[derive(Clone, Copy, Debug)]
struct Window {
    congestion: CongestionWindow,
    /// Packets in flight that the receiver holds, or has refused, until it registers their segment.
    parked: u32,
}

/// Table of destinations. A record without transfers can be assigned to another node.
#[derive(Clone, Debug)]
pub(super) struct Destinations {
    records: Box<[Destination]>,
    /// Records by node.
    nodes: SlotIndex,
    /// Records without transfers.
    idle: PacketSet,
    /// Number of records read.
    #[cfg(test)]
    visits: core::cell::Cell<u64>,
    /// Records that have changed since the last search for packets, and since the last one that found none.
    marked: Marks,
    changed: Marks,
    /// Op table slots in the lists of packets that are held back.
    held: PacketSet,
    /// Congestion window of each record; empty if there are none.
    windows: Box<[Window]>,
    congestion: Option<CongestionConfig>,
    used: u32,
    /// First id for a node without a record: above every id that an evicted record has used, so that no id is used
    /// twice towards one node.
    floor: TransferId,
}

impl Destinations {
    /// Bytes of state of one record, with its place in the index and its marks.
    pub(super) const BYTES: usize = size_of::<Destination>() + SlotIndex::BYTES + 2 * Marks::BYTES;

    pub(super) fn new(
        capacity: u32,
        first: TransferId,
        congestion: Option<CongestionConfig>,
        op_entries: u32,
    ) -> Self {
        let empty = Destination {
            node: NodeId::ANY,
            next_id: TransferId::new(0),
            regular: List::EMPTY,
            big: List::EMPTY,
            live: List::EMPTY,
            transfers: 0,
            in_flight: 0,
            suspect: false,
            not_ready: 0,
            must_pass: 0,
            settled: 0,
            trip: RoundTrip::default(),
            sampled: SampleTimes::default(),
            order: List::EMPTY,
            held: List::EMPTY,
            latest: LatestArrival::default(),
            disorder: Disorder::default(),
            lost_at: Nanos::MAX,
            active: Nanos::ZERO,
            probes: 0,
            incarnation: Incarnation::new(0),
            ignored: Incarnation::new(0),
        };
        let windows = congestion.map_or(Box::default(), |config| {
            alloc::vec![Window { congestion: CongestionWindow::new(&config), parked: 0 }; index(capacity)]
                .into_boxed_slice()
        });
        let records = alloc::vec![empty; index(capacity)].into_boxed_slice();
        let (marked, changed) = (Marks::new(capacity), Marks::new(capacity));
        let (nodes, idle) = (SlotIndex::new(capacity), PacketSet::new(capacity));
        let held = PacketSet::new(congestion.map_or(0, |_| op_entries));
        Self {
            records,
            nodes,
            idle,
            #[cfg(test)]
            visits: core::cell::Cell::new(0),
            marked,
            changed,
            held,
            windows,
            congestion,
            used: 0,
            floor: first,
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// Returns the bytes of the congestion window of one record.
    pub(super) fn window_bytes(&self) -> usize {
        if self.windows.is_empty() { 0 } else { size_of::<Window>() }
    }

    /// Returns the number of packets that the congestion window of a record lets leave now, with `in_flight` in the network.
    pub(super) fn room(&self, now: Nanos, at: u32, in_flight: u32) -> u32 {
        self.windows.get(index(at)).map_or(u32::MAX, |window| window.congestion.room(now, in_flight))
    }

    /// Returns the packets in flight of a record without those that its receiver holds until it registers their segment.
    pub(super) fn in_network(&self, at: u32) -> u32 {
        let parked = self.windows.get(index(at)).map_or(0, |window| window.parked);
        self.get(at).order.len().saturating_sub(parked)
    }

    /// Whether half of a congestion window is in use, towards a receiver with other senders.
    pub(super) fn is_crowded(&self, at: u32) -> bool {
        self.windows.get(index(at)).is_some_and(|Window { congestion, .. }| {
            congestion.has_others() && self.in_network(at) >= congestion.packets() / 2
        })
    }

    /// Returns the number of those packets; `None` without congestion windows.
    pub(super) fn parked_mut(&mut self, at: u32) -> Option<&mut u32> {
        self.mark(at);
        self.windows.get_mut(index(at)).map(|window| &mut window.parked)
    }

    /// Calls `change` with the congestion window of a record, if there is one.
    pub(super) fn control(&mut self, at: u32, change: impl FnOnce(&CongestionConfig, &mut CongestionWindow)) {
        self.mark(at);
        if let (Some(config), Some(window)) = (&self.congestion, self.windows.get_mut(index(at))) {
            change(config, &mut window.congestion);
        }
    }

    /// Records that a congestion window holds a packet back, which changes nothing for the next search.
    pub(super) fn hold(&mut self, at: u32) {
        if let Some(window) = self.windows.get_mut(index(at)) {
            window.congestion.hold();
        }
    }

    /// Whether that was recorded.
    #[cfg(debug_assertions)]
    pub(super) fn is_held(&self, at: u32) -> bool {
        self.windows.get(index(at)).is_none_or(|window| {
            let mut held = window.congestion;
            held.hold();
            held == window.congestion
        })
    }

    /// Returns the time from which a congestion window below one packet lets the next one leave.
    pub(super) fn release_time(&self, at: u32) -> Option<Nanos> {
        self.windows.get(index(at)).map(|window| window.congestion.release_time())
    }

    /// Adds a packet to those that are held back, which does not change its destination.
    pub(super) fn hold_packet(&mut self, at: u32, links: &mut ListLinks, slot: u32) {
        self.held.insert(slot);
        self.records[index(at)].held.push_back(links, slot);
    }

    /// Whether a packet is held back.
    pub(super) fn is_held_packet(&self, slot: u32) -> bool {
        self.held.count() != 0 && self.held.contains(slot)
    }

    /// Removes a packet from those that are held back.
    pub(super) fn release_packet(&mut self, at: u32, links: &mut ListLinks, slot: u32) {
        self.held.remove(slot);
        self.records[index(at)].held.remove(links, slot);
    }

    /// Removes and returns the first packet that is held back.
    pub(super) fn take_held(&mut self, at: u32, links: &mut ListLinks) -> Option<u32> {
        let slot = self.records[index(at)].held.pop_front(links)?;
        self.held.remove(slot);
        Some(slot)
    }

    /// Marks a record that has changed.
    pub(super) fn mark(&mut self, at: u32) {
        self.marked.insert(at);
    }

    /// Returns a record that has changed since the last search for packets.
    pub(super) fn take_marked(&mut self) -> Option<u32> {
        let at = self.marked.pop()?;
        self.changed.insert(at);
        Some(at)
    }

    /// Returns a record that has changed since the last search that found no packets.
    pub(super) fn take_changed(&mut self) -> Option<u32> {
        self.changed.pop()
    }

    /// Whether a record has changed since the last search that found no packets.
    pub(super) fn has_changes(&self) -> bool {
        !self.marked.is_empty() || self.congestion.is_some() && !self.changed.is_empty()
    }

    /// Returns the number of records that were ever used; the others need no search.
    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    #[cfg(test)]
    pub(super) fn visits(&self) -> u64 {
        self.visits.get()
    }

    pub(super) fn get(&self, at: u32) -> &Destination {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &self.records[index(at)]
    }

    /// Returns a record to change it, which marks it.
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Destination {
        self.mark(at);
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &mut self.records[index(at)]
    }

    /// Counts one more transfer to a destination.
    pub(super) fn begin_transfer(&mut self, at: u32) {
        let record = self.get_mut(at);
        record.transfers += 1;
        if record.transfers == 1 {
            self.idle.remove(at);
        }
    }

    /// Counts one transfer less.
    pub(super) fn end_transfer(&mut self, at: u32) {
        let record = self.get_mut(at);
        record.transfers -= 1;
        if record.transfers == 0 {
            self.idle.insert(at);
        }
    }

    /// Returns the record of a node; `None` without one.
    pub(super) fn find(&self, node: NodeId) -> Option<u32> {
        let at = self.nodes.find(node.get().into(), |at| self.get(at.into()).node == node)?;
        Some(at.into())
    }

    /// Returns the record of `node`, created if needed; `None` if every record has transfers.
    pub(super) fn find_or_make(&mut self, node: NodeId) -> Option<u32> {
        if let Some(at) = self.find(node) {
            return Some(at);
        }
        let at = if self.used < self.capacity() {
            self.used += 1;
            self.used - 1
        } else {
            let at = self.idle.next_from(0)?;
            let Destination { node, next_id: evicted, .. } = *self.get(at);
            self.nodes.remove(node.get().into(), low16(at));
            if self.floor.is_older_than(evicted) {
                self.floor = evicted;
            }
            at
        };
        self.idle.insert(at);
        self.nodes.insert(node.get().into(), low16(at));
        let floor = self.floor;
        self.control(at, |config, window| *window = CongestionWindow::new(config));
        let record = self.get_mut(at);
        record.node = node;
        record.next_id = floor;
        record.in_flight = 0;
        record.suspect = false;
        record.not_ready = 0;
        (record.must_pass, record.settled) = (0, 0);
        record.trip = RoundTrip::default();
        record.sampled = SampleTimes::default();
        record.latest = LatestArrival::default();
        record.disorder = Disorder::default();
        record.lost_at = Nanos::MAX;
        record.probes = 0;
        record.incarnation = Incarnation::new(0);
        record.ignored = Incarnation::new(0);
        Some(at)
    }
}
