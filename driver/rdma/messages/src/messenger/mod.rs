//! The messenger: its state, and the requests of the application.
//!
//! | Module | |
//! |---|---|
//! | `outgoing` | records, parts and doorbells: staging, H2C, transfers of the endpoint |
//! | `incoming` | arrivals: doorbells, copies to host memory, records in order |
//! | `session` | hello, keepalive, failures |
//! | `messages` | messages and receives |
//! | `access` | writes, reads and atomic operations |
//! | `large` | data in parts: landing slots |
//! | `direct` | ends of operations, and direct access to their memory |

mod access;
mod direct;
mod incoming;
mod large;
mod messages;
mod outgoing;
mod session;

use crate::address::{Address, PeerId};
use crate::card::CardSide;
use crate::completion::{Completion, CompletionKind, Failure};
use crate::error::{MessengerError, card_error};
use crate::inbound::Inbound;
use crate::layout::{EAGER_UNIT, HELLO_KEY, MAX_EAGER};
use crate::matching::{Matched, Matching};
use crate::operation::{Local, Operation, OperationId, Operations, Role};
use crate::options::MessengerOptions;
use crate::peer::{Peer, Peers, Session};
use crate::region::Regions;
use crate::request::{AtomicUnit, CompleteWhen, HostMemory};
use crate::staging::Staging;
use crate::wire::Header;
use fpga_driver::NodeId;
use fpga_rdma::SendTicket;
use outgoing::{InFlight, Loading};
use std::collections::{HashMap, VecDeque};
#[cfg(feature = "sim")]
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of bytes of an injected operation.
pub const MAX_INJECT: u64 = 3968;
const _: () = assert!(MAX_INJECT <= MAX_EAGER, "injected data travels with its record");
/// Maximum sleep while something is in progress: the endpoint's timers need it.
const BUSY_SLEEP: Duration = Duration::from_micros(200);
/// Maximum sleep otherwise: keepalive doorbells need it.
#[cfg(feature = "sim")]
const IDLE_SLEEP: Duration = Duration::from_millis(100);
/// Time after a peer's failure during which requests to it fail at once. Later requests start a new session.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of steps of one call of [`Messenger::progress`].
const MAX_STEPS: u32 = 16;
/// Time without work after which the CPU is yielded.
const YIELD_AFTER: Duration = Duration::from_micros(10);
/// Maximum number of records that wait for one peer.
const MAX_QUEUED: usize = 4096;

/// Reason why a request is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// A queue is full: call [`Messenger::progress`] and try again.
    #[error("the queue to the peer is full: take completions, and try again")]
    Full,
    /// The peer has not been added.
    #[error("peer {} is not known: add its address first", .peer.0)]
    UnknownPeer {
        /// The peer.
        peer: PeerId,
    },
    /// The request is invalid.
    #[error("{text}")]
    Invalid {
        /// Description.
        text: &'static str,
    },
    /// The peer or the card has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Endpoint for messages with tags and for access to registered host memory. It owns its card.
///
/// It starts no thread: [`progress`](Self::progress) advances all operations, including those that peers request.
pub struct Messenger {
    memory: Arc<dyn HostMemory>,
    atomics: Arc<dyn AtomicUnit>,
    regions: Arc<Regions>,
    side: CardSide,
    staging: Staging,
    loading: VecDeque<Loading>,
    in_flight: HashMap<SendTicket, InFlight>,
    inbound: Inbound,
    peers: Peers,
    by_node: HashMap<NodeId, PeerId>,
    /// Peers that own the areas of this side, by area.
    areas: Vec<PeerId>,
    /// Whether the card had no memory window for a peer, and none was closed since.
    has_no_window: bool,
    /// Peers for which records or doorbells wait.
    peers_to_flush: VecDeque<PeerId>,
    operations: Operations,
    /// Operations with parts to send.
    sending_parts: VecDeque<OperationId>,
    matching: Matching,
    /// Large messages that have matched while all operations were in use.
    postponed: VecDeque<(PeerId, Header, Matched)>,
    closing: direct::Closing,
    completions: VecDeque<Completion>,
    failed: Option<Failure>,
    give_up: Duration,
    /// Credit of each peer for messages that match no receive, in units of [`EAGER_UNIT`].
    eager_limit: u32,
    reports_access: bool,
    now: Duration,
    /// Time of the last work.
    last_work: Duration,
    next_tick: Duration,
    /// Time at which sessions with the peers from which receives wait are checked next.
    next_source_check: Duration,
    /// Scratch memory of this check.
    sources: Vec<PeerId>,
    /// Time of the next check for peers whose process has ended.
    #[cfg(feature = "sim")]
    next_presence_check: Duration,
    /// State of the random choice of hello slots.
    random: u64,
    scratch: Vec<u8>,
    /// Buffers of sent data, for reuse.
    spare: Vec<Vec<u8>>,
}

