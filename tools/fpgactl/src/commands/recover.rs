//! `abort` and `reset`: the recovery steps.
//!
//! Both work on a card that is not open: opening would stop the engines that an earlier owner left running before their state could be
//! reported, and is refused if an engine does not stop.

use std::io::Write;

use fpga_driver::recovery::{self, RecoveryError, RecoveryStepOutcome, RecoveryStepReport};
use fpga_driver::{
    ChannelName, Error,
    recovery::{RecoveryLevel, RecoveryOptions, RecoveryReport},
};
use fpga_registers::xdma::Direction;
use serde::Serialize;

use crate::cli::{AbortArgs, ChannelChoice, ResetArgs, ResetLevel};
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::target::{self, CardOpener as _};
use crate::units::micros;

/// One recovery step.
#[derive(Debug, Serialize)]
struct StepReport {
    name: String,
    level: String,
    /// State of the engine before the step.
    found: String,
    outcome: &'static str,
    /// Reason why the step was not done, if so.
    message: String,
    /// Duration by the card's clock, which is virtual on a simulated card.
    card_us: f64,
}

impl StepReport {
    fn new(report: &RecoveryStepReport) -> Self {
        Self {
            name: report.step.to_string(),
            level: report.step.level().to_string(),
            found: report.found.clone(),
            outcome: report.outcome.word(),
            message: match &report.outcome {
                RecoveryStepOutcome::Unsupported { reason } => reason.to_string(),
                RecoveryStepOutcome::Failed { reason } => reason.to_string(),
                _ => String::new(),
            },
            card_us: micros(report.duration_ns),
        }
    }
}

/// Scope of a report on a whole card.
const CARD_SCOPE: &str = "card";

/// Result of stopping and resetting.
#[derive(Debug, Serialize)]
pub struct ResetReport {
    command: &'static str,
    card: String,
    /// Scope: `card`, or the names of the channels, one after the other.
    scope: String,
    /// Whether the card answers and nothing within the scope is busy.
    well: bool,
    /// Whether the card was reset.
    was_reset: bool,
    /// Highest recovery level that was completed; null if none was.
    reached: Option<String>,
    #[serde(rename = "rungs")]
    steps: Vec<StepReport>,
}

impl ResetReport {
    fn new(command: &'static str, scope: String, report: &RecoveryReport) -> Self {
        Self {
            command,
            card: report.card.clone(),
            scope,
            well: report.well,
            was_reset: report.reopen,
            reached: reached(report).map(|level| level.to_string()),
            steps: report.steps.iter().map(StepReport::new).collect(),
        }
    }
}

impl Report for ResetReport {
    fn text(&self) -> String {
        let mut table = output::table(&["STEP", "FOUND", "OUTCOME", ""], &[]);
        for step in &self.steps {
            table.add_row([&step.name, &step.found, step.outcome, &step.message]);
        }
        let end = match (self.well, self.was_reset, self.scope.as_str()) {
            (true, true, _) => match self.reached.as_deref() {
                Some("bus") => "the bus was reset and the card answers; open it again",
                _ => "the function was reset and the card answers; open it again",
            },
            (true, false, CARD_SCOPE) => "the card answers and is idle",
            (true, false, channels) => &format!("{channels}: idle; no other part of the card was checked"),
            (false, ..) => "the card is unhealthy",
        };
        output::render(&table) + &format!("\n{}: {end}\n", self.card)
    }
}

/// Highest level that was completed: a reset that succeeded, else the channel level of a healthy card.
fn reached(report: &RecoveryReport) -> Option<RecoveryLevel> {
    [RecoveryLevel::Bus, RecoveryLevel::Function]
        .into_iter()
        .find(|level| report.outcome(*level) == Some(&RecoveryStepOutcome::Recovered))
        .or_else(|| report.well.then_some(RecoveryLevel::Channel))
}

fn escalate(settings: &Settings, options: RecoveryOptions) -> Result<RecoveryReport, CliError> {
    let backend = target::reach(&settings.card)?;
    let options = match settings.deadline.limit() {
        Some(limit) => options.limit(limit),
        None => options,
    };
    Ok(recovery::recover(&backend, &settings.card.design().options(), &options)?)
}

const fn is_missing(error: &Error<RecoveryError>) -> bool {
    matches!(error.kind, RecoveryError::NoSuchChannel { .. })
}

/// The card could not be recovered; the report lists the attempts.
fn not_recovered(report: &RecoveryReport, what: &str, help: Option<&str>) -> CliError {
    CliError::failed(format!("{}: {what}", report.card)).advised(help).reported()
}

