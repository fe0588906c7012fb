//! Impairments of frames between two cards: loss, delay, reordering, duplication, corruption, a rate, a queue, blackouts.
//!
//! A model without clock or thread: [`ImpairedLink::offer`] frames, [`ImpairedLink::poll`] deliveries. A frame passes these stages in
//! order:
//!
//! | stage | effect |
//! |---|---|
//! | [`Blackout`], [`FailedRoute`] | every frame offered meanwhile is lost; those of one route are |
//! | [`Rate`] | the frame waits for earlier ones; if the queue is full, it is dropped |
//! | marks | a frame that has to wait too long is marked (ECN) |
//! | [`Loss`] | the frame is lost, independently or in bursts |
//! | damage | up to three bits are flipped |
//! | copies | a duplicate is sent, with its own delay |
//! | [`Delay`] | constant, or random by a distribution |
//! | [`Order`] | reordered with other frames, up to a degree |
//!
//! Data and control packets have separate [`Conditions`]. All random numbers come from one seed, with one stream of numbers per cause and
//! class, and each frame takes the same count of numbers from a stream in every case. Therefore the loss of the n-th data frame does not
//! depend on the delay distribution, schemes can be compared on the same network, and every run can be replayed.

#![no_std]

extern crate alloc;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

mod models;
mod order;
mod rate;

pub use models::{Bursts, Conditions, Delay, DistributionError, Loss, Probability};
pub use order::{DeliveryPath, Order, OrderError};
pub use rate::{BitRate, Rate};

use fpga_firmware::Nanos;
use models::ImpairmentRng;
use rate::Serializer;

/// Decision that a stream of random numbers controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Which held frame is delivered next.
    Order,
    /// Whether a frame is lost.
    Loss,
    /// Whether a burst of losses begins or ends.
    Burst,
    /// Delay of a frame.
    Delay,
    /// Whether a frame is duplicated.
    Copy,
    /// Delay of the duplicate.
    CopyDelay,
    /// Whether a frame is damaged, and which bits.
    Damage,
}

impl Cause {
    /// Odd constants far apart: PCG streams with different increments are independent sequences.
    const fn stream(self) -> u64 {
        match self {
            Self::Order => 0x5851_F42D_4C95_7F2D,
            Self::Loss => 0x9E37_79B9_7F4A_7C15,
            Self::Burst => 0xBF58_476D_1CE4_E5B9,
            Self::Delay => 0x94D0_49BB_1331_11EB,
            Self::Copy => 0xD6E8_FEB8_6659_FD93,
            Self::CopyDelay => 0xA076_1D64_78BD_642F,
            Self::Damage => 0xE703_7ED1_A0B4_28DB,
        }
    }

    /// Returns the random numbers of this cause for `seed`.
    #[must_use]
    pub fn numbers(self, seed: u64) -> Pcg32 {
        Pcg32::new(seed, self.stream())
    }

    /// Returns the random numbers of this cause for frames of `class` and `seed`.
    #[must_use]
    pub fn numbers_for(self, class: Class, seed: u64) -> Pcg32 {
        let seed = match class {
            Class::Data => seed,
            // Differs from the sequence of any neighbouring seed.
            Class::Control => seed ^ 0xC2B2_AE3D_27D4_EB4F,
        };
        let mut numbers = self.numbers(seed);
        // The first numbers of neighbouring seeds are similar.
        for _ in 0..4 {
            let _ = numbers.next_u32();
        }
        numbers
    }
}

/// Class of a frame, as far as a network can treat frames differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Payload.
    Data,
    /// Acknowledgements, negative acknowledgements, notices.
    Control,
}

/// Properties of a frame that a link needs.
pub trait Frame: Clone {
    /// Class of the frame.
    fn class(&self) -> Class;
    /// Length on the wire in bytes.
    fn length(&self) -> u64;
    /// Inverts bit `bit` of the frame, counted from 0.
    fn flip_bit(&mut self, bit: u64);

    /// Path identifier, which selects the route among several; 0 for frames without one.
    fn path(&self) -> u8 {
        0
    }

    /// Marks the frame because of a long queue. Frames without a place for the mark stay as they are.
    fn mark(&mut self) {}

    /// Copies the frame into `spare`, an unused frame, to avoid the allocation of a clone.
    #[must_use]
    fn copy_into(&self, mut spare: Self) -> Self {
        spare.clone_from(self);
        spare
    }
}

