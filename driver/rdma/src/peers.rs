//! Capabilities of other nodes, queried by small packets (HELLO, docs/protocol.md 10.6) and cached until they may have changed.

use fpga_pci::Waited;
use std::collections::BTreeMap;
use std::time::Duration;

use fpga_firmware::event::Event;
use fpga_firmware::generated::{Capabilities, PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN, Scheme, ni as at};
use fpga_firmware::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::segment::packet_count;
use fpga_protocol::sender::SendFailure;

use super::mismatch::Mismatch;
use super::{Endpoint, EndpointError, SchemeList, SendCompletion, SendError};
use fpga_driver::Error;
use fpga_driver::extension::At as _;

/// Time after which an unanswered query is repeated; doubled each time.
const RETRY_INTERVAL: Nanos = Nanos::from_millis(1);
/// Maximum time between two queries.
const MAX_RETRY_INTERVAL: Nanos = Nanos::from_millis(100);

/// Capabilities of a node, as it reported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The node.
    pub node: NodeId,
    /// Incarnation of the node at that time: another incarnation may have another build.
    pub incarnation: Incarnation,
    /// Newest wire version that it supports.
    pub wire_version: u8,
    /// Payload bytes of a full packet, as log2.
    pub packet_size_log2: u8,
    /// Maximum number of packets of a segment that it can receive.
    pub mask_bits: u16,
    /// Capabilities of its card.
    pub capabilities: Capabilities,
    /// Active schemes of its endpoint.
    pub schemes: SchemeList,
    /// Registry timeout: time that its registry waits for a silent sender.
    pub registry_timeout: Duration,
}

impl Peer {
    /// Decodes an answer; `None` if it has values that no node can have.
    fn of(event: &Event) -> Option<Self> {
        let fits = (PACKET_SIZE_LOG2_MIN..=PACKET_SIZE_LOG2_MAX).contains(&event.tries)
            && (1..=256).contains(&event.index);
        fits.then_some(Self {
            node: event.node,
            incarnation: Incarnation::new(event.generation),
            wire_version: u8::try_from(event.op.get()).ok()?,
            packet_size_log2: event.tries,
            mask_bits: event.index,
            capabilities: Capabilities::from_bits(event.count),
            schemes: SchemeList(event.segment),
            registry_timeout: Duration::from_micros(event.length),
        })
    }
}

/// State of a queried node.
#[derive(Debug, Clone, Copy)]
struct PendingQuery {
    /// Answer, if it has arrived.
    peer: Option<Peer>,
    /// Time of the next query; [`Nanos::MAX`] if none is due. `wait` is the interval after it.
    again: Nanos,
    wait: Nanos,
    /// Time after which the query is not repeated.
    until: Nanos,
}

/// Queried nodes. Answers of other nodes are not kept, because they decide nothing here.
#[derive(Debug, Default)]
pub(super) struct Peers {
    asked: BTreeMap<NodeId, PendingQuery>,
    /// Time before which no query is due; it may be too early.
    next: Option<Nanos>,
    /// Number of answers so far.
    answers: u64,
}

impl Peers {
    /// Returns the time of the next query.
    pub(super) const fn next(&self) -> Option<Nanos> {
        self.next
    }

    pub(super) fn answer(&mut self, event: &Event) {
        if let (Some(peer), Some(asked)) = (Peer::of(event), self.asked.get_mut(&event.node)) {
            (asked.peer, asked.again) = (Some(peer), Nanos::MAX);
            self.answers += 1;
        }
    }

    /// Returns the number of answers so far.
    pub(super) const fn answers(&self) -> u64 {
        self.answers
    }

    /// Drops the cached answer of a node if the way a transfer failed indicates that the node has changed.
    pub(super) fn invalidate(&mut self, done: &SendCompletion) {
        let changed = matches!(
            done.result,
            Err(SendFailure::Refused { .. }
                | SendFailure::Forgotten { .. }
                | SendFailure::Scheme { .. }
                | SendFailure::Unanswered { .. })
        );
        if changed {
            self.asked.remove(&done.node);
        }
    }
}

impl Endpoint {
    /// Queries the capabilities of `node`. [`poll`](Self::poll) repeats the query until the node answers, or has not answered for `patience`,
    /// because either packet may be lost. [`peer`](Self::peer) then returns the answer; an earlier one is dropped.
    ///
    /// # Errors
    /// [`EndpointError::Option`] for [`NodeId::ANY`], [`EndpointError::Cause`].
    pub fn query_peer(&mut self, node: NodeId, patience: Duration) -> Result<(), Error<EndpointError>> {
        self.ask_peer(node, patience).at(|| self.place())
    }