/// Stops the channels of this number that the card has.
fn both(settings: &Settings, number: u8) -> Result<(String, RecoveryReport), CliError> {
    let mut scope = Vec::new();
    let mut whole: Option<RecoveryReport> = None;
    let mut missing = None;
    for direction in [Direction::H2c, Direction::C2h] {
        let channel = ChannelName { direction, number };
        match escalate(settings, RecoveryOptions::default().channel(channel)) {
            Err(error) if error.cause().is_some_and(is_missing) => missing = Some(error),
            Err(error) => return Err(error),
            Ok(report) => {
                scope.push(channel.to_string());
                match &mut whole {
                    None => whole = Some(report),
                    Some(whole) => {
                        whole.steps.extend(report.steps);
                        whole.well &= report.well;
                        whole.reopen |= report.reopen;
                    }
                }
            }
        }
    }
    match (whole, missing) {
        (Some(report), _) => Ok((scope.join(", "), report)),
        (None, Some(error)) => Err(error),
        (None, None) => Err(CliError::usage("a card has no channels")),
    }
}

/// Runs `abort` and prints its report.
///
/// # Errors
/// See [`CliError`]; after the report, if the card is not idle.
pub fn abort(settings: &Settings, args: &AbortArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let whole = RecoveryOptions::default();
    let (scope, report) = match args.channel {
        None => (CARD_SCOPE.to_owned(), escalate(settings, whole)?),
        Some(ChannelChoice::One(channel)) => {
            (channel.to_string(), escalate(settings, whole.channel(channel))?)
        }
        Some(ChannelChoice::Both(number)) => both(settings, number)?,
    };
    output::print(&ResetReport::new("abort", scope, &report), settings.json, out)?;
    if report.well {
        return Ok(());
    }
    Err(not_recovered(&report, "not everything stopped", Some("run `fpgactl reset --level bus`")))
}

/// Runs `reset` and prints its report.
pub fn reset(settings: &Settings, args: &ResetArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let level = match args.level {
        ResetLevel::Channel => RecoveryLevel::Channel,
        ResetLevel::Function => RecoveryLevel::Function,
        ResetLevel::Bus => RecoveryLevel::Bus,
    };
    let mut report = escalate(settings, RecoveryOptions::default().at_least(level))?;
    let has_no_bus =
        matches!(report.outcome(RecoveryLevel::Bus), Some(RecoveryStepOutcome::Unsupported { .. }));
    if level == RecoveryLevel::Bus && has_no_bus && report.well && !report.reopen {
        // As much of it as there is.
        let bus = report
            .steps
            .into_iter()
            .filter(|step| step.step.level() == RecoveryLevel::Bus)
            .collect::<Vec<_>>();
        report = escalate(settings, RecoveryOptions::default().at_least(RecoveryLevel::Function))?;
        report.steps.extend(bus);
    }
    output::print(&ResetReport::new("reset", CARD_SCOPE.to_owned(), &report), settings.json, out)?;
    let reached = reached(&report);
    let (what, help) = match (report.well, report.outcome(level)) {
        (true, _) if reached.is_some_and(|reached| reached >= level) => return Ok(()),
        (true, Some(RecoveryStepOutcome::Unsupported { .. })) if level == RecoveryLevel::Function => {
            let help = "reset the bus instead with `fpgactl reset --level bus`";
            ("it was not reset: there is no function-level reset".to_owned(), Some(help))
        }
        // No bus of its own. The card works after the reset that it has.
        (true, Some(RecoveryStepOutcome::Unsupported { reason })) if report.reopen => {
            let reached = reached.unwrap_or(RecoveryLevel::Function);
            tracing::warn!(
                "level {level} was not reached: {reason}; the card works after a reset of level {reached}"
            );
            return Ok(());
        }
        (true, Some(RecoveryStepOutcome::Unsupported { reason })) => {
            let help = "reset the function alone with `fpgactl reset --level function`";
            (format!("it was not reset: {reason}"), Some(help))
        }
        (true, _) => (format!("level {level} was not reached"), Some("see the reason in the report")),
        (false, Some(RecoveryStepOutcome::Unsupported { reason })) => {
            (format!("it was not reset: {reason}"), None)
        }
        (false, _) if level == RecoveryLevel::Bus => {
            let help = "remove the function and rescan the bus, or power the card off and on";
            ("it is still unhealthy after the reset".to_owned(), Some(help))
        }
        (false, _) => ("it is still unhealthy".to_owned(), Some("run `fpgactl reset --level bus`")),
    };
    Err(not_recovered(&report, &what, help))
}
