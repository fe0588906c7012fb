//! Movement of frames: channel, credits.

use fpga_driver::{Completion, Error, SubmitError, errors::ChannelFault};
use fpga_rdma::SendOptions;

use super::frame::FrameMemory;
use super::{DropReason, PendingSends, Publisher, PublisherEvent, Queued, SubscriberSet, Upload};
use crate::blocks::{BLOCK, BLOCK_BYTES, BlockError, CreditBlock};
use crate::error::{LocalError, PublisherError};
use crate::memory::block_at;
use crate::retries::{RetriedTransfer, RetryBackoff};

/// Maximum number of attempts to fetch a credit that cannot be read; it may have been read half written.
const FETCHES: u32 = 4;

impl Publisher {
    /// Moves frames, processes credits, admits subscribers. Returns the number of items handled. Never waits.
    ///
    /// # Errors
    /// See [`PublisherError`]: the publisher has failed.
    pub fn poll(&mut self) -> Result<usize, PublisherError> {
        self.reclaim();
        let mut work = self.endpoint.poll()?;
        let now = self.now();
        work += self.take_completions()?;
        work += self.take_notices();
        work += self.take_uploads()?;
        work += self.take_credits()?;
        work += self.empty_queue()?;
        work += self.start_transfers(now)?;
        work += self.start_statuses(now)?;
        // The descriptors that were just queued in the rings start.
        self.h2c.poll()?;
        self.fetch_credits()?;
        work += self.poll_joins();
        self.idle.record_work(work);
        Ok(work)
    }

    /// Submits a frame to the channel. If it is refused, it is given up for all of its subscribers.
    pub(super) fn upload(&mut self, queued: Queued) -> Result<(), Error<SubmitError>> {
        let Queued { memory, sequence, length, targets } = queued;
        let FrameMemory::Slot(slot, mut buffer) = memory else {
            // Only frames in slots get here.
            debug_assert!(false, "a frame without a slot");
            self.return_buffer(memory);
            return Ok(());
        };
        // A frame is at most as long as its slot.
        let cut = buffer.set_len(usize::try_from(length).unwrap_or(usize::MAX));
        debug_assert!(cut.is_ok());
        let slot_number = u32::try_from(slot).unwrap_or(u32::MAX);
        let to = self.layout.address(self.layout.slot_offset(slot_number));
        match self.h2c.submit(buffer, to) {
            Ok(_) => {
                self.pool.set_sequence(slot, sequence);
                self.uploads.push_back(Upload::Frame { slot, length, targets });
                Ok(())
            }
            Err(refused) => {
                self.return_buffer(FrameMemory::Slot(slot, refused.payload));
                self.give_up(targets);
                Err(refused.error)
            }
        }
    }

    /// Gives up a frame for all the subscribers in `targets`.
    fn give_up(&mut self, targets: SubscriberSet) {
        self.statistics.internal.lost_uploads += 1;
        let mut rest = targets;
        while let Some(index) = rest.first() {
            rest.remove(index);
            self.void_position(index);
        }
    }

    /// Gives up one frame that was promised to a member.
    pub(super) fn void_position(&mut self, index: usize) {
        let Some(Some(member)) = self.members.get_mut(index) else {
            debug_assert!(false, "a frame was promised to subscriber {index}, which does not exist");
            return;
        };
        if let Some(due) = member.credits.due() {
            member.credits.start();
            member.credits.end(due.position, false);
            member.statistics.failed += 1;
            self.statistics.failed += 1;
        }
    }