impl core::fmt::Debug for Messenger {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Messenger")
            .field("address", &self.side.address)
            .field("peers", &self.peers.len())
            .field("operations", &self.operations.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Messenger {
    /// Opens the card and its endpoint. `regions` may be shared with other messengers.
    ///
    /// # Errors
    /// [`MessengerError`].
    pub fn open(
        options: &MessengerOptions,
        memory: Arc<dyn HostMemory>,
        atomics: Arc<dyn AtomicUnit>,
        regions: Arc<Regions>,
    ) -> Result<Self, MessengerError> {
        let mut side = CardSide::open(options)?;
        let hello = side.layout.hello();
        side.endpoint.open_region_with_key(NodeId::ANY, hello, HELLO_KEY).map_err(card_error)?;
        let now = side.endpoint.now();
        let random =
            u64::from(side.endpoint.node().get()) << 32 | u64::from(side.endpoint.incarnation().get()) | 1;
        Ok(Self {
            memory,
            atomics,
            regions,
            side,
            staging: Staging::new(),
            loading: VecDeque::new(),
            in_flight: HashMap::new(),
            inbound: Inbound::default(),
            peers: Peers::default(),
            by_node: HashMap::new(),
            areas: Vec::new(),
            has_no_window: false,
            peers_to_flush: VecDeque::new(),
            operations: Operations::default(),
            sending_parts: VecDeque::new(),
            matching: Matching::default(),
            postponed: VecDeque::new(),
            closing: VecDeque::new(),
            completions: VecDeque::new(),
            failed: None,
            give_up: options.give_up,
            eager_limit: u32::try_from(options.unexpected / EAGER_UNIT).unwrap_or(u32::MAX),
            reports_access: options.reports_access,
            now,
            last_work: now,
            next_tick: now,
            next_source_check: now,
            #[cfg(feature = "sim")]
            next_presence_check: now,
            sources: Vec::with_capacity(1024),
            random,
            scratch: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Returns the address of this messenger.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.side.address
    }

    /// Adds a peer. A peer that was added before keeps its number.
    ///
    /// # Errors
    /// [`MessengerError::NoRoute`], [`MessengerError::SameNode`].
    pub fn add_peer(&mut self, address: Address) -> Result<PeerId, MessengerError> {
        let own = self.side.address;
        let id = self.peer_of(address.node());
        match self.peers[id].address {
            Some(known) if known == address => return Ok(id),
            Some(other) => return Err(MessengerError::SameNode { address, other }),
            None => {}
        }
        if !self.locate(address) {
            return Err(MessengerError::NoRoute { address, own });
        }
        let peer = &mut self.peers[id];
        peer.address = Some(address);
        peer.name = address.to_string().into();
        Ok(id)
    }

    fn locate(&self, address: Address) -> bool {
        match (address, self.side.address) {
            (Address::Node(_) | Address::NodeAt(..), Address::Node(_) | Address::NodeAt(..)) => true,
            // The owner finds the link by the node id.
            (Address::Link(_), Address::Node(_) | Address::NodeAt(..)) => self.side.is_view,
            #[cfg(feature = "sim")]
            (_, Address::Link(_)) => {
                let linked = self.side.linked.as_ref();
                linked.is_some_and(|linked| match address {
                    Address::Link(address) => linked.locate(address),
                    // The view of a shared card: others have no links.
                    Address::NodeAt(node, _) => linked.locate_node(node),
                    Address::Node(_) => false,
                })
            }
            #[cfg(not(feature = "sim"))]
            (_, Address::Link(_)) => false,
        }
    }

    /// Returns the address of a peer; `None` for a peer that was not added, but whose messages have arrived.
    #[must_use]
    pub fn peer(&self, peer: PeerId) -> Option<Address> {
        self.peers.get(peer)?.address
    }

    /// Returns the peer with a node id, and adds it if there is none.
    fn peer_of(&mut self, node: NodeId) -> PeerId {
        if let Some(id) = self.by_node.get(&node) {
            return *id;
        }
        let id = self.peers.add(node);
        self.by_node.insert(node, id);
        id
    }

    /// Advances all operations. Returns the amount of work done.
    pub fn progress(&mut self) -> usize {
        if self.failed.is_some() {
            return 0;
        }
        let mut work = 0;
        // A step often enables another one, at least with a simulated card.
        for _ in 0..MAX_STEPS {
            self.side.relax();
            match self.step() {
                Ok(0) => break,
                Ok(done) => work += done,
                Err(text) => {
                    self.fail_card(&text);
                    return work + 1;
                }
            }
        }
        if work > 0 {
            self.last_work = self.now;
        } else if self.now.saturating_sub(self.last_work) >= YIELD_AFTER {
            // Peers of this machine may need the CPU to answer.
            std::thread::yield_now();
        }
        work
    }

    fn step(&mut self) -> Result<usize, String> {
        self.now = self.side.endpoint.now();
        let mut work = self.advance_loads()?;
        work += self.side.endpoint.poll().map_err(|error| error.to_string())?;
        while let Some(done) = self.side.endpoint.next_completion() {
            self.sent(done);
        }
        while let Some(notification) = self.side.endpoint.next_notification() {
            self.arrived(&notification);
        }
        work += self.advance_fetches()?;
        if !self.closing.is_empty() {
            self.close_ended();
        }
        if !self.postponed.is_empty() {
            self.accept_postponed();
        }
        work += self.pump();
        self.flush();
        if self.now >= self.next_tick {
            self.tick();
        }
        self.kick()?;
        Ok(work)
    }

    /// Returns the failure of this side's card, after which nothing progresses.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Returns the numbers of packets that the card has sent and received, by its own counters, modulo 2^32; `None` if they cannot be read.
    #[must_use]
    pub fn packets(&self) -> Option<(u32, u32)> {
        self.side.endpoint.packets().ok()
    }

    /// Returns the number of bytes that a linked simulated card has copied so far, between host memory, card memory, windows, frames and the link;
    /// `None` for other cards. The messenger's own copies are those of [`HostMemory`].
    #[must_use]
    pub fn copied_bytes(&self) -> Option<u64> {
        self.side.copied_bytes()
    }

    /// Returns the number of messages that have arrived and match no receive, and the bytes of those that are kept with their data. With the 256 bytes
    /// that each of these counts besides its data, the bytes of one peer do not exceed [`MessengerOptions::unexpected`].
    #[must_use]
    pub fn unexpected(&self) -> (usize, u64) {
        self.matching.unexpected()
    }

    /// Returns the oldest completion that has not been taken.
    #[must_use]
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Returns the number of operations that have not completed, apart from receives of messages that have not arrived.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.operations.len() + self.closing.len()
    }

    /// Whether no operation is in progress and nothing is queued for peers. An idle messenger can be dropped without loss of data.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.operations.len() == 0
            && self.closing.is_empty()
            && self.loading.is_empty()
            && self.in_flight.is_empty()
            && self.peers_to_flush.is_empty()
    }

    /// Advances all operations, and returns the time that the caller may sleep before the next [`progress`](Self::progress), unless
    /// [`events`](Self::events) is readable earlier. Returns zero if there is work, or a completion.
    pub fn prepare_to_sleep(&mut self) -> Duration {
        if self.progress() > 0 || !self.completions.is_empty() {
            return Duration::ZERO;
        }
        #[cfg(feature = "sim")]
        if let Some(linked) = &self.side.linked {
            let is_busy = !self.is_idle() || !self.inbound.is_idle();
            let limit = if is_busy { BUSY_SLEEP } else { IDLE_SLEEP };
            return linked.network.rest().map_or(limit, |rest| rest.min(limit));
        }
        BUSY_SLEEP
    }

    /// Returns a descriptor that becomes readable when something may have arrived after [`prepare_to_sleep`](Self::prepare_to_sleep); `None`:
    /// the caller sleeps for the returned time.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        #[cfg(feature = "sim")]
        if let Some(linked) = &self.side.linked {
            return Some(linked.events.as_fd());
        }
        None
    }

    /// Checks that requests to a peer are accepted.
    fn check_peer(&self, id: PeerId) -> Result<(), PostError> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        let is_known = |peer: &&Peer| peer.address.is_some() || peer.incarnation.is_some();
        let peer = self.peers.get(id).filter(is_known);
        let peer = peer.ok_or(PostError::UnknownPeer { peer: id })?;
        if let Session::Failed { since } = peer.session
            && self.now.saturating_sub(since) < RETRY_AFTER
        {
            return Err(Failure::Unreachable { address: Arc::clone(&peer.name) }.into());
        }
        if peer.queue.len() >= MAX_QUEUED {
            return Err(PostError::Full);
        }
        Ok(())
    }

