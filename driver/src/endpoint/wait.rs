//! Waiting: a short spin, then a sleep that the event ring's interrupt ends, or the next timer.
//!
//! Events are taken in memory, so whoever polls pays nothing for interrupts: the line is masked at the card unless somebody sleeps. It is
//! high while the card has written events that the host has not given back (EVENT_CONSUMED). Before a sleep everything taken is given
//! back, the line is unmasked, and the ring is looked at once more: what came before that does not signal, and a line that is up by
//! then sends its message at once.
//!
//! A rest has three parts, so that an endpoint that threads share is theirs while one of them sleeps: [`Endpoint::begin_wait`] says how
//! to rest and arms the line, [`WaitAction::take`] needs nothing of the endpoint, [`Endpoint::end_wait`] masks the line.

use std::time::Duration;

use fpga_firmware::generated::ni as at;
use fpga_pci::wait::BackoffStep;
use fpga_pci::{Backend, Backoff, Deadline, Interrupt, InterruptError};
use fpga_protocol::Nanos;

use super::{Endpoint, EndpointError};
use crate::card::Card;
use crate::engine_interrupt::EngineInterrupt;
use crate::ni::Block;

/// The longest sleep: an interrupt can be lost.
const MAX_SLEEP: Nanos = Nanos::from_millis(100);
/// A task pauses for so long at most: others wait for its thread.
const MAX_TASK_PAUSE: Nanos = Nanos::from_micros(50);

/// How a wait goes on that finds nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleWait {
    /// When there was something to do for the last time.
    since: Nanos,
    /// An interrupt has come since.
    woken: bool,
    backoff: Backoff,
}

/// How a wait rests that has nothing to do.
#[derive(Debug)]
pub(super) enum WaitAction {
    /// Not yet: the line has just been armed, and what came before that does not signal.
    Poll,
    /// A step of the backoff.
    Step(BackoffStep),
    /// This thread sleeps until the interrupt, and for so long at most.
    Sleep(Interrupt, Duration),
}

impl IdleWait {
    pub(super) const fn from(now: Nanos) -> Self {
        Self { since: now, woken: false, backoff: Backoff::new() }
    }

    pub(super) fn is_spinning(self, now: Nanos) -> bool {
        self.step(now, Nanos::MAX) == BackoffStep::Spin
    }

    /// Without an interrupt, until `wake` at the latest.
    fn step(self, now: Nanos, wake: Nanos) -> BackoffStep {
        self.backoff.step(now.saturating_sub(self.since).get(), wake.saturating_sub(now).get())
    }

    /// In a task, whose thread others need.
    pub(super) fn pause_in_task(&mut self, transport: &dyn Backend) {
        let now = Nanos::new(transport.now());
        let step = self.step(now, now.saturating_add(MAX_TASK_PAUSE));
        self.backoff.take(step, transport);
    }
}

impl WaitAction {
    /// Whether somebody sleeps then, for whom others need not.
    pub(super) const fn is_sleep(&self) -> bool {
        matches!(self, Self::Step(BackoffStep::Sleep(_)) | Self::Sleep(..))
    }

    /// Rests. Returns whether an interrupt has come.
    pub(super) fn take(&self, idle: &mut IdleWait, transport: &dyn Backend) -> Result<bool, InterruptError> {
        match self {
            Self::Poll => {}
            Self::Step(step) => {
                idle.backoff.take(*step, transport);
            }
            Self::Sleep(interrupt, limit) => {
                return transport.wait_interrupt(interrupt, *limit).map(|woken| woken.is_some());
            }
        }
        Ok(false)
    }
}

/// The event ring's interrupt, if the card's interrupts are enabled.
pub(super) fn event_line(
    card: &Card,
    ni: &Block,
    line: u8,
) -> Result<Option<EngineInterrupt>, EndpointError> {
    let taken = EngineInterrupt::take(&card.shared, line);
    let value = match taken {
        Some(_) => at::event_interrupt::ENABLE | u32::from(line) << at::event_interrupt::LINE_SHIFT,
        // Whatever an earlier owner had chosen.
        None => 0,
    };
    ni.write(at::EVENT_INTERRUPT, value)
        .map_err(|source| EndpointError::Mmio { card: card.shared.name.clone(), source })?;
    Ok(taken)
}

