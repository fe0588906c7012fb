//! Waiting for an engine to become idle, by polling its registers.

use core::time::Duration;

use fpga_pci::{Backend, Backoff, Deadline};

/// Maximum time until an engine is idle after a stop or a reset, in nanoseconds. The engine finishes the bus transfer that it has begun:
/// the longest descriptor is 256 MiB, 1.1 s on the slowest link (one lane of the first generation). An AXI slave that does not answer holds
/// the engine forever. A healthy card needs microseconds; a simulated one may be without CPU time for some tenths of a second.
pub(crate) const IDLE_TIMEOUT_NS: u64 = 2_000_000_000;

/// Time after which a wait sleeps between two polls: a healthy engine is idle by then.
const SPIN_NS: u64 = 200_000;
/// Fraction of the limit that may pass between two polls. After a longer gap the timeout is delayed, once, by [`GRACE_FRACTION`]: an
/// event that stopped this process (a debugger, a host that freezes its virtual machine) may have stopped a simulated card as well.
const GAP_FRACTION: u64 = 8;
/// Fraction of the limit by which a timeout is delayed after a gap.
const GRACE_FRACTION: u64 = 10;
/// Maximum pause between two polls. An engine that never becomes idle costs some hundred register reads. Each read stalls the CPU for a
/// microsecond on hardware, and occupies two processes where another process simulates the card.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Polls until `look` returns a value. If that does not happen within `limit` nanoseconds of the card's clock (and of the wall clock, where
/// the card's is virtual: [`Deadline`]), returns the time waited in nanoseconds.
///
/// `look` is called with the time waited so far. The clock is read before each poll, so time that this thread loses between the two also
/// counts for the engine.
pub(crate) fn poll_until<T, E>(
    backend: &dyn Backend,
    limit: u64,
    mut look: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<Result<T, u64>, E> {
    let deadline = Deadline::after(backend, Duration::from_nanos(limit));
    let mut backoff = Backoff::new().sleep_after(SPIN_NS).max_sleep(MAX_SLEEP);
    let (mut last, mut end) = (0, limit);
    loop {
        let now = backend.now();
        let waited = deadline.waited(now);
        if let Some(seen) = look(waited)? {
            return Ok(Ok(seen));
        }
        if end == limit && waited >= limit && waited - last > limit / GAP_FRACTION {
            end = waited.saturating_add(limit / GRACE_FRACTION);
        }
        if waited >= end || (waited < limit && deadline.is_over(now)) {
            return Ok(Err(waited));
        }
        last = waited;
        backoff.back_off(backend, end - waited);
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use super::*;
    use fpga_protocol::Nanos;
    use fpga_sim::SimNetwork;

    /// Polls a network whose clock advances by `pause` ns between polls. Returns the result and the number of polls.
    fn poll_once(pause: u64, limit: u64, there: impl Fn(u64) -> bool) -> (Result<(), u64>, u64) {
        let network = SimNetwork::builder().cards(1).time(Nanos::ZERO, Nanos::new(pause)).build().unwrap();
        let mut looks = 0;
        let seen = poll_until(&*network.backend(0), limit, |_| {
            looks += 1;
            Ok::<_, ()>(there(looks).then_some(()))
        });
        (seen.unwrap(), looks)
    }

    #[test]
    fn poll_until_value_at_last_poll_is_in_time() {
        assert_eq!(poll_once(100, 1000, |_| false), (Err(1000), 11));
        assert_eq!(poll_once(100, 1000, |looks| looks == 11), (Ok(()), 11));
        assert_eq!(poll_once(100, 0, |_| true), (Ok(()), 1));
        assert_eq!(poll_once(100, 0, |_| false), (Err(0), 1));
    }

    #[test]
    fn poll_until_long_wait_polls_rarely_and_ends_soon() {
        let (seen, polls) = poll_once(1000, IDLE_TIMEOUT_NS, |_| false);
        assert!(
            seen.is_err_and(|waited| (IDLE_TIMEOUT_NS..=IDLE_TIMEOUT_NS + 1000).contains(&waited)),
            "{seen:?}"
        );
        assert!(polls < 1000, "{polls} polls");
        // Measures the delay of a wait that is over after this time.
        for over in [1_000, 100_000, 1_000_000, 30_000_000, 1_500_000_000] {
            let network = SimNetwork::builder().cards(1).time(Nanos::ZERO, Nanos::new(1000)).build().unwrap();
            let seen = poll_until(&*network.backend(0), IDLE_TIMEOUT_NS, |waited| {
                Ok::<_, ()>((waited >= over).then_some(waited))
            });
            let late = seen.unwrap().unwrap() - over;
            assert!(
                u128::from(late) <= u128::from(over / 16).min(MAX_SLEEP.as_nanos()) + 2000,
                "{late} ns after {over}"
            );
        }
    }

    #[test]
    fn poll_until_after_gap_polls_again_and_ends_within_tenth() {
        // Each poll comes much later than the limit: one more poll is made.
        let (seen, looks) = poll_once(u64::MAX / 64, 1000, |_| false);
        assert!(seen.is_err());
        assert_eq!(looks, 3);
        assert_eq!(poll_once(u64::MAX / 64, 1000, |looks| looks == 3), (Ok(()), 3));
        // Polls a third of the limit apart: the timeout is delayed once, by a tenth.
        let (seen, looks) = poll_once(400, 1000, |_| false);
        assert_eq!((seen, looks), (Err(1600), 5));
        // Polls in quick succession: the timeout is not delayed.
        assert_eq!(poll_once(100, 1000, |_| false), (Err(1000), 11));
    }
}