    fn check_inject(complete: CompleteWhen, length: u64) -> Result<(), PostError> {
        if complete == CompleteWhen::Injected && length > MAX_INJECT {
            return Err(PostError::Invalid { text: "the data of an injected operation is too long" });
        }
        Ok(())
    }

    fn name(&self, peer: PeerId) -> Arc<str> {
        Arc::clone(&self.peers[peer].name)
    }

    fn report(&mut self, operation: &Operation, result: Result<(), Failure>) {
        let kind = match operation.role {
            Role::Send => CompletionKind::Send,
            Role::Write => CompletionKind::Write,
            Role::Read => CompletionKind::Read,
            Role::Atomic => CompletionKind::Atomic,
            Role::Receive => CompletionKind::Receive,
            Role::Absorb if result.is_ok() && (self.reports_access || operation.immediate.is_some()) => {
                CompletionKind::RemoteWrite
            }
            Role::Serve if result.is_ok() && self.reports_access => CompletionKind::RemoteRead,
            Role::Absorb | Role::Serve => return,
        };
        if operation.complete == CompleteWhen::Injected
            && result.is_ok()
            && operation.role.is_own()
            && operation.role != Role::Receive
        {
            return;
        }
        let result = match result {
            Ok(()) if operation.cut > 0 => Err(Failure::Truncated),
            result => result,
        };
        let is_arrival = operation.role == Role::Receive || !operation.role.is_own();
        let (address, key) = match &operation.local {
            Local::Host(ranges) => (ranges.as_slice().first().map_or(0, |range| range.address), None),
            Local::Region { key, .. } => (0, Some(*key)),
            Local::Kept => (0, None),
        };
        let source = is_arrival.then_some(operation.peer);
        let ended = operation.buffer.map(|buffer| self.matching.buffers.ended(buffer)).unwrap_or_default();
        self.completions.push_back(Completion {
            token: operation.token,
            kind,
            is_tagged: operation.is_tagged,
            length: operation.length,
            cut: operation.cut,
            address,
            tag: operation.tag,
            immediate: if is_arrival { operation.immediate } else { None },
            source,
            key,
            is_last: ended.is_last,
            result,
        });
        if let Some((request, failure)) = ended.failed {
            self.fail_receive(&request, &failure);
        }
    }
}
