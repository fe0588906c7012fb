//! Inspection of a card's network interface and of an endpoint: counters and receive tables of the card, read from its shadow windows, and
//! the state of the protocol engine ([`Endpoint::sender`], [`Endpoint::mirror`]), which has times as [`Nanos`].

use std::time::Duration;

use fpga_firmware::generated::{Scheme, counters, escape, ni, rates, registry, sending};
use fpga_firmware::{MessageId, NodeId, OpNumber, TransferId};
use fpga_pci::MmioError;
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow::FlowControl;
use fpga_registers::{BarOffset, CardAddr};

pub use fpga_protocol::feedback::flow::{FULL as FULL_RATE, RateView};
pub use fpga_protocol::mirror::{Difference, EscapedPacket, Mirror};
pub use fpga_protocol::receiver::EntryView;
pub use fpga_protocol::sender::{Sender, TransferView};

use fpga_driver::errors::CardPart;
use fpga_driver::extension::At as _;
use fpga_driver::extension::RegisterBlock;
use fpga_driver::{Card, Error, NiInfo};
use fpga_rdma::extension::ReceiveWindows;
use fpga_rdma::{Endpoint, EndpointError, SchemeList};

/// Maximum number of entries of a card's table of rates that are read.
const MAX_RATE_ENTRIES: u32 = 4096;

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
    /// Packets whose payload a switch had cut off.
    trimmed = TRIMMED;
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
    windows: ReceiveWindows,
}

impl ReceiveTables {
    /// Opens the tables of `card`.
    ///
    /// # Errors
    /// [`EndpointError::NoInterface`].
    pub fn of(card: &Card) -> Result<Self, Error<EndpointError>> {
        let windows = ReceiveWindows::of(card).ok_or(EndpointError::NoInterface);
        let windows = windows.at(|| card.place().of_part(CardPart::Endpoint))?;
        Ok(Self { card: card.clone(), windows })
    }

    const fn info(&self) -> &NiInfo {
        self.windows.info()
    }

    fn window<T>(
        &self,
        base: BarOffset,
        read: impl FnOnce(&RegisterBlock) -> Result<T, MmioError>,
    ) -> Result<T, Error<EndpointError>> {
        self.at(read(&self.windows.block(base)))
    }

    fn at<T>(&self, read: Result<T, MmioError>) -> Result<T, Error<EndpointError>> {
        read.map_err(EndpointError::from).at(|| self.card.place().of_part(CardPart::Endpoint))
    }

    /// Returns the number of entries of the registry.
    #[must_use]
    pub fn registry_entries(&self) -> u16 {
        self.windows.registry_entries()
    }

    /// Returns the number of slots of the escape channel.
    #[must_use]
    pub fn escape_slots(&self) -> u16 {
        self.windows.escape_slots()
    }

