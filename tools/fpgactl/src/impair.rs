//! Impairments of the simulated network, as the command line specifies them.

use std::time::Duration;

use clap::{Args, ValueEnum};
use fpga_netmodel::{
    BitRate, Blackout, Bursts, Conditions, Delay, DistributionError, Impairments, Loss, Order, Probability,
    Rate,
};
use fpga_protocol::Nanos;
use serde::Serialize;

use crate::error::CliError;
use crate::units;

/// Default of `--queue`.
const QUEUE: Duration = Duration::from_millis(1);
/// Maximum time that a held-back packet waits for other packets to overtake it.
const TIMEOUT: Nanos = Nanos::from_micros(20);

/// Distribution of the delay whose mean `--jitter` specifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum JitterDistribution {
    /// Exponential: mostly short, sometimes several times the mean
    Exponential,
    /// Uniform between zero and twice the mean
    Uniform,
    /// Normal around the mean, with half the mean as standard deviation, never below zero
    Normal,
    /// Log-normal (sigma 1): a long tail
    LogNormal,
}

impl JitterDistribution {
    fn delay(self, mean: Nanos) -> Delay {
        let least = Nanos::ZERO;
        match self {
            Self::Exponential => Delay::Exponential { least, mean },
            Self::Uniform => Delay::Uniform { least, most: Nanos::new(mean.get().saturating_mul(2)) },
            Self::Normal => Delay::Normal { mean, deviation: Nanos::new(mean.get() / 2) },
            Self::LogNormal => {
                // The mean of a log-normal distribution is its median times e^(sigma^2 / 2).
                let median = Duration::from(mean).div_f64(0.5_f64.exp());
                Delay::LogNormal { least, median: nanos(median), sigma: 1.0 }
            }
        }
    }
}

/// Meaning of the number of `--reorder`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReorderModel {
    /// Number of packets held back, of which a random one is next
    Shuffle,
    /// Degree of disorder: maximum number of packets that overtake one packet
    Degree,
}

/// Options about the simulated network. Each cause has its own random numbers, so changing one does not affect the others.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Simulated network")]
pub struct ImpairArgs {
    /// Share of packets that are lost, for example 0.5% or 0.005
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub loss: Option<f64>,
    /// Average length of loss bursts in packets; --loss remains the overall share
    #[arg(long, value_name = "N", value_parser = burst_length)]
    pub burst: Option<f64>,
    /// Share of acknowledgements and other control packets that are lost [default: --loss]
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub control_loss: Option<f64>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub duplicate: Option<f64>,
    /// Share of control packets that arrive twice [default: --duplicate]
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub control_duplicate: Option<f64>,
    /// Share of packets that arrive with wrong bits
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub corrupt: Option<f64>,
    /// Share of control packets that arrive with wrong bits [default: --corrupt]
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub control_corrupt: Option<f64>,
    /// Delay of every packet
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub delay: Option<Duration>,
    /// Mean of the additional random delay of a packet
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub jitter: Option<Duration>,
    /// Distribution of --jitter [default: exponential]
    #[arg(long, value_name = "LAW", value_enum)]
    pub jitter_law: Option<JitterDistribution>,
    /// Meaning of the number of --reorder [default: shuffle]
    #[arg(long, value_name = "LAW", value_enum)]
    pub reorder_law: Option<ReorderModel>,
    /// Blackout, a time in which every packet is lost: start and length
    #[arg(long, value_name = "FROM,LENGTH", value_parser = blackout)]
    pub blackout: Vec<Blackout>,
    /// Bit rate of the network, for example 10Gbit [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = units::bit_rate)]
    pub rate: Option<BitRate>,
    /// Maximum queueing time of a packet; a packet that would wait longer is lost [default with --rate: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub queue: Option<Duration>,
}

