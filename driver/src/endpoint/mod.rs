//! RDMA between cards: the host side.
//!
//! An [`Endpoint`] owns the resources that a card's network interface needs from the host: the sender (queues, segmentation, op table) if
//! the host sends, as in the registry scheme, or the list of transfers that the card sends by itself; one H2C channel for header blocks;
//! the CDMA chain that fills transmit windows; the event ring; and the mirror of the receive registry. It starts no thread: its owner calls
//! [`Endpoint::poll`], which reads no register. Each part has its own module. Opening, polling and the user's methods are in this module,
//! because their order matters.
//!
//! ```text
//! send() -> Sender -> Transmit -> header block, descriptors --H2C--> window, chain -> tail write -> CDMA -> commit -> packets
//! poll() <- completions, notifications <- events in host memory <- NI <- acknowledgements, arrivals
//! ```

mod chain;
mod completion;
mod error;
mod events;
mod handle;
pub mod inspect;
mod mismatch;
mod options;
mod peers;
mod random;
mod read;
mod region;
mod resync;
mod schemes;
mod segments;
mod sending;
mod transmit;
mod wait;

use fpga_pci::Waited;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::generated::ni as at;
use fpga_firmware::{Incarnation, NodeId};
use fpga_pci::{DmaBuffer, LogLimit, MmioError, QuarantineReason};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::{Mirror, MirrorError};
use fpga_protocol::scheme::commands::{CommandTable, Withdrawal};
use fpga_protocol::sender::{Command, Sender, TransferView};
use fpga_registers::CardAddr;

use crate::card::Card;
use crate::channel::{ChannelOptions, WaitOptions};
use crate::engine_interrupt::EngineInterrupt;
use crate::error::{At as _, CardPart, Error, ErrorPlace, TransferFailed};
use crate::ni::{Block, NiInfo};
use crate::range::CardRange;
use crate::shared::Shared;

pub use completion::{SendCompletion, SendTimeout};
pub use error::{EndpointError, SendError};
pub use events::Notification;
pub use fpga_firmware::generated::{Capabilities, NackReason, Scheme};
pub use fpga_firmware::{SegmentIndex, TransferId};
pub use fpga_protocol::scheme::tuning::Tuning;
pub use fpga_protocol::sender::{Notify as SendNotify, SendFailure, SendTicket};
pub use handle::{PendingRead, PendingSend, SharedEndpoint};
pub use inspect::EndpointCounters;
pub use mismatch::Mismatch;
pub use options::{EndpointOptions, SendOptions};
pub use peers::Peer;
pub use read::{ReadCompletion, ReadError, ReadFailure, ReadTicket, ReadableHandle, RemoteReadable};
pub use region::{RegionHandle, RemoteRegion};
pub use schemes::SchemeList;
pub use segments::SegmentArrival;

use events::EventRing;
use inspect::ReceiveTables;
use peers::Peers;
use random::random;
use read::Reads;
use resync::Resync;
use sending::SenderSet;
use transmit::TransmitPath;
use wait::IdleWait;

/// Number of bytes at the end of card memory that an endpoint reserves by default for its CDMA chain and, if the NI cannot push events, its
/// event ring.
pub const RESERVED_CARD_BYTES: u64 = 64 << 10;

/// Minimum default of the registry timeout: the give-up time of other nodes may be longer than that of this one.
const REGISTRY_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Maximum number of faults kept until they are taken; older ones are dropped.
const MAX_KEPT_FAULTS: usize = 256;

