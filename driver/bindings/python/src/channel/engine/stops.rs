//! Cancellations and aborts, which leave the channel to other threads while the engine finishes its current descriptor.

use std::time::{Duration, Instant};

use fpga_driver::Ticket;

use super::Engine;
use crate::error::{Class, Failure};
use crate::memory::Use;
use crate::wait::Limit;

/// Maximum time for an engine to stop, as in the driver's `cancel`: the longest descriptor on the slowest link.
pub(in crate::channel) const MAX_STOP: Duration = Duration::from_secs(2);
/// Minimum time for which a call waits for an engine to stop.
pub(in crate::channel) const MIN_STOP: Duration = Duration::from_millis(25);
/// Maximum wait for a transfer that is being cancelled while the engine has not stopped.
const MAX_WAIT_FOR_STOP: Duration = Duration::from_millis(10);
/// Interval between two checks whether an engine has stopped.
pub(in crate::channel) const STOP_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Consecutive transfers of a call that has ended early, to be cancelled.
pub(in crate::channel) struct Abandoned {
    pub(in crate::channel) first: Ticket,
    pub(in crate::channel) last: Ticket,
    /// Maximum time for the engine to stop; then the channel counts as hung.
    pub(in crate::channel) limit: Duration,
    /// Memory that is in use until the transfers have ended.
    pub(in crate::channel) _memory: Option<Use>,
}

struct Cancel {
    abandoned: Abandoned,
    /// Number of the next transfer to cancel, from the last to the first one; `None`: all are cancelled.
    next: Option<u64>,
    began: Instant,
    /// The call has ended with a failure: results of the transfers are dropped.
    is_call_over: bool,
}

/// Cancellations and an abort in progress.
#[derive(Default)]
pub(in crate::channel) struct Stops {
    cancels: Vec<Cancel>,
    abort: Option<Instant>,
}

impl Stops {
    /// Whether the call that has submitted the transfer has ended.
    pub(in crate::channel) fn is_abandoned(&self, ticket: Ticket) -> bool {
        self.cancels.iter().any(|cancel| {
            cancel.is_call_over && cancel.abandoned.first <= ticket && ticket <= cancel.abandoned.last
        })
    }

    /// Time at which a cancellation or an abort of the transfer began.
    fn began(&self, ticket: Ticket) -> Option<Instant> {
        let cancel = self
            .cancels
            .iter()
            .find(|cancel| cancel.abandoned.first <= ticket && ticket <= cancel.abandoned.last)
            .map(|cancel| cancel.began);
        cancel.or(self.abort)
    }
}

impl Engine {
    #[inline]
    pub(in crate::channel) fn is_stopping(&self) -> bool {
        !self.stops.cancels.is_empty() || self.stops.abort.is_some()
    }

    /// Begins to cancel the transfers of a call that has ended early.
    pub(in crate::channel) fn adopt(&mut self, abandoned: Abandoned) {
        for number in (abandoned.first.number()..=abandoned.last.number()).rev() {
            let ticket = Ticket::from_number(number);
            self.untrack_call(ticket);
            if self.has_ended(ticket) {
                break;
            }
        }
        if !self.has_ended(abandoned.last) {
            let many = abandoned.last.number() - abandoned.first.number() > 0;
            // Nothing else is in flight: one abort instead of many cancellations.
            if many && self.is_alone() && self.stops.abort.is_none() {
                self.stops.abort = Some(Instant::now());
            }
            self.begin_cancel(abandoned, true);
        }
    }

    /// Begins to cancel transfers.
    pub(in crate::channel) fn begin_cancel(&mut self, abandoned: Abandoned, is_call_over: bool) {
        let next = Some(abandoned.last.number());
        self.stops.cancels.push(Cancel { abandoned, next, began: Instant::now(), is_call_over });
    }

    pub(in crate::channel) fn begin_abort(&mut self) {
        self.stops.abort.get_or_insert_with(Instant::now);
    }

    pub(in crate::channel) const fn is_aborting(&self) -> bool {
        self.stops.abort.is_some()
    }

    /// Whether the transfer is still to be cancelled.
    pub(in crate::channel) fn is_cancelling(&self, ticket: Ticket) -> bool {
        let holds = |cancel: &Cancel| cancel.abandoned.first <= ticket && ticket <= cancel.abandoned.last;
        self.stops.cancels.iter().any(|cancel| holds(cancel) && cancel.next.is_some())
    }

    /// Polls, and continues cancellations and an abort, without waiting.
    ///
    /// # Errors
    /// Errors of the channel.
    pub(in crate::channel) fn continue_stops(&mut self) -> Result<(), Failure> {
        let stopped = self.try_stops();
        // Transfers that have ended were take_completions.
        let mut cancels = std::mem::take(&mut self.stops.cancels);
        cancels.retain(|cancel| !self.has_ended(cancel.abandoned.last));
        self.stops.cancels = cancels;
        stopped
    }

    fn try_stops(&mut self) -> Result<(), Failure> {
        if self.stops.abort.is_some() {
            let aborted = self.direct.try_abort(MAX_STOP);
            let aborted = self.take_completions(aborted);
            if !matches!(aborted, Ok(None)) {
                self.stops.abort = None;
            }
            return aborted.map(drop);
        }
        for at in 0..self.stops.cancels.len() {
            while let Some(cancel) = self.stops.cancels.get(at)
                && let Some(number) = cancel.next
            {
                let (limit, first) = (cancel.abandoned.limit, cancel.abandoned.first.number());
                let ticket = Ticket::from_number(number);
                let cancelled = self.direct.try_cancel(ticket, limit);
                let cancelled = self.take_completions(cancelled)?;
                if cancelled.is_none() {
                    // The engine finishes its descriptor; the next call continues.
                    return Ok(());
                }
                if let Some(cancel) = self.stops.cancels.get_mut(at) {
                    // If this transfer had ended, so have the earlier ones.
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
        self.continue_stops()?;
        self.poll()?;
        if self.has_ended(ticket) {
            return Ok(true);
        }
        if self.stops.began(ticket).is_some_and(|began| began.elapsed() >= MAX_WAIT_FOR_STOP) {
            return Err(Failure::new(
                Class::TransferFault,
                "the transfer was cancelled; the engine has not stopped yet",
            )
            .advice("wait for the cancel or abort, which reports the end; if it fails, recover the card (card.recover)")
            .on_part(self.card.name(), &self.label()));
        }
        if limit.is_over() {
            let message = format!("the transfer has not ended after {:?}", limit.total());
            return Err(Failure::new(Class::TimedOutError, message)
                .advice("wait longer (timeout=...)")
                .on_part(self.card.name(), &self.label()));
        }
        self.card.pause(STOP_POLL_INTERVAL);
        limit.spend(STOP_POLL_INTERVAL);
        Ok(false)
    }
}
