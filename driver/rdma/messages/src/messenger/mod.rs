//! The messages of one card: their state, and what all ports of the card share.
//!
//! | Module | |
//! |---|---|
//! | `outgoing` | records, parts and doorbells: staging, H2C, transfers of the endpoint |
//! | `incoming` | arrivals: doorbells, copies to host memory, records in order |
//! | `session` | hello, keepalive, failures |
//! | `messages` | messages and receives |
//! | `access` | writes, reads and atomic operations |
//! | `large` | data in parts: landing slots |
//! | `ports` | addresses of ports, opening and closing them |
//! | `in_flight` | transfers of the endpoint that have not completed |
//! | `direct` | ends of operations, and direct access to their memory |

mod access;
mod direct;
mod in_flight;
mod incoming;
mod large;
mod messages;
mod outgoing;
mod ports;
mod session;

use crate::address::{Address, PeerId};
use crate::areas::Areas;
use crate::card::CardSide;
use crate::completion::{Completion, CompletionKind, Failure};
use crate::error::MessengerError;
use crate::inbound::Inbound;
use crate::layout::{Layout, MAX_EAGER, PortNumber};
use crate::matching::Matched;
use crate::operation::{Local, Operation, OperationId, Operations, Role};
use crate::options::MessengerOptions;
use crate::peer::{Peer, PeerName, Peers, Session};
use crate::port::{Port, Ports};
use crate::request::CompleteWhen;
use crate::staging::Staging;
use crate::wire::Header;
use fpga_driver::{CardAddr, Incarnation, NodeId};
use fpga_rdma::Endpoint;
#[cfg(feature = "sim")]
use fpga_sim::link::LinkEvents;
use in_flight::TransfersInFlight;
use std::collections::{HashMap, VecDeque};
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
/// Maximum number of steps of one call of [`Messenger::progress`](crate::Messenger::progress).
const MAX_STEPS: u32 = 16;
/// Time without work after which the CPU is yielded.
const YIELD_AFTER: Duration = Duration::from_micros(10);
/// Maximum number of records that wait for one peer.
const MAX_QUEUED: usize = 4096;

/// Reason why a request is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// A queue is full: call [`Messenger::progress`](crate::Messenger::progress) and try again.
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

