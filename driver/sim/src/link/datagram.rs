//! Sizes of UDP datagrams.

use std::net::SocketAddr;

/// Header sizes of IPv4, IPv6 (both without options) and UDP, in bytes.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
/// MTU of paths of which nothing is known, in bytes: Ethernet.
pub(super) const DEFAULT_MTU: usize = 1500;
/// Maximum datagram length of UDP over IPv4, in bytes.
pub(super) const MAX_DATAGRAM: usize = 65_507;

/// Bytes of the IP and UDP headers of a datagram to or from `address`.
pub(super) const fn headers(address: SocketAddr) -> usize {
    UDP_HEADER + if address.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER }
}
