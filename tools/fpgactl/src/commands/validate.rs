//! `validate`: runs the self-test.

use std::io::Write;

use fpga_diag::validate::{self, Report as Outcome, SCRATCH_BYTES, Status, TestResult, ValidateOptions};
use fpga_driver::{CardRange, Error, OpenError};
use fpga_registers::quantity;
use serde::Serialize;

use crate::advice::in_one_line;
use crate::cli::ValidateArgs;
use crate::error::CliError;
use crate::output::{self, Report};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use crate::target;
use crate::units::{binary_size, micros};

/// One test.
#[derive(Debug, Serialize)]
struct Test {
    name: String,
    status: &'static str,
    message: String,
    /// Duration by the card's clock, which is virtual on a simulated card.
    card_us: f64,
}

/// Scratch memory of the test.
#[derive(Debug, Serialize)]
struct Scratch {
    /// Hexadecimal, because a JSON number would lose digits above 2^53.
    addr: String,
    bytes: u64,
}

/// Result of the self-test.
#[derive(Debug, Serialize)]
pub struct ValidateReport {
    command: &'static str,
    card: String,
    passed: usize,
    warned: usize,
    failed: usize,
    skipped: usize,
    scratch: Option<Scratch>,
    /// Whether `RunMode::Credit` is reliable on this card.
    #[serde(rename = "credit_ring_works")]
    supports_credit_mode: bool,
    /// Whether waits that poll and then sleep lose no completion.
    #[serde(rename = "hybrid_waits_work")]
    supports_hybrid_waits: bool,
    /// Whether several blocks of descriptors above 4 KiB work.
    #[serde(rename = "long_blocks_work")]
    supports_long_blocks: bool,
    /// Whether the write-back needs control bit 2; null if that was not determined.
    writeback_needs_enable: Option<bool>,
    tests: Vec<Test>,
}

impl ValidateReport {
    /// Report for a card that cannot be opened, so that nothing else could be tested.
    fn not_opened(card: String, error: &Error<OpenError>) -> Self {
        let message = in_one_line(format_args!("{error}: nothing else could be tested"), error.advice());
        let test = Test { name: "card.open".to_owned(), status: Status::Fail.name(), message, card_us: 0.0 };
        Self {
            command: "validate",
            card,
            passed: 0,
            warned: 0,
            failed: 1,
            skipped: 0,
            scratch: None,
            supports_credit_mode: false,
            supports_hybrid_waits: false,
            supports_long_blocks: false,
            writeback_needs_enable: None,
            tests: vec![test],
        }
    }

    fn new(outcome: &Outcome) -> Self {
        let test = |test: &TestResult| Test {
            name: test.name.clone(),
            status: test.status.name(),
            message: in_one_line(&test.message, test.advice.clone()),
            card_us: micros(u64::try_from(test.duration.as_nanos()).unwrap_or(u64::MAX)),
        };
        let scratch =
            |range: CardRange| Scratch { addr: format!("{:#x}", range.start.get()), bytes: range.length };
        Self {
            command: "validate",
            card: outcome.card.clone(),
            passed: outcome.count(Status::Pass),
            warned: outcome.count(Status::Warn),
            failed: outcome.count(Status::Fail),
            skipped: outcome.count(Status::Skip),
            scratch: outcome.scratch.map(scratch),
            supports_credit_mode: outcome.supports_credit_mode(),
            supports_hybrid_waits: outcome.supports_hybrid_waits(),
            supports_long_blocks: outcome.supports_long_blocks(),
            writeback_needs_enable: outcome.writeback_needs_enable(),
            tests: outcome.tests.iter().map(test).collect(),
        }
    }
}

impl Report for ValidateReport {
    fn text(&self) -> String {
        let mut table = output::table(&["STATUS", "TEST", "TIME", "FOUND"], &[2]);
        for test in &self.tests {
            let time =
                if test.status == "skip" { "-".to_owned() } else { format!("{:.1} µs", test.card_us) };
            table.add_row([test.status, &test.name, &time, &test.message]);
        }
        let memory = match &self.scratch {
            Some(range) => {
                format!("; tested in {} of card memory at {}", binary_size(range.bytes), range.addr)
            }
            None => String::new(),
        };
        output::render(&table)
            + &format!(
                "\n{}: {} passed, {} warned, {} failed, {} skipped{memory}\n",
                self.card, self.passed, self.warned, self.failed, self.skipped
            )
    }
}

/// State that a self-test would disturb.
#[derive(Debug, Serialize)]
struct PlanReport {
    command: &'static str,
    card: String,
    disturbs: Vec<String>,
}

impl Report for PlanReport {
    fn text(&self) -> String {
        let lines: String = self.disturbs.iter().map(|line| format!("  {line}\n")).collect();
        format!("{}: nothing was tested; a test would disturb:\n{lines}", self.card)
    }
}

/// Tests have failed; the report lists them.
fn failed(card: &str, failed: usize, tests: usize) -> CliError {
    let tests = quantity(tests, "test");
    CliError::failed(format!("{card}: {failed} of {tests} failed; the report has the advice for each"))
        .reported()
}

/// Runs the command and prints its report.
///
/// # Errors
/// See [`CliError`]; after the report, if a test has failed.
pub fn run(settings: &Settings, args: &ValidateArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut options = ValidateOptions::default().seed(args.seed).streams(args.streams);
    if let Some(start) = args.scratch {
        options = options.scratch(CardRange::new(start, args.scratch_size.unwrap_or(SCRATCH_BYTES)));
    }
    if let Some(limit) = settings.deadline.limit() {
        options = options.timeout(limit);
    }
    if args.plan {
        let opened = target::observe(&settings.card)?;
        let disturbs = validate::side_effects(&opened.card, options);
        let report = PlanReport { command: "validate", card: opened.card.name().to_owned(), disturbs };
        return output::print(&report, settings.json, out);
    }
    let opened = match target::open(&settings.card) {
        Ok(opened) => opened,
        // The card exists, and its failure to open is the result of the test.
        Err(error) => {
            let Some(refused) = error.cause::<Error<OpenError>>() else { return Err(error) };
            let card = settings.card.to_string();
            output::print(&ValidateReport::not_opened(card.clone(), refused), settings.json, out)?;
            return Err(failed(&card, 1, 1));
        }
    };
    let bar = Progress::open_ended("tests", settings.progress);
    let outcome = validate::run_until_stopped(&opened.card, options, &|| !stop::is_asked(), &mut |test| {
        tracing::info!(test = %test.name, status = %test.status, "tested");
        bar.advance();
        bar.phase(format!("{} {}", test.name, test.status));
    });
    drop(bar);
    output::print_statuses(&ValidateReport::new(&outcome), settings, out)?;
    if stop::is_asked() {
        let (card, done) = (&outcome.card, outcome.tests.len() - outcome.count(Status::Skip));
        let tests = quantity(outcome.tests.len(), "test");
        return Err(CliError::failed(format!(
            "{card}: stopped by a signal after {done} of {tests}; the saved state of the card is restored"
        ))
        .reported());
    }
    if outcome.has_failed() {
        let failed = outcome.count(Status::Fail);
        return Err(self::failed(&outcome.card, failed, outcome.tests.len()));
    }
    Ok(())
}
