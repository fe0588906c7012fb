//! Conversions between whole numbers and fractions.

/// Number as a fraction.
#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds far below 2^53")]
pub(crate) const fn float(number: u64) -> f64 {
    number as f64
}

/// Nearest whole number of a value that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
pub(crate) const fn nearest(value: f64) -> u64 {
    value.round() as u64
}