/// An encoded packet; anything but a data packet counts as control.
impl Frame for Vec<u8> {
    fn class(&self) -> Class {
        use fpga_firmware::generated::PacketKind;
        let kind = self.get(1).and_then(|kind| PacketKind::try_from(*kind).ok());
        match kind {
            Some(
                PacketKind::Data | PacketKind::Start | PacketKind::MessageData | PacketKind::MessageStart,
            ) => Class::Data,
            _ => Class::Control,
        }
    }

    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn flip_bit(&mut self, bit: u64) {
        let at = usize::try_from(bit >> 3).unwrap_or(usize::MAX);
        if let Some(byte) = self.get_mut(at) {
            *byte ^= 1 << (bit & 7);
        }
    }

    fn path(&self) -> u8 {
        self.get(fpga_firmware::generated::layout::common::PATH).copied().unwrap_or(0)
    }

    fn mark(&mut self) {
        let _ = fpga_firmware::wire::mark(self);
    }
}

/// A frame with a tag of the caller, for example its owner.
impl<T: Copy, F: Frame> Frame for (T, F) {
    fn class(&self) -> Class {
        self.1.class()
    }

    fn length(&self) -> u64 {
        self.1.length()
    }

    fn flip_bit(&mut self, bit: u64) {
        self.1.flip_bit(bit);
    }

    fn path(&self) -> u8 {
        self.1.path()
    }

    fn mark(&mut self) {
        self.1.mark();
    }

    fn copy_into(&self, spare: Self) -> Self {
        (self.0, self.1.copy_into(spare.1))
    }
}

/// Period in which no frame enters the link. Frames in flight still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blackout {
    /// Start.
    pub from: Nanos,
    /// Duration.
    pub length: Nanos,
}

/// One of several routes of equal length that loses all its frames. The path identifier of a frame selects its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailedRoute {
    /// Number of routes; 0 counts as 1.
    pub routes: u8,
    /// The failed one, from 0.
    pub failed: u8,
    /// Time span of the failure.
    pub span: Blackout,
}

impl FailedRoute {
    fn loses(&self, now: Nanos, path: u8) -> bool {
        self.span.covers(now) && route_of(path, self.routes) == self.failed
    }
}

/// Returns the route of a path identifier among `routes` of equal length (0 counts as 1), from 0: a hash, as switches compute it.
#[must_use]
pub const fn route_of(path: u8, routes: u8) -> u8 {
    let hash = (path as u32 + 1).wrapping_mul(0x9E37_79B1) >> 16;
    let routes = if routes == 0 { 1 } else { routes };
    (hash % routes as u32).to_le_bytes()[0]
}

impl Blackout {
    fn covers(&self, now: Nanos) -> bool {
        now.checked_sub(self.from).is_some_and(|since| since < self.length)
    }
}

/// All impairments of a link. The default has none: frames are delivered in order, without delay.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Impairments {
    /// Conditions of data packets.
    pub data: Conditions,
    /// Conditions of all other packets.
    pub control: Conditions,
    /// Order of delivery.
    pub order: Order,
    /// Rate and queue. Default: none, frames take no time.
    pub rate: Option<Rate>,
    /// Propagation delay of every frame, in addition to its random delay.
    pub distance: Nanos,
    /// Periods in which no frame enters the link.
    pub blackouts: Vec<Blackout>,
    /// Routes that lose their frames.
    pub failed_routes: Vec<FailedRoute>,
    /// Time of waiting in the queue from which a frame is marked (ECN). Default: none is.
    pub mark_after: Option<Nanos>,
}

impl Impairments {
    /// Creates impairments with the same `conditions` for data and control packets.
    #[must_use]
    pub fn both(conditions: Conditions) -> Self {
        Self { data: conditions, control: conditions, ..Self::default() }
    }

    /// Sets the order of delivery.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the rate and the queue.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Marks frames that wait in the queue for at least `wait`.
    #[must_use]
    pub const fn mark_after(mut self, wait: Nanos) -> Self {
        self.mark_after = Some(wait);
        self
    }

    /// Sets the propagation delay, which is the minimum delay of every frame.
    #[must_use]
    pub const fn distance(mut self, distance: Nanos) -> Self {
        self.distance = distance;
        self
    }
}

/// Creates impairments with this order of delivery only.
impl From<Order> for Impairments {
    fn from(order: Order) -> Self {
        Self::default().order(order)
    }
}

