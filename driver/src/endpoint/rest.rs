//! Waiting: a short spin, then a sleep that the event ring's interrupt ends, or the next timer.
//!
//! Events are taken in memory, so whoever polls pays nothing for interrupts: the line is masked at the card unless somebody sleeps. It is
//! high while the card has written events that the host has not given back (EVENT_CONSUMED). Before a sleep everything taken is given
//! back, the line is unmasked, and the ring is looked at once more: what came before that does not signal, and a line that is up by
//! then sends its message at once.

use std::time::Duration;

use fpga_core::Nanos;
use fpga_firmware::generated::ni as at;
use fpga_pci::Transport;

use super::{Endpoint, EndpointError};
use crate::card::Card;
use crate::ni::Block;
use crate::user_line::UserLine;

/// So long a wait looks without a pause: an answer of a network nearby is here by then.
const SPIN: Nanos = Nanos::from_micros(20);
/// The longest sleep: an interrupt can be lost.
const LONGEST: Nanos = Nanos::from_millis(100);
/// Without an interrupt: pauses of this part of the time that has been waited, so that nobody is late by more, and the longest.
const PAUSE_SHARE: u64 = 16;
const LONGEST_PAUSE: Nanos = Nanos::from_millis(1);

/// How a wait goes on that finds nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    /// When there was something to do for the last time.
    since: Nanos,
    /// An interrupt has come since.
    woken: bool,
}

impl Idle {
    pub(super) const fn from(now: Nanos) -> Self {
        Self { since: now, woken: false }
    }

    /// Without an interrupt, until `wake` at the latest.
    pub(super) fn pause(self, transport: &dyn Transport, wake: Nanos) {
        let now = Nanos::new(transport.now());
        let waited = now.saturating_sub(self.since);
        if waited < SPIN {
            transport.relax();
            return;
        }
        let share = Nanos::new(waited.get() / PAUSE_SHARE).min(LONGEST_PAUSE);
        transport.pause(Duration::from_nanos(share.min(wake.saturating_sub(now)).get()));
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
            let work = self.poll()?;
            if let Some(found) = take(self) {
                break Ok(found);
            }
            let now = self.now();
            if now >= limit {
                break Err(late(self));
            }
            if work == 0 {
                self.rest(&mut idle, limit)?;
            } else {
                idle = Idle::from(now);
            }
        };
        self.disarm()?;
        found
    }

    /// What has to be done though the card tells nothing: a timer, or a transfer of header blocks whose end nobody signals.
    pub(super) fn next_look(&self, now: Nanos) -> Nanos {
        if self.transmit.is_uploading() || self.reads.has_requests() {
            return now;
        }
        let timers =
            [self.sender.poll_timeout(), self.reads.next_deadline(), self.peers.next(), self.quiet_until];
        let watch = if self.transmit.is_idle() { LONGEST } else { super::transmit::LOOK };
        timers.into_iter().flatten().min().unwrap_or(Nanos::MAX).min(now.saturating_add(watch))
    }

    fn rest(&mut self, idle: &mut Idle, limit: Nanos) -> Result<(), EndpointError> {
        let card = || self.card.shared.name.clone();
        let mmio = |source| EndpointError::Mmio { card: card(), source };
        let now = self.now();
        let wake = self.next_look(now).min(limit);
        if wake <= now || now.saturating_sub(idle.since) < SPIN {
            self.relax();
            return Ok(());
        }
        let Some(line) = &mut self.line else {
            idle.pause(&*self.card.shared.transport, wake);
            return Ok(());
        };
        if std::mem::take(&mut idle.woken) {
            line.quiet_others().map_err(mmio)?;
        }
        if !line.is_armed() {
            self.events.release(&self.ni, true)?;
            return line.arm().map_err(mmio);
        }
        let woken = line.wait(Duration::from_nanos(wake.saturating_sub(now).get()));
        line.disarm().map_err(mmio)?;
        idle.woken = woken.map_err(|source| EndpointError::Interrupt { card: card(), source })?.is_some();
        Ok(())
    }

    fn disarm(&mut self) -> Result<(), EndpointError> {
        match &mut self.line {
            Some(line) if line.is_armed() => line
                .disarm()
                .map_err(|source| EndpointError::Mmio { card: self.card.shared.name.clone(), source }),
            _ => Ok(()),
        }
    }
}
