//! Links to cards in other processes.
//!
//! | Module | Carries a frame |
//! |---|---|
//! | [`UdpLink`] | in a UDP datagram, or divided into several, between any two machines |
//! | [`ShmLink`] | through memory that two processes of one machine share |
//! | [`Switch`] | between simulated networks of one process, each with a port |
//!
//! The first two put a wrapper of 16 bytes before each frame, nothing else; integers are little-endian.
//!
//! | Bytes | |
//! |---|---|
//! | 0..4 | [`MAGIC`] |
//! | 4 | [`VERSION`] |
//! | 5 | 0; 1 in a part of a frame; 2 in shared memory: the frame is long, and comes straight from a card |
//! | 6..8 | bytes of the frame |
//! | 8..12 | node that the frame comes from, as in the frame's own header |
//! | 12..16 | node that it is for |
//! | 16.. | the frame: a packet of the wire format, checksum included |
//!
//! In a part of a frame, 16 bytes wrap the whole frame, 8 more name the part, and the part follows ([`UdpLinkOptions::divides`]).
//!
//! With a key ([`UdpLinkOptions::key`]), 40 bytes follow each datagram: when it was sent, and a tag ([`LinkKey`]).
//!
//! Nodes are located as in a learning switch: a frame for an unknown node goes to every peer, and the source address of a node's frames is
//! remembered. With [`Neighbours`], unknown nodes are located by their ids instead. Frames can be lost, duplicated and reordered as on any network; the cards handle this.

mod any;
mod authentication;
mod batch;
mod datagram;
mod neighbours;
mod parts;
mod path_mtu;
mod shm;
mod socket_folder;
mod switch;
mod udp;
mod wrapper;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::served::ServeError;
use fpga_firmware::NodeId;
use fpga_pci::OsError;
use wrapper::Nodes;

pub use any::{Link, LinkEvents};
pub use authentication::{LinkKey, LinkKeyError};
pub use neighbours::Neighbours;
pub(crate) use shm::ReceivedFrame;
pub use shm::{ShmLink, ShmLinkOptions};
pub use switch::Switch;
pub use udp::{UdpLink, UdpLinkOptions};
pub use wrapper::{MAGIC, VERSION, WRAPPER_LENGTH, WrapperError};

/// Maximum number of nodes whose addresses are remembered; frames for further nodes go to every peer.
const NODES: usize = 4096;

/// Place of a node on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkAddress {
    /// Address of its UDP link.
    Udp(SocketAddr),
    /// Path of its link by shared memory.
    Shm(PathBuf),
}

/// Reason why a link cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket cannot be created.
    #[error("udp:{local}: {source}")]
    Bind {
        /// Address to receive at.
        local: SocketAddr,
        /// Error of the system.
        r#source: OsError,
    },
    /// A peer of another address family than the socket.
    #[error("udp:{local} cannot reach {peer}: one address is IPv4, the other IPv6")]
    Family {
        /// Local address.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
    /// A peer that is this end itself, or an invalid address.
    #[error("{peer} cannot be a peer of udp:{local}: it is this link itself, or no address of one process")]
    Peer {
        /// Local address.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
    /// The socket of a link by shared memory cannot be created.
    #[error(transparent)]
    Listen(#[from] ServeError),
    /// A peer that is this end itself.
    #[error("shm:{} cannot be its own peer", .path.display())]
    OwnPath {
        /// Path of this end and of the peer.
        path: PathBuf,
    },
    /// The path is too long.
    #[error(
        "shm:{}: the absolute path of a link has at most {} bytes", .path.display(), shm::MAX_PATH
    )]
    LongPath {
        /// The absolute path.
        path: PathBuf,
    },
    /// The system has no free file descriptor.
    #[error("shm:{}: {source}", .path.display())]
    Events {
        /// Path of this end.
        path: PathBuf,
        /// Error of the system.
        r#source: OsError,
    },
    /// The folder of the sockets of this user's cards cannot be created or accessed.
    #[error("{}: {source}", .path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Error of the system.
        r#source: OsError,
    },
    /// Other users can access the folder of the sockets.
    #[error("{}: not a folder of this user that no other user can access", .path.display())]
    NotPrivate {
        /// Path of the folder.
        path: PathBuf,
    },
    /// A node has a port of the switch already.
    #[error("node {node} has a port of the switch already")]
    Port {
        /// The node.
        node: NodeId,
    },
    /// The system has no free file descriptor for a port.
    #[error("port of node {node}: {reason}")]
    PortEvents {
        /// The node.
        node: NodeId,
        /// Error of the system.
        reason: String,
    },
}

