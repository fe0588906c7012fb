//! User interrupts: lines of `usr_irq_req`, by which the design on the card interrupts the host.
//!
//! A line is a level (PG195, "User Interrupts"): the design raises it, the core acknowledges the interrupt by `usr_irq_ack`, the host
//! serves the cause in the design's registers, and the design lowers the line. In this module, an interrupt is a *rise* of the line:
//!
//! | Interrupt of the line | An interrupt is counted | Between a rise and its fall |
//! |---|---|---|
//! | a vector of its own ([`Delivery::Message`]) | for each message, so for each rise; interrupts before the first call add up | nothing is counted |
//! | a vector with other users ([`Delivery::SharedMessage`]), or the legacy line ([`Delivery::Level`]) | when the driver samples the line high; several rises between two samples count as one, and a line that is lowered before the sample is not seen | the line is masked, and waits sample it at growing intervals (up to 10 ms) |
//! | none ([`Delivery::Polled`]) | as above | as above |
//!
//! An interrupt before the wait is never lost, because the design holds its line until it is served.
//!
//! A cause that occurs while an earlier one is being served may keep the line high: it never falls, so it does not rise. After serving,
//! call [`UserInterrupt::rearm`]: a line that is still high interrupts again.

mod error;
mod line;
mod set;

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use fpga_pci::Waited;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use fpga_pci::{Deadline, Interrupt, InterruptError, MmioError};
use fpga_registers::xdma::{IRQ_BASE, IrqBlock, MAX_USER_INTERRUPTS};

pub use error::UserInterruptError;
use line::UserInterruptLine;
pub use set::UserInterrupts;

use crate::card::Card;
use crate::error::{At as _, CardPart, Error, ResourceError};

/// Interval in which a wait checks that the card is present, in nanoseconds.
const CHECK_NS: u64 = 100_000_000;
/// Maximum sleep of a wait, in nanoseconds: another handle that masks the line wakes no thread.
const MAX_SLEEP_NS: u64 = 20_000_000;
/// Pause between two samples of a polled line: this fraction of the time waited, and the maximum in nanoseconds.
const PAUSE_FRACTION: u64 = 16;
const MAX_PAUSE_NS: u64 = 10_000_000;
/// Time after which a future sleeps between two polls, and its maximum sleep, in nanoseconds: other tasks need the thread.
const TASK_SPIN_NS: u64 = 20_000;
const MAX_TASK_PAUSE_NS: u64 = 1_000_000;

/// Way in which interrupts of a line reach the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// Own vector (MSI-X, MSI).
    Message,
    /// Vector shared with channels or other user interrupts.
    SharedMessage,
    /// Legacy line (INTx).
    Level,
    /// No interrupts from the card or the system: the line's level is read from the card (register 0x2048).
    Polled,
}

/// User interrupt taken by this program: see [`Card::user_interrupt`] and the [module](self).
///
/// Clones are handles to the same line, for several threads: each interrupt is reported to one of them. Dropping the last one masks the
/// line.
///
/// In an event loop: when the [descriptor](AsFd) is readable, [`take`](Self::take) the interrupts, serve their cause, and call
/// [`rearm`](Self::rearm). (`take` may find none: vectors may be shared, and the descriptor of a polled line is readable every 10 ms.)
#[derive(Debug, Clone)]
pub struct UserInterrupt {
    line: Arc<UserInterruptLine>,
}

/// Level and mask of a user interrupt, read from the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserInterruptState {
    /// Line number.
    pub line: u8,
    /// The line is enabled (unmasked).
    pub enabled: bool,
    /// The design holds the line high.
    pub pending: bool,
    /// Vector that the card uses for it.
    pub vector: u8,
    /// Number of interrupts that this line has requested since the card was created, if the card counts them (simulated cards in this
    /// process).
    pub count: Option<u64>,
}

impl Card {
    /// Takes user interrupt `line` and enables it: a line that is already high interrupts at once. Calls
    /// [`enable_interrupts`](Self::enable_interrupts) if the card's interrupts are not enabled yet. If they cannot be enabled, the line is
    /// polled; [`UserInterrupt::delivery`] reports this.
    ///
    /// # Errors
    /// [`ResourceError::NoSuchUserInterrupt`], [`ResourceError::InUse`], [`ResourceError::Observed`], [`ResourceError::Cause`];
    /// [`ResourceError::Cause`] if the system provides no file descriptor.
    pub fn user_interrupt(&self, line: u8) -> Result<UserInterrupt, Error<ResourceError>> {
        let claim = self.shared.claim_user_line(line).at(|| self.shared.place())?;
        if let Err(error) = self.enable_interrupts() {
            match &error.kind {
                ResourceError::Cause(cause) if cause.get::<InterruptError>().is_some() => {
                    tracing::warn!(card = %self.shared.name, line, error = %cause, "the user interrupt is polled");
                }
                _ => return Err(error),
            }
        }
        let place = || self.shared.place_at(CardPart::UserInterrupt(line));
        let line = UserInterruptLine::take(claim, self.shared.user_interrupt(line)).at(place)?;
        Ok(UserInterrupt { line: Arc::new(line) })
    }

