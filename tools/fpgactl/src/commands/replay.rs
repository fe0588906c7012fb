//! `replay`: runs a register log against a card.

use std::collections::BTreeSet;
use std::io::{BufReader, Write};

use fpga_diag::record::log::{Entry, Log, LogError, Value};
use fpga_diag::record::replay::{Difference, Replay, Replayed, replay};
use fpga_diag::record::{AccessDirection, Width};
use fpga_input::{FileKind, InputError};
use fpga_registers::quantity;
use serde::Serialize;

use crate::bars::Role;
use crate::cli::ReplayArgs;
use crate::error::CliError;
use crate::guard::{self, BarSpan};
use crate::output::{self, Report, render, table};
use crate::registers::{self, FieldValue, Register};
use crate::settings::Settings;
use crate::stop;
use crate::stream::Input;
use crate::target::{self, Opened};

/// First difference.
#[derive(Debug, Serialize)]
struct DifferenceReport {
    line: usize,
    /// Recorded time in seconds since the first access.
    seconds: f64,
    access: &'static str,
    bar: u8,
    offset: String,
    register: Option<String>,
    /// Recorded result: a number, or `failed`.
    recorded: String,
    /// Actual result: a number, or the reason of the failure.
    found: String,
    /// Fields that differ.
    fields: Vec<FieldDifference>,
}

#[derive(Debug, Serialize)]
struct FieldDifference {
    name: String,
    recorded: String,
    found: String,
}

/// Result of a replay.
#[derive(Debug, Serialize)]
struct ReplayReport {
    card: String,
    log: String,
    accesses: usize,
    reads: u64,
    writes: u64,
    not_compared: u64,
    /// Whether a signal ended it before the log's end.
    stopped: bool,
    same: bool,
    difference: Option<DifferenceReport>,
}

impl Report for ReplayReport {
    fn text(&self) -> String {
        let Self { card, log, accesses, reads, writes, not_compared, .. } = self;
        let mut text = format!(
            "{log} on {card}: {} and {} of {}",
            quantity(*reads, "read"),
            quantity(*writes, "write"),
            quantity(*accesses, "access")
        );
        if *not_compared > 0 {
            text += &format!(", {not_compared} not compared");
        }
        let Some(difference) = &self.difference else {
            text += if self.stopped {
                ": stopped by a signal, no difference so far\n"
            } else {
                ": no difference\n"
            };
            return text;
        };
        let DifferenceReport { line, access, bar, offset, register, recorded, found, fields, .. } =
            difference;
        let register = register.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        text += &format!("\nline {line}: {access} of BAR {bar} at {offset}{register}\n");
        text += &format!("  recorded  {recorded}\n  now       {found}\n");
        if !fields.is_empty() {
            let mut table = table(&["FIELD", "RECORDED", "NOW"], &[]);
            for field in fields {
                table.add_row([&field.name, &field.recorded, &field.found]);
            }
            text += &render(&table);
        }
        text
    }
}

/// Runs the command.
///
/// # Errors
/// The card behaves differently, or a signal came first, both after the report; see
/// [`CliError`].
pub fn run(settings: &Settings, args: &ReplayArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let log = match Input::named(&args.file, settings.deadline)? {
        Some(input) => Log::read(BufReader::new(FileKind::REGISTER_LOG.bounded(&args.file, input))),
        None => Log::read(BufReader::new(FileKind::REGISTER_LOG.open(&args.file)?)),
    };
    let log = log.map_err(|error| match error {
        LogError::Unreadable(error) => match error.downcast::<CliError>() {
            Ok(error) => error,
            Err(error) => InputError::carried(FileKind::REGISTER_LOG, &args.file, error).into(),
        },
        error => CliError::failed(format!("register log {}: {error}", args.file.display())),
    })?;
    stop::handle_signals()?;
    let opened = target::observe(&settings.card)?;
    let all = opened.registers();
    let card = opened.card.name().to_owned();
    if !args.force {
        check(&opened, &all, &log)?;
    }
    let mut options = Replay::default();
    options.paced = args.paced;
    for name in &args.ignore {
        let register = registers::find(&card, &all, name)?.register;
        options.ignored.extend(bar_of(&opened, register).map(|bar| (bar, register.address)));
    }
    let mut late = Ok(());
    let mut go_on = || {
        late = settings.deadline.check_time(|| format!("{card}: replaying {}", args.file.display()));
        late.is_ok() && !stop::is_asked()
    };
    let done = replay(&*opened.backend, &log, &options, &mut go_on).map_err(|error| {
        CliError::failed(format!("{card}: register log {}: {error}", args.file.display()))
    })?;
    late?;
    let line = done.difference.as_ref().map(|difference| difference.entry.line);
    let (stopped, made) = (done.stopped, done.reads + done.writes);
    output::print(&report(&opened, &all, args, &log, done), settings.json, out)?;
    match line {
        Some(line) => {
            Err(CliError::failed(format!("{card}: it differs from the record in line {line}")).reported())
        }
        None if stopped => {
            let accesses = quantity(log.entries().len(), "access");
            let text = format!("{card}: stopped by a signal after {made} of {accesses} of the log");
            Err(CliError::failed(text).reported())
        }
        None => Ok(()),
    }
}

