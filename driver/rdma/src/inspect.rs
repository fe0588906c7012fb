//! Inspection: counters of an endpoint, the state of its protocol engine, and the receiver tables of the card, read from its shadow
//! windows. The engine's own types ([`Sender`], [`Mirror`] and what they return) have times as [`Nanos`].

use std::time::Duration;

use fpga_firmware::generated::{Scheme, counters, escape, ni, rates, registry, sending};
use fpga_firmware::{Incarnation, NodeId, TransferId};
use fpga_pci::{Bar, MmioError};
use fpga_registers::{BarOffset, CardAddr};

pub use fpga_firmware::event::{Event, EventKind, FaultReason, Outcome, Registration};
pub use fpga_firmware::generated::{Flags, PacketKind};
pub use fpga_firmware::wire::{Common as PacketCommon, LinkFeedback as LinkContent, LinkLoad, LinkPacket};
pub use fpga_firmware::{MessageId, Nanos, OpNumber};
pub use fpga_protocol::feedback::Limits;
pub use fpga_protocol::feedback::flow::{FULL as FULL_RATE, FlowConfig, FlowControl, RateView};
pub use fpga_protocol::mirror::{Difference, EscapedPacket, Field, Mirror, MirrorError, Operation, Table};
pub use fpga_protocol::op_table::{Op, OpState};
pub use fpga_protocol::receiver::{EntryView, Mask};
pub use fpga_protocol::segment::TransferClass;
pub use fpga_protocol::sender::{
    PacketView, QueueView, RetryPolicy, RoundTrip, Sender, SenderConfig, SenderCounters, TimeoutPolicy,
    TransferStage, TransferView,
};
pub use fpga_protocol::spray::PathSet;

use super::{Endpoint, EndpointError, SchemeList};
use fpga_driver::errors::CardPart;
use fpga_driver::extension::At as _;
use fpga_driver::extension::RegisterBlock;
use fpga_driver::{Card, Error, NiInfo};

/// Maximum number of entries of a card's table of rates that are read.
const MAX_RATE_ENTRIES: u32 = 4096;

/// Counters of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Counters of the sender.
    pub sender: SenderCounters,
    /// Number of events taken.
    pub events: u64,
    /// Number of notifications.
    pub notifications: u64,
    /// Number of transmit windows filled.
    pub windows: u64,
    /// Number of times that the CDMA engine ran past the end of its chain. Each costs a reset and has no other effect.
    pub chain_overruns: u64,
    /// Number of times that the endpoint was driven, by [`Endpoint::poll`](super::Endpoint::poll) or by a wait.
    pub turns: u64,
    /// Number of faults that the NI reported, including faults that share an event.
    pub faults: u64,
    /// Number of fault events and mirror contradictions that were dropped because they were not taken.
    pub faults_dropped: u64,
    /// Number of table events that the card dropped because the host did not poll. It is updated when the mirror is resynchronised.
    pub events_dropped: u64,
    /// Number of times that the mirror was resynchronised from the card's windows because events were dropped.
    pub mirror_resyncs: u64,
    /// Number of reads of other nodes that were answered.
    pub reads_served: u64,
    /// Number of reads of other nodes that were refused, or whose answer did not arrive.
    pub reads_refused: u64,
}

/// Occupied slot of the escape channel: a packet that arrived before the start packet of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EscapeSlot {
    /// Index of the slot.
    pub index: u16,
    /// Packet. Its `since` is 0, because the card does not show it.
    pub packet: EscapedPacket,
    /// Op number of the packet.
    pub op: OpNumber,
    /// Time that the packet has waited.
    pub age: Duration,
}

