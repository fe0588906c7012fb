//! Link to cards in other processes: one UDP datagram per frame.
//!
//! Every datagram is a wrapper of 16 bytes and one frame, nothing else; integers are little-endian.
//!
//! | Bytes | |
//! |---|---|
//! | 0..4 | [`MAGIC`] |
//! | 4 | [`VERSION`] |
//! | 5 | 0 |
//! | 6..8 | bytes of the frame |
//! | 8..12 | node that the frame comes from, as in the frame's own header |
//! | 12..16 | node that it is for |
//! | 16.. | the frame: a packet of the wire format, checksum included |
//!
//! Nodes are located as in a learning switch: a frame for an unknown node goes to every peer, and the source address of a node's frames is
//! remembered. UDP's checksum is not relied on: packets carry their own. Frames can be lost, duplicated and reordered as on any network;
//! the cards handle this. Checksums, keys and the list of peers protect against accidents and unknown senders. An attacker that can forge a
//! peer's address and has listened can write whatever that peer may write.
//!
//! **Datagram length.** A frame is at most 92 bytes longer than a packet's payload (START header and checksum), so a datagram is at most
//! 108 bytes longer. With 28 bytes of UDP and IPv4 headers, packets of up to 1024 bytes fit an Ethernet frame of 1500 bytes, and packets of
//! 4096 need an MTU of 4232. A simulated network whose cards create datagrams longer than the link's MTU is refused when it is built,
//! because the loss of one fragment loses the whole datagram.

mod batch;
mod wrapper;

use batch::{ReceiveBatch, Received, SendBatch, Sent};
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_pci::OsError;

pub use wrapper::{MAGIC, VERSION, WRAPPER_LENGTH, WrapperError};

/// Maximum number of nodes whose addresses are remembered; frames for further nodes go to every peer.
const NODES: usize = 4096;
/// Maximum number of invalid datagrams taken in one call: a flood of them must not keep cards from working.
const MAX_INVALID_DATAGRAMS: u32 = 64;
/// Requested size of the socket buffers, in bytes: the packets of an op table from several senders at once. The system accounts several
/// times the length of a small datagram, and may provide less.
const SOCKET_BUFFER: usize = 8 << 20;
/// Header sizes of IPv4, IPv6 (both without options) and UDP, in bytes.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
/// Maximum datagram length of UDP over IPv4, in bytes.
const MAX_DATAGRAM: usize = 65_507;

/// Addresses and MTU of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpLinkOptions {
    /// Local address to receive at.
    pub local: SocketAddr,
    /// Addresses of the other processes. Datagrams from other addresses are dropped; without peers, any sender is accepted.
    pub peers: Vec<SocketAddr>,
    /// Maximum size of an IP packet on every network of the path, in bytes. Default 1500: Ethernet.
    pub mtu: usize,
}

impl UdpLinkOptions {
    /// Creates options that receive at `local`, without peers.
    #[must_use]
    pub const fn new(local: SocketAddr) -> Self {
        Self { local, peers: Vec::new(), mtu: 1500 }
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
        self.mtu = bytes;
        self
    }

    /// Maximum datagram length in bytes, including the wrapper.
    const fn largest_datagram(&self) -> usize {
        let headers = UDP_HEADER + if self.local.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let fits = self.mtu.saturating_sub(headers);
        if fits > MAX_DATAGRAM { MAX_DATAGRAM } else { fits }
    }
}

