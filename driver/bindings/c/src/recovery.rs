//! Recovery of a card that does not work.

use core::ffi::c_char;

use fpga_driver::recovery::{
    RecoveryError, RecoveryLevel, RecoveryOptions, RecoveryReport, RecoveryStep, RecoveryStepOutcome, recover,
};
use fpga_driver::{Card, ChannelName, Direction, OpenOptions};

use crate::call::{call, copy_text, duration, read_options, set, write_struct};
use crate::channel::{is_h2c, number};
use crate::code::Code;
use crate::error::Failure;
use crate::handle;
use crate::layout::{c_struct, zeroed};
use crate::status::Status;

/// Maximum number of steps in a report, as in the header.
const STEPS: usize = 16;

c_struct! {
    /// Options of a recovery.
    COptions = "fpga_recovery_options" {
        max_level: i32,
        at_least: i32,
        force: u32,
        one_channel: u32,
        direction: i32,
        number: u32,
        limit_ns: u64,
    }
}

c_struct! {
    /// Step of a recovery.
    CStep = "fpga_recovery_step" {
        part: i32,
        part_number: u32,
        outcome: i32,
        reserved: u32,
        duration_ns: u64,
    }
}

c_struct! {
    /// Report of a recovery.
    CReport = "fpga_recovery_report" {
        well: u32,
        reopen: u32,
        step_count: u32,
        reserved: u32,
        steps: [CStep; STEPS],
    }
}

impl Code for RecoveryError {
    fn status(&self) -> Status {
        match self {
            Self::Gone => Status::Gone,
            Self::AllOnes => Status::Wedged,
            Self::InUse { .. } => Status::InUse,
            Self::Stale => Status::Gone,
            Self::Observed | Self::NoSuchChannel { .. } => Status::Unsupported,
            Self::Open(error) => error.status(),
            Self::Cause(cause) => cause.status(),
            _ => Status::System,
        }
    }
}

fn level(level: i32) -> Result<RecoveryLevel, Failure> {
    match level {
        0 | 1 => Ok(RecoveryLevel::Channel),
        2 => Ok(RecoveryLevel::Function),
        3 => Ok(RecoveryLevel::Bus),
        _ => Err(Failure::argument("the level is no fpga_recovery_level")),
    }
}

/// Codes of the parts that a step concerns, as in the header.
const fn part(step: RecoveryStep) -> (i32, u32) {
    match step {
        RecoveryStep::Channel(ChannelName { direction: Direction::C2h, number }) => (2, number as u32),
        RecoveryStep::Channel(ChannelName { number, .. }) => (1, number as u32),
        RecoveryStep::Cdma => (3, 0),
        RecoveryStep::NetworkInterface => (4, 0),
        RecoveryStep::Interrupts => (5, 0),
        RecoveryStep::Function => (6, 0),
        RecoveryStep::Bus => (7, 0),
        _ => (0, 0),
    }
}

const fn outcome(outcome: &RecoveryStepOutcome) -> i32 {
    match outcome {
        RecoveryStepOutcome::NotNeeded => 0,
        RecoveryStepOutcome::Recovered => 1,
        RecoveryStepOutcome::Unsupported { .. } => 2,
        _ => 3,
    }
}

fn codes(report: &RecoveryReport) -> CReport {
    let mut found = zeroed::<CReport>();
    (found.well, found.reopen) = (report.well.into(), report.reopen.into());
    found.step_count = u32::try_from(report.steps.len().min(STEPS)).unwrap_or(0);
    for (place, step) in found.steps.iter_mut().zip(&report.steps) {
        let (part, part_number) = part(step.step);
        let outcome = outcome(&step.outcome);
        *place = CStep { part, part_number, outcome, reserved: 0, duration_ns: step.duration_ns };
    }
    found
}

fn as_text(report: &RecoveryReport) -> String {
    let mut text = String::new();
    for step in &report.steps {
        text.push_str(&format!("{}: {}: {}\n", step.step, step.found, step.outcome));
    }
    text.push_str(match (report.well, report.reopen) {
        (true, false) => "the card works\n",
        (true, true) => "the card works, and has to be opened again\n",
        (false, _) => "the card does not work\n",
    });
    text
}

/// Returns the options of the driver.
fn wanted(given: &COptions) -> Result<RecoveryOptions, Failure> {
    let mut wanted = RecoveryOptions::default()
        .with_max_level(level(given.max_level)?)
        .at_least(level(given.at_least)?)
        .force(given.force != 0);
    if given.limit_ns != 0 {
        wanted = wanted.limit(duration(given.limit_ns));
    }
    if given.one_channel != 0 {
        let direction = if is_h2c(given.direction)? { Direction::H2c } else { Direction::C2h };
        wanted = wanted.channel(ChannelName { direction, number: number(given.number)? });
    }
    Ok(wanted)
}

/// Writes a report to a caller.
fn put(
    done: &RecoveryReport,
    report: *mut CReport,
    report_size: usize,
    text: *mut c_char,
    length: usize,
) -> Result<(), Failure> {
    if !report.is_null() {
        write_struct(report, report_size, &codes(done))?;
    }
    if length > 0 {
        copy_text(text, length, core::ptr::null_mut(), &as_text(done))?;
    }
    Ok(())
}

/// Recovers a card.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_recover(
    card: u64,
    options: *const COptions,
    size: usize,
    report: *mut CReport,
    report_size: usize,
    text: *mut c_char,
    length: usize,
) -> Status {
    call(|| {
        if length > 0 {
            set(text, 0)?;
        }
        let wanted = wanted(&read_options(options, size)?)?;
        let card = handle::shared(card, Card::clone)?;
        put(&card.recover_with(&wanted)?, report, report_size, text, length)
    })
}

/// Recovers a card that is not open.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_recover_named(
    name: *const c_char,
    options: *const COptions,
    size: usize,
    report: *mut CReport,
    report_size: usize,
    text: *mut c_char,
    length: usize,
) -> Status {
    call(|| {
        if length > 0 {
            set(text, 0)?;
        }
        let (spec, wanted) = (crate::card::spec(name)?, wanted(&read_options(options, size)?)?);
        let open = OpenOptions::default();
        let backend = spec.backend(&open.access)?;
        put(&recover(&backend, &open, &wanted)?, report, report_size, text, length)
    })
}