/// Impairments for a report; `null` for those not requested.
#[derive(Debug, Serialize)]
pub struct ImpairReport {
    loss: Option<f64>,
    burst: Option<f64>,
    control_loss: Option<f64>,
    duplicate: Option<f64>,
    control_duplicate: Option<f64>,
    corrupt: Option<f64>,
    control_corrupt: Option<f64>,
    delay_us: Option<f64>,
    jitter_us: Option<f64>,
    jitter_law: Option<JitterDistribution>,
    reorder_law: Option<ReorderModel>,
    blackouts: Vec<BlackoutReport>,
    rate_bits_per_s: Option<u64>,
    queue_us: Option<f64>,
}

#[derive(Debug, Serialize)]
struct BlackoutReport {
    from_us: f64,
    length_us: f64,
}

fn nanos(span: Duration) -> Nanos {
    Nanos::from(span)
}

impl ImpairArgs {
    /// Returns whether any of them was given.
    #[must_use]
    pub fn is_some(&self) -> bool {
        let shares = [
            self.loss,
            self.control_loss,
            self.duplicate,
            self.control_duplicate,
            self.corrupt,
            self.control_corrupt,
        ];
        let spans = [self.delay, self.jitter, self.queue];
        shares.iter().any(Option::is_some)
            || spans.iter().any(Option::is_some)
            || self.burst.is_some()
            || self.jitter_law.is_some()
            || self.reorder_law.is_some()
            || self.rate.is_some()
            || !self.blackout.is_empty()
    }

    /// Combines these options with `defaults` for those not given.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        let blackouts = if self.blackout.is_empty() { &defaults.blackout } else { &self.blackout };
        Self {
            loss: self.loss.or(defaults.loss),
            burst: self.burst.or(defaults.burst),
            control_loss: self.control_loss.or(defaults.control_loss),
            duplicate: self.duplicate.or(defaults.duplicate),
            control_duplicate: self.control_duplicate.or(defaults.control_duplicate),
            corrupt: self.corrupt.or(defaults.corrupt),
            control_corrupt: self.control_corrupt.or(defaults.control_corrupt),
            delay: self.delay.or(defaults.delay),
            jitter: self.jitter.or(defaults.jitter),
            jitter_law: self.jitter_law.or(defaults.jitter_law),
            reorder_law: self.reorder_law.or(defaults.reorder_law),
            blackout: blackouts.clone(),
            rate: self.rate.or(defaults.rate),
            queue: self.queue.or(defaults.queue),
        }
    }

    /// Impairments for a report.
    #[must_use]
    pub fn report(&self) -> ImpairReport {
        let in_micros = |span: Duration| span.as_secs_f64() * 1e6;
        let micros = |span: Nanos| in_micros(span.into());
        ImpairReport {
            loss: self.loss,
            burst: self.burst,
            control_loss: self.control_loss.or(self.loss),
            duplicate: self.duplicate,
            control_duplicate: self.control_duplicate.or(self.duplicate),
            corrupt: self.corrupt,
            control_corrupt: self.control_corrupt.or(self.corrupt),
            delay_us: self.delay.map(in_micros),
            jitter_us: self.jitter.map(in_micros),
            jitter_law: self.jitter.and(self.jitter_law.or(Some(JitterDistribution::Exponential))),
            reorder_law: self.reorder_law,
            blackouts: self
                .blackout
                .iter()
                .map(|out| BlackoutReport { from_us: micros(out.from), length_us: micros(out.length) })
                .collect(),
            rate_bits_per_s: self.rate.map(BitRate::get),
            queue_us: self.rate.and(self.queue.or(Some(QUEUE))).map(in_micros),
        }
    }

    /// Model of all impairments, with packets reordered within `reorder` (0: in order).
    ///
    /// # Errors
    /// Wrong usage for impossible distributions.
    pub fn model(&self, reorder: u16) -> Result<Impairments, CliError> {
        let wrong = |error: DistributionError| CliError::usage(error.to_string());
        for (option, given, other, there) in [
            ("--burst", self.burst.is_some(), "--loss", self.loss.is_some()),
            ("--queue", self.queue.is_some(), "--rate", self.rate.is_some()),
            ("--jitter-law", self.jitter_law.is_some(), "--jitter", self.jitter.is_some()),
        ] {
            if given && !there {
                let text = format!("{option} has no effect without {other}");
                return Err(CliError::usage(text).advise("give both"));
            }
        }
        let share = |part: Option<f64>| Probability::new(part.unwrap_or(0.0)).map_err(wrong);
        let loss = |part: Option<f64>| match (part, self.burst) {
            (Some(part), Some(length)) => Bursts::of(part, length).map(Loss::Bursts).map_err(wrong),
            _ => share(part).map(Loss::Independent),
        };
        let law = self.jitter_law.unwrap_or(JitterDistribution::Exponential);
        let delay = self.jitter.map_or_else(Delay::default, |mean| law.delay(nanos(mean)));
        let conditions = |loss, copy, damage| -> Result<Conditions, CliError> {
            let travel = Conditions::default().delay(delay).copies(share(copy)?, delay);
            Ok(travel.damage(share(damage)?).loss(loss))
        };
        let mut model = Impairments::default();
        model.data = conditions(loss(self.loss)?, self.duplicate, self.corrupt)?;
        model.control = conditions(
            loss(self.control_loss.or(self.loss))?,
            self.control_duplicate.or(self.duplicate),
            self.control_corrupt.or(self.corrupt),
        )?;
        model.blackouts.clone_from(&self.blackout);
        if let Some(rate) = self.rate {
            model = model.rate(Rate { rate, queue: nanos(self.queue.unwrap_or(QUEUE)) });
        }
        model.distance = self.delay.map_or(Nanos::ZERO, nanos);
        model.order = match (reorder, self.reorder_law.unwrap_or(ReorderModel::Shuffle)) {
            (0, _) => Order::InOrder,
            (depth, ReorderModel::Shuffle) => Order::Random { depth: depth.into(), patience: TIMEOUT },
            (degree, ReorderModel::Degree) => Order::Degree { degree: degree.into(), patience: TIMEOUT },
        };
        Ok(model)
    }
}

