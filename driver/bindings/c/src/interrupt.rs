//! User interrupts: lines by which the design on the card interrupts the host.

use core::time::Duration;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Instant;

use fpga_driver::user_interrupt::{Delivery, UserInterruptError};
use fpga_driver::{UserInterrupt, UserInterrupts};

use crate::abi::{
    FPGA_DELIVERY_LEVEL, FPGA_DELIVERY_MESSAGE, FPGA_DELIVERY_POLLED, FPGA_DELIVERY_SHARED, FPGA_USER_LINES,
    Status, fpga_user_line, fpga_user_lines, zeroed,
};
use crate::call::{array, set, set_if, write_struct};
use crate::channel::number;
use crate::code::StatusCode;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::wait::{wait_in_parts, waiting};

/// Number of lines of a card.
const LINES: usize = FPGA_USER_LINES as usize;

/// Lines that the program has taken. Threads share them.
pub(crate) struct UserLines(Arc<UserInterrupts>);

// SAFETY: the only type of this kind.
unsafe impl Object for UserLines {
    const KIND: Kind = Kind::UserInterrupts;
}

impl StatusCode for UserInterruptError {
    fn status(&self) -> Status {
        match self {
            Self::TimedOut { .. } => Status::TimedOut,
            Self::Gone | Self::Reset => Status::Gone,
            Self::Disabled => Status::Argument,
            Self::Cause(cause) => cause.status(),
            _ => Status::System,
        }
    }
}

fn lines(interrupt: u64) -> Result<Arc<UserInterrupts>, Failure> {
    Ok(handle::shared(interrupt, |lines: &UserLines| Arc::clone(&lines.0))?)
}

/// Calls `body` with one line of the handle.
fn one<R>(
    interrupt: u64,
    line: u32,
    body: impl FnOnce(&UserInterrupt) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let lines = lines(interrupt)?;
    let found = lines.iter().find(|taken| u32::from(taken.line()) == line);
    body(found.ok_or_else(|| Failure::of(Status::Range, "the line was not taken by this handle"))?)
}

pub(crate) fn fpga_interrupt_open(
    card: u64,
    lines: *const u32,
    count: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::card(card)?;
    let wanted = array(lines, count)?;
    if wanted.is_empty() || wanted.len() > LINES {
        return Err(Failure::argument("take 1 to 16 lines"));
    }
    let numbers: Result<Vec<u8>, Failure> = wanted.iter().map(|line| number(*line)).collect();
    set(out, handle::add(UserLines(Arc::new(card.user_interrupts(&numbers?)?)))?)
}

/// Maximum time to wait until the waits of other threads have ended.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(1);

pub(crate) fn fpga_interrupt_close(interrupt: u64) -> Result<(), Failure> {
    let entered = handle::enter_shared::<UserLines>(interrupt)?;
    let lines = handle::take::<UserLines>(interrupt, entered)?.0;
    let began = Instant::now();
    while Arc::strong_count(&lines) > 1 && began.elapsed() < MAX_CLOSE_WAIT {
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Writes lines as bits, and the number of interrupts of each.
fn report(taken: Vec<(u8, u64)>, bits: *mut u32, counts: *mut u64) -> Result<(), Failure> {
    let mut mask = 0;
    for (line, count) in taken {
        mask |= 1_u32.checked_shl(line.into()).unwrap_or(0);
        if !counts.is_null() && usize::from(line) < LINES {
            set(counts.wrapping_add(line.into()), count)?;
        }
    }
    set(bits, mask)
}

fn clear(bits: *mut u32, counts: *mut u64) -> Result<(), Failure> {
    set(bits, 0)?;
    (0..LINES).try_for_each(|line| if counts.is_null() { Ok(()) } else { set(counts.wrapping_add(line), 0) })
}

pub(crate) fn fpga_interrupt_wait(
    interrupt: u64,
    timeout_ns: u64,
    bits: *mut u32,
    counts: *mut u64,
) -> Result<(), Failure> {
    clear(bits, counts)?;
    let taken = waiting(interrupt, core::ptr::null(), || {
        let lines = lines(interrupt)?;
        wait_in_parts(timeout_ns, |part| Ok(lines.wait(part)?))
    })?;
    report(taken, bits, counts)
}

pub(crate) fn fpga_interrupt_take(interrupt: u64, bits: *mut u32, counts: *mut u64) -> Result<(), Failure> {
    clear(bits, counts)?;
    report(lines(interrupt)?.take()?, bits, counts)
}

pub(crate) fn fpga_interrupt_rearm(interrupt: u64, line: u32) -> Result<(), Failure> {
    one(interrupt, line, |line| Ok(line.rearm()?))
}

pub(crate) fn fpga_interrupt_enable(interrupt: u64, line: u32, enabled: u32) -> Result<(), Failure> {
    one(interrupt, line, |line| Ok(if enabled == 0 { line.disable() } else { line.enable() }?))
}

pub(crate) fn fpga_interrupt_get_count(
    interrupt: u64,
    line: u32,
    count: *mut u64,
    delivery: *mut i32,
) -> Result<(), Failure> {
    set_if(count, 0)?;
    one(interrupt, line, |line| {
        set_if(count, line.count())?;
        let delivery_mode = match line.delivery() {
            Delivery::Message => FPGA_DELIVERY_MESSAGE,
            Delivery::SharedMessage => FPGA_DELIVERY_SHARED,
            Delivery::Level => FPGA_DELIVERY_LEVEL,
            _ => FPGA_DELIVERY_POLLED,
        };
        set_if(delivery, delivery_mode)
    })
}

pub(crate) fn fpga_interrupt_fd(interrupt: u64, fd: *mut i32) -> Result<(), Failure> {
    set(fd, -1)?;
    set(fd, lines(interrupt)?.as_raw_fd())
}

pub(crate) fn fpga_get_user_lines(
    card: u64,
    states: *mut fpga_user_lines,
    size: usize,
) -> Result<(), Failure> {
    let card = handle::card(card)?;
    let mut found = zeroed::<fpga_user_lines>();
    for (line, state) in found.lines.iter_mut().zip(card.user_interrupt_states()?) {
        *line = fpga_user_line {
            enabled: state.enabled.into(),
            pending: state.pending.into(),
            vector: state.vector.into(),
            reserved: 0,
            count: state.count.unwrap_or(u64::MAX),
        };
    }
    write_struct(states, size, &found)
}
