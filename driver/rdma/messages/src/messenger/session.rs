//! Sessions with peers: hello messages, keepalive, failures.

use super::CardMessenger;
use crate::address::PeerId;
use crate::completion::{Completion, CompletionKind, Failure};
use crate::hello::Hello;
use crate::layout::{
    CHUNK, DOORBELL_BYTES, Doorbell, HELLO_BYTES, HELLO_KEY, HELLO_PAGE, HELLO_SLOTS, LANDING_OFFSET,
    MAX_PORTS, MAX_RECORD, PortNumber, RING, RING_OFFSET,
};
use crate::matching::Posted;
use crate::peer::{PeerName, Remote, Session};
use crate::request::ReceiveRequest;
use fpga_driver::{CardAddr, Incarnation, NodeId};
use fpga_rdma::{EndpointError, RemoteRegion};
#[cfg(feature = "sim")]
use fpga_sim::link::Neighbours;
use std::sync::Arc;
use std::time::Duration;

/// Interval of periodic work.
const TICK_INTERVAL: Duration = Duration::from_millis(5);
/// Time after which an unanswered hello is repeated, doubled with each try up to the maximum.
const HELLO_INTERVAL: Duration = Duration::from_millis(20);
const MAX_HELLO_INTERVAL: Duration = Duration::from_secs(1);
/// Divisor of the give-up time that limits the first interval: also with a short time, some hellos are sent before the session is given up.
const MIN_HELLOS: u32 = 16;
/// Time without a packet to a peer after which a keepalive is sent, if an operation or a receive waits.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the checks for peers whose process has ended.
#[cfg(feature = "sim")]
const PRESENCE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

impl CardMessenger {
    /// Begins a session, unless one is open or being opened.
    pub(super) fn connect(&mut self, id: PeerId) {
        let now = self.now;
        let peer = &mut self.peers[id];
        if matches!(peer.session, Session::New | Session::Failed { .. }) {
            peer.session = Session::Connecting { since: now, next: now, tries: 0 };
            self.send_due_hello(id);
        }
    }

    /// Sends a hello if it is due.
    fn send_due_hello(&mut self, id: PeerId) {
        let now = self.now;
        let peer = &mut self.peers[id];
        let Session::Connecting { since, next, tries } = peer.session else { return };
        if now.saturating_sub(since) >= self.give_up {
            self.fail_peer(id);
            return;
        }
        // One at a time: the endpoint repeats its packets.
        if now < next || peer.in_flight > 0 {
            return;
        }
        match self.grant_area(id, false) {
            Ok(false) => {}
            Ok(true) => {
                let first = HELLO_INTERVAL.min(self.give_up / MIN_HELLOS);
                let interval = (first * (1 << tries.min(6))).min(MAX_HELLO_INTERVAL);
                self.peers[id].session =
                    Session::Connecting { since, next: now + interval, tries: tries + 1 };
            }
            Err(failure) => self.fail_peer_with(id, &failure),
        }
    }

    /// Sends a hello, which grants the peer its area. Returns `false` if it could not be sent now.
    fn grant_area(&mut self, id: PeerId, is_answer: bool) -> Result<bool, Failure> {
        let area = self.window_of(id)?;
        let (node, address) = (self.peers[id].node, self.peers[id].slots);
        let short = |number: u64| u32::try_from(number).unwrap_or(0);
        let hello = Hello {
            is_answer,
            address: area.address.get(),
            length: short(area.length),
            key: area.key,
            slots: self.side.layout.hello(self.peers[id].port).start.get(),
            ring: short(RING_OFFSET),
            landing: short(LANDING_OFFSET),
            ring_length: short(RING),
            chunk: short(CHUNK),
            eager: self.port_of(id).options.eager_limit,
        };
        let target = RemoteRegion { node, address, length: HELLO_PAGE, key: HELLO_KEY };
        // A random slot: if two peers use one slot at the same time, one hello has no answer and is repeated.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let sender = (self.side.endpoint.node(), self.side.endpoint.incarnation());
        Ok(self.send_hello(id, &hello.encode(sender), target, self.random % HELLO_SLOTS * HELLO_BYTES))
    }

    /// Whether a port has as many peers of a node as one card has ports: a further one would be a violation of the protocol.
    fn has_all_ports(&self, port: PortNumber, node: NodeId) -> bool {
        let ids = self.peers.ids().map(|id| &self.peers[id]);
        ids.filter(|peer| peer.port == port && peer.node == node).count() >= usize::from(MAX_PORTS)
    }

