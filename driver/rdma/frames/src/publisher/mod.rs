//! Side that has the frames.
//!
//! ```text
//! take() -> Frame, filled by its user -> publish() -> [queue] -> H2C -> slot in card memory -> a transfer per subscriber
//!            ^ 0 -> 1                     number, subscribers         ^ read by all of them: +1 each, -1 as each one ends
//! ```
//!
//! [`Publisher::publish`] decides and accesses no card: it writes the frame's header, gives it a number, promises it to every subscriber
//! with a free slot, and puts it into the channel's ring. [`Publisher::poll`] does the rest, and never waits either. The owner of the
//! publisher calls both.

mod admission;
mod closing;
mod drive;
pub(crate) mod frame;
mod options;
mod status;
mod subscriber_state;
mod transfers;

use std::time::Duration;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use fpga_driver::{C2hChannel, Card, ChannelOptions, DmaBuffer, H2cChannel, NodeId};
use fpga_rdma::{Endpoint, SendTicket};

use crate::blocks::{BLOCK, FrameHeader};
use crate::bootstrap::{JoinConnection, Listener};
use crate::error::{InternalErrors, PublishError, PublisherError, TakeError};
use crate::geometry::{Geometry, GeometryError, Layout};
use crate::idle::IdleBackoff;
use crate::pool::SlotPool;
use crate::retries::RetryBackoff;
use fpga_frames_wire::Sequence;

pub use frame::{Frame, TooLong};
pub use options::{MAX_SUBSCRIBERS, PublisherOptions};
pub(crate) use status::MAX_UNREAD_STATUSES;
pub(crate) use subscriber_state::ControlBlock;
pub use subscriber_state::{
    DropReason, PublisherEvent, SubscriberId, SubscriberSet, SubscriberStatistics, SubscriberView,
};

use frame::{FrameMemory, ReturnQueue};
use subscriber_state::SubscriberState;

/// Maximum number of events that are kept until they are taken; then the oldest are dropped.
const EVENTS: usize = 256;

/// Result of publishing a frame. Every frame has a number, also when no subscriber gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Sequence number of the frame.
    pub sequence: Sequence,
    /// Subscribers to which the frame is sent.
    pub sent: SubscriberSet,
    /// Subscribers that miss it because they have no free slot.
    pub skipped: SubscriberSet,
}

/// Statistics of a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublisherStatistics {
    /// Published frames.
    pub published: u64,
    /// Frames that were sent to no subscriber although there were subscribers.
    pub unsent: u64,
    /// Frames sent, counted once per subscriber with a free slot.
    pub sent: u64,
    /// Frames skipped, counted once per subscriber without a free slot.
    pub skipped: u64,
    /// Frames that have arrived.
    pub arrived: u64,
    /// Frames whose transfer failed.
    pub failed: u64,
    /// Transfers of frames that were started. Small frames that wait together for one subscriber share a transfer.
    pub transfers: u64,
    /// Internal errors that were repaired.
    pub internal: InternalErrors,
}

/// Frame that has its number and is not in the card yet.
#[derive(Debug)]
struct Queued {
    memory: FrameMemory,
    sequence: Sequence,
    length: u64,
    targets: SubscriberSet,
}

/// Upload in the H2C channel, in the order of its ring.
#[derive(Debug)]
enum Upload {
    Frame { slot: usize, length: u64, targets: SubscriberSet },
    Status { member: usize, ended: bool },
}

/// Frame in card memory, with the subscribers to which it is still to be sent.
#[derive(Debug)]
struct PendingSends {
    slot: usize,
    length: u64,
    targets: SubscriberSet,
}

/// Purpose of a transfer.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// `count` frames, from `slot` of the pool and position `position` on.
    Frames {
        slot: usize,
        count: u32,
        member: usize,
        position: u32,
    },
    Status {
        member: usize,
        ended: bool,
    },
}

