//! Addresses from names of nodes and services.

use crate::code::Code;
use crate::sys::{EINVAL, ENODATA};
use fpga_messages::Address;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Address that leaves the choice to the endpoint.
pub(crate) const UNSPECIFIED: Address = Address::Link(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// Port number of a service; 0 without one.
pub(crate) fn port(service: Option<&str>) -> Result<u16, Code> {
    service.map_or(Ok(0), |service| service.parse().map_err(|_| ENODATA))
}

/// Address of `service` at `node`: IP address, host name, or the whole address as text. Without a node, that of `default`.
pub(crate) fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    default: IpAddr,
    is_numeric: bool,
) -> Result<Address, Code> {
    let Some(node) = node else { return Ok(Address::Link(SocketAddr::new(default, port(service)?))) };
    if node.contains("://") {
        return if service.is_some() { Err(EINVAL) } else { node.parse().map_err(|_| ENODATA) };
    }
    let port = port(service)?;
    if let Ok(ip) = node.parse() {
        return Ok(Address::Link(SocketAddr::new(ip, port)));
    }
    if is_numeric {
        return Err(ENODATA);
    }
    let found: Vec<_> = (node, port).to_socket_addrs().map_err(|_| ENODATA)?.collect();
    // IPv4 first: default addresses of cards are of this kind.
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    best.map(|address| Address::Link(*address)).ok_or(ENODATA)
}

/// Name of node number `index` of a range that begins with `first`: the next IP addresses, or host names with the next numbers at their ends.
pub(crate) fn successor(first: &str, index: usize) -> Option<String> {
    if index == 0 {
        return Some(first.to_owned());
    }
    match first.parse() {
        Ok(IpAddr::V4(ip)) => {
            let next = u32::from(ip).checked_add(u32::try_from(index).ok()?)?;
            Some(Ipv4Addr::from(next).to_string())
        }
        Ok(IpAddr::V6(ip)) => {
            let next = u128::from(ip).checked_add(u128::try_from(index).ok()?)?;
            Some(std::net::Ipv6Addr::from(next).to_string())
        }
        Err(_) => {
            let name = first.trim_end_matches(|letter: char| letter.is_ascii_digit());
            let digits = first.get(name.len()..)?;
            let number = digits.parse::<usize>().ok()?.checked_add(index)?;
            Some(format!("{name}{number:0width$}", width = digits.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn resolve_accepts_addresses_and_names() {
        let text = |node, service| resolve(node, service, LOCAL, false).map(|address| address.to_string());
        assert_eq!(text(None, None).unwrap(), "fpga://127.0.0.1:0");
        assert_eq!(text(Some("10.0.0.1"), Some("9228")).unwrap(), "fpga://10.0.0.1:9228");
        assert_eq!(text(Some("fpga://node/7"), None).unwrap(), "fpga://node/7");
        assert_eq!(text(Some("localhost"), Some("1")).unwrap(), "fpga://127.0.0.1:1");
        assert_eq!(text(Some("fpga://node/7"), Some("1")), Err(EINVAL));
        assert_eq!(text(Some("10.0.0.1"), Some("http")), Err(ENODATA));
        assert_eq!(resolve(Some("localhost"), None, LOCAL, true), Err(ENODATA));
    }

    #[test]
    fn successor_counts_addresses_and_names() {
        assert_eq!(successor("10.0.0.255", 1).unwrap(), "10.0.1.0");
        assert_eq!(successor("host09", 1).unwrap(), "host10");
        assert_eq!(successor("host", 1), None);
    }
}
