//! Sessions with peers: hello, silence, failures.

use super::Messenger;
use crate::address::{Address, PeerId};
use crate::completion::{Completion, CompletionKind, Failure};
use crate::hello::Hello;
use crate::layout::{CHUNK, Doorbell, HELLO_BYTES, HELLO_KEY, HELLO_SLOTS, Layout, MAX_RECORD, RING};
use crate::matching::Posted;
use crate::peer::{Remote, Session};
use crate::request::ReceiveRequest;
use fpga_driver::{CardAddr, CardRange, Incarnation, NodeId};
use fpga_rdma::RemoteRegion;
#[cfg(feature = "sim")]
use fpga_sim::link::Neighbours;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the work that depends on time only.
const TICK: Duration = Duration::from_millis(5);
/// Time after which an unanswered hello is repeated, doubled with each try up to the maximum.
const HELLO_INTERVAL: Duration = Duration::from_millis(20);
const MAX_HELLO_INTERVAL: Duration = Duration::from_secs(1);
/// Silence after which a peer is asked whether it is there, if anything is expected of it.
const SILENCE: Duration = Duration::from_secs(1);
/// Interval of the checks for peers whose process has ended.
#[cfg(feature = "sim")]
const CHECK: Duration = Duration::from_millis(250);

impl Messenger {
    /// Begins a session, unless there is one.
    pub(super) fn greet(&mut self, id: PeerId) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(id.0 as usize)
            && matches!(peer.session, Session::New | Session::Failed { .. })
        {
            peer.session = Session::Greeting { since: now, next: now, tries: 0 };
            self.send_due_hello(id);
        }
    }

    /// Sends a hello if it is due.
    fn send_due_hello(&mut self, id: PeerId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(id.0 as usize) else { return };
        let Session::Greeting { since, next, tries } = peer.session else { return };
        if now.saturating_sub(since) >= self.give_up {
            self.fail_peer(id);
            return;
        }
        // One at a time: the endpoint repeats its packets.
        if now < next || peer.in_flight > 0 {
            return;
        }
        if self.hello(id, false)
            && let Some(peer) = self.peers.get_mut(id.0 as usize)
        {
            let interval = (HELLO_INTERVAL * (1 << tries.min(6))).min(MAX_HELLO_INTERVAL);
            peer.session = Session::Greeting { since, next: now + interval, tries: tries + 1 };
        }
    }

    /// Sends a hello, which grants the peer a ring.
    fn hello(&mut self, id: PeerId, is_answer: bool) -> bool {
        let Some(ring) = self.ring_of(id) else { return false };
        let Some(offset) = self.side.layout.ring_offset(ring) else { return false };
        let Some(node) = self.peers.get(id.0 as usize).map(|peer| peer.node) else { return false };
        let hello = Hello {
            is_answer,
            address: self.region.address.get(),
            length: self.region.length,
            key: self.region.key,
            ring: offset,
            landing: Layout::landing_offset(),
            ring_length: u32::try_from(RING).unwrap_or(0),
            chunk: u32::try_from(CHUNK).unwrap_or(0),
        };
        let Some(target) = self.hello_slots(id) else { return false };
        let target = RemoteRegion { node, address: target.start, length: target.length, key: HELLO_KEY };
        // Any slot: of two hellos in one slot at the same time one has no answer, and is repeated.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let sender = (self.region.node, self.side.endpoint.incarnation());
        self.send_hello(id, &hello.encode(sender), target, self.random % HELLO_SLOTS * HELLO_BYTES)
    }

    /// Hello slots of a peer.
    fn hello_slots(&self, id: PeerId) -> Option<CardRange> {
        let peer = self.peers.get(id.0 as usize)?;
        if let Some(remote) = &peer.remote {
            return Layout::hello_before(remote.region.address);
        }
        match peer.address {
            Some(Address::Node(_)) => Layout::hello_of(CardAddr::new(0)),
            Some(Address::NodeAt(_, memory)) => Layout::hello_of(memory),
            // Only its owner has other addresses.
            Some(Address::Link(_)) if self.side.is_view => Layout::hello_of(CardAddr::new(0)),
            // A card like the own one.
            Some(Address::Link(_)) | None => Some(self.side.layout.hello()),
        }
    }

    /// Ring of a peer here; a new one if it has none.
    fn ring_of(&mut self, id: PeerId) -> Option<u32> {
        let peer = self.peers.get_mut(id.0 as usize)?;
        if let Some(ring) = peer.ring {
            return Some(ring);
        }
        let ring = u32::try_from(self.rings.len()).ok()?;
        self.side.layout.ring_offset(ring)?;
        peer.ring = Some(ring);
        self.rings.push(id);
        Some(ring)
    }

    /// Processes a hello.
    pub(super) fn greeted(&mut self, node: NodeId, incarnation: Incarnation, hello: &Hello) {
        let has_doorbells = hello.length >= Layout::landing_offset();
        if u64::from(hello.chunk) != CHUNK || u64::from(hello.ring_length) < MAX_RECORD || !has_doorbells {
            return;
        }
        // A new node without space for its ring: it could not be answered.
        let next_ring = u32::try_from(self.rings.len()).unwrap_or(u32::MAX);
        if !self.by_node.contains_key(&node) && self.side.layout.ring_offset(next_ring).is_none() {
            return;
        }
        let id = self.peer_of(node);
        let Some(peer) = self.peers.get_mut(id.0 as usize) else { return };
        if peer.incarnation.is_some_and(|known| known != incarnation) {
            let failure = Failure::Restarted { address: Arc::clone(&peer.name) };
            self.end_session(id, &failure);
        }
        let Some(peer) = self.peers.get_mut(id.0 as usize) else { return };
        // This process counts on a session that has ended here.
        if peer.lost == Some(incarnation) {
            return;
        }
        peer.lost = None;
        peer.incarnation = Some(incarnation);
        if peer.remote.is_none() {
            let region = RemoteRegion {
                node,
                address: CardAddr::new(hello.address),
                length: hello.length,
                key: hello.key,
            };
            let ring_length = hello.ring_length.into();
            peer.remote = Some(Remote { region, ring: hello.ring, landing: hello.landing, ring_length });
            peer.last_arrival = self.now;
            #[cfg(feature = "sim")]
            {
                peer.was_present = Neighbours::is_present(node) == Some(true);
            }
        }
        peer.session = Session::Open;
        let held = std::mem::take(&mut peer.held);
        if !hello.is_answer {
            // Without space for the answer the peer asks again.
            self.hello(id, true);
        }
        self.list(id);
        for notification in held.iter().filter(|notification| notification.incarnation == incarnation) {
            self.arrived(notification);
        }
    }

    /// Work that depends on time: hellos and keepalive doorbells.
    pub(super) fn tick(&mut self) {
        self.next_tick = self.now + TICK;
        if self.now >= self.next_look {
            self.next_look = self.now + SILENCE;
            // A peer that is waited for must answer, even if nothing was exchanged yet.
            let mut sources = std::mem::take(&mut self.sources);
            self.matching.sources(&mut sources);
            for id in sources.drain(..) {
                self.greet(id);
            }
            self.sources = sources;
        }
        let is_receiving = self.matching.is_waiting();
        let is_busy = self.operations.len() > 0;
        for index in 0..self.peers.len() {
            let id = PeerId(u32::try_from(index).unwrap_or(u32::MAX));
            let Some(peer) = self.peers.get(index) else { continue };
            match peer.session {
                Session::Greeting { .. } => self.send_due_hello(id),
                Session::Open
                    if (is_receiving || is_busy)
                        && peer.in_flight == 0
                        && self.now.saturating_sub(peer.last_sent) >= SILENCE =>
                {
                    self.ring(id, Doorbell::Credit(0));
                }
                _ => {}
            }
        }
        #[cfg(feature = "sim")]
        if (is_receiving || is_busy) && self.now >= self.next_check {
            self.next_check = self.now + CHECK;
            self.fail_ended_peers();
        }
    }

    /// Fails the peers of this machine whose process has ended. Two checks in a row must find that, so that what has arrived before is processed.
    #[cfg(feature = "sim")]
    fn fail_ended_peers(&mut self) {
        for index in 0..self.peers.len() {
            let id = PeerId(u32::try_from(index).unwrap_or(u32::MAX));
            let Some(peer) = self.peers.get_mut(index) else { continue };
            let is_silent = self.now.saturating_sub(peer.last_arrival) >= CHECK;
            if peer.session != Session::Open || !peer.was_present || !is_silent {
                peer.is_missing = false;
                continue;
            }
            let was_missing = peer.is_missing;
            peer.is_missing = Neighbours::is_present(peer.node) == Some(false);
            if was_missing && peer.is_missing {
                self.fail_peer(id);
            }
        }
    }

    /// A peer does not answer.
    pub(super) fn fail_peer(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(id.0 as usize) else { return };
        if matches!(peer.session, Session::Failed { .. }) {
            return;
        }
        let lost = peer.incarnation.or(peer.lost);
        let failure = Failure::Unreachable { address: Arc::clone(&peer.name) };
        self.end_session(id, &failure);
        if let Some(peer) = self.peers.get_mut(id.0 as usize) {
            peer.session = Session::Failed { since: self.now };
            peer.lost = lost;
        }
    }

    /// Ends everything that is in progress with a peer.
    fn end_session(&mut self, id: PeerId, failure: &Failure) {
        if let Some(peer) = self.peers.get_mut(id.0 as usize) {
            peer.reset();
            peer.session = Session::New;
        }
        for operation in self.operations.of_peer(Some(id)) {
            self.finish(operation, Err(failure.clone()));
        }
        self.fail_postponed(Some(id), failure);
        for posted in self.matching.fail(Some(id)) {
            self.fail_posted(&posted, failure);
        }
    }

    /// The card has failed: everything ends.
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
        for posted in self.matching.fail(None) {
            self.fail_posted(&posted, &failure);
        }
    }

    /// Ends a receive that has waited, after the messages that its buffer has.
    pub(super) fn fail_posted(&mut self, posted: &Posted, failure: &Failure) {
        let Posted { request, buffer } = posted;
        if buffer.is_none_or(|buffer| self.matching.buffers.fail(buffer, request, failure)) {
            self.fail_receive(request, failure);
        }
    }

    pub(super) fn fail_receive(&mut self, request: &ReceiveRequest, failure: &Failure) {
        self.completions.push_back(Completion {
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