/// Parses a burst length in packets.
pub(crate) fn burst_length(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(length) if (1.0..1e6).contains(&length) => Ok(length),
        _ => Err(format!("\"{text}\" is not a burst length; give 1 to 1000000 packets")),
    }
}

/// Parses a blackout, a time in which no packet gets through: `FROM,LENGTH`.
pub(crate) fn blackout(text: &str) -> Result<Blackout, String> {
    let wrong = || format!("\"{text}\" is not a blackout; write for example 5ms,10ms");
    let (from, length) = text.split_once(',').ok_or_else(wrong)?;
    let span = |text: &str| units::duration(text.trim()).map(nanos).map_err(|error| error.to_string());
    Ok(Blackout { from: span(from)?, length: span(length)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impair_options_build_model() {
        let plain = ImpairArgs::default();
        assert!(!plain.is_some());
        assert_eq!(plain.model(0).unwrap(), Impairments::default());
        let args = ImpairArgs { loss: Some(0.05), duplicate: Some(0.25), ..ImpairArgs::default() };
        assert!(args.is_some());
        let model = args.model(8).unwrap();
        let lossy = Loss::Independent(Probability::new(0.05).unwrap());
        assert_eq!((model.data.loss, model.control.loss), (lossy, lossy));
        assert_eq!(model.control.copy, Probability::one_in(4));
        assert!(matches!(model.order, Order::Random { depth: 8, .. }));
        let args = ImpairArgs { burst: Some(4.0), control_loss: Some(0.0), ..args };
        let model = args.model(0).unwrap();
        assert!(matches!(model.data.loss, Loss::Bursts(_)));
        assert!(matches!(model.control.loss, Loss::Bursts(bursts) if bursts.enter.is_never()));
        let all = ImpairArgs { loss: Some(1.0), burst: Some(4.0), ..ImpairArgs::default() };
        assert_eq!(all.model(0).unwrap_err().exit_status(), 2);
    }

    #[test]
    fn impair_every_distribution_keeps_mean() {
        use fpga_netmodel::ImpairedLink;
        let mean = 10_000_u64;
        for law in JitterDistribution::value_variants() {
            let args = ImpairArgs {
                jitter: Some(Duration::from_nanos(mean)),
                jitter_law: Some(*law),
                ..ImpairArgs::default()
            };
            let mut link = ImpairedLink::new(args.model(0).unwrap(), 1 << 16, 7).unwrap();
            let frames = 20_000_u64;
            for _ in 0..frames {
                link.offer(Nanos::ZERO, vec![0_u8, 0]).unwrap();
            }
            let (mut sum, mut last) = (0, 0);
            while let Some(at) = link.poll_timeout() {
                while link.poll(at).is_some() {
                    (sum, last) = (sum + at.get(), at.get());
                }
            }
            let found = sum / frames;
            assert!((mean * 95 / 100..mean * 105 / 100).contains(&found), "{law:?}: {found}");
            let is_bounded = *law == JitterDistribution::Uniform;
            assert_eq!(last <= 2 * mean, is_bounded, "{law:?}: {last}");
        }
    }

    #[test]
    fn impair_control_packets_have_own_options() {
        let args = ImpairArgs {
            duplicate: Some(0.5),
            corrupt: Some(0.25),
            control_duplicate: Some(0.0),
            control_corrupt: Some(1.0),
            reorder_law: Some(ReorderModel::Degree),
            ..ImpairArgs::default()
        };
        let model = args.model(9).unwrap();
        assert_eq!((model.data.copy, model.control.copy), (Probability::one_in(2), Probability::NEVER));
        assert_eq!((model.data.damage, model.control.damage), (Probability::one_in(4), Probability::ALWAYS));
        assert!(matches!(model.order, Order::Degree { degree: 9, .. }));
    }

    #[test]
    fn impair_rate_has_default_queue() {
        let rate = Some(BitRate::from_gbps(10));
        let args = ImpairArgs { rate, ..ImpairArgs::default() };
        assert!(args.is_some());
        let queue = Nanos::from_millis(1);
        let plain = Impairments::default().rate(Rate { rate: BitRate::from_gbps(10), queue });
        assert_eq!(args.model(0).unwrap(), plain);
        for alone in [
            ImpairArgs { queue: Some(QUEUE), ..ImpairArgs::default() },
            ImpairArgs { jitter_law: Some(JitterDistribution::Normal), ..ImpairArgs::default() },
            ImpairArgs { burst: Some(2.0), ..ImpairArgs::default() },
        ] {
            assert_eq!(alone.model(0).unwrap_err().exit_status(), 2);
        }
    }

    #[test]
    fn impair_defaults_fill_missing_options() {
        let all = ImpairArgs {
            loss: Some(0.1),
            burst: Some(2.0),
            control_loss: Some(0.2),
            duplicate: Some(0.3),
            control_duplicate: Some(0.35),
            corrupt: Some(0.4),
            control_corrupt: Some(0.45),
            delay: Some(Duration::from_micros(5)),
            jitter: Some(Duration::from_micros(6)),
            jitter_law: Some(JitterDistribution::Uniform),
            reorder_law: Some(ReorderModel::Degree),
            blackout: vec![Blackout { from: Nanos::ZERO, length: Nanos::from_millis(1) }],
            rate: Some(BitRate::from_gbps(1)),
            queue: Some(Duration::from_millis(2)),
        };
        let none = ImpairArgs::default();
        let shown = |args: &ImpairArgs| serde_json::to_value(args.report()).unwrap();
        assert_eq!(shown(&none.or(&all)), shown(&all));
        assert_eq!(shown(&all.or(&none)), shown(&all));
        assert_eq!(all.or(&ImpairArgs { loss: Some(0.9), ..ImpairArgs::default() }).loss, Some(0.1));
        let empty = shown(&none);
        assert!(empty.as_object().unwrap().iter().all(|(key, value)| value.is_null() || key == "blackouts"));
        assert_eq!(shown(&all)["queue_us"], 2000.0);
    }

    #[test]
    fn impair_blackouts_parse() {
        let found = blackout("5ms, 10us").unwrap();
        assert_eq!((found.from, found.length), (Nanos::from_millis(5), Nanos::from_micros(10)));
        for text in ["", "5ms", "5ms,", "5ms,x", "1,2"] {
            assert!(blackout(text).is_err(), "{text}");
        }
        assert!(burst_length("0.5").is_err() && burst_length("nan").is_err());
    }
}
