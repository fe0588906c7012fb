//! RDMA between cards: the host's half of it.
//!
//! An [`Endpoint`] owns what a card's network interface needs of the host: the sender (queues, segmentation, op table) where that is
//! the host's, as in the registry scheme, or the list of transfers that the card makes by itself; one
//! H2C channel for header blocks, the CDMA chain that fills transmit windows, the event ring, and the mirror of the receive
//! registry. It starts no thread: whoever holds it calls [`Endpoint::poll`], which reads no register. What belongs to one part of it
//! has a module of its own; opening, polling and what users call stand here together, because their order is what matters.
//!
//! ```text
//! send() -> Sender -> Transmit -> header block, descriptors --H2C--> window, chain -> tail write -> CDMA -> commit -> packets
//! poll() <- completions, notifications <- events in host memory <- NI <- acknowledgements, arrivals
//! ```

mod chain;
mod error;
mod events;
mod handle;
mod inspect;
mod options;
mod peers;
mod random;
mod read;
mod region;
mod resync;
mod segments;
mod sending;
mod transmit;
mod wait;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::generated::{Scheme, ni as at};
use fpga_firmware::{Incarnation, NodeId};
use fpga_pci::{DmaBuffer, MmioError, QuarantineReason};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::{Mirror, MirrorError};
use fpga_protocol::scheme::commands::{CommandTable, Withdrawal};
use fpga_protocol::sender::{Command, Sender, TransferView};
use fpga_registers::CardAddr;

use crate::card::Card;
use crate::channel::{ChannelOptions, WaitOptions};
use crate::engine_interrupt::EngineInterrupt;
use crate::error::TransferFailed;
use crate::name::CardName;
use crate::ni::{Block, NiInfo};
use crate::range::CardRange;
use crate::shared::Shared;

pub use error::{EndpointError, SchemeList, SendError};
pub use events::Notification;
pub use fpga_protocol::scheme::tuning::Tuning;
pub use fpga_protocol::sender::{
    Completion as SendCompletion, Notify as SendNotify, Ticket as SendTicket, TimeoutPolicy as SendTimeout,
};
pub use handle::{PendingRead, PendingSend, SharedEndpoint};
pub use inspect::{
    EndpointCounters, EscapeSlot, ReceiveCounters, ReceiveTables, ReceiveTimeouts, SendingContext,
};
pub use options::{EndpointOptions, SendOptions};
pub use peers::{Mismatch, Peer};
pub use read::{ReadCompletion, ReadError, ReadFailure, ReadTicket, ReadableHandle, RemoteReadable};
pub use region::{RegionHandle, RemoteRegion};
pub use segments::SegmentArrival;

use events::EventRing;
use peers::Peers;
use random::random;
use read::Reads;
use resync::Resync;
use sending::SenderSet;
use transmit::TransmitPath;
use wait::IdleWait;

/// Bytes at the end of card memory that an endpoint uses for its CDMA chain and, where the NI cannot push events, its event
/// ring, unless told otherwise.
pub const RESERVED_CARD_BYTES: u64 = 64 << 10;

/// Shortest time that a registry entry waits for its sender if nothing else is asked for: other nodes may be more patient than this one.
const REGISTRY_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Faults that are kept for whoever asks for them; older ones are dropped.
const MAX_KEPT_FAULTS: usize = 256;

/// One card's end of the network. One per card.
///
/// Dropped with transfers under way, it ends them without completions, and warns in the log of what its channel had not done:
/// somebody waits for those bytes. [`cancel`](Self::cancel) and [`poll`](Self::poll) until it [is idle](Self::is_idle) end them in
/// order.
///
/// `Send`, and used by whoever holds it; [`SharedEndpoint`] is the same for many threads and tasks.
#[derive(Debug)]
pub struct Endpoint {
    /// The event ring's interrupt. Before the card, which it masks it at.
    line: Option<EngineInterrupt>,
    sender: SenderSet,
    mirror: Mirror,
    resync: Resync,
    transmit: TransmitPath,
    events: EventRing,
    completions: VecDeque<SendCompletion>,
    notifications: VecDeque<Notification>,
    /// `None`: nobody wants to know.
    segments: Option<VecDeque<SegmentArrival>>,
    faults: VecDeque<Event>,
    mirror_faults: VecDeque<MirrorError>,
    /// The keys of open regions, by memory window.
    regions: Vec<Option<u64>>,
    reads: Reads,
    peers: Peers,
    read_channel: Option<u8>,
    /// What the addresses of sources have to be multiples of.
    source_alignment: u32,
    /// How long a node has to remember what this one has sent it.
    min_registry_timeout: Duration,
    /// Nothing is sent before.
    quiet_until: Option<Nanos>,
    tables: ReceiveTables,
    ni: Block,
    info: NiInfo,
    scheme: Scheme,
    /// All that are on.
    schemes: SchemeList,
    incarnation: Incarnation,
    counters: EndpointCounters,
    failed: Option<EndpointError>,
    card: Card,
    _taken: EndpointGuard,
}

