//! The way of frames to cards in other processes: one UDP datagram per frame.
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
//! Nodes are found as a switch finds them: a frame for a node that nobody has heard of goes to every peer, and the address that
//! a node's frames come from is remembered. UDP's checksum is not relied on: packets carry their own. Frames get lost, doubled
//! and out of order here as on any network; that is what the cards are there for. Checksums, keys and the list of peers keep
//! accidents and strangers away; whoever can forge a peer's address and has listened can write what that peer may.
//!
//! **How long a datagram may be.** A frame is at most 92 bytes longer than a packet's payload (START header and checksum), so a
//! datagram at most 108; with UDP's and IPv4's 28 bytes of headers, packets of up to 1024 bytes fit an Ethernet frame of 1500
//! bytes, and packets of 4096 need an MTU of 4232. A world whose cards make longer datagrams than the link's MTU holds is refused
//! when it is built, because a datagram in fragments is lost whole with any of them.

mod wrapper;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_pci::OsError;

pub use wrapper::{MAGIC, VERSION, WRAPPER_LENGTH, WrapperError};

/// Nodes whose addresses are remembered: beyond that frames go to every peer.
const NODES: usize = 4096;
/// Datagrams that are no frames and that are taken at a time: whoever sends nonsense without end must not keep cards from working.
const MAX_INVALID_DATAGRAMS: u32 = 64;
/// Bytes that the socket's buffers are asked to hold: an op table's worth of packets from several senders at once. The system
/// counts a few times as many for a small datagram as it has bytes, and may give less.
const SOCKET_BUFFER: usize = 8 << 20;
/// Bytes of IPv4's header and of IPv6's, without options, and of UDP's.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
/// The longest datagram that UDP can carry over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// Where a link's frames come from and go to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpLinkOptions {
    /// Where this process receives.
    pub local: SocketAddr,
    /// Where other processes do. Datagrams from elsewhere are dropped; without peers, anybody's are taken.
    pub peers: Vec<SocketAddr>,
    /// Largest IP packet that every network on the way carries whole, in bytes. Default 1500: Ethernet.
    pub mtu: usize,
}

impl UdpLinkOptions {
    /// Receives at `local`, and has no peers yet.
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

    /// Sets the largest IP packet.
    #[must_use]
    pub const fn mtu(mut self, bytes: usize) -> Self {
        self.mtu = bytes;
        self
    }

    /// Bytes of the longest datagram, its wrapper included.
    const fn largest_datagram(&self) -> usize {
        let headers = UDP_HEADER + if self.local.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let fits = self.mtu.saturating_sub(headers);
        if fits > MAX_DATAGRAM { MAX_DATAGRAM } else { fits }
    }
}

/// Why there is no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket cannot be made.
    #[error("udp:{local}: {source}; give an address of this machine and a port that nobody uses")]
    Bind {
        /// Where it should have received.
        local: SocketAddr,
        /// What the system says.
        source: OsError,
    },
    /// A peer that the socket cannot reach by its kind of address.
    #[error("udp:{local} cannot reach {peer}: one is IPv4, the other IPv6; give addresses of one kind")]
    Family {
        /// Where this process receives.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
    /// A peer that is this end itself, or no address at all.
    #[error("{peer} cannot be a peer of udp:{local}: name another process's address and port")]
    Peer {
        /// Where this process receives.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
}

/// What went over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Frames sent, each to one peer.
    pub sent: u64,
    /// Frames sent to every peer, because nobody had heard of their node.
    pub flooded: u64,
    /// Datagrams that the system did not take: a full buffer, or nobody there.
    pub unsent: u64,
    /// Frames received and delivered to a card.
    pub received: u64,
    /// Datagrams that were no wrapped frame.
    pub malformed: u64,
    /// Datagrams from addresses that are no peer's.
    pub unknown_senders: u64,
    /// Frames for a node that is not here, or from one that is.
    pub misdirected: u64,
}