    /// Returns the area that a peer may write in this session, with its key. Opens a memory window for it if there is none.
    fn window_of(&mut self, id: PeerId) -> Result<RemoteRegion, Failure> {
        if let Some(window) = &self.peers[id].window {
            return Ok(window.remote);
        }
        let address = self.name(id);
        let too_many = |peers: usize| Failure::TooManyPeers { address, peers };
        let known = self.peers[id].area;
        let number = known.unwrap_or_else(|| self.areas.next(self.now));
        let Some(range) = self.side.layout.area(number) else { return Err(too_many(self.areas.count())) };
        let window = self.side.endpoint.open_region(self.peers[id].node, range);
        self.has_no_window = window.is_err();
        let window = window.map_err(|error| match error.kind {
            // Each port has a window for its hello slots.
            EndpointError::RegionsFull { capacity } => {
                too_many(capacity.saturating_sub(self.ports.count_open()))
            }
            _ => Failure::Card { text: error.to_string().into() },
        })?;
        let remote = window.remote;
        let peer = &mut self.peers[id];
        peer.window = Some(window);
        if known.is_none() {
            peer.area = Some(number);
            self.areas.assign(number, id);
        }
        Ok(remote)
    }

    /// Processes a hello.
    pub(super) fn handle_hello(
        &mut self,
        port: PortNumber,
        node: NodeId,
        incarnation: Incarnation,
        hello: &Hello,
    ) {
        let has_doorbells = u64::from(hello.length) >= DOORBELL_BYTES;
        if u64::from(hello.chunk) != CHUNK || u64::from(hello.ring_length) < MAX_RECORD || !has_doorbells {
            return;
        }
        // Without a window or space for its area, a new node cannot be answered. It must not use memory either: anybody can send hellos.
        let has_space = !self.has_no_window && self.side.layout.area(self.areas.next(self.now)).is_some();
        let name = PeerName { port, node, slots: CardAddr::new(hello.slots) };
        let is_new = !self.by_name.contains_key(&name);
        if is_new && (!has_space || !self.ports[port].is_open() || self.has_all_ports(port, node)) {
            return;
        }
        let id = self.peer_of(name);
        let peer = &mut self.peers[id];
        if peer.incarnation.is_some_and(|known| known != incarnation) {
            let failure = Failure::Restarted { address: Arc::clone(&peer.name) };
            self.end_session(id, &failure);
        }
        let peer = &mut self.peers[id];
        // The peer has not noticed that its session failed here: only a restarted process can connect again.
        if peer.failed_incarnation == Some(incarnation) {
            return;
        }
        peer.failed_incarnation = None;
        peer.incarnation = Some(incarnation);
        if peer.remote.is_none() {
            let region = RemoteRegion {
                node,
                address: CardAddr::new(hello.address),
                length: hello.length.into(),
                key: hello.key,
            };
            peer.granted(Remote {
                region,
                ring: hello.ring.into(),
                landing: hello.landing.into(),
                ring_length: hello.ring_length.into(),
                eager: hello.eager,
            });
            peer.last_arrival = self.now;
            #[cfg(feature = "sim")]
            {
                peer.was_present = Neighbours::is_present(node) == Some(true);
                peer.segment_size = self.side.segment_size_to(node, peer.was_present);
            }
        }
        peer.session = Session::Open;
        let held = std::mem::take(&mut peer.held);
        if !hello.is_answer {
            match self.grant_area(id, true) {
                // If the answer cannot be sent, the peer repeats its hello.
                Ok(_) => {}
                Err(failure) => {
                    self.fail_peer_with(id, &failure);
                    return;
                }
            }
        }
        self.list(id);
        for notification in held.iter().filter(|notification| notification.incarnation == incarnation) {
            self.arrived(notification);
        }
    }

    /// Does the periodic work: hellos and keepalive doorbells.
    pub(super) fn tick(&mut self) {
        self.next_tick = self.now + TICK_INTERVAL;
        if self.now >= self.next_source_check {
            self.next_source_check = self.now + KEEPALIVE_INTERVAL;
            // Posted receives expect messages from these peers: a session shows whether they exist.
            let mut sources = std::mem::take(&mut self.sources);
            self.ports.sources(&mut sources);
            for id in sources.drain(..) {
                self.connect(id);
            }
            self.sources = sources;
        }
        let is_receiving = self.ports.is_receiving();
        let is_busy = self.operations.len() > 0;
        for id in self.peers.ids() {
            let peer = &self.peers[id];
            match peer.session {
                Session::Connecting { .. } => self.send_due_hello(id),
                Session::Open
                    if (is_receiving || is_busy)
                        && peer.in_flight == 0
                        && self.now.saturating_sub(peer.last_sent) >= KEEPALIVE_INTERVAL =>
                {
                    self.ring(id, Doorbell::Credit(0));
                }
                _ => {}
            }
        }
        #[cfg(feature = "sim")]
        if (is_receiving || is_busy) && self.now >= self.next_presence_check {
            self.next_presence_check = self.now + PRESENCE_CHECK_INTERVAL;
            self.fail_ended_peers();
        }
    }

