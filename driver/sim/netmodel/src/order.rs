//! Order in which a network delivers frames.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use fpga_registers::quantity;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::Cause;
use fpga_firmware::Nanos;

/// Order of delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// In the order of arrival, at once.
    #[default]
    InOrder,
    /// Uniformly random among the held frames. A frame is delivered once `depth` frames are held, or when the oldest has been held for
    /// `patience`, so that the last frames of a burst are not held without end.
    Random {
        /// Number of frames held before one is delivered; at least 1.
        depth: usize,
        /// Maximum time for which a frame is held.
        patience: Nanos,
    },
    /// Bounded reordering: a frame is overtaken by at most `degree` later ones. Each frame is held back by a uniformly random number of
    /// positions between 0 and `degree`.
    Degree {
        /// Maximum number of frames that overtake one.
        degree: u32,
        /// Maximum time for which a frame is held.
        patience: Nanos,
    },
    /// Fixed permutation, block by block: of the next n frames, the one at position `script[0]` first, and so on.
    Script(Vec<usize>),
}

impl Order {
    /// [`Order::Random`] with a maximum holding time of 20 us.
    #[must_use]
    pub const fn random(depth: usize) -> Self {
        Self::Random { depth, patience: Nanos::from_micros(20) }
    }
}

/// An invalid order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The buffer is too small for the order.
    #[error(
        "the delivery order needs {needed}, the buffer holds {capacity}: enlarge the buffer",
        needed = quantity(*needed, "frame"),
    )]
    Capacity {
        /// Number of frames that the order holds.
        needed: usize,
        /// Number of frames that the buffer holds.
        capacity: usize,
    },
    /// A position is missing, repeated or out of range.
    #[error(
        "the delivery order is not a permutation: position {position} is missing; list each position, from 0, exactly once"
    )]
    NotAPermutation {
        /// First missing position.
        position: usize,
    },
    /// Depth 0 or an empty script.
    #[error("a delivery order over 0 frames is not possible: give at least 1")]
    Empty,
}

#[derive(Clone, Debug)]
struct BufferedFrame<F> {
    frame: F,
    since: Nanos,
}

/// Frames under [`Order::Degree`]: by target position, and by age.
#[derive(Clone, Debug)]
struct RankedFrame<F> {
    /// Sorted by position, then by number. Entries of frames that were delivered by age stay here until their position is reached.
    places: BinaryHeap<Reverse<(u64, u64)>>,
    /// Frames by number, starting with `first`; the first one is present.
    frames: VecDeque<Option<BufferedFrame<F>>>,
    first: u64,
    len: usize,
}

impl<F> RankedFrame<F> {
    /// Creates the state for `capacity` frames, and the gaps of frames that overtook the oldest.
    fn new(capacity: usize, degree: usize) -> Self {
        let span = capacity.saturating_add(degree);
        Self {
            places: BinaryHeap::with_capacity(span),
            frames: VecDeque::with_capacity(span),
            first: 0,
            len: 0,
        }
    }

    fn push(&mut self, back: u64, held: BufferedFrame<F>) {
        let number = self.taken();
        self.places.push(Reverse((number + back, number)));
        self.frames.push_back(Some(held));
        self.len += 1;
    }

    /// Number of frames accepted so far.
    fn taken(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    fn oldest(&self) -> Option<Nanos> {
        self.frames.front()?.as_ref().map(|held| held.since)
    }

    /// Returns the frame of the lowest position, if `due` accepts that position.
    fn pop_place(&mut self, due: impl FnOnce(u64) -> bool) -> Option<F> {
        let Reverse((place, number)) = *self.places.peek()?;
        if !due(place) {
            return None;
        }
        self.pop(number)
    }

    fn pop_oldest(&mut self) -> Option<F> {
        self.pop(self.first)
    }

    fn pop(&mut self, number: u64) -> Option<F> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let frame = self.frames.get_mut(at)?.take()?.frame;
        self.len -= 1;
        while let Some(None) = self.frames.front() {
            self.frames.pop_front();
            self.first += 1;
        }
        // Discard positions of delivered frames: the lowest one is always that of a held frame.
        while let Some(Reverse((_, number))) = self.places.peek() {
            let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
            if at.and_then(|at| self.frames.get(at)).is_some_and(Option::is_some) {
                break;
            }
            self.places.pop();
        }
        Some(frame)
    }
}