macro_rules! receive_counters {
    ($($(#[$doc:meta])* $field:ident = $register:ident;)*) => {
        /// Counters of the network interface since its reset. Each wraps at 2^32.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct ReceiveCounters {
            $($(#[$doc])* pub $field: u32,)*
        }

        impl ReceiveCounters {
            fn read(block: &RegisterBlock) -> Result<Self, MmioError> {
                Ok(Self { $($field: block.read(counters::$register)?,)* })
            }
        }
    };
}

receive_counters! {
    /// Packets received, valid or not.
    rx_packets = RX_PACKETS;
    /// Packets sent.
    tx_packets = TX_PACKETS;
    /// Packets that had already arrived.
    duplicates = DUPLICATES;
    /// Segments that entered the registry.
    registrations = REGISTRATIONS;
    /// Segments that became complete.
    completions = COMPLETIONS;
    /// Packets that entered the escape channel (buffer for early packets).
    escape_hits = ESCAPE_HITS;
    /// Packets that the escape channel dropped.
    escape_dropped = ESCAPE_DROPPED;
    /// Segments refused because the registry was full.
    registry_full = REGISTRY_FULL;
    /// Packets with a wrong checksum.
    bad_crc = BAD_CRC;
    /// Packets with an invalid field.
    bad_packet = BAD_PACKET;
    /// Packets that no memory window permits.
    violations = VIOLATIONS;
    /// Delayed packets of complete segments.
    tombstone_hits = TOMBSTONE_HITS;
    /// Registry entries released after the registry timeout.
    expired = EXPIRED;
    /// Negative acknowledgements sent.
    nacks_sent = NACKS_SENT;
    /// Acknowledgements sent.
    acks_sent = ACKS_SENT;
    /// Inquiries about links sent, by the card or by its host.
    link_inquiries_sent = LINK_INQUIRIES_SENT;
    /// Answers of links to them.
    link_passive_received = LINK_PASSIVE_RECEIVED;
    /// Reports of congested links sent to the controller.
    link_active_sent = LINK_ACTIVE_SENT;
    /// Reports of congested links received as the controller.
    link_active_received = LINK_ACTIVE_RECEIVED;
    /// Requests to slow down sent as the controller.
    link_slow_sent = LINK_SLOW_SENT;
    /// Requests to slow down received.
    link_slow_received = LINK_SLOW_RECEIVED;
    /// Rates that the card's sender lowered.
    rates_lowered = RATES_LOWERED;
    /// Rates that the card's sender raised again.
    rates_raised = RATES_RAISED;
    /// Events about link feedback dropped because their share of the event ring was full.
    link_events_dropped = LINK_EVENTS_DROPPED;
}

/// Message that the card sends under a message scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendingContext {
    /// Index of the context at the card.
    pub index: u32,
    /// Scheme of the message; `None` if this software does not know it.
    pub scheme: Option<Scheme>,
    /// The receiver was asked for a context and has not answered.
    pub asking: bool,
    /// The receiver had no free context; the message starts again later.
    pub held: bool,
    /// Receiving node.
    pub node: NodeId,
    /// Message id, as its packets carry it.
    pub message: MessageId,
    /// Context at the receiver, if it is known.
    pub theirs: Option<u32>,
    /// Number of the transfer.
    pub transfer: TransferId,
    /// First address at the receiver.
    pub base: CardAddr,
    /// Length in bytes.
    pub length: u32,
    /// Number of packets.
    pub packets: u32,
    /// Index of the first packet that was never sent.
    pub fresh: u32,
    /// Index of the first packet that is not known to have arrived; 0 if the scheme does not report it.
    pub base_packet: u32,
    /// Packets sent, including retransmissions; wraps at 2^32.
    pub sent: u32,
    /// Number of consecutive requests, or starts.
    pub tries: u32,
    /// Time since the last packet from the receiver.
    pub age: Duration,
}

/// Tables of a card's network interface, read from its windows: registry, escape channel, counters, and messages that the card sends.
///
/// Reads have no side effects, so the tables can be inspected without an endpoint. They show the state that an earlier owner of the card
/// left, and packets that peers still send to it.
#[derive(Debug, Clone)]
pub struct ReceiveTables {
    card: Card,
    info: NiInfo,
    bar: Bar,
}

impl ReceiveTables {
    /// Opens the tables of `card`.
    ///
    /// # Errors
    /// [`EndpointError::NoInterface`].
    pub fn of(card: &Card) -> Result<Self, Error<EndpointError>> {
        let (Some(info), Some(bar)) = (card.info().ni.clone(), card.user_bar().cloned()) else {
            return Err(EndpointError::NoInterface).at(|| card.place().of_part(CardPart::Endpoint));
        };
        Ok(Self { card: card.clone(), info, bar })
    }

    fn window<T>(
        &self,
        base: BarOffset,
        read: impl FnOnce(&RegisterBlock) -> Result<T, MmioError>,
    ) -> Result<T, Error<EndpointError>> {
        let block = RegisterBlock::new(self.bar.clone(), base);
        read(&block).map_err(EndpointError::Mmio).at(|| self.card.place().of_part(CardPart::Endpoint))
    }

    /// Returns the number of entries of the registry.
    #[must_use]
    pub fn registry_entries(&self) -> u16 {
        u16::try_from(self.info.registry_entries).unwrap_or(u16::MAX)
    }

    /// Returns the number of slots of the escape channel.
    #[must_use]
    pub fn escape_slots(&self) -> u16 {
        u16::try_from(self.info.escape_slots).unwrap_or(u16::MAX)
    }

    /// Reads the card's counters.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn counters(&self) -> Result<ReceiveCounters, Error<EndpointError>> {
        self.window(self.info.counters_base, ReceiveCounters::read)
    }

    /// Reads entry `index` of the receive registry.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn entry(&self, index: u16) -> Result<EntryView, Error<EndpointError>> {
        self.window(self.info.registry_base, |block| read_entry(block, index))
    }

    /// Reads the NI's default scheme; `None` if this software does not know it.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn scheme(&self) -> Result<Option<Scheme>, Error<EndpointError>> {
        self.window(self.info.ni_base, |block| Ok(Scheme::try_from(block.read(ni::SCHEME)?).ok()))
    }

    /// Reads all active schemes of the NI.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn schemes(&self) -> Result<SchemeList, Error<EndpointError>> {
        let mixed = self.info.mixed;
        self.window(self.info.ni_base, |block| {
            let default = 1_u32.checked_shl(block.read(ni::SCHEME)?).unwrap_or(0);
            Ok(SchemeList(default | if mixed { block.read(ni::SCHEMES_ON)? } else { 0 }))
        })
    }

    /// Returns the number of messages that the NI can send at the same time.
    #[must_use]
    pub const fn sending_contexts(&self) -> u32 {
        // Numbers from a device are not trusted.
        if self.info.sending_contexts > MessageId::CONTEXTS {
            MessageId::CONTEXTS
        } else {
            self.info.sending_contexts
        }
    }

    /// Reads the message in context `index`; `None` if the context is free.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn sending(&self, index: u32) -> Result<Option<SendingContext>, Error<EndpointError>> {
        if index >= self.sending_contexts() {
            return Ok(None);
        }
        self.window(self.info.sending_base, |block| read_context(block, index))
    }

    /// Reads the number of sending contexts in use, and the number of transfers that the card holds.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn sending_occupancy(&self) -> Result<(u32, u32), Error<EndpointError>> {
        if self.info.sending_contexts == 0 {
            return Ok((0, 0));
        }
        self.window(self.info.sending_base, |block| {
            Ok((block.read(sending::OCCUPANCY)?, block.read(sending::QUEUED)?))
        })
    }

    /// Reads the rates of the card's message sender towards receivers; empty without link feedback. Those that [are
    /// controlled](RateView::is_controlled) are the controlled list. Those of the host are in
    /// [`Endpoint::rates`](super::Endpoint::rates).
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn rates(&self) -> Result<Vec<RateView>, Error<EndpointError>> {
        // A number from a device is not trusted.
        let entries = self.info.rate_entries.min(MAX_RATE_ENTRIES);
        if entries == 0 {
            return Ok(Vec::new());
        }
        self.window(self.info.rates_base, |block| {
            let valid = block.read(rates::OCCUPANCY)?;
            let all = (0..if valid == 0 { 0 } else { entries }).map(|index| read_rate(block, index));
            all.filter_map(Result::transpose).collect()
        })
    }

    /// Returns whether the NI takes part in link feedback now.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn link_feedback(&self) -> Result<bool, Error<EndpointError>> {
        if !self.info.link_feedback {
            return Ok(false);
        }
        self.window(self.info.ni_base, |block| {
            Ok(block.read(ni::LINK_CONTROL)? & ni::link_control::ENABLE != 0)
        })
    }

    /// Reads the time that a registry entry, or a context, waits for its sender's next packet. Then the card releases it.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn registry_timeout(&self) -> Result<Duration, Error<EndpointError>> {
        self.timeout(ni::REGISTRY_TIMEOUT_US)
    }

    /// Reads the time that a packet in the escape channel waits for the start packet of its segment. Then the card drops it.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escape_timeout(&self) -> Result<Duration, Error<EndpointError>> {
        self.timeout(ni::ESCAPE_TIMEOUT_US)
    }

    fn timeout(&self, register: u32) -> Result<Duration, Error<EndpointError>> {
        self.window(self.info.ni_base, |block| Ok(Duration::from_micros(block.read(register)?.into())))
    }

    /// Reads the number of valid entries of the receive registry, and its maximum so far.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn registry_occupancy(&self) -> Result<(u32, u32), Error<EndpointError>> {
        self.window(self.info.registry_base, |block| {
            Ok((block.read(registry::OCCUPANCY)?, block.read(registry::HIGH_WATER)?))
        })
    }

    /// Reads slot `index` of the escape channel; `None` if the slot is free.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escaped(&self, index: u16) -> Result<Option<EscapeSlot>, Error<EndpointError>> {
        self.window(self.info.escape_base, |block| read_slot(block, index))
    }

    /// Reads the number of used slots of the escape channel, and its maximum so far.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escape_occupancy(&self) -> Result<(u32, u32), Error<EndpointError>> {
        self.window(self.info.escape_base, |block| {
            Ok((block.read(escape::OCCUPANCY)?, block.read(escape::HIGH_WATER)?))
        })
    }
}

