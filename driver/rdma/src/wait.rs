//! Waiting: a short spin, then a sleep until the event ring's interrupt or the next timer.
//!
//! Events are read from memory, so polling has no interrupt cost: the line is masked at the card unless a thread sleeps. The line is high
//! while the card has written events whose credits the host has not returned (EVENT_CONSUMED). Before a sleep all credits are returned, the
//! line is unmasked, and the ring is polled once more: earlier events do not signal, and a line that is already high sends its message at
//! once.
//!
//! A wait has three parts, so that threads that share the endpoint can use it while one of them sleeps: [`Endpoint::begin_wait`] chooses
//! the action and arms the line, [`WaitAction::take`] needs no access to the endpoint, and [`Endpoint::end_wait`] masks the line.

use std::time::Duration;

use fpga_firmware::generated::ni as at;
use fpga_pci::wait::BackoffStep;
use fpga_pci::{Backend, Backoff, Deadline, Interrupt, InterruptError, MmioError, ServerError, Waited};
use fpga_protocol::Nanos;
use fpga_registers::xdma::{IRQ_BASE, IrqBlock};

use super::{Endpoint, EndpointError};
use fpga_driver::extension::EngineInterrupt;
use fpga_driver::extension::RegisterBlock;
use fpga_driver::{Cancellation, Card};

/// Maximum sleep: an interrupt can be lost.
const MAX_SLEEP: Nanos = Nanos::from_millis(100);
/// Time without work after which, and interval in which, a poll looks whether the card is present.
const PRESENCE_INTERVAL: Nanos = Nanos::from_millis(50);
/// Maximum pause of a task: other tasks need its thread.
const MAX_TASK_PAUSE: Nanos = Nanos::from_micros(50);

/// State of a wait that finds nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleWait {
    /// Time of the last work.
    since: Nanos,
    /// An interrupt has arrived since.
    woken: bool,
    backoff: Backoff,
}

/// Action of a wait that has nothing to do.
#[derive(Debug)]
pub(super) enum WaitAction {
    /// Poll again: the line was just armed, and earlier events do not signal.
    Poll,
    /// A step of the backoff.
    Step(BackoffStep),
    /// Sleep until the interrupt, for at most the given time.
    Sleep(Interrupt, Duration),
}

impl IdleWait {
    pub(super) const fn from(now: Nanos) -> Self {
        Self { since: now, woken: false, backoff: Backoff::new() }
    }

    pub(super) fn is_spinning(self, now: Nanos) -> bool {
        self.step(now, Nanos::MAX) == BackoffStep::Spin
    }

    /// Returns the next backoff step without an interrupt, until `wake` at most.
    fn step(self, now: Nanos, wake: Nanos) -> BackoffStep {
        self.backoff.step(now.saturating_sub(self.since).get(), wake.saturating_sub(now).get())
    }

    /// Pauses in a task, whose thread other tasks need.
    pub(super) fn pause_in_task(&mut self, backend: &dyn Backend) {
        let now = Nanos::new(backend.now());
        let step = self.step(now, now.saturating_add(MAX_TASK_PAUSE));
        self.backoff.take(step, backend);
    }
}

impl WaitAction {
    /// Returns whether this action sleeps, so that other threads need not.
    pub(super) const fn is_sleep(&self) -> bool {
        matches!(self, Self::Step(BackoffStep::Sleep(_)) | Self::Sleep(..))
    }

    /// Executes the action. Returns whether an interrupt has arrived.
    pub(super) fn take(&self, idle: &mut IdleWait, backend: &dyn Backend) -> Result<bool, InterruptError> {
        match self {
            Self::Poll => {}
            Self::Step(step) => {
                idle.backoff.take(*step, backend);
            }
            Self::Sleep(interrupt, limit) => {
                return backend.wait_interrupt(interrupt, *limit).map(|woken| woken.is_some());
            }
        }
        Ok(false)
    }
}

/// Takes the event ring's interrupt, if the card's interrupts are enabled.
pub(super) fn event_line(
    card: &Card,
    ni: &RegisterBlock,
    line: u8,
) -> Result<Option<EngineInterrupt>, EndpointError> {
    let taken = card.engine_interrupt(line);
    let value = match taken {
        Some(_) => at::event_interrupt::ENABLE | u32::from(line) << at::event_interrupt::LINE_SHIFT,
        // Overrides the choice of an earlier owner.
        None => 0,
    };
    ni.write(at::EVENT_INTERRUPT, value).map_err(EndpointError::from)?;
    Ok(taken)
}

