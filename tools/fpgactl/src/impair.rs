//! What the simulated network does to packets, as the command line says it.

use std::time::Duration;

use clap::Args;
use fpga_driver::core::Nanos;
use fpga_driver::core::impair::{
    BitRate, Blackout, Bursts, Conditions, Delay, Impairments, LawError, Loss, Order, Probability, Rate,
};
use serde::Serialize;

use crate::error::CliError;
use crate::units;

/// Default of `--queue`.
const QUEUE: Duration = Duration::from_millis(1);
/// How long a packet that is held back waits for company.
const PATIENCE: Nanos = Nanos::from_micros(20);

/// Options about the simulated network. Each cause has random numbers of its own, so changing one leaves the others as they were.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Simulated network")]
pub struct ImpairArgs {
    /// Share of packets that are lost, for example 0.5% or 0.005
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub loss: Option<f64>,
    /// Packets are lost in bursts of so many on average, as many in all as --loss says
    #[arg(long, value_name = "N", value_parser = burst_length)]
    pub burst: Option<f64>,
    /// Share of acknowledgements and other control packets that are lost [default: --loss]
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub control_loss: Option<f64>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub duplicate: Option<f64>,
    /// Share of packets that arrive with wrong bits
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub corrupt: Option<f64>,
    /// How long every packet travels
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub delay: Option<Duration>,
    /// How much longer a packet travels, on average, by chance (exponentially)
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub jitter: Option<Duration>,
    /// A time in which nothing gets through: when it begins, and how long it lasts
    #[arg(long, value_name = "FROM,LENGTH", value_parser = blackout)]
    pub blackout: Vec<Blackout>,
    /// How fast the network sends, for example 10Gbit: one packet after the other [default: at once]
    #[arg(long, value_name = "RATE", value_parser = units::bit_rate)]
    pub rate: Option<BitRate>,
    /// How long a packet may have to wait for those before it; one that would have to wait longer is lost [default with --rate: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub queue: Option<Duration>,
}

/// The same for a report: what was asked for, `null` what was not.
#[derive(Debug, Serialize)]
pub struct ImpairReport {
    loss: Option<f64>,
    burst: Option<f64>,
    control_loss: Option<f64>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    delay_us: Option<f64>,
    jitter_us: Option<f64>,
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
    Nanos::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

impl ImpairArgs {
    /// Whether any of them was given.
    #[must_use]
    pub fn is_some(&self) -> bool {
        let shares = [self.loss, self.control_loss, self.duplicate, self.corrupt];
        let spans = [self.delay, self.jitter, self.queue];
        shares.iter().any(Option::is_some)
            || spans.iter().any(Option::is_some)
            || self.burst.is_some()
            || self.rate.is_some()
            || !self.blackout.is_empty()
    }

    /// These options, and `defaults` where one is not given.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        let blackouts = if self.blackout.is_empty() { &defaults.blackout } else { &self.blackout };
        Self {
            loss: self.loss.or(defaults.loss),
            burst: self.burst.or(defaults.burst),
            control_loss: self.control_loss.or(defaults.control_loss),
            duplicate: self.duplicate.or(defaults.duplicate),
            corrupt: self.corrupt.or(defaults.corrupt),
            delay: self.delay.or(defaults.delay),
            jitter: self.jitter.or(defaults.jitter),
            blackout: blackouts.clone(),
            rate: self.rate.or(defaults.rate),
            queue: self.queue.or(defaults.queue),
        }
    }

    /// For a report.
    #[must_use]
    pub fn report(&self) -> ImpairReport {
        let in_micros = |span: Duration| span.as_secs_f64() * 1e6;
        let micros = |span: Nanos| in_micros(Duration::from_nanos(span.get()));
        ImpairReport {
            loss: self.loss,
            burst: self.burst,
            control_loss: self.control_loss.or(self.loss),
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            delay_us: self.delay.map(in_micros),
            jitter_us: self.jitter.map(in_micros),
            blackouts: self
                .blackout
                .iter()
                .map(|out| BlackoutReport { from_us: micros(out.from), length_us: micros(out.length) })
                .collect(),
            rate_bits_per_s: self.rate.map(BitRate::get),
            queue_us: self.rate.and(self.queue.or(Some(QUEUE))).map(in_micros),
        }
    }