/// All ports of a card, and their sessions with peers.
pub(crate) struct CardMessenger {
    side: CardSide,
    staging: Staging,
    in_flight: TransfersInFlight,
    inbound: Inbound,
    peers: Peers,
    by_name: HashMap<PeerName, PeerId>,
    /// Ports of the application.
    ports: Ports,
    areas: Areas,
    /// Whether the card had no memory window for a peer, and none was closed since.
    has_no_window: bool,
    /// Peers for which records or doorbells wait.
    peers_to_flush: VecDeque<PeerId>,
    operations: Operations,
    /// Operations with parts to send.
    sending_parts: VecDeque<OperationId>,
    /// Large messages that have matched while all operations were in use.
    postponed: VecDeque<(PeerId, Header, Matched)>,
    closing: direct::Closing,
    failed: Option<Failure>,
    give_up: Duration,
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

impl core::fmt::Debug for CardMessenger {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CardMessenger")
            .field("ports", &self.ports.count_open())
            .field("peers", &self.peers.len())
            .field("operations", &self.operations.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Returns the start of the random choice of hello slots. Each of its bits depends on the node: the processes of a job start at the same time, and
/// many of them send their first hello to one node.
fn first_random(node: NodeId, incarnation: Incarnation) -> u64 {
    let seed = u64::from(node.get()) << 32 | u64::from(incarnation.get());
    // The finaliser of SplitMix64. 0 would stay 0.
    let mixed = (seed ^ seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ mixed >> 31).max(1)
}

impl CardMessenger {
    /// Opens the card and its endpoint. It has no port yet.
    pub(crate) fn open(options: &MessengerOptions) -> Result<Self, MessengerError> {
        Ok(Self::of_card(CardSide::open(options)?, options.give_up))
    }

    /// Takes an endpoint that the caller has opened. It has no port yet.
    pub(crate) fn of_endpoint(endpoint: Endpoint, give_up: Duration) -> Result<Self, MessengerError> {
        Ok(Self::of_card(CardSide::of_open_endpoint(endpoint)?, give_up))
    }

    fn of_card(side: CardSide, give_up: Duration) -> Self {
        let now = side.endpoint.now();
        let random = first_random(side.endpoint.node(), side.endpoint.incarnation());
        Self {
            side,
            staging: Staging::new(),
            in_flight: TransfersInFlight::default(),
            inbound: Inbound::default(),
            peers: Peers::default(),
            by_name: HashMap::new(),
            ports: Ports::default(),
            areas: Areas::default(),
            has_no_window: false,
            peers_to_flush: VecDeque::new(),
            operations: Operations::default(),
            sending_parts: VecDeque::new(),
            postponed: VecDeque::new(),
            closing: VecDeque::new(),
            failed: None,
            give_up,
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
        }
    }

    /// Whether the card is a view of a shared one, or a simulated one: each port has such a card of its own.
    pub(crate) const fn is_view(&self) -> bool {
        self.side.is_view
    }

    /// Returns the descriptor of a simulated card, which becomes readable when something may have arrived.
    #[cfg(feature = "sim")]
    pub(crate) fn take_events(&mut self) -> Option<LinkEvents> {
        self.side.linked.as_mut().and_then(|linked| linked.events.take())
    }

    /// Adds a peer of a port. A peer that was added before keeps its number.
    pub(crate) fn add_peer(&mut self, port: PortNumber, address: Address) -> Result<PeerId, MessengerError> {
        let own = self.address(port);
        let no_route = MessengerError::NoRoute { address, own };
        let Some(slots) = self.slots_of(address) else { return Err(no_route) };
        let id = self.peer_of(PeerName { port, node: address.node(), slots });
        match self.peers[id].address {
            Some(known) if known == address => return Ok(id),
            Some(other) => return Err(MessengerError::SameNode { address, other }),
            None => {}
        }
        if !self.locate(address) {
            return Err(no_route);
        }
        let peer = &mut self.peers[id];
        peer.address = Some(address);
        peer.name = address.to_string().into();
        Ok(id)
    }

    /// Returns the address of the hello slots of a peer.
    fn slots_of(&self, address: Address) -> Option<CardAddr> {
        match address {
            Address::Node(_) => Layout::hello_of(CardAddr::new(0)),
            Address::NodeAt(_, slots) => Layout::hello_of(slots),
            // A view of a shared card: the owner resolves link addresses.
            Address::Link(_) if self.side.is_view => Layout::hello_of(CardAddr::new(0)),
            // The peer's card has the same layout as this one.
            Address::Link(_) => Some(self.side.layout.hello(PortNumber(0)).start),
        }
    }

    fn locate(&self, address: Address) -> bool {
        match (address, self.address(PortNumber(0))) {
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

    /// Returns the address of a peer of a port; `None` for a peer that was not added, but whose messages have arrived.
    pub(crate) fn peer(&self, port: PortNumber, peer: PeerId) -> Option<Address> {
        self.peers.get(peer).filter(|peer| peer.port == port)?.address
    }

    /// Returns the peer with a name, and adds it if there is none.
    fn peer_of(&mut self, name: PeerName) -> PeerId {
        if let Some(id) = self.by_name.get(&name) {
            return *id;
        }
        let id = self.peers.add(name);
        self.by_name.insert(name, id);
        id
    }

    /// Returns the port of a peer.
    #[inline]
    fn port_of(&self, peer: PeerId) -> &Port {
        &self.ports[self.peers[peer].port]
    }

    #[inline]
    fn port_of_mut(&mut self, peer: PeerId) -> &mut Port {
        &mut self.ports[self.peers[peer].port]
    }

    /// Advances all operations. Returns the amount of work done.
    pub(crate) fn progress(&mut self) -> usize {
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
        } else if self.side.is_real_time && self.now.saturating_sub(self.last_work) >= YIELD_AFTER {
            // Peers of this machine may need the CPU to answer. In virtual time they run in this thread.
            std::thread::yield_now();
        }
        work
    }

    fn step(&mut self) -> Result<usize, String> {
        self.now = self.side.endpoint.now();
        let mut work = self.side.endpoint.poll().map_err(|error| error.to_string())?;
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
    pub(crate) const fn failure(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Returns the numbers of packets that the card has sent and received.
    pub(crate) fn packets(&self) -> Option<(u32, u32)> {
        self.side.endpoint.packets().ok()
    }

    /// Returns the number of bytes that a linked simulated card has copied so far; `None` for other cards.
    pub(crate) fn copied_bytes(&self) -> Option<u64> {
        self.side.copied_bytes()
    }

    /// Returns the number of a port's messages that match no receive, and the bytes of their kept data.
    pub(crate) fn unexpected(&self, port: PortNumber) -> (usize, u64) {
        self.ports[port].matching.unexpected()
    }

    /// Returns the oldest failure of a peer that a port's receives from any source have outlasted.
    pub(crate) fn next_peer_failure(&mut self, port: PortNumber) -> Option<Failure> {
        self.ports[port].peer_failures.pop_front()
    }

    /// Returns the oldest completion of a port that has not been taken.
    pub(crate) fn next_completion(&mut self, port: PortNumber) -> Option<Completion> {
        self.ports[port].completions.pop_front()
    }

    fn is_of(&self, port: PortNumber, peer: PeerId) -> bool {
        self.peers[peer].port == port
    }

    /// Returns the number of a port's operations that have not completed.
    pub(crate) fn in_progress(&self, port: PortNumber) -> usize {
        self.operations.peers().filter(|peer| self.is_of(port, *peer)).count()
            + self.closing.iter().filter(|(operation, _)| self.is_of(port, operation.peer)).count()
    }

    /// Whether no operation of a port is in progress and nothing is queued for its peers.
    pub(crate) fn is_port_idle(&self, port: PortNumber) -> bool {
        self.is_idle() || self.in_progress(port) == 0 && !self.has_unsent(port)
    }

    /// Whether the peers of a port have not acknowledged all transfers, or more is queued for them.
    fn has_unsent(&self, port: PortNumber) -> bool {
        self.in_flight.iter().any(|(_, transfer)| self.is_of(port, transfer.peer()))
            || self.peers_to_flush.iter().any(|peer| self.is_of(port, *peer))
    }

    /// Whether no operation is in progress and nothing is queued for peers.
    fn is_idle(&self) -> bool {
        self.operations.len() == 0
            && self.closing.is_empty()
            && self.in_flight.is_empty()
            && self.peers_to_flush.is_empty()
    }

    /// Advances all operations, and returns the time that the caller may sleep. Returns zero if there is work, or a completion of the port.
    pub(crate) fn prepare_to_sleep(&mut self, port: PortNumber) -> Duration {
        if self.progress() > 0 || !self.ports[port].completions.is_empty() {
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

    /// Checks that requests to a peer are accepted.
    fn check_peer(&self, port: PortNumber, id: PeerId) -> Result<(), PostError> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        let is_known =
            |peer: &&Peer| peer.port == port && (peer.address.is_some() || peer.incarnation.is_some());
        let peer = self.peers.get(id).filter(is_known);
        let peer = peer.ok_or(PostError::UnknownPeer { peer: id })?;
        if let Session::Failed { since, is_closed } = peer.session
            && self.now.saturating_sub(since) < RETRY_AFTER
        {
            let address = Arc::clone(&peer.name);
            let failure =
                if is_closed { Failure::Closed { address } } else { Failure::Unreachable { address } };
            return Err(failure.into());
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
        let port = self.peers[operation.peer].port;
        let reports_access = self.ports[port].options.reports_access;
        let kind = match operation.role {
            Role::Send => CompletionKind::Send,
            Role::Write => CompletionKind::Write,
            Role::Read => CompletionKind::Read,
            Role::Atomic => CompletionKind::Atomic,
            Role::Receive => CompletionKind::Receive,
            Role::Absorb if result.is_ok() && (reports_access || operation.immediate.is_some()) => {
                CompletionKind::RemoteWrite
            }
            Role::Serve if result.is_ok() && reports_access => CompletionKind::RemoteRead,
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
        let ended = operation.buffer.map(|buffer| self.ports[port].matching.buffers.ended(buffer));
        let ended = ended.unwrap_or_default();
        self.ports[port].completions.push_back(Completion {
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
            self.fail_receive(port, &request, &failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes that start at the same time on neighbouring nodes choose different hello slots.
    #[test]
    fn first_random_depends_on_the_node_in_all_bits() {
        let slots: std::collections::BTreeSet<u64> = (1..=64)
            .map(|node| first_random(NodeId::new(node), Incarnation::new(0x1234_5678)))
            .map(|mut random| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % crate::layout::HELLO_SLOTS
            })
            .collect();
        // 64 independent choices of 64 slots hit about 40 of them.
        assert!(slots.len() > 30, "{slots:?}");
    }
}
