//! Waiting: a short spin, then a sleep that the event ring's interrupt ends, or the next timer.
//!
//! Events are taken in memory, so whoever polls pays nothing for interrupts: the line is masked at the card unless somebody sleeps. It is
//! high while the card has written events that the host has not given back (EVENT_CONSUMED). Before a sleep everything taken is given
//! back, the line is unmasked, and the ring is looked at once more: what came before that does not signal, and a line that is up by
//! then sends its message at once.
//!
//! A rest has three parts, so that an endpoint that threads share is theirs while one of them sleeps: [`Endpoint::begin_rest`] says how
//! to rest and arms the line, [`Rest::take`] needs nothing of the endpoint, [`Endpoint::end_rest`] masks the line.

use std::time::Duration;

use fpga_core::Nanos;
use fpga_firmware::generated::ni as at;
use fpga_pci::{Interrupt, InterruptError, Transport};

use super::{Endpoint, EndpointError};
use crate::card::Card;
use crate::ni::Block;
use crate::user_line::UserLine;

/// So long a wait looks without a pause: an answer of a network nearby is here by then.
const SPIN: Nanos = Nanos::from_micros(20);
/// Without an interrupt it is only from here on that a wait pauses; before, it gives the processor away between two looks. A pause of any
/// length takes some 60 us (Linux lets timers be late by 50 us), which must be little beside what was waited already.
const PATIENT_SPIN: Nanos = Nanos::from_millis(1);
/// The longest sleep: an interrupt can be lost.
const LONGEST: Nanos = Nanos::from_millis(100);
/// Without an interrupt: pauses of this part of the time that has been waited, so that nobody is late by more, and the longest.
const PAUSE_SHARE: u64 = 16;
const LONGEST_PAUSE: Nanos = Nanos::from_millis(1);
/// A task pauses for so long at most: others wait for its thread.
const TASK_PAUSE: Nanos = Nanos::from_micros(50);

/// How a wait goes on that finds nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    /// When there was something to do for the last time.
    since: Nanos,
    /// An interrupt has come since.
    woken: bool,
}

/// How a wait rests that has nothing to do.
#[derive(Debug)]
pub(super) enum Rest {
    /// Not yet: the line has just been armed, and what came before that does not signal.
    Look,
    /// Lets the card work.
    Relax,
    /// The same, and others have the processor in between.
    Yield,
    /// This thread sleeps for so long.
    Pause(Duration),
    /// This thread sleeps until the interrupt, and for so long at most.
    Sleep(Interrupt, Duration),
}

impl Idle {
    pub(super) const fn from(now: Nanos) -> Self {
        Self { since: now, woken: false }
    }

    pub(super) fn is_spinning(self, now: Nanos) -> bool {
        now.saturating_sub(self.since) < SPIN
    }

    /// Without an interrupt, until `wake` at the latest.
    fn pause(self, now: Nanos, wake: Nanos) -> Rest {
        let waited = now.saturating_sub(self.since);
        if waited < SPIN || wake <= now {
            return Rest::Relax;
        }
        if waited < PATIENT_SPIN {
            return Rest::Yield;
        }
        let share = Nanos::new(waited.get() / PAUSE_SHARE).min(LONGEST_PAUSE);
        Rest::Pause(Duration::from_nanos(share.min(wake.saturating_sub(now)).get()))
    }

    /// In a task, whose thread others need.
    pub(super) fn pause_in_task(self, transport: &dyn Transport) {
        let now = Nanos::new(transport.now());
        // Nothing can fail where no interrupt is waited for.
        let _ = self.pause(now, now.saturating_add(TASK_PAUSE)).take(transport);
    }
}

impl Rest {
    /// Whether somebody sleeps then, for whom others need not.
    pub(super) const fn is_sleep(&self) -> bool {
        matches!(self, Self::Pause(_) | Self::Sleep(..))
    }

    /// Rests. Returns whether an interrupt has come.
    pub(super) fn take(&self, transport: &dyn Transport) -> Result<bool, InterruptError> {
        match self {
            Self::Look => {}
            Self::Relax => transport.relax(),
            Self::Yield => {
                transport.relax();
                std::thread::yield_now();
            }
            Self::Pause(span) => transport.pause(*span),
            Self::Sleep(interrupt, limit) => {
                return transport.wait_interrupt(interrupt, *limit).map(|woken| woken.is_some());
            }
        }
        Ok(false)
    }
}

/// The event ring's interrupt, if the card's interrupts are enabled.
pub(super) fn event_line(card: &Card, ni: &Block, line: u8) -> Result<Option<UserLine>, EndpointError> {
    let taken = UserLine::take(&card.shared, line);
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
        let span = Nanos::new(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let limit = self.now().saturating_add(span);
        let mut idle = Idle::from(self.now());
        let found = loop {
            let polled = self.poll();
            if let Some(found) = take(self) {
                break Ok(found);
            }
            let now = self.now();
            match polled {
                Err(error) => break Err(error),
                Ok(_) if now >= limit => break Err(late(self)),
                Ok(0) => {
                    let rest = self.begin_rest(&mut idle, limit)?;
                    let woken = rest.take(&*self.card.shared.transport);
                    self.end_rest(&mut idle, &rest, woken)?;
                }
                Ok(_) => idle = Idle::from(now),
            }
        };
        self.disarm();
        found
    }

    /// What has to be done though the card tells nothing: a timer, or a transfer of header blocks whose end nobody signals.
    fn next_look(&self, now: Nanos) -> Nanos {
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
        let watch = if self.transmit.is_idle() { LONGEST } else { super::transmit::LOOK };
        timers.into_iter().flatten().min().unwrap_or(Nanos::MAX).min(now.saturating_add(watch))
    }

    /// How to rest after a poll that has found nothing, until `limit` at the latest.
    pub(super) fn begin_rest(&mut self, idle: &mut Idle, limit: Nanos) -> Result<Rest, EndpointError> {
        let mmio = |source| EndpointError::Mmio { card: self.card.shared.name.clone(), source };
        let now = self.now();
        let wake = self.next_look(now).min(limit);
        if wake <= now || idle.is_spinning(now) {
            return Ok(Rest::Relax);
        }
        let Some(line) = &mut self.line else { return Ok(idle.pause(now, wake)) };
        if std::mem::take(&mut idle.woken) {
            line.quiet_others().map_err(mmio)?;
        }
        if line.is_armed() {
            let limit = Duration::from_nanos(wake.saturating_sub(now).get());
            return Ok(Rest::Sleep(line.interrupt(), limit));
        }
        self.events.release(&self.ni, true)?;
        line.arm().map_err(mmio)?;
        Ok(Rest::Look)
    }

    /// After `rest`, which an interrupt has ended if `woken` says so.
    pub(super) fn end_rest(
        &mut self,
        idle: &mut Idle,
        rest: &Rest,
        woken: Result<bool, InterruptError>,
    ) -> Result<(), EndpointError> {
        if let Rest::Sleep(..) = rest {
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
