//! A link of any kind, as a simulated network uses it.

use super::shm::ShmLink;
use super::udp::UdpLink;
use super::{LinkCounters, WRAPPER_LENGTH};
use fpga_firmware::NodeId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::UdpSocket;
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
    /// Maximum frame length in bytes.
    pub(crate) fn largest_frame(&self) -> usize {
        match &self.0 {
            Kind::Udp(link) => link.largest_frame(),
            Kind::Shm(_) => super::shm::MAX_DATAGRAM - WRAPPER_LENGTH,
        }
    }

    /// Maximum size of an IP packet, if the link has one.
    pub(crate) fn mtu(&self) -> usize {
        match &self.0 {
            Kind::Udp(link) => link.mtu(),
            Kind::Shm(_) => usize::MAX,
        }
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        match &self.0 {
            Kind::Udp(link) => link.counters,
            Kind::Shm(link) => link.counters,
        }
    }

    /// Returns the source of frames, to wait for them after [`prepare_to_sleep`](Self::prepare_to_sleep).
    pub(crate) fn events(&self) -> LinkEvents {
        match &self.0 {
            Kind::Udp(link) => LinkEvents(EventSource::Socket(link.socket())),
            Kind::Shm(link) => LinkEvents(EventSource::Epoll(link.events())),
        }
    }

    /// Queues a frame for its node, or for all peers if the node is unknown. It leaves no later than with [`flush`](Self::flush).
    pub(crate) fn queue(&mut self, frame: &[u8]) {
        match &mut self.0 {
            Kind::Udp(link) => link.queue(frame),
            Kind::Shm(link) => link.queue(frame),
        }
    }

    /// Sends the frames that wait.
    pub(crate) fn flush(&mut self) {
        match &mut self.0 {
            Kind::Udp(link) => link.flush(),
            Kind::Shm(link) => link.flush(),
        }
    }

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub(crate) fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        match &mut self.0 {
            Kind::Udp(link) => link.receive(is_local),
            Kind::Shm(link) => link.receive(is_local),
        }
    }

    /// Makes [`events`](Self::events) announce every frame that arrives from now on. Returns `false` if frames have arrived: the caller
    /// receives them and does not sleep.
    pub(crate) fn prepare_to_sleep(&mut self) -> bool {
        match &mut self.0 {
            Kind::Udp(link) => !link.has_received(),
            Kind::Shm(link) => link.prepare_to_sleep(),
        }
    }
}

/// Event source of a link, for waiting.
#[derive(Clone, Debug)]
pub(crate) struct LinkEvents(EventSource);

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