/// Publisher of frames. One per card: it owns the card's endpoint.
///
/// If it is dropped, it leaves without notice, and accepted frames may not arrive: [`close`](Self::close) ends the stream in order.
#[derive(Debug)]
pub struct Publisher {
    /// For sockets, and for connections of the program.
    listeners: Vec<Listener>,
    // In drop order: the engines stop before the memory that they read is freed.
    h2c: H2cChannel,
    c2h: C2hChannel,
    endpoint: Endpoint,
    card: Card,
    name: String,
    options: PublisherOptions,
    geometry: Geometry,
    layout: Layout,
    stream: u64,
    next: Sequence,
    pool: SlotPool,
    /// Memory of slots that is held neither by a user nor by the channel.
    memory: Box<[Option<DmaBuffer>]>,
    heap: Vec<Vec<u8>>,
    /// Number of frames in ordinary memory that exist.
    heap_made: u32,
    return_queue: ReturnQueue,
    queue: VecDeque<Queued>,
    uploads: VecDeque<Upload>,
    ready: VecDeque<PendingSends>,
    /// By ticket. The slots of tickets are no indices: those of a sending card begin at 2^24.
    transfers: HashMap<SendTicket, Purpose>,
    members: Box<[Option<SubscriberState>]>,
    members_made: u64,
    /// Buffer for the fetch of all credits; `None` while that is in progress.
    credits: Option<DmaBuffer>,
    credit_fetch_due: bool,
    events: VecDeque<PublisherEvent>,
    statistics: PublisherStatistics,
    /// Retries of statuses being uploaded into the card, and of credits being fetched from it.
    status_retries: RetryBackoff,
    credit_retries: RetryBackoff,
    closing: bool,
    idle: IdleBackoff,
}

impl Publisher {
    /// Creates a publisher on an endpoint.
    ///
    /// # Errors
    /// See [`PublisherError`]; the endpoint is closed in this case.
    pub fn new(endpoint: Endpoint, options: PublisherOptions) -> Result<Self, PublisherError> {
        let card = endpoint.card().clone();
        let name = card.name().to_owned();
        let wrong = |source: GeometryError| PublisherError::Geometry { card: name.clone(), cause: source };
        let out_of_range =
            |what, found: u64, expected| PublisherError::Option { card: name.clone(), what, found, expected };
        if options.subscribers == 0 || options.subscribers > MAX_SUBSCRIBERS {
            let found = options.subscribers.into();
            return Err(out_of_range("the number of subscribers", found, "1 to 64"));
        }
        if options.slots > 1 << 14 {
            return Err(out_of_range("the number of slots", options.slots.into(), "1 to 16384"));
        }
        if options.heap_slots > 1 << 16 {
            let found = options.heap_slots.into();
            return Err(out_of_range("the number of slots in ordinary memory", found, "0 to 65536"));
        }
        let geometry = Geometry::new(options.max_value_length, options.max_data_length).map_err(wrong)?;
        let memory = options.memory.unwrap_or_else(|| endpoint.usable_memory());
        // A subscriber that has left keeps its entry until every transfer to it has ended.
        let places = (2 * options.subscribers).min(MAX_SUBSCRIBERS);
        let layout = geometry.layout(options.slots, 2 * places, memory).map_err(wrong)?;
        let pushes = card.info().ni.as_ref().is_some_and(|ni| ni.event_push);
        // Without pushed events the endpoint fetches them by channel 0.
        let fetching = options.c2h.unwrap_or(if pushes { 0 } else { 1 });
        let transfers = (options.slots + places + 1).next_power_of_two().max(256);
        let rings = ChannelOptions::default().transfers(transfers).descriptors(4 * transfers);
        let h2c = card.h2c_with(options.h2c, rings)?;
        let c2h = card.c2h(fetching)?;
        let slots = usize::try_from(options.slots).unwrap_or(usize::MAX);
        let heap_slots = usize::try_from(options.heap_slots).unwrap_or(usize::MAX);
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        // `Geometry` guarantees that the stride fits.
        let stride = usize::try_from(geometry.stride()).unwrap_or(usize::MAX);
        let buffers: Result<Vec<_>, _> = (0..slots).map(|_| card.buffer(stride).map(Some)).collect();
        let credits = card.buffer(places * BLOCK)?;
        let stream = u64::from(endpoint.incarnation().get()) << 32 | u64::from(endpoint.node().get());
        Ok(Self {
            listeners: Vec::new(),
            h2c,
            c2h,
            endpoint,
            card,
            geometry,
            layout,
            stream,
            next: options.first_sequence,
            pool: SlotPool::new(slots),
            memory: buffers?.into(),
            heap: Vec::new(),
            heap_made: 0,
            return_queue: Arc::new(ArrayQueue::new(slots.saturating_add(heap_slots).max(1))),
            queue: VecDeque::with_capacity(slots.saturating_add(heap_slots.min(1 << 10))),
            uploads: VecDeque::with_capacity(slots + places),
            ready: VecDeque::with_capacity(slots),
            transfers: HashMap::new(),
            members: (0..places).map(|_| None).collect(),
            members_made: 0,
            credits: Some(credits),
            credit_fetch_due: false,
            events: VecDeque::with_capacity(EVENTS),
            statistics: PublisherStatistics::default(),
            status_retries: RetryBackoff::default(),
            credit_retries: RetryBackoff::default(),
            closing: false,
            idle: IdleBackoff::default(),
            name,
            options,
        })
    }

