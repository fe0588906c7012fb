//! Model of frame streams: what was published, for whom, and what each subscriber has got.

use std::collections::VecDeque;

use fpga_frames::{ReceivedFrame, SubscriberId, SubscriberSet, SubscriberStatistics};
use fpga_protocol::Nanos;

use crate::model::{Checked, check, data};

/// Distance of the numbers of values from those of data.
pub(super) const VALUES: usize = 1 << 24;

/// A frame that has its number.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Number of its data.
    pub(super) number: usize,
    pub(super) length: u64,
    pub(super) value: u32,
    pub(super) sent: SubscriberSet,
}

/// A subscriber as its publisher knows it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: SubscriberId,
    pub(super) node: usize,
    /// Number of the first frame.
    pub(super) first: u64,
    pub(super) slots: u32,
    pub(super) since: Nanos,
    /// Frames that were sent to it and not returned in the order of their numbers, and whether they were returned.
    pub(super) in_flight: VecDeque<(u64, bool)>,
    /// Frames that were sent to it, and that it has reported as missed.
    pub(super) lost: u64,
    /// Frames to it whose transfers have failed. It returns their slots before it reports them.
    pub(super) failed: u64,
    /// Whether it has begun to leave.
    pub(super) is_leaving: bool,
    /// Its statistics when it was dropped.
    pub(super) dropped: Option<SubscriberStatistics>,
}

impl Member {
    /// Records that a frame was returned.
    pub(super) fn release(&mut self, sequence: u64) {
        if let Some(frame) = self.in_flight.iter_mut().find(|frame| frame.0 == sequence) {
            frame.1 = true;
        }
        while self.in_flight.front().is_some_and(|frame| frame.1) {
            self.in_flight.pop_front();
        }
    }
}

/// Stream of one incarnation of a publisher.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// Number of the first frame.
    pub(super) first: u64,
    pub(super) records: Vec<Record>,
    pub(super) members: Vec<Member>,
    pub(super) is_closing: bool,
}

impl Stream {
    /// Number of the next frame.
    pub(super) fn next(&self) -> u64 {
        self.first.wrapping_add(self.records.len() as u64)
    }

    pub(super) fn record(&self, sequence: u64) -> Option<&Record> {
        self.records.get(usize::try_from(sequence.wrapping_sub(self.first)).ok()?)
    }

    /// Records a frame. Every subscriber gets it or misses it, and none gets more frames than it has slots.
    pub(super) fn publish(&mut self, record: Record, skipped: SubscriberSet) -> Checked {
        let (sequence, sent) = (self.next(), record.sent);
        let mut count = 0;
        for member in self.members.iter_mut().filter(|member| member.dropped.is_none()) {
            count += 1;
            let is_sent = sent.contains(member.id);
            check(is_sent != skipped.contains(member.id), || {
                format!("frame {sequence} is not either sent to or skipped for {member:?}")
            })?;
            // One that leaves returns the frames that it does not read.
            if is_sent && !member.is_leaving {
                member.in_flight.push_back((sequence, false));
                let most = u64::from(member.slots) + member.failed - member.lost.min(member.failed);
                check(member.in_flight.len() as u64 <= most, || {
                    format!("frame {sequence} is sent to a subscriber without a free slot: {member:?}")
                })?;
            }
        }
        check(count == sent.len() + skipped.len(), || {
            format!("frame {sequence} is sent to {} and skipped for {} of {count}", sent.len(), skipped.len())
        })?;
        self.records.push(record);
        Ok(())
    }

    /// Compares a received frame with the published one.
    pub(super) fn check_frame(&self, member: usize, frame: &ReceivedFrame) -> Checked {
        let (sequence, member) = (frame.sequence().get(), &self.members[member]);
        let record = self.record(sequence).filter(|record| record.sent.contains(member.id));
        let wrong = |what: &str| format!("{what} of frame {sequence}: {record:?}, {member:?}");
        let Some(record) = record else {
            return check(false, || wrong("the frame was not sent to the subscriber: receipt"));
        };
        let (bytes, value) = (frame.data().to_vec(), frame.value().to_vec());
        check(bytes.len() as u64 == record.length, || wrong("wrong length"))?;
        check(value == data(record.number + VALUES, record.value.into()), || wrong("wrong value"))?;
        let expected = data(record.number, record.length);
        let at = bytes.iter().zip(&expected).position(|(found, wanted)| found != wanted);
        check(at.is_none(), || wrong(&format!("byte {at:?} is wrong: data")))
    }

    /// Records frames that a subscriber reports as missed. Returns the number of those that were sent to it.
    pub(super) fn miss(
        &mut self,
        member: usize,
        first: u64,
        missed: u64,
    ) -> Result<u64, crate::model::Violation> {
        let known = self.records.len() as u64;
        let offset = first.wrapping_sub(self.first);
        check(missed > 0 && offset.saturating_add(missed) <= known, || {
            format!("{missed} frames missed from {first} on, but the next one is {}", self.next())
        })?;
        let mut lost = 0;
        for sequence in (0..missed).map(|ahead| first.wrapping_add(ahead)) {
            let is_sent = |record: &Record| record.sent.contains(self.members[member].id);
            if self.record(sequence).is_some_and(is_sent) {
                lost += 1;
                self.members[member].release(sequence);
            }
        }
        self.members[member].lost += lost;
        Ok(lost)
    }
}
