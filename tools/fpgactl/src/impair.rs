//! What the simulated network does to packets, as the command line says it.

use std::time::Duration;

use clap::Args;
use fpga_driver::core::Nanos;
use fpga_driver::core::impair::{
    Blackout, Bursts, Conditions, Delay, Impairments, LawError, Loss, Order, Probability,
};

use crate::error::CliError;
use crate::units;

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
    #[arg(long, value_name = "N", value_parser = burst_length, requires = "loss")]
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
}

fn nanos(span: Duration) -> Nanos {
    Nanos::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

impl ImpairArgs {
    /// Whether any of them was given.
    #[must_use]
    pub fn is_some(&self) -> bool {
        let shares = [self.loss, self.control_loss, self.duplicate, self.corrupt];
        let spans = [self.delay, self.jitter];
        shares.iter().any(Option::is_some) || spans.iter().any(Option::is_some) || !self.blackout.is_empty()
    }

    /// The model of it all, with packets shuffled among `reorder` (0: in order).
    ///
    /// # Errors
    /// [`CliError::Usage`] for laws that cannot be.
    pub fn model(&self, reorder: u16) -> Result<Impairments, CliError> {
        let wrong = |error: LawError| CliError::Usage(error.to_string());
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
        model.distance = self.delay.map_or(Nanos::ZERO, nanos);
        model.order = match reorder {
            0 => Order::InOrder,
            depth => Order::Random { depth: depth.into(), patience: PATIENCE },
        };
        Ok(model)
    }
}

fn burst_length(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(length) if (1.0..1e6).contains(&length) => Ok(length),
        _ => Err(format!("\"{text}\" is no length of a burst; give 1 to 1000000 packets")),
    }
}

fn blackout(text: &str) -> Result<Blackout, String> {
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
    fn times_without_packets() {
        let found = blackout("5ms, 10us").unwrap();
        assert_eq!((found.from, found.length), (Nanos::from_millis(5), Nanos::from_micros(10)));
        for text in ["", "5ms", "5ms,", "5ms,x", "1,2"] {
            assert!(blackout(text).is_err(), "{text}");
        }
        assert!(burst_length("0.5").is_err() && burst_length("nan").is_err());
    }
}
