//! CPU placement of a pair of runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::cpu_sample::CpuSample;
use super::statistics::Figure;

/// Current relation of the two CPUs. The host of a virtual machine may change it at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum CpuPlacement {
    /// Separate cores with a common cache.
    #[serde(rename = "near")]
    SharedCache,
    /// Separate cores without a common cache.
    #[serde(rename = "far")]
    NoSharedCache,
    /// Two hardware threads of one core.
    #[serde(rename = "one core")]
    SameCore,
}

impl CpuPlacement {
    pub(crate) const ALL: [Self; 3] = [Self::SharedCache, Self::NoSharedCache, Self::SameCore];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SharedCache => "near",
            Self::NoSharedCache => "far",
            Self::SameCore => "one core",
        }
    }

    fn of_one(cores: &CpuSample, limits: &PlacementLatencies) -> Option<Self> {
        match cores.one_way_ns {
            latency if latency >= limits.far_ns => Some(Self::NoSharedCache),
            latency if latency >= limits.near_ns => Some(Self::SharedCache),
            latency if latency >= 0.0 => Some(Self::SameCore),
            _ => None,
        }
    }

    /// Placement on which all samples around a measurement agree; `None` if they do not, or if there are none.
    pub(crate) fn of(samples: &[CpuSample], limits: &PlacementLatencies) -> Option<Self> {
        let first = Self::of_one(samples.first()?, limits);
        first.filter(|_| samples.iter().all(|cores| Self::of_one(cores, limits) == first))
    }
}

/// Minimum one-way latencies between the CPUs per placement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlacementLatencies {
    pub(crate) near_ns: f64,
    pub(crate) far_ns: f64,
}

/// Width of a bar of the histogram in nanoseconds.
const BIN_NS: f64 = 10.0;

/// Maximum length of a bar in characters.
const MAX_BAR_WIDTH: usize = 50;

/// Bar of the histogram of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bar {
    pub(crate) from_ns: f64,
    pub(crate) placement: Option<CpuPlacement>,
    /// Median of the factors by which the CPUs slow each other down.
    pub(crate) slowdown: f64,
    pub(crate) count: usize,
}

/// Histogram of latencies, with the mutual slowdown of the CPUs, for judging the limits.
pub(crate) fn histogram<'a>(
    samples: impl IntoIterator<Item = &'a CpuSample>,
    limits: &PlacementLatencies,
) -> Vec<Bar> {
    let mut bins: BTreeMap<(u64, Option<CpuPlacement>), Vec<f64>> = BTreeMap::new();
    let known = |cores: &&CpuSample| cores.one_way_ns.is_finite() && cores.one_way_ns >= 0.0;
    for cores in samples.into_iter().filter(known) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "finite and not negative"
        )]
        let bin = (cores.one_way_ns / BIN_NS) as u64;
        bins.entry((bin, CpuPlacement::of_one(cores, limits))).or_default().push(cores.slowdown());
    }
    let bars = bins.into_iter().map(|((bin, placement), slowdowns)| {
        #[expect(clippy::cast_precision_loss, reason = "latencies are small")]
        let from_ns = bin as f64 * BIN_NS;
        let slowdown = Figure::of(slowdowns.iter().copied()).map_or(1.0, |figure| figure.median);
        Bar { from_ns, placement, slowdown, count: slowdowns.len() }
    });
    bars.collect()
}

/// Histogram as text.
pub(crate) fn chart(bars: &[Bar]) -> String {
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
    let mut text = String::new();
    for Bar { from_ns, placement, slowdown, count } in bars {
        let placement = placement.map_or("", CpuPlacement::name);
        let bar = "#".repeat((count * MAX_BAR_WIDTH).div_ceil(highest));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{from_ns:5.0} ns  {placement:8}  x{slowdown:.2}  {count:4}  {bar}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PlacementLatencies = PlacementLatencies { near_ns: 34.0, far_ns: 90.0 };

    fn samples(latencies: &[f64]) -> Vec<CpuSample> {
        latencies
            .iter()
            .map(|one_way_ns| CpuSample {
                one_way_ns: *one_way_ns,
                host_ns: 8.0,
                card_ns: 8.0,
                beside_ns: 12.0,
            })
            .collect()
    }

    #[test]
    fn placement_needs_all_samples_to_agree() {
        assert_eq!(CpuPlacement::of(&samples(&[40.0, 45.0, 89.9]), &LIMITS), Some(CpuPlacement::SharedCache));
        assert_eq!(CpuPlacement::of(&samples(&[90.0, 165.0]), &LIMITS), Some(CpuPlacement::NoSharedCache));
        assert_eq!(CpuPlacement::of(&samples(&[30.0, 33.9]), &LIMITS), Some(CpuPlacement::SameCore));
        for latencies in [&[40.0, 165.0, 40.0][..], &[165.0, 40.0], &[30.0, 40.0], &[f64::NAN, f64::NAN], &[]]
        {
            assert_eq!(CpuPlacement::of(&samples(latencies), &LIMITS), None, "{latencies:?}");
        }
    }

    #[test]
    fn histogram_names_placement_of_each_bar() {
        let samples = samples(&[31.0, 41.0, 44.0, 49.9, 41.0, 165.0, 169.0, f64::NAN]);
        let text = chart(&histogram(&samples, &LIMITS));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0][..6], ["30", "ns", "one", "core", "x1.50", "1"]);
        assert_eq!(lines[1][..5], ["40", "ns", "near", "x1.50", "4"]);
        assert_eq!(lines[1][5].len(), MAX_BAR_WIDTH);
        assert_eq!(lines[2][..5], ["160", "ns", "far", "x1.50", "2"]);
        assert_eq!(lines[2][5].len(), MAX_BAR_WIDTH / 2);
    }
}
