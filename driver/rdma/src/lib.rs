//! Reliable RDMA between FPGA cards: the host side.
//!
//! An [`Endpoint`] owns the resources that a card's network interface needs from the host: the sender (queues, segmentation, op table) if
//! the host sends, as in the registry scheme, or the list of transfers that the card sends by itself; one H2C channel for header blocks;
//! the CDMA chain that fills transmit windows; the event ring; and the mirror of the receive registry. It starts no thread: its owner calls
//! [`Endpoint::poll`], which reads no register. Each part has its own module.
//!
//! ```text
//! send() -> Sender -> Transmit -> header block, descriptors --H2C--> window, chain -> tail write -> CDMA -> commit -> packets
//! poll() <- completions, notifications <- events in host memory <- NI <- acknowledgements, arrivals
//! ```

mod chain;
mod completion;
mod counters;
mod error;
mod events;
pub mod extension;
mod faults;
mod handle;
mod host_source;
mod incarnation;
mod link;
mod link_options;
mod mismatch;
mod open;
mod options;
mod peers;
mod poll;
mod random;
mod read;
mod region;
mod resync;
mod schemes;
mod segment_choice;
mod segments;
mod sending;
mod transmit;
mod wait;
mod windows;

use fpga_pci::Waited;
use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use fpga_firmware::generated::ni as at;
use fpga_firmware::{Incarnation, NodeId};
use fpga_pci::{DmaBuffer, MmioError, QuarantineReason};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::Mirror;
use fpga_protocol::scheme::commands::Withdrawal;
use fpga_protocol::sender::Command;
use fpga_registers::CardAddr;

use fpga_driver::errors::CardPart;
use fpga_driver::extension::At as _;
use fpga_driver::extension::RegisterBlock;
use fpga_driver::extension::{EngineInterrupt, InterfaceClaim};
use fpga_driver::{Cancellation, Card, CardRange, Error, ErrorPlace, NiInfo, TransferFailed, WaitOptions};

pub use completion::{SendCompletion, SendTimeout};
pub use counters::EndpointCounters;
pub use error::{EndpointError, SendError};
pub use events::Notification;
pub use fpga_firmware::generated::{NackReason, Scheme};
pub use fpga_firmware::{SegmentIndex, TransferId};
pub use fpga_protocol::sender::{Notify as SendNotify, SendFailure, SendTicket};
pub use handle::{PendingRead, PendingSend, SharedEndpoint};
pub use host_source::HostSource;

pub use link_options::LinkFeedback;
pub use mismatch::Mismatch;
pub use options::{EndpointOptions, SendOptions};
pub use peers::Peer;
pub use read::{ReadCompletion, ReadError, ReadFailure, ReadTicket, ReadableHandle, RemoteReadable};
pub use region::{RegionHandle, RemoteRegion};
pub use schemes::SchemeList;
pub use segments::SegmentArrival;

use events::EventRing;
use faults::Faults;
use peers::Peers;
use random::random;
use read::Reads;
use resync::Resync;
use sending::SenderSet;
use transmit::TransmitPath;
use wait::IdleWait;
use windows::ReceiveWindows;

/// Number of bytes at the end of card memory that an endpoint reserves by default for its CDMA chain and, if the NI cannot push events, its
/// event ring.
pub const RESERVED_CARD_BYTES: u64 = 64 << 10;

/// One card's end of the network. There is at most one per card.
///
/// Dropping it with transfers in progress ends them without completions, and logs a warning about unfinished work of its channel, because
/// receivers wait for that data. To end transfers in order, [`cancel`](Self::cancel) them and [`poll`](Self::poll) until the endpoint [is
/// idle](Self::is_idle).
///
/// It is `Send` and has one owner. [`SharedEndpoint`] is the variant for many threads and tasks.
#[derive(Debug)]
pub struct Endpoint {
    /// Dropped before the card, at which it masks the line.
    waits: Waits,
    sender: SenderSet,
    receiving: Receiving,
    transmit: TransmitPath,
    events: EventRing,
    queues: Queues,
    /// Keys of open regions, by memory window.
    regions: Vec<Option<u64>>,
    reads: Reads,
    peers: Peers,
    /// Time before which nothing is sent.
    quiet_until: Option<Nanos>,
    /// Time before which a poll finds no work unless an event has arrived; zero after every change by the program.
    next_poll: Nanos,
    settings: Settings,
    ni: RegisterBlock,
    health: Health,
    card: Card,
    /// Dropped after all other parts.
    _taken: InterfaceClaim,
}

