//! Waits: without the interpreter's lock, with one limit for all their parts, and ended by signals.
//!
//! Signal handlers run between the parts of a wait, while the thread holds no lock of this package: a handler may use and close every object.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fpga_driver::errors::{ErrorKind as _, MmioError};
use fpga_driver::user_interrupt::UserInterruptError;
use fpga_driver::{BarOffset, ChannelError, Error, WaitOptions, Waited};
use pyo3::prelude::*;

use crate::advice::render;
use crate::error::{Class, Classify as _, Failure};

/// Interval in which a wait checks for signals.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval in which a wait that does not access the card checks whether the card is present.
pub(crate) const PRESENCE_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum wall-clock limit of a wait whose timeout is counted in virtual time.
const MIN_WALL_LIMIT: Duration = Duration::from_secs(60);

/// Converts a timeout in seconds; `None` waits without a limit.
///
/// # Errors
/// `ValueError` for a number that is negative or not a number.
pub(crate) fn duration(seconds: Option<f64>) -> Result<Duration, Failure> {
    let seconds = seconds.unwrap_or(f64::INFINITY);
    if seconds.is_nan() || seconds < 0.0 {
        let message = format!("a timeout of {seconds} s: give a time of 0 s or more, or None");
        return Err(Failure::value(message));
    }
    // A time that does not fit into a `Duration` stands for no limit.
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Time limit of a call, including waits for calls of other threads.
#[derive(Debug)]
pub(crate) struct Limit {
    total: Duration,
    spent: Duration,
    /// Wall-clock end of a wait that is counted in virtual time.
    wall: Option<Instant>,
}

impl Limit {
    /// Limit of `timeout` seconds; `None`: no limit.
    ///
    /// # Errors
    /// As [`duration`].
    pub(crate) fn new(timeout: Option<f64>) -> Result<Self, Failure> {
        duration(timeout).map(Self::of)
    }

    pub(crate) const fn of(total: Duration) -> Self {
        Self { total, spent: Duration::ZERO, wall: None }
    }

    pub(crate) const fn none() -> Self {
        Self::of(Duration::MAX)
    }

    pub(crate) const fn total(&self) -> Duration {
        self.total
    }

    pub(crate) const fn left(&self) -> Duration {
        self.total.saturating_sub(self.spent)
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    pub(crate) const fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }

    /// Counts a part of the wait, on the card's clock.
    pub(crate) fn waited(&mut self, waited: Waited) {
        self.spend(waited.time);
        if waited.is_virtual {
            let now = Instant::now();
            let end = *self.wall.get_or_insert_with(|| {
                now.checked_add(self.total.max(MIN_WALL_LIMIT)).unwrap_or(now + Duration::from_secs(1 << 32))
            });
            if now >= end {
                self.spent = self.total;
            }
        }
    }

    /// Adds the earlier parts to the time of an error of the last part.
    pub(crate) fn in_all(&self, mut error: Error<ChannelError>) -> Error<ChannelError> {
        if let ChannelError::TimedOut { waited, .. } = &mut error.kind {
            waited.time = waited.time.saturating_add(self.spent);
        }
        error
    }

    /// Options of the next part of the wait.
    pub(crate) fn options(&self) -> WaitOptions {
        WaitOptions::default().timeout(self.left())
    }

    /// Maximum length of the next part of a wait that cannot be paused.
    pub(crate) fn part(&self) -> Duration {
        self.left().min(SIGNAL_INTERVAL)
    }
}

/// Takes a lock that is never held during a wait.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests of other threads during a turn.
pub(crate) struct Pause<'a> {
    wanted: &'a AtomicU32,
    closing: &'a AtomicBool,
    began: Instant,
}

impl<'a> Pause<'a> {
    pub(crate) fn new(wanted: &'a AtomicU32, closing: &'a AtomicBool) -> Self {
        Self { wanted, closing, began: Instant::now() }
    }

    /// Whether another thread closes the object.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Whether another thread wants the value, or it is time to look for signals.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
            || self.closing.load(Ordering::Relaxed)
            || self.began.elapsed() >= SIGNAL_INTERVAL
    }
}

/// Periodic check whether a card is present, for waits that do not access it.
pub(crate) struct Presence(Mutex<Instant>);

impl Presence {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Checks the card, unless it was checked within the interval.
    ///
    /// # Errors
    /// `CardGoneError`.
    pub(crate) fn check(&self, py: Python<'_>, card: &fpga_driver::Card) -> Result<(), Failure> {
        {
            let mut checked = lock(&self.0);
            if checked.elapsed() < PRESENCE_INTERVAL {
                return Ok(());
            }
            *checked = Instant::now();
        }
        py.detach(|| check_present(card))
    }
}

/// Checks that a card answers.
///
/// # Errors
/// `CardGoneError`.
pub(crate) fn check_present(card: &fpga_driver::Card) -> Result<(), Failure> {
    let gone = match card.dma_bar().read32(BarOffset::new(0)) {
        // The first register identifies a channel, and never reads as all ones.
        Ok(u32::MAX) => UserInterruptError::Gone,
        Ok(_) => return Ok(()),
        Err(MmioError::Stale { .. }) => UserInterruptError::Reset,
        Err(error) if error.is_gone() => UserInterruptError::Gone,
        Err(error) => UserInterruptError::Cause(error.into()),
    };
    let failure = Failure::new(gone.class(), gone.to_string()).on_card(card.name());
    Err(match gone.advice() {
        Some(advice) => failure.advice(render(&advice)),
        None => failure,
    })
}

/// Runs a call without the interpreter's lock.
///
/// # Errors
/// Errors of the call.
pub(crate) fn detached<T: Send, E>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, Failure>
where
    E: Into<Failure> + Send,
{
    py.detach(call).map_err(Into::into)
}

/// Error of an object that was closed.
pub(crate) fn closed(name: &str) -> Failure {
    Failure::new(Class::ClosedError, format!("{name} is closed"))
}