/// Gives the endpoint back when everything else of it is gone.
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
    pub fn open(card: &Card) -> Result<Self, EndpointError> {
        Self::open_with(card, &EndpointOptions::default())
    }

    /// Opens the endpoint of `card`: resets the network interface, sets up events and the CDMA chain, and enables it.
    ///
    /// Where the card has had an endpoint since its last hardware reset, nothing is sent for a packet lifetime (10 ms) from then on:
    /// packets of that one may wander for so long, and regions of other nodes that are still open take them. Transfers can be
    /// started at once, and wait.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn open_with(card: &Card, options: &EndpointOptions) -> Result<Self, EndpointError> {
        let name = card.shared.name.clone();
        let (Some(info), Some(bar)) = (card.info().ni.clone(), card.user_bar()) else {
            return Err(EndpointError::NoInterface { card: name });
        };
        let incarnation = match options.incarnation {
            Some(number) => number,
            // Any 32 of the 64 random bits will do.
            // 0 is the interface's own after a hardware reset.
            None => CardAddr::new(random(&name)?).to_low_high().0.max(1),
        };
        let incarnation = Incarnation::new(incarnation);
        let scheme = options.scheme;
        let unknown =
            || EndpointError::Scheme { card: name.clone(), scheme, known: SchemeList(info.schemes) };
        if !info.supports(scheme) {
            return Err(unknown());
        }
        let schemes = options::schemes(options);
        Self::check_schemes(&name, schemes, &info)?;
        if schemes.contains(Scheme::Registry) && info.op_table_entries != 0 {
            return Err(EndpointError::OpTable { card: name, entries: info.op_table_entries });
        }
        let parameters = options::parameters(options)
            .map_err(|scheme| EndpointError::Tuning { card: name.clone(), scheme })?;
        Self::check_limits(&name, options, &info)?;
        let sender = Self::sending(&name, options, &info, incarnation)?;
        options::check_source_alignment(options, &info).map_err(|(found, expected)| {
            EndpointError::Option {
                card: name.clone(),
                what: "the alignment of sources",
                found: found.into(),
                expected,
            }
        })?;
        card.shared.take_endpoint()?;
        let taken = EndpointGuard(Arc::clone(&card.shared));

        let small = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        let mut mirror = Mirror::new(small(info.registry_entries), small(info.escape_slots));
        mirror.track_masks(options.packet_events);
        let ni = Block::new(bar.clone(), info.ni_base);
        let mmio = |source| EndpointError::Mmio { card: name.clone(), source };
        // A hardware reset takes longer than any packet wanders (PCIe: 100 ms), and leaves 0 here.
        let had_a_life = ni.read(at::INCARNATION).map_err(mmio)? != 0;
        ni.write(at::CONTROL, at::control::RESET).map_err(mmio)?;
        ni.write(at::INCARNATION, incarnation.get()).map_err(mmio)?;
        // The reset keeps memory windows: what an earlier owner of the card has opened, this one has not.
        region::close_all(&Block::new(bar.clone(), info.memory_base), info.memory_windows).map_err(mmio)?;

        // A receiver must wait longer for a silent sender than the sender waits for it (spec 2.2.7).
        let usual = REGISTRY_TIMEOUT_MIN.max(options.give_up.saturating_mul(2));
        let remembered = options.registry_timeout.unwrap_or(usual);
        ni.write(at::REGISTRY_TIMEOUT_US, u32::try_from(remembered.as_micros()).unwrap_or(u32::MAX))
            .map_err(mmio)?;
        // The reset keeps settings, too.
        let escape = u32::try_from(options.escape_timeout.as_micros()).unwrap_or(u32::MAX);
        ni.write(at::ESCAPE_TIMEOUT_US, escape.max(1)).map_err(mmio)?;

        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX).max(1);
        ni.write(at::GIVE_UP_US, micros(options.give_up)).map_err(mmio)?;
        if schemes.has_messages() {
            let trip = u32::try_from(options.round_trip.as_nanos()).unwrap_or(u32::MAX).max(1);
            ni.write(at::ROUND_TRIP_NS, trip).map_err(mmio)?;
            ni.write(at::MESSAGE_PACKETS, options::message_packets(options, &info)).map_err(mmio)?;
            for (register, value) in parameters {
                ni.write(register, value).map_err(mmio)?;
            }
        }
        // Whatever an earlier owner had chosen. One first: two that are not both asked for may be more than there is room for.
        if info.mixed {
            ni.write(at::SCHEMES_ON, 0).map_err(mmio)?;
        }
        ni.write(at::SCHEME, scheme.value()).map_err(mmio)?;
        if ni.read(at::SCHEME).map_err(mmio)? != scheme.value() {
            return Err(unknown());
        }
        if options.other_schemes != SchemeList::NONE && info.mixed {
            ni.write(at::SCHEMES_ON, options.other_schemes.0).map_err(mmio)?;
            if ni.read(at::SCHEMES_ON).map_err(mmio)? != options.other_schemes.0 {
                let reason = "which it has refused";
                return Err(EndpointError::Schemes { card: name, schemes, reason });
            }
        }
        // The read came behind the reset: what the former life had in the card is gone, and what it had sent is under way.
        let limits = options::sender_config(options, &info);
        let quiet_until = had_a_life
            .then(|| Nanos::new(card.shared.transport.now()).saturating_add(limits.packet_lifetime));

        let chain = options.chain.unwrap_or_else(|| {
            CardAddr::new(info.memory.last().get().saturating_sub(RESERVED_CARD_BYTES - 1) & !0xFFF)
        });
        let channel = options.channel.unwrap_or_else(|| card.info().xdma.h2c_channels.saturating_sub(1));
        let h2c = card.h2c_with(channel, ChannelOptions::default())?;
        let mut transmit = TransmitPath::new(card, &info, h2c.0, chain)?;
        if !info.event_push {
            // The ring in card memory may still hold events of an earlier endpoint, whose sequence numbers began at 1 too.
            transmit.write(events::blank_ring(card)?, events::card_ring(chain), WaitOptions::default())?;
        }
        let events = EventRing::new(card, &info, &ni, options.event_entries, chain)?;
        let line = wait::event_line(card, &ni, options.event_line)?;
        let mut control = at::control::ENABLE | at::control::EVENT_ENABLE;
        if options.packet_events {
            control |= at::control::PACKET_EVENTS;
        }
        ni.write(at::CONTROL, control).map_err(mmio)?;
        // From here on the card takes packets.
        ni.flush(at::CONTROL).map_err(mmio)?;
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
            mirror_faults: VecDeque::new(),
            regions: vec![None; info.memory_windows.min(region::MAX_WINDOWS) as usize],
            reads: Reads::default(),
            peers: Peers::default(),
            read_channel: options.read_channel,
            source_alignment: options.source_alignment.unwrap_or(1),
            min_registry_timeout: Duration::from_nanos(limits.min_registry_timeout().get()),
            quiet_until,
            tables: ReceiveTables::of(card)?,
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

    /// Whether the interface goes by all of these at once.
    fn check_schemes(card: &CardName, schemes: SchemeList, info: &NiInfo) -> Result<(), EndpointError> {
        let refuse = |reason| Err(EndpointError::Schemes { card: card.clone(), schemes, reason });
        if schemes.0 & !info.schemes != 0 {
            let unknown = SchemeList(schemes.0 & !info.schemes).iter().next();
            return match unknown {
                Some(scheme) => {
                    let known = SchemeList(info.schemes);
                    Err(EndpointError::Scheme { card: card.clone(), scheme, known })
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

    /// What the event ring has room for, and how long others are remembered.
    fn check_limits(card: &CardName, options: &EndpointOptions, info: &NiInfo) -> Result<(), EndpointError> {
        let refuse = |what, found: u64, expected| {
            Err(EndpointError::Option { card: card.clone(), what, found, expected })
        };
        let entries = EventRing::entries_of(info, options.event_entries);
        if !EventRing::is_size(entries) {
            let expected = "a power of two from 64 to 65536";
            return refuse("the number of event ring entries", entries.into(), expected);
        }
        if let Some(ops) = options.ops.filter(|ops| *ops > options::max_ops(options, info)) {
            let expected = "at most about a quarter of the entries of the event ring, where the answers to all of them must have room (EndpointOptions::event_entries)";
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
        card: &CardName,
        options: &EndpointOptions,
        info: &NiInfo,
        incarnation: Incarnation,
    ) -> Result<SenderSet, EndpointError> {
        let schemes = options::schemes(options);
        let card_sends = schemes.has_messages().then(|| {
            // Never more than the card has room for: so it refuses none.
            let capacity = options::max_commands(options, info);
            CommandTable::new(capacity, info.packet_size_log2, options::message_packets(options, info))
        });
        if !schemes.contains(Scheme::Registry) {
            return Ok(SenderSet::new(None, card_sends, options.scheme));
        }
        let sender = Sender::new(options::sender_config(options, info), incarnation)
            .map_err(|source| EndpointError::Config { card: card.clone(), source })?;
        // A segment is sent from one window.
        let segment = sender.config().segment_size;
        if segment > info.windows.payload_size {
            return Err(EndpointError::Option {
                card: card.clone(),
                what: "the segment size",
                found: segment.into(),
                expected: "at most what a transmit window of the card holds (`fpgactl info` shows it)",
            });
        }
        Ok(SenderSet::new(Some(sender), card_sends, options.scheme))
    }

    /// This node's id on the network.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.info.node
    }

    /// This life's number.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Card memory that transfers may use: all of it but what the endpoint keeps for itself.
    #[must_use]
    pub fn usable_memory(&self) -> CardRange {
        let memory = self.info.memory;
        let chain = self.transmit.chain();
        let length = chain.get().checked_sub(memory.start.get()).unwrap_or(memory.length).min(memory.length);
        CardRange::new(memory.start, length)
    }

    /// Starts a transfer of `length` bytes from this card's memory at `source` to `offset` bytes into `target`. It makes
    /// progress in [`poll`](Self::poll) and ends in exactly one completion. The source must not change until then: a resend
    /// reads it again. Transfers of no bytes end at once and send nothing; a transfer to this node itself goes over the network
    /// as any other, and must not overlap its own source.
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
    ) -> Result<SendTicket, SendError> {
        let card = || self.card.shared.name.clone();
        if !self.info.memory.contains(source, length) {
            return Err(SendError::SourceRange {
                card: card(),
                start: source,
                length,
                memory: self.info.memory,
            });
        }
        if !self.is_source(source) {
            return Err(SendError::SourceAlignment {
                card: card(),
                start: source,
                alignment: self.source_alignment,
            });
        }
        let fits = offset <= target.length && length <= target.length - offset;
        let Some(destination) = target.address.checked_add(offset).filter(|_| fits) else {
            return Err(SendError::TargetRange {
                card: card(),
                node: target.node,
                offset,
                length,
                region: target.length,
            });
        };
        let reaches = CardRange::new(destination, length);
        if target.node == self.info.node && CardRange::new(source, length).overlaps(reaches) {
            return Err(SendError::Overlap { card: card(), source_start: source, destination, length });
        }
        self.check_peer(target.node, length, options.scheme)?;
        let now = self.now();
        let deadline = options
            .deadline
            .map(|span| now.saturating_add(Nanos::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))));
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
        submitted.map_err(|source| SendError::Sender { card: card(), source })
    }

    /// Whether the copy engine can send from there.
    fn is_source(&self, address: CardAddr) -> bool {
        address.is_aligned_to(self.source_alignment.into())
    }

    /// Withdraws a transfer: its completion says so, and comes by the next poll. Returns whether it had not ended before.
    /// Packets already on the wire may still arrive. The receiving card keeps entries of its registry for what it has a part of, until
    /// it hears of a later transfer of this endpoint, or for its registry timeout (2 s or more).
    pub fn cancel(&mut self, ticket: SendTicket) -> bool {
        let now = self.now();
        self.withdraw(now, ticket)
    }

    fn withdraw(&mut self, now: Nanos, ticket: SendTicket) -> bool {
        match self.sender.cancel(now, ticket) {
            Withdrawal::Ended => false,
            Withdrawal::AtHost => true,
            Withdrawal::Interface(number) => {
                // A card that cannot be told has died, and the next poll says so.
                let _ = self.ni.write(at::COMMAND_CANCEL, number);
                true
            }
        }
    }

    /// The clock by which completions tell when they began and ended.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos::new(self.card.shared.transport.now())
    }

    /// Takes events, fills transmit windows, resends what is due. Returns how much there was to do: 0 means nothing until the
    /// card does something.
    ///
    /// # Errors
    /// See [`EndpointError`]: the endpoint cannot go on; drop it and open another.
    pub fn poll(&mut self) -> Result<usize, EndpointError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.counters.turns += 1;
        self.step().inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn step(&mut self) -> Result<usize, EndpointError> {
        let now = self.now();
        let mut work = self.take_events(now)?;
        // After the events: an answer that is already here is no time-out, however long nobody polled.
        self.sender.handle_timeout(now);
        self.retry_queries(now)?;
        work += self.poll_reads(now)?;
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = None;
            work += self.transmit.fill_windows(now, &mut self.sender)?;
        }
        while let Some(completion) = self.sender.poll_completion() {
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
                    let notification = Notification::from(&event);
                    if !self.take_arrival(now, &notification)? {
                        self.counters.notifications += 1;
                        self.notifications.push_back(notification);
                    }
                }
                EventKind::Fault => {
                    self.counters.faults += 1 + u64::from(event.generation);
                    at_once = true;
                    if event.fault_reason() == Some(FaultReason::EventLost) {
                        // Among them may be windows given back and entries completed: credits and mirror are wrong for good.
                        return Err(self.events.overflowed(event.count));
                    }
                    let reason = event.fault_reason().map_or("unknown", FaultReason::name);
                    let (card, node) = (self.card.name(), event.node.get());
                    let (address, length) = (event.address, event.length);
                    if event.fault_reason() == Some(FaultReason::Violation) {
                        // As of a peer that was let go just now, and has not heard of it.
                        tracing::info!(card, node, %address, length, "a node tried to write where it may not, and was refused");
                    } else {
                        tracing::warn!(card, reason, node, %address, length, "the network interface reports a fault: look at its fault log");
                    }
                    self.counters.faults_dropped += keep(&mut self.faults, event);
                }
                EventKind::Dropped => {
                    at_once = true;
                    self.resync.restart();
                    // Never an error: it makes the mirror stale.
                    let _ = self.mirror.handle_event(&event);
                }
                _ => {
                    if self.resync.is_resync_complete(self.events.taken()) {
                        self.mirror.end_resync();
                    }
                    self.note_segment(&event);
                    if let Err(error) = self.mirror.handle_event(&event) {
                        tracing::warn!(card = self.card.name(), %error, "mirror of the receiving side");
                        self.counters.faults_dropped += keep(&mut self.mirror_faults, error);
                    }
                }
            }
        }
        if count > 0 {
            self.counters.events += count as u64;
            // Before a fault is taken, the interface tells of no other one of its reason; before a Dropped event is, of no table.
            self.events.release(&self.ni, at_once)?;
        }
        if self.mirror.is_stale() {
            self.resynchronise()?;
        }
        Ok(count)
    }

    /// The oldest transfer that has ended and was not handed out.
    #[must_use]
    pub fn next_completion(&mut self) -> Option<SendCompletion> {
        self.completions.pop_front()
    }

    /// The oldest arrival that was not handed out.
    #[must_use]
    pub fn next_notification(&mut self) -> Option<Notification> {
        self.notifications.pop_front()
    }

    /// The oldest fault event of the NI that was not handed out, of the latest 256. `generation` says how many there were of its reason
    /// before it that have no event of their own.
    #[must_use]
    pub fn next_fault(&mut self) -> Option<Event> {
        self.faults.pop_front()
    }

    /// Lets the card work: to be called in a loop that polls.
    pub fn relax(&self) {
        self.card.shared.transport.relax();
    }

    /// Waits until the transfer has ended. Completions of other transfers stay to be taken. Where there is nothing to do for longer than
    /// a moment, this thread sleeps: until the card's interrupt, if interrupts were enabled before the endpoint was opened
    /// ([`Card::enable_interrupts`]); otherwise for short spans. `timeout` counts the card's clock
    /// ([`Backend::clock`](fpga_pci::Backend::clock)); where that is virtual, wall-clock time as well ([`fpga_pci::Deadline`]).
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`] leaves the transfer under way.
    pub fn wait(&mut self, ticket: SendTicket, timeout: Duration) -> Result<SendCompletion, EndpointError> {
        let late =
            |end: &Self| EndpointError::TimedOut { card: end.card.shared.name.clone(), waited: timeout };
        self.wait_until(timeout, late, |end| end.take_completion(ticket))
    }

    /// Waits for the oldest arrival that was not handed out; otherwise as [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`EndpointError::NoArrival`] after `timeout`; otherwise the endpoint cannot go on.
    pub fn wait_notification(&mut self, timeout: Duration) -> Result<Notification, EndpointError> {
        let late =
            |end: &Self| EndpointError::NoArrival { card: end.card.shared.name.clone(), waited: timeout };
        self.wait_until(timeout, late, Self::next_notification)
    }

    /// The transfer's end as a future: no runtime, no thread. Each poll drives the endpoint and lets the card work, and asks to be
    /// polled again: what is waited for is in memory, and nobody signals it to a task. Where nothing has happened for a millisecond, each
    /// poll takes a twentieth of a millisecond, in which this thread sleeps; an executor's other tasks on it wait for so long at most.
    /// Dropping the future leaves the transfer under way. Several at once need a [`SharedEndpoint`].
    pub fn completion(
        &mut self,
        ticket: SendTicket,
    ) -> impl Future<Output = Result<SendCompletion, EndpointError>> + Send + '_ {
        let mut idle = IdleWait::from(self.now());
        core::future::poll_fn(move |context| {
            let polled = self.poll();
            if let Some(done) = self.take_completion(ticket) {
                return Poll::Ready(Ok(done));
            }
            match polled {
                Ok(0) => idle.pause_in_task(&*self.card.shared.transport),
                Ok(_) => idle = IdleWait::from(self.now()),
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

    /// Writes a buffer to this card's memory through the endpoint's own channel: for cards with one H2C channel.
    ///
    /// # Errors
    /// As [`H2cChannel::write`](crate::H2cChannel::write).
    pub fn write(&mut self, buffer: DmaBuffer, to: CardAddr) -> Result<DmaBuffer, TransferFailed> {
        self.transmit.write(buffer, to, WaitOptions::default())
    }

    /// Counts since the endpoint was opened.
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

    /// The sender, for listings of op table and queues; `None` where the card makes all packets.
    #[must_use]
    pub fn sender(&self) -> Option<&Sender> {
        self.sender.host()
    }

    /// The rules of transfers that name none.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// All rules that this node goes by.
    #[must_use]
    pub const fn schemes(&self) -> SchemeList {
        self.schemes
    }

    /// The transfers that have not ended, as far as this host knows.
    #[must_use]
    pub fn transfers(&self) -> Vec<TransferView> {
        self.sender.transfers()
    }

    /// The mirror of the receive registry and the escape channel, from events alone. Where the card had to drop events because this host
    /// did not take them, the next poll reads it anew from the card's windows; until then it [is stale](Mirror::is_stale).
    #[must_use]
    pub const fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The oldest event that contradicted those before it and was not handed out, of the latest 256.
    #[must_use]
    pub fn next_mirror_fault(&mut self) -> Option<MirrorError> {
        self.mirror_faults.pop_front()
    }

    /// Whether nothing is under way: no transfer, no read, no op, no window.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle() && self.transmit.is_idle() && self.reads.is_idle()
    }
}

/// Keeps the latest. Returns how many were dropped for it.
fn keep<T>(queue: &mut VecDeque<T>, item: T) -> u64 {
    let full = queue.len() >= MAX_KEPT_FAULTS;
    if full {
        queue.pop_front();
    }
    queue.push_back(item);
    full.into()
}

impl Drop for Endpoint {
    /// Switches events off before the ring's memory goes. The read's answer comes behind every event already on its way; without
    /// one, the memory is kept out of use.
    fn drop(&mut self) {
        let pushing = match self.ni.write(at::CONTROL, 0).and_then(|()| self.ni.read(at::CONTROL)) {
            Ok(u32::MAX) => Some(QuarantineReason::DeviceGone),
            Err(error) if error.is_gone() => Some(QuarantineReason::DeviceGone),
            Ok(control) if control & at::control::EVENT_ENABLE == 0 => None,
            // A reset has switched it off.
            Err(MmioError::Stale { .. }) => None,
            Ok(_) | Err(_) => Some(QuarantineReason::IdleNotConfirmed),
        };
        self.events.close(pushing);
    }
}
