//! State of one stream: the receiving node, slots, status, credit and gaps. No I/O: datagrams go to a caller's function.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::credit::{CreditSender, Outcome, Progress};
use crate::error::{InvalidData, StreamError};
use crate::node::ReceivingNode;
use fpga_firmware::wire::{Control, Packet};
use fpga_frames_wire::blocks::{BLOCK_BYTES, FrameHeader, StatusBlock};
use fpga_frames_wire::{Arrivals, FramePosition, GapDetector};
use fpga_registers::cast;

/// Interval at which credits are checked while a frame is unread or with its reader, or a credit is in flight.
const ACTIVE_INTERVAL: Duration = Duration::from_millis(1);
/// Interval without either.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Parameters of a stream, from the bootstrap.
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
    pub(crate) slots: Arrivals,
    pub(crate) credit: CreditSender,
    pub(crate) gaps: GapDetector,
}

/// Event of the stream; the public one holds the shared state, too.
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
    /// Events to be returned before further frames are read.
    ready: VecDeque<Found>,
    /// Number of the last status that was read.
    heard_status: u32,
    ended: Option<StatusBlock>,
    /// Time of the last packet of the publisher, and of the last call of [`tick`](Self::tick).
    heard: Instant,
    ticked: Instant,
    leaving: bool,
    pub(crate) left: bool,
    pub(crate) failed: Option<StreamError>,
    /// The receiving thread ends.
    pub(crate) stop: bool,
    out: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(node: ReceivingNode, numbers: Numbers, now: Instant) -> Self {
        Self {
            node,
            numbers,
            joined: None,
            ready: VecDeque::new(),
            heard_status: 0,
            ended: None,
            heard: now,
            ticked: now,
            leaving: false,
            left: false,
            failed: None,
            stop: false,
            out: Vec::new(),
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
                send(&self.out);
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
        let stride = self.node.memory.stride();
        while let Some((address, length)) = self.node.notices.pop_front() {
            let is_status = address == self.node.memory.status_address() && length == BLOCK_BYTES;
            let result = if is_status {
                StatusBlock::decode(self.node.memory.status(), self.numbers.stream)
                    .map_err(InvalidData::Block)
                    .and_then(|status| {
                        self.heard_status = status.number;
                        if status.ended {
                            self.ended = Some(status);
                        }
                        joined.slots.settled(status.settled).map(drop).map_err(InvalidData::Arrival)
                    })
            } else {
                match u32::try_from(address / stride) {
                    Ok(slot) if address.is_multiple_of(stride) && length != 0 => {
                        joined.slots.arrived_from(slot, length, stride).map_err(InvalidData::Arrival)
                    }
                    _ => Err(InvalidData::Slot { address, length }),
                }
            };
            self.ready.extend(result.err().map(Found::Fault));
        }
    }

    /// Repeats and sends credits that are due. `soon`: also those that could wait for further frames.
    pub(crate) fn tick(&mut self, now: Instant, soon: bool, send: &mut impl FnMut(&[u8])) {
        let away = now.saturating_duration_since(std::mem::replace(&mut self.ticked, now));
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
            let is_reading = joined.slots.next() != joined.slots.consumed() || joined.slots.is_readable();
            is_due || is_reading || !joined.credit.is_idle()
        });
        if busy { ACTIVE_INTERVAL } else { IDLE_INTERVAL.min(self.numbers.heartbeat) }
    }

    /// Whether an event or a failure waits for the reader.
    pub(crate) fn has_events(&self) -> bool {
        let is_readable = self.joined.as_ref().is_some_and(|joined| joined.slots.is_readable());
        is_readable || !self.ready.is_empty() || self.ended.is_some() || self.left || self.failed.is_some()
    }

    /// Returns the memory of a frame that its reader has dropped.
    pub(crate) fn put_back(&mut self, position: u32, memory: Vec<u8>) {
        let Some(joined) = &mut self.joined else { return };
        self.node.memory.put_back(cast::index(position % self.numbers.slots), memory);
        let is_released = joined.slots.release(position);
        debug_assert!(is_released, "a frame at position {position} was returned twice");
    }

    /// Returns the next event in the order of the stream.
    pub(crate) fn next_event(&mut self) -> Option<Found> {
        if let Some(found) = self.ready.pop_front() {
            return Some(found);
        }
        let joined = self.joined.as_mut()?;
        let first = joined.gaps.expected();
        let gap = |missed| Found::Gap { missed, first: first.get() };
        let Some((FramePosition { position, slot }, length)) = joined.slots.read() else {
            let status = self.ended.filter(|status| status.sent == joined.slots.next())?;
            return Some(match joined.gaps.advance_to(status.next) {
                Ok(0) => Found::Ended { next: status.next.get() },
                Ok(missed) => gap(missed),
                Err(error) => {
                    self.ended = Some(StatusBlock { next: first, ..status });
                    Found::Fault(InvalidData::Sequence(error))
                }
            });
        };
        let (index, length) = (cast::index(slot), usize::try_from(length).unwrap_or(usize::MAX));
        let frame = self.node.memory.slot(index).and_then(|slot| slot.get(..length)).unwrap_or_default();
        let header = FrameHeader::decode(frame, frame.len(), self.numbers.stream);
        let header = header.map_err(InvalidData::Block).and_then(|header| {
            let missed = joined.gaps.frame(header.sequence).map_err(InvalidData::Sequence)?;
            Ok((header, missed))
        });
        match header {
            Ok((header, missed)) => {
                let memory = self.node.memory.take(index).unwrap_or_default();
                let frame = Found::Frame { position, header, memory };
                if missed == 0 {
                    return Some(frame);
                }
                self.ready.push_back(frame);
                Some(gap(missed))
            }
            Err(error) => {
                joined.slots.release(position);
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
    use crate::memory::Memory;
    use crate::packet::Identity;

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