    /// Listens for subscribers on `address`, port 0 for any port. Returns the actual address.
    ///
    /// # Errors
    /// [`PublisherError::System`].
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, PublisherError> {
        let failed = |source: std::io::Error| PublisherError::System {
            what: format!("listening on {address}"),
            reason: format!("{source}; {}", crate::bootstrap::advice(&source)),
        };
        let listener = Listener::bind(address, self.options.conversations, self.options.patience);
        let listener = listener.map_err(failed)?;
        let bound = listener.address().transpose().map_err(failed)?.unwrap_or(address);
        self.listeners.retain(|listener| listener.address().is_none());
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Begins the conversation with a subscriber that joins over a connection of the program ([`Subscriber::begin_join_over`]). Events name
    /// it `peer`. Its time limits are those of [`PublisherOptions`], by the endpoint's clock.
    ///
    /// [`Subscriber::begin_join_over`]: crate::Subscriber::begin_join_over
    pub fn accept(&mut self, connection: Box<dyn JoinConnection>, peer: SocketAddr) {
        if self.listeners.iter().all(|listener| listener.address().is_some()) {
            let listener = Listener::of_program(self.options.conversations, self.options.patience);
            self.listeners.push(listener);
        }
        // A listener for sockets ignores it.
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.address().is_none()) {
            listener.add(connection, peer);
        }
    }

