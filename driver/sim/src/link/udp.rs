//! Link by UDP: one datagram per frame.
//!
//! UDP's checksum is not relied on: packets carry their own. Checksums, the keys of memory windows and the list of peers protect against
//! accidents and unknown senders. Without [`key`](UdpLinkOptions::key), somebody who can forge a peer's address can end its transfers, and,
//! if he can also read the network, write whatever that peer may write.
//!
//! **Datagram length.** A frame is at most 92 bytes longer than a packet's payload (START header and checksum), so a datagram is at most
//! 108 bytes longer. With 28 bytes of UDP and IPv4 headers, packets of up to 1024 bytes fit an Ethernet frame of 1500 bytes, and packets of
//! 4096 need an MTU of 4232. Packets may have up to 32768 bytes. A simulated network whose cards create datagrams longer than the link's MTU is refused when it is built,
//! unless the link divides frames ([`parts`](super::parts)): then the system is asked for the MTU of the path to each peer, and asked again when it
//! refuses a datagram. No datagram leaves in IP fragments.

use super::authentication::{Authenticator, LinkKey, Refused, TRAILER_LENGTH};
use super::batch::{ReceiveBatch, Received, SendBatch, Sent};
use super::datagram::{DEFAULT_MTU, MAX_DATAGRAM, headers};
use super::parts::{self, Division, Joiner, Outcome, PART_HEADER};
use super::path_mtu::PathLimits;
use super::wrapper::{self, Nodes, WRAPPER_LENGTH};
use super::{LinkCounters, LinkError, NodeTable};
use fpga_firmware::NodeId;
use fpga_firmware::generated::PACKET_SIZE_LOG2_MAX;
use fpga_firmware::wire::{CRC_LENGTH, START_HEADER_LENGTH};
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::net::sockopt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// Maximum number of invalid datagrams taken in one call: a flood of them must not keep cards from working.
const MAX_INVALID_DATAGRAMS: u32 = 64;
/// Requested size of the socket buffers, in bytes: the packets of an op table from several senders at once. The system accounts several
/// times the length of a small datagram, and may provide less.
const SOCKET_BUFFER: usize = 8 << 20;
/// Payload of packets on paths whose datagrams are shorter: a frame of a few parts. Packets of one part each would cost more than their losses.
const MIN_PAYLOAD: u32 = 4096;

/// Zeros after the last part of a frame: fewer than the frame has parts.
const ZEROS: [u8; parts::MAX_PARTS] = [0; parts::MAX_PARTS];

/// Addresses and MTU of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpLinkOptions {
    /// Local address to receive at.
    pub local: SocketAddr,
    /// Addresses of the other processes. Datagrams from other addresses are dropped; without peers, any sender is accepted.
    pub peers: Vec<SocketAddr>,
    /// Maximum size of an IP packet on every network of the path, in bytes. Default 1500: Ethernet. With [`divides`](Self::divides), a limit
    /// above the one that the system knows for each path; default: none.
    pub mtu: Option<usize>,
    /// Whether frames that are too long for a datagram are sent in parts; a lost part loses its frame. Default: no, a simulated network with such
    /// frames is refused when it is built.
    pub divides: bool,
    /// Whether the node of a frame must be that of the address it comes from ([`NodeId::of_link`]). Default: no.
    pub nodes_by_address: bool,
    /// Key of all ends of the link: datagrams without its tag are dropped. Default: none.
    pub key: Option<LinkKey>,
}

impl UdpLinkOptions {
    /// Creates options that receive at `local`, without peers.
    #[must_use]
    pub const fn new(local: SocketAddr) -> Self {
        Self { local, peers: Vec::new(), mtu: None, divides: false, nodes_by_address: false, key: None }
    }

    /// Adds a peer.
    #[must_use]
    pub fn peer(mut self, address: SocketAddr) -> Self {
        self.peers.push(address);
        self
    }

    /// Sets the maximum IP packet size.
    #[must_use]
    pub const fn mtu(mut self, bytes: usize) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Sends frames that are too long for a datagram in parts.
    #[must_use]
    pub const fn divided(mut self) -> Self {
        self.divides = true;
        self
    }

