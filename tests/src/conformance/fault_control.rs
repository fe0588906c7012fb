//! Control of a card's faults from outside the machine that uses it: the bus of a real card has no register for them.

use std::path::PathBuf;
use std::process::Command;

use fpga_card::fault_plan::FaultsDescription;
use fpgactl::control::{self, Answer, Request};

use super::UserLevel;

/// Access to a served card that does not go through the driver under test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultControl {
    /// The control socket of `fpgactl card serve`.
    Control(PathBuf),
    /// A command, for a machine that has no such socket. Its arguments are the number of the card (0: the one that the suite runs on) and
    /// `control REQUEST`, whose answer it prints, or `bus-error`.
    Command(Vec<String>),
}

impl FaultControl {
    /// Builds the command variant from a command and its first words.
    #[must_use]
    pub fn command(line: &str) -> Self {
        Self::Command(line.split_whitespace().map(str::to_owned).collect())
    }

    fn ask(&self, card: usize, request: &Request) -> Result<Answer, String> {
        match self {
            Self::Control(path) => control::ask(path, request, None).map_err(|error| error.to_string()),
            Self::Command(words) => {
                let request = serde_json::to_string(request).map_err(|error| error.to_string())?;
                let text = run(words, card, &["control", &request])?;
                let answer: Answer =
                    serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
                answer.error.clone().map_or(Ok(answer), Err)
            }
        }
    }

    pub(super) fn set_faults(&self, card: usize, faults: &FaultsDescription) -> Result<(), String> {
        self.ask(card, &Request::Faults { faults: faults.clone() }).map(drop)
    }

    pub(super) fn strikes(&self, card: usize) -> Result<u64, String> {
        let answer = self.ask(card, &Request::State {})?;
        Ok(answer.faults.iter().map(|fault| fault.strikes).sum())
    }

    pub(super) fn replug(&self, card: usize) -> Result<(), String> {
        self.ask(card, &Request::Replug {}).map(drop)
    }

    pub(super) fn user_line(&self, card: usize, line: u8, level: UserLevel) -> Result<(), String> {
        let request = match level {
            UserLevel::High => Request::UserInterrupt { line, on: true },
            UserLevel::Low => Request::UserInterrupt { line, on: false },
            UserLevel::Pulse => Request::PulseUserInterrupt { line },
        };
        self.ask(card, &request).map(drop)
    }

    pub(super) fn bus_error(&self, card: usize) -> Result<(), String> {
        match self {
            Self::Control(_) => {
                Err("the control socket has no access to the port above the card, which reports bus errors"
                    .to_owned())
            }
            Self::Command(words) => run(words, card, &["bus-error"]).map(drop),
        }
    }
}

/// Runs the command and returns its output.
fn run(words: &[String], card: usize, more: &[&str]) -> Result<String, String> {
    let (program, first) = words.split_first().ok_or("--fault-control is an empty command")?;
    let ran = Command::new(program).args(first).arg(card.to_string()).args(more).output();
    let ran = ran.map_err(|error| format!("{program}: {error}"))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(format!("{program}: {}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::faults::plan;
    use fpga_card::fault_plan::{FaultEntry, FaultName};

    #[test]
    fn fault_control_command_gets_card_and_request() {
        // Prints its arguments in the error field, without the request.
        let echo = FaultControl::command("printf {\"error\":\"card_%s_%s%.0s\"}");
        assert_eq!(echo.replug(3), Err("card_3_control".to_owned()));
        let progress = r#"{"opportunities":9,"strikes":2}"#;
        let answer =
            FaultControl::command(&format!("printf {{\"faults\":[{progress},{progress}]}}%.0s%.0s%.0s"));
        assert_eq!(answer.strikes(0), Ok(4));
        assert!(FaultControl::command("echo").strikes(0).is_err(), "text that is not an answer is refused");
        let set = FaultControl::command("false").set_faults(0, &plan([FaultEntry::new(FaultName::Stall)]));
        assert!(set.is_err_and(|why| why.contains("false")));
        assert!(FaultControl::command("").bus_error(0).is_err());
        assert_eq!(FaultControl::command("true").bus_error(0), Ok(()));
        assert!(FaultControl::Control("/nonexistent".into()).bus_error(0).is_err());
    }
}