impl Endpoint {
    /// Returns the tables of the card's network interface.
    #[must_use]
    pub const fn tables(&self) -> &ReceiveTables {
        &self.receiving.tables
    }

    /// Returns the maximum size of a segment of this endpoint's transfers in bytes (of a message, if the card sends). At the receiving card
    /// each segment makes two events, and a transfer one more.
    #[must_use]
    pub fn segment_size(&self) -> u32 {
        self.sender.segment_size()
    }

    /// Returns the segment length of a transfer of `length` bytes to `node`
    /// ([`EndpointOptions::segment_size`](super::EndpointOptions::segment_size)); of a message, if the card sends and messages are shorter.
    #[must_use]
    pub fn segment_length(&self, node: NodeId, length: u64) -> u32 {
        let longest = u32::try_from(length).unwrap_or(u32::MAX).max(1);
        let most = self.sender.segment_size();
        let segment = match self.sender.host() {
            Some(_) => self.sender.segment_of(length, self.mask_of(node)).min(most),
            None => most,
        };
        segment.min(longest)
    }

    /// Returns the number of events that the card can keep for this host:
    /// [`EndpointOptions::event_entries`](super::EndpointOptions::event_entries), or fewer if the ring is in card memory and has less
    /// space. Half of them is for notifications of arrivals and for mirror events: while that half is full, transfers to this node that
    /// request a notification are answered "receiver not ready".
    #[must_use]
    pub const fn event_entries(&self) -> u32 {
        self.events.entries()
    }

