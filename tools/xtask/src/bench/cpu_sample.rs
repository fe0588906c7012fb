//! What the two CPUs are like at the moment: how far apart they are, whether they are two, and whether somebody else is on them.
//!
//! A virtual CPU is a thread of the host's: at times both run on the two hardware threads of one core, and then whatever one of
//! them does, spinning not least, takes from what the other one can do. At times the host's other guests run on the hardware
//! thread beside. Neither shows in the time that programs got. Both show in how long the same arithmetic takes, alone and while
//! the other CPU does the same. The first also shows in how near they are, which is steadier: strangers come and go in between.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::ping::{PingError, one_way_ns, pin};
use super::statistics::median;

/// Passes over the numbers in one burst: some 20 microseconds.
const PASSES: u32 = 160;
/// Bursts; the median counts.
const BURSTS: usize = 60;
/// One look at the two CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuSample {
    /// Nanoseconds that a cache line takes from one to the other.
    pub(crate) one_way_ns: f64,
    /// Nanoseconds of a burst of arithmetic on the submitting CPU while the other one sleeps.
    pub(crate) host_ns: f64,
    /// The same of the copying CPU.
    pub(crate) card_ns: f64,
    /// Of the submitting CPU while the other one does the same.
    pub(crate) beside_ns: f64,
}

impl CpuSample {
    /// Looks. Takes some milliseconds.
    pub(crate) fn sample(cpus: [usize; 2]) -> Result<Self, PingError> {
        let [host, card] = cpus;
        let (host_ns, card_ns) = (bursts(host, None)?, bursts(card, None)?);
        Ok(Self { one_way_ns: one_way_ns(cpus)?, host_ns, card_ns, beside_ns: bursts(host, Some(card))? })
    }

    /// By what the other CPU slows this one down: on hardware threads of one core 1.5 to 1.8 was seen, on cores of their own 1.
    pub(crate) fn slowdown(&self) -> f64 {
        self.beside_ns / self.host_ns
    }
}

/// Arithmetic with much to do in every cycle: four chains, loads and stores.
fn burst(numbers: &mut [u64; 512]) {
    let (mut a, mut b, mut c) = (1_u64, 3_u64, 5_u64);
    for _ in 0..PASSES {
        for [w, x, y, z] in numbers.as_chunks_mut::<4>().0 {
            a = a.wrapping_mul(31).wrapping_add(*w);
            b ^= x.wrapping_add(b << 1);
            c = c.wrapping_add(y.wrapping_mul(7));
            *z = a ^ b ^ c;
        }
    }
    black_box((a, b, c));
}

/// Nanoseconds of a burst on `here`, while the other CPU sleeps or does the same `there`.
fn bursts(here: usize, there: Option<usize>) -> Result<f64, PingError> {
    let (start, over) = (Barrier::new(1 + usize::from(there.is_some())), AtomicBool::new(false));
    let timed = || {
        let mut numbers = black_box([0; 512]);
        let pinned = pin(here);
        start.wait();
        let spans: Vec<f64> = (0..BURSTS)
            .map(|_| {
                let began = Instant::now();
                burst(&mut numbers);
                began.elapsed().as_secs_f64() * 1e9
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        pinned.map(|()| median(&spans).unwrap_or(f64::NAN))
    };
    std::thread::scope(|scope| {
        let other = there.map(|cpu| {
            let (start, over) = (&start, &over);
            scope.spawn(move || {
                let mut numbers = black_box([0; 512]);
                let pinned = pin(cpu);
                start.wait();
                while !over.load(Ordering::Relaxed) {
                    burst(&mut numbers);
                }
                pinned
            })
        });
        // On a thread of its own: the caller stays where it may run.
        let timed = scope.spawn(timed).join().unwrap_or(Ok(f64::NAN))?;
        other.map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join).unwrap_or(Ok(()))?;
        Ok(timed)
    })
}

#[cfg(test)]
mod tests {
    use super::super::ping::first_two;
    use super::*;

    #[test]
    fn cpu_sample_ends_with_values() {
        let Ok(cpus) = first_two() else { return };
        let cores = CpuSample::sample(cpus).unwrap();
        assert!(
            cores.one_way_ns > 0.0 && cores.host_ns > 0.0 && cores.card_ns > 0.0 && cores.slowdown() > 0.0,
            "{cores:?}"
        );
        let error = CpuSample::sample([cpus[0], usize::MAX]).unwrap_err().to_string();
        assert!(error.contains("--cpus"), "{error}");
    }
}