impl LinkError {
    /// Returns what to do about it; `None` if the problem leaves nothing to advise.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Listen(inner) => return inner.help(),
            Self::Bind { .. } => "give an address of this machine and an unused port",
            Self::Family { .. } => "give two addresses of the same family",
            Self::Peer { .. } => "name another process's address and port",
            Self::OwnPath { .. } => "give the path of another process's link",
            Self::LongPath { .. } => "give a shorter path",
            Self::Events { .. } | Self::PortEvents { .. } => "close files, or raise the limit (ulimit -n)",
            Self::Folder { .. } => {
                "check that it is writable and has space, or set XDG_RUNTIME_DIR to another folder"
            }
            Self::NotPrivate { .. } => "remove it",
            Self::Port { .. } => "choose another node id",
        })
    }
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Frames sent, each to one peer; of a divided frame, its parts.
    pub sent: u64,
    /// Frames sent to every peer, because their node was unknown.
    pub flooded: u64,
    /// Datagrams that the system did not accept: full buffer, or no receiver.
    pub unsent: u64,
    /// Frames received and delivered to a card.
    pub received: u64,
    /// Datagrams that are not a valid wrapped frame.
    pub malformed: u64,
    /// Datagrams from addresses that are not peers, or not of the node that they name.
    pub unknown_senders: u64,
    /// Frames for a node that is not on this side, or from a node that is on this side.
    pub misdirected: u64,
    /// Divided frames that were dropped because a part was missing when later ones needed their memory.
    pub incomplete: u64,
    /// Datagrams without a tag of the link's key ([`UdpLinkOptions::key`]).
    pub unauthenticated: u64,
    /// Datagrams with such a tag that were sent long before the newest one of their node.
    pub replayed: u64,
    /// Bytes that a link by shared memory has copied to rings, and from rings to its own memory.
    pub copied_bytes: u64,
}

impl LinkCounters {
    /// Sums of two links.
    const fn with(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            flooded: self.flooded + other.flooded,
            unsent: self.unsent + other.unsent,
            received: self.received + other.received,
            malformed: self.malformed + other.malformed,
            unknown_senders: self.unknown_senders + other.unknown_senders,
            misdirected: self.misdirected + other.misdirected,
            incomplete: self.incomplete + other.incomplete,
            unauthenticated: self.unauthenticated + other.unauthenticated,
            replayed: self.replayed + other.replayed,
            copied_bytes: self.copied_bytes + other.copied_bytes,
        }
    }

    /// Counts what was received. Returns the source of a frame for a node for which `is_local`; `None` stands for a datagram that is too
    /// long.
    fn note_received(
        &mut self,
        datagram: Option<&[u8]>,
        is_local: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        self.note_nodes(datagram.and_then(|datagram| wrapper::unwrap(datagram).ok()), is_local)
    }

    /// As [`note_received`](Self::note_received), for a datagram with a frame of `nodes`, or an invalid one.
    fn note_nodes(&mut self, nodes: Option<Nodes>, is_local: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let Some(nodes) = nodes else {
            self.malformed += 1;
            return None;
        };
        if is_local(nodes.source) || !is_local(nodes.destination) {
            self.misdirected += 1;
            return None;
        }
        self.received += 1;
        Some(nodes.source)
    }
}

/// Last known addresses of nodes, in the order of the nodes.
#[derive(Debug)]
struct NodeTable<T>(Vec<(NodeId, T)>);

impl<T> Default for NodeTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> NodeTable<T> {
    /// Position of a node, or the one at which it would be.
    fn find(&self, node: NodeId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&node, |(known, _)| *known)
    }

    fn get(&self, node: NodeId) -> Option<&T> {
        let at = self.find(node).ok()?;
        self.0.get(at).map(|(_, address)| address)
    }

    /// Notes that a frame of `node` came from `address`.
    fn note(&mut self, node: NodeId, address: T) {
        match self.find(node) {
            Ok(at) => {
                if let Some((_, known)) = self.0.get_mut(at) {
                    *known = address;
                }
            }
            Err(at) if self.0.len() < NODES => self.0.insert(at, (node, address)),
            Err(_) => {}
        }
    }

    /// Removes a node.
    fn remove(&mut self, node: NodeId) {
        if let Ok(at) = self.find(node) {
            self.0.remove(at);
        }
    }

    /// Removes the nodes at `address`.
    fn remove_address(&mut self, address: &T) {
        self.0.retain(|(_, known)| known != address);
    }
}
