//! Fetches of a subscriber from its card: frames that have arrived, and the publisher's status.

use std::sync::Arc;

use fpga_driver::{CardAddr, Completion, DmaBuffer};

use super::{ReceivedFrame, Subscriber};
use crate::blocks::{BlockError, FrameHeader, StatusBlock};
use crate::error::{RemoteError, SubscriberError};
use crate::memory::block_at;
use crate::retries::{RetriedTransfer, RetryBackoff};

/// Maximum number of attempts to fetch a status that cannot be read; it may have been read half written.
const FETCHES: u32 = 4;

/// Fetch by the C2H channel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fetch {
    Frame { position: u32, slot: u32 },
    Status,
}

impl Subscriber {
    /// Handles the end of a fetch. A failed one is repeated: its slot was not returned, so the content is still in place.
    pub(super) fn fetch_ended(&mut self, done: Completion, fetch: Fetch) -> Result<(), SubscriberError> {
        // Without a buffer the channel has ended, and reports it at the next poll.
        let Some(buffer) = done.buffer else { return Ok(()) };
        if let Err(fault) = done.outcome {
            self.frames.fetches.push_back((fetch, Some(buffer)));
            let what = match fetch {
                Fetch::Frame { .. } => RetriedTransfer::Frames,
                Fetch::Status => RetriedTransfer::Status,
            };
            if !RetryBackoff::is_own_failure(&fault.kind) {
                return Ok(());
            }
            let failures = self.frames.retries.failed(self.endpoint.now());
            return self.count_failure(what, failures, fault);
        }
        self.frames.retries.succeeded();
        match fetch {
            Fetch::Frame { position, slot } => self.fetched(buffer, position, slot),
            Fetch::Status => self.fetched_status(buffer),
        }
        Ok(())
    }

    fn source(&self, fetch: Fetch) -> CardAddr {
        let layout = &self.stream_parameters.layout;
        layout.address(match fetch {
            Fetch::Frame { slot, .. } => layout.slot_offset(slot),
            Fetch::Status => layout.block_offset(0),
        })
    }

    fn submit(&mut self, fetch: Fetch, buffer: DmaBuffer) -> Result<(), SubscriberError> {
        self.c2h.submit(buffer, self.source(fetch)).map_err(|refused| refused.error)?;
        Ok(())
    }

    /// Starts to fetch what has arrived, after the fetches that are repeated.
    pub(super) fn fetch(&mut self) -> Result<(), SubscriberError> {
        if !self.frames.retries.is_due(|| self.endpoint.now()) {
            return Ok(());
        }
        for index in 0..self.frames.fetches.len() {
            if let Some((fetch, buffer)) = self.frames.fetches.get_mut(index)
                && let Some(buffer) = buffer.take()
            {
                let fetch = *fetch;
                self.submit(fetch, buffer)?;
            }
        }
        while let Some((place, length)) = self.arrivals.read() {
            let slot = usize::try_from(place.slot).unwrap_or(usize::MAX);
            let Some(mut buffer) = self.frames.buffers.get_mut(slot).and_then(Option::take) else {
                // A reader with the buffer has not returned the slot, so the publisher could not have used it.
                debug_assert!(false, "slot {slot} without memory");
                continue;
            };
            let fits = usize::try_from(length).ok().is_some_and(|length| buffer.set_len(length).is_ok());
            if !fits {
                self.give_back(place.position, buffer);
                let source = BlockError::Lengths;
                self.frames.ready.push_back(Err(RemoteError::Frame { slot: place.slot, cause: source }));
                continue;
            }
            let fetch = Fetch::Frame { position: place.position, slot: place.slot };
            self.submit(fetch, buffer)?;
            self.frames.fetches.push_back((fetch, None));
        }
        if self.status.changed
            && let Some(buffer) = self.status.buffer.take()
        {
            self.status.changed = false;
            self.submit(Fetch::Status, buffer)?;
            self.frames.fetches.push_back((Fetch::Status, None));
        }
        Ok(())
    }

    fn fetched(&mut self, buffer: DmaBuffer, position: u32, slot: u32) {
        let head = block_at(buffer.memory(), 0);
        match head.and_then(|head| FrameHeader::decode(&head, buffer.len(), self.stream_parameters.stream)) {
            Ok(header) => {
                let home = Arc::clone(&self.frames.returned);
                self.frames.ready.push_back(Ok(ReceivedFrame {
                    buffer: Some(buffer),
                    return_queue: home,
                    position,
                    header,
                }));
            }
            Err(source) => {
                self.give_back(position, buffer);
                self.frames.ready.push_back(Err(RemoteError::Frame { slot, cause: source }));
            }
        }
    }

    fn fetched_status(&mut self, buffer: DmaBuffer) {
        let block = block_at(buffer.memory(), 0);
        match block.and_then(|block| StatusBlock::decode(&block, self.stream_parameters.stream)) {
            Ok(status) => {
                self.status.unreadable = 0;
                self.status.heard = status.number;
                match self.arrivals.settled(status.settled) {
                    Ok(voided) => self.counts.internal.voided += u64::from(voided),
                    Err(error) => self.frames.ready.push_back(Err(error.into())),
                }
                if status.ended {
                    self.status.ended = Some(status);
                }
            }
            Err(BlockError::Crc { .. }) if self.status.unreadable < FETCHES => {
                self.status.unreadable += 1;
                self.status.changed = true;
                self.counts.internal.fetched_again += 1;
            }
            Err(error) => self.frames.ready.push_back(Err(RemoteError::Status(error))),
        }
        self.status.buffer = Some(buffer);
    }
}
