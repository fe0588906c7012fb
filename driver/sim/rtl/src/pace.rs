//! Limit of simulated time by wall-clock time (`+fpga_ratio`).
//!
//! The simulator's thread sleeps while simulated time is ahead. The relation holds from any moment on: a simulation that was behind by more
//! than [`BEHIND`] does not make up for it.

use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fpga_pci::lock;

/// Wall-clock time by which simulated time may be behind and still make up for it: the inaccuracy of a sleep.
const BEHIND: Duration = Duration::from_millis(10);
/// Maximum length of a sleep; then the end of the simulation is checked.
const CHECK: Duration = Duration::from_millis(50);
/// Limits of the ratio.
const RATIOS: std::ops::RangeInclusive<f64> = 1e-9..=1000.0;

/// Maximum number of simulated nanoseconds per nanosecond of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio(f64);

// Never NaN.
impl Eq for Ratio {}

impl FromStr for Ratio {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        f64::from_str(text).ok().filter(|ratio| RATIOS.contains(ratio)).map(Self).ok_or(())
    }
}

impl Ratio {
    /// Wall-clock time that `picoseconds` of simulated time take at least.
    fn wall(self, picoseconds: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a difference of times, below 2^53 ps for 2 h")]
        let seconds = picoseconds as f64 / 1e12 / self.0;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// A moment in both times.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    wall: Instant,
    picoseconds: u64,
}

/// Keeps simulated time from being ahead.
#[derive(Debug)]
pub(crate) struct Pacer {
    ratio: Ratio,
    anchor: Mutex<Option<Anchor>>,
}

impl Pacer {
    pub(crate) const fn new(ratio: Ratio) -> Self {
        Self { ratio, anchor: Mutex::new(None) }
    }

    /// Sleeps until simulated time `now` (in ps) is not ahead, or `has_ended`.
    pub(crate) fn pace(&self, now: u64, has_ended: impl Fn() -> bool) {
        while let Some(rest) = self.rest(now, Instant::now()) {
            if has_ended() {
                return;
            }
            std::thread::sleep(rest.min(CHECK));
        }
    }

    /// Wall-clock time that remains at `wall` until simulated time `now`.
    fn rest(&self, now: u64, wall: Instant) -> Option<Duration> {
        let mut anchor = lock(&self.anchor);
        let from = *anchor.get_or_insert(Anchor { wall, picoseconds: now });
        let due = self.ratio.wall(now.saturating_sub(from.picoseconds));
        let passed = wall.saturating_duration_since(from.wall);
        if passed.saturating_sub(due) > BEHIND {
            // The next interval begins here, with the time that it may make up for.
            let wall = wall.checked_sub(BEHIND).unwrap_or(wall);
            *anchor = Some(Anchor { wall, picoseconds: now });
        }
        due.checked_sub(passed).filter(|rest| !rest.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_outside_limits_is_refused() {
        for text in ["0", "-1", "nan", "inf", "1e-10", "1001", "fast", ""] {
            assert_eq!(text.parse::<Ratio>(), Err(()), "{text}");
        }
        assert_eq!("0.001".parse(), Ok(Ratio(0.001)));
    }

    #[test]
    fn simulated_time_is_never_ahead_of_ratio() {
        let pacer = Pacer::new(Ratio(0.001));
        let begin = Instant::now();
        let at = |micros| begin + Duration::from_micros(micros);
        assert_eq!(pacer.rest(5_000, begin), None);
        // 4 ns take 4 us.
        assert_eq!(pacer.rest(9_000, begin), Some(Duration::from_micros(4)));
        assert_eq!(pacer.rest(9_000, at(3)), Some(Duration::from_micros(1)));
        assert_eq!(pacer.rest(9_000, at(4)), None);
        // 1 s later: 10 ms, and no more, may be made up for.
        assert_eq!(pacer.rest(13_000, at(1_000_000)), None);
        assert_eq!(pacer.rest(13_000 + 10_000_000, at(1_000_000)), None);
        assert_eq!(pacer.rest(13_000 + 10_000_000 + 4_000, at(1_000_000)), Some(Duration::from_micros(4)));
    }
}