impl Endpoint {
    /// Drives the endpoint until `take` returns a value. Sleeps when there is nothing to do.
    pub(super) fn wait_until<T>(
        &mut self,
        timeout: Duration,
        late: impl FnOnce(&Self) -> EndpointError,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, EndpointError> {
        let deadline = Deadline::after(&**self.card.backend(), timeout);
        let limit = Nanos::new(deadline.end());
        let mut idle = IdleWait::from(self.time());
        let found = loop {
            let polled = self.poll_once();
            if let Some(found) = take(self) {
                break Ok(found);
            }
            let now = self.time();
            match polled {
                Err(error) => break Err(error),
                Ok(_) if self.waits.cancel.is_some_and(|cancel| cancel.is_requested()) => {
                    let waited = Waited::new(&**self.card.backend(), deadline.waited(now.get()));
                    break Err(EndpointError::Cancelled { waited });
                }
                Ok(_) if deadline.is_over(now.get()) => break Err(late(self)),
                Ok(0) => {
                    let limit = match self.waits.cancel {
                        Some(_) => limit.min(now.saturating_add(Nanos::from(Cancellation::CHECK_INTERVAL))),
                        None => limit,
                    };
                    let rest = self.begin_wait(&mut idle, limit)?;
                    let woken = rest.take(&mut idle, &**self.card.backend());
                    self.end_wait(&mut idle, &rest, woken)?;
                }
                Ok(_) => idle = IdleWait::from(now),
            }
        };
        self.disarm();
        found
    }

    /// Returns the time of the next work that the card does not signal: a timer, or a transfer of header blocks, whose end raises no
    /// interrupt.
    pub(super) fn next_poll_time(&self, now: Nanos) -> Nanos {
        if self.transmit.is_uploading() || self.reads.responder.has_requests() {
            return now;
        }
        let mirror = self.receiving.mirror.is_stale().then(|| self.receiving.resync.due());
        let timers = [
            self.sender.poll_timeout(),
            self.reads.requester.next_deadline(),
            self.peers.next(),
            self.quiet_until,
            mirror,
        ];
        let watch = if self.transmit.is_idle() { MAX_SLEEP } else { super::transmit::POLL_INTERVAL };
        timers.into_iter().flatten().min().unwrap_or(Nanos::MAX).min(now.saturating_add(watch))
    }

    /// Looks whether the card is present when polls have found no work for a while: a program may only poll, and polling reads memory.
    pub(super) fn check_presence(&mut self, now: Nanos, has_worked: bool) -> Result<(), EndpointError> {
        if has_worked {
            self.waits.presence_checked = Some(now);
            return Ok(());
        }
        let looked = *self.waits.presence_checked.get_or_insert(now);
        if now.saturating_sub(looked) < PRESENCE_INTERVAL {
            return Ok(());
        }
        self.waits.presence_checked = Some(now);
        self.read_identifier()
    }

    /// Reads a register to find out whether the card is present.
    pub(super) fn read_identifier(&self) -> Result<(), EndpointError> {
        let missing = match IrqBlock::IDENTIFIER.read(self.card.dma_bar(), IRQ_BASE) {
            Ok(identifier) if identifier.into_bits() != u32::MAX => return Ok(()),
            Ok(_) => MmioError::Gone { at: IrqBlock::IDENTIFIER.address(IRQ_BASE) },
            // The card may be there.
            Err(MmioError::Server { source: ServerError::TimedOut { .. }, .. }) => return Ok(()),
            Err(error) => error,
        };
        Err(missing.into())
    }

    /// Returns the action after a poll that found nothing, until `limit` at most.
    pub(super) fn begin_wait(
        &mut self,
        idle: &mut IdleWait,
        limit: Nanos,
    ) -> Result<WaitAction, EndpointError> {
        let now = self.time();
        let wake = self.next_poll_time(now).min(limit).min(now.saturating_add(PRESENCE_INTERVAL));
        if wake <= now || idle.is_spinning(now) {
            return Ok(WaitAction::Step(BackoffStep::Spin));
        }
        let Some(line) = &mut self.waits.line else { return Ok(WaitAction::Step(idle.step(now, wake))) };
        if std::mem::take(&mut idle.woken) {
            line.rearm_shared_line()?;
        }
        if line.is_armed() {
            let limit = Duration::from(wake.saturating_sub(now));
            return Ok(WaitAction::Sleep(line.interrupt(), limit));
        }
        self.events.release(&self.ni, true)?;
        line.arm()?;
        Ok(WaitAction::Poll)
    }

    /// Ends the action `rest`; `woken` shows whether an interrupt ended it.
    pub(super) fn end_wait(
        &mut self,
        idle: &mut IdleWait,
        rest: &WaitAction,
        woken: Result<bool, InterruptError>,
    ) -> Result<(), EndpointError> {
        if let WaitAction::Sleep(..) = rest {
            self.disarm();
            idle.woken = woken.map_err(|error| EndpointError::Interrupt(error.into()))?;
        }
        Ok(())
    }

    /// Masks the line if no thread sleeps. If the write fails, the card is gone, which the next poll reports; a result must not be lost
    /// over it.
    pub(super) fn disarm(&mut self) {
        if let Some(line) = self.waits.line.as_mut().filter(|line| line.is_armed()) {
            let _ = line.disarm();
        }
    }
}