fn report(opened: &Opened, all: &[Register], args: &ReplayArgs, log: &Log, done: Replayed) -> ReplayReport {
    ReplayReport {
        card: opened.card.name().to_owned(),
        log: args.file.display().to_string(),
        accesses: log.entries().len(),
        reads: done.reads,
        writes: done.writes,
        not_compared: done.not_compared,
        stopped: done.stopped,
        same: done.difference.is_none(),
        difference: done.difference.map(|difference| describe(opened, all, &difference)),
    }
}

fn describe(opened: &Opened, all: &[Register], difference: &Difference) -> DifferenceReport {
    let Difference { entry, found, .. } = difference;
    let register = stretch(opened, entry).registers(all).next().filter(|_| entry.width == Width::Word);
    let digits = 2 + 2 * usize::try_from(entry.width.bytes()).unwrap_or(8);
    let hex = |value: u64| format!("{value:#0digits$x}");
    let number = |value: u64| u32::try_from(value).ok();
    let recorded = match entry.value {
        Value::Number(value) => Some(value),
        Value::Any | Value::Failed => None,
    };
    let fields = match (register, recorded.and_then(number), found.as_ref().ok().copied().and_then(number)) {
        (Some(register), Some(recorded), Some(found)) => differing(register, recorded, found),
        _ => Vec::new(),
    };
    DifferenceReport {
        line: entry.line,
        seconds: entry.time.as_secs_f64(),
        access: match entry.direction {
            AccessDirection::Read => "read",
            AccessDirection::Write => "write",
        },
        bar: entry.bar,
        offset: format!("{:#06x}", entry.at.get()),
        register: register.map(|register| register.name.clone()),
        recorded: match entry.value {
            Value::Number(value) => hex(value),
            Value::Any => "any".to_owned(),
            Value::Failed => "failed".to_owned(),
        },
        found: match found {
            Ok(value) => hex(*value),
            Err(error) => format!("failed: {error}"),
        },
        fields,
    }
}

/// Fields in which two values of a register differ.
fn differing(register: &Register, recorded: u32, found: u32) -> Vec<FieldDifference> {
    let (recorded, found) = (register.fields(recorded), register.fields(found));
    // Reserved bits appear as fields only in values in which they are set.
    let fields: BTreeSet<(u8, &str)> =
        recorded.iter().chain(&found).map(|field| (field.low, field.name.as_str())).collect();
    let of = |fields: &[FieldValue], low| {
        let field = fields.iter().find(|field| field.low == low);
        field.map_or_else(|| "0x0".to_owned(), FieldValue::shown)
    };
    let pairs = fields.iter().map(|(low, name)| FieldDifference {
        name: (*name).to_owned(),
        recorded: of(&recorded, *low),
        found: of(&found, *low),
    });
    pairs.filter(|pair| pair.recorded != pair.found).collect()
}

fn stretch(opened: &Opened, entry: &Entry) -> BarSpan {
    let role = Role::of(opened.card.info(), entry.bar);
    BarSpan { role, at: entry.at, length: entry.width.bytes() }
}

fn bar_of(opened: &Opened, register: &Register) -> Option<u8> {
    let role = BarSpan::of(register).role;
    opened
        .backend
        .bars()
        .into_iter()
        .flatten()
        .map(|bar| bar.index)
        .find(|index| Role::of(opened.card.info(), *index) == role)
}

/// Refuses a log with an access that may do harm, before the first access is made. Reads with side effects are permitted: the log asks for
/// them.
fn check(opened: &Opened, all: &[Register], log: &Log) -> Result<(), CliError> {
    let mut seen = BTreeSet::new();
    for entry in log.entries() {
        let writes = entry.direction == AccessDirection::Write;
        if !seen.insert((writes, entry.bar, entry.at.get(), entry.width.bytes())) {
            continue;
        }
        let stretch = stretch(opened, entry);
        let harm = match entry.direction {
            AccessDirection::Write => guard::write_hazard(&opened.card, all, stretch)?,
            AccessDirection::Read => guard::unknown_design(&opened.card, all, stretch),
        };
        if let Some(harm) = harm {
            let what = format!(
                "line {} of the log, {} BAR {} at {:#x}",
                entry.line,
                if writes { "writing" } else { "reading" },
                entry.bar,
                entry.at.get()
            );
            return Err(CliError::hazard(opened.card.name(), what, &harm));
        }
    }
    Ok(())
}
