//! Cancellations of transfers and aborts, which do not hold the channel while the engine finishes its current descriptor.

use std::time::{Duration, Instant};

use fpga_driver::Ticket;

use super::Engine;
use crate::error::{Class, Failure};
use crate::memory::Use;
use crate::wait::Limit;

/// Time for an engine to stop, as for the driver's `cancel`: the longest descriptor on the slowest link.
pub(in crate::channel) const MAX_STOP: Duration = Duration::from_secs(2);
/// Time for which a call waits for an engine to stop, at least.
pub(in crate::channel) const MIN_STOP: Duration = Duration::from_millis(25);
/// Time after which a wait for a transfer that is being cancelled ends, although the engine has not stopped.
const PATIENCE: Duration = Duration::from_millis(10);
/// Pause between two checks of an engine that is to stop.
pub(in crate::channel) const STEP: Duration = Duration::from_micros(50);

/// Transfers of a call that has ended early: consecutive ones, to be cancelled.
pub(in crate::channel) struct Orphan {
    pub(in crate::channel) first: Ticket,
    pub(in crate::channel) last: Ticket,
    /// Time for the engine to stop; then the channel counts as hung.
    pub(in crate::channel) limit: Duration,
    /// Declared for its drop: the memory is in use until the transfers have ended.
    pub(in crate::channel) _memory: Option<Use>,
}

struct Cancel {
    orphan: Orphan,
    /// Number of the next transfer to cancel, from the last one to the first one; below the first one: all are withdrawn.
    next: Option<u64>,
    began: Instant,
    /// Its call has reported a failure: what the transfers end with is dropped.
    given_up: bool,
}

/// Cancellations and an abort in progress.
#[derive(Default)]
pub(in crate::channel) struct Stops {
    cancels: Vec<Cancel>,
    abort: Option<Instant>,
}

impl Stops {
    /// Whether the call of the transfer has ended, so that no caller waits for its outcome.
    pub(in crate::channel) fn is_given_up(&self, ticket: Ticket) -> bool {
        self.cancels
            .iter()
            .any(|cancel| cancel.given_up && cancel.orphan.first <= ticket && ticket <= cancel.orphan.last)
    }

    /// Time since which the transfer is to end early.
    fn began(&self, ticket: Ticket) -> Option<Instant> {
        let cancel = self
            .cancels
            .iter()
            .find(|cancel| cancel.orphan.first <= ticket && ticket <= cancel.orphan.last)
            .map(|cancel| cancel.began);
        cancel.or(self.abort)
    }
}

impl Engine {
    #[inline]
    pub(in crate::channel) fn is_stopping(&self) -> bool {
        !self.stops.cancels.is_empty() || self.stops.abort.is_some()
    }

    /// Takes over the transfers of a call that has ended.
    pub(in crate::channel) fn adopt(&mut self, orphan: Orphan) {
        for number in (orphan.first.number()..=orphan.last.number()).rev() {
            let ticket = Ticket::from_number(number);
            self.forget(ticket);
            if self.has_ended(ticket) {
                break;
            }
        }
        if !self.has_ended(orphan.last) {
            let many = orphan.last.number() - orphan.first.number() > 0;
            // Nothing else is in flight: one abort instead of many cancellations.
            if many && self.is_alone() && self.stops.abort.is_none() {
                self.stops.abort = Some(Instant::now());
            }
            self.begin_cancel(orphan, true);
        }
    }

    /// Begins to cancel transfers.
    pub(in crate::channel) fn begin_cancel(&mut self, orphan: Orphan, given_up: bool) {
        let next = Some(orphan.last.number());
        self.stops.cancels.push(Cancel { orphan, next, began: Instant::now(), given_up });
    }

    pub(in crate::channel) fn begin_abort(&mut self) {
        self.stops.abort.get_or_insert_with(Instant::now);
    }

    pub(in crate::channel) const fn is_aborting(&self) -> bool {
        self.stops.abort.is_some()
    }

    /// Whether the transfer is still to be cancelled.
    pub(in crate::channel) fn is_cancelling(&self, ticket: Ticket) -> bool {
        let holds = |cancel: &Cancel| cancel.orphan.first <= ticket && ticket <= cancel.orphan.last;
        self.stops.cancels.iter().any(|cancel| holds(cancel) && cancel.next.is_some())
    }

    /// Polls, and continues cancellations and an abort, without waiting.
    ///
    /// # Errors
    /// Errors of the channel.
    pub(in crate::channel) fn press_on(&mut self) -> Result<(), Failure> {
        let pressed = self.press();
        // Transfers that have ended were settled.
        let mut cancels = std::mem::take(&mut self.stops.cancels);
        cancels.retain(|cancel| !self.has_ended(cancel.orphan.last));
        self.stops.cancels = cancels;
        pressed
    }

    fn press(&mut self) -> Result<(), Failure> {
        if self.stops.abort.is_some() {
            let aborted = self.direct.try_abort(MAX_STOP);
            let aborted = self.settled(aborted);
            if !matches!(aborted, Ok(None)) {
                self.stops.abort = None;
            }
            return aborted.map(drop);
        }
        for at in 0..self.stops.cancels.len() {
            while let Some(cancel) = self.stops.cancels.get(at)
                && let Some(number) = cancel.next
            {
                let (limit, first) = (cancel.orphan.limit, cancel.orphan.first.number());
                let ticket = Ticket::from_number(number);
                let cancelled = self.direct.try_cancel(ticket, limit);
                let cancelled = self.settled(cancelled)?;
                if cancelled.is_none() {
                    // The engine finishes its descriptor. The others continue when it has stopped.
                    return Ok(());
                }
                if let Some(cancel) = self.stops.cancels.get_mut(at) {
                    // Earlier ones of a transfer that had ended have ended.
                    cancel.next =
                        number.checked_sub(1).filter(|next| cancelled == Some(true) && *next >= first);
                }
            }
        }
        Ok(())
    }

    /// A part of a wait while something is being stopped.
    #[cold]
    pub(in crate::channel) fn wait_stopping(
        &mut self,
        ticket: Ticket,
        limit: &mut Limit,
    ) -> Result<bool, Failure> {
        self.press_on()?;
        self.poll()?;
        if self.has_ended(ticket) {
            return Ok(true);
        }
        if self.stops.began(ticket).is_some_and(|began| began.elapsed() >= PATIENCE) {
            return Err(Failure::new(
                Class::Fault,
                "the transfer was cancelled; the engine has not stopped yet",
            )
            .advice("wait for the cancel or abort, which reports the end; if it fails, recover the card (card.recover)")
            .on_part(self.card.name(), &self.label()));
        }
        if limit.is_over() {
            let message = format!("the transfer has not ended after {:?}", limit.total());
            return Err(Failure::new(Class::TimedOut, message)
                .advice("wait longer (timeout=...)")
                .on_part(self.card.name(), &self.label()));
        }
        self.card.pause(STEP);
        limit.spend(STEP);
        Ok(false)
    }
}