    /// Drops frames whose node is not that of the address they come from.
    #[must_use]
    pub const fn nodes_by_address(mut self) -> Self {
        self.nodes_by_address = true;
        self
    }

    /// Sends every datagram with a tag of `key`, and drops those without. `None`: no tags.
    #[must_use]
    pub fn key(mut self, key: Option<LinkKey>) -> Self {
        self.key = key;
        self
    }

    /// Bytes after each datagram.
    const fn trailer(&self) -> usize {
        if self.key.is_some() { TRAILER_LENGTH } else { 0 }
    }

    /// Maximum size of an IP packet in bytes, as stated or by default.
    const fn usual_mtu(&self) -> usize {
        match self.mtu {
            Some(mtu) => mtu,
            None if self.divides => usize::MAX,
            None => DEFAULT_MTU,
        }
    }

    /// Maximum datagram length in bytes, including the wrapper, without the trailer.
    const fn largest_datagram(&self) -> usize {
        let fits = self.usual_mtu().saturating_sub(headers(self.local));
        let fits = if fits > MAX_DATAGRAM { MAX_DATAGRAM } else { fits };
        fits.saturating_sub(self.trailer())
    }
}

/// One end of a link to other processes by UDP.
#[derive(Debug)]
pub struct UdpLink {
    socket: Arc<UdpSocket>,
    options: UdpLinkOptions,
    /// Last known addresses of nodes.
    pub(super) nodes: NodeTable<SocketAddr>,
    pub(crate) counters: LinkCounters,
    /// Abilities of the system for this socket.
    state: UdpSocketState,
    outgoing: SendBatch,
    incoming: ReceiveBatch,
    /// Maximum datagrams of the paths to peers, if frames are divided.
    limits: PathLimits,
    /// Number of the next frame that is divided.
    divided: u32,
    joiner: Joiner,
    /// Creates and checks tags, if the link has a key.
    authenticator: Option<Authenticator>,
    /// Frame received last.
    current: Option<Current>,
}

/// Place of a received frame.
#[derive(Clone, Copy, Debug)]
enum Current {
    Datagram(Received),
    /// Place in the joiner.
    Joined(usize),
}