    /// Takes several user interrupts, to wait for them together.
    ///
    /// # Errors
    /// As [`user_interrupt`](Self::user_interrupt); none is taken then.
    pub fn user_interrupts(&self, lines: &[u8]) -> Result<UserInterrupts, Error<ResourceError>> {
        let lines: Result<Vec<_>, _> = lines.iter().map(|line| self.user_interrupt(*line)).collect();
        UserInterrupts::new(lines?).map_err(ResourceError::from).at(|| self.shared.place())
    }

    /// Reads levels and masks of all user interrupts. Changes nothing, so it also works on a card that was [opened for inspection
    /// only](crate::OpenOptions::observe).
    ///
    /// # Errors
    /// [`ResourceError::Cause`].
    pub fn user_interrupt_states(&self) -> Result<Vec<UserInterruptState>, Error<ResourceError>> {
        let bar = &self.shared.dma_bar;
        let read = || -> Result<Vec<UserInterruptState>, MmioError> {
            let enabled = IrqBlock::USER_ENABLE.read(bar, IRQ_BASE)?.into_bits();
            let pending = IrqBlock::USER_PENDING.read(bar, IRQ_BASE)?.into_bits();
            if enabled & pending == u32::MAX {
                return Err(MmioError::Gone { at: IrqBlock::USER_PENDING.address(IRQ_BASE) });
            }
            let mut vectors = Vec::with_capacity(usize::from(MAX_USER_INTERRUPTS));
            for register in IrqBlock::USER_VECTORS {
                vectors.extend(register.read(bar, IRQ_BASE)?.vectors());
            }
            let counted = self.shared.backend.counters().map(|counters| counters.user_interrupts);
            let state = |(line, vector): (u8, u8)| UserInterruptState {
                line,
                enabled: enabled >> line & 1 != 0,
                pending: pending >> line & 1 != 0,
                vector,
                count: counted.and_then(|counts| counts.get(usize::from(line)).copied()),
            };
            Ok((0..MAX_USER_INTERRUPTS).zip(vectors).map(state).collect())
        };
        read().map_err(ResourceError::from).at(|| self.shared.place())
    }
}

impl UserInterrupt {
    /// Returns the line number.
    #[must_use]
    pub fn line(&self) -> u8 {
        self.line.number()
    }

    /// Returns how its interrupts reach the program.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.line.delivery()
    }

    /// Returns the number of interrupts reported since the line was taken, to all its handles.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.line.reported()
    }

    /// Takes the interrupts since the last call and returns their number, 0 if none. Does not block. Costs a register read, unless the line
    /// has its own vector.
    ///
    /// # Errors
    /// [`UserInterruptError::Gone`], [`UserInterruptError::Reset`], [`UserInterruptError::Cause`].
    pub fn take(&self) -> Result<u64, Error<UserInterruptError>> {
        self.line.take_arrived().at(|| self.line.place())
    }

    /// Waits until there is an interrupt, takes all interrupts and returns their number. Returns at once if one came before.
    ///
    /// # Errors
    /// [`UserInterruptError::TimedOut`], [`UserInterruptError::Disabled`]; [`UserInterruptError::Gone`] and [`UserInterruptError::Reset`],
    /// within a tenth of a second, if the card is removed or reset meanwhile.
    pub fn wait(&self, timeout: Duration) -> Result<u64, Error<UserInterruptError>> {
        let mut count = 0;
        wait_any(&[&*self.line], self.line.interrupt(), timeout, || {
            count = self.take()?;
            Ok(count > 0)
        })?;
        Ok(count)
    }

    /// Returns the number of the next interrupts as a future, like [`wait`](Self::wait) without a timeout.
    ///
    /// The library has no runtime that would wake a task when a descriptor becomes readable. The future requests another poll, and sleeps
    /// on the descriptor between two polls, up to 1 ms, so that an idle task costs little. With a runtime that has a reactor (tokio's
    /// `AsyncFd`, async-io's `Async`), pass it the handle, which implements [`AsFd`], and use [`take`](Self::take).
    pub fn arrived(&self) -> impl Future<Output = Result<u64, Error<UserInterruptError>>> + '_ {
        ArrivedFuture { interrupt: self, since: None, checked: 0 }
    }

    /// Rearms the line after the cause of an interrupt was served: a line that is still high (because of another cause, or because the
    /// design was not served) interrupts again. A rise between serving and this call may therefore be reported twice. Costs one or two
    /// posted register writes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn rearm(&self) -> Result<(), Error<UserInterruptError>> {
        self.line.rearm().map_err(UserInterruptError::of).at(|| self.line.place())
    }

    /// Unmasks the line. A line is unmasked when it is taken. A line that is high interrupts at once.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn enable(&self) -> Result<(), Error<UserInterruptError>> {
        self.line.set_enabled(true).map_err(UserInterruptError::of).at(|| self.line.place())
    }

    /// Masks the line: no interrupt comes until it is enabled again. Earlier interrupts can still be taken.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn disable(&self) -> Result<(), Error<UserInterruptError>> {
        self.line.set_enabled(false).map_err(UserInterruptError::of).at(|| self.line.place())
    }

    /// Returns whether the line is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.line.is_enabled()
    }

    /// Reads whether the design holds the line high, enabled or not. Costs a register read.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn is_pending(&self) -> Result<bool, Error<UserInterruptError>> {
        self.line.pending().map_err(UserInterruptError::of).at(|| self.line.place())
    }
}

