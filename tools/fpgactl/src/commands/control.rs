//! `card control`: injects faults into a served card.

use fpga_input::{FileKind, plain_message};
use fpga_sim::FaultsDescription;
use serde::Serialize;

use crate::cli::{ControlArgs, ControlCommand, Level};
use crate::control::{self, Progress, Request};
use crate::error::CliError;
use crate::output::{self, Report};
use crate::settings::Settings;
use crate::stream::read_yaml;

/// State of a served card after the command.
#[derive(Debug, Serialize)]
pub struct ControlReport {
    control: String,
    /// Change of the card that the request has made, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<String>,
    /// Progress of its faults, in the order of the plan.
    faults: Vec<Progress>,
    /// Whether a pulse was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<serde_json::Value>,
}

impl Report for ControlReport {
    fn text(&self) -> String {
        if let Some(stats) = &self.stats {
            // JSON is used: a table of two dozen numbers and a list would show no more.
            return serde_json::to_string_pretty(stats).map_or_else(|_| String::new(), |text| text + "\n");
        }
        if let Some(done) = &self.done {
            return format!("{done}\n");
        }
        if self.faults.is_empty() {
            return "no faults are planned\n".to_owned();
        }
        let mut table = output::table(&["FAULT", "OPPORTUNITIES", "STRIKES"], &[0, 1, 2]);
        for (number, fault) in self.faults.iter().enumerate() {
            table.add_row([number.to_string(), fault.opportunities.to_string(), fault.strikes.to_string()]);
        }
        output::render(&table)
    }
}

/// Runs the command.
pub fn run(settings: &Settings, args: &ControlArgs) -> Result<ControlReport, CliError> {
    let request = match &args.command {
        ControlCommand::Faults { file: None } => Request::Faults { faults: FaultsDescription::default() },
        ControlCommand::Faults { file: Some(file) } => {
            let text = read_yaml(FileKind::FAULT_PLAN, file, settings.deadline)?;
            let problem = |error: serde_yaml::Error| {
                let problem = plain_message(&error.to_string());
                CliError::failed(format!("{}: this is not a fault plan: {problem}", file.display()))
                    .advise("write the keys of the section `faults` of a card description")
            };
            Request::Faults { faults: serde_yaml::from_str(&text).map_err(problem)? }
        }
        ControlCommand::Unplug => Request::Unplug {},
        ControlCommand::Replug => Request::Replug {},
        ControlCommand::UserInterrupt { line, level: Level::Pulse } => {
            Request::PulseUserInterrupt { line: *line }
        }
        ControlCommand::UserInterrupt { line, level } => {
            Request::UserInterrupt { line: *line, on: *level == Level::On }
        }
        ControlCommand::Stats => Request::Stats {},
        ControlCommand::State => Request::State {},
    };
    let answer = control::ask(&args.path, &request, settings.deadline.limit())?;
    let control::Answer { faults, acknowledged, stats, .. } = answer;
    let done = done(&request, acknowledged);
    Ok(ControlReport { control: args.path.display().to_string(), done, faults, acknowledged, stats })
}

/// Describes a change of the card; `None` for requests that are answered by their state.
fn done(request: &Request, acknowledged: Option<bool>) -> Option<String> {
    Some(match request {
        Request::Unplug {} => "the card is pulled out of its slot".to_owned(),
        Request::Replug {} => "the card is back in its slot, in its power-on state".to_owned(),
        Request::UserInterrupt { line, on } => {
            format!("user interrupt {line} is {}", if *on { "high" } else { "low" })
        }
        Request::PulseUserInterrupt { line } if acknowledged == Some(true) => {
            format!("user interrupt {line}: the card has sent the interrupt")
        }
        Request::PulseUserInterrupt { line } => format!(
            "user interrupt {line} is high: the host has masked it, or has not enabled interrupts; it goes low when the interrupt is sent"
        ),
        _ => return None,
    })
}
