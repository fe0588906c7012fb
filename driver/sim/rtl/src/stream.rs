//! AXI4-Stream ports of one channel number: beats to the design (H2C) and from it (C2H).
//!
//! Sans-IO, like `bus`. H2C bytes are packed: TKEEP is all ones except in the last beat of a packet (PG195), so bytes that do not fill a
//! beat wait for the next descriptor of their packet. A C2H port is ready only while the card wants bytes; bytes of a beat beyond them
//! are held for the next descriptor.

use std::collections::VecDeque;

use fpga_sim::{DesignError, StreamBytes};

use crate::burst::MAX_WIDTH;

/// Number of received bytes of which the card is notified although it wants more.
const CHUNK: usize = 4096;
/// Cycles without a beat after which the card is notified of the bytes that have arrived.
const IDLE: u64 = 16;

/// One beat. TKEEP is contiguous: `keep` has one bit per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamBeat {
    pub(crate) data: [u8; MAX_WIDTH],
    pub(crate) keep: u64,
    pub(crate) is_last: bool,
}

/// Beat that breaks the rules of PG195: a defect of the design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("TKEEP {keep:#x} is not contiguous from byte 0; the bytes after the gap are lost")]
    Gap { keep: u64 },
    #[error("a beat without TLAST has TKEEP {keep:#x}; only the last beat of a packet may be partial")]
    Partial { keep: u64 },
    #[error("the last beat of a packet has TKEEP 0")]
    Empty,
    #[error("a beat arrived while TREADY was low")]
    NotReady,
}

/// State of both ports.
#[derive(Debug)]
pub(crate) struct StreamPorts {
    width: usize,
    /// H2C bytes that have no beat yet.
    sending: VecDeque<u8>,
    /// The packet ends after them.
    ends: bool,
    /// Beats handed to the simulator, of which the design has not accepted the last one.
    is_offered: bool,
    /// The card waits until the port has accepted its bytes.
    is_sending: bool,
    is_send_admitted: bool,
    /// C2H bytes that the card wants, 0 if none.
    wanted: usize,
    is_want_admitted: bool,
    /// TREADY of the cycle: a beat may arrive in it although the port has been stopped meanwhile.
    was_ready: bool,
    held: VecDeque<u8>,
    /// Ends of packets, as numbers of held bytes before them.
    packet_ends: VecDeque<usize>,
    last_beat: u64,
    is_told: bool,
    /// The card has something to do since this was last taken.
    has_news: bool,
}

