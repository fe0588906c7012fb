//! Waiting for copies by polling, by interrupt, or by polling first and interrupt later.

use core::time::Duration;
use std::sync::Arc;

use fpga_pci::{Backoff, Deadline};
use fpga_ring::cdma_ring::Token;

use super::error::{CdmaError, CdmaRingError};
use super::ring::{CdmaCompletion, CdmaRing};
use crate::channel::{Ticket, WaitMode, WaitOptions};
use crate::error::{At as _, Error};

/// Maximum sleep in nanoseconds: an interrupt can be lost.
const SLEEP_LIMIT_NS: u64 = 100_000_000;

impl<T> CdmaRing<T> {
    /// Waits until `ticket`'s copy, and so every earlier one, has ended, and takes its completion.
    ///
    /// # Errors
    /// [`CdmaRingError::TimedOut`] and [`CdmaRingError::Cancelled`] leave the copy in flight: wait again, or [`abort`](Self::abort).
    pub fn wait(
        &mut self,
        ticket: Ticket,
        options: WaitOptions,
    ) -> Result<CdmaCompletion<T>, Error<CdmaRingError>> {
        self.wait_and_disarm(ticket, options).at(|| self.place())
    }

    fn wait_and_disarm(
        &mut self,
        ticket: Ticket,
        options: WaitOptions,
    ) -> Result<CdmaCompletion<T>, CdmaRingError> {
        self.cdma.card.check_process().map_err(CdmaError::from)?;
        self.wanted = Some(Token::new(ticket.0));
        let waited = self.wait_for(ticket, options);
        self.wanted = None;
        let disarmed = self.disarm();
        let done = waited?;
        disarmed?;
        Ok(done)
    }

    fn wait_for(&mut self, ticket: Ticket, options: WaitOptions) -> Result<CdmaCompletion<T>, CdmaRingError> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let backend = Arc::clone(&self.cdma.card.backend);
        let deadline = Deadline::after(&*backend, options.timeout.min(options.total));
        let (mut backoff, mut ended) = (Backoff::new(), self.ring.ended());
        let mut now = self.now();
        loop {
            // A failure of the ring is reported once, by the call that detects it; completions can be taken afterwards.
            let was_dead = self.failed.is_some();
            let polled = self.poll_ring();
            if !was_dead {
                polled.as_ref().map_err(Clone::clone)?;
            }
            if let Some(done) = self.take(ticket) {
                return done;
            }
            polled?;
            // Read before the poll: copies that ended while this thread was delayed have ended in time.
            let waited = deadline.waited(now);
            if options.cancel.is_some_and(|cancel| cancel.is_requested()) {
                return Err(CdmaRingError::Cancelled { waited: self.cdma.waited(waited) });
            }
            if deadline.is_over(now) {
                return Err(self.timed_out(waited));
            }
            let spins = match options.mode {
                WaitMode::Poll => true,
                WaitMode::Hybrid { spin } => waited < nanoseconds(spin),
                WaitMode::Interrupt => false,
            };
            if spins {
                if core::mem::replace(&mut ended, self.ring.ended()) != self.ring.ended() {
                    backoff.reset();
                }
                backoff.back_off(&*backend, deadline.left(now));
            } else {
                self.sleep(deadline.left(now).min(options.max_sleep()))?;
            }
            now = self.now();
        }
    }

    /// Returns `ticket`'s completion; `None` while it is in flight; an error if it can never complete.
    fn take(&mut self, ticket: Ticket) -> Option<Result<CdmaCompletion<T>, CdmaRingError>> {
        if ticket.0 >= self.ring.ended() && ticket.0 < self.ring.submitted() {
            return None;
        }
        let at = self.finished.iter().position(|done| done.ticket == ticket);
        let done = at.and_then(|at| self.finished.remove(at));
        Some(done.ok_or(CdmaRingError::UnknownTicket))
    }

    fn sleep(&mut self, at_most: u64) -> Result<(), CdmaRingError> {
        if self.ring.outstanding() == 0 {
            // The descriptors are still in flight to the card, so the engine would not raise an interrupt.
            self.relax();
            return Ok(());
        }
        let Some(line) = &mut self.line else {
            return Err(CdmaRingError::NoInterrupt);
        };
        if !line.is_armed() {
            // Clear the cause first, then unmask: the line has to fall so that the next event raises it. Copies that ended before this do
            // not signal: poll once more before sleeping.
            self.cdma.clear_interrupts()?;
            return line.arm().map_err(|source| CdmaError::from(source).into());
        }
        let limit = Duration::from_nanos(at_most.min(SLEEP_LIMIT_NS));
        let woken = line.wait(limit);
        self.disarm()?;
        let woken = woken.map_err(CdmaRingError::from)?;
        // Woken without progress, or not woken: the status register shows an engine that has halted.
        if self.poll_ring()? == 0 || woken.is_none() {
            self.check_status()?;
            if let Some(line) = self.line.as_ref().filter(|_| woken.is_some()) {
                line.rearm_shared_line().map_err(CdmaError::from)?;
            }
        }
        Ok(())
    }

    fn disarm(&mut self) -> Result<(), CdmaRingError> {
        match &mut self.line {
            Some(line) if line.is_armed() => line.disarm().map_err(|source| CdmaError::from(source).into()),
            _ => Ok(()),
        }
    }

    #[cold]
    pub(super) fn timed_out(&self, waited: u64) -> CdmaRingError {
        match self.cdma.read_status() {
            Ok(status) => CdmaRingError::TimedOut {
                waited: self.cdma.waited(waited),
                status,
                outstanding: self.ring.outstanding(),
            },
            Err(error) => error.into(),
        }
    }
}
