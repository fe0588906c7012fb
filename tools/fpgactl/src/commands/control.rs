//! `card control`: makes a served card fail.

use fpga_driver::mock::FaultsDescription;
use fpga_input::FileKind;
use serde::Serialize;

use crate::cli::{ControlArgs, ControlCommand, Level};
use crate::control::{self, Progress, Request};
use crate::error::CliError;
use crate::output::{self, Report};

/// How a served card is afterwards.
#[derive(Debug, Serialize)]
pub struct ControlReport {
    control: String,
    /// What goes wrong with it, in the order of the plan.
    faults: Vec<Progress>,
}

impl Report for ControlReport {
    fn text(&self) -> String {
        if self.faults.is_empty() {
            return "done; no faults are planned\n".to_owned();
        }
        let mut table = output::table(&["FAULT", "OPPORTUNITIES", "STRIKES"], &[0, 1, 2]);
        for (number, fault) in self.faults.iter().enumerate() {
            table.add_row([number.to_string(), fault.opportunities.to_string(), fault.strikes.to_string()]);
        }
        output::render(&table)
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::File`], [`CliError::Plan`], [`CliError::Control`].
pub fn run(args: &ControlArgs) -> Result<ControlReport, CliError> {
    let request = match &args.command {
        ControlCommand::Faults { file: None } => Request::Faults { faults: FaultsDescription::default() },
        ControlCommand::Faults { file: Some(file) } => {
            let text = FileKind::FAULT_PLAN.read_yaml(file)?;
            let problem =
                |error: serde_yaml::Error| CliError::Plan { path: file.clone(), problem: error.to_string() };
            Request::Faults { faults: serde_yaml::from_str(&text).map_err(problem)? }
        }
        ControlCommand::PullOut => Request::PullOut {},
        ControlCommand::PutBack => Request::PutBack {},
        ControlCommand::UserInterrupt { line, level } => {
            Request::UserInterrupt { line: *line, on: *level == Level::On }
        }
        ControlCommand::State => Request::State {},
    };
    let answer = control::ask(&args.path, &request)?;
    Ok(ControlReport { control: args.path.display().to_string(), faults: answer.faults })
}