impl Endpoint {
    /// Drives the endpoint until `take` finds something, and sleeps where there is nothing to do.
    pub(super) fn wait_until<T>(
        &mut self,
        timeout: Duration,
        late: impl FnOnce(&Self) -> EndpointError,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, EndpointError> {
        let deadline = Deadline::after(&*self.card.shared.transport, timeout);
        let limit = Nanos::new(deadline.end());
        let mut idle = IdleWait::from(self.now());
        let found = loop {
            let polled = self.poll();
            if let Some(found) = take(self) {
                break Ok(found);
            }
            let now = self.now();
            match polled {
                Err(error) => break Err(error),
                Ok(_) if deadline.is_over(now.get()) => break Err(late(self)),
                Ok(0) => {
                    let rest = self.begin_wait(&mut idle, limit)?;
                    let woken = rest.take(&mut idle, &*self.card.shared.transport);
                    self.end_wait(&mut idle, &rest, woken)?;
                }
                Ok(_) => idle = IdleWait::from(now),
            }
        };
        self.disarm();
        found
    }

    /// What has to be done though the card tells nothing: a timer, or a transfer of header blocks whose end nobody signals.
    fn next_poll_time(&self, now: Nanos) -> Nanos {
        if self.transmit.is_uploading() || self.reads.has_requests() {
            return now;
        }
        let mirror = self.mirror.is_stale().then(|| self.resync.due());
        let timers = [
            self.sender.poll_timeout(),
            self.reads.next_deadline(),
            self.peers.next(),
            self.quiet_until,
            mirror,
        ];
        let watch = if self.transmit.is_idle() { MAX_SLEEP } else { super::transmit::POLL_INTERVAL };
        timers.into_iter().flatten().min().unwrap_or(Nanos::MAX).min(now.saturating_add(watch))
    }

    /// How to rest after a poll that has found nothing, until `limit` at the latest.
    pub(super) fn begin_wait(
        &mut self,
        idle: &mut IdleWait,
        limit: Nanos,
    ) -> Result<WaitAction, EndpointError> {
        let mmio = |source| EndpointError::Mmio { card: self.card.shared.name.clone(), source };
        let now = self.now();
        let wake = self.next_poll_time(now).min(limit);
        if wake <= now || idle.is_spinning(now) {
            return Ok(WaitAction::Step(BackoffStep::Spin));
        }
        let Some(line) = &mut self.line else { return Ok(WaitAction::Step(idle.step(now, wake))) };
        if std::mem::take(&mut idle.woken) {
            line.rearm_shared_line().map_err(mmio)?;
        }
        if line.is_armed() {
            let limit = Duration::from_nanos(wake.saturating_sub(now).get());
            return Ok(WaitAction::Sleep(line.interrupt(), limit));
        }
        self.events.release(&self.ni, true)?;
        line.arm().map_err(mmio)?;
        Ok(WaitAction::Poll)
    }

    /// After `rest`, which an interrupt has ended if `woken` says so.
    pub(super) fn end_wait(
        &mut self,
        idle: &mut IdleWait,
        rest: &WaitAction,
        woken: Result<bool, InterruptError>,
    ) -> Result<(), EndpointError> {
        if let WaitAction::Sleep(..) = rest {
            self.disarm();
            idle.woken = woken
                .map_err(|source| EndpointError::Interrupt { card: self.card.shared.name.clone(), source })?;
        }
        Ok(())
    }

    /// Masks the line, if nobody sleeps any more. A card that cannot be told has died, and the next poll says so: nothing that has ended is
    /// to be lost over it.
    pub(super) fn disarm(&mut self) {
        if let Some(line) = self.line.as_mut().filter(|line| line.is_armed()) {
            let _ = line.disarm();
        }
    }
}
