//! Cards of other processes whose node ids follow from their addresses ([`NodeId::of_link`]), so that no directory is needed.
//!
//! Each has a UDP socket, whose address is the card's, and a socket for shared memory in a folder of this user, named by the node id. A process
//! that finds that socket is on the same machine.

use super::socket_folder::{Opening, SocketFolder, is_served};
use super::{LinkAddress, LinkError};
use fpga_firmware::NodeId;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

/// Address of no host, by whose route the address of this machine is found (RFC 5737). Nothing is sent there.
const SOMEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 9);

/// Ways from one card to those of other processes.
#[derive(Clone, Debug)]
pub struct Neighbours {
    own: SocketAddr,
    folder: SocketFolder,
}

/// Address of this machine towards others; that of the loopback interface if it has no network.
fn own_ip() -> IpAddr {
    let find = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect(SOMEWHERE).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    find().filter(|ip| !ip.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

impl Neighbours {
    /// Returns the address at which a link receives: `listen`, at which others can reach it; without it, a free port of this machine's address.
    pub(super) fn local(listen: Option<SocketAddr>) -> SocketAddr {
        match listen {
            Some(listen) if listen.ip().is_unspecified() => SocketAddr::new(own_ip(), listen.port()),
            Some(listen) => listen,
            None => SocketAddr::new(own_ip(), 0),
        }
    }

    /// Returns the ways from the card whose link receives at `own`.
    ///
    /// # Errors
    /// [`LinkError::Folder`], [`LinkError::NotPrivate`].
    pub(super) fn of(own: SocketAddr) -> Result<Self, LinkError> {
        Ok(Self { own, folder: SocketFolder::of_user()? })
    }

    /// Returns the address of the own link.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.own
    }

    /// Returns the node id of the own card.
    #[must_use]
    pub fn node(&self) -> NodeId {
        NodeId::of_link(self.own)
    }

    /// Returns the address of a card's link; `None` if its node id does not contain it (IPv6).
    #[must_use]
    pub fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        node.link_address(self.own.ip())
    }

    /// Returns the shared-memory address of a card.
    #[must_use]
    pub fn by_memory(&self, node: NodeId) -> LinkAddress {
        LinkAddress::Shm(self.socket(node))
    }

    /// Returns the link address of a card: shared memory if its process is on this machine, otherwise UDP. `None` for the own card, and without an
    /// address.
    #[must_use]
    pub fn way(&self, node: NodeId, address: Option<SocketAddr>) -> Option<LinkAddress> {
        if node == self.node() {
            return None;
        }
        let path = self.socket(node);
        if is_served(&path) == Some(true) {
            return Some(LinkAddress::Shm(path));
        }
        address.map(LinkAddress::Udp)
    }

    /// Returns the path of a card's socket for shared memory.
    pub(super) fn socket(&self, node: NodeId) -> PathBuf {
        self.folder.socket(node)
    }

    /// Removes the sockets of processes that have ended without doing so, and keeps other processes from removing a new socket before it listens.
    pub(super) fn begin_opening(&self) -> Opening {
        self.folder.remove_ended();
        self.folder.begin_opening()
    }

    /// Removes the sockets of this user's processes that have ended without doing so.
    pub fn remove_ended() {
        if let Ok(folder) = SocketFolder::of_user() {
            folder.remove_ended();
        }
    }

    /// Whether a process of this user on this machine receives for a card; `None` if that cannot be found out now. Cards of other machines
    /// have no such process.
    #[must_use]
    pub fn is_present(node: NodeId) -> Option<bool> {
        is_served(&SocketFolder::of_user().ok()?.socket(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn neighbours_way_depends_on_socket() {
        let folder = tempfile::tempdir().unwrap();
        let own = "10.1.0.1:5000".parse().unwrap();
        let neighbours = Neighbours { own, folder: SocketFolder::at(folder.path()) };
        let other = NodeId::of_link("10.1.0.2:6000".parse().unwrap());
        let address = neighbours.address_of(other);
        assert_eq!(address, Some("10.1.0.2:6000".parse().unwrap()));
        assert_eq!(neighbours.way(other, address), address.map(LinkAddress::Udp));
        assert_eq!(neighbours.way(other, None), None);
        let _listener = UnixListener::bind(neighbours.socket(other)).unwrap();
        assert_eq!(neighbours.way(other, address), Some(neighbours.by_memory(other)));
        assert_eq!(neighbours.way(neighbours.node(), address), None);
    }
}
