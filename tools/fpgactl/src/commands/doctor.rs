//! `doctor`: checks whether this machine is ready for cards.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fpga_host::{Check, PciFunction, Status, examine};
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::error::CliError;
use crate::machine_advice;
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
                    fix: check.fix.map(|fix| machine_advice::fix(&fix)),
                })
                .collect(),
        }
    }
}

impl DoctorReport {
    /// Adds whether libfabric finds the provider `fpga`, which MPI over cards needs.
    fn check_libfabric(&mut self) {
        let provider = || {
            "install the package libfabric-provider-fpga, or set FI_PROVIDER_PATH to the folder of libfpga-fi.so".to_owned()
        };
        // Without a name it lists all providers, and its exit status does not depend on one.
        let listed = Command::new("fi_info").arg("-l").stdin(Stdio::null()).stderr(Stdio::null()).output();
        let (status, message, fix) = match listed {
            Ok(listed) if listed.status.success() => {
                let names = String::from_utf8_lossy(&listed.stdout);
                if names.lines().any(|line| line.trim_end_matches(':') == "fpga") {
                    (Status::Pass, "libfabric finds the provider fpga".to_owned(), None)
                } else {
                    (
                        Status::Skip,
                        "libfabric does not find the provider fpga, for MPI over cards".to_owned(),
                        Some(provider()),
                    )
                }
            }
            Ok(listed) => (Status::Warn, format!("fi_info ends with {}", listed.status), Some(provider())),
            Err(_) => (
                Status::Skip,
                "fi_info cannot be run: MPI over cards is not checked".to_owned(),
                Some("install the package libfabric-bin".to_owned()),
            ),
        };
        match status {
            Status::Pass => self.passed += 1,
            Status::Warn => self.warned += 1,
            _ => self.skipped += 1,
        }
        let status = status.name();
        self.checks.push(CheckReport { name: "libfabric", card: None, status, message, fix });
    }

    /// Reduces the report to a card that another process serves: the server has the card's hardware, and the kernel's drivers have no part in
    /// it. Only the socket is checked.
    fn keep_for_socket(&mut self, card: &str, socket: &Path) {
        for check in &mut self.checks {
            check.status = Status::Skip.name();
            check.message = format!("not needed by {card}");
            check.fix = None;
        }
        let found = std::fs::metadata(socket);
        let (status, message) = match found {
            Ok(found) if found.file_type().is_socket() => (Status::Pass, "its socket exists".to_owned()),
            Ok(_) => (Status::Fail, format!("{} is not a socket", socket.display())),
            Err(error) => (Status::Fail, format!("{}: {error}", socket.display())),
        };
        let failed = status == Status::Fail;
        self.checks.push(CheckReport {
            name: "socket",
            card: Some(card.to_owned()),
            status: status.name(),
            message,
            fix: failed.then(|| {
                "start the server (`fpgactl card serve --socket PATH`) and name its socket".to_owned()
            }),
        });
        (self.passed, self.warned) = (usize::from(!failed), 0);
        (self.failed, self.skipped) = (usize::from(failed), self.checks.len() - 1);
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
/// The machine cannot be examined; after the report, if a check has failed.
pub fn run(settings: &Settings, args: &DoctorArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let roots = args.host.roots();
    let cards = match settings.card.spec.card() {
        CardSpec::Pci(address) => vec![PciFunction::read(&roots, *address)?],
        _ => Vec::new(),
    };
    let mut report = DoctorReport::new(examine(&roots, &cards)?);
    if args.host.is_running() {
        report.check_libfabric();
    }
    if let CardSpec::VfioUser(socket) = settings.card.spec.card() {
        report.keep_for_socket(&settings.card.to_string(), socket);
    }
    output::print_statuses(&report, settings, out)?;
    match report.failed {
        0 => Ok(()),
        failed => Err(CliError::failed(format!(
            "{failed} of {} checks failed; the report has the advice for each",
            report.checks.len()
        ))
        .reported()),
    }
}
