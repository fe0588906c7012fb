//! Credits of a subscriber: the number of returned frames, and the leave message.

use std::time::Duration;

use fpga_rdma::{SendFailure, SendOptions};

use super::Subscriber;
use crate::blocks::{BLOCK_BYTES, CreditBlock};
use crate::error::{LocalError, SubscriberError};
use crate::publisher::ControlBlock;
use crate::retries::RetriedTransfer;

/// Maximum delay of a credit return. A publisher of single frames, a few per millisecond, receives one credit for several of them.
const MAX_CREDIT_DELAY: Duration = Duration::from_micros(500);

/// Whether the publisher's card answers, and does not accept the transfer.
const fn is_refusal(failure: &SendFailure) -> bool {
    use SendFailure::{Refused, Scheme, Superseded};
    matches!(failure, Refused { .. } | Scheme { .. } | Superseded { .. })
}

impl Subscriber {
    /// Handles the end of the transfer that carried the credit.
    pub(super) fn take_sent(&mut self) {
        while let Some(done) = self.endpoint.next_completion() {
            if self.credit.ticket != Some(done.ticket) {
                continue;
            }
            self.credit.ticket = None;
            if let ControlBlock::InUse(buffer) = &mut self.credit.carrier
                && let Some(buffer) = buffer.take()
            {
                self.credit.carrier = ControlBlock::Idle(buffer);
            }
            match done.result {
                Ok(()) => {
                    self.credit.failures = 0;
                    self.credit.error = None;
                    self.departure.done |= self.departure.sent;
                }
                // The window is closed: the leave message was received, and its acknowledgement was lost.
                Err(SendFailure::Refused { .. }) if self.departure.sent => self.departure.done = true,
                Err(error) => {
                    self.credit.failures += 1;
                    self.credit.error = Some(error);
                    self.credit.due = true;
                    self.counts.internal.resent += 1;
                }
            }
        }
    }

    /// Sends the credit if it is due and the last one has arrived.
    ///
    /// A credit is a separate transfer, which costs as much as a small frame. Returned frames alone therefore make it due only when half
    /// of the slots were returned, while the publisher uses the other half, or when the oldest return has waited for some time.
    pub(super) fn send_credit_if_due(&mut self) -> Result<(), SubscriberError> {
        self.send_credit()?;
        // Without an answer, the publisher's silence decides: its card may be a program that waits for a CPU.
        if let Some(last) = self.credit.error.filter(is_refusal)
            && self.credit.failures >= self.options.failures
            && self.status.ended.is_none()
        {
            let (node, failures) = (self.stream_parameters.publisher, self.credit.failures);
            return Err(SubscriberError::Unreachable { node, failures, last });
        }
        let consumed = self.arrivals.consumed();
        let news = consumed.wrapping_sub(self.credit.sent);
        let enough = (self.options.slots / 2).max(1);
        let due = self.credit.due
            || news >= enough
            || (news > 0 && self.is_credit_due())
            || self.status.heard != self.status.reported
            || (self.departure.requested && !self.departure.sent);
        // At the end no credit is needed, and the publisher may be gone.
        if !due || self.status.ended.is_some() || !matches!(self.credit.carrier, ControlBlock::Idle(_)) {
            return Ok(());
        }
        if !self.credit.retries.is_due(|| self.endpoint.now()) {
            return Ok(());
        }
        let ControlBlock::Idle(mut buffer) =
            core::mem::replace(&mut self.credit.carrier, ControlBlock::InUse(None))
        else {
            return Ok(());
        };
        let heard = self.status.heard;
        let credit =
            CreditBlock { key: self.credit.region.key, consumed, leaving: self.departure.requested, heard };
        let whole = buffer.write(0, &credit.encode());
        debug_assert!(whole.is_ok(), "the buffer holds a block");
        let to = self.stream_parameters.layout.address(self.stream_parameters.layout.block_offset(1));
        match self.h2c.submit(buffer, to) {
            Ok(_) => {}
            Err(refused) => {
                self.credit.carrier = ControlBlock::Idle(refused.payload);
                return Err(refused.error.into());
            }
        }
        self.h2c.poll()?;
        self.credit.sent = consumed;
        self.credit.changed_at = None;
        self.status.reported = heard;
        self.departure.sent = self.departure.requested;
        self.credit.due = false;
        Ok(())
    }

    /// Whether returned frames have waited long enough for a credit to be due.
    fn is_credit_due(&mut self) -> bool {
        let now = self.endpoint.now();
        let since = *self.credit.changed_at.get_or_insert(now);
        now.saturating_sub(since) >= MAX_CREDIT_DELAY
    }

