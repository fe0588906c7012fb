//! Time of the protocol: nanoseconds since an arbitrary start that the caller chooses.
//!
//! State machines have no clock. Every `handle_*` and `poll_*` that needs the time takes `now`, so that the same
//! code runs on a monotonic clock, on the virtual time of a simulation, and in a test that jumps from one
//! deadline to the next.

use core::fmt;
use core::time::Duration;

/// A point in time, or a duration, in nanoseconds. 64 bits last 584 years.
///
/// All arithmetic saturates or is checked: a caller's clock that stands still or jumps far ahead can make a timer fire early or late, but
/// never causes a panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// The start of time, and the duration zero.
    pub const ZERO: Self = Self(0);
    /// The end of time: the deadline of a timer that is not set.
    pub const MAX: Self = Self(u64::MAX);

    /// `nanoseconds` since the caller's start.
    #[must_use]
    pub const fn new(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// `microseconds` since the caller's start, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn from_micros(microseconds: u64) -> Self {
        Self(microseconds.saturating_mul(1_000))
    }

    /// `milliseconds` since the caller's start, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// `seconds` since the caller's start, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// This time in whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// `self + span`, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// `self - span`, at least [`Nanos::ZERO`]. For the age of an item whose start may lie in the future because the clock went backwards.
    #[must_use]
    pub const fn saturating_sub(self, span: Self) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// `self x factor`, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// `self + span`, or `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, span: Self) -> Option<Self> {
        match self.0.checked_add(span.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// `self - span`, or `None` before the start.
    #[must_use]
    pub const fn checked_sub(self, span: Self) -> Option<Self> {
        match self.0.checked_sub(span.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// Deadline of a timer; `None` for [`Self::MAX`], which is a timer that is not set.
    #[must_use]
    pub const fn as_timer(self) -> Option<Self> {
        if self.0 == u64::MAX { None } else { Some(self) }
    }
}

/// Saturates at [`Nanos::MAX`], 584 years.
impl From<Duration> for Nanos {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} ns"),
            n if n < 1_000_000 => write!(f, "{}.{:03} µs", n / 1_000, n % 1_000),
            n if n < 1_000_000_000 => write!(f, "{}.{:03} ms", n / 1_000_000, n / 1_000 % 1_000),
            n => write!(f, "{}.{:03} s", n / 1_000_000_000, n / 1_000_000 % 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn nanos_arithmetic_saturates_or_is_checked() {
        assert_eq!(Nanos::MAX.saturating_add(Nanos::new(1)), Nanos::MAX);
        assert_eq!(Nanos::ZERO.saturating_sub(Nanos::new(1)), Nanos::ZERO);
        assert_eq!(Nanos::MAX.checked_add(Nanos::new(1)), None);
        assert_eq!(Nanos::ZERO.checked_sub(Nanos::new(1)), None);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
        assert_eq!(Nanos::from(Duration::MAX), Nanos::MAX);
        assert_eq!(Duration::from(Nanos::new(1_500)), Duration::from_nanos(1_500));
        assert_eq!(Nanos::from_millis(2).checked_add(Nanos::from_micros(3)), Some(Nanos::new(2_003_000)));
    }

    #[test]
    fn nanos_display_uses_largest_fitting_unit() {
        assert_eq!(Nanos::new(999).to_string(), "999 ns");
        assert_eq!(Nanos::new(1_500).to_string(), "1.500 µs");
        assert_eq!(Nanos::from_millis(10).to_string(), "10.000 ms");
        assert_eq!(Nanos::new(1_250_000_000).to_string(), "1.250 s");
    }
}
