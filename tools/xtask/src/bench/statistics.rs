//! Medians, spreads, and which regime a pair of runs belongs to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The middle of some numbers; of an even count the mean of the middle two. `None` of none.
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

/// What repeated measuring gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// `None` of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let median = median(&values)?;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, least, most })
    }

    /// `median (least-most)`, scaled, with so many digits.
    pub(crate) fn text(&self, scale: f64, digits: usize) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(|value| value / scale);
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }
}

/// How far apart the two CPUs are at the moment, in time. Virtual machines flip between the two at their host's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Regime {
    Near,
    Far,
}

impl Regime {
    pub(crate) const ALL: [Self; 2] = [Self::Near, Self::Far];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    /// The regime that all latencies around a measurement agree on; `None` if they do not, or if there are none.
    pub(crate) fn of(brackets_ns: &[f64], threshold_ns: f64) -> Option<Self> {
        let each = |latency: &f64| if *latency < threshold_ns { Self::Near } else { Self::Far };
        let first = each(brackets_ns.first()?);
        brackets_ns.iter().all(|latency| latency.is_finite() && each(latency) == first).then_some(first)
    }
}

/// Width of a bar of the histogram in nanoseconds.
const BIN_NS: f64 = 10.0;
/// Longest bar in characters.
const LONGEST_BAR: usize = 50;

/// Latencies as bars, so that the threshold can be judged.
pub(crate) fn histogram(latencies_ns: &[f64], threshold_ns: f64) -> String {
    let mut bins: BTreeMap<u64, usize> = BTreeMap::new();
    for latency in latencies_ns.iter().filter(|latency| latency.is_finite() && **latency >= 0.0) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "finite and not negative"
        )]
        let bin = (latency / BIN_NS) as u64;
        *bins.entry(bin).or_default() += 1;
    }
    let highest = bins.values().copied().max().unwrap_or(1);
    let mut text = String::new();
    for (bin, count) in bins {
        #[expect(clippy::cast_precision_loss, reason = "latencies are small")]
        let from = bin as f64 * BIN_NS;
        let regime = Regime::of(&[from], threshold_ns).map_or("", Regime::name);
        let bar = "#".repeat((count * LONGEST_BAR).div_ceil(highest));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{from:5.0} ns  {regime:4}  {count:4}  {bar}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn spreads_keep_their_ends() {
        assert_eq!(Spread::of([]), None);
        let spread = Spread::of([3e6, 1e6, 2e6]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (2e6, 1e6, 3e6));
        assert_eq!(spread.text(1e6, 1), "2.0 (1.0-3.0)");
    }

    #[test]
    fn a_regime_is_what_all_brackets_agree_on() {
        assert_eq!(Regime::of(&[40.0, 45.0, 89.9], 90.0), Some(Regime::Near));
        assert_eq!(Regime::of(&[90.0, 165.0], 90.0), Some(Regime::Far));
        for brackets in [&[40.0, 165.0, 40.0][..], &[165.0, 40.0], &[f64::NAN, f64::NAN], &[]] {
            assert_eq!(Regime::of(brackets, 90.0), None, "{brackets:?}");
        }
    }

    #[test]
    fn the_histogram_names_the_regime_of_each_bar() {
        let text = histogram(&[41.0, 44.0, 49.9, 41.0, 165.0, 169.0, f64::NAN], 90.0);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0][..4], ["40", "ns", "near", "4"]);
        assert_eq!(lines[0][4].len(), LONGEST_BAR);
        assert_eq!(lines[1][..4], ["160", "ns", "far", "2"]);
        assert_eq!(lines[1][4].len(), LONGEST_BAR / 2);
    }
}