/// A one-way path for frames of type `F`, with a bounded buffer.
#[derive(Clone, Debug)]
pub struct DeliveryPath<F> {
    order: Order,
    held: VecDeque<BufferedFrame<F>>,
    /// Under [`Order::Random`]: time since which the oldest of `held` is held.
    oldest: Option<Nanos>,
    /// Frames held under [`Order::Degree`], instead of `held`.
    ranked: RankedFrame<F>,
    /// Frames of the script's current block, by position, and the number delivered.
    block: Vec<Option<F>>,
    scripted: usize,
    capacity: usize,
    numbers: Pcg32,
    delivered: u64,
}

impl<F> DeliveryPath<F> {
    /// Creates a path that holds at most `capacity` frames.
    ///
    /// # Errors
    /// [`OrderError`].
    pub fn new(order: Order, capacity: usize, seed: u64) -> Result<Self, OrderError> {
        let needed = match &order {
            Order::InOrder => 1,
            Order::Random { depth, .. } => *depth,
            // Frames that may be overtaken, and one that overtakes them.
            Order::Degree { degree, .. } => fpga_registers::cast::index(*degree).saturating_add(1),
            Order::Script(script) => {
                if let Some(position) = (0..script.len()).find(|position| !script.contains(position)) {
                    return Err(OrderError::NotAPermutation { position });
                }
                script.len()
            }
        };
        if needed == 0 {
            return Err(OrderError::Empty);
        }
        if needed > capacity {
            return Err(OrderError::Capacity { needed, capacity });
        }
        let ranked = match order {
            Order::Degree { degree, .. } => RankedFrame::new(capacity, fpga_registers::cast::index(degree)),
            _ => RankedFrame::new(0, 0),
        };
        let script_length = if let Order::Script(script) = &order { script.len() } else { 0 };
        Ok(Self {
            // Allocated completely now, not with the first frames.
            held: VecDeque::with_capacity(if ranked.frames.capacity() == 0 { capacity } else { 0 }),
            oldest: None,
            ranked,
            order,
            block: Vec::with_capacity(script_length),
            scripted: 0,
            capacity,
            numbers: Cause::Order.numbers(seed),
            delivered: 0,
        })
    }

    /// Accepts a frame into the network.
    ///
    /// # Errors
    /// The frame is returned if the buffer is full: back-pressure.
    pub fn offer(&mut self, now: Nanos, frame: F) -> Result<(), F> {
        if self.is_full() {
            return Err(frame);
        }
        let held = BufferedFrame { frame, since: now };
        if let Order::Degree { degree, .. } = self.order {
            let back = (u64::from(self.numbers.next_u32()) * (u64::from(degree) + 1)) >> 32;
            self.ranked.push(back, held);
        } else {
            if matches!(self.order, Order::Random { .. }) {
                self.oldest = Some(self.oldest.map_or(now, |oldest| oldest.min(now)));
            }
            self.held.push_back(held);
        }
        Ok(())
    }

    /// Returns the next frame that is due at `now`, if any.
    #[must_use]
    pub fn poll(&mut self, now: Nanos) -> Option<F> {
        let frame = match &self.order {
            Order::InOrder => self.pop_front()?,
            Order::Random { depth, patience } => {
                let oldest = self.oldest?;
                if self.held.len() < *depth && oldest.saturating_add(*patience) > now {
                    return None;
                }
                self.pick()?
            }
            Order::Degree { patience, .. } => {
                let impatient = self.ranked.oldest()?.saturating_add(*patience) <= now;
                // No later frame can precede a position that is reached.
                let taken = self.ranked.taken();
                match self.ranked.pop_place(|place| place <= taken) {
                    None if impatient => self.ranked.pop_oldest()?,
                    frame => frame?,
                }
            }
            Order::Script(_) => self.next_scripted()?,
        };
        self.delivered += 1;
        Some(frame)
    }