    /// Uploads frames that waited for others, or for a slot.
    fn empty_queue(&mut self) -> Result<usize, PublisherError> {
        let mut count = 0;
        while let Some(front) = self.queue.front() {
            let slot = match front.memory {
                FrameMemory::Slot(..) => None,
                FrameMemory::Heap(_) => match self.take_slot() {
                    None if self.swap_slots() => None,
                    None => break,
                    some => some,
                },
            };
            let Some(mut queued) = self.queue.pop_front() else { break };
            if let Some((slot, mut buffer)) = slot {
                let length = usize::try_from(queued.length).unwrap_or(usize::MAX);
                let cut = buffer.set_len(length);
                debug_assert!(cut.is_ok());
                if let FrameMemory::Heap(bytes) = &queued.memory
                    && let Some(bytes) = bytes.get(..length)
                {
                    let whole = buffer.write(0, bytes);
                    debug_assert!(whole.is_ok(), "the buffer was cut to that length");
                }
                let used = core::mem::replace(&mut queued.memory, FrameMemory::Slot(slot, buffer));
                self.return_buffer(used);
            }
            self.upload(queued)?;
            count += 1;
        }
        Ok(count)
    }

    /// Gives the first frame, which is in ordinary memory, the slot of a frame that waits behind it. Otherwise each would wait for the
    /// other.
    fn swap_slots(&mut self) -> bool {
        let Some(at) = self.queue.iter().position(|queued| matches!(queued.memory, FrameMemory::Slot(..)))
        else {
            return false;
        };
        let Some(mut other) = self.queue.remove(at) else { return false };
        if let Some(first) = self.queue.front_mut() {
            // Both are as long as a slot until they are submitted.
            first.memory.bytes().swap_with(&other.memory.bytes());
            core::mem::swap(&mut first.memory, &mut other.memory);
        }
        self.queue.insert(at, other);
        true
    }

    fn take_uploads(&mut self) -> Result<usize, PublisherError> {
        self.h2c.poll()?;
        let mut count = 0;
        while let Some(done) = self.h2c.next_completion() {
            count += 1;
            match self.uploads.pop_front() {
                Some(Upload::Frame { slot, length, targets }) => self.uploaded(done, slot, length, targets),
                Some(Upload::Status { member, ended }) => self.send_status(done, member, ended)?,
                None => debug_assert!(false, "a completion without an upload"),
            }
        }
        Ok(count)
    }

    fn uploaded(&mut self, done: Completion, slot: usize, length: u64, targets: SubscriberSet) {
        match (self.memory.get_mut(slot), done.buffer) {
            (Some(place), Some(buffer)) => *place = Some(buffer),
            // The card may still read the slot: it is never used again, and its count stays.
            _ => {
                self.statistics.internal.lost_slots += 1;
                self.give_up(targets);
                return;
            }
        }
        if let Err(fault) = done.outcome {
            if RetryBackoff::is_own_failure(&fault.kind) {
                self.statistics.internal.faults += 1;
                self.event(PublisherEvent::UploadFailed { sequence: self.pool.sequence(slot), fault });
            }
            self.give_up(targets);
            self.release(slot);
        } else {
            self.ready.push_back(PendingSends { slot, length, targets });
        }
    }

    /// Drops a subscriber. Its transfers in flight end by themselves.
    pub(super) fn drop_member(&mut self, index: usize, reason: DropReason) -> Result<(), PublisherError> {
        let Some(Some(member)) = self.members.get_mut(index) else { return Ok(()) };
        if member.gone.is_some() {
            return Ok(());
        }
        member.gone = Some(reason.clone());
        let (id, node, statistics) = (member.id, member.node, member.statistics);
        let closed = self.endpoint.close_region(&member.window);
        self.event(PublisherEvent::Dropped { id, node, reason, statistics });
        self.remove_subscriber(index);
        Ok(closed?)
    }

    /// Frees a table entry once nothing refers to it.
    pub(super) fn remove_subscriber(&mut self, index: usize) {
        if let Some(place) = self.members.get_mut(index)
            && place.as_ref().is_some_and(super::subscriber_state::SubscriberState::is_over)
        {
            *place = None;
        }
    }

    fn take_notices(&mut self) -> usize {
        let mut count = 0;
        while let Some(notice) = self.endpoint.next_notification() {
            count += 1;
            let block = self.layout.block_at(notice.address).and_then(|block| usize::try_from(block).ok());
            let index = block.and_then(|block| block.checked_sub(self.members.len()));
            let member = index.and_then(|index| self.members.get_mut(index)).and_then(Option::as_mut);
            match member.filter(|member| member.node == notice.node && notice.length == BLOCK_BYTES) {
                Some(member) => {
                    member.credit_news = true;
                    self.credit_fetch_due = true;
                }
                None => self.statistics.internal.stray_notifications += 1,
            }
        }
        count
    }

