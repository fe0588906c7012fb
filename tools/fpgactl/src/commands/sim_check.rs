//! `sim check` and `sim schema`: checks scenario files without running them.

use std::io::Write;
use std::path::Path;

use fpga_input::FileKind;
use fpga_netsim::{Scenario, file};
use fpga_registers::quantity;
use serde::Serialize;

use crate::cli::SimCheckArgs;
use crate::error::CliError;
use crate::output::{self, Report, pairs};
use crate::progress::Deadline;
use crate::settings::Settings;
use crate::stream::read_yaml;
use crate::units::binary_size;

/// Results for all files.
#[derive(Debug, Serialize)]
struct CheckReport {
    scenarios: Vec<Checked>,
    failed: usize,
}

/// Result for one file: its content, or what is wrong with it.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    valid: bool,
    error: Option<String>,
    #[serde(flatten)]
    described: Option<Described>,
}

/// Main facts of a valid scenario.
#[derive(Debug, Serialize)]
struct Described {
    scheme: &'static str,
    topology: String,
    hosts: u32,
    flows: usize,
    bytes: u64,
    rate_gbps: u64,
    delay_ns: u64,
    queue_bytes: u64,
    packet_bytes: u32,
    round_trip_ns: u64,
    impaired: bool,
    controller: Option<u32>,
    seed: u64,
}

impl Described {
    fn of(scenario: &Scenario) -> Self {
        Self {
            scheme: scenario.scheme.name(),
            topology: scenario.topology.to_string(),
            hosts: scenario.topology.hosts(),
            flows: scenario.flows.len(),
            bytes: scenario.flows.iter().fold(0, |sum, flow| sum.saturating_add(flow.length)),
            rate_gbps: scenario.rate.get() / 1_000_000_000,
            delay_ns: scenario.delay.get(),
            queue_bytes: scenario.queue,
            packet_bytes: scenario.sender.packet_size(),
            round_trip_ns: scenario.timers_for().get(),
            impaired: scenario.is_impaired(),
            controller: scenario.controller,
            seed: scenario.seed,
        }
    }

    fn rows(&self) -> [(&'static str, String); 7] {
        let control =
            self.controller.map_or_else(|| "none".to_owned(), |host| format!("host {host} controls"));
        [
            ("scheme", self.scheme.to_owned()),
            ("network", format!("{}, {}", self.topology, quantity(self.hosts, "host"))),
            (
                "links",
                format!(
                    "{} Gbit/s, {} ns, queues of {}",
                    self.rate_gbps,
                    self.delay_ns,
                    binary_size(self.queue_bytes)
                ),
            ),
            (
                "traffic",
                format!(
                    "{}, {} in all, packets of {}",
                    quantity(self.flows, "flow"),
                    binary_size(self.bytes),
                    binary_size(self.packet_bytes.into())
                ),
            ),
            ("impairments", if self.impaired { "yes" } else { "none" }.to_owned()),
            ("flow control", control),
            ("timers, seed", format!("round trip of {} ns, seed {}", self.round_trip_ns, self.seed)),
        ]
    }
}

impl Checked {
    fn of(path: &Path, deadline: Deadline) -> Self {
        let file = path.display().to_string();
        let scenario = read_yaml(FileKind::SCENARIO, path, deadline)
            .and_then(|text| file::parse(&file, &text).map_err(CliError::from));
        match scenario {
            Ok(scenario) => {
                Self { file, valid: true, error: None, described: Some(Described::of(&scenario)) }
            }
            Err(error) => Self { file, valid: false, error: Some(error.reason()), described: None },
        }
    }
}

impl Report for CheckReport {
    fn text(&self) -> String {
        let one = |checked: &Checked| match (&checked.described, &checked.error) {
            (Some(described), _) => {
                let mut rows = vec![("file", format!("{}: valid", checked.file))];
                rows.extend(described.rows());
                pairs(&rows)
            }
            (None, error) => format!("{}\n", error.as_deref().unwrap_or_default()),
        };
        self.scenarios.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

/// Runs `sim check`.
///
/// # Errors
/// After the report, if a scenario is not valid.
pub fn run(settings: &Settings, args: &SimCheckArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let scenarios: Vec<Checked> =
        args.scenarios.iter().map(|path| Checked::of(path, settings.deadline)).collect();
    let failed = scenarios.iter().filter(|checked| !checked.valid).count();
    let files = scenarios.len();
    output::print(&CheckReport { scenarios, failed }, settings.json, out)?;
    if failed == 0 {
        return Ok(());
    }
    let text = format!("{failed} of {} not valid", quantity(files, "scenario"));
    Err(CliError::failed(text).advise("correct what the report names").reported())
}

/// Runs `sim schema`.
pub fn schema(out: &mut dyn Write) -> Result<(), CliError> {
    output::write_all(file::JSON_SCHEMA.as_bytes(), out)
}
