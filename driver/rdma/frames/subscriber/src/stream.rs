//! State of one stream: the receiving node, slots, status, credit and gaps. No I/O: datagrams go to a caller's function.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::blocks::{BLOCK_BYTES, FrameHeader, InvalidData, Status};
use crate::credit::{CreditSender, Outcome, Progress};
use crate::error::StreamError;
use crate::fields::Writer;
use crate::node::ReceivingNode;
use crate::slots::Slots;
use fpga_firmware::wire::{Control, Packet};

/// Interval at which credits are checked while a frame is unread or with its reader, or a credit is in flight.
const ACTIVE_INTERVAL: Duration = Duration::from_millis(1);
/// Interval without either.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Numbers of a stream that the bootstrap has agreed upon.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) stream: u64,
    pub(crate) heartbeat: Duration,
    /// Silence after which the publisher counts as failed.
    pub(crate) silence: Duration,
    /// Number of slots.
    pub(crate) slots: u32,
}

/// Part of the state that exists once the publisher has accepted the subscriber.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) slots: Slots,
    pub(crate) credit: CreditSender,
    /// Expected sequence number.
    pub(crate) expected: u64,
}

/// Event without the types of the public interface.
#[derive(Debug)]
pub(crate) enum Found {
    Frame { position: u32, header: FrameHeader, memory: Vec<u8> },
    Gap { missed: u64, first: u64 },
    Fault(InvalidData),
    Ended { next: u64 },
}

/// State of a subscriber, shared by the receiving thread, the reader and its frames.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) node: ReceivingNode,
    pub(crate) numbers: Numbers,
    pub(crate) joined: Option<Joined>,
    faults: VecDeque<InvalidData>,
    /// Number of the last status that was read.
    heard_status: u32,
    ended: Option<Status>,
    /// Time of the last packet of the publisher, and of the last check for silence.
    heard: Instant,
    looked: Instant,
    leaving: bool,
    pub(crate) left: bool,
    pub(crate) failed: Option<StreamError>,
    /// The receiving thread ends.
    pub(crate) stop: bool,
    out: Writer,
}

impl Stream {
    pub(crate) fn new(node: ReceivingNode, numbers: Numbers, now: Instant) -> Self {
        Self {
            node,
            numbers,
            joined: None,
            faults: VecDeque::new(),
            heard_status: 0,
            ended: None,
            heard: now,
            looked: now,
            leaving: false,
            left: false,
            failed: None,
            stop: false,
            out: Writer::default(),
        }
    }

