//! The end of a stream: nothing that was accepted is lost.

use std::time::Duration;

use fpga_driver::protocol::Nanos;

use super::{Publisher, PublisherStatistics};
use crate::error::PublisherError;

impl Publisher {
    /// Begins the end: no more frames, no more subscribers. [`poll`](Self::poll) goes on until [`is_closed`](Self::is_closed): what was
    /// published leaves and arrives, or fails, and then every subscriber is told that it was all.
    pub const fn begin_close(&mut self) {
        self.closing = true;
    }

    /// Whether no frame is on its way from its user to the transfers.
    pub(super) fn is_drained(&self) -> bool {
        // Of the uploads, those of frames: a status is none's way.
        self.queue.is_empty()
            && self.ready.is_empty()
            && !self.uploads.iter().any(|upload| matches!(upload, super::Upload::Frame { .. }))
    }

    /// Whether everything that was accepted has ended, everybody knows that it has, and the card is at rest.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let told = |member: &super::SubscriberState| member.gone.is_some() || member.end_reported;
        self.closing
            && self.is_drained()
            && self.members.iter().flatten().all(told)
            && self.endpoint.is_idle()
            // Neither a status on its way into the card nor credits on their way out of it.
            && self.uploads.is_empty()
            && self.credits.is_some()
    }

    /// Ends the stream, and waits until everything that was published has arrived, or failed, and every subscriber knows that it was
    /// all.
    ///
    /// # Errors
    /// [`PublisherError::TimedOut`] after `patience`; otherwise the publisher cannot go on. What had not arrived is lost then.
    pub fn close(mut self, patience: Duration) -> Result<PublisherStatistics, PublisherError> {
        self.begin_close();
        let limit = Nanos::new(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        let limit = self.now().saturating_add(limit);
        loop {
            let work = self.poll()?;
            if self.is_closed() {
                return Ok(self.statistics);
            }
            if self.now() >= limit {
                let frames =
                    self.members.iter().flatten().filter(|member| !member.credits.is_settled()).count();
                return Err(PublisherError::TimedOut { card: self.name, waited: patience, frames });
            }
            if work == 0 {
                self.back_off();
            }
        }
    }
}