    /// Node of the publisher.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.endpoint.node()
    }

    /// Sequence number of the next frame.
    #[must_use]
    pub const fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// Sizes of the frames.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The endpoint, for listings and counters.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Statistics since it was opened.
    #[must_use]
    pub const fn statistics(&self) -> PublisherStatistics {
        self.statistics
    }

    /// Returns the oldest event that was not taken.
    #[must_use]
    pub fn next_event(&mut self) -> Option<PublisherEvent> {
        self.events.pop_front()
    }

    /// Lists the current subscribers.
    pub fn subscribers(&self) -> impl Iterator<Item = SubscriberView> {
        let share = self.share();
        self.members.iter().flatten().filter(|member| member.gone.is_none()).map(move |member| {
            SubscriberView {
                id: member.id,
                node: member.node,
                slots: member.slots,
                room: member.free_slots(share),
                statistics: member.statistics,
            }
        })
    }

    /// Number of free slots.
    #[must_use]
    pub const fn free_slots(&self) -> usize {
        self.pool.free()
    }

    /// Maximum number of slots of the pool that frames for one subscriber may hold. An unreachable subscriber holds them until its
    /// transfers are given up, so it must not get all of them.
    fn share(&self) -> u32 {
        if self.active_count() > 1 { (self.options.slots / 2).max(1) } else { u32::MAX }
    }

    fn event(&mut self, event: PublisherEvent) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn now(&self) -> Duration {
        self.endpoint.now()
    }

    /// Lets a card inside this thread take a step. Call it in a polling loop.
    pub fn relax(&self) {
        self.endpoint.relax();
    }

    /// Backs off in a loop that only polls: as [`relax`](Self::relax) at first; after some polls that find nothing, this thread sleeps for
    /// a twentieth of a millisecond.
    pub fn back_off(&mut self) {
        self.idle.back_off(&self.endpoint);
    }

    /// Reclaims the memory of frames that users have dropped.
    fn reclaim(&mut self) {
        while let Some(memory) = self.return_queue.pop() {
            self.return_buffer(memory);
        }
    }

    fn return_buffer(&mut self, memory: FrameMemory) {
        match memory {
            FrameMemory::Slot(slot, buffer) => {
                if let Some(place) = self.memory.get_mut(slot) {
                    *place = Some(buffer);
                }
                self.release(slot);
            }
            FrameMemory::Heap(bytes) => self.heap.push(bytes),
        }
    }

    fn release(&mut self, slot: usize) {
        // Every reference was counted by this module: one too many would be a defect here, and is harmless.
        let released = self.pool.release(slot);
        debug_assert!(released.is_ok(), "{released:?}");
    }

    /// Takes a free slot with its memory.
    fn take_slot(&mut self) -> Option<(usize, DmaBuffer)> {
        let slot = self.pool.take()?;
        let buffer = self.memory.get_mut(slot).and_then(Option::take);
        if buffer.is_none() {
            // A free slot always has its memory.
            debug_assert!(false, "slot {slot} without memory");
            self.release(slot);
        }
        Some((slot, buffer?))
    }

    /// Returns a frame to be filled. Never waits: if no slot is free, it polls for ended transfers; then it uses ordinary memory; above the
    /// limit of that it fails (E3-4).
    ///
    /// # Errors
    /// See [`TakeError`].
    pub fn take(&mut self) -> Result<Frame, TakeError> {
        if self.closing {
            return Err(TakeError::Closing);
        }
        self.reclaim();
        let mut found = self.take_slot();
        if found.is_none() {
            self.poll()?;
            found = self.take_slot();
        }
        let stride = usize::try_from(self.geometry.stride()).unwrap_or(usize::MAX);
        let memory = match found {
            Some((slot, mut buffer)) => {
                // The whole length of the slot.
                let whole = buffer.set_len(stride);
                debug_assert!(whole.is_ok());
                FrameMemory::Slot(slot, buffer)
            }
            None => FrameMemory::Heap(self.take_heap(stride)?),
        };
        let max_data_length = usize::try_from(self.geometry.max_data_length()).unwrap_or(usize::MAX);
        Ok(Frame {
            memory: Some(memory),
            return_queue: Arc::clone(&self.return_queue),
            value_length: 0,
            max_value_length: usize::try_from(self.geometry.max_value_length()).unwrap_or(usize::MAX),
            max_data_length,
            length: max_data_length,
        })
    }

    fn take_heap(&mut self, stride: usize) -> Result<Vec<u8>, TakeError> {
        let (slots, heap_slots) = (self.options.slots, self.options.heap_slots);
        let bytes = match self.heap.pop() {
            Some(bytes) => bytes,
            None if self.heap_made < heap_slots => {
                self.heap_made += 1;
                vec![0; stride]
            }
            None => return Err(TakeError::Full { slots, heap_slots }),
        };
        self.statistics.internal.heap_frames += 1;
        Ok(bytes)
    }

    /// Assigns the frame its number and promises it to every subscriber with a free slot. Never waits and never retries: the data is live.
    /// The frame leaves with the next [`poll`](Self::poll).
    ///
    /// # Errors
    /// See [`PublishError`].
    pub fn publish(&mut self, mut frame: Frame) -> Result<Published, PublishError> {
        if self.closing {
            return Err(PublishError::Closing);
        }
        if !Arc::ptr_eq(&frame.return_queue, &self.return_queue) {
            return Err(PublishError::Foreign);
        }
        let data = frame.length as u64;
        let value_length = u32::try_from(frame.value_length).unwrap_or(u32::MAX);
        let mut memory = frame.memory.take().ok_or(PublishError::Foreign)?;
        let sequence = self.next;
        self.next = sequence.next();
        self.statistics.published += 1;
        let (mut sent, mut skipped) = (SubscriberSet::default(), SubscriberSet::default());
        let share = self.share();
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member.as_mut().filter(|member| member.gone.is_none()) else { continue };
            if member.free_slots(share) > 0 && member.credits.reserve() {
                sent.insert(index);
                member.statistics.sent += 1;
            } else {
                skipped.insert(index);
                member.statistics.skipped += 1;
            }
        }
        self.statistics.sent += u64::from(sent.len());
        self.statistics.skipped += u64::from(skipped.len());
        if sent.is_empty() {
            self.return_buffer(memory);
            if skipped.is_empty() {
                return Ok(Published { sequence, sent, skipped });
            }
            self.statistics.unsent += 1;
            return Err(PublishError::NoFreeSlot { sequence, subscribers: skipped.len() });
        }
        let header = FrameHeader {
            stream: self.stream,
            sequence,
            data_length: data,
            value_length,
            max_value_length: self.geometry.max_value_length(),
            time: u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX),
        };
        let whole = memory.bytes().write(0, &header.encode());
        debug_assert!(whole.is_ok(), "a frame has space for its header");
        let queued = Queued { memory, sequence, length: self.geometry.frame_length(data), targets: sent };
        if !self.queue.is_empty() || matches!(queued.memory, FrameMemory::Heap(_)) {
            // In order, behind those that wait for a slot.
            self.queue.push_back(queued);
        } else {
            self.upload(queued).map_err(|source| PublishError::Submit { sequence, cause: source })?;
        }
        Ok(Published { sequence, sent, skipped })
    }
}
