//! A link of any kind, as a simulated network uses it.

use super::authentication::LinkKey;
use super::neighbours::Neighbours;
use super::shm::ShmLink;
use super::switch::{Port, Switch};
use super::udp::UdpLink;
use super::{
    LinkAddress, LinkCounters, LinkError, ReceivedFrame, ShmLinkOptions, UdpLinkOptions, WRAPPER_LENGTH,
    wrapper,
};
use fpga_firmware::NodeId;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// One end of a link to other processes.
#[derive(Debug)]
pub struct Link(Kind);

#[derive(Debug)]
enum Kind {
    Udp(Box<UdpLink>),
    Shm(Box<ShmLink>),
    Both(Box<Both>),
    Switched(Box<Switched>),
}

/// Number of calls without a frame by UDP after which a link of both kinds makes a system call for it.
const CALLS_PER_LOOK: u32 = 64;
/// Number of frames of a switch after which the outside link is served.
const MAX_FRAMES_IN_A_ROW: u32 = 64;

/// Shared memory for the nodes of this machine, UDP for others.
#[derive(Debug)]
struct Both {
    shm: ShmLink,
    udp: UdpLink,
    /// Readable if one of the two is.
    events: Arc<OwnedFd>,
    /// Whether a node was located at a UDP address, or has sent from one: every call looks for datagrams.
    has_udp_nodes: bool,
    calls: u32,
    /// Locates unknown nodes.
    neighbours: Option<Neighbours>,
}

impl Both {
    fn counters(&self) -> LinkCounters {
        self.shm.counters.with(self.udp.counters)
    }

    fn locate(&mut self, node: NodeId, address: &LinkAddress) -> bool {
        match address {
            LinkAddress::Udp(address) => {
                self.shm.forget(node);
                let located = self.udp.locate(node, *address);
                self.has_udp_nodes |= located;
                located
            }
            LinkAddress::Shm(path) => self.shm.locate(node, path),
        }
    }

    fn queue(&mut self, frame: &[u8]) {
        if self.shm.knows_node_of(frame) {
            return self.shm.queue(frame);
        }
        if self.udp.knows_node_of(frame) {
            return self.udp.queue(frame);
        }
        let Some(neighbours) = &self.neighbours else {
            self.shm.queue(frame);
            self.udp.queue(frame);
            return;
        };
        let node = wrapper::destination(frame);
        let way = node.and_then(|node| Some((node, neighbours.way(node, neighbours.address_of(node))?)));
        // Once: a table of nodes may be full.
        match way {
            Some((node, way @ LinkAddress::Shm(_))) if self.locate(node, &way) => self.shm.queue(frame),
            Some((node, way @ LinkAddress::Udp(_))) if self.locate(node, &way) => self.udp.queue(frame),
            _ => self.shm.counters.unsent += 1,
        }
    }

    fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        // Datagrams first, so that the frame of the other link can be returned without a second look.
        if self.has_datagram(&is_local) { self.udp.fetched() } else { self.shm.receive(is_local) }
    }

    fn receive_shared(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<ReceivedFrame<'_>> {
        if self.has_datagram(&is_local) {
            self.udp.fetched().map(ReceivedFrame::Copied)
        } else {
            self.shm.receive_shared(is_local)
        }
    }

    /// Returns whether a frame has arrived by UDP, if it is time to look for one.
    fn has_datagram(&mut self, is_local: impl Fn(NodeId) -> bool) -> bool {
        self.calls += 1;
        if !self.has_udp_nodes && self.calls < CALLS_PER_LOOK {
            return false;
        }
        self.calls = 0;
        let has_datagram = self.udp.fetch(is_local);
        self.has_udp_nodes |= has_datagram;
        has_datagram
    }
}

/// Port of a switch, and the link to nodes without a port.
#[derive(Debug)]
struct Switched {
    port: Port,
    outside: Option<Link>,
    /// Readable if one of the two is.
    events: Arc<OwnedFd>,
    in_a_row: u32,
    /// Copy of a frame of the outside link.
    copy: Vec<u8>,
}

impl Switched {
    fn queue(&mut self, frame: &[u8]) {
        if !self.port.queue(frame) {
            match &mut self.outside {
                Some(outside) => outside.queue(frame),
                None => self.port.counters.unsent += 1,
            }
        }
    }

    fn receive(&mut self, is_local: &dyn Fn(NodeId) -> bool) -> Option<&[u8]> {
        if self.in_a_row >= MAX_FRAMES_IN_A_ROW {
            self.in_a_row = 0;
            if let Some(frame) = self.outside.as_mut().and_then(|outside| outside.receive(is_local)) {
                self.copy.clear();
                self.copy.extend_from_slice(frame);
                return Some(&self.copy);
            }
        }
        if self.port.fetch(is_local) {
            self.in_a_row += 1;
            return Some(self.port.fetched());
        }
        self.in_a_row = 0;
        self.outside.as_mut()?.receive(is_local)
    }
}

impl From<UdpLink> for Link {
    fn from(link: UdpLink) -> Self {
        Self(Kind::Udp(Box::new(link)))
    }
}

