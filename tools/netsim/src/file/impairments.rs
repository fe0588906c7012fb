//! Keys of a scenario for the model of impairments.

use fpga_netmodel::{Bursts, Conditions, Delay, Loss, Probability};
use fpga_protocol::Nanos;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::{Checked, Span, Within};

/// Fraction of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fraction(Probability);

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (allowed, check) = ("a probability from 0 to 1", &|value, _| Probability::new(value).is_ok());
        let (value, _) = deserializer.deserialize_any(Checked { allowed, check })?;
        Probability::new(value).map(Self).map_err(D::Error::custom)
    }
}

/// Standard deviation of a logarithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sigma(f64);

impl<'de> Deserialize<'de> for Sigma {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (allowed, check) = ("a number from 0 to 4", &|value, _| (0.0..=4.0).contains(&value));
        Ok(Self(deserializer.deserialize_any(Checked { allowed, check })?.0))
    }
}

/// Mean length of bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length(f64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (allowed, check) = ("a number from 1 to 1000000", &|value, _| (1.0..=1e6).contains(&value));
        Ok(Self(deserializer.deserialize_any(Checked { allowed, check })?.0))
    }
}

/// Random reordering: any of the next `depth` packets leaves first.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{depth: N, patience_ns: N}")]
pub(super) struct Shuffle {
    /// Number of packets to choose from.
    pub(super) depth: Within<1, 4096>,
    /// Maximum time that a packet is held back, in nanoseconds.
    pub(super) patience_ns: Span,
}

/// Bottleneck; packets that do not fit into its queue are dropped.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{rate_mbps: N, queue_ns: N}")]
pub(super) struct Throttle {
    /// Rate in Mbit/s.
    pub(super) rate_mbps: Within<1, 100_000_000>,
    /// Maximum queueing time of a packet in nanoseconds; a packet that would wait longer is dropped.
    pub(super) queue_ns: Span,
}

/// Time span in which all packets are lost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{from_ns: N, length_ns: N}")]
pub(super) struct BlackoutEntry {
    /// Begin in nanoseconds.
    pub(super) from_ns: Span,
    /// Duration in nanoseconds.
    pub(super) length_ns: Span,
}

/// Impairments of packets, independent of each other.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "any of loss or bursts, delay or jitter_ns, duplicate, copy_delay and corrupt, in braces or below"
)]
pub(super) struct ConditionsEntry {
    /// Fraction of packets that are lost, independently of each other. Not together with `bursts`.
    loss: Option<Fraction>,
    /// Loss in bursts. Not together with `loss`.
    bursts: Option<BurstsEntry>,
    /// Fraction of packets that are delivered twice.
    duplicate: Fraction,
    /// Fraction of packets that are corrupted; checksums detect them.
    corrupt: Fraction,
    /// Mean of an exponential delay in nanoseconds: short for `delay: {exponential: ...}`.
    jitter_ns: Option<Span>,
    /// Additional delay of each packet. Not together with `jitter_ns`.
    delay: Option<DelayEntry>,
    /// Delay of the second copy of duplicated packets (default: as `delay`).
    copy_delay: Option<DelayEntry>,
}

/// Loss in bursts: all packets of a burst are lost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{loss: P, length: N}")]
pub(super) struct BurstsEntry {
    /// Fraction of all packets that are lost.
    loss: Fraction,
    /// Mean length of a burst in packets.
    length: Length,
}

/// The same delay for all packets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{ns: N}")]
pub(super) struct ConstantEntry {
    /// Nanoseconds.
    ns: Span,
}

/// A delay between two bounds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{least_ns: N, most_ns: N}")]
pub(super) struct UniformEntry {
    /// Minimum delay in nanoseconds.
    least_ns: Span,
    /// Maximum delay in nanoseconds.
    most_ns: Span,
}

/// A delay of exponential distribution.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{least_ns: N, mean_ns: N}")]
pub(super) struct ExponentialEntry {
    /// Minimum delay in nanoseconds.
    least_ns: Span,
    /// Mean of the random part in nanoseconds.
    mean_ns: Span,
}

