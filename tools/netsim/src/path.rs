//! One direction of the network: a link of some rate, a distance, and an order of delivery.

use std::collections::VecDeque;
use std::fmt;

use fpga_core::Nanos;
use fpga_core::impair::{self, Order, OrderError};

/// Frames that a path delivers out of order among each other, at most.
pub const ORDER_CAPACITY: usize = 4096;

const PICOS_PER_SECOND: u128 = 1_000_000_000_000;
const PICOS_PER_NANO: u64 = 1_000;

/// Bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// `bits` per second.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// `gigabits` (10^9 bits) per second.
    #[must_use]
    pub const fn from_gbps(gigabits: u64) -> Self {
        Self(gigabits.saturating_mul(1_000_000_000))
    }

    /// Bits per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The rate at which `bytes` pass in `span`, rounded down; 0 for an empty span.
    #[must_use]
    pub fn of(bytes: u64, span: Nanos) -> Self {
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        Self(bits.checked_div(span.get().into()).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// Picoseconds that `bytes` take, rounded up. Nanoseconds would be too coarse: at 100 Gbit/s a byte takes 80 ps, and the
    /// error of every packet would add up.
    fn picos(self, bytes: u64) -> u64 {
        let time = (u128::from(bytes) * 8 * PICOS_PER_SECOND).div_ceil(u128::from(self.0.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// The time that `bytes` take, rounded up.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Nanos {
        Nanos::new(self.picos(bytes).div_ceil(PICOS_PER_NANO))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate < 1_000_000 => write!(f, "{rate} bit/s"),
            rate if rate < 1_000_000_000 => {
                write!(f, "{}.{:03} Mbit/s", rate / 1_000_000, rate / 1_000 % 1_000)
            }
            rate => write!(f, "{}.{:03} Gbit/s", rate / 1_000_000_000, rate / 1_000_000 % 1_000),
        }
    }
}

/// A one-way path for frames of type `F`: first the link sends them one after the other, then they travel, then they are
/// delivered in some order.
#[derive(Debug)]
pub struct Path<F> {
    rate: BitRate,
    delay: Nanos,
    /// When the link has sent all it was given, in picoseconds.
    free_at: u64,
    /// On their way, by arrival: the delay is constant, so they arrive as they left.
    travelling: VecDeque<(Nanos, F)>,
    arrived: impair::Network<F>,
    bytes: u64,
}

impl<F> Path<F> {
    /// An idle path.
    ///
    /// # Errors
    /// [`OrderError`] for an order that cannot be, or that needs more than [`ORDER_CAPACITY`] frames.
    pub fn new(rate: BitRate, delay: Nanos, order: Order, seed: u64) -> Result<Self, OrderError> {
        Ok(Self {
            rate,
            delay,
            free_at: 0,
            travelling: VecDeque::new(),
            arrived: impair::Network::new(order, ORDER_CAPACITY, seed)?,
            bytes: 0,
        })
    }

    /// Gives a frame of `length` bytes to the link, behind those it has.
    pub fn send(&mut self, now: Nanos, length: u64, frame: F) {
        // The clock is in nanoseconds, the link is not: in the nanosecond in which it becomes free, the next frame follows without
        // a gap.
        let start =
            if self.free_at() >= now { self.free_at } else { now.get().saturating_mul(PICOS_PER_NANO) };
        self.free_at = start.saturating_add(self.rate.picos(length));
        self.bytes += length;
        self.travelling.push_back((self.free_at().saturating_add(self.delay), frame));
    }

    /// When the link has sent all it was given.
    #[must_use]
    pub fn free_at(&self) -> Nanos {
        Nanos::new(self.free_at.div_ceil(PICOS_PER_NANO))
    }

    /// The next frame that is delivered by `now`. Call it until it returns `None`.
    #[must_use]
    pub fn poll(&mut self, now: Nanos) -> Option<F> {
        loop {
            if let Some(frame) = self.arrived.poll(now) {
                return Some(frame);
            }
            if self.arrived.len() == ORDER_CAPACITY || self.travelling.front()?.0 > now {
                return None;
            }
            let (at, frame) = self.travelling.pop_front()?;
            // There is room: just checked.
            if self.arrived.offer(at, frame).is_err() {
                return None;
            }
        }
    }

    /// A frame that waits for company which does not come.
    #[must_use]
    pub fn poll_any(&mut self) -> Option<F> {
        self.arrived.poll_any()
    }

    /// When the next frame may be delivered; it may be early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let arrival = self.travelling.front().map(|(at, _)| *at);
        [arrival, self.arrived.poll_timeout()].into_iter().flatten().min()
    }

    /// Bytes that the link was given.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.travelling.is_empty() && self.arrived.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_each_other_at_the_rate_and_arrive_a_delay_later() {
        let mut path = Path::new(BitRate::from_gbps(8), Nanos::new(500), Order::InOrder, 0).unwrap();
        path.send(Nanos::ZERO, 100, 'a');
        path.send(Nanos::ZERO, 50, 'b');
        assert_eq!(path.free_at(), Nanos::new(150));
        assert_eq!(path.poll_timeout(), Some(Nanos::new(600)));
        assert_eq!(path.poll(Nanos::new(599)), None);
        assert_eq!(path.poll(Nanos::new(600)), Some('a'));
        assert_eq!(path.poll(Nanos::new(600)), None);
        assert_eq!(path.poll(Nanos::new(650)), Some('b'));
        // A pause costs nothing.
        path.send(Nanos::new(1000), 8, 'c');
        assert_eq!(path.free_at(), Nanos::new(1008));
        assert_eq!(path.poll(Nanos::new(1508)), Some('c'));
        assert!(path.is_empty());
        assert_eq!(path.bytes(), 158);
    }

    #[test]
    fn fractions_of_a_nanosecond_do_not_add_up() {
        let rate = BitRate::from_gbps(100);
        let mut path = Path::new(rate, Nanos::ZERO, Order::InOrder, 0).unwrap();
        for _ in 0..1_000_000 {
            path.send(Nanos::ZERO, 1, ());
        }
        assert_eq!(path.free_at(), rate.time_of(1_000_000));
        assert_eq!(path.free_at(), Nanos::from_micros(80));
        // Neither where the sender hands over the next frame when the one before has left.
        let mut path = Path::new(rate, Nanos::ZERO, Order::InOrder, 0).unwrap();
        for _ in 0..1_000_000 {
            path.send(path.free_at(), 1, ());
        }
        assert_eq!(path.free_at(), Nanos::from_micros(80));
    }

    #[test]
    fn rates_print_and_come_out_of_bytes_and_time() {
        assert_eq!(BitRate::of(1_250_000, Nanos::from_micros(100)), BitRate::from_gbps(100));
        assert_eq!(BitRate::of(1, Nanos::ZERO), BitRate::new(0));
        assert_eq!(BitRate::new(12_345_678_901).to_string(), "12.345 Gbit/s");
        assert_eq!(BitRate::new(2_500_000).to_string(), "2.500 Mbit/s");
        assert_eq!(BitRate::new(9).to_string(), "9 bit/s");
    }
}
