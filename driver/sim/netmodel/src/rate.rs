//! Transmission rate of a link, and its queue.

use core::fmt;

use fpga_firmware::Nanos;

const PICOS_PER_SECOND: u128 = 1_000_000_000_000;
const PICOS_PER_NANO: u64 = 1_000;

/// Bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// Creates a rate of `bits` per second.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Creates a rate of `gigabits` (10^9 bits) per second.
    #[must_use]
    pub const fn from_gbps(gigabits: u64) -> Self {
        Self(gigabits.saturating_mul(1_000_000_000))
    }

    /// Returns the bits per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Rate at which `bytes` are sent in `span`, rounded down; 0 for an empty span.
    #[must_use]
    pub fn of(bytes: u64, span: Nanos) -> Self {
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        Self(bits.checked_div(span.get().into()).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// Transmission time of `bytes` in picoseconds, rounded up. Nanoseconds would be too coarse: at 100 Gbit/s a byte takes 80 ps, and the
    /// rounding errors of all packets would add up.
    fn picoseconds(self, bytes: u64) -> u64 {
        let time = (u128::from(bytes) * 8 * PICOS_PER_SECOND).div_ceil(u128::from(self.0.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Transmission time of `bytes`, rounded up.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Nanos {
        Nanos::new(self.picoseconds(bytes).div_ceil(PICOS_PER_NANO))
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

/// Rate of a link, and the queue in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Transmission rate. A rate of 0 counts as 1 bit per second.
    pub rate: BitRate,
    /// Maximum time that a frame waits for earlier ones; a frame that would have to wait longer is dropped. The queue's size in bytes is
    /// this time at that rate. [`Nanos::MAX`]: no limit.
    pub queue: Nanos,
}

/// Sends frames one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serializer {
    rate: Option<Rate>,
    /// Time when the link has sent all accepted frames, in picoseconds.
    free_at: u64,
}

impl Serializer {
    pub(super) const fn new(rate: Option<Rate>) -> Self {
        Self { rate, free_at: 0 }
    }

    /// Returns the departure time of a frame of `length` bytes that is offered now; `None` if the queue has no space.
    pub(super) fn send(&mut self, now: Nanos, length: u64) -> Option<Nanos> {
        let Some(Rate { rate, queue }) = self.rate else { return Some(now) };
        if self.free_at().saturating_sub(now) > queue {
            return None;
        }
        // The clock is in nanoseconds, the link in picoseconds: in the nanosecond in which the link becomes free, the next frame follows
        // without a gap.
        let start =
            if self.free_at() >= now { self.free_at } else { now.get().saturating_mul(PICOS_PER_NANO) };
        self.free_at = start.saturating_add(rate.picoseconds(length));
        Some(self.free_at())
    }

    pub(super) const fn free_at(&self) -> Nanos {
        Nanos::new(self.free_at.div_ceil(PICOS_PER_NANO))
    }
}
