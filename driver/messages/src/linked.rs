//! Simulated cards of processes, and the links between them.
//!
//! A card's link has a UDP socket, whose address is the messenger's, and a socket for shared memory in a folder of this user, named by the
//! node id. A process that finds that socket is on the same machine.

use crate::address::Address;
use crate::error::{MessengerError, card_error};
use crate::layout::Layout;
use crate::options::{LinkChoice, MessengerOptions};
use fpga_driver::Card;
use fpga_driver::NodeId;
use fpga_driver::sim::{
    Attendant, CardDescription, Link, LinkAddress, LinkEvents, ShmLink, ShmLinkOptions, SimNetwork, UdpLink,
    UdpLinkOptions,
};
use fpga_netmodel::{Conditions, Impairments, Loss, Order, Probability};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Payload bytes of a packet, and packets of a segment.
const PACKET: u32 = 16_384;
const MASK_BITS: u16 = 256;
/// Buffers for packets out of order, and segments received at the same time.
const ESCAPE_SLOTS: u16 = 256;
const REGISTRY_ENTRIES: u16 = 256;
/// Time without progress after which a thread works for the card.
const ATTENTION: Duration = Duration::from_millis(10);
/// Number of peers for which a simulated card has memory.
const PEERS: u64 = 4096;
/// Address of no host, by whose route the address of this machine is found (RFC 5737). Nothing is sent there.
const SOMEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 9);

/// Links of a simulated card.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) network: SimNetwork,
    pub(crate) address: SocketAddr,
    pub(crate) events: LinkEvents,
    choice: LinkChoice,
    folder: PathBuf,
    /// Acknowledges packets while the application computes.
    _attendant: Attendant,
}

fn link_error(error: impl core::fmt::Display) -> MessengerError {
    MessengerError::Link { text: error.to_string() }
}

/// Address of this machine towards others; that of the loopback interface if it has no network.
fn own_ip() -> IpAddr {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let find = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect(SOMEWHERE).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    find().filter(|ip| !ip.is_unspecified()).unwrap_or(loopback)
}

/// Folder of the sockets: of this user alone.
fn folder() -> Result<PathBuf, MessengerError> {
    let user = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let folder = match runtime {
        Some(path) => path.join("fpga-messages"),
        None => PathBuf::from(format!("/tmp/fpga-messages-{user}")),
    };
    let failed = |what: &str| link_error(format!("{}: {what}", folder.display()));
    if let Err(error) = DirBuilder::new().mode(0o700).create(&folder)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(failed(&error.to_string()));
    }
    let found = std::fs::symlink_metadata(&folder).map_err(|error| failed(&error.to_string()))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(failed("must be a folder of this user that no other user can access; remove it"));
    }
    Ok(folder)
}

fn socket(folder: &Path, node: NodeId) -> PathBuf {
    folder.join(format!("{:08x}", node.get()))
}

/// Whether a process listens at a socket. A process that was killed leaves its socket, and node ids of several networks may be equal.
fn is_served(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else { return false };
    // A listener with many clients is busy (`EAGAIN`).
    matches!(connect(&socket, &address), Ok(()) | Err(Errno::AGAIN))
}

/// Opens a simulated card with links.
pub(crate) fn open(
    description: Option<&Path>,
    options: &MessengerOptions,
) -> Result<(Card, Linked), MessengerError> {
    let mut card = match description {
        Some(name) => CardDescription::find(name).map_err(card_error)?,
        None => {
            let mut card = CardDescription::default();
            card.ni.packet_size = PACKET;
            card.ni.mask_bits = MASK_BITS;
            card.ni.escape_slots = ESCAPE_SLOTS;
            card.ni.registry_entries = REGISTRY_ENTRIES;
            card.memory.size = card.memory.size.max(Layout::needed(PEERS));
            card
        }
    };
    let local = match options.listen {
        // Others must be able to reach it.
        Some(listen) if listen.ip().is_unspecified() => SocketAddr::new(own_ip(), listen.port()),
        Some(listen) => listen,
        None => SocketAddr::new(own_ip(), 0),
    };
    let udp = UdpLink::bind(UdpLinkOptions::new(local).fragments()).map_err(link_error)?;
    let address = udp.local();
    let node = Address::Link(address).node();
    card.ni.node_id = node.get();
    let folder = folder()?;
    let shm = ShmLink::bind(&ShmLinkOptions::new(socket(&folder, node))).map_err(link_error)?;
    let link = Link::both(shm, udp).map_err(link_error)?;
    let loss = Probability::new(options.loss).map_err(link_error)?;
    let conditions = Conditions::default().loss(Loss::Independent(loss));
    let order = match options.reorder {
        0 | 1 => Order::InOrder,
        depth => Order::random(depth as usize),
    };
    let impairments = Impairments::both(conditions).order(order);
    let network =
        SimNetwork::builder().card(card).impairments(impairments).seed(options.seed ^ u64::from(node.get()));
    let network = network.link(link).build().map_err(link_error)?;
    let card = Card::from_backend(network.backend(0)).map_err(card_error)?;
    let events = network.link_events().ok_or_else(|| link_error("it was not opened"))?;
    let attendant = Attendant::start(&network, ATTENTION).map_err(link_error)?;
    Ok((card, Linked { network, address, events, choice: options.link, folder, _attendant: attendant }))
}

impl Linked {
    /// Prepares the way to a peer. Returns `false` if there is none.
    pub(crate) fn locate(&self, address: SocketAddr) -> bool {
        if address == self.address {
            // Frames for the card itself do not leave.
            return true;
        }
        let node = Address::Link(address).node();
        let path = socket(&self.folder, node);
        let by_memory = match self.choice {
            LinkChoice::Auto => is_served(&path),
            LinkChoice::Shm => true,
            LinkChoice::Udp => false,
        };
        let way = if by_memory { LinkAddress::Shm(path) } else { LinkAddress::Udp(address) };
        self.network.locate(node, &way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn linked_socket_of_ended_process_is_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(!is_served(&path));
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_served(&path));
        drop(listener);
        assert!(path.exists() && !is_served(&path));
    }
}