impl From<ShmLink> for Link {
    fn from(link: ShmLink) -> Self {
        Self(Kind::Shm(Box::new(link)))
    }
}

impl Link {
    /// Link of both kinds: frames take the way by which their node was located ([`SimNetwork::locate`](crate::SimNetwork::locate)) or
    /// by which its last frame came; those for unknown nodes go to every peer of both.
    ///
    /// # Errors
    /// [`LinkError::Events`].
    pub fn both(shm: ShmLink, udp: UdpLink) -> Result<Self, LinkError> {
        let events = shm.events_with(&*udp.socket())?;
        let events = Arc::new(events);
        let both = Both { shm, udp, events, has_udp_nodes: false, calls: 0, neighbours: None };
        Ok(Self(Kind::Both(Box::new(both))))
    }

    /// Makes a link of both kinds locate unknown nodes by `neighbours`, instead of sending their frames to every peer.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: Neighbours) -> Self {
        if let Kind::Both(both) = &mut self.0 {
            both.neighbours = Some(neighbours);
        }
        self
    }

    /// Link of a card whose node id is that of its address, and the ways to others of this kind. It receives at `listen`; without it, at a free
    /// port of this machine's address. Datagrams whose address is not that of their node are dropped, and with a `key` those without its tag.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn neighbouring(
        listen: Option<SocketAddr>,
        key: Option<LinkKey>,
    ) -> Result<(Self, Neighbours), LinkError> {
        let options = UdpLinkOptions::new(Neighbours::local(listen)).divided().nodes_by_address().key(key);
        let udp = UdpLink::bind(options)?;
        let neighbours = Neighbours::of(udp.local())?;
        let _opening = neighbours.begin_opening();
        let shm = ShmLink::bind(&ShmLinkOptions::new(neighbours.socket(neighbours.node())))?;
        Ok((Self::both(shm, udp)?, neighbours))
    }

    /// Opens the port of `node` on `switch`, with `outside` for other nodes than those of ports. It closes with the link.
    ///
    /// # Errors
    /// [`LinkError::PortEvents`], [`LinkError::Port`].
    pub fn on_switch(switch: &Switch, node: NodeId, outside: Option<Self>) -> Result<Self, LinkError> {
        let port = Port::open(switch, node)?;
        let join = || {
            let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&events, port.events(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            if let Some(outside) = &outside {
                let data = epoll::EventData::new_u64(1);
                epoll::add(&events, outside.events(), data, epoll::EventFlags::IN)?;
            }
            Ok(events)
        };
        let events = join()
            .map_err(|errno: rustix::io::Errno| LinkError::PortEvents { node, reason: errno.to_string() })?;
        let events = Arc::new(events);
        let switched = Switched { port, outside, events, in_a_row: 0, copy: Vec::new() };
        Ok(Self(Kind::Switched(Box::new(switched))))
    }

    /// Records where a node is. Returns `false` if this link has no way there.
    pub(crate) fn locate(&mut self, node: NodeId, address: &LinkAddress) -> bool {
        match (&mut self.0, address) {
            (Kind::Udp(link), LinkAddress::Udp(address)) => link.locate(node, *address),
            (Kind::Shm(link), LinkAddress::Shm(path)) => link.locate(node, path),
            (Kind::Both(both), address) => both.locate(node, address),
            (Kind::Switched(link), address) => {
                link.outside.as_mut().is_some_and(|link| link.locate(node, address))
            }
            _ => false,
        }
    }

    /// Maximum frame length in bytes.
    pub(crate) fn largest_frame(&self) -> usize {
        match &self.0 {
            Kind::Udp(link) => link.largest_frame(),
            Kind::Shm(_) => super::shm::MAX_DATAGRAM - WRAPPER_LENGTH,
            Kind::Both(both) => both.udp.largest_frame(),
            Kind::Switched(link) => {
                link.outside.as_ref().map_or(super::shm::MAX_DATAGRAM - WRAPPER_LENGTH, Self::largest_frame)
            }
        }
    }

    /// Payload of packets to a node that its way carries best, in bytes; `None` if this link does not know the node, or its way carries all
    /// packets alike.
    pub(crate) fn payload_to(&mut self, node: NodeId) -> Option<u32> {
        match &mut self.0 {
            Kind::Udp(link) => link.payload_to(node),
            Kind::Shm(_) => None,
            Kind::Both(both) if both.shm.knows_node(node) => None,
            Kind::Both(both) => both.udp.payload_to(node),
            Kind::Switched(link) => link.outside.as_mut()?.payload_to(node),
        }
    }

    /// Maximum size of an IP packet, if the link has one.
    pub(crate) fn mtu(&self) -> usize {
        match &self.0 {
            Kind::Udp(link) => link.mtu(),
            Kind::Shm(_) => usize::MAX,
            Kind::Both(both) => both.udp.mtu(),
            Kind::Switched(link) => link.outside.as_ref().map_or(usize::MAX, Self::mtu),
        }
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        match &self.0 {
            Kind::Udp(link) => link.counters,
            Kind::Shm(link) => link.counters,
            Kind::Both(both) => both.counters(),
            Kind::Switched(link) => {
                let outside = link.outside.as_ref().map_or_else(LinkCounters::default, Self::counters);
                link.port.counters.with(outside)
            }
        }
    }

    /// Returns the source of frames, to wait for them after [`prepare_to_sleep`](Self::prepare_to_sleep).
    pub(crate) fn events(&self) -> LinkEvents {
        match &self.0 {
            Kind::Udp(link) => LinkEvents(EventSource::Socket(link.socket())),
            Kind::Shm(link) => LinkEvents(EventSource::Epoll(link.events())),
            Kind::Both(both) => LinkEvents(EventSource::Epoll(Arc::clone(&both.events))),
            Kind::Switched(link) => LinkEvents(EventSource::Epoll(Arc::clone(&link.events))),
        }
    }

    /// Queues a frame for its node, or for all peers if the node is unknown. It leaves no later than with [`flush`](Self::flush).
    pub fn queue(&mut self, frame: &[u8]) {
        match &mut self.0 {
            Kind::Udp(link) => link.queue(frame),
            Kind::Shm(link) => link.queue(frame),
            Kind::Both(both) => both.queue(frame),
            Kind::Switched(link) => link.queue(frame),
        }
    }

    /// Returns whether [`queue_parts`](Self::queue_parts) takes frames for a node.
    pub(crate) fn takes_parts(&self, node: NodeId) -> bool {
        match &self.0 {
            Kind::Shm(link) => link.knows_node(node),
            Kind::Both(both) => both.shm.knows_node(node),
            Kind::Udp(_) | Kind::Switched(_) => false,
        }
    }

    /// As [`queue`](Self::queue), for a frame in parts, the first of which has the header.
    pub(crate) fn queue_parts(&mut self, parts: [&[u8]; 3]) {
        match &mut self.0 {
            Kind::Shm(link) => link.queue_parts(parts),
            Kind::Both(both) => both.shm.queue_parts(parts),
            // Such links take whole frames.
            Kind::Udp(_) | Kind::Switched(_) => {}
        }
    }

    /// Sends the frames that wait.
    pub fn flush(&mut self) {
        match &mut self.0 {
            Kind::Udp(link) => link.flush(),
            Kind::Shm(link) => link.flush(),
            Kind::Both(both) => {
                both.shm.flush();
                both.udp.flush();
            }
            Kind::Switched(link) => {
                if let Some(outside) = &mut link.outside {
                    outside.flush();
                }
            }
        }
    }

    /// As [`receive`](Self::receive); a frame may be where a link by shared memory has received it.
    pub(crate) fn receive_shared(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<ReceivedFrame<'_>> {
        match &mut self.0 {
            Kind::Shm(link) => link.receive_shared(is_local),
            Kind::Both(both) => both.receive_shared(is_local),
            Kind::Udp(link) => link.receive(is_local).map(ReceivedFrame::Copied),
            Kind::Switched(link) => link.receive(&is_local).map(ReceivedFrame::Copied),
        }
    }

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        match &mut self.0 {
            Kind::Udp(link) => link.receive(is_local),
            Kind::Shm(link) => link.receive(is_local),
            Kind::Both(both) => both.receive(is_local),
            Kind::Switched(link) => link.receive(&is_local),
        }
    }

    /// Makes [`events`](Self::events) announce every frame that arrives from now on. Returns `false` if frames have arrived: the caller
    /// receives them and does not sleep.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        match &mut self.0 {
            Kind::Udp(link) => !link.has_received(),
            Kind::Shm(link) => link.prepare_to_sleep(),
            Kind::Both(both) => {
                // The socket wakes by itself, but it is asked rarely while this side is busy.
                both.calls = CALLS_PER_LOOK;
                both.shm.prepare_to_sleep() && !both.udp.has_received()
            }
            Kind::Switched(link) => {
                link.port.prepare_to_sleep() && link.outside.as_mut().is_none_or(Self::prepare_to_sleep)
            }
        }
    }
}

/// Descriptor of a link that is readable when frames may have arrived.
#[derive(Clone, Debug)]
pub struct LinkEvents(EventSource);

#[derive(Clone, Debug)]
enum EventSource {
    Socket(Arc<UdpSocket>),
    Epoll(Arc<OwnedFd>),
}

impl LinkEvents {
    /// Waits until a frame has arrived, `beside` is readable, or `limit` has passed.
    pub(crate) fn wait(&self, limit: Duration, beside: Option<BorrowedFd<'_>>) {
        let limit = Timespec::try_from(limit).ok();
        let own = PollFd::new(self, PollFlags::IN);
        // Interrupted by a signal: the caller checks and waits again.
        let _ = match &beside {
            Some(beside) => poll(&mut [own, PollFd::new(beside, PollFlags::IN)], limit.as_ref()),
            None => poll(&mut [own], limit.as_ref()),
        };
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            EventSource::Socket(socket) => socket.as_fd(),
            EventSource::Epoll(epoll) => epoll.as_fd(),
        }
    }
}

#[cfg(test)]
#[path = "any_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "switch_tests.rs"]
mod switch_tests;
