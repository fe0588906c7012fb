//! The receiving side of the registry scheme (spec 2.2): packets in, memory writes, answers and events out.
//!
//! Sans-IO. Order of calls: [`Receiver::handle_packet`] for every DATA or START packet that passed its checksum,
//! [`Receiver::handle_arrived`] for ARRIVED, [`Receiver::handle_timeout`] once [`Receiver::poll_timeout`]'s time is
//! reached; after each of them [`Receiver::poll_output`] until it returns `None`.
//!
//! One packet, by cases:
//!
//! | registered? | over? | start? | then |
//! |---|---|---|---|
//! | yes | sender has moved on | - | acknowledge, drop |
//! | yes | no, bit set | - | duplicate: acknowledge again [E1-7], a start included [E1-3] |
//! | yes | no, bit clear | - | check range [E1-5] and window, **write, then** set the bit, then acknowledge |
//! | no | complete or older than the oldest live | - | late: acknowledge, drop [E1-4] |
//! | no | no | yes | check, write, register, acknowledge, then the escape buffer's packets of it [E1-2] |
//! | no | no | yes, no room | refuse: busy [E1-12] |
//! | any | its transfer would be complete | - | no slot for its notice: refuse, receiver not ready (`notice_slots.rs`) |
//! | no | no | yes, of a new life of a known node | refuse: busy, until packets of the former life have died out |
//! | no | no | no | escape buffer, unacknowledged until written [E1-6]; full: refuse |
//!
//! A packet is never written outside the memory windows of its source, and never after its operation was complete. The
//! receiver is a value: `Clone`, `Eq` and `Hash` compare what it remembers, not what it has counted.

use fpga_firmware::event::{Event, EventKind, FaultReason, NackReason};
use fpga_firmware::ids::NodeId;
use fpga_firmware::wire::{Ack, Arrived, Common, Control, Data, DataHeader, Flags, Nack, SegmentDone};
use fpga_registers::CardAddr;

mod access;
mod config;
mod escape;
mod expected;
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

use crate::non_state::NonState;
use crate::state::StateTable;
use crate::time::Nanos;
use escape::{Escape, key_of};
use output::Outputs;
use registry::Registry;
use tombstone::PeerTable;

/// The receiving side of one node; see the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: ReceiverConfig,
    registry: Registry,
    peers: PeerTable,
    escape: Escape,
    access: AccessTable,
    outputs: Outputs,
    /// Most outputs of one call.
    burst: usize,
    /// No entry, transfer or sender expires before this; it may be early, never late.
    next_sweep: Nanos,
    /// A sender with something in progress has got further since the last sweep.
    moved_on: bool,
    /// Free slots for notices, as the caller last said, less those used since.
    notice_slots: u32,
    counters: NonState<ReceiverCounters>,
}

impl Receiver {
    /// Allocates everything the receiver will ever need.
    ///
    /// # Errors
    /// See [`ReceiverConfig::validate`].
    pub fn new(config: ReceiverConfig) -> Result<Self, ReceiverConfigError> {
        config.validate()?;
        // One call ends at most every entry, transfer and escape slot, or answers every escaped packet; each of those
        // with an answer and three events at most.
        let items = fpga_registers::cast::index(config.registry_entries)
            + usize::from(config.transfers)
            + usize::from(config.escape_slots);
        let burst = 4 * items + 8;
        Ok(Self {
            registry: Registry::new(config.registry_entries, config.mask_bits),
            peers: PeerTable::new(config.sources, config.transfers, config.tombstones),
            escape: Escape::new(config.escape_slots, fpga_registers::cast::index(config.packet_size())),
            access: AccessTable::new(config.windows),
            outputs: Outputs::new(2 * burst),
            burst,
            next_sweep: Nanos::MAX,
            moved_on: false,
            notice_slots: UNLIMITED_SLOTS,
            counters: NonState::default(),
            config,
        })
    }

    /// Its tables, and how much state an entry of each holds.
    #[must_use]
    pub fn state(&self) -> [StateTable; 7] {
        let config = &self.config;
        let (transfer, source, tombstone) = PeerTable::BYTES;
        let payload = fpga_registers::cast::index(config.packet_size());
        let tombstones = u64::from(config.sources) * (u64::from(config.tombstones) + 1);
        [
            StateTable::new("registry", config.registry_entries.into(), Registry::bytes(config.mask_bits)),
            StateTable::new("escape channel", config.escape_slots.into(), Escape::BYTES + payload),
            StateTable::new("transfers", config.transfers.into(), transfer),
            StateTable::new("senders", config.sources.into(), source),
            StateTable::new("tombstones", tombstones, tombstone),
            StateTable::new("memory windows", config.windows.into(), AccessTable::BYTES),
            StateTable::new("answers and events", 2 * self.burst as u64, size_of::<Output>()),
        ]
    }

    /// The configuration in use.
    #[must_use]
    pub const fn config(&self) -> &ReceiverConfig {
        &self.config
    }

    /// Settings that a host may change while the receiver runs: they hold for what comes.
    pub fn set_timeouts(&mut self, escape: Nanos, registry: Nanos, packet_lifetime: Nanos) {
        self.config.escape_timeout = escape.max(Nanos::new(1));
        self.config.registry_timeout = registry.max(Nanos::new(1));
        self.config.packet_lifetime = packet_lifetime;
        // A shorter timeout can make something due that the old bound would overlook.
        self.next_sweep = Nanos::ZERO;
    }

    /// Names this node and its life anew, as its host does at start-up.
    pub fn set_identity(&mut self, node: NodeId, incarnation: fpga_firmware::ids::Incarnation) {
        self.config.node = node;
        self.config.incarnation = incarnation;
    }

