//! Transfers of frames to subscribers: which frames share one, and what its end means.

use std::time::Duration;

use fpga_rdma::SendFailure;
use fpga_rdma::{SendCompletion, SendError, SendTicket};

use super::{ControlBlock, DropReason, Publisher, Purpose};
use crate::error::PublisherError;

/// Maximum length in bytes of a transfer of several frames. A longer frame has a transfer of its own, whose cost is that of its bytes; and
/// the first frame of a transfer arrives only with its last one.
const MAX_BATCH: u64 = 64 << 10;
/// Maximum number of bytes between the end of a frame and the next slot that are moved in order to save a transfer, which costs as much as
/// one or two KiB.
const MAX_PADDING: u64 = 1024;

/// Whether this is back-pressure, so that the same transfer will be accepted later.
pub(super) const fn is_busy(error: &SendError) -> bool {
    error.is_full()
}

impl Publisher {
    /// Starts the transfers of every frame that is in the card to its subscribers.
    pub(super) fn start_transfers(&mut self, now: Duration) -> Result<usize, PublisherError> {
        let mut count = 0;
        while let Some(front) = self.ready.front() {
            let Some(index) = front.targets.first() else {
                // The transfers hold the slot now.
                let slot = front.slot;
                self.ready.pop_front();
                self.release(slot);
                continue;
            };
            let frames = self.start_transfer(now, index)?;
            if frames == 0 {
                self.statistics.internal.postponed += 1;
                break;
            }
            for sends in self.ready.iter_mut().take(frames) {
                sends.targets.remove(index);
            }
            count += 1;
        }
        Ok(count)
    }

    /// Returns the number of frames from the first ready one on, and their length in bytes, that one transfer moves to subscriber `index`:
    /// they are adjacent in the pool, and become adjacent in the subscriber's slots, of which `free` follow without a wrap.
    fn batch(&self, index: usize, free: u32) -> (u32, u64) {
        let stride = self.geometry.stride();
        let Some(first) = self.ready.front() else { return (0, 0) };
        let (mut count, mut bytes, mut last) = (1, first.length, first);
        for next in self.ready.iter().skip(1) {
            let whole = (stride * u64::from(count)).saturating_add(next.length);
            let adjacent = next.slot == last.slot + 1 && next.targets.contains_index(index) && count < free;
            if !adjacent || stride - last.length.min(stride) > MAX_PADDING || whole > MAX_BATCH {
                break;
            }
            (count, bytes, last) = (count + 1, whole, next);
        }
        (count, bytes)
    }

    /// Starts one transfer to subscriber `index`: the first ready frame, and those that can go with it. Returns the number of frames that
    /// are done for this subscriber; 0 if the transfer has to be tried again later.
    fn start_transfer(&mut self, now: Duration, index: usize) -> Result<usize, PublisherError> {
        let Some(Some(member)) = self.members.get(index) else { return Ok(1) };
        let Some(place) = member.credits.due() else { return Ok(1) };
        if member.gone.is_some() {
            self.void_position(index);
            return Ok(1);
        }
        let (count, length) = self.batch(index, member.slots.saturating_sub(place.slot));
        let Some(slot) = self.ready.front().map(|front| front.slot) else { return Ok(0) };
        let from = self.layout.address(self.layout.slot_offset(u32::try_from(slot).unwrap_or(u32::MAX)));
        let offset = self.geometry.stride().saturating_mul(place.slot.into());
        match self.endpoint.send(from, &member.region, offset, length, self.options.send) {
            Ok(ticket) => {
                self.statistics.transfers += 1;
                if let Some(Some(member)) = self.members.get_mut(index) {
                    (0..count).for_each(|_| member.credits.start());
                    member.last_sent = now;
                }
                for held in self.slots_from(slot, count) {
                    let held = self.pool.hold(held);
                    debug_assert!(held.is_ok());
                }
                let position = place.position;
                self.note(ticket, Purpose::Frames { slot, count, member: index, position });
                Ok(usize::try_from(count).unwrap_or(usize::MAX))
            }
            Err(error) if is_busy(&error.kind) => Ok(0),
            Err(error) => {
                self.void_position(index);
                self.drop_member(index, DropReason::Refused(error))?;
                Ok(1)
            }
        }
    }

    /// Slots of the pool from `slot` on.
    fn slots_from(&self, slot: usize, count: u32) -> core::ops::Range<usize> {
        slot..slot.saturating_add(usize::try_from(count).unwrap_or(0)).min(self.pool.len())
    }

    pub(super) fn note(&mut self, ticket: SendTicket, purpose: Purpose) {
        self.transfers.insert(ticket, purpose);
    }

    pub(super) fn take_completions(&mut self) -> Result<usize, PublisherError> {
        let mut count = 0;
        while let Some(done) = self.endpoint.next_completion() {
            count += 1;
            let Some(purpose) = self.transfers.remove(&done.ticket) else { continue };
            self.ended(purpose, &done)?;
        }
        Ok(count)
    }

    fn ended(&mut self, purpose: Purpose, done: &SendCompletion) -> Result<(), PublisherError> {
        let (Purpose::Frames { member: index, .. } | Purpose::Status { member: index, .. }) = purpose;
        if let Purpose::Frames { slot, count, .. } = purpose {
            for slot in self.slots_from(slot, count) {
                self.release(slot);
            }
        }
        let (now, arrived) = (self.endpoint.now(), done.result.is_ok());
        let Some(Some(member)) = self.members.get_mut(index) else { return Ok(()) };
        match purpose {
            Purpose::Frames { position, count, .. } => {
                for offset in 0..count {
                    member.credits.end(position.wrapping_add(offset), arrived);
                }
                let (arrived, failed) = if arrived { (u64::from(count), 0) } else { (0, u64::from(count)) };
                member.statistics.arrived += arrived;
                member.statistics.failed += failed;
                self.statistics.arrived += arrived;
                self.statistics.failed += failed;
            }
            Purpose::Status { ended, .. } => {
                if let ControlBlock::InUse(buffer) = &mut member.carrier
                    && let Some(buffer) = buffer.take()
                {
                    member.carrier = ControlBlock::Idle(buffer);
                }
                member.probes.end(arrived);
                member.end_reported |= ended && arrived;
                if arrived {
                    // At most one status per subscriber is in flight.
                    member.status_there = member.status;
                    member.unread_statuses = member.unread_statuses.saturating_add(1);
                }
                self.statistics.internal.resent += u64::from(!arrived);
            }
        }
        match done.result {
            Ok(()) => (member.failures, member.failing_since) = (0, None),
            Err(last) => {
                member.failures += 1;
                // Frames in flight at the same time fail together, so their number alone says little.
                let since = *member.failing_since.get_or_insert(now);
                let is_lost = now.saturating_sub(since) >= self.options.max_silence;
                // A node that was reset, or has closed its window, does not recover.
                let final_word = matches!(last, SendFailure::Refused { .. } | SendFailure::Scheme { .. });
                let failures = member.failures;
                // A node joins under this node number, and the earlier window is closed.
                let replaced = final_word && member.probes.is_requested();
                if replaced {
                    self.drop_member(index, DropReason::Replaced)?;
                } else if final_word || (is_lost && failures >= self.options.failures) {
                    self.drop_member(index, DropReason::Unreachable { failures, last })?;
                }
            }
        }
        self.remove_subscriber(index);
        Ok(())
    }
}
