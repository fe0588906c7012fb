//! Current state of the two CPUs: latency between them, whether they share a core, and whether there is foreign load.
//!
//! A virtual CPU is a thread of the host. At times both run on the two hardware threads of one core; then any work of one of them,
//! including spinning, slows the other one down. At times other guests of the host run on the adjacent hardware thread. Neither shows in
//! the CPU time of programs. Both show in the duration of the same arithmetic, alone and while the other CPU does the same. The first also
//! shows in the latency between them, which is steadier: foreign load changes quickly.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::ping::{PingError, one_way_ns, pin};
use super::statistics::median;

/// Passes over the numbers in one burst: about 20 microseconds.
const PASSES: u32 = 160;
/// Number of bursts; the median counts.
const BURSTS: usize = 60;
/// One sample of the two CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CpuSample {
    /// One-way latency of a cache line between them, in nanoseconds.
    pub(crate) one_way_ns: f64,
    /// Duration of a burst of arithmetic on the submitting CPU while the other one sleeps, in nanoseconds.
    pub(crate) host_ns: f64,
    /// The same for the copying CPU.
    pub(crate) card_ns: f64,
    /// Duration on the submitting CPU while the other one does the same, in nanoseconds.
    pub(crate) beside_ns: f64,
}

impl CpuSample {
    /// Takes a sample, in some milliseconds.
    pub(crate) fn sample(cpus: [usize; 2]) -> Result<Self, PingError> {
        let [host, card] = cpus;
        let (host_ns, card_ns) = (bursts(host, None)?, bursts(card, None)?);
        Ok(Self { one_way_ns: one_way_ns(cpus)?, host_ns, card_ns, beside_ns: bursts(host, Some(card))? })
    }

    /// Factor by which the other CPU slows this one down: 1.5 to 1.8 was measured on hardware threads of one core, 1 on separate cores.
    pub(crate) fn slowdown(&self) -> f64 {
        self.beside_ns / self.host_ns
    }
}

/// Arithmetic that uses every cycle: four chains, loads and stores.
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

/// Duration of a burst on `here` in nanoseconds, while the other CPU sleeps or does the same on `there`.
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
        // On a separate thread: the caller's CPU affinity stays unchanged.
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