/// One card's end of the network. There is at most one per card.
///
/// Dropping it with transfers in progress ends them without completions, and logs a warning about unfinished work of its channel, because
/// receivers wait for that data. To end transfers in order, [`cancel`](Self::cancel) them and [`poll`](Self::poll) until the endpoint [is
/// idle](Self::is_idle).
///
/// It is `Send` and has one owner. [`SharedEndpoint`] is the variant for many threads and tasks.
#[derive(Debug)]
pub struct Endpoint {
    /// The event ring's interrupt. Dropped before the card, at which it masks the line.
    line: Option<EngineInterrupt>,
    sender: SenderSet,
    mirror: Mirror,
    resync: Resync,
    transmit: TransmitPath,
    events: EventRing,
    completions: VecDeque<SendCompletion>,
    notifications: VecDeque<Notification>,
    /// `None`: segment arrivals are not requested.
    segments: Option<VecDeque<SegmentArrival>>,
    faults: VecDeque<Event>,
    /// Limits of the log lines about faults that other nodes and the card's tables cause.
    fault_log: LogLimit,
    refusal_log: LogLimit,
    mirror_log: LogLimit,
    mirror_faults: VecDeque<MirrorError>,
    /// Keys of open regions, by memory window.
    regions: Vec<Option<u64>>,
    reads: Reads,
    peers: Peers,
    read_channel: Option<u8>,
    /// Required alignment of source addresses in bytes.
    source_alignment: u32,
    /// Minimum registry timeout that a receiver needs for this sender.
    min_registry_timeout: Duration,
    /// Time before which nothing is sent.
    quiet_until: Option<Nanos>,
    tables: ReceiveTables,
    ni: Block,
    info: NiInfo,
    scheme: Scheme,
    /// All active schemes.
    schemes: SchemeList,
    incarnation: Incarnation,
    counters: EndpointCounters,
    failed: Option<EndpointError>,
    card: Card,
    _taken: EndpointGuard,
}

/// Releases the endpoint after all its other parts are dropped.
#[derive(Debug)]
struct EndpointGuard(Arc<Shared>);

impl Drop for EndpointGuard {
    fn drop(&mut self) {
        self.0.release_endpoint();
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
        Self::assemble(card, options).at(|| card.shared.place_at(CardPart::Endpoint))
    }

    fn assemble(card: &Card, options: &EndpointOptions) -> Result<Self, EndpointError> {
        let (Some(info), Some(bar)) = (card.info().ni.clone(), card.user_bar()) else {
            return Err(EndpointError::NoInterface);
        };
        let incarnation = match options.incarnation {
            Some(number) => number,
            // Any 32 of the 64 random bits are sufficient. 0 is the NI's value after a hardware reset.
            None => CardAddr::new(random()?).to_low_high().0.max(1),
        };
        let incarnation = Incarnation::new(incarnation);
        let scheme = options.scheme;
        let unknown = || EndpointError::Scheme { scheme, known: SchemeList(info.schemes) };
        if !info.supports(scheme) {
            return Err(unknown());
        }
        let schemes = options::schemes(options);
        Self::check_schemes(schemes, &info)?;
        if schemes.contains(Scheme::Registry) && info.op_table_entries != 0 {
            return Err(EndpointError::OpTable { entries: info.op_table_entries });
        }
        let parameters = options::parameters(options).map_err(|scheme| EndpointError::Tuning { scheme })?;
        Self::check_limits(options, &info)?;
        let sender = Self::sending(options, &info, incarnation)?;
        options::check_source_alignment(options, &info).map_err(|(found, expected)| {
            EndpointError::Option { what: "the alignment of sources", found: found.into(), expected }
        })?;
        card.shared.take_endpoint().at(|| card.shared.place())?;
        let taken = EndpointGuard(Arc::clone(&card.shared));

        let small = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        let mut mirror = Mirror::new(small(info.registry_entries), small(info.escape_slots));
        mirror.track_masks(options.packet_events);
        let ni = Block::new(bar.clone(), info.ni_base);
        // A hardware reset takes longer than any packet stays in the network (PCIe: 100 ms), and sets this register to 0.
        let had_a_life = ni.read(at::INCARNATION)? != 0;
        ni.write(at::CONTROL, at::control::RESET)?;
        ni.write(at::INCARNATION, incarnation.get())?;
        // The reset keeps memory windows: this endpoint must not keep regions that an earlier owner of the card opened.
        region::close_all(&Block::new(bar.clone(), info.memory_base), info.memory_windows)?;

        // A receiver must wait longer for a silent sender than the sender waits for the receiver (docs/protocol.md 2.3).
        let usual = REGISTRY_TIMEOUT_MIN.max(options.give_up.saturating_mul(2));
        let remembered = options.registry_timeout.unwrap_or(usual);
        ni.write(at::REGISTRY_TIMEOUT_US, u32::try_from(remembered.as_micros()).unwrap_or(u32::MAX))?;
        // The reset also keeps settings.
        let escape = u32::try_from(options.escape_timeout.as_micros()).unwrap_or(u32::MAX);
        ni.write(at::ESCAPE_TIMEOUT_US, escape.max(1))?;

        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX).max(1);
        ni.write(at::GIVE_UP_US, micros(options.give_up))?;
        if schemes.has_messages() {
            let trip = u32::try_from(options.round_trip.as_nanos()).unwrap_or(u32::MAX).max(1);
            ni.write(at::ROUND_TRIP_NS, trip)?;
            ni.write(at::MESSAGE_PACKETS, options::message_packets(options, &info))?;
            for (register, value) in parameters {
                ni.write(register, value)?;
            }
        }
        // Overrides the choice of an earlier owner. A single scheme first: two schemes, of which one is not requested, may need more space
        // than there is.
        if info.mixed {
            ni.write(at::SCHEMES_ON, 0)?;
        }
        ni.write(at::SCHEME, scheme.value())?;
        if ni.read(at::SCHEME)? != scheme.value() {
            return Err(unknown());
        }
        if options.other_schemes != SchemeList::NONE && info.mixed {
            ni.write(at::SCHEMES_ON, options.other_schemes.0)?;
            if ni.read(at::SCHEMES_ON)? != options.other_schemes.0 {
                let reason = "which it has refused";
                return Err(EndpointError::Schemes { schemes, reason });
            }
        }
        // The read came after the reset: the state of the earlier incarnation in the card is gone, and its packets are in flight.
        let limits = options::sender_config(options, &info);
        let quiet_until =
            had_a_life.then(|| Nanos::new(card.shared.backend.now()).saturating_add(limits.packet_lifetime));

