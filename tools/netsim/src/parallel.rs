//! Parallel jobs on several threads, with the same result for any number of them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Returns the results of the jobs 0 to `count` - 1, in that order. `done` is called for each completed job, in any order, on the caller's
/// thread. It may stop the work: then no further job begins, and the result is `None`.
pub fn map<R: Send>(
    count: usize,
    threads: usize,
    job: impl Fn(usize) -> R + Sync,
    mut done: impl FnMut(&R) -> ControlFlow<()>,
) -> Option<Vec<R>> {
    let next = AtomicUsize::new(0);
    let (give, take) = mpsc::channel();
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(count, || None);
    let ended = thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            let give = give.clone();
            let (next, job) = (&next, &job);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || give.send((number, job(number))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(give);
        for (number, result) in take {
            if done(&result).is_break() {
                next.store(count, Ordering::Relaxed);
                return ControlFlow::Break(());
            }
            if let Some(place) = results.get_mut(number) {
                *place = Some(result);
            }
        }
        ControlFlow::Continue(())
    });
    // Every number below the count was taken by some thread, and a panicking thread ends the scope with its panic.
    ended.is_continue().then(|| results.into_iter().flatten().collect())
}

/// Number of CPUs that this process may use.
#[must_use]
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn parallel_results_keep_order() {
        for threads in [0, 1, 2, 7, 100] {
            for count in [0, 1, 50] {
                let mut reported = 0;
                let found = super::map(
                    count,
                    threads,
                    |number| number * number,
                    |_| {
                        reported += 1;
                        ControlFlow::Continue(())
                    },
                );
                assert_eq!(found.unwrap(), (0..count).map(|number| number * number).collect::<Vec<_>>());
                assert_eq!(reported, count);
            }
        }
    }

    #[test]
    fn parallel_break_starts_no_further_job() {
        const JOBS: usize = 10_000_000;
        for threads in [1, 3] {
            let (begun, broken) = (AtomicUsize::new(0), AtomicBool::new(false));
            // Jobs beyond the first few wait until the work is stopped.
            let job = |number: usize| {
                begun.fetch_add(1, Ordering::Relaxed);
                while number >= 8 && !broken.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            };
            let mut reported = 0;
            let found = super::map(JOBS, threads, job, |()| {
                reported += 1;
                broken.store(reported == 5, Ordering::Relaxed);
                if reported == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(found.is_none());
            assert_eq!(reported, 5);
            assert!(begun.into_inner() < JOBS);
        }
    }
}
