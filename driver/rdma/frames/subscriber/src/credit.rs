//! Credit of a subscriber: a transfer of one packet to the publisher's card, repeated until it is acknowledged.

use std::time::{Duration, Instant};

use fpga_firmware::wire::NackReason;

use crate::blocks::{BLOCK, Credit};
use crate::fields::Writer;
use crate::node::Identity;
use crate::packet::{self, SinglePacket, is_passing};

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
    Superseded(u32),
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
    out: Writer,
}

impl CreditSender {
    /// Creates a sender to the window at `address`; the publisher assumes that `first` was consumed.
    pub(crate) fn new(address: u64, key: u64, first: u32) -> Self {
        let sent = Progress { consumed: first, heard: 0, leaving: false };
        Self { address, key, sent, flight: None, number: 0, count: 0, out: Writer::default() }
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
        let payload = Credit { key: self.key, consumed, leaving, heard }.encode();
        self.sent = progress;
        self.number = self.number.wrapping_add(1);
        self.count += 1;
        let (again, timeout) = (now + FIRST_TIMEOUT, FIRST_TIMEOUT);
        self.flight = Some(Flight { payload, tries: 1, again, timeout, leaving });
        self.transmit(identity, send);
    }

    fn transmit(&mut self, identity: &Identity, send: &mut impl FnMut(&[u8])) {
        let Some(flight) = &self.flight else { return };
        let packet = SinglePacket {
            transfer: self.number,
            address: self.address,
            key: self.key,
            op: self.number,
            tries: flight.tries,
            packet_size_log2: identity.packet_size_log2,
        };
        packet::single(&mut self.out, identity.common(), &packet, &flight.payload);
        send(&self.out.0);
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
    pub(crate) fn answered(&mut self, answer: packet::Answer, incarnation: u32) -> Option<Outcome> {
        if answer.reason == Some(NackReason::Superseded) && answer.peer_incarnation == incarnation {
            self.flight = None;
            return Some(Outcome::Superseded(answer.op));
        }
        let is_ours = answer.op == self.number && answer.peer_incarnation == incarnation;
        if !is_ours || answer.reason.is_some_and(is_passing) {
            return None;
        }
        let flight = self.flight.take()?;
        Some(match answer.reason {
            // A window that is closed after the leave message was closed by it.
            _ if flight.leaving => Outcome::Left,
            None => Outcome::Arrived,
            Some(reason) => Outcome::Closed(reason),
        })
    }
}