    fn ask_peer(&mut self, node: NodeId, patience: Duration) -> Result<(), EndpointError> {
        if node == NodeId::ANY {
            return Err(EndpointError::Option {
                what: "the node to be asked",
                found: node.get().into(),
                expected: "one node's id; this one stands for all",
            });
        }
        self.next_poll = Nanos::ZERO;
        let now = self.time();
        let until = now.saturating_add(patience.into());
        let again = now.saturating_add(RETRY_INTERVAL);
        self.send_hello(node)?;
        self.peers.asked.insert(node, PendingQuery { peer: None, again, wait: RETRY_INTERVAL, until });
        self.peers.next = Some(self.peers.next.map_or(again, |next| next.min(again)));
        Ok(())
    }

    fn send_hello(&self, node: NodeId) -> Result<(), EndpointError> {
        self.ni.write(at::HELLO, node.get()).map_err(EndpointError::from)
    }

    /// Returns the reported capabilities of `node`; `None` if it was not queried, has not answered, or a transfer to it has failed since in
    /// a way that indicates a restart.
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        self.peers.asked.get(&node)?.peer
    }

    /// Queries the capabilities of `node` and waits for the answer. From then on, transfers that it could not receive are refused before
    /// anything is sent ([`SendError::Peer`]).
    ///
    /// # Errors
    /// [`EndpointError::NoPeer`] after `timeout`; otherwise as [`query_peer`](Self::query_peer) and [`poll`](Self::poll).
    pub fn wait_peer(&mut self, node: NodeId, timeout: Duration) -> Result<Peer, Error<EndpointError>> {
        self.query_peer(node, timeout)?;
        let late =
            |end: &Self| EndpointError::NoPeer { node, waited: Waited::of(&**end.card.backend(), timeout) };
        self.wait_until(timeout, late, |end| end.peer(node)).at(|| self.place())
    }

    /// Repeats unanswered queries that are due.
    pub(super) fn retry_queries(&mut self, now: Nanos) -> Result<(), EndpointError> {
        if self.peers.next.is_none_or(|next| next > now) {
            return Ok(());
        }
        let mut due = Vec::new();
        let mut next = None;
        for (node, asked) in &mut self.peers.asked {
            if asked.again <= now {
                due.push(*node);
                asked.wait = asked.wait.saturating_mul(2).min(MAX_RETRY_INTERVAL);
                let again = now.saturating_add(asked.wait);
                asked.again = if again < asked.until { again } else { Nanos::MAX };
            }
            if asked.again != Nanos::MAX {
                next = Some(next.map_or(asked.again, |next: Nanos| next.min(asked.again)));
            }
        }
        self.peers.next = next;
        due.into_iter().try_for_each(|node| self.send_hello(node))
    }

    /// Refuses a transfer of `length` bytes under a scheme that is not active, or that `node` has reported it cannot receive.
    pub(super) fn check_peer(
        &self,
        node: NodeId,
        length: u64,
        scheme: Option<Scheme>,
    ) -> Result<(), SendError> {
        let scheme = scheme.unwrap_or(self.settings.scheme);
        if !self.settings.schemes.contains(scheme) {
            return Err(SendError::Scheme { scheme, on: self.settings.schemes });
        }
        self.mismatch(node, length, scheme).map_or(Ok(()), |mismatch| Err(SendError::Peer { node, mismatch }))
    }

    /// Width of a node's receive mask, if it has reported one.
    pub(super) fn mask_of(&self, node: NodeId) -> Option<u16> {
        self.peer(node).map(|peer| peer.mask_bits)
    }

    fn mismatch(&self, node: NodeId, length: u64, scheme: Scheme) -> Option<Mismatch> {
        let peer = self.peer(node)?;
        if !peer.schemes.contains(scheme) {
            return Some(Mismatch::Scheme { ours: scheme, theirs: peer.schemes });
        }
        let (ours, theirs) = (self.settings.info.packet_size_log2, peer.packet_size_log2);
        if ours != theirs {
            let bytes = |log2: u8| 1_u32.checked_shl(log2.into()).unwrap_or(0);
            return Some(Mismatch::PacketSize { ours: bytes(ours), theirs: bytes(theirs) });
        }
        let (least, patience) = (self.settings.min_registry_timeout, peer.registry_timeout);
        if patience < least {
            return Some(Mismatch::Timeout { ours: least, theirs: patience });
        }
        // Messages have no mask.
        self.sender.host().filter(|_| scheme == Scheme::Registry)?;
        let segment = self.sender.segment_of(length, Some(peer.mask_bits));
        let longest = u32::try_from(length).unwrap_or(u32::MAX).min(segment);
        let packets = packet_count(longest, ours);
        (packets > peer.mask_bits.into())
            .then_some(Mismatch::Segment { ours: packets, theirs: peer.mask_bits })
    }
}
