//! Conformance suite on the backends of a process on this machine: the columns beside those of the guests.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::report::{Cost, GuestReport, Row, Status};
use fpga_process::tail;

/// Line of the program: one case on one backend.
#[derive(Debug, Deserialize)]
struct CaseLine {
    backend: String,
    name: String,
    status: Status,
    seconds: f64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    costs: Vec<Cost>,
}

/// Backends on which the program `conformance` reaches the simulated card inside it.
pub(crate) const NAMES: [&str; 3] = ["threaded", "vfio-user", "inline"];

/// Runs the program on one of its backends.
pub(crate) fn run(program: &Path, backend: &str) -> GuestReport {
    let mut command = Command::new(program);
    command.args(["--card", "mock", "--json", "--backend", backend]);
    match command.stdin(Stdio::null()).output() {
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr);
            // Failed cases are reported by name.
            let ended = matches!(ran.status.code(), Some(0 | 1));
            let error = (!ended).then(|| format!("{}: {}", ran.status, tail(&said, 15)));
            read(backend, &String::from_utf8_lossy(&ran.stdout), error)
        }
        Err(error) => read(backend, "", Some(format!("cannot start {}: {error}", program.display()))),
    }
}

fn read(backend: &str, stdout: &str, mut error: Option<String>) -> GuestReport {
    let mut report = GuestReport::of_backend(backend);
    for line in stdout.lines() {
        match serde_json::from_str::<CaseLine>(line) {
            Ok(line) if line.backend == backend => {
                report.seconds += line.seconds;
                report.rows.push(Row {
                    // Same name as the step in a guest.
                    name: format!("conformance: {}", line.name),
                    status: line.status,
                    seconds: line.seconds,
                    message: line.message,
                    costs: line.costs,
                });
            }
            Ok(line) => {
                error.get_or_insert(format!("a case of another backend, {}: {}", line.backend, line.name));
            }
            Err(problem) => {
                error.get_or_insert(format!("a line that is not a case ({problem}): {line}"));
            }
        }
    }
    if report.rows.is_empty() {
        error.get_or_insert_with(|| "the program reported no cases".to_owned());
    }
    report.error = error;
    report
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    fn has_failed(report: GuestReport) -> bool {
        report.verdict() == Verdict::Failed
    }

    #[test]
    fn backend_report_is_one_column() {
        let lines = r#"{"schema_version":3,"backend":"inline","name":"open","status":"pass","seconds":0.5,"message":""}
{"schema_version":3,"backend":"inline","name":"aer","status":"skip","seconds":0.5,"message":"no port"}"#;
        let report = read("inline", lines, None);
        assert_eq!(
            (report.name.as_str(), report.rows.len(), report.verdict()),
            ("inline", 2, Verdict::Passed)
        );
        assert_eq!(report.rows[1].name, "conformance: aer");
        assert!((report.seconds - 1.0).abs() < 1e-9);
        assert!(has_failed(read("inline", &lines.replace("skip", "fail"), None)));
        assert!(has_failed(read("threaded", lines, None)), "cases of a backend that was not requested");
    }

    #[test]
    fn backend_program_crash_or_garbage_is_error() {
        for (text, error) in [("", Some("signal: 11")), ("", None), ("no JSON", None)] {
            assert!(has_failed(read("inline", text, error.map(str::to_owned))));
        }
        let missing = run(Path::new("/nonexistent/conformance"), "inline");
        assert!(missing.error.as_ref().unwrap().contains("cannot start"), "{missing:?}");
    }
}
