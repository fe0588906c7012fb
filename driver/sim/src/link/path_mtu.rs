//! Maximum datagrams of paths, as the system knows them.

use super::datagram::{DEFAULT_MTU, MAX_DATAGRAM, headers};
use rustix::net::sockopt;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Maximum number of peers whose limits are remembered; the system is asked for those of others with each frame.
const MAX_PEERS: usize = 4096;
/// Minimum MTU of IPv4 hosts (RFC 791), for a system that names an impossible one.
const MIN_MTU: usize = 576;

/// Maximum length of the datagrams to each peer, in bytes.
#[derive(Debug, Default)]
pub(super) struct PathLimits {
    known: HashMap<SocketAddr, usize>,
    /// The last one.
    last: Option<(SocketAddr, usize)>,
}

impl PathLimits {
    /// Returns the limit of the path from `local` to `peer`.
    pub(super) fn of(&mut self, local: IpAddr, peer: SocketAddr) -> usize {
        if let Some((address, limit)) = self.last
            && address == peer
        {
            return limit;
        }
        let limit = match self.known.get(&peer) {
            Some(limit) => *limit,
            None => {
                let mtu = path_mtu(local, peer).unwrap_or(DEFAULT_MTU).max(MIN_MTU);
                let limit = mtu.saturating_sub(headers(peer)).min(MAX_DATAGRAM);
                if self.known.len() < MAX_PEERS {
                    self.known.insert(peer, limit);
                }
                limit
            }
        };
        self.last = Some((peer, limit));
        limit
    }

    /// Makes the next call ask the system again, which has refused a datagram.
    pub(super) fn invalidate(&mut self, peer: SocketAddr) {
        self.known.remove(&peer);
        self.last = None;
    }
}

/// MTU of the path from `local` to `peer`: that of the interface, or less if routers have reported it. `None` if there is no path.
fn path_mtu(local: IpAddr, peer: SocketAddr) -> Option<usize> {
    let socket = UdpSocket::bind((local, 0)).ok()?;
    socket.connect(peer).ok()?;
    let mtu = if peer.is_ipv4() { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
    usize::try_from(mtu.ok()?).ok()
}
