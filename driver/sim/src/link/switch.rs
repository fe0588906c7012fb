//! Switch between simulated networks of one process: each has a port, and frames pass from port to port in memory of the process.
//!
//! A frame for a node without a port leaves by the sender's own outside link, if it has one ([`super::Link::on_switch`]). Frames are lost when the receiver's queue is full.
//! A port forwards the frames of its node only: the owner of a card cannot send in the name of another one.

use super::wrapper::{self, Nodes};
use super::{LinkCounters, LinkError};
use fpga_firmware::NodeId;
use fpga_pci::{Interrupt, InterruptError, InterruptTrigger, lock};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex};

/// Maximum number of frames that wait at a port.
pub(super) const MAX_WAITING: usize = 4096;
/// Maximum number of buffers that a port keeps for later frames.
const MAX_SPARE: usize = 256;

/// Switch; clones are handles of the same one.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    inboxes: Arc<Mutex<HashMap<NodeId, Arc<Inbox>>>>,
}

/// Receiving side of a port.
#[derive(Debug)]
struct Inbox {
    queue: Mutex<Queue>,
    wake: InterruptTrigger,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Its port sleeps: the next frame wakes it.
    is_asleep: bool,
    is_closed: bool,
}

/// Result of offering a frame to a port.
enum Offer {
    Taken,
    Full,
    Closed,
}

impl Inbox {
    fn offer(&self, frame: &[u8]) -> Offer {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return Offer::Closed;
        }
        if queue.frames.len() >= MAX_WAITING {
            return Offer::Full;
        }
        let mut buffer = queue.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        queue.frames.push_back(buffer);
        let is_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if is_asleep {
            self.wake.signal();
        }
        Offer::Taken
    }
}

impl Switch {
    /// Creates a switch without ports.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn inbox(&self, node: NodeId) -> Option<Arc<Inbox>> {
        lock(&self.inboxes).get(&node).cloned()
    }
}

/// Port of a switch.
#[derive(Debug)]
pub(super) struct Port {
    node: NodeId,
    switch: Switch,
    inbox: Arc<Inbox>,
    /// Readable when the port was woken.
    arrived: Interrupt,
    /// Port of the last frame's node.
    route: Option<(NodeId, Arc<Inbox>)>,
    /// Frames taken from the inbox together, and buffers that go back.
    batch: VecDeque<Vec<u8>>,
    used: Vec<Vec<u8>>,
    current: Vec<u8>,
    pub(super) counters: LinkCounters,
}

impl Port {
    /// Opens the port of `node`.
    ///
    /// # Errors
    /// [`LinkError::PortEvents`], [`LinkError::Port`].
    pub(super) fn open(switch: &Switch, node: NodeId) -> Result<Self, LinkError> {
        let failed = |error: InterruptError| LinkError::PortEvents { node, reason: error.to_string() };
        let (arrived, wake) = Interrupt::pair().map_err(failed)?;
        let inbox = Arc::new(Inbox { queue: Mutex::new(Queue::default()), wake });
        {
            let mut inboxes = lock(&switch.inboxes);
            if inboxes.contains_key(&node) {
                return Err(LinkError::Port { node });
            }
            inboxes.insert(node, Arc::clone(&inbox));
        }
        Ok(Self {
            node,
            switch: switch.clone(),
            inbox,
            arrived,
            route: None,
            batch: VecDeque::new(),
            used: Vec::new(),
            current: Vec::new(),
            counters: LinkCounters::default(),
        })
    }

    /// Readable when the port was woken.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }

    /// Passes a frame to the port of its node. Returns `false` if there is none.
    pub(super) fn queue(&mut self, frame: &[u8]) -> bool {
        let Ok((_, Nodes { source, destination })) = wrapper::header(frame) else {
            self.counters.unsent += 1;
            return true;
        };
        if source != self.node {
            self.counters.misdirected += 1;
            return true;
        }
        match self.offer(destination, frame) {
            Some(Offer::Taken) => self.counters.sent += 1,
            Some(_) => self.counters.unsent += 1,
            None => return false,
        }
        true
    }

    /// Offers a frame to the port of its node; `None` if there is none.
    fn offer(&mut self, destination: NodeId, frame: &[u8]) -> Option<Offer> {
        if let Some((node, inbox)) = &self.route
            && *node == destination
        {
            match inbox.offer(frame) {
                // Another port of this node may have been opened.
                Offer::Closed => self.route = None,
                offer => return Some(offer),
            }
        }
        let inbox = self.switch.inbox(destination)?;
        let offer = inbox.offer(frame);
        self.route = Some((destination, inbox));
        Some(offer)
    }

    /// Takes the next frame of other ports, to be read by [`fetched`](Self::fetched). Returns `false` if there is none.
    pub(super) fn fetch(&mut self, is_local: &dyn Fn(NodeId) -> bool) -> bool {
        loop {
            if self.batch.is_empty() {
                let mut queue = lock(&self.inbox.queue);
                std::mem::swap(&mut queue.frames, &mut self.batch);
                let space = MAX_SPARE.saturating_sub(queue.spare.len()).min(self.used.len());
                queue.spare.extend(self.used.drain(..space));
                drop(queue);
                self.used.clear();
            }
            let Some(frame) = self.batch.pop_front() else { return false };
            let before = std::mem::replace(&mut self.current, frame);
            self.used.push(before);
            // Ports are named by nodes that their cards may have given up since.
            if wrapper::destination(&self.current).is_some_and(is_local) {
                self.counters.received += 1;
                return true;
            }
            self.counters.misdirected += 1;
        }
    }

    /// Returns the frame that was taken last.
    pub(super) fn fetched(&self) -> &[u8] {
        &self.current
    }

    /// Makes the next frame wake the port. Returns `false` if frames have arrived.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        // First: what comes after the check signals again.
        let _ = self.arrived.try_take();
        let is_empty = {
            let mut queue = lock(&self.inbox.queue);
            queue.is_asleep = true;
            queue.frames.is_empty()
        };
        is_empty && self.batch.is_empty()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        lock(&self.switch.inboxes).remove(&self.node);
        let mut queue = lock(&self.inbox.queue);
        *queue = Queue { is_closed: true, ..Queue::default() };
    }
}