/// A delay of normal distribution, cut off at zero.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{mean_ns: N, deviation_ns: N}")]
pub(super) struct NormalEntry {
    /// Mean in nanoseconds.
    mean_ns: Span,
    /// Standard deviation in nanoseconds.
    deviation_ns: Span,
}

/// A delay of log-normal distribution.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{least_ns: N, median_ns: N, sigma: N}")]
pub(super) struct LogNormalEntry {
    /// Minimum delay in nanoseconds.
    least_ns: Span,
    /// Median of the random part in nanoseconds.
    median_ns: Span,
    /// Standard deviation of the random part's natural logarithm.
    sigma: Sigma,
}

/// A distribution of delays: one of the keys.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(
    deny_unknown_fields,
    default,
    rename_all = "kebab-case",
    expecting = "one of {constant: ...}, {uniform: ...}, {exponential: ...}, {normal: ...} and {log-normal: ...}"
)]
pub(super) struct DelayEntry {
    /// The same for all.
    constant: Option<ConstantEntry>,
    /// Between two bounds.
    uniform: Option<UniformEntry>,
    /// Exponential.
    exponential: Option<ExponentialEntry>,
    /// Normal.
    normal: Option<NormalEntry>,
    /// Log-normal.
    log_normal: Option<LogNormalEntry>,
}

impl DelayEntry {
    pub(super) fn law(self) -> Result<Delay, String> {
        let at = |Within(span): Span| Nanos::new(span);
        let laws = [
            self.constant.map(|entry| Delay::Constant(at(entry.ns))),
            self.uniform.map(|entry| Delay::Uniform { least: at(entry.least_ns), most: at(entry.most_ns) }),
            self.exponential
                .map(|entry| Delay::Exponential { least: at(entry.least_ns), mean: at(entry.mean_ns) }),
            self.normal
                .map(|entry| Delay::Normal { mean: at(entry.mean_ns), deviation: at(entry.deviation_ns) }),
            self.log_normal.map(|entry| Delay::LogNormal {
                least: at(entry.least_ns),
                median: at(entry.median_ns),
                sigma: entry.sigma.0,
            }),
        ];
        let mut given = laws.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(Delay::Uniform { least, most }), None) if least > most => {
                Err(format!("a uniform delay from {least} to {most}: give most_ns of at least least_ns"))
            }
            (Some(law), None) => Ok(law),
            _ => {
                Err("give one of constant, uniform, exponential, normal and log-normal as a delay".to_owned())
            }
        }
    }
}

/// Reordering of a given degree: each packet is held back by 0 to `degree` positions, uniformly distributed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{degree: N, patience_ns: N}")]
pub(super) struct Disorder {
    /// Maximum number of packets that overtake one packet.
    pub(super) degree: Within<1, 4096>,
    /// Maximum time that a packet is held back, in nanoseconds.
    pub(super) patience_ns: Span,
}

impl ConditionsEntry {
    pub(super) fn conditions(self) -> Result<Conditions, String> {
        let loss = match (self.loss, self.bursts) {
            (Some(_), Some(_)) => return Err("loss and bursts: give one of them".to_owned()),
            (None, Some(BurstsEntry { loss, length })) => {
                Loss::Bursts(Bursts::of(loss.0.fraction(), length.0).map_err(|error| error.to_string())?)
            }
            (loss, None) => Loss::Independent(loss.unwrap_or_default().0),
        };
        let delay = match (self.jitter_ns, self.delay) {
            (Some(_), Some(_)) => return Err("jitter_ns and delay: give one of them".to_owned()),
            (Some(Within(mean)), None) => Delay::Exponential { least: Nanos::ZERO, mean: Nanos::new(mean) },
            (None, Some(entry)) => entry.law()?,
            (None, None) => Delay::Constant(Nanos::ZERO),
        };
        let copies = self.copy_delay.map_or(Ok(delay), DelayEntry::law)?;
        let conditions = Conditions::default().loss(loss).delay(delay);
        Ok(conditions.copies(self.duplicate.0, copies).damage(self.corrupt.0))
    }
}