    /// Fetches all credits at once if any has changed: they are adjacent.
    fn fetch_credits(&mut self) -> Result<(), PublisherError> {
        if self.credit_fetch_due
            && self.credit_retries.is_due(|| self.now())
            && let Some(buffer) = self.credits.take()
        {
            self.credit_fetch_due = false;
            for member in self.members.iter_mut().flatten() {
                member.credit_fetched = core::mem::take(&mut member.credit_news);
            }
            let first = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
            let from = self.layout.address(self.layout.block_offset(first));
            self.c2h.submit(buffer, from).map_err(|refused| refused.error)?;
        }
        self.c2h.poll()?;
        Ok(())
    }

    fn take_credits(&mut self) -> Result<usize, PublisherError> {
        self.c2h.poll()?;
        let Some(done) = self.c2h.next_completion() else { return Ok(0) };
        // Without a buffer the channel has ended, and reports it at the next poll.
        let Some(buffer) = done.buffer else { return Ok(0) };
        if let Err(fault) = done.outcome {
            self.credits = Some(buffer);
            self.retry_credit_fetch();
            let failures = self.credit_retries.failed(self.now());
            self.count_failure(RetriedTransfer::Credits, failures, fault)?;
            return Ok(1);
        }
        self.credit_retries.succeeded();
        for index in 0..self.members.len() {
            let Some(Some(member)) = self.members.get_mut(index) else { continue };
            if !core::mem::take(&mut member.credit_fetched) {
                continue;
            }
            let block = block_at(buffer.memory(), index * BLOCK);
            let reason = match block.and_then(|block| CreditBlock::decode(&block, member.window.remote.key)) {
                Ok(credit) => {
                    member.unreadable = 0;
                    member.status_read(credit.heard);
                    match member.credits.consume(credit.consumed) {
                        Ok(_) if credit.leaving => Some(DropReason::Unsubscribed),
                        Ok(_) => None,
                        Err(impossible) => Some(DropReason::Credit(impossible)),
                    }
                }
                // Last credit of the subscriber of the same node that had this entry before.
                Err(BlockError::Stream { .. }) => {
                    self.statistics.internal.stray_notifications += 1;
                    None
                }
                Err(BlockError::Crc { .. }) if member.unreadable < FETCHES => {
                    member.unreadable += 1;
                    (member.credit_news, self.credit_fetch_due) = (true, true);
                    self.statistics.internal.fetched_again += 1;
                    None
                }
                Err(error) => Some(DropReason::Unreadable(error)),
            };
            if let Some(reason) = reason {
                self.drop_member(index, reason)?;
            }
            self.remove_subscriber(index);
        }
        self.credits = Some(buffer);
        Ok(1)
    }

    /// Marks the credits for another fetch: the same or newer content is still in place.
    fn retry_credit_fetch(&mut self) {
        self.credit_fetch_due = true;
        for index in 0..self.members.len() {
            if let Some(Some(member)) = self.members.get_mut(index) {
                member.credit_news |= core::mem::take(&mut member.credit_fetched);
            }
            self.remove_subscriber(index);
        }
    }

    /// Counts a failure of an operation that is retried, and fails after too many consecutive ones.
    pub(super) fn count_failure(
        &mut self,
        what: RetriedTransfer,
        failures: u32,
        fault: Box<Error<ChannelFault>>,
    ) -> Result<(), PublisherError> {
        self.statistics.internal.faults += 1;
        if failures >= self.options.failures {
            return Err(LocalError::Fault { what, failures, last: fault }.into());
        }
        self.event(PublisherEvent::Fault { what, fault });
        Ok(())
    }

    /// Send options of control blocks of the stream: a higher priority than frames.
    pub(super) fn control_send_options(&self) -> SendOptions {
        SendOptions::default().priority(self.options.send.priority.saturating_add(1))
    }
}
