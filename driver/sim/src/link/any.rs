//! A link of any kind, as a simulated network uses it.

use super::shm::ShmLink;
use super::udp::UdpLink;
use super::{LinkCounters, LinkError, WRAPPER_LENGTH};
use fpga_firmware::NodeId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
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
}

/// Number of calls without a frame by UDP after which a link of both kinds makes a system call for it.
const CALLS_PER_LOOK: u32 = 64;

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
}

impl Both {
    fn counters(&self) -> LinkCounters {
        let (shm, udp) = (self.shm.counters, self.udp.counters);
        LinkCounters {
            sent: shm.sent + udp.sent,
            flooded: shm.flooded + udp.flooded,
            unsent: shm.unsent + udp.unsent,
            received: shm.received + udp.received,
            malformed: shm.malformed + udp.malformed,
            unknown_senders: shm.unknown_senders + udp.unknown_senders,
            misdirected: shm.misdirected + udp.misdirected,
        }
    }

    fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        self.calls += 1;
        if self.has_udp_nodes || self.calls >= CALLS_PER_LOOK {
            self.calls = 0;
            // Datagrams first, so that the frame of the other link can be returned without a second look.
            if self.udp.fetch(&is_local) {
                self.has_udp_nodes = true;
                return self.udp.fetched();
            }
        }
        self.shm.receive(is_local)
    }
}

/// Place of a node on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkAddress {
    /// Address of its UDP link.
    Udp(SocketAddr),
    /// Path of its link by shared memory.
    Shm(PathBuf),
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
        let both = Both { shm, udp, events: Arc::new(events), has_udp_nodes: false, calls: 0 };
        Ok(Self(Kind::Both(Box::new(both))))
    }

    /// Records where a node is. Returns `false` if this link has no way there.
    pub(crate) fn locate(&mut self, node: NodeId, address: &LinkAddress) -> bool {
        match (&mut self.0, address) {
            (Kind::Udp(link), LinkAddress::Udp(address)) => link.locate(node, *address),
            (Kind::Shm(link), LinkAddress::Shm(path)) => link.locate(node, path),
            (Kind::Both(both), LinkAddress::Udp(address)) => {
                both.shm.forget(node);
                both.has_udp_nodes = both.udp.locate(node, *address);
                both.has_udp_nodes
            }
            (Kind::Both(both), LinkAddress::Shm(path)) => both.shm.locate(node, path),
            _ => false,
        }
    }

    /// Maximum frame length in bytes.
    pub(crate) fn largest_frame(&self) -> usize {
        match &self.0 {
            Kind::Udp(link) => link.largest_frame(),
            Kind::Shm(_) => super::shm::MAX_DATAGRAM - WRAPPER_LENGTH,
            Kind::Both(both) => both.udp.largest_frame(),
        }
    }

    /// Maximum size of an IP packet, if the link has one.
    pub(crate) fn mtu(&self) -> usize {
        match &self.0 {
            Kind::Udp(link) => link.mtu(),
            Kind::Shm(_) => usize::MAX,
            Kind::Both(both) => both.udp.mtu(),
        }
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        match &self.0 {
            Kind::Udp(link) => link.counters,
            Kind::Shm(link) => link.counters,
            Kind::Both(both) => both.counters(),
        }
    }

    /// Returns the source of frames, to wait for them after [`prepare_to_sleep`](Self::prepare_to_sleep).
    pub(crate) fn events(&self) -> LinkEvents {
        match &self.0 {
            Kind::Udp(link) => LinkEvents(EventSource::Socket(link.socket())),
            Kind::Shm(link) => LinkEvents(EventSource::Epoll(link.events())),
            Kind::Both(both) => LinkEvents(EventSource::Epoll(Arc::clone(&both.events))),
        }
    }

    /// Queues a frame for its node, or for all peers if the node is unknown. It leaves no later than with [`flush`](Self::flush).
    pub(crate) fn queue(&mut self, frame: &[u8]) {
        match &mut self.0 {
            Kind::Udp(link) => link.queue(frame),
            Kind::Shm(link) => link.queue(frame),
            Kind::Both(both) if both.shm.knows_node_of(frame) => both.shm.queue(frame),
            Kind::Both(both) if both.udp.knows_node_of(frame) => both.udp.queue(frame),
            Kind::Both(both) => {
                both.shm.queue(frame);
                both.udp.queue(frame);
            }
        }
    }

    /// Sends the frames that wait.
    pub(crate) fn flush(&mut self) {
        match &mut self.0 {
            Kind::Udp(link) => link.flush(),
            Kind::Shm(link) => link.flush(),
            Kind::Both(both) => {
                both.shm.flush();
                both.udp.flush();
            }
        }
    }

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub(crate) fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        match &mut self.0 {
            Kind::Udp(link) => link.receive(is_local),
            Kind::Shm(link) => link.receive(is_local),
            Kind::Both(both) => both.receive(is_local),
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
