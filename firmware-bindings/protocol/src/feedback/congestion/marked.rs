//! Window on a path whose switches mark packets (ECN) or cut off payloads (trimming).
//!
//! The rules are those of NSCC, the congestion control of senders in Ultra Ethernet (specification 1.0, section 3.6.13), in packets
//! instead of bytes. With `base` the minimum round trip, `delay` the time by which an answer exceeds it, and the target 3/4 of `base`:
//!
//! | Answer | Reaction |
//! |---|---|
//! | unmarked, `delay` below the target | the window grows by up to 11 % of the bandwidth-delay product per round trip, in proportion to the distance from the target; after a window with delays below 1 us by a quarter per round trip |
//! | unmarked, `delay` above the target | it grows by 14 % of the bandwidth-delay product per round trip |
//! | marked, `delay` above the target | once per `base`, it shrinks by 0.8 of the share by which the mean delay exceeds the target, at most to a half |
//! | marked, `delay` below the target | it stays: this path is congested, the others are not (the path is used less, [`crate::spray`]) |
//! | cut | one packet less |
//! | most packets cut | the window becomes the number of packets that arrived in one interval; later signals of packets sent before have no effect (quick adapt) |
//!
//! Differences from the publication: the window is at most 1.2 bandwidth-delay products (1.5 there), because a packet that waits for
//! the first one of its segment counts as in flight and is in no queue; quick adapt needs cut packets, because answers may also be
//! missing while the receiver waits for a first packet.

use super::{CongestionConfig, ONE};
use crate::time::Nanos;

/// Round trips without a mark after which the rules for paths without marks apply again.
pub(super) const MARKED_ROUNDS: u8 = 64;
/// Bandwidth-delay product in bytes, round trip in nanoseconds and packet in bytes for which NSCC states its increments: 100 Gbit/s, 12 us.
const REFERENCE_BYTES: u64 = 150_000;
const REFERENCE_NS: u64 = 12_000;
const REFERENCE_PACKET: u64 = 4096;
/// Increments in hundredths of a reference packet: above the target, at a delay of 0 with a target of `REFERENCE_NS`, and per round trip.
const FAIR_INCREMENT: u64 = 500;
const PROPORTIONAL_INCREMENT: u64 = 400;
const STEADY_INCREMENT: u64 = 15;
/// Delay in nanoseconds below which a path counts as free.
const FREE_DELAY_NS: u64 = 1000;
/// Packets after whose answers increments are applied.
const ADJUST_PACKETS: u32 = 8;

/// State of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MarkedPath {
    /// Round trips up to which these rules apply; 0: the path has no marks.
    pub(super) rounds: u8,
    /// Smoothed delay in nanoseconds, times 64.
    delay: u64,
    /// Increment not yet applied, in 1/65536 of packets times window.
    increment: u64,
    /// Packets answered since increments were last applied.
    answered: u32,
    /// Packets in a row with a free path, in 1/256, and whether the window grows by the free path's rule.
    free: u32,
    is_free: bool,
    /// Times of the last increment and the last decrease.
    increased: Nanos,
    decreased: Nanos,
    /// Interval of quick adapt: its end, packets that arrived, packets that were cut.
    interval_end: Nanos,
    arrived: u32,
    cut: u32,
    /// Answers whose marks have no effect, because their packets left before the last quick adaptation.
    ignored: u32,
}

/// Values of a path from which increments and limits follow.
#[derive(Clone, Copy, Debug)]
struct PathScale {
    /// Bandwidth-delay product in 1/256 packets, at least one packet.
    product: u64,
    base: Nanos,
    /// Delay in nanoseconds that the rules aim at.
    target: u64,
}

impl PathScale {
    fn new(config: &CongestionConfig, base: Nanos) -> Self {
        let product = base.get().saturating_mul(1000 * u64::from(ONE)) / u64::from(config.packet_ps.max(1));
        // Products below stay in 64 bits.
        let product = product.clamp(ONE.into(), 1 << 32);
        Self { product, base, target: base.get() / 4 * 3 }
    }

    /// Returns an increment of NSCC in 1/256 packets of this path, from hundredths of a reference packet.
    const fn increment(&self, hundredths: u64) -> u64 {
        self.product * REFERENCE_PACKET / REFERENCE_BYTES * hundredths / 100
    }

    const fn limit(&self, size: u64) -> u64 {
        let most = self.product / 5 * 6;
        let size = if size > most { most } else { size };
        if size < ONE as u64 { ONE as u64 } else { size }
    }
}

/// Answer about a packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Nanos,
    /// Minimum round trip of the path, and that of this packet.
    pub(super) base: Nanos,
    pub(super) trip: Nanos,
    pub(super) marked: bool,
    /// Whether the window held a packet back in this round trip.
    pub(super) limited: bool,
}

