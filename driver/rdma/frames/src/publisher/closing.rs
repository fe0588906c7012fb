//! End of a stream without loss of accepted frames.

use std::time::Duration;

use super::{Publisher, PublisherStatistics};
use crate::error::{LocalError, PublisherError};

impl Publisher {
    /// Begins to close: no more frames and no more subscribers. [`poll`](Self::poll) continues until [`is_closed`](Self::is_closed):
    /// published frames leave and arrive, or fail, and then every subscriber is notified of the end.
    pub const fn begin_close(&mut self) {
        self.closing = true;
    }

    /// Whether no frame is between its user and the transfers.
    pub(super) fn is_drained(&self) -> bool {
        // Only uploads of frames count: a status does not delay the end.
        self.queue.is_empty()
            && self.ready.is_empty()
            && !self.uploads.iter().any(|upload| matches!(upload, super::Upload::Frame { .. }))
    }

    /// Whether all accepted frames have ended, every subscriber was notified, and the card is idle.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let is_notified = |member: &super::SubscriberState| member.gone.is_some() || member.end_reported;
        self.closing
            && self.is_drained()
            && self.members.iter().flatten().all(is_notified)
            && self.endpoint.is_idle()
            // Neither a status being uploaded into the card nor credits being fetched from it.
            && self.uploads.is_empty()
            && self.credits.is_some()
    }

    /// Ends the stream and waits until every published frame has arrived or failed, and every subscriber was notified of the end.
    ///
    /// # Errors
    /// [`PublisherError::TimedOut`] after `timeout`, and an error if the endpoint's wait was cancelled
    /// ([`Endpoint::set_cancellation`](fpga_rdma::Endpoint::set_cancellation)); otherwise the publisher has failed. Frames that have not
    /// arrived by then are lost.
    pub fn close(mut self, timeout: Duration) -> Result<PublisherStatistics, PublisherError> {
        self.begin_close();
        let began = self.now();
        let limit = began.saturating_add(timeout);
        loop {
            let work = self.poll()?;
            if self.is_closed() {
                return Ok(self.statistics);
            }
            self.endpoint.check_cancelled(self.now().saturating_sub(began)).map_err(LocalError::from)?;
            if self.now() >= limit {
                let frames =
                    self.members.iter().flatten().filter(|member| !member.credits.is_settled()).count();
                return Err(PublisherError::TimedOut { card: self.name, waited: timeout, frames });
            }
            if work == 0 {
                self.back_off();
            }
        }
    }
}
