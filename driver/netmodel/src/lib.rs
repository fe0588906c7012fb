//! What a network does to frames between two cards: loss, delay, disorder, copies, damage, a rate, a queue, blackouts.
//!
//! A model without clock or thread: [`ImpairedLink::offer`] frames, [`ImpairedLink::poll`] deliveries. One frame passes, in this order:
//!
//! | stage | what may happen |
//! |---|---|
//! | [`Blackout`] | everything offered meanwhile is gone |
//! | [`Rate`] | waits for those before it; where the queue is full, gone |
//! | [`Loss`] | gone, independently or in bursts |
//! | damage | up to three bits flipped |
//! | copies | a second one travels, with a delay of its own |
//! | [`Delay`] | constant, or by a law |
//! | [`Order`] | shuffled with others, to a degree |
//!
//! Data and control packets have [`Conditions`] of their own. Everything random comes from one seed, with one stream of
//! numbers per cause and class, and each frame takes the same count of numbers from a stream whatever becomes of it: so the
//! n-th data frame is lost, or not, whatever the delay law is, schemes can be compared on the same network, and every run
//! can be replayed.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BinaryHeap;
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

/// What a stream of random numbers decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Which held frame is delivered next.
    Order,
    /// Whether a frame is lost.
    Loss,
    /// Whether a burst of losses begins or ends.
    Burst,
    /// How long a frame travels.
    Delay,
    /// Whether a frame is doubled.
    Copy,
    /// How long the copy travels.
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

    /// This cause's numbers under `seed`.
    #[must_use]
    pub fn numbers(self, seed: u64) -> Pcg32 {
        Pcg32::new(seed, self.stream())
    }

    /// This cause's numbers for frames of `class` under `seed`.
    #[must_use]
    pub fn numbers_for(self, class: Class, seed: u64) -> Pcg32 {
        let seed = match class {
            Class::Data => seed,
            // No neighbouring seed's sequence.
            Class::Control => seed ^ 0xC2B2_AE3D_27D4_EB4F,
        };
        let mut numbers = self.numbers(seed);
        // The first numbers of neighbouring seeds resemble each other.
        for _ in 0..4 {
            let _ = numbers.next_u32();
        }
        numbers
    }
}

/// What a frame carries, as far as a network can treat it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Payload.
    Data,
    /// Acknowledgements, refusals, notices.
    Control,
}

/// What a link has to know of a frame.
pub trait Frame: Clone {
    /// What it carries.
    fn class(&self) -> Class;
    /// Bytes on the wire.
    fn length(&self) -> u64;
    /// Bit `bit` of it, counted from 0, arrives inverted.
    fn flip_bit(&mut self, bit: u64);

    /// A copy in the place of `spare`, a frame that nobody needs: where a clone would take memory.
    #[must_use]
    fn copy_into(&self, mut spare: Self) -> Self {
        spare.clone_from(self);
        spare
    }
}

/// An encoded packet; anything that is no data packet counts as control.
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
}

/// A frame with a note of the caller's, such as whose it is.
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

    fn copy_into(&self, spare: Self) -> Self {
        (self.0, self.1.copy_into(spare.1))
    }
}

/// A time in which nothing gets through. Frames that are on their way already still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blackout {
    /// Its first moment.
    pub from: Nanos,
    /// How long it lasts.
    pub length: Nanos,
}

impl Blackout {
    fn covers(&self, now: Nanos) -> bool {
        now.checked_sub(self.from).is_some_and(|since| since < self.length)
    }
}

/// Everything that a link does to frames. The default does nothing: in order, at once, all of them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Impairments {
    /// What happens to data packets.
    pub data: Conditions,
    /// What happens to everything else.
    pub control: Conditions,
    /// Order of delivery.
    pub order: Order,
    /// Rate and queue; none by default: frames take no time.
    pub rate: Option<Rate>,
    /// How long every frame travels, whatever its law of delay adds.
    pub distance: Nanos,
    /// When nothing gets through.
    pub blackouts: Vec<Blackout>,
}

impl Impairments {
    /// The same `conditions` for data and control packets.
    #[must_use]
    pub fn both(conditions: Conditions) -> Self {
        Self { data: conditions, control: conditions, ..Self::default() }
    }

    /// Order of delivery.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Rate and queue.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// How long every frame travels at least.
    #[must_use]
    pub const fn distance(mut self, distance: Nanos) -> Self {
        self.distance = distance;
        self
    }
}

/// An order of delivery, and nothing else.
impl From<Order> for Impairments {
    fn from(order: Order) -> Self {
        Self::default().order(order)
    }
}

