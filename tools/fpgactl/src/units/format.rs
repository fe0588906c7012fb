//! Formatting of numbers: sizes in binary units, rates in GB/s (10^9), latencies in µs.

use std::time::Duration;

/// Formats a size in the largest binary unit that it reaches: `512 B`, `4 KiB`, `1.50 MiB`. Exact values print without a fraction.
#[must_use]
pub fn binary_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >> shift != 0) else {
        return format!("{bytes} B");
    };
    if bytes.trailing_zeros() >= shift {
        return format!("{} {unit}", bytes >> shift);
    }
    // Hundredths, truncated: 1023.999 KiB must not print as 1024 KiB.
    let whole = bytes >> shift;
    let rest = u128::from(bytes) & ((1 << shift) - 1);
    format!("{whole}.{:02} {unit}", (rest * 100) >> shift)
}

/// Rate in GB/s (10^9 bytes per second); 0 for an empty span.
#[must_use]
pub fn gigabytes_per_second(bytes: u64, span: Duration) -> f64 {
    let seconds = span.as_secs_f64();
    if seconds <= 0.0 {
        return 0.0;
    }
    to_f64(bytes) / seconds / 1e9
}

/// [`gigabytes_per_second`] as text.
#[must_use]
pub fn rate(bytes: u64, span: Duration) -> String {
    format!("{:.3} GB/s", gigabytes_per_second(bytes, span))
}

/// Converts nanoseconds to microseconds.
#[must_use]
pub fn micros(nanoseconds: u64) -> f64 {
    to_f64(nanoseconds) / 1e3
}

/// Conversion for display: beyond 2^53 the last digits do not matter.
fn to_f64(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "rates and latencies are shown with a few digits")]
    let value = value as f64;
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_sizes_use_binary_units() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (64 << 20, "64 MiB"),
            ((1 << 20) - 1, "1023.99 KiB"),
            (u64::MAX, "16777215.99 TiB"),
        ] {
            assert_eq!(binary_size(value), text);
        }
    }

    #[test]
    fn format_rates_and_times() {
        assert_eq!(rate(2_000_000_000, Duration::from_secs(1)), "2.000 GB/s");
        assert_eq!(rate(1, Duration::ZERO), "0.000 GB/s");
        assert!((micros(1_500) - 1.5).abs() < 1e-9);
    }
}