/// One end of the way to other processes.
#[derive(Debug)]
pub struct UdpLink {
    socket: Arc<UdpSocket>,
    options: UdpLinkOptions,
    /// Where nodes are.
    nodes: HashMap<NodeId, SocketAddr>,
    pub(crate) counters: LinkCounters,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl UdpLink {
    /// Opens the socket: from now on datagrams are kept until a world takes them.
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
        socket.set_nonblocking(true).map_err(refused)?;
        // As much as may be had: beyond the system's limit only who is privileged.
        for set in [sockopt::set_socket_recv_buffer_size::<&UdpSocket>, sockopt::set_socket_send_buffer_size]
        {
            let _ = set(&socket, SOCKET_BUFFER);
        }
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER);
        Ok(Self {
            socket: Arc::new(socket),
            nodes: HashMap::new(),
            counters: LinkCounters::default(),
            out: Vec::new(),
            // One byte more than fits: what is longer is seen to be.
            buffer: vec![0; options.largest_datagram().max(WRAPPER_LENGTH) + 1],
            options,
        })
    }

    /// Where it receives: with the port that the system chose, if none was named.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local_addr().unwrap_or(self.options.local)
    }

    /// Bytes of the longest frame that fits a datagram.
    pub(crate) const fn largest_frame(&self) -> usize {
        self.options.largest_datagram().saturating_sub(WRAPPER_LENGTH)
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.options.mtu
    }

    /// The socket, to wait for what arrives.
    pub(crate) fn events(&self) -> LinkEvents {
        LinkEvents(Arc::clone(&self.socket))
    }

    /// Sends a frame to where its node is, or to everybody.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.out.clear();
        let Ok((_, to)) = wrapper::wrap(frame, &mut self.out) else {
            // A card makes no such frame.
            self.counters.unsent += 1;
            return;
        };
        match self.nodes.get(&to) {
            Some(address) => {
                let sent = self.socket.send_to(&self.out, address).is_ok();
                self.counters.sent += u64::from(sent);
                self.counters.unsent += u64::from(!sent);
            }
            None => {
                for peer in &self.options.peers {
                    let sent = self.socket.send_to(&self.out, peer).is_ok();
                    self.counters.unsent += u64::from(!sent);
                }
                self.counters.flooded += 1;
            }
        }
    }

    /// The next frame that has arrived, whoever it is for. `is_here`: whether a node is on this side.
    pub(crate) fn receive(&mut self, is_here: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        for _ in 0..MAX_INVALID_DATAGRAMS {
            let (length, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                // What an earlier datagram met on its way, reported late.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(_) => return None,
            };
            if !self.options.peers.is_empty() && !self.options.peers.contains(&from) {
                self.counters.unknown_senders += 1;
                continue;
            }
            let datagram = self.buffer.get(..length).filter(|bytes| bytes.len() < self.buffer.len());
            let Some(Ok(opened)) = datagram.map(wrapper::unwrap) else {
                self.counters.malformed += 1;
                continue;
            };
            if is_here(opened.source) || !is_here(opened.destination) {
                self.counters.misdirected += 1;
                continue;
            }
            if self.nodes.len() < NODES || self.nodes.contains_key(&opened.source) {
                self.nodes.insert(opened.source, from);
            }
            self.counters.received += 1;
            // Borrowed anew: a borrow that one round returns would last for all rounds.
            return self.buffer.get(WRAPPER_LENGTH..length);
        }
        None
    }
}

/// A link's socket, to be waited for.
#[derive(Clone, Debug)]
pub(crate) struct LinkEvents(Arc<UdpSocket>);

impl LinkEvents {
    /// Waits until a datagram is there, `beside` is readable, or `limit` has passed.
    pub(crate) fn wait(&self, limit: Duration, beside: Option<BorrowedFd<'_>>) {
        let limit = Timespec::try_from(limit).ok();
        let own = PollFd::new(&self.0, PollFlags::IN);
        // Interrupted by a signal: the caller looks and waits again.
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
