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
    out: Vec<u8>,
    buffer: Vec<u8>,
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
        socket.set_nonblocking(true).map_err(refused)?;
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
            out: Vec::new(),
            // One byte more than fits, so that longer datagrams are detected.
            buffer: vec![0; options.largest_datagram().max(WRAPPER_LENGTH) + 1],
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

    /// Sends a frame to its node's address, or to all peers.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.out.clear();
        let Ok((_, to)) = wrapper::wrap(frame, &mut self.out) else {
            // Cards do not create such frames.
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

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub(crate) fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        for _ in 0..MAX_INVALID_DATAGRAMS {
            let (length, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                // Delayed error of an earlier datagram.
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
            if is_local(opened.source) || !is_local(opened.destination) {
                self.counters.misdirected += 1;
                continue;
            }
            if self.nodes.len() < NODES || self.nodes.contains_key(&opened.source) {
                self.nodes.insert(opened.source, from);
            }
            self.counters.received += 1;
            // Borrowed again: a borrow that one iteration returns would last for all iterations.
            return self.buffer.get(WRAPPER_LENGTH..length);
        }
        None
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
