//! Latency of a cache line between two CPUs: two threads pass one back and forth.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::statistics::median;

/// Exchanges per burst. Bursts are short, so that only few of them include a thread that lost its CPU.
const EXCHANGES: u32 = 400;
/// Number of bursts; the median counts.
const BURSTS: u32 = 25;

/// Reasons why the latency is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PingError {
    /// A thread cannot be bound to its CPU.
    #[error("cannot bind a thread to CPU {cpu}: {source}; choose other CPUs with --cpus HOST,CARD")]
    Pin { cpu: usize, source: rustix::io::Errno },
    /// The CPUs of this process cannot be determined.
    #[error("cannot read the CPU affinity of this process: {0}")]
    Affinity(rustix::io::Errno),
    /// One CPU is not enough.
    #[error(
        "this process may use one CPU only, but the submitting and the copying thread need one each: allow it two CPUs"
    )]
    OneCpu,
}

/// Line that is passed back and forth. Two cache lines wide, because some CPUs fetch them in pairs.
#[repr(align(128))]
struct PingPongLine(AtomicU32);

/// First two CPUs that this process may use: one for the host, one for the card.
pub(crate) fn first_two() -> Result<[usize; 2], PingError> {
    let allowed = sched_getaffinity(None).map_err(PingError::Affinity)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    match (cpus.next(), cpus.next()) {
        (Some(host), Some(card)) => Ok([host, card]),
        _ => Err(PingError::OneCpu),
    }
}

/// Binds this thread to a CPU.
pub(super) fn pin(cpu: usize) -> Result<(), PingError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(PingError::Pin { cpu, source: rustix::io::Errno::INVAL });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|source| PingError::Pin { cpu, source })
}

/// One-way latency between two CPUs in nanoseconds.
pub(crate) fn one_way_ns([first, second]: [usize; 2]) -> Result<f64, PingError> {
    let ball = PingPongLine(AtomicU32::new(0));
    let start = Barrier::new(2);
    let problem = Mutex::new(None);
    let spans = Mutex::new(Vec::new());
    // Neither thread may wait for the other before both are bound.
    let ready = |cpu| {
        if let Err(error) = pin(cpu) {
            problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        start.wait();
        problem.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    };
    // No spin hint in the loops: it would delay longer than the line takes.
    let pass = |from: u32| {
        ball.0.store(from.wrapping_add(1), Ordering::Release);
        while ball.0.load(Ordering::Acquire) != from.wrapping_add(2) {}
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !ready(second) {
                return;
            }
            for n in 0..EXCHANGES * (BURSTS + 1) {
                while ball.0.load(Ordering::Acquire) != 2 * n + 1 {}
                ball.0.store(2 * n + 2, Ordering::Release);
            }
        });
        scope.spawn(|| {
            if !ready(first) {
                return;
            }
            (0..EXCHANGES).for_each(|n| pass(2 * n));
            let mut measured = Vec::with_capacity(BURSTS as usize);
            for burst in 1..=BURSTS {
                let began = Instant::now();
                (0..EXCHANGES).for_each(|n| pass(2 * (burst * EXCHANGES + n)));
                measured.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(2 * EXCHANGES));
            }
            *spans.lock().unwrap_or_else(PoisonError::into_inner) = measured;
        });
    });
    if let Some(error) = problem.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let spans = spans.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(median(&spans).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_invalid_cpu_is_named() {
        let error = one_way_ns([0, usize::MAX]).unwrap_err().to_string();
        assert!(error.contains(&usize::MAX.to_string()) && error.contains("--cpus"), "{error}");
    }

    #[test]
    fn ping_exchange_ends() {
        let Ok(cpus) = first_two() else { return };
        let latency = one_way_ns(cpus).unwrap();
        assert!(latency > 0.0, "{latency}");
    }
}
