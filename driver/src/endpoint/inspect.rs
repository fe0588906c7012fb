//! For diagnosis: an endpoint's counts, and what the card's own windows show of the receiving side, by register reads.

use fpga_firmware::generated::{Scheme, counters, escape, ni, registry, sending};
use fpga_firmware::{Incarnation, MessageId, NodeId, OpNumber, TransferId};
use fpga_pci::{Bar, MmioError};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::{Difference, EscapedPacket};
use fpga_protocol::receiver::EntryView;
use fpga_protocol::sender::SenderCounters;
use fpga_registers::{BarOffset, CardAddr};

use super::{Endpoint, EndpointError, SchemeList};
use crate::card::Card;
use crate::ni::{Block, NiInfo};

/// Counts of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// The sender's.
    pub sender: SenderCounters,
    /// Events taken.
    pub events: u64,
    /// Notifications.
    pub notifications: u64,
    /// Transmit windows filled.
    pub windows: u64,
    /// How often the copy engine ran past the end of its chain, which costs a reset and nothing else.
    pub chain_overruns: u64,
    /// Turns: how often it was driven, by [`Endpoint::poll`](super::Endpoint::poll) or by a wait.
    pub turns: u64,
    /// Faults that the NI reported, also those that share an event.
    pub faults: u64,
    /// Events about faults, and contradictions of the mirror, that were dropped because nobody took them.
    pub faults_dropped: u64,
    /// Events about the card's tables that the card dropped because nobody polled, as far as is known: it is read with the mirror.
    pub events_dropped: u64,
    /// How often the mirror was read anew from the card's windows, because events were dropped.
    pub mirror_resyncs: u64,
    /// Reads of other nodes that were answered.
    pub reads_served: u64,
    /// Reads of other nodes that were refused, or whose answer did not arrive.
    pub reads_refused: u64,
}

/// One occupied slot of the escape channel: a packet that came before its segment's first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EscapeSlot {
    /// Its slot.
    pub index: u16,
    /// The packet. Its `since` is not the card's to show, and 0.
    pub packet: EscapedPacket,
    /// Its op number.
    pub op: OpNumber,
    /// How long it has waited.
    pub age: Nanos,
}

/// How long the receiving side waits, as its registers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveTimeouts {
    /// A registry entry, or a context, for its sender's next packet.
    pub registry: Nanos,
    /// A packet in the escape channel for the first one of its segment.
    pub escape: Nanos,
}