    /// Compares the mirror with the card's registry and escape windows, entry by entry. Take all events first, and let nothing arrive
    /// meanwhile: the windows show the card's current state, the mirror the state after the events taken so far. State that no event
    /// carries is not compared; see [`fpga_protocol::mirror`].
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn check_mirror(&self) -> Result<Vec<Difference>, Error<EndpointError>> {
        let mut differences = Vec::new();
        for index in 0..self.receiving.tables.registry_entries() {
            let entry = self.receiving.tables.entry(index)?;
            self.receiving.mirror.compare(index, &entry, |difference| differences.push(difference));
        }
        for index in 0..self.receiving.tables.escape_slots() {
            let packet = self.receiving.tables.escaped(index)?.map(|slot| slot.packet);
            self.receiving
                .mirror
                .compare_escaped(index, packet.as_ref(), |difference| differences.push(difference));
        }
        Ok(differences)
    }
}

fn read_rate(block: &RegisterBlock, index: u32) -> Result<Option<RateView>, MmioError> {
    block.write(rates::INDEX, index)?;
    if block.read(rates::FLAGS)? & rates::flags::VALID == 0 {
        return Ok(None);
    }
    let nanos = |register| block.read(register).map(|span| Nanos::new(span.into()));
    let mut view = RateView::new(NodeId::new(block.read(rates::NODE)?), block.read(rates::RATE)?);
    view.min_delay = Some(nanos(rates::MIN_DELAY_NS)?).filter(|delay| *delay != Nanos::ZERO);
    view.max_delay = nanos(rates::MAX_DELAY_NS)?;
    view.inquiry = block.read(rates::INQUIRY)?;
    view.congested = block.read(rates::CONGESTED)?;
    Ok(Some(view))
}