impl StreamPorts {
    /// Ports with a data bus of `width` bytes.
    pub(crate) fn new(width: usize) -> Self {
        Self {
            width: width.clamp(1, MAX_WIDTH),
            sending: VecDeque::new(),
            ends: false,
            is_offered: false,
            is_sending: false,
            is_send_admitted: false,
            wanted: 0,
            is_want_admitted: false,
            was_ready: false,
            held: VecDeque::new(),
            packet_ends: VecDeque::new(),
            last_beat: 0,
            is_told: false,
            has_news: false,
        }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.width);
    }

    /// Begins to send `from`; `ends` sets TLAST at the last byte.
    pub(crate) fn send(&mut self, from: &[u8], ends: bool, is_admitted: bool) {
        self.sending.extend(from);
        self.ends = ends;
        self.is_sending = true;
        self.is_send_admitted = false;
        if is_admitted {
            self.admit_sending();
        }
    }

    /// Result of [`send`](Self::send).
    pub(crate) fn sent(&mut self) -> Result<(), DesignError> {
        if self.is_sending && (self.has_beat() || self.is_offered || !self.is_send_admitted) {
            return Err(DesignError::Pending);
        }
        self.is_sending = false;
        Ok(())
    }

    /// Returns whether a beat can be offered to the design.
    pub(crate) fn has_beat(&self) -> bool {
        let is_whole = self.sending.len() >= self.width;
        self.is_send_admitted && (is_whole || self.ends && !self.sending.is_empty())
    }

    /// Takes the next beat for the design.
    pub(crate) fn beat(&mut self) -> Option<StreamBeat> {
        if !self.has_beat() {
            return None;
        }
        let count = self.width.min(self.sending.len());
        let mut data = [0; MAX_WIDTH];
        for (into, byte) in data.iter_mut().zip(self.sending.drain(..count)) {
            *into = byte;
        }
        let is_last = self.ends && self.sending.is_empty();
        self.ends &= !is_last;
        self.is_offered = true;
        Some(StreamBeat { data, keep: keep_of(count), is_last })
    }

    /// The design has accepted the offered beat.
    pub(crate) fn accepted(&mut self) {
        self.is_offered = false;
        self.has_news |= self.is_sending && !self.has_beat();
    }

    /// Takes up to `into.len()` bytes of one packet. If there are none, the port becomes ready for them. `may_take`: on the simulator's
    /// thread, which also admits the request.
    pub(crate) fn receive(&mut self, into: &mut [u8], may_take: bool) -> Result<StreamBytes, DesignError> {
        if !may_take {
            // A request of which the card was notified, but that it has not taken, ended with its descriptor: the bytes are for this one.
            if self.wanted == 0 || self.is_told {
                (self.wanted, self.is_want_admitted, self.is_told) = (into.len(), false, false);
            }
            return Err(DesignError::Pending);
        }
        let end = self.packet_ends.front().copied();
        let count = end.unwrap_or(self.held.len()).min(into.len());
        if count == 0 {
            (self.wanted, self.is_want_admitted, self.is_told) = (into.len(), true, false);
            return Err(DesignError::Pending);
        }
        for (into, byte) in into.iter_mut().zip(self.held.drain(..count)) {
            *into = byte;
        }
        for end in &mut self.packet_ends {
            *end -= count;
        }
        let ends = end == Some(count);
        if ends {
            self.packet_ends.pop_front();
        }
        (self.wanted, self.is_want_admitted, self.is_told) = (0, false, false);
        Ok(StreamBytes { count, ends })
    }

    /// Ends the request of a channel that has stopped. Bytes that have arrived are for its next descriptor.
    pub(crate) fn stop(&mut self) {
        (self.wanted, self.is_want_admitted, self.is_told) = (0, false, false);
    }

    /// Notes TREADY of the next cycle.
    pub(crate) fn offer_ready(&mut self) {
        self.was_ready = self.is_ready();
    }

    fn has_enough(&self) -> bool {
        self.held.len() >= self.wanted || !self.packet_ends.is_empty()
    }

    /// TREADY of the C2H port.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_want_admitted && self.wanted > 0 && !self.has_enough()
    }

    /// Handles a beat from the design in cycle `now`.
    pub(crate) fn arrived(&mut self, beat: &StreamBeat, now: u64) -> Result<(), StreamError> {
        if !self.is_ready() && !self.was_ready {
            return Err(StreamError::NotReady);
        }
        let keep = beat.keep & keep_of(self.width);
        let count = usize::try_from(keep.trailing_ones()).unwrap_or(0);
        self.held.extend(beat.data.get(..count).unwrap_or_default());
        self.last_beat = now;
        let is_end = beat.is_last && (count > 0 || !self.held.is_empty());
        if is_end {
            self.packet_ends.push_back(self.held.len());
        }
        if self.has_enough() || self.held.len() >= CHUNK {
            self.tell();
        }
        if keep_of(count) != keep {
            return Err(StreamError::Gap { keep });
        }
        match beat.is_last {
            true if count == 0 => Err(StreamError::Empty),
            false if count < self.width => Err(StreamError::Partial { keep }),
            _ => Ok(()),
        }
    }

    fn tell(&mut self) {
        (self.is_told, self.has_news) = (true, true);
    }

    /// Takes the fact that the card can continue, in cycle `now`.
    pub(crate) fn take_news(&mut self, now: u64) -> bool {
        let waits = self.is_want_admitted && self.wanted > 0 && !self.is_told && !self.held.is_empty();
        if waits && (self.has_enough() || now.saturating_sub(self.last_beat) >= IDLE) {
            self.tell();
        }
        std::mem::take(&mut self.has_news)
    }

    /// Lets the simulator act for the card's requests, from cycle `now` on.
    pub(crate) fn admit(&mut self) {
        if self.is_sending && !self.is_send_admitted {
            self.admit_sending();
        }
        self.is_want_admitted |= self.wanted > 0;
    }

    fn admit_sending(&mut self) {
        self.is_send_admitted = true;
        // Bytes that fill no beat are accepted at once.
        self.has_news |= !self.has_beat() && !self.is_offered;
    }

    pub(crate) fn has_unadmitted(&self) -> bool {
        self.is_sending && !self.is_send_admitted || self.wanted > 0 && !self.is_want_admitted
    }

    /// Returns whether simulated time has to advance: beats for the design, or bytes that the card has not been told of.
    pub(crate) fn is_active(&self) -> bool {
        let waits = self.is_want_admitted && self.wanted > 0 && !self.is_told && !self.held.is_empty();
        self.has_beat() || self.is_offered || self.has_news || waits
    }

    /// Returns whether a beat waits for the design's TREADY.
    pub(crate) const fn is_stalled(&self) -> bool {
        self.is_offered
    }
}

