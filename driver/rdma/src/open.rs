//! Opening of an endpoint: checks of its options, reset and setup of the network interface.

use fpga_driver::errors::{Cause, CauseClass};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use fpga_firmware::Incarnation;
use fpga_firmware::generated::{PATHS_MAX, Scheme, ni as at};
use fpga_pci::{CardTiming, Clock, PciAddress};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::Mirror;
use fpga_protocol::scheme::commands::CommandTable;
use fpga_protocol::sender::Sender;
use fpga_registers::CardAddr;

use super::events::{self, EventRing};
use super::incarnation;
use super::peers::Peers;
use super::read::Reads;
use super::resync::Resync;
use super::segment_choice::SegmentChoice;
use super::sending::SenderSet;
use super::transmit::TransmitPath;
use super::windows::ReceiveWindows;
use super::{
    Endpoint, EndpointError, EndpointOptions, Health, Queues, RESERVED_CARD_BYTES, Receiving, SchemeList,
    Settings, Waits, link, options, region, wait,
};
use fpga_driver::errors::CardPart;
use fpga_driver::extension::At as _;
use fpga_driver::extension::RegisterBlock;
use fpga_driver::{Card, ChannelOptions, Error, NiInfo, WaitOptions};

/// Minimum default of the registry timeout: the give-up time of other nodes may be longer than that of this one.
const REGISTRY_TIMEOUT_MIN: Duration = Duration::from_secs(2);

impl Receiving {
    fn new(card: &Card, info: &NiInfo, options: &EndpointOptions) -> Result<Self, EndpointError> {
        let size = |what, found| u16::try_from(found).map_err(|_| EndpointError::Tables { what, found });
        let entries = size("registry entries", info.registry_entries)?;
        let mut mirror = Mirror::new(entries, size("slots of the escape channel", info.escape_slots)?);
        mirror.track_masks(options.packet_events);
        let windows = ReceiveWindows::of(card).ok_or(EndpointError::NoInterface)?;
        Ok(Self { mirror, resync: Resync::default(), windows })
    }
}

impl Queues {
    fn new(options: &EndpointOptions) -> Self {
        Self {
            completions: VecDeque::with_capacity(64),
            notifications: VecDeque::with_capacity(64),
            segments: options.segment_arrivals.then(VecDeque::new),
        }
    }
}

