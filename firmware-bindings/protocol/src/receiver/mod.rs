//! Receiver of the registry scheme (docs/protocol.md 5): takes packets, writes memory, produces answers and events.
//!
//! The receiver does no I/O (sans-IO). Order of calls:
//!
//! * [`Receiver::handle_packet`] for every DATA or START packet whose checksum is correct,
//! * [`Receiver::handle_arrived`] for every ARRIVED packet,
//! * [`Receiver::handle_timeout`] when the time that [`Receiver::poll_timeout`] returns is reached,
//! * after each of them, [`Receiver::poll_output`] until it returns `None`.
//!
//! Treatment of one packet:
//!
//! | registered? | over? | start? | then |
//! |---|---|---|---|
//! | yes | sender has moved on | - | acknowledge, drop |
//! | yes | no, bit set | - | duplicate: acknowledge again [E1-7], a start included [E1-3] |
//! | yes | no, bit clear | - | check range [E1-5] and window, **write, then** set the bit, then acknowledge |
//! | no | complete or older than the oldest live | - | late: acknowledge, drop [E1-4] |
//! | no | no | yes | check, write, register, acknowledge, then process its packets in the escape channel [E1-2] |
//! | no | no | yes, no free entry or record | refuse: busy [E1-12] |
//! | no | no | any, of an earlier incarnation than the newest known one of its node | refuse: superseded |
//! | any | its transfer would be complete | - | no slot for its notification: refuse, receiver not ready (`notice_slots.rs`) |
//! | no | no | yes, of a later incarnation of a known node | release all records of the earlier one, then as any start |
//! | no | no | no | escape channel, unacknowledged until written [E1-6]; full: refuse |
//!
//! A packet is never written outside the memory windows of its source, and never after its operation was complete. The
//! receiver is a value: `Clone`, `Eq` and `Hash` cover its protocol state, not its counters.

use fpga_firmware::event::{Event, EventKind, FaultReason, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::wire::{Ack, Arrived, Common, Control, Data, DataHeader, Flags, Nack, SegmentDone};
use fpga_registers::CardAddr;

mod access;
mod config;
mod escape;
mod expected;
mod in_place;
mod mask;
mod notice_slots;
mod output;
mod registry;
mod sweep;
mod tombstone;
mod unexpected;

pub use access::{AccessTable, MemoryWindow, WindowError};
pub use config::{ReceiverConfig, ReceiverConfigError};
pub use mask::{MAX_BITS, Mask};
pub use notice_slots::UNLIMITED_SLOTS;
pub use output::{MemoryFault, Output, ReceiveMemory, ReceiverCounters};
pub use registry::{EntryView, SegmentKey};

pub(crate) use mask::SegmentWindow;

use crate::incarnations::NodeTable;
use crate::non_state::NonState;
use crate::refusals::Refusals;
use crate::slot_index::SlotIndex;
use crate::state::StateTable;
use crate::time::Nanos;
use escape::{Escape, key_of};
use output::Outputs;
use registry::Registry;
use tombstone::PeerTable;

/// Receiver of one node; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: ReceiverConfig,
    registry: Registry,
    peers: PeerTable,
    /// Newest incarnation of each node.
    nodes: NodeTable,
    escape: Escape,
    access: AccessTable,
    outputs: Outputs,
    /// Maximum number of outputs of one call.
    burst: usize,
    /// Lower bound of the time at which an entry, transfer or sender expires. It may be early, never late.
    next_sweep: Nanos,
    /// Whether a sender with operations in progress has advanced its oldest live transfer since the last sweep.
    moved_on: bool,
    /// Free slots for notifications: the caller's last value minus those used since.
    notice_slots: u32,
    /// Waiting times of refused senders.
    refusals: NonState<Refusals>,
    /// Time that the packet being processed has waited in the escape channel, in units of [`DELAY_UNIT_NS`].
    held: NonState<u16>,
    counters: NonState<ReceiverCounters>,
}

impl Receiver {
    /// Creates a receiver and allocates all memory that it will ever need.
    ///
    /// # Errors
    /// See [`ReceiverConfig::validate`].
    pub fn new(config: ReceiverConfig) -> Result<Self, ReceiverConfigError> {
        config.validate()?;
        // One call ends at most every entry, transfer and escape slot, or answers every escaped packet. Each of those
        // causes at most one answer and three events.
        let items = fpga_registers::cast::index(config.registry_entries)
            + usize::from(config.transfers)
            + usize::from(config.escape_slots);
        let burst = 4 * items + 8;
        Ok(Self {
            registry: if config.hashed_registry {
                Registry::hashed(config.registry_entries, config.mask_bits)
            } else {
                Registry::new(config.registry_entries, config.mask_bits)
            },
            peers: PeerTable::new(config.sources, config.transfers, config.tombstones),
            nodes: NodeTable::new(config.nodes),
            escape: Escape::new(config.escape_slots, fpga_registers::cast::index(config.packet_size())),
            access: AccessTable::new(config.windows),
            outputs: Outputs::new(2 * burst),
            burst,
            next_sweep: Nanos::MAX,
            moved_on: false,
            notice_slots: UNLIMITED_SLOTS,
            refusals: NonState::default(),
            held: NonState::default(),
            counters: NonState::default(),
            config,
        })
    }