fn keep_of(count: usize) -> u64 {
    if count == 0 { 0 } else { u64::MAX >> (64 - count.min(64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(bytes: &[u8], is_last: bool) -> StreamBeat {
        let mut data = [0; MAX_WIDTH];
        data[..bytes.len()].copy_from_slice(bytes);
        StreamBeat { data, keep: keep_of(bytes.len()), is_last }
    }

    #[test]
    fn partial_descriptors_are_packed_into_whole_beats() {
        let mut ports = StreamPorts::new(8);
        ports.send(&[1; 5], false, true);
        assert_eq!((ports.beat(), ports.sent()), (None, Ok(())));
        ports.send(&[2; 6], true, true);
        let first = ports.beat().expect("a beat");
        assert_eq!(
            (first.keep, first.is_last, &first.data[..8]),
            (0xFF, false, &[1, 1, 1, 1, 1, 2, 2, 2][..])
        );
        assert_eq!(ports.sent(), Err(DesignError::Pending));
        let last = ports.beat().expect("a beat");
        assert_eq!((last.keep, last.is_last), (0b111, true));
        ports.accepted();
        assert_eq!((ports.take_news(0), ports.sent()), (true, Ok(())));
    }

    #[test]
    fn port_is_stalled_without_request() {
        let mut ports = StreamPorts::new(8);
        assert!(!ports.is_ready());
        assert_eq!(ports.arrived(&beat(&[1; 8], false), 1), Err(StreamError::NotReady));
        let mut into = [0; 12];
        assert_eq!(ports.receive(&mut into, true), Err(DesignError::Pending));
        assert!(ports.is_ready());
        assert_eq!(ports.arrived(&beat(&[1; 8], false), 1), Ok(()));
        assert_eq!(ports.arrived(&beat(&[2; 8], false), 2), Ok(()));
        assert!(!ports.is_ready(), "it has 12 bytes");
        assert_eq!(ports.receive(&mut into, true), Ok(StreamBytes { count: 12, ends: false }));
        // The rest of the beat belongs to the next descriptor.
        assert_eq!(ports.receive(&mut into, true), Ok(StreamBytes { count: 4, ends: false }));
    }

    #[test]
    fn stopped_port_is_stalled_and_keeps_the_beat_of_its_cycle() {
        let mut ports = StreamPorts::new(8);
        let mut into = [0; 64];
        assert_eq!(ports.receive(&mut into, true), Err(DesignError::Pending));
        ports.offer_ready();
        ports.stop();
        assert!(!ports.is_ready());
        assert_eq!(ports.arrived(&beat(&[1; 3], true), 1), Ok(()));
        ports.offer_ready();
        assert_eq!(ports.arrived(&beat(&[1; 3], true), 2), Err(StreamError::NotReady));
        // The next request, by another thread, gets them after its admission.
        let _ = ports.take_news(2);
        assert_eq!(ports.receive(&mut into, false), Err(DesignError::Pending));
        assert!(ports.has_unadmitted());
        ports.admit();
        assert!(ports.take_news(3));
        assert_eq!(ports.receive(&mut into, true), Ok(StreamBytes { count: 3, ends: true }));
    }

    #[test]
    fn request_after_news_that_nobody_took_is_admitted_again() {
        let mut ports = StreamPorts::new(8);
        let mut into = [0; 64];
        assert_eq!(ports.receive(&mut into, true), Err(DesignError::Pending));
        assert_eq!(ports.arrived(&beat(&[1; 8], true), 1), Ok(()));
        assert!(ports.take_news(1));
        // The descriptor is gone. The next one asks.
        assert_eq!(ports.receive(&mut into, false), Err(DesignError::Pending));
        ports.admit();
        assert!(ports.take_news(2));
        assert_eq!(ports.receive(&mut into, true), Ok(StreamBytes { count: 8, ends: true }));
    }

    #[test]
    fn wrong_keep_is_reported() {
        let mut ports = StreamPorts::new(8);
        let _ = ports.receive(&mut [0; 100], true);
        let gap = StreamBeat { keep: 0b1011, ..beat(&[7; 8], true) };
        assert_eq!(ports.arrived(&gap, 1), Err(StreamError::Gap { keep: 0b1011 }));
        let _ = ports.receive(&mut [0; 100], true);
        let _ = ports.receive(&mut [0; 100], true);
        assert_eq!(ports.arrived(&beat(&[7; 3], false), 1), Err(StreamError::Partial { keep: 0b111 }));
    }
}
