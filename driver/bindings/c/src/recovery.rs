//! Recovery of a card that does not work.

use core::ffi::c_char;

use fpga_driver::recovery::{
    RecoveryError, RecoveryLevel, RecoveryOptions, RecoveryReport, RecoveryStep, RecoveryStepOutcome, recover,
};
use fpga_driver::{ChannelName, Direction, OpenOptions};

use crate::abi::{
    FPGA_RECOVERY_BUS, FPGA_RECOVERY_BUS_RESET, FPGA_RECOVERY_C2H, FPGA_RECOVERY_CDMA, FPGA_RECOVERY_CHANNEL,
    FPGA_RECOVERY_DEFAULT, FPGA_RECOVERY_FAILED, FPGA_RECOVERY_FUNCTION, FPGA_RECOVERY_FUNCTION_RESET,
    FPGA_RECOVERY_H2C, FPGA_RECOVERY_INTERRUPTS, FPGA_RECOVERY_NETWORK, FPGA_RECOVERY_NOT_NEEDED,
    FPGA_RECOVERY_RECOVERED, FPGA_RECOVERY_REGISTERS, FPGA_RECOVERY_UNSUPPORTED, Status,
    fpga_recovery_options, fpga_recovery_report, fpga_recovery_step, zeroed,
};
use crate::call::{copy_text, duration, read_options, set, write_struct};
use crate::channel::{is_h2c, number};
use crate::code::StatusCode;
use crate::error::Failure;
use crate::handle;

/// Elements of `steps` in `fpga_recovery_report`.
const MAX_STEPS: usize = 16;

impl StatusCode for RecoveryError {
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
        FPGA_RECOVERY_DEFAULT | FPGA_RECOVERY_CHANNEL => Ok(RecoveryLevel::Channel),
        FPGA_RECOVERY_FUNCTION => Ok(RecoveryLevel::Function),
        FPGA_RECOVERY_BUS => Ok(RecoveryLevel::Bus),
        _ => Err(Failure::argument(&format!(
            "the level is {level}, which is not a value of fpga_recovery_level"
        ))),
    }
}

/// Part that a step concerns, and its number.
const fn part(step: RecoveryStep) -> (i32, u32) {
    match step {
        RecoveryStep::Channel(ChannelName { direction: Direction::C2h, number }) => {
            (FPGA_RECOVERY_C2H, number as u32)
        }
        RecoveryStep::Channel(ChannelName { number, .. }) => (FPGA_RECOVERY_H2C, number as u32),
        RecoveryStep::Cdma => (FPGA_RECOVERY_CDMA, 0),
        RecoveryStep::NetworkInterface => (FPGA_RECOVERY_NETWORK, 0),
        RecoveryStep::Interrupts => (FPGA_RECOVERY_INTERRUPTS, 0),
        RecoveryStep::Function => (FPGA_RECOVERY_FUNCTION_RESET, 0),
        RecoveryStep::Bus => (FPGA_RECOVERY_BUS_RESET, 0),
        _ => (FPGA_RECOVERY_REGISTERS, 0),
    }
}

const fn outcome(outcome: &RecoveryStepOutcome) -> i32 {
    match outcome {
        RecoveryStepOutcome::NotNeeded => FPGA_RECOVERY_NOT_NEEDED,
        RecoveryStepOutcome::Recovered => FPGA_RECOVERY_RECOVERED,
        RecoveryStepOutcome::Unsupported { .. } => FPGA_RECOVERY_UNSUPPORTED,
        _ => FPGA_RECOVERY_FAILED,
    }
}

fn codes(report: &RecoveryReport) -> fpga_recovery_report {
    let mut found = zeroed::<fpga_recovery_report>();
    (found.well, found.reopen) = (report.well.into(), report.reopen.into());
    found.step_count = u32::try_from(report.steps.len().min(MAX_STEPS)).unwrap_or(0);
    for (element, step) in found.steps.iter_mut().zip(&report.steps) {
        let (part, part_number) = part(step.step);
        let outcome = outcome(&step.outcome);
        *element =
            fpga_recovery_step { part, part_number, outcome, reserved: 0, duration_ns: step.duration_ns };
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

/// Returns the options for the driver.
fn recovery_options(given: &fpga_recovery_options) -> Result<RecoveryOptions, Failure> {
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

/// Writes a report as a structure and as a text.
fn write_report(
    done: &RecoveryReport,
    report: *mut fpga_recovery_report,
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

pub(crate) fn fpga_recover(
    card: u64,
    options: *const fpga_recovery_options,
    size: usize,
    report: *mut fpga_recovery_report,
    report_size: usize,
    text: *mut c_char,
    length: usize,
) -> Result<(), Failure> {
    if length > 0 {
        set(text, 0)?;
    }
    let wanted = recovery_options(&read_options(options, size)?)?;
    let card = handle::card(card)?;
    write_report(&card.recover_with(&wanted)?, report, report_size, text, length)
}

pub(crate) fn fpga_recover_named(
    name: *const c_char,
    options: *const fpga_recovery_options,
    size: usize,
    report: *mut fpga_recovery_report,
    report_size: usize,
    text: *mut c_char,
    length: usize,
) -> Result<(), Failure> {
    if length > 0 {
        set(text, 0)?;
    }
    let (spec, wanted) = (crate::card::spec(name)?, recovery_options(&read_options(options, size)?)?);
    let open = OpenOptions::default();
    let backend = spec.backend(&open.access)?;
    write_report(&recover(&backend, &open, &wanted)?, report, report_size, text, length)
}