impl Endpoint {
    /// Opens the endpoint of `card` with default options.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn open(card: &Card) -> Result<Self, Error<EndpointError>> {
        Self::open_with(card, &EndpointOptions::default())
    }

    /// Opens the endpoint of `card`: resets the network interface, sets up events and the CDMA chain, and enables it.
    ///
    /// If the card has had an endpoint since its last hardware reset, nothing is sent for the first packet lifetime (10 ms): packets of the
    /// earlier endpoint may stay in the network that long, and regions of other nodes that are still open accept them. Transfers can be
    /// started at once, and wait.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn open_with(card: &Card, options: &EndpointOptions) -> Result<Self, Error<EndpointError>> {
        Self::assemble(card, options).at(|| card.place().of_part(CardPart::Endpoint))
    }

    fn assemble(card: &Card, options: &EndpointOptions) -> Result<Self, EndpointError> {
        let (Some(info), Some(bar)) = (card.info().ni.clone(), card.user_bar()) else {
            return Err(EndpointError::NoInterface);
        };
        let (scheme, schemes) = (options.scheme, options::schemes(options));
        Self::check_schemes(scheme, schemes, &info)?;
        if schemes.contains(Scheme::Registry) && info.op_table_entries != 0 {
            return Err(EndpointError::OpTable { entries: info.op_table_entries });
        }
        let parameters = options::parameters(options).map_err(|scheme| EndpointError::Tuning { scheme })?;
        Self::check_limits(options, &info)?;
        link::check(options, &info)?;
        let ni = RegisterBlock::new(bar.clone(), info.ni_base);
        // A hardware reset takes longer than any packet stays in the network (PCIe: 100 ms), and sets this register to 0.
        let former = Incarnation::new(ni.read(at::INCARNATION)?);
        let state_files = state_files(card, options);
        let incarnation = match options.incarnation {
            Some(number) => Incarnation::new(number),
            None => {
                let lasts = card.backend().clock() == Clock::Monotonic;
                incarnation::next(former, &state_files, lasts.then_some(|span| card.backend().pause(span)))
            }
        };
        let sender = Self::sending(options, &info, incarnation, card.backend().timing())?;
        options::check_source_alignment(options, &info).map_err(|(found, expected)| {
            EndpointError::Option { what: "the alignment of sources", found: found.into(), expected }
        })?;
        let taken = card.claim_network_interface()?;

        let receiving = Receiving::new(card, &info, options)?;
        let had_incarnation = former != Incarnation::new(0);
        ni.write(at::CONTROL, at::control::RESET)?;
        ni.write(at::INCARNATION, incarnation.get())?;
        // The reset keeps memory windows: this endpoint must not keep regions that an earlier owner of the card opened.
        region::close_all(&RegisterBlock::new(bar.clone(), info.memory_base), info.memory_windows)?;

        Self::configure(&ni, options, &info, parameters)?;
        // The read came after the reset: the state of the earlier incarnation in the card is gone, and its packets are in flight.
        let limits = options::sender_config(options, &info);
        let quiet_until =
            had_incarnation.then(|| Nanos::new(card.backend().now()).saturating_add(limits.packet_lifetime));

        let chain = options.chain.unwrap_or_else(|| default_chain(&info));
        let channel = options.channel.unwrap_or_else(|| card.info().xdma.h2c_channels.saturating_sub(1));
        let h2c = card.h2c_with(channel, ChannelOptions::default())?;
        let mut transmit = TransmitPath::new(card, &info, h2c, chain)?;
        if !info.event_push {
            // The ring in card memory may still hold events of an earlier endpoint, whose sequence numbers also began at 1.
            transmit.write(events::blank_ring(card)?, events::card_ring(chain), WaitOptions::default())?;
        }
        let events = EventRing::new(card, &info, &ni, options.event_entries, chain)?;
        let line = wait::event_line(card, &ni, options.event_line)?;
        let mut control = at::control::ENABLE | at::control::EVENT_ENABLE;
        if options.packet_events {
            control |= at::control::PACKET_EVENTS;
        }
        ni.write(at::CONTROL, control)?;
        // The card accepts packets from this write on.
        ni.flush(at::CONTROL)?;
        Ok(Self {
            waits: Waits { line, cancel: None, presence_checked: None },
            sender,
            receiving,
            transmit,
            events,
            queues: Queues::new(options),
            regions: vec![None; info.memory_windows.min(region::MAX_WINDOWS) as usize],
            reads: Reads::default(),
            peers: Peers::default(),
            quiet_until,
            next_poll: Nanos::ZERO,
            settings: Settings {
                read_channel: options.read_channel,
                source_alignment: options.source_alignment.unwrap_or(1),
                min_registry_timeout: limits.min_registry_timeout().into(),
                scheme,
                schemes,
                incarnation,
                link_feedback: options.link_feedback,
                state_files,
                info,
            },
            ni,
            health: Health::default(),
            card: card.clone(),
            _taken: taken,
        })
    }

    /// Writes timeouts, schemes and their parameters to the NI.
    fn configure(
        ni: &RegisterBlock,
        options: &EndpointOptions,
        info: &NiInfo,
        parameters: Vec<(u32, u32)>,
    ) -> Result<(), EndpointError> {
        let (scheme, schemes) = (options.scheme, options::schemes(options));
        // A receiver must wait longer for a silent sender than the sender waits for the receiver (docs/protocol.md 2.3).
        let usual = REGISTRY_TIMEOUT_MIN.max(options.effective_give_up().saturating_mul(2));
        let remembered = options.registry_timeout.unwrap_or(usual);
        ni.write(at::REGISTRY_TIMEOUT_US, u32::try_from(remembered.as_micros()).unwrap_or(u32::MAX))?;
        // The reset also keeps settings.
        let escape = u32::try_from(options.escape_timeout.as_micros()).unwrap_or(u32::MAX);
        ni.write(at::ESCAPE_TIMEOUT_US, escape.max(1))?;

        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX).max(1);
        ni.write(at::GIVE_UP_US, micros(options.effective_give_up()))?;
        if schemes.has_messages() {
            let trip = u32::try_from(options.round_trip.as_nanos()).unwrap_or(u32::MAX).max(1);
            ni.write(at::ROUND_TRIP_NS, trip)?;
            ni.write(at::MESSAGE_PACKETS, options::message_packets(options, info))?;
            ni.write(at::PATHS, options.paths.into())?;
            let window = if options.congestion { at::congestion::WINDOW } else { 0 };
            ni.write(at::CONGESTION, window)?;
            for (register, value) in parameters {
                ni.write(register, value)?;
            }
        }
        link::configure(ni, options, info)?;
        // Overrides the choice of an earlier owner. A single scheme first: two schemes, of which one is not requested, may need more space
        // than there is.
        if info.mixed {
            ni.write(at::SCHEMES_ON, 0)?;
        }
        ni.write(at::SCHEME, scheme.value())?;
        if ni.read(at::SCHEME)? != scheme.value() {
            return Err(EndpointError::Scheme { scheme, known: SchemeList(info.schemes) });
        }
        if options.other_schemes != SchemeList::NONE && info.mixed {
            ni.write(at::SCHEMES_ON, options.other_schemes.0)?;
            if ni.read(at::SCHEMES_ON)? != options.other_schemes.0 {
                let reason = "which it has refused";
                return Err(EndpointError::Schemes { schemes, reason });
            }
        }
        Ok(())
    }

    /// Checks that the NI can run the default scheme, and all of these schemes at the same time.
    fn check_schemes(scheme: Scheme, schemes: SchemeList, info: &NiInfo) -> Result<(), EndpointError> {
        if !info.supports(scheme) {
            return Err(EndpointError::Scheme { scheme, known: SchemeList(info.schemes) });
        }
        let refuse = |reason| Err(EndpointError::Schemes { schemes, reason });
        if schemes.0 & !info.schemes != 0 {
            let unknown = SchemeList(schemes.0 & !info.schemes).iter().next();
            return match unknown {
                Some(scheme) => {
                    let known = SchemeList(info.schemes);
                    Err(EndpointError::Scheme { scheme, known })
                }
                None => refuse("of which this software does not know all"),
            };
        }
        if schemes.0.is_power_of_two() {
            Ok(())
        } else if !info.mixed {
            refuse("but by one at a time")
        } else if schemes.contains(Scheme::Registry) && info.registry_entries < 2 {
            refuse("with one registry entry for all")
        } else {
            Ok(())
        }
    }

    /// Checks the capacity of the event ring, the incarnation and the registry timeout.
    fn check_limits(options: &EndpointOptions, info: &NiInfo) -> Result<(), EndpointError> {
        let refuse = |what, found: u64, expected| Err(EndpointError::Option { what, found, expected });
        let entries = EventRing::entries_of(info, options.event_entries);
        if !EventRing::is_size(entries) {
            let expected = "a power of two from 64 to 65536";
            return refuse("the number of event ring entries", entries.into(), expected);
        }
        if let Some(ops) = options.ops.filter(|ops| *ops > options::max_ops(options, info)) {
            let expected = "at most about a quarter of the entries of the event ring, which must have space for the answers to all of them";
            return refuse("the number of packets in flight", ops.into(), expected);
        }
        if !(1..=PATHS_MAX).contains(&options.paths) {
            return refuse("the number of paths", options.paths.into(), "1 to 256");
        }
        if options.incarnation == Some(0) {
            // Of an answer, 0 means "not given"; in the card's register, no incarnation since its hardware reset.
            return refuse("the incarnation", 0, "above 0, and later than every earlier one of this node");
        }
        let least = options::sender_config(options, info).min_registry_timeout();
        match options.registry_timeout {
            Some(timeout) if timeout.as_nanos() < least.get().into() => {
                let found = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
                let expected = "microseconds, 30 ms more than this endpoint takes to give up";
                refuse("the registry timeout", found, expected)
            }
            _ => Ok(()),
        }
    }

    fn sending(
        options: &EndpointOptions,
        info: &NiInfo,
        incarnation: Incarnation,
        timing: Option<CardTiming>,
    ) -> Result<SenderSet, EndpointError> {
        let config = options::sender_config(options, info);
        let segments = SegmentChoice::new(options, info, &config, timing);
        let schemes = options::schemes(options);
        let card_sends = schemes.has_messages().then(|| {
            // Never more than the card's capacity, so that the card refuses none.
            let capacity = options::max_commands(options, info);
            CommandTable::new(capacity, info.packet_size_log2, options::message_packets(options, info))
        });
        if !schemes.contains(Scheme::Registry) {
            return Ok(SenderSet::new(None, segments, card_sends, options.scheme));
        }
        let mut sender = Sender::new(config, incarnation)
            .map_err(|error| EndpointError::Config(Cause::new(CauseClass::Argument, None, error)))?;
        if let Some(feedback) = options.link_feedback {
            sender.control_flow(info.node, feedback.flow(options.round_trip));
        }
        // A segment is sent from one window.
        let segment = sender.config().segment_size;
        if segment > info.windows.payload_size {
            return Err(EndpointError::Option {
                what: "the segment size",
                found: segment.into(),
                expected: "at most what a transmit window of the card holds",
            });
        }
        Ok(SenderSet::new(Some(sender), segments, card_sends, options.scheme))
    }
}

/// Returns the default address of the CDMA chain: a page in the part of card memory that the endpoint reserves.
fn default_chain(info: &NiInfo) -> CardAddr {
    CardAddr::new(info.memory.last().get().saturating_sub(RESERVED_CARD_BYTES - 1) & !0xFFF)
}

/// Returns the candidates for the file with the last incarnation. Simulated cards have none by default: their runs leave no traces.
fn state_files(card: &Card, options: &EndpointOptions) -> Vec<PathBuf> {
    match &options.incarnation_file {
        Some(path) => vec![path.clone()],
        None if card.name().parse::<PciAddress>().is_ok() => incarnation::default_files(),
        None => Vec::new(),
    }
}
