//! The conformance suite by the doors of a process on this machine: the columns beside those of the guests.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::report::{GuestReport, Row, Status};
use crate::child::tail;

/// A line of the program: one case by one door.
#[derive(Debug, Deserialize)]
struct Line {
    door: String,
    name: String,
    status: Status,
    seconds: f64,
    #[serde(default)]
    message: String,
}

/// Runs the program `conformance`; a report a door, in the order of the program.
pub(crate) fn run(program: &Path) -> Vec<GuestReport> {
    // The simulated card inside the program, by each of the doors that it has to it.
    let ran = Command::new(program).args(["--card", "mock", "--json"]).stdin(Stdio::null()).output();
    match ran {
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr);
            // Failed cases are told by their names.
            let ended = matches!(ran.status.code(), Some(0 | 1));
            let error = (!ended).then(|| format!("{}: {}", ran.status, tail(&said, 15)));
            read(&String::from_utf8_lossy(&ran.stdout), error)
        }
        Err(error) => read("", Some(format!("cannot start {}: {error}", program.display()))),
    }
}

fn read(stdout: &str, mut error: Option<String>) -> Vec<GuestReport> {
    let mut reports: Vec<GuestReport> = Vec::new();
    for line in stdout.lines() {
        let line: Line = match serde_json::from_str(line) {
            Ok(line) => line,
            Err(problem) => {
                error.get_or_insert(format!("a line that is no case ({problem}): {line}"));
                continue;
            }
        };
        let place = reports.iter().position(|report| report.name == line.door);
        let place = place.unwrap_or_else(|| {
            reports.push(GuestReport::of_door(&line.door));
            reports.len() - 1
        });
        if let Some(report) = reports.get_mut(place) {
            report.seconds += line.seconds;
            report.rows.push(Row {
                // As the step of that name has it in a guest.
                name: format!("conformance: {}", line.name),
                status: line.status,
                seconds: line.seconds,
                message: line.message,
            });
        }
    }
    if reports.is_empty() {
        error.get_or_insert_with(|| "the program reports no case".to_owned());
        reports.push(GuestReport::of_door("process"));
    }
    // Whatever it did not get to comes after what it did.
    if let Some(last) = reports.last_mut() {
        last.error = error;
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_a_column() {
        let lines = r#"{"schema_version":1,"door":"inline","name":"open","status":"pass","seconds":0.5,"message":""}
{"schema_version":1,"door":"inline","name":"aer","status":"skip","seconds":0.5,"message":"no port"}
{"schema_version":1,"door":"threaded","name":"open","status":"fail","seconds":2.0,"message":"broken"}"#;
        let reports = read(lines, None);
        let seen: Vec<_> =
            reports.iter().map(|report| (report.name.as_str(), report.rows.len(), report.passed())).collect();
        assert_eq!(seen, [("inline", 2, true), ("threaded", 1, false)]);
        assert_eq!(reports[0].rows[1].name, "conformance: aer");
        assert!((reports[0].seconds - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_program_that_dies_or_babbles_is_an_error() {
        for (text, error) in [("", Some("signal: 11")), ("", None), ("no JSON", None)] {
            let reports = read(text, error.map(str::to_owned));
            assert!(reports.len() == 1 && !reports[0].passed(), "{reports:?}");
        }
        let missing = run(Path::new("/nonexistent/conformance"));
        assert!(missing[0].error.as_ref().unwrap().contains("cannot start"), "{missing:?}");
    }
}