    /// Sends the credit that was uploaded into the card to the publisher.
    fn send_credit(&mut self) -> Result<(), SubscriberError> {
        self.h2c.poll()?;
        let Some(done) = self.h2c.next_completion() else { return Ok(()) };
        // Without a buffer the channel has ended, and reports it at the next poll.
        let Some(buffer) = done.buffer else { return Ok(()) };
        if let Err(fault) = done.outcome {
            self.credit.carrier = ControlBlock::Idle(buffer);
            self.credit.due = true;
            let failures = self.credit.retries.failed(self.endpoint.now());
            return self.count_failure(RetriedTransfer::Credits, failures, fault);
        }
        self.credit.retries.succeeded();
        let from = self.stream_parameters.layout.address(self.stream_parameters.layout.block_offset(1));
        let urgent = SendOptions::default().priority(1);
        match self.endpoint.send(from, &self.credit.region, 0, BLOCK_BYTES, urgent) {
            Ok(ticket) => {
                self.credit.ticket = Some(ticket);
                self.credit.carrier = ControlBlock::InUse(Some(buffer));
                self.counts.credits += 1;
            }
            Err(error) if error.kind.is_full() => {
                self.credit.carrier = ControlBlock::Idle(buffer);
                self.credit.due = true;
                self.counts.internal.postponed += 1;
            }
            Err(error) => {
                self.credit.carrier = ControlBlock::Idle(buffer);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether no transfer of the subscriber is in flight through the card.
    fn is_idle(&self) -> bool {
        self.frames.fetches.is_empty()
            && matches!(self.credit.carrier, ControlBlock::Idle(_))
            && self.endpoint.is_idle()
    }

    /// Leaves the stream: notifies the publisher, which sends nothing more, and revokes the write permission. Unread frames are dropped. If
    /// the publisher has ended the stream, no notification is needed, and the call only waits until the card is idle.
    ///
    /// # Errors
    /// [`SubscriberError::TimedOut`] if the publisher does not accept it within `timeout`, and others, also if the endpoint's wait was
    /// cancelled ([`Endpoint::set_cancellation`](fpga_rdma::Endpoint::set_cancellation)). The subscriber has left in any case.
    pub fn leave(self, timeout: Duration) -> Result<super::SubscriberCounts, SubscriberError> {
        let mut leaving = self.begin_leave();
        let began = leaving.subscriber.endpoint.now();
        let limit = began.saturating_add(timeout);
        loop {
            if let Some(counts) = leaving.poll()? {
                return Ok(counts);
            }
            let subscriber = &mut leaving.subscriber;
            let waited = subscriber.endpoint.now().saturating_sub(began);
            subscriber.endpoint.check_cancelled(waited).map_err(LocalError::from)?;
            if subscriber.endpoint.now() >= limit {
                return Err(SubscriberError::TimedOut { waited: timeout });
            }
            subscriber.back_off();
        }
    }

    /// Begins to leave the stream, as [`leave`](Self::leave), without waiting.
    pub fn begin_leave(mut self) -> Leaving {
        self.departure.requested = self.status.ended.is_none();
        if let (false, Some(ticket)) = (self.departure.requested, self.credit.ticket) {
            // The publisher may be gone, so that no acknowledgement comes.
            self.endpoint.cancel(ticket);
        }
        Leaving { subscriber: self, is_over: false }
    }
}

/// Departure of a subscriber that never blocks. Dropping it ends the subscription without notice and closes the endpoint.
#[derive(Debug)]
#[must_use = "the publisher is notified by `poll`"]
pub struct Leaving {
    subscriber: Subscriber,
    is_over: bool,
}

impl Leaving {
    /// Advances the departure. Returns the statistics once the subscriber has left: the publisher's card accepted the notification, the
    /// write permission is revoked, and nothing is in flight. Later calls poll the endpoint alone. Never waits.
    ///
    /// # Errors
    /// As [`Subscriber::leave`], without the time limit.
    pub fn poll(&mut self) -> Result<Option<super::SubscriberCounts>, SubscriberError> {
        let subscriber = &mut self.subscriber;
        if self.is_over {
            // The card's timers go on.
            subscriber.endpoint.poll()?;
            return Ok(Some(subscriber.counts));
        }
        subscriber.drive()?;
        subscriber.frames.ready.clear();
        if subscriber.departure.done != subscriber.departure.requested || !subscriber.is_idle() {
            return Ok(None);
        }
        subscriber.endpoint.close_region(&subscriber.stream_parameters.window)?;
        self.is_over = true;
        Ok(Some(subscriber.counts))
    }

    /// The endpoint, for listings and counters.
    #[must_use]
    pub const fn endpoint(&self) -> &fpga_rdma::Endpoint {
        &self.subscriber.endpoint
    }
}
