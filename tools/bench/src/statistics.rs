//! Medians and their spread.

use serde::{Deserialize, Serialize};

/// Median; for an even count the mean of the middle two. `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

/// Median of repeated measurements, with minimum, maximum and their number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) runs: usize,
}

impl Figure {
    /// Returns `None` without values. Values have five significant digits.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).map(rounded).collect();
        let median = rounded(median(&values)?);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, least, most, runs: values.len() })
    }

    /// Formats as `(least-most; runs)`.
    pub(crate) fn spread(&self, scale: f64, digits: usize) -> String {
        format!("({:.digits$}-{:.digits$}; {})", self.least / scale, self.most / scale, self.runs)
    }
}

/// Rounds to five significant digits: more would only lengthen the files.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_medians_are_correct() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn statistics_figure_keeps_extremes() {
        assert_eq!(Figure::of([]), None);
        assert_eq!(Figure::of([1.234_567_8]).map(|figure| figure.median), Some(1.2346));
        let figure = Figure::of([3e6, 1e6, 2e6]).unwrap();
        assert_eq!((figure.median, figure.least, figure.most), (2e6, 1e6, 3e6));
        assert_eq!(figure.spread(1e6, 1), "(1.0-3.0; 3)");
    }
}