    /// Fails the peers of this machine whose process has ended. Two consecutive checks must find that, so that earlier arrivals are processed.
    #[cfg(feature = "sim")]
    fn fail_ended_peers(&mut self) {
        for id in self.peers.ids() {
            let peer = &mut self.peers[id];
            let is_silent = self.now.saturating_sub(peer.last_arrival) >= PRESENCE_CHECK_INTERVAL;
            if peer.session != Session::Open || !peer.was_present || !is_silent {
                peer.is_missing = false;
                continue;
            }
            let was_missing = peer.is_missing;
            peer.is_missing = Neighbours::is_present(peer.node) == Some(false);
            if was_missing && peer.is_missing {
                self.fail_peer(id);
                Neighbours::remove_ended();
            }
        }
    }

    /// Ends the session of a peer that does not answer, or violates the protocol.
    pub(super) fn fail_peer(&mut self, id: PeerId) {
        let failure = Failure::Unreachable { address: self.name(id) };
        self.fail_peer_with(id, &failure);
    }

    fn fail_peer_with(&mut self, id: PeerId, failure: &Failure) {
        if !matches!(self.peers[id].session, Session::Failed { .. }) {
            self.port_of_mut(id).note_peer_failure(failure);
            self.end_session_with_process(id, failure);
        }
    }

    /// Processes the end of a session by its peer, which is no failure unless an operation with it is in progress.
    pub(super) fn peer_closed(&mut self, id: PeerId) {
        let failure = Failure::Closed { address: self.name(id) };
        self.end_session_with_process(id, &failure);
    }

    /// Ends the session with a process of the peer: only another process can open the next one.
    fn end_session_with_process(&mut self, id: PeerId, failure: &Failure) {
        let peer = &self.peers[id];
        let failed_incarnation = peer.incarnation.or(peer.failed_incarnation);
        self.end_session(id, failure);
        let peer = &mut self.peers[id];
        peer.session =
            Session::Failed { since: self.now, is_closed: matches!(failure, Failure::Closed { .. }) };
        peer.failed_incarnation = failed_incarnation;
    }

    /// Ends a session and all operations of it.
    pub(super) fn end_session(&mut self, id: PeerId, failure: &Failure) {
        if let Some(window) = self.peers[id].reset() {
            self.has_no_window = false;
            if let Err(error) = self.side.endpoint.close_region(&window) {
                self.fail_card(&error.to_string());
            }
        }
        self.peers[id].session = Session::New;
        for (operation, _) in self.closing.iter_mut().filter(|(operation, _)| operation.peer == id) {
            operation.wants_done = false;
        }
        for operation in self.operations.of_peer(Some(id)) {
            self.finish(operation, Err(failure.clone()));
        }
        self.fail_postponed(Some(id), failure);
        let port = self.peers[id].port;
        for posted in self.ports[port].matching.fail(Some(id), failure) {
            self.fail_posted(port, &posted, failure);
        }
    }

    /// Ends all operations after a failure of the card.
    pub(super) fn fail_card(&mut self, text: &str) {
        if self.failed.is_some() {
            return;
        }
        let failure = Failure::Card { text: text.into() };
        self.failed = Some(failure.clone());
        self.close_ended();
        for operation in self.operations.of_peer(None) {
            self.finish(operation, Err(failure.clone()));
        }
        self.fail_postponed(None, &failure);
        for port in self.ports.numbers() {
            for posted in self.ports[port].matching.fail(None, &failure) {
                self.fail_posted(port, &posted, &failure);
            }
        }
    }

    /// Ends a posted receive with `failure`, after the messages that are in its buffer.
    pub(super) fn fail_posted(&mut self, port: PortNumber, posted: &Posted, failure: &Failure) {
        let Posted { request, buffer } = posted;
        let buffers = &mut self.ports[port].matching.buffers;
        if buffer.is_none_or(|buffer| buffers.fail(buffer, request, failure)) {
            self.fail_receive(port, request, failure);
        }
    }

    pub(super) fn fail_receive(&mut self, port: PortNumber, request: &ReceiveRequest, failure: &Failure) {
        self.ports[port].completions.push_back(Completion {
            token: request.token,
            kind: CompletionKind::Receive,
            is_tagged: request.tag.is_some(),
            length: 0,
            cut: 0,
            address: 0,
            tag: request.tag.map_or(0, |pattern| pattern.tag),
            immediate: None,
            source: request.from,
            key: None,
            is_last: request.multi.is_some(),
            result: Err(failure.clone()),
        });
    }
}