macro_rules! receive_counters {
    ($($(#[$doc:meta])* $field:ident = $register:ident;)*) => {
        /// The network interface's counters, since its reset; each wraps at 2^32.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct ReceiveCounters {
            $($(#[$doc])* pub $field: u32,)*
        }

        impl ReceiveCounters {
            fn read(block: &Block) -> Result<Self, MmioError> {
                Ok(Self { $($field: block.read(counters::$register)?,)* })
            }
        }
    };
}

receive_counters! {
    /// Packets received, good or bad.
    rx_packets = RX_PACKETS;
    /// Packets sent.
    tx_packets = TX_PACKETS;
    /// Packets that were there already.
    duplicates = DUPLICATES;
    /// Segments that entered the registry.
    registrations = REGISTRATIONS;
    /// Segments that became complete.
    completions = COMPLETIONS;
    /// Packets that entered the escape channel.
    escape_hits = ESCAPE_HITS;
    /// Packets that the escape channel dropped.
    escape_dropped = ESCAPE_DROPPED;
    /// Segments refused because the registry was full.
    registry_full = REGISTRY_FULL;
    /// Packets with a wrong checksum.
    bad_crc = BAD_CRC;
    /// Packets with an impossible field.
    bad_packet = BAD_PACKET;
    /// Packets that no memory window allowed.
    violations = VIOLATIONS;
    /// Late packets of complete segments.
    tombstone_hits = TOMBSTONE_HITS;
    /// Registry entries given up.
    expired = EXPIRED;
    /// Negative acknowledgements sent.
    nacks_sent = NACKS_SENT;
    /// Acknowledgements sent.
    acks_sent = ACKS_SENT;
}

/// One message that the card sends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendingContext {
    /// The card's context.
    pub index: u32,
    /// By which rules it is sent; `None` if this software does not know them.
    pub scheme: Option<Scheme>,
    /// The receiver was asked for a context and has not answered.
    pub asking: bool,
    /// The receiver had no room; the message begins again later.
    pub held: bool,
    /// Receiver.
    pub node: NodeId,
    /// The message, as its packets name it.
    pub message: MessageId,
    /// The receiver's context, if it is known.
    pub theirs: Option<u32>,
    /// Transfer.
    pub transfer: TransferId,
    /// First byte at the receiver.
    pub base: CardAddr,
    /// Bytes.
    pub length: u32,
    /// Packets.
    pub packets: u32,
    /// The first packet that was never sent.
    pub fresh: u32,
    /// The first packet that is not known to have arrived; 0 where the scheme does not tell.
    pub base_packet: u32,
    /// Packets sent, repeated ones included; wraps at 2^32.
    pub sent: u32,
    /// Requests, or beginnings, in a row.
    pub tries: u32,
    /// Since the receiver was last heard.
    pub age: Nanos,
}

/// A card's own windows onto its network interface: registry, escape channel, counters, and messages that it sends by itself.
///
/// Reading them disturbs nothing, so that they can be looked at without an endpoint too: they show what an earlier owner of the card
/// has left, and what peers go on sending to it.
#[derive(Debug, Clone)]
pub struct ReceiveTables {
    card: Card,
    info: NiInfo,
    bar: Bar,
}

impl ReceiveTables {
    /// The windows of `card`.
    ///
    /// # Errors
    /// [`EndpointError::NoInterface`].
    pub fn of(card: &Card) -> Result<Self, EndpointError> {
        let (Some(info), Some(bar)) = (card.info().ni.clone(), card.user_bar().cloned()) else {
            return Err(EndpointError::NoInterface { card: card.shared.name.clone() });
        };
        Ok(Self { card: card.clone(), info, bar })
    }

    fn window<T>(
        &self,
        base: BarOffset,
        read: impl FnOnce(&Block) -> Result<T, MmioError>,
    ) -> Result<T, EndpointError> {
        let block = Block::new(self.bar.clone(), base);
        read(&block).map_err(|source| EndpointError::Mmio { card: self.card.shared.name.clone(), source })
    }

    /// Entries of the registry.
    #[must_use]
    pub fn registry_entries(&self) -> u16 {
        u16::try_from(self.info.registry_entries).unwrap_or(u16::MAX)
    }

    /// Slots of the escape channel.
    #[must_use]
    pub fn escape_slots(&self) -> u16 {
        u16::try_from(self.info.escape_slots).unwrap_or(u16::MAX)
    }

    /// The card's counters.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn counters(&self) -> Result<ReceiveCounters, EndpointError> {
        self.window(self.info.counters_base, ReceiveCounters::read)
    }

    /// Entry `index` of the receive registry.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn entry(&self, index: u16) -> Result<EntryView, EndpointError> {
        self.window(self.info.registry_base, |block| read_entry(block, index))
    }

    /// The rules that the interface goes by; `None` if this software does not know them.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn scheme(&self) -> Result<Option<Scheme>, EndpointError> {
        self.window(self.info.ni_base, |block| Ok(Scheme::try_from(block.read(ni::SCHEME)?).ok()))
    }

    /// All rules that the interface goes by.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn schemes(&self) -> Result<SchemeList, EndpointError> {
        let mixed = self.info.mixed;
        self.window(self.info.ni_base, |block| {
            let default = 1_u32.checked_shl(block.read(ni::SCHEME)?).unwrap_or(0);
            Ok(SchemeList(default | if mixed { block.read(ni::SCHEMES_ON)? } else { 0 }))
        })
    }

    /// Messages that the interface can send by itself at once.
    #[must_use]
    pub const fn sending_contexts(&self) -> u32 {
        // Believe no number from a device.
        if self.info.sending_contexts > MessageId::CONTEXTS {
            MessageId::CONTEXTS
        } else {
            self.info.sending_contexts
        }
    }

    /// The message in context `index`; `None` if there is none.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn sending(&self, index: u32) -> Result<Option<SendingContext>, EndpointError> {
        if index >= self.sending_contexts() {
            return Ok(None);
        }
        self.window(self.info.sending_base, |block| read_context(block, index))
    }

    /// Contexts in use for sending, and transfers that the card has.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn sending_occupancy(&self) -> Result<(u32, u32), EndpointError> {
        if self.info.sending_contexts == 0 {
            return Ok((0, 0));
        }
        self.window(self.info.sending_base, |block| {
            Ok((block.read(sending::OCCUPANCY)?, block.read(sending::QUEUED)?))
        })
    }

    /// How long the card waits before it gives up what it holds.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn timeouts(&self) -> Result<ReceiveTimeouts, EndpointError> {
        self.window(self.info.ni_base, |block| {
            let micros = |register| Ok(Nanos::from_micros(block.read(register)?.into()));
            Ok(ReceiveTimeouts {
                registry: micros(ni::REGISTRY_TIMEOUT_US)?,
                escape: micros(ni::ESCAPE_TIMEOUT_US)?,
            })
        })
    }

    /// Valid entries of the receive registry, and the most there ever were.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn registry_occupancy(&self) -> Result<(u32, u32), EndpointError> {
        self.window(self.info.registry_base, |block| {
            Ok((block.read(registry::OCCUPANCY)?, block.read(registry::HIGH_WATER)?))
        })
    }

    /// Slot `index` of the escape channel; `None` if nothing waits there.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escaped(&self, index: u16) -> Result<Option<EscapeSlot>, EndpointError> {
        self.window(self.info.escape_base, |block| read_slot(block, index))
    }

    /// Used slots of the escape channel, and the most there ever were.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn escape_occupancy(&self) -> Result<(u32, u32), EndpointError> {
        self.window(self.info.escape_base, |block| {
            Ok((block.read(escape::OCCUPANCY)?, block.read(escape::HIGH_WATER)?))
        })
    }
}

