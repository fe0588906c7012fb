//! Limit on the log lines that a card, a packet or a client can cause repeatedly.

use crate::lock;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Maximum number of lines in a burst.
const BURST: u32 = 8;
/// After the burst, one line per this time.
const PERIOD: Duration = Duration::from_secs(1);

/// Limits the log lines about one subject: eight at once, then one per second. Suppressed lines are counted, and the next written line is
/// preceded by their number.
///
/// The caller passes the time, by any clock that never goes back; [`permits_now`](Self::permits_now) uses the host's.
#[derive(Debug)]
pub struct LogLimit {
    subject: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u32,
    /// Start of the period after which the next line is permitted.
    since: Option<Duration>,
    suppressed: u64,
}

impl LogLimit {
    /// Creates a limit for lines about `subject`.
    #[must_use]
    pub const fn new(subject: &'static str) -> Self {
        Self { subject, state: Mutex::new(State { left: BURST, since: None, suppressed: 0 }) }
    }

    /// Returns whether a line may be written now, by the host's clock. Logs the number of suppressed lines first.
    #[must_use]
    pub fn permits_now(&self) -> bool {
        static START: OnceLock<Instant> = OnceLock::new();
        self.permits(START.get_or_init(Instant::now).elapsed())
    }

    /// Returns whether a line may be written at time `now`. Logs the number of suppressed lines first.
    #[must_use]
    pub fn permits(&self, now: Duration) -> bool {
        let suppressed = match self.take(now) {
            None => return false,
            Some(suppressed) => suppressed,
        };
        self.report_suppressed(suppressed);
        true
    }

    /// Logs the number of lines suppressed since the last one.
    pub fn finish(&self) {
        let mut state = lock(&self.state);
        let suppressed = std::mem::take(&mut state.suppressed);
        drop(state);
        self.report_suppressed(suppressed);
    }

    fn report_suppressed(&self, suppressed: u64) {
        if suppressed > 0 {
            let subject = self.subject;
            tracing::warn!(
                "{suppressed} log lines about {subject} were suppressed: at most one per {PERIOD:?} is written"
            );
        }
    }

    /// Accounts for a line; returns the number of lines suppressed before it, or `None` if it is to be suppressed.
    fn take(&self, now: Duration) -> Option<u64> {
        let mut state = lock(&self.state);
        let since = *state.since.get_or_insert(now);
        let periods = now.saturating_sub(since).as_nanos() / PERIOD.as_nanos();
        let gained = u32::try_from(periods).unwrap_or(BURST).min(BURST);
        if gained > 0 {
            state.left = state.left.saturating_add(gained).min(BURST);
            state.since = Some(now);
        }
        if state.left == 0 {
            state.suppressed += 1;
            return None;
        }
        state.left -= 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// Writes a log line if the limit permits it, by the host's clock.
#[macro_export]
macro_rules! log_limited {
    ($limit:expr, $level:ident, $($line:tt)*) => {
        if tracing::enabled!(tracing::Level::$level) && $limit.permits_now() {
            tracing::event!(tracing::Level::$level, $($line)*);
        }
    };
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_flood_is_limited_to_burst_and_rate() {
        let limit = LogLimit::new("clients");
        let permitted = |at: Duration, lines: u32| {
            (0..lines).filter_map(|_| limit.take(at)).fold((0, 0), |(n, out), more| (n + 1, out + more))
        };
        assert_eq!(permitted(Duration::ZERO, 100_000), (BURST, 0));
        assert_eq!(permitted(PERIOD / 2, 1_000), (0, 0));
        assert_eq!(permitted(PERIOD, 1_000), (1, u64::from(100_000 - BURST) + 1_000));
        // One hour of a flood.
        let lines: u32 = (2..360).map(|number| permitted(PERIOD * number, 1_000).0).sum();
        assert_eq!(lines, 358);
        // After a quiet period the burst is available again.
        assert_eq!(permitted(PERIOD * 10_000, 1_000).0, BURST);
    }
}