    /// The model of it all, with packets shuffled among `reorder` (0: in order).
    ///
    /// # Errors
    /// [`CliError::Usage`] for laws that cannot be.
    pub fn model(&self, reorder: u16) -> Result<Impairments, CliError> {
        let wrong = |error: LawError| CliError::Usage(error.to_string());
        for (option, given, other, there) in [
            ("--burst", self.burst.is_some(), "--loss", self.loss.is_some()),
            ("--queue", self.queue.is_some(), "--rate", self.rate.is_some()),
        ] {
            if given && !there {
                return Err(CliError::Usage(format!("{option} means nothing without {other}; give both")));
            }
        }
        let share = |part: Option<f64>| Probability::new(part.unwrap_or(0.0)).map_err(wrong);
        let loss = |part: Option<f64>| match (part, self.burst) {
            (Some(part), Some(length)) => Bursts::of(part, length).map(Loss::Bursts).map_err(wrong),
            _ => share(part).map(Loss::Independent),
        };
        let delay = match self.jitter {
            Some(mean) => Delay::Exponential { least: Nanos::ZERO, mean: nanos(mean) },
            None => Delay::default(),
        };
        let conditions = Conditions::default()
            .delay(delay)
            .copies(share(self.duplicate)?, delay)
            .damage(share(self.corrupt)?);
        let mut model = Impairments::both(conditions);
        model.data = conditions.loss(loss(self.loss)?);
        model.control = conditions.loss(loss(self.control_loss.or(self.loss))?);
        model.blackouts.clone_from(&self.blackout);
        if let Some(rate) = self.rate {
            model = model.rate(Rate { rate, queue: nanos(self.queue.unwrap_or(QUEUE)) });
        }
        model.distance = self.delay.map_or(Nanos::ZERO, nanos);
        model.order = match reorder {
            0 => Order::InOrder,
            depth => Order::Random { depth: depth.into(), patience: PATIENCE },
        };
        Ok(model)
    }
}

/// A burst's length in packets.
///
/// # Errors
/// A message for people.
pub(crate) fn burst_length(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(length) if (1.0..1e6).contains(&length) => Ok(length),
        _ => Err(format!("\"{text}\" is no length of a burst; give 1 to 1000000 packets")),
    }
}

/// A time in which nothing gets through: `FROM,LENGTH`.
///
/// # Errors
/// A message for people.
pub(crate) fn blackout(text: &str) -> Result<Blackout, String> {
    let wrong = || format!("\"{text}\" is no time without packets; write for example 5ms,10ms");
    let (from, length) = text.split_once(',').ok_or_else(wrong)?;
    let span = |text: &str| units::duration(text.trim()).map(nanos).map_err(|error| error.to_string());
    Ok(Blackout { from: span(from)?, length: span(length)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_a_model() {
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
    fn a_rate_has_a_queue_and_needs_no_more() {
        let rate = Some(BitRate::from_gbps(10));
        let args = ImpairArgs { rate, ..ImpairArgs::default() };
        assert!(args.is_some());
        let queue = Nanos::from_millis(1);
        let plain = Impairments::default().rate(Rate { rate: BitRate::from_gbps(10), queue });
        assert_eq!(args.model(0).unwrap(), plain);
        for alone in [
            ImpairArgs { queue: Some(QUEUE), ..ImpairArgs::default() },
            ImpairArgs { burst: Some(2.0), ..ImpairArgs::default() },
        ] {
            assert_eq!(alone.model(0).unwrap_err().exit_status(), 2);
        }
    }

    #[test]
    fn defaults_fill_what_is_not_given() {
        let all = ImpairArgs {
            loss: Some(0.1),
            burst: Some(2.0),
            control_loss: Some(0.2),
            duplicate: Some(0.3),
            corrupt: Some(0.4),
            delay: Some(Duration::from_micros(5)),
            jitter: Some(Duration::from_micros(6)),
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
    fn times_without_packets() {
        let found = blackout("5ms, 10us").unwrap();
        assert_eq!((found.from, found.length), (Nanos::from_millis(5), Nanos::from_micros(10)));
        for text in ["", "5ms", "5ms,", "5ms,x", "1,2"] {
            assert!(blackout(text).is_err(), "{text}");
        }
        assert!(burst_length("0.5").is_err() && burst_length("nan").is_err());
    }
}