    /// Reads the card's counters.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn counters(&self) -> Result<ReceiveCounters, Error<EndpointError>> {
        self.window(self.info().counters_base, ReceiveCounters::read)
    }

    /// Reads entry `index` of the receive registry.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn entry(&self, index: u16) -> Result<EntryView, Error<EndpointError>> {
        self.at(self.windows.entry(index))
    }

    /// Reads the NI's default scheme; `None` if this software does not know it.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn scheme(&self) -> Result<Option<Scheme>, Error<EndpointError>> {
        self.window(self.info().ni_base, |block| Ok(Scheme::try_from(block.read(ni::SCHEME)?).ok()))
    }

    /// Reads all active schemes of the NI.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn schemes(&self) -> Result<SchemeList, Error<EndpointError>> {
        let mixed = self.info().mixed;
        self.window(self.info().ni_base, |block| {
            let default = 1_u32.checked_shl(block.read(ni::SCHEME)?).unwrap_or(0);
            Ok(SchemeList(default | if mixed { block.read(ni::SCHEMES_ON)? } else { 0 }))
        })
    }

    /// Returns the number of messages that the NI can send at the same time.
    #[must_use]
    pub const fn sending_contexts(&self) -> u32 {
        // Numbers from a device are not trusted.
        if self.info().sending_contexts > MessageId::CONTEXTS {
            MessageId::CONTEXTS
        } else {
            self.info().sending_contexts
        }
    }

    /// Reads the message in context `index`; `None` if the context is free.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn sending(&self, index: u32) -> Result<Option<SendingContext>, Error<EndpointError>> {
        if index >= self.sending_contexts() {
            return Ok(None);
        }
        self.window(self.info().sending_base, |block| read_context(block, index))
    }

    /// Reads the number of sending contexts in use, and the number of transfers that the card holds.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn sending_occupancy(&self) -> Result<(u32, u32), Error<EndpointError>> {
        if self.info().sending_contexts == 0 {
            return Ok((0, 0));
        }
        self.window(self.info().sending_base, |block| {
            Ok((block.read(sending::OCCUPANCY)?, block.read(sending::QUEUED)?))
        })
    }

    /// Reads the rates of the card's message sender towards receivers; empty without link feedback. Those that [are
    /// controlled](RateView::is_controlled) are the controlled list. Those of the host are in
    /// [`Inspect::rates`].
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn rates(&self) -> Result<Vec<RateView>, Error<EndpointError>> {
        // A number from a device is not trusted.
        let entries = self.info().rate_entries.min(MAX_RATE_ENTRIES);
        if entries == 0 {
            return Ok(Vec::new());
        }
        self.window(self.info().rates_base, |block| {
            let valid = block.read(rates::OCCUPANCY)?;
            let all = (0..if valid == 0 { 0 } else { entries }).map(|index| read_rate(block, index));
            all.filter_map(Result::transpose).collect()
        })
    }

    /// Returns whether the NI takes part in link feedback now.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn link_feedback(&self) -> Result<bool, Error<EndpointError>> {
        if !self.info().link_feedback {
            return Ok(false);
        }
        self.window(self.info().ni_base, |block| {
            Ok(block.read(ni::LINK_CONTROL)? & ni::link_control::ENABLE != 0)
        })
    }

    /// Reads the time that a registry entry, or a context, waits for its sender's next packet. Then the card releases it.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn registry_timeout(&self) -> Result<Duration, Error<EndpointError>> {
        self.timeout(ni::REGISTRY_TIMEOUT_US)
    }

    /// Reads the time that a packet in the escape channel waits for the start packet of its segment. Then the card drops it.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn escape_timeout(&self) -> Result<Duration, Error<EndpointError>> {
        self.timeout(ni::ESCAPE_TIMEOUT_US)
    }

    fn timeout(&self, register: u32) -> Result<Duration, Error<EndpointError>> {
        self.window(self.info().ni_base, |block| Ok(Duration::from_micros(block.read(register)?.into())))
    }

    /// Reads the number of valid entries of the receive registry, and its maximum so far.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn registry_occupancy(&self) -> Result<(u32, u32), Error<EndpointError>> {
        self.window(self.info().registry_base, |block| {
            Ok((block.read(registry::OCCUPANCY)?, block.read(registry::HIGH_WATER)?))
        })
    }

    /// Reads slot `index` of the escape channel; `None` if the slot is free.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn escaped(&self, index: u16) -> Result<Option<EscapeSlot>, Error<EndpointError>> {
        let found = self.at(self.windows.escaped(index))?;
        let slot = found.map(|(packet, age)| {
            // The window still shows the slot.
            let op = self.window(self.info().escape_base, |block| block.read(escape::OP))?;
            Ok(EscapeSlot { index, packet, op: OpNumber::new(op), age })
        });
        slot.transpose()
    }

    /// Reads the number of used slots of the escape channel, and its maximum so far.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn escape_occupancy(&self) -> Result<(u32, u32), Error<EndpointError>> {
        self.window(self.info().escape_base, |block| {
            Ok((block.read(escape::OCCUPANCY)?, block.read(escape::HIGH_WATER)?))
        })
    }
}

/// Tables and rates of an open endpoint.
pub trait Inspect {
    /// Returns the tables of the card's network interface.
    fn tables(&self) -> ReceiveTables;

    /// Returns the rates of this host's sender towards receivers, in the registry scheme; empty without link feedback. Those of the card's
    /// sender are in [`ReceiveTables::rates`].
    fn rates(&self) -> Vec<RateView>;

    /// Compares the mirror with the card's registry and escape windows, entry by entry. Take all events first, and let nothing arrive
    /// meanwhile: the windows show the card's current state, the mirror the state after the events taken so far. State that no event
    /// carries is not compared; see [`fpga_protocol::mirror`].
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    fn check_mirror(&self) -> Result<Vec<Difference>, Error<EndpointError>>;
}
impl Inspect for Endpoint {
    fn tables(&self) -> ReceiveTables {
        ReceiveTables { card: self.card().clone(), windows: self.windows().clone() }
    }

    fn rates(&self) -> Vec<RateView> {
        self.sender().and_then(Sender::flow).into_iter().flat_map(FlowControl::receivers).collect()
    }

    fn check_mirror(&self) -> Result<Vec<Difference>, Error<EndpointError>> {
        let (tables, mut differences) = (self.tables(), Vec::new());
        for index in 0..tables.registry_entries() {
            self.mirror().compare(index, &tables.entry(index)?, |difference| differences.push(difference));
        }
        for index in 0..tables.escape_slots() {
            let packet = tables.escaped(index)?.map(|slot| slot.packet);
            self.mirror().compare_escaped(index, packet.as_ref(), |difference| differences.push(difference));
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
