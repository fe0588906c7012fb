//! Waiting for a state of the device by polling its registers.

use core::time::Duration;

use crate::{Backend, Backoff, Deadline};

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

/// Polls until `poll` returns a value. If that does not happen within `limit` nanoseconds of the card's clock (and of the wall clock, where
/// the card's is virtual: [`Deadline`]), returns the time waited in nanoseconds.
///
/// `poll` is called with the time waited so far. The clock is read before each poll, so time that this thread loses between the two also
/// counts for the engine.
pub fn poll_until<T, E>(
    backend: &dyn Backend,
    limit: u64,
    mut poll: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<Result<T, u64>, E> {
    let deadline = Deadline::after(backend, Duration::from_nanos(limit));
    let mut backoff = Backoff::new().sleep_after(SPIN_NS).max_sleep(MAX_SLEEP);
    let (mut last, mut end) = (0, limit);
    loop {
        let now = backend.now();
        let waited = deadline.waited(now);
        if let Some(seen) = poll(waited)? {
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