/// Properties of the network interface, and options that are fixed while the endpoint is open.
#[derive(Debug)]
struct Settings {
    read_channel: Option<u8>,
    /// Required alignment of source addresses in bytes.
    source_alignment: u32,
    /// Minimum registry timeout that a receiver needs for this sender.
    min_registry_timeout: Duration,
    scheme: Scheme,
    /// All active schemes.
    schemes: SchemeList,
    incarnation: Incarnation,
    link_feedback: Option<LinkFeedback>,
    /// Candidates for the file with the last incarnation.
    state_files: Vec<std::path::PathBuf>,
    info: NiInfo,
}

/// State of waits.
#[derive(Debug)]
struct Waits {
    /// The event ring's interrupt.
    line: Option<EngineInterrupt>,
    /// Request that ends waits.
    cancel: Option<Cancellation>,
    /// Time of the last work, or of the last look whether the card is present.
    presence_checked: Option<Nanos>,
}

/// Counters, faults that were not taken yet, and the failure that ended the endpoint.
#[derive(Debug, Default)]
struct Health {
    counters: EndpointCounters,
    faults: Faults,
    failed: Option<EndpointError>,
}

/// Mirror of the card's receive tables, and the windows of the tables themselves.
#[derive(Debug)]
struct Receiving {
    mirror: Mirror,
    resync: Resync,
    windows: ReceiveWindows,
}

/// Results that were not taken yet.
#[derive(Debug)]
struct Queues {
    completions: VecDeque<SendCompletion>,
    notifications: VecDeque<Notification>,
    /// `None`: segment arrivals are not requested.
    segments: Option<VecDeque<SegmentArrival>>,
}

