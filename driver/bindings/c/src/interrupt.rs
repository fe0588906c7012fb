//! User interrupts: lines by which the design on the card interrupts the host.

use core::time::Duration;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Instant;

use fpga_driver::user_interrupt::{Delivery, UserInterruptError};
use fpga_driver::{Card, UserInterrupt, UserInterrupts};

use crate::call::{array, call, set, set_if, write_struct};
use crate::channel::number;
use crate::code::Code;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::layout::{c_struct, zeroed};
use crate::status::Status;
use crate::wait::{wait_in_parts, waiting};

/// Number of lines of a card, as in the header.
const LINES: usize = 16;

c_struct! {
    /// State of one line.
    CLine = "fpga_user_line" {
        enabled: u32,
        pending: u32,
        vector: u32,
        reserved: u32,
        count: u64,
    }
}

c_struct! {
    /// States of all lines.
    CStates = "fpga_user_lines" {
        lines: [CLine; LINES],
    }
}

/// Lines that the program has taken. Threads share them.
pub(crate) struct UserLines(Arc<UserInterrupts>);

// SAFETY: the only type of this kind.
unsafe impl Object for UserLines {
    const KIND: Kind = Kind::UserInterrupts;
}

impl Code for UserInterruptError {
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

/// Runs `body` with one taken line.
fn one<R>(
    interrupt: u64,
    line: u32,
    body: impl FnOnce(&UserInterrupt) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let lines = lines(interrupt)?;
    let found = lines.iter().find(|taken| u32::from(taken.line()) == line);
    body(found.ok_or_else(|| Failure::of(Status::Range, "the line was not taken by this handle"))?)
}

/// Takes lines and enables them.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_open(
    card: u64,
    lines: *const u32,
    count: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        set(out, 0)?;
        let card = handle::shared(card, Card::clone)?;
        let wanted = array(lines, count)?;
        if wanted.is_empty() || wanted.len() > LINES {
            return Err(Failure::argument("take 1 to 16 lines"));
        }
        let numbers: Result<Vec<u8>, Failure> = wanted.iter().map(|line| number(*line)).collect();
        set(out, handle::add(UserLines(Arc::new(card.user_interrupts(&numbers?)?)))?)
    })
}

/// Time until the waits of other threads have seen that their handle is closed.
const MAX_LEAVE: Duration = Duration::from_secs(1);

/// Gives the lines back, which masks them. Waits of other threads end first.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_close(interrupt: u64) -> Status {
    call(|| {
        let entered = handle::enter_shared::<UserLines>(interrupt)?;
        let lines = handle::take::<UserLines>(interrupt, entered)?.0;
        let began = Instant::now();
        while Arc::strong_count(&lines) > 1 && began.elapsed() < MAX_LEAVE {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    })
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

/// Waits until one of the lines has interrupted, and takes all interrupts.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_wait(
    interrupt: u64,
    timeout_ns: u64,
    bits: *mut u32,
    counts: *mut u64,
) -> Status {
    call(|| {
        clear(bits, counts)?;
        let taken = waiting(interrupt, core::ptr::null(), || {
            let lines = lines(interrupt)?;
            wait_in_parts(timeout_ns, |part| Ok(lines.wait(part)?))
        })?;
        report(taken, bits, counts)
    })
}

/// Takes the interrupts that have arrived.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_take(interrupt: u64, bits: *mut u32, counts: *mut u64) -> Status {
    call(|| {
        clear(bits, counts)?;
        report(lines(interrupt)?.take()?, bits, counts)
    })
}

/// Rearms a line after the cause was served.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_rearm(interrupt: u64, line: u32) -> Status {
    call(|| one(interrupt, line, |line| Ok(line.rearm()?)))
}

/// Unmasks or masks a line.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_enable(interrupt: u64, line: u32, enabled: u32) -> Status {
    call(|| one(interrupt, line, |line| Ok(if enabled == 0 { line.disable() } else { line.enable() }?)))
}

/// Returns the number of interrupts of a line, and how they are delivered.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_get_count(
    interrupt: u64,
    line: u32,
    count: *mut u64,
    delivery: *mut i32,
) -> Status {
    call(|| {
        set_if(count, 0)?;
        one(interrupt, line, |line| {
            set_if(count, line.count())?;
            let how = match line.delivery() {
                Delivery::Message => 0,
                Delivery::SharedMessage => 1,
                Delivery::Level => 2,
                _ => 3,
            };
            set_if(delivery, how)
        })
    })
}

/// Returns the file descriptor of the lines.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_interrupt_fd(interrupt: u64, fd: *mut i32) -> Status {
    call(|| {
        set(fd, -1)?;
        set(fd, lines(interrupt)?.as_raw_fd())
    })
}

/// Reads the states of all lines of a card.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_get_user_lines(card: u64, states: *mut CStates, size: usize) -> Status {
    call(|| {
        let card = handle::shared(card, Card::clone)?;
        let mut found = zeroed::<CStates>();
        for (place, state) in found.lines.iter_mut().zip(card.user_interrupt_states()?) {
            *place = CLine {
                enabled: state.enabled.into(),
                pending: state.pending.into(),
                vector: state.vector.into(),
                reserved: 0,
                count: state.count.unwrap_or(u64::MAX),
            };
        }
        write_struct(states, size, &found)
    })
}