impl UdpLink {
    /// Opens the socket: datagrams are queued until a simulated network takes them.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn bind(options: UdpLinkOptions) -> Result<Self, LinkError> {
        let local = options.local;
        for &peer in &options.peers {
            if peer.is_ipv4() != local.is_ipv4() {
                return Err(LinkError::Family { local, peer });
            }
            if peer == local || peer.port() == 0 || peer.ip().is_unspecified() {
                return Err(LinkError::Peer { local, peer });
            }
        }
        let refused = |error: std::io::Error| LinkError::Bind { local, source: error.into() };
        let socket = UdpSocket::bind(local).map_err(refused)?;
        // Non-blocking from here on, and without fragmentation.
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).map_err(refused)?;
        if options.divides {
            // Also without datagrams above the path MTU that the system has learned.
            let set = match local {
                SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, sockopt::Ipv4PathMtuDiscovery::DO),
                SocketAddr::V6(_) => {
                    sockopt::set_ipv6_mtu_discover(&socket, sockopt::Ipv6PathMtuDiscovery::DO)
                }
            };
            set.map_err(|errno| refused(errno.into()))?;
        }
        // As large as the system permits: only privileged processes exceed its limit.
        for set in [sockopt::set_socket_recv_buffer_size::<&UdpSocket>, sockopt::set_socket_send_buffer_size]
        {
            let _ = set(&socket, SOCKET_BUFFER);
        }
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER);
        Ok(Self {
            socket: Arc::new(socket),
            nodes: NodeTable::default(),
            counters: LinkCounters::default(),
            state,
            outgoing: SendBatch::default(),
            incoming: ReceiveBatch::new(),
            limits: PathLimits::default(),
            divided: 0,
            joiner: Joiner::default(),
            authenticator: options.key.as_ref().map(Authenticator::new),
            current: None,
            options,
        })
    }

    /// Local address, with the port that the system chose if none was given.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local_addr().unwrap_or(self.options.local)
    }

    /// Records the address of a node. Returns `false` for an address of the other family.
    pub(super) fn locate(&mut self, node: NodeId, address: SocketAddr) -> bool {
        let reachable = address.is_ipv4() == self.options.local.is_ipv4();
        if reachable {
            self.nodes.note(node, address);
        }
        reachable
    }

    /// Returns whether the address of the node for which `frame` is, is known.
    pub(super) fn knows_node_of(&self, frame: &[u8]) -> bool {
        wrapper::destination(frame).is_some_and(|node| self.nodes.get(node).is_some())
    }

    /// Maximum frame length that fits a datagram, in bytes.
    pub(crate) const fn largest_frame(&self) -> usize {
        let datagram = if self.options.divides {
            MAX_DATAGRAM - self.options.trailer()
        } else {
            self.options.largest_datagram()
        };
        datagram.saturating_sub(WRAPPER_LENGTH)
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.options.usual_mtu()
    }

    /// Maximum length of a datagram to `address` in bytes, without the trailer.
    fn limit_to(&mut self, address: SocketAddr) -> usize {
        let largest = self.options.largest_datagram();
        if self.options.divides {
            self.limits
                .of(self.options.local.ip(), address)
                .saturating_sub(self.options.trailer())
                .min(largest)
        } else {
            largest
        }
    }

    /// Payload of packets to a node that the path carries best, in bytes: a power of two. `None` if the address of the node is not known.
    pub(super) fn payload_to(&mut self, node: NodeId) -> Option<u32> {
        let address = *self.nodes.get(node)?;
        let headers = START_HEADER_LENGTH + CRC_LENGTH + WRAPPER_LENGTH;
        let fits = u32::try_from(self.limit_to(address).saturating_sub(headers)).unwrap_or(u32::MAX);
        let whole = fits.checked_ilog2().map_or(0, |log2| 1 << log2);
        Some(whole.clamp(MIN_PAYLOAD, 1 << PACKET_SIZE_LOG2_MAX))
    }

    /// Returns the socket to wait for datagrams.
    pub(super) fn socket(&self) -> Arc<UdpSocket> {
        Arc::clone(&self.socket)
    }

    /// Sends a frame alone.
    #[cfg(test)]
    fn send(&mut self, frame: &[u8]) {
        self.queue(frame);
        self.flush();
    }

    /// Sends a frame to its node's address, or to all peers. It may wait for others that leave with the same system call, until
    /// [`flush`](Self::flush).
    pub(crate) fn queue(&mut self, frame: &[u8]) {
        let Ok((header, Nodes { destination, .. })) = wrapper::header(frame) else {
            // Cards do not create such frames.
            self.counters.unsent += 1;
            return;
        };
        if let Some(&address) = self.nodes.get(destination) {
            self.queue_to(address, &header, frame);
            return;
        }
        // The counter has whole frames, not copies of them.
        self.flush();
        for at in 0..self.options.peers.len() {
            if let Some(&peer) = self.options.peers.get(at) {
                self.queue_to(peer, &header, frame);
                let Sent { unsent, .. } = self.outgoing.send(&self.socket, &self.state);
                self.counters.unsent += unsent;
            }
        }
        self.counters.flooded += 1;
    }

    fn queue_to(&mut self, address: SocketAddr, header: &[u8; WRAPPER_LENGTH], frame: &[u8]) {
        let limit = self.limit_to(address);
        let length = header.len() + frame.len();
        if length <= limit || !self.options.divides {
            self.push(address, [&header[..], frame, &[]], length);
            return;
        }
        self.divided = self.divided.wrapping_add(1);
        let Some(parts) = Division::new(frame, header, self.divided, limit) else {
            self.counters.unsent += 1;
            return;
        };
        for (header, part, zeros) in parts {
            let fill = ZEROS.get(..zeros).unwrap_or_default();
            self.push(address, [&header[..], part, fill], PART_HEADER + part.len() + fill.len());
        }
    }

    /// Adds a datagram to those that leave with the next system call.
    fn push(&mut self, address: SocketAddr, parts: [&[u8]; 3], length: usize) {
        let [head, body, end] = parts;
        let sealed = self.authenticator.as_mut().map(|authenticator| authenticator.seal(parts));
        let trailer = sealed.as_ref().map_or(&[][..], |trailer| trailer);
        if !self.outgoing.fits(address, length + trailer.len(), self.state.max_gso_segments()) {
            self.flush();
        }
        self.outgoing.push(address, [head, body, end, trailer]);
    }

    /// Sends the frames that wait.
    pub(crate) fn flush(&mut self) {
        let Some(peer) = self.outgoing.peer() else { return };
        let Sent { sent, unsent, is_too_long } = self.outgoing.send(&self.socket, &self.state);
        self.counters.sent += sent;
        self.counters.unsent += unsent;
        if is_too_long {
            self.limits.invalidate(peer);
        }
    }

    /// Returns whether frames may have arrived that the socket no longer announces.
    pub(crate) const fn has_received(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub(crate) fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        if self.fetch(is_local) { self.fetched() } else { None }
    }

    /// Receives a frame, to be taken by [`fetched`](Self::fetched). Returns `false` if there is none.
    pub(super) fn fetch(&mut self, is_local: impl Fn(NodeId) -> bool) -> bool {
        for _ in 0..MAX_INVALID_DATAGRAMS {
            let Some(received) = self.incoming.next(&self.socket, &self.state) else { return false };
            self.current = None;
            if self.is_frame(received, &is_local) {
                return true;
            }
        }
        false
    }

    /// Returns the frame that was received last.
    pub(super) fn fetched(&self) -> Option<&[u8]> {
        let datagram = match self.current? {
            Current::Datagram(received) => self.incoming.bytes(received),
            Current::Joined(place) => self.joiner.datagram(place)?,
        };
        datagram.get(WRAPPER_LENGTH..)
    }

    /// Returns whether a datagram has a frame for this side, or completes one. Counts it, and notes the address of its node.
    fn is_frame(&mut self, received: Received, is_local: impl Fn(NodeId) -> bool) -> bool {
        let from = received.from;
        let received = received.without_last(self.options.trailer());
        let bytes = self.incoming.bytes(received);
        let is_peer = self.options.peers.is_empty() || self.options.peers.contains(&from);
        let is_of_node = || wrapper::source(bytes).is_none_or(|source| source == NodeId::of_link(from));
        if !is_peer || self.options.nodes_by_address && !is_of_node() {
            self.counters.unknown_senders += 1;
            return false;
        }
        let mut is_newest = true;
        if let Some(authenticator) = &mut self.authenticator {
            match authenticator.check(bytes, self.incoming.end(received, TRAILER_LENGTH)) {
                Ok(newest) => is_newest = newest,
                Err(Refused::Tag) => {
                    self.counters.unauthenticated += 1;
                    return false;
                }
                Err(Refused::Old) => {
                    self.counters.replayed += 1;
                    return false;
                }
            }
        }
        let (current, datagram) = if parts::is_part(bytes) {
            let outcome = self.joiner.take(from, bytes);
            self.counters.incomplete = self.joiner.incomplete;
            match outcome {
                Outcome::Complete(place) => (Current::Joined(place), self.joiner.datagram(place)),
                Outcome::Incomplete => return false,
                Outcome::Invalid => {
                    self.counters.malformed += 1;
                    return false;
                }
            }
        } else {
            let is_short = bytes.len() <= self.options.largest_datagram();
            (Current::Datagram(received), is_short.then_some(bytes))
        };
        let Some(source) = self.counters.note_received(datagram, is_local) else { return false };
        // A datagram that somebody has sent again must not redirect a node's frames.
        if is_newest {
            self.nodes.note(source, from);
        }
        self.current = Some(current);
        true
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
