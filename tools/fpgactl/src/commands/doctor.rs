//! `doctor`: checks whether this machine is ready for cards.

use std::io::Write;

use fpga_host::{Check, PciFunction, Status, examine};
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::error::CliError;
use crate::output::{self, Report, render, table};
use crate::settings::Settings;
use fpga_driver::CardSpec;

/// One check.
#[derive(Debug, Serialize)]
struct CheckReport {
    name: &'static str,
    /// Address of the checked function; null for the machine.
    card: Option<String>,
    status: &'static str,
    message: String,
    fix: Option<String>,
}

/// All checks.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    command: &'static str,
    passed: usize,
    warned: usize,
    failed: usize,
    skipped: usize,
    checks: Vec<CheckReport>,
}

impl DoctorReport {
    pub(super) fn new(checks: Vec<Check>) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Self {
            command: "doctor",
            passed: count(Status::Pass),
            warned: count(Status::Warn),
            failed: count(Status::Fail),
            skipped: count(Status::Skip),
            checks: checks
                .into_iter()
                .map(|check| CheckReport {
                    name: check.name,
                    card: check.function.map(|address| address.to_string()),
                    status: check.status.name(),
                    message: check.message,
                    fix: check.fix,
                })
                .collect(),
        }
    }
}

impl Report for DoctorReport {
    fn text(&self) -> String {
        let mut table = table(&[], &[]);
        for check in &self.checks {
            let found = match &check.fix {
                Some(fix) => format!("{}; to do: {fix}", check.message),
                None => check.message.clone(),
            };
            table.add_row([check.status, check.name, check.card.as_deref().unwrap_or("host"), &found]);
        }
        let Self { passed, warned, failed, skipped, .. } = self;
        render(&table) + &format!("\n{passed} passed, {warned} warned, {failed} failed, {skipped} skipped\n")
    }
}

/// Runs the command and prints its report.
///
/// # Errors
/// [`CliError::Host`]; [`CliError::NotReady`] after the report.
pub fn run(settings: &Settings, args: &DoctorArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let roots = args.host.roots();
    let cards = match &settings.card.spec {
        CardSpec::Pci(address) => vec![PciFunction::read(&roots, *address)?],
        _ => Vec::new(),
    };
    let report = DoctorReport::new(examine(&roots, &cards)?);
    output::print_statuses(&report, settings, out)?;
    match report.failed {
        0 => Ok(()),
        failed => Err(CliError::NotReady { failed, checks: report.checks.len() }),
    }
}
