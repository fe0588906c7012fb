//! Limits on the time that one client makes its server wait.
//!
//! Two limits apply at once. Within one *unit* (one unit of the card's work, or one message) the sum of the waits is at most the unit's
//! limit, for any number of messages. Over the whole connection, waits that are not prompt draw on a *credit*, which is refilled by a tenth
//! of the elapsed time: a client that is occasionally late is served without end, a client that is continually late is not. The time is an
//! argument, so that the limits are tested without a clock.

use std::time::{Duration, Instant};

/// Waiting time after which a unit ends, so that others are served: requests on the control socket, new clients, the network.
const MAX_WAIT_PER_UNIT: Duration = Duration::from_millis(10);
/// Divisor of the unit's limit up to which a wait is prompt.
const PROMPT_DIVISOR: u32 = 10;
/// Size of the credit in unit limits.
const CREDIT_TURNS: u32 = 10;
/// Divisor of the elapsed time by which the credit is refilled.
const REFILL_DIVISOR: u32 = 10;

/// The client has been late too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the client is continually late: waits above {prompt:?} per message have used its credit of {credit:?} and a tenth of the time since it connected"
)]
pub(super) struct BudgetExceeded {
    prompt: Duration,
    credit: Duration,
}

/// Remaining time that one client may make its server wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitBudget {
    limit: Duration,
    waited: Duration,
    credit: Duration,
    refilled: Instant,
}

impl WaitBudget {
    /// `limit`: maximum wait in one unit.
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, waited: Duration::ZERO, credit: limit.saturating_mul(CREDIT_TURNS), refilled: now }
    }

    /// Begins the next unit.
    pub(super) const fn begin_unit(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// Remaining wait time in this unit.
    pub(super) const fn left(&self) -> Duration {
        self.limit.saturating_sub(self.waited)
    }

    /// Returns whether this unit should end, so that others are served.
    pub(super) fn is_budget_used(&self) -> bool {
        self.waited >= MAX_WAIT_PER_UNIT
    }

    /// Records a wait.
    pub(super) fn note(&mut self, from: Instant, to: Instant) -> Result<(), BudgetExceeded> {
        let wait = to.saturating_duration_since(from);
        self.waited = self.waited.saturating_add(wait);
        let full = self.limit.saturating_mul(CREDIT_TURNS);
        let refill = to.saturating_duration_since(self.refilled) / REFILL_DIVISOR;
        self.refilled = self.refilled.max(to);
        self.credit = self.credit.saturating_add(refill).min(full);
        let prompt = self.limit / PROMPT_DIVISOR;
        let late = wait.saturating_sub(prompt);
        if late > self.credit {
            self.credit = Duration::ZERO;
            return Err(BudgetExceeded { prompt, credit: full });
        }
        self.credit -= late;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Waits for `wait` in every `period`; returns the number of waits until the budget is exceeded, at most `most`.
    fn waits(wait: Duration, period: Duration, most: u32) -> u32 {
        let mut now = Instant::now();
        let mut budget = WaitBudget::new(LIMIT, now);
        for count in 0..most {
            budget.begin_unit();
            if budget.note(now, now + wait).is_err() {
                return count;
            }
            now += period;
        }
        most
    }

    #[test]
    fn wait_budget_always_late_client_is_exhausted() {
        // 800 ms of each 900 are late, and 90 are refilled: 10 s last for a dozen replies, not for hours.
        assert_eq!(waits(ms(900), ms(900), 10_000), 13);
    }

    #[test]
    fn wait_budget_occasionally_late_client_is_served() {
        assert_eq!(waits(ms(900), ms(8_000), 100_000), 100_000);
        assert_eq!(waits(ms(100), ms(100), 100_000), 100_000);
        // 50 of each 60 microseconds.
        assert_eq!(waits(Duration::from_micros(50), Duration::from_micros(60), 100_000), 100_000);
    }

    #[test]
    fn wait_budget_unit_limit_covers_all_waits() {
        let now = Instant::now();
        let mut budget = WaitBudget::new(LIMIT, now);
        for count in 1..=4 {
            assert!(budget.note(now, now + ms(100)).is_ok());
            assert_eq!(budget.left(), LIMIT - ms(100) * count);
            assert!(budget.is_budget_used());
        }
        budget.begin_unit();
        assert_eq!(budget.left(), LIMIT);
        assert!(!budget.is_budget_used());
        assert!(budget.note(now, now + 2 * LIMIT).is_ok());
        assert_eq!(budget.left(), Duration::ZERO);
    }
}