    /// Returns the tables and the bytes of state per entry.
    #[must_use]
    pub fn state(&self) -> [StateTable; 9] {
        let config = &self.config;
        let (transfer, source, tombstone) = PeerTable::BYTES;
        let payload = fpga_registers::cast::index(config.packet_size());
        let hashes = [config.transfers, config.sources]
            .map(|slots| SlotIndex::heads(slots.into()))
            .iter()
            .sum::<usize>();
        let tombstones = u64::from(config.sources) * (u64::from(config.tombstones) + 1);
        [
            StateTable::new("registry", config.registry_entries.into(), Registry::bytes(config.mask_bits)),
            StateTable::new("escape channel", config.escape_slots.into(), Escape::BYTES + payload),
            StateTable::new("transfers", config.transfers.into(), transfer),
            StateTable::new("senders", config.sources.into(), source),
            StateTable::new("hashes of both", hashes as u64, SlotIndex::BYTES),
            StateTable::new("tombstones", tombstones, tombstone),
            StateTable::new("incarnations", self.nodes.capacity(), NodeTable::<()>::BYTES),
            StateTable::new("memory windows", config.windows.into(), AccessTable::BYTES),
            StateTable::new("answers and events", 2 * self.burst as u64, size_of::<Output>()),
        ]
    }

    /// Returns the configuration in use.
    #[must_use]
    pub const fn config(&self) -> &ReceiverConfig {
        &self.config
    }

    /// Changes the timeouts while the receiver runs. Packets in the escape channel keep their deadlines.
    pub fn set_timeouts(&mut self, escape: Nanos, registry: Nanos, packet_lifetime: Nanos) {
        self.config.escape_timeout = escape.max(Nanos::new(1));
        self.config.registry_timeout = registry.max(Nanos::new(1));
        self.config.packet_lifetime = packet_lifetime;
        // A shorter timeout can make something due before the old bound.
        self.next_sweep = Nanos::ZERO;
    }

    /// Sets this node's number and incarnation, as its host does at start-up.
    pub fn set_identity(&mut self, node: NodeId, incarnation: Incarnation) {
        self.config.node = node;
        self.config.incarnation = incarnation;
    }

    /// Returns the newest known incarnation of `node` if it is later than `incarnation`, whose packets are refused.
    #[must_use]
    pub fn superseding(&self, node: NodeId, incarnation: Incarnation) -> Option<Incarnation> {
        self.nodes.superseding(node, incarnation)
    }

    /// Enables or disables the event per set mask bit.
    pub fn set_packet_events(&mut self, on: bool) {
        self.config.packet_events = on;
    }

    /// Returns the memory windows.
    #[must_use]
    pub const fn access(&self) -> &AccessTable {
        &self.access
    }

    /// Returns the memory windows for opening and closing. A closed window takes effect with the next packet.
    pub fn access_mut(&mut self) -> &mut AccessTable {
        &mut self.access
    }

    /// Calls [`Receiver::handle_packet`] for a parsed packet, or [`Receiver::handle_trimmed`] if a switch has cut off its payload.
    pub fn handle_data<M: ReceiveMemory + ?Sized>(&mut self, now: Nanos, packet: &Data<'_>, memory: &mut M) {
        let header = packet.header();
        if header.common.flags.contains(Flags::TRIMMED) {
            self.handle_trimmed(now, &header, memory);
        } else {
            self.handle_packet(now, &header, packet.payload(), memory);
        }
    }

