//! Histogram of latencies.

use core::time::Duration;

use hdrhistogram::Histogram;

/// Histogram of the measured latencies: exact to the nanosecond below two microseconds, to a thousandth above.
///
/// A list would disturb the measurement: every eighth entry begins a new cache line, the store to it waits for memory, and x86 does not
/// reorder later stores before it. The descriptor and doorbell of the next operation were 100 ns late.
#[derive(Debug)]
pub(super) struct LatencyHistogram(pub(super) Histogram<u32>);

impl LatencyHistogram {
    /// Maximum latency that is distinguished from longer ones.
    const MAX_LATENCY: Duration = Duration::from_secs(3600);

    #[expect(clippy::expect_used, reason = "constants, which the test of this module tries")]
    pub(super) fn new() -> Self {
        let longest = u64::try_from(Self::MAX_LATENCY.as_nanos()).unwrap_or(u64::MAX);
        Self(Histogram::new_with_max(longest, 3).expect("three digits up to an hour are a valid histogram"))
    }

    pub(super) fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }
}