/// Reason why a link cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket cannot be created.
    #[error("udp:{local}: {source}; give an address of this machine and an unused port")]
    Bind {
        /// Address to receive at.
        local: SocketAddr,
        /// Error of the system.
        r#source: OsError,
    },
    /// A peer of another address family than the socket.
    #[error(
        "udp:{local} cannot reach {peer}: one address is IPv4, the other IPv6; give two addresses of the same family"
    )]
    Family {
        /// Local address.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
    /// A peer that is this end itself, or an invalid address.
    #[error("{peer} cannot be a peer of udp:{local}: name another process's address and port")]
    Peer {
        /// Local address.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Frames sent, each to one peer.
    pub sent: u64,
    /// Frames sent to every peer, because their node was unknown.
    pub flooded: u64,
    /// Datagrams that the system did not accept: full buffer, or no receiver.
    pub unsent: u64,
    /// Frames received and delivered to a card.
    pub received: u64,
    /// Datagrams that are not a valid wrapped frame.
    pub malformed: u64,
    /// Datagrams from addresses that are not peers.
    pub unknown_senders: u64,
    /// Frames for a node that is not on this side, or from a node that is on this side.
    pub misdirected: u64,
}

/// One end of a link to other processes.
#[derive(Debug)]
pub struct UdpLink {
    socket: Arc<UdpSocket>,
    options: UdpLinkOptions,
    /// Last known addresses of nodes.
    nodes: HashMap<NodeId, SocketAddr>,
    pub(crate) counters: LinkCounters,
    /// Abilities of the system for this socket.
    state: UdpSocketState,
    /// The datagram of the current frame.
    out: Vec<u8>,
    outgoing: SendBatch,
    incoming: ReceiveBatch,
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
        // As large as the system permits: only privileged processes exceed its limit.
        for set in [sockopt::set_socket_recv_buffer_size::<&UdpSocket>, sockopt::set_socket_send_buffer_size]
        {
            let _ = set(&socket, SOCKET_BUFFER);
        }
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER);
        Ok(Self {
            socket: Arc::new(socket),
            nodes: HashMap::new(),
            counters: LinkCounters::default(),
            state,
            out: Vec::new(),
            outgoing: SendBatch::default(),
            incoming: ReceiveBatch::new(),
            options,
        })
    }

    /// Local address, with the port that the system chose if none was given.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local_addr().unwrap_or(self.options.local)
    }

    /// Maximum frame length that fits a datagram, in bytes.
    pub(crate) const fn largest_frame(&self) -> usize {
        self.options.largest_datagram().saturating_sub(WRAPPER_LENGTH)
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.options.mtu
    }

    /// Returns the socket to wait for datagrams.
    pub(crate) fn events(&self) -> LinkEvents {
        LinkEvents(Arc::clone(&self.socket))
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
        self.out.clear();
        let Ok((_, to)) = wrapper::wrap(frame, &mut self.out) else {
            // Cards do not create such frames.
            self.counters.unsent += 1;
            return;
        };
        if let Some(&address) = self.nodes.get(&to) {
            self.queue_to(address);
            return;
        }
        // The counter has whole frames, not copies of them.
        self.flush();
        for at in 0..self.options.peers.len() {
            if let Some(&peer) = self.options.peers.get(at) {
                self.queue_to(peer);
                let Sent { unsent, .. } = self.outgoing.send(&self.socket, &self.state);
                self.counters.unsent += unsent;
            }
        }
        self.counters.flooded += 1;
    }

    /// Queues the datagram in `out`.
    fn queue_to(&mut self, address: SocketAddr) {
        if !self.outgoing.fits(address, self.out.len(), self.state.max_gso_segments()) {
            self.flush();
        }
        self.outgoing.push(address, &self.out);
    }

    /// Sends the frames that wait.
    pub(crate) fn flush(&mut self) {
        if !self.outgoing.is_empty() {
            let Sent { sent, unsent } = self.outgoing.send(&self.socket, &self.state);
            self.counters.sent += sent;
            self.counters.unsent += unsent;
        }
    }

    /// Whether frames may have arrived that [`events`](Self::events) no longer announces.
    pub(crate) const fn has_received(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub(crate) fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        for _ in 0..MAX_INVALID_DATAGRAMS {
            let received = self.incoming.next(&self.socket, &self.state)?;
            if self.is_frame(received, &is_local) {
                // Borrowed again: a borrow that one iteration returns would last for all iterations.
                return self.incoming.bytes(received).get(WRAPPER_LENGTH..);
            }
        }
        None
    }

    /// Whether a datagram has a frame for this side. Counts it, and notes the address of its node.
    fn is_frame(&mut self, received: Received, is_local: impl Fn(NodeId) -> bool) -> bool {
        let from = received.from;
        if !self.options.peers.is_empty() && !self.options.peers.contains(&from) {
            self.counters.unknown_senders += 1;
            return false;
        }
        let datagram = Some(self.incoming.bytes(received));
        let datagram = datagram.filter(|bytes| bytes.len() <= self.options.largest_datagram());
        let Some(Ok(opened)) = datagram.map(wrapper::unwrap) else {
            self.counters.malformed += 1;
            return false;
        };
        if is_local(opened.source) || !is_local(opened.destination) {
            self.counters.misdirected += 1;
            return false;
        }
        // Most frames come from where the last one came from.
        if self.nodes.get(&opened.source) != Some(&from)
            && (self.nodes.len() < NODES || self.nodes.contains_key(&opened.source))
        {
            self.nodes.insert(opened.source, from);
        }
        self.counters.received += 1;
        true
    }
}

/// Socket of a link, for waiting.
#[derive(Clone, Debug)]
pub(crate) struct LinkEvents(Arc<UdpSocket>);

impl LinkEvents {
    /// Waits until a datagram has arrived, `beside` is readable, or `limit` has passed.
    pub(crate) fn wait(&self, limit: Duration, beside: Option<BorrowedFd<'_>>) {
        let limit = Timespec::try_from(limit).ok();
        let own = PollFd::new(&self.0, PollFlags::IN);
        // Interrupted by a signal: the caller checks and waits again.
        let _ = match &beside {
            Some(beside) => poll(&mut [own, PollFd::new(beside, PollFlags::IN)], limit.as_ref()),
            None => poll(&mut [own], limit.as_ref()),
        };
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