    /// Processes one DATA or START packet. Safety does not rely on the checks of `Packet::parse`; only the choice
    /// between "refuse" and "drop" does.
    #[inline]
    pub fn handle_packet<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        payload: &[u8],
        memory: &mut M,
    ) {
        if self.outputs.space() < self.burst {
            // Equivalent to a loss in the network: nothing was acknowledged.
            self.counters.unpolled += 1;
            return;
        }
        self.counters.packets += 1;
        if header.common.destination != self.config.node || header.common.source == NodeId::ANY {
            self.counters.bad_packets += 1;
            return;
        }
        let size = fpga_registers::cast::index(self.config.packet_size());
        if header.packet_size_log2 != self.config.packet_size_log2
            || payload.is_empty()
            || header.common.flags.contains(Flags::TRIMMED)
            || payload.len() > size
        {
            self.contradiction(now, header, payload.len());
            return;
        }
        self.dispatch(now, header, payload, memory);
    }

    /// Processes a DATA or START packet whose payload a switch has cut off (TRIMMED): refuses it as trimmed, so that its sender
    /// repeats it at once. The operation of a START packet is registered: its other packets need no escape slot.
    pub fn handle_trimmed<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        memory: &mut M,
    ) {
        if self.outputs.space() < self.burst {
            self.counters.unpolled += 1;
            return;
        }
        self.counters.trimmed += 1;
        if header.common.destination != self.config.node || header.common.source == NodeId::ANY {
            self.counters.bad_packets += 1;
            return;
        }
        if header.packet_size_log2 != self.config.packet_size_log2 {
            self.contradiction(now, header, 0);
            return;
        }
        match self.registry.find(&key_of(header)) {
            // A duplicate of a packet that has arrived is refused as well: its sender has the acknowledgement, or repeats it.
            Some(slot) => {
                self.registry.operation(slot).entry.touched = now;
                self.refuse(header, NackReason::Trimmed);
            }
            None => self.unexpected(now, header, None, memory),
        }
    }

    /// Whether [`Receiver::prefetch_entry`] has an effect: the registry exceeds the processor's inner caches.
    #[inline]
    #[must_use]
    pub fn prefetches(&self) -> bool {
        self.registry.is_large()
    }

    /// Prefetches the registry entry of operation `key`, of which a packet will follow soon.
    ///
    /// For callers that process packets in bursts: with one call for each packet before the first one is handled, the
    /// memory accesses overlap instead of following each other. The call is a hint, and `key` needs no validation.
    #[inline]
    pub fn prefetch_entry(&self, key: &SegmentKey) {
        if self.prefetches() {
            self.registry.prefetch(key);
        }
    }

    #[inline]
    fn dispatch<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        payload: &[u8],
        memory: &mut M,
    ) {
        match self.registry.find(&key_of(header)) {
            Some(slot) => self.expected(now, slot, header, payload, memory),
            None => self.unexpected(now, header, Some(payload), memory),
        }
    }

    /// Processes an ARRIVED packet: the sender reports that a whole transfer has arrived, which notifies the host of
    /// transfers with `notify = sender` [E1-11]. It is accepted only for a transfer whose segments are all complete at
    /// this receiver.
    pub fn handle_arrived(&mut self, now: Nanos, arrived: &Arrived) {
        if self.outputs.space() < self.burst {
            self.counters.unpolled += 1;
            return;
        }
        let Common { source, destination, incarnation, .. } = arrived.common;
        if destination != self.config.node {
            self.counters.bad_packets += 1;
            return;
        }
        let record = self
            .peers
            .find_source(source, incarnation)
            .and_then(|source| self.peers.find_transfer(source, arrived.transfer))
            .filter(|&at| self.peers.transfer(at).awaits_notice);
        match record {
            Some(at) => self.notice(now, at),
            // Already notified, or never received.
            None => self.counters.duplicates += 1,
        }
    }

    /// Returns the next answer to send or event to report, by reference. A copy of data that was just written would
    /// cost as much on the path of every packet as the registry lookup.
    #[inline]
    #[must_use]
    pub fn poll_output(&mut self) -> Option<&Output> {
        self.outputs.pop()
    }

    /// Returns the running counts and high-water marks.
    #[must_use]
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// Returns the number of registry entries in use.
    #[must_use]
    pub fn registry_occupancy(&self) -> u32 {
        self.registry.occupancy()
    }

    /// Returns registry entry `index` as the registry window shows it; `None` if there is no such entry.
    #[must_use]
    pub fn entry(&self, index: u16, now: Nanos) -> Option<EntryView> {
        let view = self.registry.view(index, now)?;
        let transfer = self.peers.transfer(self.registry.entry(index).transfer);
        let transfer_length = if view.valid { transfer.length } else { 0 };
        Some(EntryView { transfer_length, ..view })
    }

    /// Returns the number of escape slots in use.
    #[must_use]
    pub const fn escape_occupancy(&self) -> u16 {
        self.escape.occupancy()
    }

    /// Returns header, payload length and age of the packet in escape slot `index`; `None` if the slot is empty.
    #[must_use]
    pub fn escaped(&self, index: u16, now: Nanos) -> Option<EscapedView> {
        let (header, payload) = self.escape.peek(index)?;
        let age = now.saturating_sub(self.escape.arrived(index)?);
        Some(EscapedView { header: *header, length: payload.len(), age })
    }

    /// Returns the number of transfers with at least one registered segment that are not complete.
    #[must_use]
    pub fn transfers_in_progress(&self) -> usize {
        self.peers.transfers_in_use().into()
    }

    /// Returns the number of stored ranges of completed transfers.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.peers.tombstones()
    }

    fn event(&mut self, now: Nanos, event: Event) {
        self.outputs.push(Output::Event(Event { time: now.get(), ..event }));
    }

    /// Common header of an answer to a packet: it repeats the packet's path and mark.
    fn common_for(&self, packet: &Common) -> Common {
        Common { source: self.config.node, incarnation: self.config.incarnation, ..packet.answer() }
    }

    #[inline(always)]
    fn acknowledge(&mut self, header: &DataHeader) {
        self.counters.acks += 1;
        self.outputs.push(Output::Send(Control::Ack(Ack {
            common: self.common_for(&header.common),
            op: header.op,
            transfer: header.transfer,
            segment: header.segment,
            peer_incarnation: header.common.incarnation,
            tries: header.tries,
            senders: u8::try_from(self.peers.active()).unwrap_or(u8::MAX),
            delay: self.held.0,
        })));
    }

    fn refuse(&mut self, header: &DataHeader, reason: NackReason) {
        self.refuse_for(header, reason, 0);
    }

    /// Refuses the first packet of an operation for which there is no entry or record, with the time of its next try.
    fn refuse_full(&mut self, now: Nanos, header: &DataHeader) {
        self.counters.registry_full += 1;
        let entries = self.registry.capacity();
        // Of missing records of senders or transfers it is not known when they are free.
        let is_full = !self.registry.has_free(&key_of(header));
        let delay = if is_full { self.refusals.refuse(now, entries) } else { 0 };
        self.refuse_for(header, NackReason::Busy, delay);
    }

    fn refuse_for(&mut self, header: &DataHeader, reason: NackReason, delay: u16) {
        self.counters.nacks += 1;
        self.outputs.push(Output::Send(Control::Nack(Nack {
            common: self.common_for(&header.common),
            op: header.op,
            transfer: header.transfer,
            segment: header.segment,
            peer_incarnation: header.common.incarnation,
            tries: header.tries,
            reason,
            delay,
        })));
    }

    /// Refuses a packet of an earlier incarnation of its node than `newest`.
    #[cold]
    pub(super) fn refuse_superseded(&mut self, header: &DataHeader, newest: Incarnation) {
        self.counters.superseded += 1;
        let named = DataHeader { op: OpNumber::new(newest.get()), ..*header };
        self.refuse(&named, NackReason::Superseded);
    }

    fn fault(
        &mut self,
        now: Nanos,
        reason: FaultReason,
        header: &DataHeader,
        address: CardAddr,
        length: u64,
    ) {
        self.event(
            now,
            Event {
                reason: reason.value(),
                node: header.common.source,
                incarnation: header.common.incarnation,
                transfer: header.transfer,
                segment: header.segment,
                op: header.op,
                address,
                length,
                ..Event::new(EventKind::Fault)
            },
        );
    }

    /// Refuses a packet that contradicts its segment. A retry does not help.
    #[cold]
    fn contradiction(&mut self, now: Nanos, header: &DataHeader, length: usize) {
        self.counters.bad_packets += 1;
        self.fault(now, FaultReason::BadPacket, header, header.address, length as u64);
        self.refuse(header, NackReason::BadPacket);
    }

    /// Drops, counts and refuses a write outside the windows of its source (docs/protocol.md 5.4).
    #[cold]
    fn violation(&mut self, now: Nanos, header: &DataHeader, address: CardAddr, length: u64) {
        self.counters.violations += 1;
        self.fault(now, FaultReason::Violation, header, address, length);
        self.refuse(header, NackReason::Violation);
    }

    #[cold]
    fn memory_fault(&mut self, now: Nanos, header: &DataHeader, fault: MemoryFault) {
        self.counters.violations += 1;
        self.fault(now, FaultReason::MemoryFault, header, fault.address, fault.length);
        self.refuse(header, NackReason::Violation);
    }

    fn segment_done(&mut self, key: SegmentKey) {
        self.outputs.push(Output::Send(Control::SegmentDone(SegmentDone {
            common: Common {
                source: self.config.node,
                destination: key.source,
                incarnation: self.config.incarnation,
                flags: Flags::NONE,
                path: 0,
            },
            transfer: key.transfer,
            segment: key.segment,
            peer_incarnation: key.incarnation,
        })));
    }
}

/// View of one escape slot, as the card's window shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EscapedView {
    /// The packet's header.
    pub header: DataHeader,
    /// Payload bytes.
    pub length: usize,
    /// Time since the packet was stored.
    pub age: Nanos,
}