/// Counters of the frames of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassCounters {
    /// Frames accepted.
    pub offered: u64,
    /// Frames lost by [`Loss`].
    pub lost: u64,
    /// Frames lost in a [`Blackout`] or on a [`FailedRoute`].
    pub blacked_out: u64,
    /// Frames that were marked.
    pub marked: u64,
    /// Frames dropped because the queue was full.
    pub overflowed: u64,
    /// Frames with flipped bits.
    pub damaged: u64,
    /// Duplicated frames.
    pub duplicated: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Data packets.
    pub data: ClassCounters,
    /// All other packets.
    pub control: ClassCounters,
    /// Bytes that were offered and for which the queue had space.
    pub bytes: u64,
    /// Frames delivered, duplicates included.
    pub delivered: u64,
}

#[derive(Clone, Debug)]
struct InTransit<F> {
    at: Nanos,
    number: u64,
    frame: F,
}

// Ordered by arrival, then by departure. Reversed: the heap yields the greatest first.
impl<F> Ord for InTransit<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<F> PartialOrd for InTransit<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> PartialEq for InTransit<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for InTransit<F> {}

/// Frames in transit, by the time of their arrival. Without random delays they arrive in the order of their departure: then they are in
/// a queue, and the heap is empty.
#[derive(Clone, Debug)]
struct Transit<F> {
    queue: VecDeque<InTransit<F>>,
    heap: BinaryHeap<InTransit<F>>,
}

impl<F> Transit<F> {
    /// Allocates memory for `capacity` frames, under the conditions of data and control packets.
    fn new(capacity: usize, data: &Conditions, control: &Conditions) -> Self {
        let is_constant =
            |one: &Conditions| matches!(one.delay, Delay::Constant(_)) && one.copy == Probability::NEVER;
        let is_ordered = is_constant(data) && is_constant(control) && data.delay == control.delay;
        Self {
            queue: VecDeque::with_capacity(capacity),
            heap: BinaryHeap::with_capacity(if is_ordered { 0 } else { capacity }),
        }
    }

    fn len(&self) -> usize {
        self.queue.len() + self.heap.len()
    }

    fn push(&mut self, frame: InTransit<F>) {
        // The greater of two frames arrives earlier.
        if self.queue.back().is_none_or(|last| *last > frame) {
            self.queue.push_back(frame);
        } else {
            self.heap.push(frame);
        }
    }

    fn is_queue_next(&self) -> bool {
        match (self.queue.front(), self.heap.peek()) {
            (Some(first), Some(other)) => first > other,
            (first, _) => first.is_some(),
        }
    }

    /// Returns the time of the next arrival.
    fn next(&self) -> Option<Nanos> {
        let first = if self.is_queue_next() { self.queue.front() } else { self.heap.peek() };
        first.map(|frame| frame.at)
    }

    fn pop(&mut self) -> Option<InTransit<F>> {
        if !self.is_queue_next() {
            return self.heap.pop();
        }
        let first = self.queue.pop_front();
        if self.queue.is_empty() {
            // Starts again at the beginning of the buffer, so that frames do not pass through all of its memory.
            self.queue.clear();
        }
        first
    }
}

/// A one-way link for frames of type `F`; see the module's description.
#[derive(Clone, Debug)]
pub struct ImpairedLink<F> {
    data: ImpairmentRng,
    control: ImpairmentRng,
    serializer: Serializer,
    distance: Nanos,
    blackouts: Vec<Blackout>,
    failed_routes: Vec<FailedRoute>,
    mark_after: Option<Nanos>,
    travelling: Transit<F>,
    arrived: DeliveryPath<F>,
    capacity: usize,
    number: u64,
    counters: LinkCounters,
}

impl<F: Frame> ImpairedLink<F> {
    /// Creates a link that holds at most `capacity` frames, and one duplicate beyond them.
    ///
    /// # Errors
    /// [`OrderError`]; distributions were checked when they were created.
    pub fn new(impairments: Impairments, capacity: usize, seed: u64) -> Result<Self, OrderError> {
        let Impairments { data, control, order, rate, distance, blackouts, failed_routes, mark_after } =
            impairments;
        let travelling = Transit::new(capacity.saturating_add(1), &data, &control);
        Ok(Self {
            data: ImpairmentRng::new(data, Class::Data, seed),
            control: ImpairmentRng::new(control, Class::Control, seed),
            serializer: Serializer::new(rate),
            distance,
            blackouts,
            failed_routes,
            mark_after,
            travelling,
            arrived: DeliveryPath::new(order, capacity, seed)?,
            capacity,
            number: 0,
            counters: LinkCounters::default(),
        })
    }

    /// Changes the time that frames offered from now on travel, as a new route does.
    pub const fn set_distance(&mut self, distance: Nanos) {
        self.distance = distance;
    }

