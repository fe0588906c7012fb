//! Sleeps that end on time.

use core::num::NonZeroU64;
use core::time::Duration;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// Divisor of the duration of a sleep: the timer may be late by this part of it.
const SLACK_SHARE: u128 = 16;

/// Sleeps for `span`. Linux may be late by the timer slack of the thread, 50 us by default: for a short sleep it is reduced to a sixteenth of
/// `span` meanwhile.
pub fn sleep(span: Duration) {
    let slack =
        u64::try_from(span.as_nanos() / SLACK_SHARE).ok().and_then(|slack| NonZeroU64::new(slack.max(1)));
    // Zero for threads with real-time scheduling, whose timers are exact.
    let usual = current_timer_slack().ok().and_then(NonZeroU64::new);
    // A program may not permit the call: the sleep is longer then.
    let reduced = usual.filter(|usual| slack.is_some_and(|slack| slack < *usual));
    let has_reduced = reduced.is_some() && set_current_timer_slack(slack).is_ok();
    std::thread::sleep(span);
    if has_reduced {
        let _ = set_current_timer_slack(reduced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn sleep_leaves_timer_slack_of_thread() {
        let usual = current_timer_slack().unwrap();
        for micros in [0, 1, 20, 2000] {
            let (span, began) = (Duration::from_micros(micros), Instant::now());
            sleep(span);
            assert!(began.elapsed() >= span);
            assert_eq!(current_timer_slack().unwrap(), usual);
        }
        set_current_timer_slack(NonZeroU64::new(7)).unwrap();
        sleep(Duration::from_micros(50));
        assert_eq!(current_timer_slack().unwrap(), 7);
    }
}