    /// Handles one datagram.
    pub(crate) fn receive(&mut self, now: Instant, datagram: &[u8], send: &mut impl FnMut(&[u8])) {
        let identity = self.node.identity;
        let Some(packet) = identity.parse(datagram) else {
            self.node.foreign += 1;
            return;
        };
        // Another incarnation of the publisher's card does not have the key of this stream.
        let is_of_stream = packet.common().incarnation == identity.peer_incarnation;
        match packet {
            Packet::Data(_) | Packet::Control(Control::Arrived(_)) if !is_of_stream => self.node.foreign += 1,
            Packet::Data(data) => {
                self.heard = now;
                self.node.data(now, &data, send);
                self.take_notices();
            }
            Packet::Control(Control::Arrived(arrived)) => {
                self.node.arrived(now, &arrived, send);
                self.take_notices();
            }
            Packet::Control(Control::Hello(_)) => {
                identity.hello(&mut self.out, true);
                send(&self.out.0);
            }
            Packet::Control(answer @ (Control::Ack(_) | Control::Nack(_))) => {
                let credit = self.joined.as_mut().map(|joined| &mut joined.credit);
                match credit.and_then(|credit| credit.answered(&answer, identity.incarnation)) {
                    Some(Outcome::Left) => self.left = true,
                    Some(Outcome::Closed(reason)) if self.ended.is_none() => {
                        self.failed = Some(StreamError::Removed { reason: reason.value() });
                    }
                    Some(Outcome::Superseded(newest)) => {
                        self.failed = Some(StreamError::Superseded { newest: newest.get() });
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Processes completed transfers.
    pub(crate) fn take_notices(&mut self) {
        let Some(joined) = &mut self.joined else { return };
        while let Some((address, length)) = self.node.notices.pop_front() {
            let is_status = address == self.node.memory.status_address() && length == BLOCK_BYTES;
            if !is_status {
                if let Err(error) = joined.slots.arrived(address, length) {
                    self.faults.push_back(error);
                }
                continue;
            }
            match Status::decode(self.node.memory.status(), self.numbers.stream) {
                Ok(status) => {
                    self.heard_status = status.number;
                    if let Err(error) = joined.slots.settled(status.settled) {
                        self.faults.push_back(error);
                    }
                    if status.ended {
                        self.ended = Some(status);
                    }
                }
                Err(error) => self.faults.push_back(error),
            }
        }
    }

    /// Repeats and sends credits that are due. `soon`: also those that could wait for further frames.
    pub(crate) fn tick(&mut self, now: Instant, soon: bool, send: &mut impl FnMut(&[u8])) {
        let away = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        // A process that was stopped cannot tell its own silence from the publisher's.
        if away > self.numbers.heartbeat {
            self.heard = (self.heard + away - self.numbers.heartbeat).min(now);
        }
        self.node.tick(now, send);
        let Some(joined) = &mut self.joined else { return };
        let identity = self.node.identity;
        joined.credit.tick(now, &identity, send);
        if !joined.credit.is_idle() || self.left || self.failed.is_some() {
            return;
        }
        // At the end no credit is needed, and the publisher may be gone.
        if self.ended.is_some() && !self.leaving {
            return;
        }
        let progress =
            Progress { consumed: joined.slots.consumed(), heard: self.heard_status, leaving: self.leaving };
        let sent = joined.credit.sent;
        let returned = progress.consumed.wrapping_sub(sent.consumed);
        let due = returned >= (self.numbers.slots / 2).max(1)
            || (soon && returned > 0)
            || progress.heard != sent.heard
            || progress.leaving != sent.leaving;
        if due {
            joined.credit.send(now, &identity, progress, send);
        }
    }

    /// Time after which [`tick`](Self::tick) is due.
    pub(crate) fn interval(&self) -> Duration {
        let busy = self.joined.as_ref().is_some_and(|joined| {
            let is_due = joined.slots.consumed() != joined.credit.sent.consumed;
            is_due || !joined.slots.is_idle() || !joined.credit.is_idle()
        });
        if busy { ACTIVE_INTERVAL } else { IDLE_INTERVAL.min(self.numbers.heartbeat) }
    }

    /// Whether an event or a failure waits for the reader.
    pub(crate) fn has_events(&self) -> bool {
        let unread = self.joined.as_ref().is_some_and(|joined| joined.slots.has_unread());
        unread || !self.faults.is_empty() || self.ended.is_some() || self.left || self.failed.is_some()
    }

    /// Returns the memory of a frame that its reader has dropped.
    pub(crate) fn give_back(&mut self, position: u32, memory: Vec<u8>) {
        let Some(joined) = &mut self.joined else { return };
        let index = joined.slots.index(position);
        self.node.memory.give_back(index, memory);
        joined.slots.release(position);
    }

    /// Returns the next event in the order of the stream.
    pub(crate) fn next_event(&mut self) -> Option<Found> {
        if let Some(fault) = self.faults.pop_front() {
            return Some(Found::Fault(fault));
        }
        let joined = self.joined.as_mut()?;
        let Some(arrival) = joined.slots.peek() else {
            let status = self.ended.filter(|status| status.sent == joined.slots.next())?;
            let missed = status.next.wrapping_sub(joined.expected);
            if missed == 0 {
                return Some(Found::Ended { next: status.next });
            }
            if missed > u64::MAX / 2 {
                self.ended = Some(Status { next: joined.expected, ..status });
                let (found, expected) = (status.next, joined.expected);
                return Some(Found::Fault(InvalidData::Sequence { found, expected }));
            }
            let first = std::mem::replace(&mut joined.expected, status.next);
            return Some(Found::Gap { missed, first });
        };
        let index = joined.slots.index(arrival.position);
        let frame = self.node.memory.slot(index).and_then(|slot| slot.get(..arrival.length));
        let header = FrameHeader::decode(frame.unwrap_or_default(), self.numbers.stream);
        let in_order = header.and_then(|header| {
            let missed = header.sequence.wrapping_sub(joined.expected);
            let (found, expected) = (header.sequence, joined.expected);
            let is_later = missed <= u64::MAX / 2;
            if is_later { Ok((header, missed)) } else { Err(InvalidData::Sequence { found, expected }) }
        });
        match in_order {
            Ok((header, missed @ 1..)) => {
                let first = std::mem::replace(&mut joined.expected, header.sequence);
                Some(Found::Gap { missed, first })
            }
            Ok((header, 0)) => {
                joined.slots.read();
                joined.expected = header.sequence.wrapping_add(1);
                let memory = self.node.memory.take(index).unwrap_or_default();
                Some(Found::Frame { position: arrival.position, header, memory })
            }
            Err(error) => {
                joined.slots.read();
                joined.slots.release(arrival.position);
                Some(Found::Fault(error))
            }
        }
    }

    /// Returns a failure of the stream, each one once.
    pub(crate) fn take_failure(&mut self, now: Instant) -> Option<StreamError> {
        if self.ended.is_some() {
            return None;
        }
        let silence = now.saturating_duration_since(self.heard);
        if silence >= self.numbers.silence {
            self.heard = now;
            return Some(StreamError::Silent { silence });
        }
        self.failed
    }

    /// Requests the leave message. Without need for one, the subscriber has left.
    pub(crate) fn begin_leaving(&mut self) {
        self.leaving = true;
        self.left |= self.ended.is_some() || self.failed.is_some() || self.joined.is_none();
    }
}

#[cfg(test)]
mod tests {
    use fpga_firmware::{Incarnation, NodeId};

    use super::*;
    use crate::packet::Identity;
    use crate::slots::Memory;

    const HEARTBEAT: Duration = Duration::from_millis(500);
    const SILENCE: Duration = Duration::from_secs(20);

    fn stream(now: Instant) -> Stream {
        let identity = Identity {
            node: NodeId::new(2),
            incarnation: Incarnation::new(5),
            peer: NodeId::new(1),
            peer_incarnation: Incarnation::new(9),
            packet_size_log2: 6,
            key: 7,
        };
        let node = ReceivingNode::new(identity, Memory::new(1, 256).unwrap(), 1, now).unwrap();
        Stream::new(node, Numbers { stream: 1, heartbeat: HEARTBEAT, silence: SILENCE, slots: 1 }, now)
    }

    #[test]
    fn silence_is_reported_once_after_limit() {
        let began = Instant::now();
        let mut stream = stream(began);
        let mut now = began;
        let mut next = |stream: &mut Stream| {
            now += HEARTBEAT / 10;
            stream.tick(now, true, &mut |_| ());
            (now - began, stream.take_failure(now))
        };
        let reported = std::iter::repeat_with(|| next(&mut stream)).find(|(_, failure)| failure.is_some());
        assert_eq!(reported, Some((SILENCE, Some(StreamError::Silent { silence: SILENCE }))));
        assert_eq!(next(&mut stream).1, None);
    }

    /// A thread that did not run has received nothing: such a period counts as one heartbeat.
    #[test]
    fn silence_does_not_include_periods_without_tick() {
        let mut now = Instant::now();
        let mut stream = stream(now);
        for _ in 1..SILENCE.as_millis() / HEARTBEAT.as_millis() {
            now += Duration::from_secs(3600);
            stream.tick(now, true, &mut |_| ());
            assert_eq!(stream.take_failure(now), None);
        }
        now += HEARTBEAT;
        stream.tick(now, true, &mut |_| ());
        assert_eq!(stream.take_failure(now), Some(StreamError::Silent { silence: SILENCE }));
    }
}