impl AsFd for UserInterrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.expect_event_loop();
        self.line.interrupt().as_fd()
    }
}

impl AsRawFd for UserInterrupt {
    fn as_raw_fd(&self) -> RawFd {
        self.line.expect_event_loop();
        self.line.interrupt().as_raw_fd()
    }
}

/// Waits until `take` returns true. `interrupt` is signalled when one of `lines` may have interrupted.
fn wait_any(
    lines: &[&UserInterruptLine],
    interrupt: &Interrupt,
    timeout: Duration,
    mut take: impl FnMut() -> Result<bool, Error<UserInterruptError>>,
) -> Result<(), Error<UserInterruptError>> {
    let Some((first, backend)) = lines.first().map(|line| (*line, line.backend())) else { return Ok(()) };
    let deadline = Deadline::after(backend, timeout);
    let (mut now, mut checked) = (backend.now(), 0_u64);
    loop {
        // Before the timeout check: this thread may have been without CPU time for longer than the timeout, and interrupts in the meantime
        // came in time.
        if take()? {
            return Ok(());
        }
        if let Some(disabled) = lines.iter().find(|line| !line.is_enabled()) {
            return Err(UserInterruptError::Disabled).at(|| disabled.place());
        }
        let waited = deadline.waited(now);
        if deadline.is_over(now) {
            // A card that is gone is reported as such by short waits as well.
            first.check().at(|| first.place())?;
            let lines = lines.iter().map(|line| line.number()).collect();
            let waited = Waited::new(backend, waited);
            return Err(UserInterruptError::TimedOut { lines, waited }).at(|| first.card_place());
        }
        let left = deadline.left(now);
        if lines.iter().any(|line| line.needs_polling()) {
            back_off(first, interrupt, pause(waited, MAX_PAUSE_NS).min(left))?;
        } else {
            back_off(first, interrupt, MAX_SLEEP_NS.min(left))?;
        }
        now = backend.now();
        let waited = deadline.waited(now);
        // A card that is gone sends nothing. Reads of the register detect that as well.
        if waited.saturating_sub(checked) >= CHECK_NS {
            checked = waited;
            first.check().at(|| first.place())?;
        }
    }
}

/// Returns the pause between two samples after `waited` nanoseconds.
fn pause(waited: u64, longest: u64) -> u64 {
    (waited / PAUSE_FRACTION).clamp(1000, longest)
}

/// Sleeps until an interrupt, for at most `span` nanoseconds.
fn back_off(
    line: &UserInterruptLine,
    interrupt: &Interrupt,
    span: u64,
) -> Result<(), Error<UserInterruptError>> {
    let (backend, span) = (line.backend(), Duration::from_nanos(span));
    if line.delivery() == Delivery::Polled {
        backend.pause(span);
        return Ok(());
    }
    let woken =
        backend.wait_interrupt(interrupt, span).map_err(UserInterruptError::from).at(|| line.place())?;
    // Interrupts taken from the line's own descriptor belong to the line.
    if let Some(count) = woken
        && core::ptr::eq(interrupt, line.interrupt())
    {
        line.note(count);
    }
    Ok(())
}

/// Future of interrupts; see [`UserInterrupt::arrived`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
struct ArrivedFuture<'a> {
    interrupt: &'a UserInterrupt,
    /// Time of the first poll.
    since: Option<u64>,
    /// Time of the last check of the card.
    checked: u64,
}

impl ArrivedFuture<'_> {
    fn sample_level(&mut self) -> Result<Option<u64>, Error<UserInterruptError>> {
        let line = &*self.interrupt.line;
        let take = || line.take_arrived().map(|count| (count > 0).then_some(count)).at(|| line.place());
        if let Some(count) = take()? {
            return Ok(Some(count));
        }
        if !line.is_enabled() {
            return Err(UserInterruptError::Disabled).at(|| line.place());
        }
        let backend = line.backend();
        let now = backend.now();
        let since = *self.since.get_or_insert(now);
        let waited = now.saturating_sub(since);
        if waited.saturating_sub(self.checked) >= CHECK_NS {
            self.checked = waited;
            line.check().at(|| line.place())?;
        }
        if waited < TASK_SPIN_NS {
            backend.relax();
        } else {
            back_off(line, line.interrupt(), pause(waited, MAX_TASK_PAUSE_NS))?;
        }
        take()
    }
}

impl Future for ArrivedFuture<'_> {
    type Output = Result<u64, Error<UserInterruptError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.sample_level().transpose() {
            Some(ended) => Poll::Ready(ended),
            None => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