impl MarkedPath {
    /// State of a path without marks.
    pub(super) const NONE: Self = Self {
        rounds: 0,
        delay: 0,
        increment: 0,
        answered: 0,
        free: 0,
        is_free: false,
        increased: Nanos::ZERO,
        decreased: Nanos::ZERO,
        interval_end: Nanos::ZERO,
        arrived: 0,
        cut: 0,
        ignored: 0,
    };

    const fn smooth(&mut self, delay: u64) {
        self.delay = self.delay - self.delay / 64 + delay;
    }

    /// Returns the window after an answer, in 1/256 packets, from the window before.
    pub(super) fn note_arrival(&mut self, config: &CongestionConfig, arrival: &Arrival, size: u32) -> u32 {
        let Arrival { now, base, trip, marked, limited } = *arrival;
        let scale = PathScale::new(config, base);
        let delay = trip.saturating_sub(base).get();
        self.arrived = self.arrived.saturating_add(1);
        self.ignored = self.ignored.saturating_sub(1);
        self.answered = self.answered.saturating_add(1);
        // A long delay without a mark is that of another part of the path: it counts little.
        self.smooth(if !marked && delay > scale.target { base.get() / 4 } else { delay });
        if let Some(adapted) = self.quick_adapt(now, &scale, size, marked) {
            return adapted;
        }
        let (one, mut size) = (u64::from(ONE), u64::from(size));
        if marked {
            if delay >= scale.target {
                (self.free, self.is_free) = (0, false);
                size = self.decreased_size(now, &scale, size);
            }
        } else if delay >= scale.target {
            self.increment = self.increment.saturating_add(scale.increment(FAIR_INCREMENT) * one);
        } else {
            self.free = if delay < FREE_DELAY_NS { self.free.saturating_add(ONE) } else { 0 };
            self.is_free = self.free != 0 && (self.is_free || u64::from(self.free) > size);
            if !self.is_free {
                let share = scale.increment(PROPORTIONAL_INCREMENT) * (scale.target - delay) / REFERENCE_NS;
                self.increment = self.increment.saturating_add(share * one);
            } else if limited {
                size += scale.product * u64::from(config.packet_bytes) / REFERENCE_BYTES / 4;
            }
        }
        size = scale.limit(size);
        let is_due = now.saturating_sub(self.increased) > base;
        if self.answered > ADJUST_PACKETS || is_due {
            if limited {
                size += self.increment / size + if is_due { scale.increment(STEADY_INCREMENT) } else { 0 };
            }
            (self.increment, self.answered) = (0, 0);
            self.increased = if is_due { now } else { self.increased };
        }
        u32::try_from(scale.limit(size)).unwrap_or(u32::MAX)
    }

    fn decreased_size(&mut self, now: Nanos, scale: &PathScale, size: u64) -> u64 {
        let mean = self.delay / 64;
        if mean <= scale.target || now.saturating_sub(self.decreased) <= scale.base {
            return size;
        }
        self.decreased = now;
        let percent = 80 * (mean - scale.target) / mean;
        size * (100 - percent).max(50) / 100
    }

    /// Returns the window after the answer that a packet's payload was cut off.
    pub(super) fn note_cut(&mut self, config: &CongestionConfig, now: Nanos, base: Nanos, size: u32) -> u32 {
        let scale = PathScale::new(config, base);
        self.cut = self.cut.saturating_add(1);
        self.ignored = self.ignored.saturating_sub(1);
        self.smooth(base.get());
        let adapted = self.quick_adapt(now, &scale, size, true);
        adapted.unwrap_or_else(|| size.saturating_sub(ONE).max(ONE.min(size)))
    }

    /// Returns the window after a quick adaptation; `None` if the other rules apply to this answer.
    fn quick_adapt(&mut self, now: Nanos, scale: &PathScale, size: u32, marked: bool) -> Option<u32> {
        let mut adapted = None;
        if self.ignored > 0 && marked {
            adapted = Some(size);
        } else if now > self.interval_end {
            let arrived = self.arrived.saturating_mul(ONE);
            let is_overloaded =
                self.cut.saturating_mul(2) > self.arrived || self.delay / 64 > 4 * scale.target;
            if self.interval_end != Nanos::ZERO
                && is_overloaded
                && u64::from(arrived) < scale.product * 3 / 16
            {
                self.ignored = size / ONE;
                adapted = Some(arrived.min(size).max(ONE));
            }
            (self.arrived, self.cut) = (0, 0);
            self.interval_end = now.saturating_add(scale.base).saturating_add(Nanos::new(scale.target));
        }
        if adapted.is_some() {
            (self.increment, self.answered) = (0, 0);
        }
        adapted
    }
}