    /// Turns the event per set mask bit on or off.
    pub fn set_packet_events(&mut self, on: bool) {
        self.config.packet_events = on;
    }

    /// The memory windows.
    #[must_use]
    pub const fn access(&self) -> &AccessTable {
        &self.access
    }

    /// The memory windows, to open and close them. A closed window takes effect with the next packet.
    pub fn access_mut(&mut self) -> &mut AccessTable {
        &mut self.access
    }

    /// [`Receiver::handle_packet`] for a parsed packet.
    pub fn handle_data<M: ReceiveMemory + ?Sized>(&mut self, now: Nanos, packet: &Data<'_>, memory: &mut M) {
        self.handle_packet(now, &packet.header(), packet.payload(), memory);
    }

    /// Takes one DATA or START packet. What `Packet::parse` promises of a packet is not relied on for safety, only
    /// for the choice between "refuse" and "drop".
    #[inline]
    pub fn handle_packet<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        payload: &[u8],
        memory: &mut M,
    ) {
        if self.outputs.space() < self.burst {
            // As if the network had lost it: nothing was promised to anybody.
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
            || payload.len() > size
        {
            self.contradiction(now, header, payload.len());
            return;
        }
        self.dispatch(now, header, payload, memory);
    }

    /// Whether [`Receiver::prefetch_entry`] does anything: the registry is too large for the processor's nearer caches.
    #[inline]
    #[must_use]
    pub fn prefetches(&self) -> bool {
        self.registry.is_large()
    }

    /// Says that a packet of operation `key` comes soon: what it will be held against is read now.
    ///
    /// For whoever takes packets in bursts: said of each of them before the first is handled, the processor waits for memory
    /// once for all and not once for each. Nothing depends on it, and a `key` that nobody has checked is good enough.
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
            None => self.unexpected(now, header, payload, memory),
        }
    }

    /// Takes the sender's word that a whole transfer has arrived: the notice of transfers with `notify = sender` [E1-11].
    /// Only believed of a transfer whose every segment is complete here.
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
            // Told before, or never received.
            None => self.counters.duplicates += 1,
        }
    }

    /// The next answer to send or event to report, where it lies: on the path of every packet, a copy of what has just been
    /// written costs as much as finding the packet's operation.
    #[inline]
    #[must_use]
    pub fn poll_output(&mut self) -> Option<&Output> {
        self.outputs.pop()
    }

    /// Running counts and high-water marks.
    #[must_use]
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// Registry entries in use.
    #[must_use]
    pub fn registry_occupancy(&self) -> u32 {
        self.registry.occupancy()
    }

    /// Registry entry `index` as the registry window shows it; `None` if there is no such entry.
    #[must_use]
    pub fn entry(&self, index: u16, now: Nanos) -> Option<EntryView> {
        let view = self.registry.view(index, now)?;
        let transfer = self.peers.transfer(self.registry.entry(index).transfer);
        let transfer_length = if view.valid { transfer.length } else { 0 };
        Some(EntryView { transfer_length, ..view })
    }

    /// Escape slots in use.
    #[must_use]
    pub const fn escape_occupancy(&self) -> u16 {
        self.escape.occupancy()
    }

    /// What waits in escape slot `index`: header, payload bytes, and for how long; `None` if nothing does.
    #[must_use]
    pub fn escaped(&self, index: u16, now: Nanos) -> Option<EscapedView> {
        let (header, payload) = self.escape.peek(index)?;
        let age = now.saturating_sub(self.escape.arrived(index)?);
        Some(EscapedView { header: *header, length: payload.len(), age })
    }

    /// Transfers of which at least one segment was registered and not all are complete.
    #[must_use]
    pub fn transfers_in_progress(&self) -> usize {
        self.peers.transfers_in_use().into()
    }

    /// Ranges of completed transfers that are remembered.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.peers.tombstones()
    }

    fn event(&mut self, now: Nanos, event: Event) {
        self.outputs.push(Output::Event(Event { time: now.get(), ..event }));
    }

    fn common_to(&self, node: NodeId) -> Common {
        Common {
            source: self.config.node,
            destination: node,
            incarnation: self.config.incarnation,
            flags: Flags::NONE,
        }
    }

    #[inline(always)]
    fn acknowledge(&mut self, header: &DataHeader) {
        self.counters.acks += 1;
        self.outputs.push(Output::Send(Control::Ack(Ack {
            common: self.common_to(header.common.source),
            op: header.op,
            transfer: header.transfer,
            segment: header.segment,
            peer_incarnation: header.common.incarnation,
            tries: header.tries,
        })));
    }

    fn refuse(&mut self, header: &DataHeader, reason: NackReason) {
        self.counters.nacks += 1;
        self.outputs.push(Output::Send(Control::Nack(Nack {
            common: self.common_to(header.common.source),
            op: header.op,
            transfer: header.transfer,
            segment: header.segment,
            peer_incarnation: header.common.incarnation,
            tries: header.tries,
            reason,
        })));
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

    /// A packet that contradicts its segment: trying again does not help.
    #[cold]
    fn contradiction(&mut self, now: Nanos, header: &DataHeader, length: usize) {
        self.counters.bad_packets += 1;
        self.fault(now, FaultReason::BadPacket, header, header.address, length as u64);
        self.refuse(header, NackReason::BadPacket);
    }

    /// A write outside the windows of its source: dropped, counted, refused (spec 2.2.9).
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
            common: self.common_to(key.source),
            transfer: key.transfer,
            segment: key.segment,
            peer_incarnation: key.incarnation,
        })));
    }
}

/// One escape slot, as the card's window shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EscapedView {
    /// The packet's header.
    pub header: DataHeader,
    /// Its payload bytes.
    pub length: usize,
    /// How long it has waited.
    pub age: Nanos,
}
