//! Recovery of a card that does not work.

use fpga_driver::recovery::{RecoveryError, RecoveryLevel, RecoveryOptions, RecoveryStepOutcome};
use fpga_driver::{ChannelName, Direction};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::Card;
use crate::error::{Class, Classify, Failure};
use crate::record::{fields, named_record};
use crate::wait;

impl Classify for RecoveryError {
    fn class(&self) -> Class {
        match self {
            Self::Gone | Self::Stale => Class::CardGoneError,
            Self::AllOnes => Class::WedgedError,
            Self::InUse { .. } => Class::InUseError,
            Self::Observed | Self::NoSuchChannel { .. } => Class::UnsupportedError,
            Self::Open(error) => error.class(),
            Self::Cause(cause) => Classify::class(cause),
            _ => Class::RefusedError,
        }
    }
}

fn level(name: &str) -> Result<RecoveryLevel, Failure> {
    match name {
        "channel" => Ok(RecoveryLevel::Channel),
        "function" => Ok(RecoveryLevel::Function),
        "bus" => Ok(RecoveryLevel::Bus),
        _ => Err(Failure::value(format!("{name:?} is not a level: give 'channel', 'function' or 'bus'"))),
    }
}

/// Parses the name of a channel, such as `h2c0`.
fn channel(name: &str) -> Result<ChannelName, Failure> {
    let number = |rest: &str| rest.parse::<u8>().ok();
    let h2c = name.strip_prefix("h2c").and_then(number).map(|number| (Direction::H2c, number));
    let c2h = name.strip_prefix("c2h").and_then(number).map(|number| (Direction::C2h, number));
    match h2c.or(c2h) {
        Some((direction, number)) => Ok(ChannelName { direction, number }),
        None => Err(Failure::value(format!("{name:?} is not a channel: give a name such as 'h2c0'"))),
    }
}

#[pymethods]
impl Card {
    #[pyo3(signature = (max_level = "channel", *, at_least = None, channel = None, force = false))]
    fn recover<'py>(
        &self,
        py: Python<'py>,
        max_level: &str,
        at_least: Option<&str>,
        channel: Option<&str>,
        force: bool,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let mut options = RecoveryOptions::default().with_max_level(level(max_level)?).force(force);
        if let Some(name) = at_least {
            options = options.at_least(level(name)?);
        }
        if let Some(name) = channel {
            options = options.channel(self::channel(name)?);
        }
        let card = self.state().get()?;
        let report = wait::detached(py, || card.recover_with(&options))?;
        let mut steps = Vec::with_capacity(report.steps.len());
        for step in &report.steps {
            let reason = match &step.outcome {
                RecoveryStepOutcome::Unsupported { reason } => Some(reason.to_string()),
                RecoveryStepOutcome::Failed { reason } => Some(reason.to_string()),
                _ => None,
            };
            let fields = fields!(py,
                step: step.step.to_string(),
                found: step.found.as_str(),
                outcome: step.outcome.word(),
                reason: reason,
                duration: std::time::Duration::from_nanos(step.duration_ns).as_secs_f64(),
            );
            steps.push(named_record("info", "RecoveryStep", &fields)?);
        }
        let steps = PyTuple::new(py, steps)?;
        let fields =
            fields!(py, card: report.card, steps: steps, healthy: report.well, reopen: report.reopen);
        named_record("info", "RecoveryReport", &fields)
    }
}