impl Endpoint {
    /// Returns this node's id on the network.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.settings.info.node
    }

    /// Returns the number of this incarnation.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.settings.incarnation
    }

    /// Returns the card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Returns the card memory that transfers may use: all of it except the part that the endpoint reserves.
    #[must_use]
    pub fn usable_memory(&self) -> CardRange {
        let memory = self.settings.info.memory;
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
        self.card.check_process()?;
        if !self.settings.info.memory.contains(source, length) {
            return Err(SendError::SourceRange { start: source, length, memory: self.settings.info.memory });
        }
        if !self.is_source(source) {
            return Err(SendError::SourceAlignment {
                start: source,
                alignment: self.settings.source_alignment,
            });
        }
        let destination = destination(target, offset, length)?;
        let reaches = CardRange::new(destination, length);
        if target.node == self.settings.info.node && CardRange::new(source, length).overlaps(reaches) {
            return Err(SendError::Overlap { source_start: source, destination, length });
        }
        self.submit_from(source, target, (offset, length), options)
    }

    /// Queues a transfer from a valid source.
    fn submit_from(
        &mut self,
        source: CardAddr,
        target: &RemoteRegion,
        (offset, length): (u64, u64),
        options: SendOptions,
    ) -> Result<SendTicket, SendError> {
        self.card.check_process()?;
        let destination = destination(target, offset, length)?;
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
        let mask = self.mask_of(target.node);
        self.next_poll = Nanos::ZERO;
        let submitted = self.sender.submit(now, command, &options, mask);
        submitted.map_err(SendError::of)
    }

    /// Returns whether the CDMA engine can send from `address`.
    fn is_source(&self, address: CardAddr) -> bool {
        address.is_aligned_to(self.settings.source_alignment.into())
    }

    /// Withdraws a transfer; its completion reports this and comes with the next poll. Returns whether the transfer had not ended before.
    /// Packets already on the wire may still arrive. The receiving card keeps registry entries of a partly received transfer until it
    /// receives a later transfer of this endpoint, or for its registry timeout (2 s or more).
    pub fn cancel(&mut self, ticket: SendTicket) -> bool {
        let now = self.time();
        self.card.check_process().is_ok() && self.withdraw(now, ticket)
    }

    fn withdraw(&mut self, now: Nanos, ticket: SendTicket) -> bool {
        self.next_poll = Nanos::ZERO;
        match self.sender.cancel(now, ticket) {
            Withdrawal::Ended => false,
            Withdrawal::AtHost => true,
            Withdrawal::Interface(number) => {
                // If the card does not accept the write, it is gone, which the next poll reports.
                let _ = self.ni.write(at::COMMAND_CANCEL, number);
                self.transmit.note_cancel(number);
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
        Nanos::new(self.card.backend().now())
    }

    /// Place of the endpoint's errors.
    pub(crate) fn place(&self) -> ErrorPlace {
        self.card.place().of_part(CardPart::Endpoint)
    }

    /// Returns the oldest completion that was not taken yet.
    #[must_use]
    pub fn next_completion(&mut self) -> Option<SendCompletion> {
        self.queues.completions.pop_front()
    }

    /// Returns the oldest arrival that was not taken yet.
    #[must_use]
    pub fn next_notification(&mut self) -> Option<Notification> {
        self.queues.notifications.pop_front()
    }

    /// Relaxes in a polling loop: a spin-loop hint on hardware; lets a simulated card in this thread take a step.
    pub fn relax(&self) {
        self.card.backend().relax();
    }

    /// Sets the request that ends this endpoint's waits with [`EndpointError::Cancelled`], within some milliseconds, also those of the
    /// [`SharedEndpoint`] that it becomes. Futures are dropped instead. Default: none.
    pub const fn set_cancellation(&mut self, cancel: Option<Cancellation>) {
        self.waits.cancel = cancel;
    }

    /// Returns an error if the program requests that waits end. For loops that poll the endpoint until something has happened.
    ///
    /// # Errors
    /// [`EndpointError::Cancelled`], with the time that the loop has taken.
    pub fn check_cancelled(&self, waited: Duration) -> Result<(), Error<EndpointError>> {
        if self.waits.cancel.is_some_and(|cancel| cancel.is_requested()) {
            let waited = Waited::of(&**self.card.backend(), waited);
            return Err(EndpointError::Cancelled { waited }).at(|| self.place());
        }
        Ok(())
    }

    /// Reads a register to find out whether the card is present. For loops that wait for something else, some times per second: an idle
    /// endpoint does not access the card.
    ///
    /// # Errors
    /// [`EndpointError::Cause`] if the card is gone.
    pub fn check_card(&self) -> Result<(), Error<EndpointError>> {
        self.read_identifier().at(|| self.place())
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
            |end: &Self| EndpointError::TimedOut { waited: Waited::of(&**end.card.backend(), timeout) };
        self.wait_until(timeout, late, |end| end.take_completion(ticket)).at(|| self.place())
    }

    /// Waits for the oldest arrival that was not taken yet; otherwise as [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`EndpointError::NoArrival`] after `timeout`; any other error means that the endpoint has failed.
    pub fn wait_notification(&mut self, timeout: Duration) -> Result<Notification, Error<EndpointError>> {
        let late =
            |end: &Self| EndpointError::NoArrival { waited: Waited::of(&**end.card.backend(), timeout) };
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
                Ok(0) => idle.pause_in_task(&**self.card.backend()),
                Ok(_) => idle = IdleWait::from(self.time()),
                Err(error) => return Poll::Ready(Err(error)),
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    fn take_completion(&mut self, ticket: SendTicket) -> Option<SendCompletion> {
        let position = self.queues.completions.iter().position(|done| done.ticket == ticket)?;
        self.queues.completions.remove(position)
    }

    /// Writes a buffer to this card's memory through the endpoint's own channel, for cards with a single H2C channel.
    ///
    /// # Errors
    /// As [`H2cChannel::write`](fpga_driver::H2cChannel::write).
    pub fn write(&mut self, buffer: DmaBuffer, to: CardAddr) -> Result<DmaBuffer, TransferFailed> {
        let wait = self
            .waits
            .cancel
            .map_or_else(WaitOptions::default, |cancel| WaitOptions::default().cancel(cancel));
        self.transmit.write(buffer, to, wait)
    }

    /// Returns the counters since the endpoint was opened.
    #[must_use]
    pub fn counters(&self) -> EndpointCounters {
        EndpointCounters {
            sender: self.sender.counters(),
            windows: self.transmit.filled(),
            chain_overruns: self.transmit.overruns(),
            reads_served: self.reads.responder.served,
            reads_refused: self.reads.responder.refused,
            ..self.health.counters
        }
    }

    /// Returns the default scheme of transfers.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.settings.scheme
    }

    /// Returns all active schemes of this node.
    #[must_use]
    pub const fn schemes(&self) -> SchemeList {
        self.settings.schemes
    }

    /// Returns whether nothing is in progress: no transfer, no read, no op, no window.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle() && self.transmit.is_idle() && self.reads.is_idle()
    }
}

impl Drop for Endpoint {
    /// Disables events before the ring's memory is dropped. The answer of the read arrives after every event in flight; without an answer,
    /// the memory is quarantined.
    fn drop(&mut self) {
        if self.card.check_process().is_err() {
            return;
        }
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

/// Returns the card address of `length` bytes at `offset` of a region.
fn destination(target: &RemoteRegion, offset: u64, length: u64) -> Result<CardAddr, SendError> {
    let fits = offset <= target.length && length <= target.length - offset;
    target.address.checked_add(offset).filter(|_| fits).ok_or(SendError::TargetRange {
        node: target.node,
        offset,
        length,
        region: target.length,
    })
}
