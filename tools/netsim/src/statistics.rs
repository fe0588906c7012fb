//! Statistics of many runs of one point: mean, confidence, 99 % quantile, fairness.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Number of resamplings of the bootstrap.
const RESAMPLINGS: usize = 200;
/// Quantile 0.975 of the normal distribution.
const NORMAL_95: f64 = 1.959_963_984_540_054;
/// Quantiles 0.975 of Student's distribution with 1 to 4 degrees of freedom.
const STUDENT_95: [f64; 4] = [12.706_205, 4.302_653, 3.182_446, 2.776_445];

/// Number with an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Value.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
}

/// Summary of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval; 0 for a single sample.
    pub half_width: f64,
    /// 99 % quantile: 99 % of the samples are not above it.
    pub p99: Interval,
}

/// Summarises samples; `None` if there are none. `seed` determines the bootstrap's random numbers.
#[must_use]
pub fn summarise(samples: &[f64], seed: u64) -> Option<Summary> {
    if samples.is_empty() {
        return None;
    }
    let (mean, half_width) = mean(samples);
    Some(Summary { mean, half_width, p99: p99(samples, seed) })
}

/// Mean of samples, and half the width of its 95 % confidence interval: 0 for a single sample. Without samples the mean is not a number.
#[must_use]
pub fn mean(samples: &[f64]) -> (f64, f64) {
    let count = count(samples.len());
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let half_width = if samples.len() > 1 {
        student(samples.len() - 1) * (squares / (count - 1.0) / count).sqrt()
    } else {
        0.0
    };
    (mean, half_width)
}

/// Quantile 0.975 of Student's distribution: the interval of a few samples is wider than that of a normal distribution.
fn student(freedom: usize) -> f64 {
    if let Some(known) = freedom.checked_sub(1).and_then(|place| STUDENT_95.get(place)) {
        return *known;
    }
    // Expansion by Cornish and Fisher; the error is below 0.2 % from 5 degrees of freedom.
    let (z, n) = (NORMAL_95, count(freedom));
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

/// The 99 % quantile by the bootstrap: the mean of the quantiles of samples drawn from the sample, and the interval that contains 95 % of
/// them.
fn p99(samples: &[f64], seed: u64) -> Interval {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut numbers = Pcg32::new(seed, 0xB007_57A9);
    // Finds the sorted sample that is a resampling's quantile, by counting: their order is known.
    let mut counts = vec![0_u32; sorted.len()];
    let above = sorted.len() / 100;
    let mut found: Vec<f64> = (0..RESAMPLINGS)
        .map(|_| {
            counts.fill(0);
            for _ in 0..sorted.len() {
                let drawn = (u64::from(numbers.next_u32()) * sorted.len() as u64) >> 32;
                if let Some(count) = usize::try_from(drawn).ok().and_then(|drawn| counts.get_mut(drawn)) {
                    *count += 1;
                }
            }
            let mut left = above;
            let quantile = counts.iter().zip(&sorted).rev().find(|(count, _)| {
                let here = **count as usize;
                let within = left < here;
                left = left.saturating_sub(here);
                within
            });
            quantile.or_else(|| counts.iter().zip(&sorted).next()).map_or(0.0, |(_, sample)| *sample)
        })
        .collect();
    found.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| found.get(found.len() * share / 1000).copied().unwrap_or(0.0);
    let value = found.iter().sum::<f64>() / count(found.len());
    Interval { value, low: at(25), high: at(974) }
}

/// Jain's index of fairness: 1 if all shares are equal, 1 / n if one has everything.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (count(shares.len()) * squares) } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "samples that fit into memory are fewer than 2^53")]
pub(crate) const fn count(count: usize) -> f64 {
    count as f64
}

/// Seed of run `number` under `base`: neighbouring runs, and neighbouring bases, have unrelated seeds.
#[must_use]
pub const fn seed_of(base: u64, number: u64) -> u64 {
    let mixed =
        base.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ mixed >> 27
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_known_sample_is_summarised() {
        let samples: Vec<f64> = (1..=1000).map(f64::from).collect();
        let found = summarise(&samples, 1).unwrap();
        assert!((found.mean - 500.5).abs() < 1e-9);
        // The standard deviation of 1..=1000 is 288.82; divided by the root of 1000, times 1.9623.
        assert!((found.half_width - 17.923).abs() < 0.001, "{found:?}");
        assert!((found.p99.value - 990.0).abs() < 1.0, "{found:?}");
        assert!(found.p99.low < 990.0 && found.p99.low > 975.0 && found.p99.high > 990.0, "{found:?}");
        assert_eq!(summarise(&samples, 1), Some(found));
        assert_eq!(summarise(&[], 1), None);
        let one = summarise(&[4.0], 1).unwrap();
        assert_eq!((one.mean, one.half_width, one.p99.value), (4.0, 0.0, 4.0));
    }

    /// Values of printed tables.
    #[test]
    fn statistics_student_quantile_matches_tables() {
        for (freedom, quantile) in
            [(1, 12.706), (2, 4.303), (4, 2.776), (5, 2.571), (9, 2.262), (29, 2.045), (1000, 1.962)]
        {
            assert!((student(freedom) - quantile).abs() < 0.004, "{freedom}: {}", student(freedom));
        }
    }

    /// In 95 of 100 samples the interval contains the mean of their distribution.
    #[test]
    fn statistics_interval_covers_mean_at_stated_rate() {
        let mut numbers = Pcg32::new(3, 5);
        let held = (0..2000)
            .filter(|_| {
                let samples: Vec<f64> =
                    (0..200).map(|_| f64::from(numbers.next_u32()) / 4_294_967_296.0).collect();
                let (mean, half_width) = mean(&samples);
                (mean - 0.5).abs() <= half_width
            })
            .count();
        assert!((1870..1930).contains(&held), "{held} of 2000");
    }

    #[test]
    fn statistics_fairness_is_between_1_over_n_and_1() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[2.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain(&[]), 0.0);
    }

    #[test]
    fn statistics_neighbouring_seeds_differ() {
        let mut seeds: Vec<u64> =
            (0..50).flat_map(|base| (0..1000).map(move |run| seed_of(base, run))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 50_000);
    }
}
