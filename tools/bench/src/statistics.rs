//! Medians and spreads.

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

/// Spread of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Returns `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let median = median(&values)?;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, least, most })
    }

    /// Formats as `median (least-most)`, scaled, with `digits` decimal places.
    pub(crate) fn text(&self, scale: f64, digits: usize) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(|value| value / scale);
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }
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
    fn statistics_spread_keeps_extremes() {
        assert_eq!(Spread::of([]), None);
        let spread = Spread::of([3e6, 1e6, 2e6]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (2e6, 1e6, 3e6));
        assert_eq!(spread.text(1e6, 1), "2.0 (1.0-3.0)");
    }
}
