//! Waiting for an engine to come to rest, by looking at its registers.

use core::time::Duration;

use fpga_pci::{Backend, Backoff, Deadline};

/// How long an engine may take to come to rest after it was told to stop, or was reset, in nanoseconds. It finishes what it has begun
/// on its bus: the longest descriptor is 256 MiB, 1.1 s on the slowest link (one lane of the first generation); an AXI slave that
/// does not answer never lets go. A card that is well needs microseconds; a simulated one may be without a processor for some tenths
/// of a second.
pub(crate) const IDLE_TIMEOUT_NS: u64 = 2_000_000_000;

/// Time after which a wait sleeps between two polls: a healthy engine is at rest by then.
const SPIN_NS: u64 = 200_000;
/// Part of a limit within which two polls follow each other. After a longer gap the time-out is delayed, once, by [`GRACE_FRACTION`]: what
/// has stopped this program (a debugger, a host that freezes its virtual machine) may have stopped a simulated card with it.
const GAP_FRACTION: u64 = 8;
/// Part of a limit by which a time-out is delayed after a gap.
const GRACE_FRACTION: u64 = 10;
/// Maximum pause between two polls. An engine that never comes to rest costs some hundred register reads: each of them is a stall of
/// a microsecond on hardware, and two processes' work where the card is simulated by another one.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Polls until `look` returns a value. Returns the time waited, in nanoseconds, if that does not happen within `limit` of the card's
/// clock (and of the wall clock, where the card's is virtual: [`Deadline`]).
///
/// `look` is told how long the wait has taken. The clock is read before each poll: whatever holds this thread up between the two, the
/// engine had that time too.
pub(crate) fn poll_until<T, E>(
    transport: &dyn Backend,
    limit: u64,
    mut look: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<Result<T, u64>, E> {
    let deadline = Deadline::after(transport, Duration::from_nanos(limit));
    let mut backoff = Backoff::new().sleep_after(SPIN_NS).max_sleep(MAX_SLEEP);
    let (mut last, mut end) = (0, limit);
    loop {
        let now = transport.now();
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
        backoff.back_off(transport, end - waited);
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use super::*;
    use fpga_protocol::Nanos;
    use fpga_sim::SimNetwork;

    /// Looks at a network whose clock goes on by these nanoseconds between looks; what comes of it, and the number of looks.
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
        let (seen, looks) = poll_once(1000, IDLE_TIMEOUT_NS, |_| false);
        assert!(
            seen.is_err_and(|waited| (IDLE_TIMEOUT_NS..=IDLE_TIMEOUT_NS + 1000).contains(&waited)),
            "{seen:?}"
        );
        assert!(looks < 1000, "{looks} looks in vain");
        // Delay of a wait that is over after this time.
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
        // Each poll comes much later than the limit: one more is made.
        let (seen, looks) = poll_once(u64::MAX / 64, 1000, |_| false);
        assert!(seen.is_err());
        assert_eq!(looks, 3);
        assert_eq!(poll_once(u64::MAX / 64, 1000, |looks| looks == 3), (Ok(()), 3));
        // Polls that are a third of the limit apart: the time-out is delayed once, and by a tenth.
        let (seen, looks) = poll_once(400, 1000, |_| false);
        assert_eq!((seen, looks), (Err(1600), 5));
        // Polls in quick succession: it is not delayed.
        assert_eq!(poll_once(100, 1000, |_| false), (Err(1000), 11));
    }
}
