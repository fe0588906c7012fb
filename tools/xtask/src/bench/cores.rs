//! What the two CPUs are like at the moment: how far apart they are, whether they are two, and whether somebody else is on them.
//!
//! A virtual CPU is a thread of the host's: at times both run on the two hardware threads of one core, and then whatever one of
//! them does, spinning not least, takes from what the other one can do. At times the host's other guests run on the hardware
//! thread beside. Neither shows in the time that programs got. Both show in how long the same arithmetic takes, alone and while
//! the other CPU does the same.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;

use super::ping::{PingError, one_way_ns, pin};
use super::statistics::median;

/// Passes over the numbers in one burst: some 20 microseconds.
const PASSES: u32 = 160;
/// Bursts; the median counts.
const BURSTS: usize = 60;
/// Arithmetic that takes this much longer beside the other CPU's is done on one core. Hardware threads of one core were seen
/// at 1.5 to 1.65, cores of their own at 1.0.
const ONE_CORE: f64 = 1.35;
/// Arithmetic that takes this much longer than the quickest that was seen has a stranger beside it.
const STRANGER: f64 = 1.1;

/// One look at the two CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Cores {
    /// Nanoseconds that a cache line takes from one to the other.
    pub(crate) one_way_ns: f64,
    /// Nanoseconds of a burst of arithmetic while the other CPU sleeps; the slower one's.
    pub(crate) alone_ns: f64,
    /// The same while the other CPU does the same.
    pub(crate) beside_ns: f64,
}

impl Cores {
    /// Looks. Takes some milliseconds.
    pub(crate) fn look(cpus: [usize; 2]) -> Result<Self, PingError> {
        let [host, card] = cpus;
        let alone = [bursts(host, None)?, bursts(card, None)?];
        Ok(Self {
            one_way_ns: one_way_ns(cpus)?,
            alone_ns: alone.into_iter().fold(0.0, f64::max),
            beside_ns: bursts(host, Some(card))?,
        })
    }

    /// Whether both are hardware threads of one core.
    pub(crate) fn are_one(&self) -> bool {
        self.beside_ns > ONE_CORE * self.alone_ns
    }

    /// Whether others take from these CPUs what they can do, where `quickest_ns` is the quickest burst that was ever seen.
    pub(crate) fn are_shared(&self, quickest_ns: f64) -> bool {
        let slowest = if self.are_one() { self.alone_ns } else { self.alone_ns.max(self.beside_ns) };
        slowest > STRANGER * quickest_ns
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
    fn a_look_ends_and_has_figures() {
        let Ok(cpus) = first_two() else { return };
        let cores = Cores::look(cpus).unwrap();
        assert!(cores.one_way_ns > 0.0 && cores.alone_ns > 0.0 && cores.beside_ns > 0.0, "{cores:?}");
        let error = Cores::look([cpus[0], usize::MAX]).unwrap_err().to_string();
        assert!(error.contains("--cpus"), "{error}");
    }

    #[test]
    fn one_core_and_strangers_are_told_apart() {
        let cores = |alone_ns, beside_ns| Cores { one_way_ns: 40.0, alone_ns, beside_ns };
        for (alone, beside, one, shared) in [
            (100.0, 100.0, false, false),
            (105.0, 109.0, false, false),
            (100.0, 160.0, true, false),
            (120.0, 120.0, false, true),
            (100.0, 120.0, false, true),
            (120.0, 190.0, true, true),
        ] {
            let cores = cores(alone, beside);
            assert_eq!((cores.are_one(), cores.are_shared(100.0)), (one, shared), "{cores:?}");
        }
    }
}
