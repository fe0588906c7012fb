//! Credit of a subscriber: a transfer of one packet to the publisher's card, repeated until it is acknowledged.

use std::time::{Duration, Instant};

use fpga_firmware::wire::{Control, DataHeader, Flags, NackReason, StartFields};
use fpga_firmware::{Incarnation, OpNumber, TransferId};
use fpga_frames_wire::blocks::{BLOCK, CreditBlock};
use fpga_registers::CardAddr;

use crate::packet::Identity;

/// Time until the first repetition; doubled at each further one.
const FIRST_TIMEOUT: Duration = Duration::from_millis(5);
/// Maximum time between two repetitions.
const MAX_TIMEOUT: Duration = Duration::from_millis(320);

#[derive(Debug)]
struct Flight {
    payload: [u8; BLOCK],
    tries: u8,
    /// Time of the next repetition.
    again: Instant,
    timeout: Duration,
    /// It is the leave message.
    leaving: bool,
}

/// Effect of an answer of the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Arrived,
    /// The publisher has received the leave message.
    Left,
    /// The window is closed: reason of the refusal.
    Closed(NackReason),
    /// The publisher's card knows this later incarnation of the node.
    Superseded(Incarnation),
}

/// Progress that is reported to the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) consumed: u32,
    pub(crate) heard: u32,
    pub(crate) leaving: bool,
}

/// Sender of credits: at most one is in flight.
#[derive(Debug)]
pub(crate) struct CreditSender {
    address: u64,
    key: u64,
    /// Last progress that was sent.
    pub(crate) sent: Progress,
    flight: Option<Flight>,
    number: u32,
    /// Number of credits sent, without repetitions.
    pub(crate) count: u64,
    out: Vec<u8>,
}

impl CreditSender {
    /// Creates a sender to the window at `address`; the publisher assumes that `first` was consumed.
    pub(crate) fn new(address: u64, key: u64, first: u32) -> Self {
        let sent = Progress { consumed: first, heard: 0, leaving: false };
        Self { address, key, sent, flight: None, number: 0, count: 0, out: Vec::new() }
    }

    /// Whether no credit is in flight.
    pub(crate) const fn is_idle(&self) -> bool {
        self.flight.is_none()
    }

    /// Sends a credit. The last one has arrived.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        identity: &Identity,
        progress: Progress,
        send: &mut impl FnMut(&[u8]),
    ) {
        let Progress { consumed, heard, leaving } = progress;
        let payload = CreditBlock { key: self.key, consumed, leaving, heard }.encode();
        self.sent = progress;
        self.number = self.number.wrapping_add(1);
        self.count += 1;
        let (again, timeout) = (now + FIRST_TIMEOUT, FIRST_TIMEOUT);
        self.flight = Some(Flight { payload, tries: 1, again, timeout, leaving });
        self.transmit(identity, send);
    }

    fn transmit(&mut self, identity: &Identity, send: &mut impl FnMut(&[u8])) {
        let Some(flight) = &self.flight else { return };
        #[expect(clippy::cast_possible_truncation, reason = "64 bytes")]
        let length = BLOCK as u32;
        let (address, transfer) = (CardAddr::new(self.address), TransferId::new(self.number));
        let header = DataHeader {
            common: identity.common(Flags::NOTIFY_RECEIVER),
            transfer,
            oldest_live: transfer,
            segment: 0,
            segment_count: 1,
            address,
            key: self.key,
            op: OpNumber::new(self.number),
            tries: flight.tries,
            packet_size_log2: identity.packet_size_log2,
            start: Some(StartFields {
                base: address,
                segment_length: length,
                packets: 1,
                transfer_base: address,
                transfer_length: length.into(),
            }),
        };
        identity.wrap(&mut self.out, |bytes| header.encode(&flight.payload, bytes));
        send(&self.out);
    }

    /// Repeats a credit that was not acknowledged in time.
    pub(crate) fn tick(&mut self, now: Instant, identity: &Identity, send: &mut impl FnMut(&[u8])) {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.again <= now) else { return };
        flight.tries = flight.tries.saturating_add(1);
        flight.timeout = (flight.timeout * 2).min(MAX_TIMEOUT);
        flight.again = now + flight.timeout;
        self.transmit(identity, send);
    }

    /// Handles an answer of the publisher. `None`: it does not end the credit in flight.
    pub(crate) fn answered(&mut self, answer: &Control, incarnation: Incarnation) -> Option<Outcome> {
        let (op, peer_incarnation, reason) = match answer {
            Control::Ack(ack) => (ack.op, ack.peer_incarnation, None),
            Control::Nack(nack) => (nack.op, nack.peer_incarnation, Some(nack.reason)),
            _ => return None,
        };
        if peer_incarnation != incarnation {
            return None;
        }
        if reason == Some(NackReason::Superseded) {
            self.flight = None;
            // A refusal of this kind has the newest incarnation in place of the op number.
            return Some(Outcome::Superseded(Incarnation::new(op.get())));
        }
        // Registry or event ring full, or a queue on the way: the credit is repeated.
        let is_passing = matches!(
            reason,
            Some(NackReason::Busy | NackReason::EscapeFull | NackReason::NotReady | NackReason::Trimmed)
        );
        if op.get() != self.number || is_passing {
            return None;
        }
        let flight = self.flight.take()?;
        Some(match reason {
            // A window that is closed after the leave message was closed by it.
            _ if flight.leaving => Outcome::Left,
            None => Outcome::Arrived,
            Some(reason) => Outcome::Closed(reason),
        })
    }
}