impl Endpoint {
    /// The card's own windows onto the receiving side.
    #[must_use]
    pub const fn tables(&self) -> &ReceiveTables {
        &self.tables
    }

    /// Bytes of a segment of this endpoint's transfers at most (of a message, where the card sends): at the receiving card each makes two
    /// events, and a transfer one more.
    #[must_use]
    pub fn segment_size(&self) -> u32 {
        self.sender.segment_size()
    }

    /// Events that the card can keep for this host: [`EndpointOptions::event_entries`](super::EndpointOptions::event_entries), or as many
    /// as there is room for where they stay in card memory. Half of them is for arrivals: transfers to this node that ask for a notification
    /// are refused as "receiver not ready" while that half is full.
    #[must_use]
    pub const fn event_entries(&self) -> u32 {
        self.events.entries()
    }

    /// Compares the mirror with the card's registry and escape windows, entry by entry. Take the events first, and let nothing move
    /// meanwhile: the windows show the card as it is, the mirror as the events taken so far left it. What no event carries is not
    /// compared: [`fpga_protocol::mirror`] says what, and why.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn check_mirror(&self) -> Result<Vec<Difference>, EndpointError> {
        let mut differences = Vec::new();
        for index in 0..self.tables.registry_entries() {
            let entry = self.tables.entry(index)?;
            self.mirror.compare(index, &entry, |difference| differences.push(difference));
        }
        for index in 0..self.tables.escape_slots() {
            let packet = self.tables.escaped(index)?.map(|slot| slot.packet);
            self.mirror.compare_escaped(index, packet.as_ref(), |difference| differences.push(difference));
        }
        Ok(differences)
    }
}

fn read_slot(block: &Block, index: u16) -> Result<Option<EscapeSlot>, MmioError> {
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
    let age = Nanos::from_micros(block.read(escape::AGE_US)?.into());
    Ok(Some(EscapeSlot { index, packet, op, age }))
}

fn read_context(block: &Block, index: u32) -> Result<Option<SendingContext>, MmioError> {
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
        age: Nanos::from_micros(block.read(sending::AGE_US)?.into()),
    }))
}

fn read_entry(block: &Block, index: u16) -> Result<EntryView, MmioError> {
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