fn read_slot(block: &RegisterBlock, index: u16) -> Result<Option<EscapeSlot>, MmioError> {
    block.write(escape::INDEX, index.into())?;
    if block.read(escape::VALID)? & 1 == 0 {
        return Ok(None);
    }
    let packet = EscapedPacket {
        node: NodeId::new(block.read(escape::SOURCE_NODE)?),
        incarnation: Incarnation::new(block.read(escape::INCARNATION)?),
        transfer: TransferId::new(block.read(escape::TRANSFER)?),
        segment: block.read(escape::SEGMENT)?,
        address: CardAddr::new(block.read_pair(escape::ADDRESS_LOW)?),
        length: block.read(escape::LENGTH)?.into(),
        since: Nanos::ZERO,
    };
    let op = OpNumber::new(block.read(escape::OP)?);
    let age = Duration::from_micros(block.read(escape::AGE_US)?.into());
    Ok(Some(EscapeSlot { index, packet, op, age }))
}

fn read_context(block: &RegisterBlock, index: u32) -> Result<Option<SendingContext>, MmioError> {
    block.write(sending::INDEX, index)?;
    let flags = block.read(sending::FLAGS)?;
    if flags & sending::flags::VALID == 0 {
        return Ok(None);
    }
    Ok(Some(SendingContext {
        index,
        scheme: Scheme::try_from((flags & sending::flags::SCHEME) >> sending::flags::SCHEME_SHIFT).ok(),
        asking: flags & sending::flags::ASKING != 0,
        held: flags & sending::flags::HELD != 0,
        node: NodeId::new(block.read(sending::NODE)?),
        message: MessageId::new(block.read(sending::MESSAGE)?),
        theirs: Some(block.read(sending::CONTEXT)?).filter(|context| *context != u32::MAX),
        transfer: TransferId::new(block.read(sending::TRANSFER)?),
        base: CardAddr::new(block.read_pair(sending::BASE_LOW)?),
        length: block.read(sending::LENGTH)?,
        packets: block.read(sending::PACKETS)?,
        fresh: block.read(sending::FRESH)?,
        base_packet: block.read(sending::BASE_PACKET)?,
        sent: block.read(sending::SENT)?,
        tries: block.read(sending::TRIES)?,
        age: Duration::from_micros(block.read(sending::AGE_US)?.into()),
    }))
}

fn read_entry(block: &RegisterBlock, index: u16) -> Result<EntryView, MmioError> {
    block.write(registry::INDEX, index.into())?;
    let flags = block.read(registry::FLAGS)?;
    let mut view = EntryView::vacant(block.read(registry::GENERATION)?);
    if flags & registry::flags::VALID == 0 {
        return Ok(view);
    }
    view.valid = true;
    if let Ok(scheme) = Scheme::try_from((flags & registry::flags::SCHEME) >> registry::flags::SCHEME_SHIFT) {
        view.scheme = scheme;
    }
    view.source = NodeId::new(block.read(registry::SOURCE_NODE)?);
    view.incarnation = Incarnation::new(block.read(registry::INCARNATION)?);
    view.transfer = TransferId::new(block.read(registry::TRANSFER)?);
    view.segment = block.read(registry::SEGMENT)?;
    view.segment_count = block.read(registry::SEGMENT_COUNT)?;
    view.base = CardAddr::new(block.read_pair(registry::BASE_LOW)?);
    view.length = block.read(registry::LENGTH)?;
    view.expected = u16::try_from(block.read(registry::EXPECTED)?).unwrap_or(u16::MAX);
    view.silent = flags & registry::flags::SILENT != 0;
    view.notify = flags & registry::flags::NOTIFY != 0;
    view.transfer_length = block.read_pair(registry::TRANSFER_LENGTH_LOW)?;
    view.first = block.read(registry::FIRST)?;
    for (word, register) in view.mask.iter_mut().zip((registry::MASK..).step_by(4)) {
        *word = block.read(register)?;
    }
    view.age = Nanos::from_micros(block.read(registry::AGE_US)?.into());
    Ok(view)
}
