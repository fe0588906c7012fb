//! Conversion of a degree of disorder to a delay distribution.
//!
//! Source 004 states how far packets are out of order, not how long they travel. This module defines its degree exactly:
//! the largest |k' - k| - 1 over all packets k, k' that arrive one after the other, averaged over runs of 512 packets that leave at the
//! rate of the link. The mean of the delay is found by bisection, with the same random numbers for each mean.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use fpga_netmodel::{Class, Conditions, Delay, Frame, ImpairedLink, Impairments, OrderError};
use fpga_protocol::Nanos;

use crate::parallel;
use crate::statistics::seed_of;

/// Distribution of the travel time beyond the distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayDistribution {
    Exponential,
    Uniform,
    LogNormal,
}

impl DelayDistribution {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Uniform => "uniform",
            Self::LogNormal => "log-normal",
        }
    }

    /// Delay with a mean of `mean` nanoseconds.
    pub(super) fn of_mean(self, mean: u64) -> Delay {
        let least = Nanos::ZERO;
        match self {
            Self::Exponential => Delay::Exponential { least, mean: Nanos::new(mean) },
            Self::Uniform => Delay::Uniform { least, most: Nanos::new(2 * mean) },
            // The mean of a log-normal variable is its median times exp(sigma^2 / 2): exp(1/2) = 1.6487.
            Self::LogNormal => {
                Delay::LogNormal { least, median: Nanos::new(mean * 10_000 / 16_487), sigma: 1.0 }
            }
        }
    }
}

/// Packets per run.
const PACKETS: u32 = 512;
const RUNS: u64 = 100;
/// Runs that are sufficient for a mean that is far from the wanted one.
const ROUGH_RUNS: u64 = 10;
/// Time between two packets in picoseconds: 512 bytes and a header of 40 at 10 GB/s.
const PACKET_INTERVAL_PS: u64 = 55_200;
/// Maximum mean that is searched, in nanoseconds.
const MAX_MEAN_NS: u64 = 1 << 14;

#[derive(Clone, Copy, Debug)]
struct Number(u32);

impl Frame for Number {
    fn class(&self) -> Class {
        Class::Data
    }

    fn length(&self) -> u64 {
        552
    }

    fn flip_bit(&mut self, _bit: u64) {}
}

/// Degree of disorder that a delay distribution causes.
pub(super) fn degree(delay: Delay, seed: u64) -> Result<f64, OrderError> {
    degree_in(RUNS, delay, seed)
}

fn degree_in(runs: u64, delay: Delay, seed: u64) -> Result<f64, OrderError> {
    let mut sum = 0;
    for run in 0..runs {
        let mut impairments = Impairments::default();
        impairments.data = Conditions::default().delay(delay);
        let mut link = ImpairedLink::new(impairments, PACKETS as usize, seed_of(seed, run))?;
        for number in 0..PACKETS {
            // The link has space for all of them.
            let _ = link.offer(Nanos::new(u64::from(number) * PACKET_INTERVAL_PS / 1000), Number(number));
        }
        let (mut last, mut most) = (None, 0);
        while let Some(Number(number)) = link.poll(Nanos::MAX) {
            let jump = last.map_or(1, |last: u32| last.abs_diff(number));
            most = most.max(jump.saturating_sub(1));
            last = Some(number);
        }
        sum += u64::from(most);
    }
    Ok(crate::numbers::float(sum) / crate::numbers::float(runs))
}

/// Delays by distribution and degree, each found once.
#[derive(Debug)]
pub(super) struct Delays {
    seed: u64,
    known: Vec<(DelayDistribution, u32, Delay)>,
}

impl Delays {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, known: Vec::new() }
    }

    /// Finds several delays, on several threads.
    pub(super) fn prepare(
        &mut self,
        wanted: &[(DelayDistribution, u32)],
        threads: usize,
    ) -> Result<(), OrderError> {
        let find = |number: usize| {
            wanted.get(number).map(|&(law, degree)| Ok((law, degree, Self::new(self.seed).of(law, degree)?)))
        };
        let found = parallel::map(wanted.len(), threads, find, |_| ControlFlow::Continue(()));
        for delay in found.into_iter().flatten().flatten() {
            self.known.push(delay?);
        }
        Ok(())
    }

    /// Delay of the distribution whose degree is `wanted`; none for 0.
    pub(super) fn of(&mut self, law: DelayDistribution, wanted: u32) -> Result<Delay, OrderError> {
        let known = self.known.iter().find(|(of, degree, _)| (*of, *degree) == (law, wanted));
        if let Some((.., delay)) = known {
            return Ok(*delay);
        }
        let delay = match wanted {
            0 => Delay::Constant(Nanos::ZERO),
            _ => law.of_mean(mean_of(law, wanted, self.seed)?),
        };
        self.known.push((law, wanted, delay));
        Ok(delay)
    }
}

/// Mean whose degree is within a quarter of a packet of `wanted`, or as close as whole nanoseconds permit. Figures that are made one after
/// the other need the same means, so that each is searched once per process.
fn mean_of(law: DelayDistribution, wanted: u32, seed: u64) -> Result<u64, OrderError> {
    static FOUND: Mutex<Vec<(DelayDistribution, u32, u64, u64)>> = Mutex::new(Vec::new());
    let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let known =
        found().iter().find(|known| (known.0, known.1, known.2) == (law, wanted, seed)).map(|known| known.3);
    if let Some(mean) = known {
        return Ok(mean);
    }
    let mean = search_mean(law, wanted, seed)?;
    found().push((law, wanted, seed, mean));
    Ok(mean)
}

fn search_mean(law: DelayDistribution, wanted: u32, seed: u64) -> Result<u64, OrderError> {
    let (mut low, mut high) = (0, MAX_MEAN_NS);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let delay = law.of_mean(middle);
        let mut off = degree_in(ROUGH_RUNS, delay, seed)? - f64::from(wanted);
        if off.abs() < f64::from(wanted) * 0.5 + 6.0 {
            off = degree(delay, seed)? - f64::from(wanted);
            if off.abs() <= 0.25 {
                return Ok(middle);
            }
        }
        if off < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_search_reaches_requested_disorder() {
        let mut delays = Delays::new(1);
        for (law, wanted) in [
            (DelayDistribution::Exponential, 64),
            (DelayDistribution::Uniform, 8),
            (DelayDistribution::LogNormal, 64),
        ] {
            let delay = delays.of(law, wanted).unwrap();
            let found = degree(delay, 1).unwrap();
            assert!((found - f64::from(wanted)).abs() < 0.5, "{law:?}: {found}, not {wanted}");
            // With other random numbers nearly the same: a mean of a hundred runs.
            let found = degree(delay, 2).unwrap();
            assert!((found - f64::from(wanted)).abs() < f64::from(wanted) * 0.2, "{law:?}: {found}");
            assert_eq!(delays.of(law, wanted).unwrap(), delay);
        }
        assert_eq!(degree(delays.of(DelayDistribution::Uniform, 0).unwrap(), 1).unwrap(), 0.0);
    }
}