        let chain = options.chain.unwrap_or_else(|| {
            CardAddr::new(info.memory.last().get().saturating_sub(RESERVED_CARD_BYTES - 1) & !0xFFF)
        });
        let channel = options.channel.unwrap_or_else(|| card.info().xdma.h2c_channels.saturating_sub(1));
        let h2c = card.h2c_with(channel, ChannelOptions::default())?;
        let mut transmit = TransmitPath::new(card, &info, h2c.0, chain)?;
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
            line,
            sender,
            mirror,
            resync: Resync::default(),
            transmit,
            events,
            completions: VecDeque::with_capacity(64),
            notifications: VecDeque::with_capacity(64),
            segments: options.segment_arrivals.then(VecDeque::new),
            faults: VecDeque::new(),
            fault_log: LogLimit::new("faults of the network interface"),
            refusal_log: LogLimit::new("refused writes of other nodes"),
            mirror_log: LogLimit::new("the mirror of the receiving side"),
            mirror_faults: VecDeque::new(),
            regions: vec![None; info.memory_windows.min(region::MAX_WINDOWS) as usize],
            reads: Reads::default(),
            peers: Peers::default(),
            read_channel: options.read_channel,
            source_alignment: options.source_alignment.unwrap_or(1),
            min_registry_timeout: limits.min_registry_timeout().into(),
            quiet_until,
            tables: ReceiveTables::of(card).map_err(|error| error.kind)?,
            ni,
            info,
            scheme,
            schemes,
            incarnation,
            counters: EndpointCounters::default(),
            failed: None,
            card: card.clone(),
            _taken: taken,
        })
    }

    /// Checks that the NI can run all of these schemes at the same time.
    fn check_schemes(schemes: SchemeList, info: &NiInfo) -> Result<(), EndpointError> {
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

    /// Checks the capacity of the event ring and the registry timeout.
    fn check_limits(options: &EndpointOptions, info: &NiInfo) -> Result<(), EndpointError> {
        let refuse = |what, found: u64, expected| Err(EndpointError::Option { what, found, expected });
        let entries = EventRing::entries_of(info, options.event_entries);
        if !EventRing::is_size(entries) {
            let expected = "a power of two from 64 to 65536";
            return refuse("the number of event ring entries", entries.into(), expected);
        }
        if let Some(ops) = options.ops.filter(|ops| *ops > options::max_ops(options, info)) {
            let expected = "at most about a quarter of the entries of the event ring, which must have space for the answers to all of them (EndpointOptions::event_entries)";
            return refuse("the number of packets in flight", ops.into(), expected);
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
    ) -> Result<SenderSet, EndpointError> {
        let schemes = options::schemes(options);
        let card_sends = schemes.has_messages().then(|| {
            // Never more than the card's capacity, so that the card refuses none.
            let capacity = options::max_commands(options, info);
            CommandTable::new(capacity, info.packet_size_log2, options::message_packets(options, info))
        });
        if !schemes.contains(Scheme::Registry) {
            return Ok(SenderSet::new(None, card_sends, options.scheme));
        }
        let sender =
            Sender::new(options::sender_config(options, info), incarnation).map_err(EndpointError::Config)?;
        // A segment is sent from one window.
        let segment = sender.config().segment_size;
        if segment > info.windows.payload_size {
            return Err(EndpointError::Option {
                what: "the segment size",
                found: segment.into(),
                expected: "at most what a transmit window of the card holds",
            });
        }
        Ok(SenderSet::new(Some(sender), card_sends, options.scheme))
    }

    /// Returns this node's id on the network.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.info.node
    }

    /// Returns the number of this incarnation.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Returns the card memory that transfers may use: all of it except the part that the endpoint reserves.
    #[must_use]
    pub fn usable_memory(&self) -> CardRange {
        let memory = self.info.memory;
        let chain = self.transmit.chain();
        let length = chain.get().checked_sub(memory.start.get()).unwrap_or(memory.length).min(memory.length);
        CardRange::new(memory.start, length)
    }

    /// Starts a transfer of `length` bytes from this card's memory at `source` to `offset` bytes into `target`. It makes progress in
    /// [`poll`](Self::poll) and ends in exactly one completion. The source must not change until then, because a retransmission reads it
    /// again. A transfer of 0 bytes ends at once and sends nothing. A transfer to this node itself goes over the network like any other,
    /// and must not overlap its own source.
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was started.
    pub fn send(
        &mut self,
        source: CardAddr,
        target: &RemoteRegion,
        offset: u64,
        length: u64,
        options: SendOptions,
    ) -> Result<SendTicket, Error<SendError>> {
        self.submit(source, target, offset, length, options).at(|| self.place())
    }

    fn submit(
        &mut self,
        source: CardAddr,
        target: &RemoteRegion,
        offset: u64,
        length: u64,
        options: SendOptions,
    ) -> Result<SendTicket, SendError> {
        if !self.info.memory.contains(source, length) {
            return Err(SendError::SourceRange { start: source, length, memory: self.info.memory });
        }
        if !self.is_source(source) {
            return Err(SendError::SourceAlignment { start: source, alignment: self.source_alignment });
        }
        let fits = offset <= target.length && length <= target.length - offset;
        let Some(destination) = target.address.checked_add(offset).filter(|_| fits) else {
            return Err(SendError::TargetRange { node: target.node, offset, length, region: target.length });
        };
        let reaches = CardRange::new(destination, length);
        if target.node == self.info.node && CardRange::new(source, length).overlaps(reaches) {
            return Err(SendError::Overlap { source_start: source, destination, length });
        }
        self.check_peer(target.node, length, options.scheme)?;
        let now = self.time();
        let deadline = options.deadline.map(|span| now.saturating_add(span.into()));
        let command = Command {
            source,
            node: target.node,
            destination,
            length,
            key: target.key,
            notify: options.notify,
            deadline,
            priority: options.priority,
        };
        let submitted = self.sender.submit(now, command, options.scheme);
        submitted.map_err(SendError::Sender)
    }

    /// Returns whether the CDMA engine can send from `address`.
    fn is_source(&self, address: CardAddr) -> bool {
        address.is_aligned_to(self.source_alignment.into())
    }

    /// Withdraws a transfer; its completion reports this and comes with the next poll. Returns whether the transfer had not ended before.
    /// Packets already on the wire may still arrive. The receiving card keeps registry entries of a partly received transfer until it
    /// receives a later transfer of this endpoint, or for its registry timeout (2 s or more).
    pub fn cancel(&mut self, ticket: SendTicket) -> bool {
        let now = self.time();
        self.withdraw(now, ticket)
    }

    fn withdraw(&mut self, now: Nanos, ticket: SendTicket) -> bool {
        match self.sender.cancel(now, ticket) {
            Withdrawal::Ended => false,
            Withdrawal::AtHost => true,
            Withdrawal::Interface(number) => {
                // If the card does not accept the write, it is gone, which the next poll reports.
                let _ = self.ni.write(at::COMMAND_CANCEL, number);
                true
            }
        }
    }

    /// Returns the time on the clock that completions use for their start and end.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.time().into()
    }

    /// The same clock, for the protocol.
    fn time(&self) -> Nanos {
        Nanos::new(self.card.shared.backend.now())
    }

    /// Takes events, fills transmit windows and retransmits packets that are due. Returns the amount of work done; 0 means that there is
    /// nothing to do until the card acts.
    ///
    /// # Errors
    /// See [`EndpointError`]: the endpoint has failed; drop it and open another.
    pub fn poll(&mut self) -> Result<usize, Error<EndpointError>> {
        self.poll_once().at(|| self.place())
    }

    /// Place of the endpoint's errors.
    pub(super) fn place(&self) -> ErrorPlace {
        self.card.shared.place_at(CardPart::Endpoint)
    }

    fn poll_once(&mut self) -> Result<usize, EndpointError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.counters.turns += 1;
        self.step().inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn step(&mut self) -> Result<usize, EndpointError> {
        let now = self.time();
        let mut work = self.take_events(now)?;
        // After the events: an answer that has already arrived prevents the timeout, even after a long time without a poll.
        self.sender.handle_timeout(now);
        self.retry_queries(now)?;
        work += self.poll_reads(now)?;
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = None;
            work += self.transmit.fill_windows(now, &mut self.sender)?;
        }
        while let Some(completion) = self.sender.poll_completion() {
            let completion = SendCompletion::of(completion);
            self.peers.invalidate(&completion);
            if !self.take_internal(now, &completion)? {
                self.completions.push_back(completion);
            }
            work += 1;
        }
        Ok(work)
    }

    fn take_events(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        let (mut count, mut at_once) = (0, false);
        self.events.refresh()?;
        while let Some(event) = self.events.take()? {
            count += 1;
            if self.sender.handle_event(now, &event) {
                continue;
            }
            match event.kind {
                EventKind::WindowFree => self.transmit.window_free(event.index, now)?,
                EventKind::Hello => self.peers.answer(&event),
                EventKind::Notice => {
                    let notification = Notification::of(&event);
                    if !self.take_arrival(now, &notification)? {
                        self.counters.notifications += 1;
                        self.notifications.push_back(notification);
                    }
                }
                EventKind::Fault => {
                    self.counters.faults += 1 + u64::from(event.generation);
                    at_once = true;
                    if event.fault_reason() == Some(FaultReason::EventLost) {
                        // The lost events may include released windows and completed entries: credits and mirror stay wrong permanently.
                        return Err(self.events.overflowed(event.count));
                    }
                    let reason = event.fault_reason().map_or("unknown", FaultReason::name);
                    let (card, node) = (self.card.name(), event.node.get());
                    let (address, length) = (event.address, event.length);
                    let at = now.into();
                    if event.fault_reason() == Some(FaultReason::Violation) {
                        // For example, the region of the peer was closed just now, and the peer does not know it yet.
                        if self.refusal_log.permits(at) {
                            tracing::info!(card, node, %address, length, "a node tried to write where it may not, and was refused");
                        }
                    } else if self.fault_log.permits(at) {
                        tracing::warn!(card, reason, node, %address, length, "the network interface reports a fault: look at its fault log");
                    }
                    self.counters.faults_dropped += keep(&mut self.faults, event);
                }
                EventKind::Dropped => {
                    at_once = true;
                    self.resync.restart();
                    // Never an error: the event marks the mirror as stale.
                    let _ = self.mirror.handle_event(&event);
                }
                _ => {
                    if self.resync.is_resync_complete(self.events.taken()) {
                        self.mirror.end_resync();
                    }
                    self.note_segment(&event);
                    if let Err(error) = self.mirror.handle_event(&event) {
                        if self.mirror_log.permits(now.into()) {
                            tracing::warn!(card = self.card.name(), %error, "mirror of the receiving side");
                        }
                        self.counters.faults_dropped += keep(&mut self.mirror_faults, error);
                    }
                }
            }
        }
        if count > 0 {
            self.counters.events += count as u64;
            // The NI reports no further fault of the same reason before the first one is consumed, and no table event before a Dropped
            // event is.
            self.events.release(&self.ni, at_once)?;
        }
        if self.mirror.is_stale() {
            self.resynchronise()?;
        }
        Ok(count)
    }

    /// Returns the oldest completion that was not taken yet.
    #[must_use]
    pub fn next_completion(&mut self) -> Option<SendCompletion> {
        self.completions.pop_front()
    }

    /// Returns the oldest arrival that was not taken yet.
    #[must_use]
    pub fn next_notification(&mut self) -> Option<Notification> {
        self.notifications.pop_front()
    }

    /// Returns the oldest fault event of the NI that was not taken yet, of the latest 256. Its `generation` is the number of earlier faults
    /// of the same reason that have no event of their own.
    #[must_use]
    pub fn next_fault(&mut self) -> Option<Event> {
        self.faults.pop_front()
    }

    /// Relaxes in a polling loop: a spin-loop hint on hardware; lets a simulated card in this thread take a step.
    pub fn relax(&self) {
        self.card.shared.backend.relax();
    }

    /// Waits until the transfer has ended. Completions of other transfers remain available. After a short time without work this thread
    /// sleeps: until the card's interrupt, if interrupts were enabled before the endpoint was opened ([`Card::enable_interrupts`]),
    /// otherwise for short times. `timeout` is on the card's clock ([`Backend::clock`](fpga_pci::Backend::clock)); if that clock is
    /// virtual, on the wall clock as well ([`fpga_pci::Deadline`]).
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`] leaves the transfer in progress.
    pub fn wait(
        &mut self,
        ticket: SendTicket,
        timeout: Duration,
    ) -> Result<SendCompletion, Error<EndpointError>> {
        let late =
            |end: &Self| EndpointError::TimedOut { waited: Waited::of(&*end.card.shared.backend, timeout) };
        self.wait_until(timeout, late, |end| end.take_completion(ticket)).at(|| self.place())
    }

    /// Waits for the oldest arrival that was not taken yet; otherwise as [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`EndpointError::NoArrival`] after `timeout`; any other error means that the endpoint has failed.
    pub fn wait_notification(&mut self, timeout: Duration) -> Result<Notification, Error<EndpointError>> {
        let late =
            |end: &Self| EndpointError::NoArrival { waited: Waited::of(&*end.card.shared.backend, timeout) };
        self.wait_until(timeout, late, Self::next_notification).at(|| self.place())
    }

    /// Returns the transfer's completion as a future, without runtime or thread. Each poll drives the endpoint, lets a simulated card work,
    /// and requests another poll: the result appears in memory, and nothing signals it to a task. After a millisecond without progress,
    /// this thread sleeps in each poll for 50 us, which is the maximum delay of the executor's other tasks on this thread. Dropping the
    /// future leaves the transfer in progress. Several futures at the same time need a [`SharedEndpoint`].
    pub fn completion(
        &mut self,
        ticket: SendTicket,
    ) -> impl Future<Output = Result<SendCompletion, Error<EndpointError>>> + Send + '_ {
        let mut idle = IdleWait::from(self.time());
        core::future::poll_fn(move |context| {
            let polled = self.poll();
            if let Some(done) = self.take_completion(ticket) {
                return Poll::Ready(Ok(done));
            }
            match polled {
                Ok(0) => idle.pause_in_task(&*self.card.shared.backend),
                Ok(_) => idle = IdleWait::from(self.time()),
                Err(error) => return Poll::Ready(Err(error)),
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    fn take_completion(&mut self, ticket: SendTicket) -> Option<SendCompletion> {
        let position = self.completions.iter().position(|done| done.ticket == ticket)?;
        self.completions.remove(position)
    }

    /// Writes a buffer to this card's memory through the endpoint's own channel, for cards with a single H2C channel.
    ///
    /// # Errors
    /// As [`H2cChannel::write`](crate::H2cChannel::write).
    pub fn write(&mut self, buffer: DmaBuffer, to: CardAddr) -> Result<DmaBuffer, TransferFailed> {
        self.transmit.write(buffer, to, WaitOptions::default())
    }

    /// Returns the counters since the endpoint was opened.
    #[must_use]
    pub fn counters(&self) -> EndpointCounters {
        EndpointCounters {
            sender: self.sender.counters(),
            windows: self.transmit.filled(),
            chain_overruns: self.transmit.overruns(),
            reads_served: self.reads.served,
            reads_refused: self.reads.refused,
            ..self.counters
        }
    }

    /// Returns the sender, for listings of op table and queues; `None` if the card sends all packets.
    #[must_use]
    pub fn sender(&self) -> Option<&Sender> {
        self.sender.host()
    }

    /// Returns the default scheme of transfers.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns all active schemes of this node.
    #[must_use]
    pub const fn schemes(&self) -> SchemeList {
        self.schemes
    }

    /// Returns the transfers that have not ended, as far as this host knows.
    #[must_use]
    pub fn transfers(&self) -> Vec<TransferView> {
        self.sender.transfers()
    }

    /// Returns the mirror of the receive registry and the escape channel, which is built from events. If the card had to drop events
    /// because this host did not take them, the next poll resynchronises the mirror from the card's windows; until then it [is
    /// stale](Mirror::is_stale).
    #[must_use]
    pub const fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns the oldest event that contradicted earlier ones and was not taken yet, of the latest 256.
    #[must_use]
    pub fn next_mirror_fault(&mut self) -> Option<MirrorError> {
        self.mirror_faults.pop_front()
    }

    /// Returns whether nothing is in progress: no transfer, no read, no op, no window.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle() && self.transmit.is_idle() && self.reads.is_idle()
    }
}

/// Appends `item` and keeps the latest [`MAX_KEPT_FAULTS`]. Returns the number of items dropped.
fn keep<T>(queue: &mut VecDeque<T>, item: T) -> u64 {
    let full = queue.len() >= MAX_KEPT_FAULTS;
    if full {
        queue.pop_front();
    }
    queue.push_back(item);
    full.into()
}

impl Drop for Endpoint {
    /// Disables events before the ring's memory is dropped. The answer of the read arrives after every event in flight; without an answer,
    /// the memory is quarantined.
    fn drop(&mut self) {
        let pushing = match self.ni.write(at::CONTROL, 0).and_then(|()| self.ni.read(at::CONTROL)) {
            Ok(u32::MAX) => Some(QuarantineReason::DeviceGone),
            Err(error) if error.is_gone() => Some(QuarantineReason::DeviceGone),
            Ok(control) if control & at::control::EVENT_ENABLE == 0 => None,
            // A reset has disabled events.
            Err(MmioError::Stale { .. }) => None,
            Ok(_) | Err(_) => Some(QuarantineReason::IdleNotConfirmed),
        };
        self.events.close(pushing);
    }
}
