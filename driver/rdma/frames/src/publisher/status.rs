//! Status blocks for subscribers: heartbeat, frames that will not come, and the end of the stream.

use std::time::Duration;

use fpga_driver::Completion;

use super::{ControlBlock, DropReason, Publisher, Purpose, Upload};
use crate::blocks::{BLOCK_BYTES, StatusBlock};
use crate::error::PublisherError;
use crate::retries::{RetriedTransfer, RetryBackoff};

/// Maximum number of statuses that a subscriber has not read. Each one causes events at the subscriber's card. A program that does not
/// poll, because it processes a frame or waits for something else, takes none of them out of its event ring: two per second would fill it
/// within the hour. A subscriber that polls reads all of them at once.
pub(crate) const MAX_UNREAD_STATUSES: u32 = 4;

/// Heartbeats between two probes of a subscriber that has unread statuses.
const HEARTBEATS_PER_PROBE: u32 = 4;

impl Publisher {
    /// Starts a status for every subscriber that is due one.
    pub(super) fn start_statuses(&mut self, now: Duration) -> Result<usize, PublisherError> {
        if !self.status_retries.is_due(|| now) {
            return Ok(0);
        }
        let heartbeat = self.options.heartbeat;
        let at_end = self.closing && self.is_drained();
        let probe_period = heartbeat.saturating_mul(HEARTBEATS_PER_PROBE);
        let mut count = 0;
        for (index, place) in self.members.iter_mut().enumerate() {
            let Some(member) = place.as_mut().filter(|member| member.gone.is_none()) else { continue };
            let ControlBlock::Idle(_) = member.carrier else { continue };
            let late = now.saturating_sub(member.last_sent) >= heartbeat;
            let ended = at_end && member.credits.is_settled();
            let due = if ended {
                // At once, and then at the interval of other statuses until it is known to have arrived.
                !member.end_reported && (late || !member.end_begun)
            } else {
                let is_news =
                    member.credits.needs_status() && member.settled_reported != member.credits.settled();
                let reads = member.unread_statuses < MAX_UNREAD_STATUSES;
                is_news || (late && reads) || member.probes.is_due(now, reads, probe_period)
            };
            if !due && !member.status_due {
                continue;
            }
            member.status_due = false;
            member.probes.begin(now);
            member.status = member.status.wrapping_add(1);
            let status = StatusBlock {
                number: member.status,
                stream: self.stream,
                next: self.next,
                settled: member.credits.settled(),
                sent: member.credits.sent(),
                ended,
            };
            let ControlBlock::Idle(mut buffer) =
                core::mem::replace(&mut member.carrier, ControlBlock::InUse(None))
            else {
                continue;
            };
            let whole = buffer.write(0, &status.encode());
            debug_assert!(whole.is_ok(), "the buffer holds a block");
            let block = u32::try_from(index).unwrap_or(u32::MAX);
            let to = self.layout.address(self.layout.block_offset(block));
            match self.h2c.submit(buffer, to) {
                Ok(_) => self.uploads.push_back(Upload::Status { member: index, ended }),
                Err(refused) => {
                    member.probes.end(false);
                    member.carrier = ControlBlock::Idle(refused.payload);
                    return Err(refused.error.into());
                }
            }
            member.settled_reported = status.settled;
            member.last_sent = now;
            member.end_begun |= ended;
            count += 1;
        }
        Ok(count)
    }

    /// Sends a status that was uploaded into the card to its subscriber.
    pub(super) fn send_status(
        &mut self,
        done: Completion,
        index: usize,
        ended: bool,
    ) -> Result<(), PublisherError> {
        let urgent = self.control_send_options();
        let Some(Some(member)) = self.members.get_mut(index) else { return Ok(()) };
        let Some(buffer) = done.buffer else { return Ok(()) };
        if member.gone.is_some() {
            member.carrier = ControlBlock::Idle(buffer);
            self.remove_subscriber(index);
            return Ok(());
        }
        if let Err(fault) = done.outcome {
            // It is built again at the next poll.
            member.carrier = ControlBlock::Idle(buffer);
            member.probes.end(false);
            member.status_due = true;
            self.statistics.internal.resent += 1;
            // Usually behind a frame that failed, or behind another status; that is not a failure of this status.
            if RetryBackoff::is_own_failure(&fault.kind) {
                let failures = self.status_retries.failed(self.endpoint.now());
                self.count_failure(RetriedTransfer::Status, failures, fault)?;
            }
            return Ok(());
        }
        self.status_retries.succeeded();
        let from = self.layout.address(self.layout.block_offset(u32::try_from(index).unwrap_or(u32::MAX)));
        let offset = self.geometry.stride().saturating_mul(member.slots.into());
        match self.endpoint.send(from, &member.region, offset, BLOCK_BYTES, urgent) {
            Ok(ticket) => {
                member.carrier = ControlBlock::InUse(Some(buffer));
                self.note(ticket, Purpose::Status { member: index, ended });
            }
            Err(error) => {
                member.carrier = ControlBlock::Idle(buffer);
                member.probes.end(false);
                if super::transfers::is_busy(&error.kind) {
                    // It is built again at the next poll.
                    member.status_due = true;
                    self.statistics.internal.postponed += 1;
                } else {
                    self.drop_member(index, DropReason::Refused(error))?;
                }
            }
        }
        Ok(())
    }
}