    /// Offers a frame to the link. The sender cannot tell whether it is lost.
    ///
    /// # Errors
    /// The frame is returned if the link is full: back-pressure.
    pub fn offer(&mut self, now: Nanos, frame: F) -> Result<(), F> {
        self.offer_with(now, frame, &mut None).map(|_| ())
    }

    /// Same as [`offer`](Self::offer), for a caller that recycles frames: a duplicate uses `spare`, and a lost frame is returned.
    ///
    /// # Errors
    /// Same as [`offer`](Self::offer).
    pub fn offer_with(&mut self, now: Nanos, mut frame: F, spare: &mut Option<F>) -> Result<Option<F>, F> {
        if self.len() >= self.capacity {
            return Err(frame);
        }
        let class = frame.class();
        let (dice, counters) = match class {
            Class::Data => (&mut self.data, &mut self.counters.data),
            Class::Control => (&mut self.control, &mut self.counters.control),
        };
        counters.offered += 1;
        // Drawn first and for every frame, so that the result of one cause does not affect another.
        let fate = dice.decide(frame.length());
        if self.blackouts.iter().any(|blackout| blackout.covers(now))
            || self.failed_routes.iter().any(|route| route.loses(now, frame.path()))
        {
            counters.blacked_out += 1;
            return Ok(Some(frame));
        }
        let wait = self.serializer.free_at().saturating_sub(now);
        let Some(departure) = self.serializer.send(now, frame.length()) else {
            counters.overflowed += 1;
            return Ok(Some(frame));
        };
        self.counters.bytes += frame.length();
        if self.mark_after.is_some_and(|limit| wait >= limit) {
            counters.marked += 1;
            frame.mark();
        }
        if fate.lost {
            counters.lost += 1;
            return Ok(Some(frame));
        }
        let departure = departure.saturating_add(self.distance);
        if let Some(delay) = fate.copy {
            counters.duplicated += 1;
            let (at, number) = (departure.saturating_add(delay), self.number + 1);
            let frame = spare.take().map_or_else(|| frame.clone(), |spare| frame.copy_into(spare));
            self.travelling.push(InTransit { at, number, frame });
        }
        if !fate.damaged_bits().is_empty() {
            counters.damaged += 1;
            for bit in fate.damaged_bits() {
                frame.flip_bit(*bit);
            }
        }
        let at = departure.saturating_add(fate.delay);
        self.travelling.push(InTransit { at, number: self.number, frame });
        self.number += 2;
        Ok(None)
    }

    /// Counts `frames` frames of `bytes` bytes together that the caller has delivered without the link, because the link has no effect.
    pub const fn note_passed(&mut self, class: Class, frames: u64, bytes: u64) {
        let counters = match class {
            Class::Data => &mut self.counters.data,
            Class::Control => &mut self.counters.control,
        };
        counters.offered += frames;
        self.counters.bytes += bytes;
        self.counters.delivered += frames;
    }

    /// Returns the next frame due at `now`. Call it until it returns `None`.
    #[must_use]
    pub fn poll(&mut self, now: Nanos) -> Option<F> {
        loop {
            if let Some(frame) = self.arrived.poll(now) {
                self.counters.delivered += 1;
                return Some(frame);
            }
            if self.travelling.next()? > now || !self.arrive() {
                return None;
            }
        }
    }

    /// Returns a frame although it is not due: for a caller that knows that no other frame will be offered, and that does not use time.
    #[must_use]
    pub fn poll_any(&mut self) -> Option<F> {
        while self.arrive() {}
        let frame = self.arrived.poll_any()?;
        self.counters.delivered += 1;
        Some(frame)
    }

    /// Moves the next frame that has arrived to the reordering stage. Returns whether there was one, and space for it.
    fn arrive(&mut self) -> bool {
        if self.arrived.is_full() {
            return false;
        }
        let Some(InTransit { at, frame, .. }) = self.travelling.pop() else { return false };
        self.arrived.offer(at, frame).is_ok()
    }

    /// Time of the next possible delivery; it may be too early, never too late. `None` if no frame is in flight, or if the held frames have
    /// no timer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        [self.travelling.next(), self.arrived.poll_timeout()].into_iter().flatten().min()
    }

    /// Time when the link has sent all accepted frames.
    #[must_use]
    pub fn free_at(&self) -> Nanos {
        self.serializer.free_at()
    }

    /// Number of frames held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.travelling.len() + self.arrived.len()
    }

    /// Whether no frame is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters of the frames so far.
    #[must_use]
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