/// What became of the frames of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassCounters {
    /// Frames taken.
    pub offered: u64,
    /// Of these, lost by [`Loss`].
    pub lost: u64,
    /// Lost in a [`Blackout`].
    pub blacked_out: u64,
    /// Dropped because the queue was full.
    pub overflowed: u64,
    /// Damaged.
    pub damaged: u64,
    /// Doubled.
    pub duplicated: u64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounters {
    /// Data packets.
    pub data: ClassCounters,
    /// Everything else.
    pub control: ClassCounters,
    /// Bytes that the link was given and had room for.
    pub bytes: u64,
    /// Frames delivered, copies included.
    pub delivered: u64,
}

#[derive(Clone, Debug)]
struct InTransit<F> {
    at: Nanos,
    number: u64,
    frame: F,
}

// By arrival, and among those of one moment by departure. Reversed: the heap gives the greatest first.
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

/// A one-way link for frames of type `F`; see the module's description.
#[derive(Clone, Debug)]
pub struct ImpairedLink<F> {
    data: ImpairmentRng,
    control: ImpairmentRng,
    serializer: Serializer,
    distance: Nanos,
    blackouts: Vec<Blackout>,
    travelling: BinaryHeap<InTransit<F>>,
    arrived: DeliveryPath<F>,
    capacity: usize,
    number: u64,
    counters: LinkCounters,
}

impl<F: Frame> ImpairedLink<F> {
    /// A link that holds at most `capacity` frames, and one copy beyond them.
    ///
    /// # Errors
    /// [`OrderError`]; laws were checked when they were made.
    pub fn new(impairments: Impairments, capacity: usize, seed: u64) -> Result<Self, OrderError> {
        let Impairments { data, control, order, rate, distance, blackouts } = impairments;
        Ok(Self {
            data: ImpairmentRng::new(data, Class::Data, seed),
            control: ImpairmentRng::new(control, Class::Control, seed),
            serializer: Serializer::new(rate),
            distance,
            blackouts,
            travelling: BinaryHeap::with_capacity(capacity.saturating_add(1)),
            arrived: DeliveryPath::new(order, capacity, seed)?,
            capacity,
            number: 0,
            counters: LinkCounters::default(),
        })
    }

    /// Gives a frame to the link. Lost or not: the sender cannot tell.
    ///
    /// # Errors
    /// The frame comes back if the link holds as many as it can: back-pressure.
    pub fn offer(&mut self, now: Nanos, frame: F) -> Result<(), F> {
        self.offer_with(now, frame, &mut None).map(|_| ())
    }

    /// As [`offer`](Self::offer), for whoever keeps the memory of frames: a copy takes `spare`, and a frame that is lost comes back.
    ///
    /// # Errors
    /// As there.
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
        // Rolled first and for every frame, so that what one cause does shifts no other.
        let fate = dice.decide(frame.length());
        if self.blackouts.iter().any(|blackout| blackout.covers(now)) {
            counters.blacked_out += 1;
            return Ok(Some(frame));
        }
        let Some(departure) = self.serializer.send(now, frame.length()) else {
            counters.overflowed += 1;
            return Ok(Some(frame));
        };
        self.counters.bytes += frame.length();
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

    /// The next frame that is delivered by `now`. Call it until it returns `None`.
    #[must_use]
    pub fn poll(&mut self, now: Nanos) -> Option<F> {
        loop {
            if let Some(frame) = self.arrived.poll(now) {
                self.counters.delivered += 1;
                return Some(frame);
            }
            if self.travelling.peek()?.at > now || !self.arrive() {
                return None;
            }
        }
    }

    /// A frame to deliver although its time has not come: for a caller that knows that nothing else will be offered, and
    /// to whom time means nothing.
    #[must_use]
    pub fn poll_any(&mut self) -> Option<F> {
        while self.arrive() {}
        let frame = self.arrived.poll_any()?;
        self.counters.delivered += 1;
        Some(frame)
    }

    /// The next frame that has arrived joins those to be put in order. Returns whether there was one, and room for it.
    fn arrive(&mut self) -> bool {
        if self.arrived.is_full() {
            return false;
        }
        let Some(InTransit { at, frame, .. }) = self.travelling.pop() else { return false };
        self.arrived.offer(at, frame).is_ok()
    }

    /// When the next frame may be delivered; it may be early, never late. `None` if nothing is on its way, or if what is
    /// waits for company.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let arrival = self.travelling.peek().map(|first| first.at);
        [arrival, self.arrived.poll_timeout()].into_iter().flatten().min()
    }

    /// When the link has sent all it was given.
    #[must_use]
    pub fn free_at(&self) -> Nanos {
        self.serializer.free_at()
    }

    /// Frames held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.travelling.len() + self.arrived.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What became of the frames so far.
    #[must_use]
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