    /// Returns a frame although it is not due: for a caller that knows that no other frame will be offered. A script's frames beyond its
    /// last whole block are delivered in order.
    #[must_use]
    pub fn poll_any(&mut self) -> Option<F> {
        let frame = match &self.order {
            Order::InOrder => self.pop_front()?,
            Order::Random { .. } => self.pick()?,
            Order::Degree { .. } => self.ranked.pop_place(|_| true)?,
            Order::Script(_) => match self.next_scripted() {
                Some(frame) => frame,
                None => self.held.pop_front()?.frame,
            },
        };
        self.delivered += 1;
        Some(frame)
    }

    /// Time at which a held frame is delivered without further frames; `None` if no timer runs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        match &self.order {
            Order::Random { patience, .. } => self.oldest.map(|oldest| oldest.saturating_add(*patience)),
            Order::Degree { patience, .. } => {
                self.ranked.oldest().map(|oldest| oldest.saturating_add(*patience))
            }
            _ => None,
        }
    }

    /// Number of frames held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len() + self.ranked.len + self.block.iter().flatten().count()
    }

    /// Whether [`DeliveryPath::offer`] would return the frame.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Whether no frame is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of frames delivered so far.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Removes the oldest frame.
    fn pop_front(&mut self) -> Option<F> {
        let frame = self.held.pop_front()?.frame;
        if self.held.is_empty() {
            // Starts again at the beginning of the buffer. Otherwise frames would pass through all of its memory, which caches do not hold.
            self.held.clear();
        }
        Some(frame)
    }

    fn pick(&mut self) -> Option<F> {
        let count = u32::try_from(self.held.len()).ok().filter(|&count| count != 0)?;
        // The high half of a 64-bit product: the bias is below 2^-20 for any buffer that fits memory.
        let at = (u64::from(self.numbers.next_u32()) * u64::from(count)) >> 32;
        // The order among held frames is irrelevant: use the cheapest removal.
        let picked =
            self.held.swap_remove_back(fpga_registers::cast::index(fpga_registers::cast::low32(at)))?;
        if Some(picked.since) == self.oldest {
            self.oldest = self.held.iter().map(|held| held.since).min();
        }
        Some(picked.frame)
    }

    fn next_scripted(&mut self) -> Option<F> {
        let Order::Script(script) = &self.order else { return None };
        if self.scripted == self.block.len() {
            if self.held.len() < script.len() {
                return None;
            }
            self.block.clear();
            self.block.extend(self.held.drain(..script.len()).map(|held| Some(held.frame)));
            self.scripted = 0;
        }
        let position = *script.get(self.scripted)?;
        self.scripted += 1;
        self.block.get_mut(position)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(order: Order, seed: u64, count: u32) -> Vec<u32> {
        let mut network = DeliveryPath::new(order, 1024, seed).unwrap();
        let mut out = Vec::new();
        for frame in 0..count {
            network.offer(Nanos::ZERO, frame).unwrap();
            out.extend(network.poll(Nanos::ZERO));
        }
        while let Some(frame) = network.poll_any() {
            out.push(frame);
        }
        out
    }

    #[test]
    fn order_random_delivers_every_frame_once_and_replays_by_seed() {
        let random = || Order::Random { depth: 16, patience: Nanos::from_micros(1) };
        let first = deliver(random(), 7, 200);
        assert_eq!(first, deliver(random(), 7, 200));
        assert_ne!(first, deliver(random(), 8, 200));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..200).collect::<Vec<_>>());
        assert_ne!(first, sorted);
        assert_eq!(deliver(Order::InOrder, 7, 50), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn order_script_permutes_each_block() {
        assert_eq!(deliver(Order::Script(alloc::vec![2, 0, 1]), 0, 7), [2, 0, 1, 5, 3, 4, 6]);
        let wrong = DeliveryPath::<u8>::new(Order::Script(alloc::vec![0, 2, 2]), 8, 0);
        assert_eq!(wrong.unwrap_err(), OrderError::NotAPermutation { position: 1 });
    }

    #[test]
    fn order_single_frame_is_delivered_after_timeout() {
        let order = Order::Random { depth: 4, patience: Nanos::new(100) };
        let mut network = DeliveryPath::new(order, 4, 1).unwrap();
        network.offer(Nanos::new(50), 'a').unwrap();
        assert_eq!(network.poll(Nanos::new(149)), None);
        assert_eq!(network.poll_timeout(), Some(Nanos::new(150)));
        assert_eq!(network.poll(Nanos::new(150)), Some('a'));
        for frame in ['b', 'c', 'd', 'e'] {
            network.offer(Nanos::ZERO, frame).unwrap();
        }
        assert_eq!(network.offer(Nanos::ZERO, 'f'), Err('f'));
    }

    #[test]
    fn order_degree_is_upper_bound_and_reached() {
        for degree in [0u32, 1, 7, 128] {
            let order = Order::Degree { degree, patience: Nanos::MAX };
            let out = deliver(order, 3, 20_000.min(1000 + degree * 100));
            let most = (0..out.len())
                .map(|at| out[..at].iter().rev().take(300).filter(|before| **before > out[at]).count())
                .max();
            assert!(
                most.is_some_and(|most| most <= degree as usize),
                "maximum {most:?} frames overtake one frame"
            );
            assert!(most.is_some_and(|most| most >= degree as usize / 2), "only {most:?} of {degree}");
            let mut sorted = out.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().zip(0..).all(|(frame, n)| *frame == n));
        }
    }

    /// For any stall of the flow: a frame that waits for positions that were assigned to later frames waits at most its timeout,
    /// and no frame is overtaken by more than the degree.
    #[test]
    fn order_stalled_flow_delivers_frame_within_timeout() {
        let patience = Nanos::new(100);
        let mut network = DeliveryPath::new(Order::Degree { degree: 16, patience }, 64, 5).unwrap();
        let mut offered = Vec::new();
        let mut out: Vec<u32> = Vec::new();
        for now in 0..20_000u64 {
            // Bursts, and pauses of up to twice the timeout.
            if now % 977 < 300 || now % 53 == 0 {
                network.offer(Nanos::new(now), u32::try_from(offered.len()).unwrap()).unwrap();
                offered.push(now);
            }
            while let Some(frame) = network.poll(Nanos::new(now)) {
                assert!(
                    now <= offered[frame as usize] + 100,
                    "frame {frame} was delayed by {} positions",
                    now - offered[frame as usize]
                );
                out.push(frame);
            }
            match network.poll_timeout() {
                Some(at) => assert!(at > Nanos::new(now)),
                None => assert!(network.is_empty()),
            }
        }
        let overtaken = |at: usize| out[..at].iter().filter(|before| **before > out[at]).count();
        let most = (0..out.len()).map(overtaken).max();
        assert!(most.is_some_and(|most| (8..=16).contains(&most)), "{most:?}");
    }

    #[test]
    fn order_random_is_uniform() {
        let mut first = [0u32; 4];
        for seed in 0..4000 {
            let order = Order::Random { depth: 4, patience: Nanos::ZERO };
            let mut network = DeliveryPath::new(order, 4, seed).unwrap();
            for frame in 0..4usize {
                network.offer(Nanos::ZERO, frame).unwrap();
            }
            first[network.poll(Nanos::ZERO).unwrap()] += 1;
        }
        // Four standard deviations of a binomial(4000, 1/4) are 110.
        assert!(first.iter().all(|count| count.abs_diff(1000) < 110), "{first:?}");
    }
}
