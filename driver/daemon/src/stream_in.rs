//! One C2H stream channel of the shared card, for one client at a time.
//!
//! Buffers are posted only for bytes that the client's descriptors have room for, so a client that does not read holds the card back, and
//! packets that arrive later stay in the card for the next client.
//!
//! A client that ends inside a packet: the bytes that have arrived for it are dropped, and the rest of the packet up to its end, so that the
//! next client begins with a whole packet. On a channel on which no packet has ended yet there may be none (a stream without packet
//! ends): there only the bytes that have arrived are dropped.

use std::collections::VecDeque;

use fpga_driver::stream::{C2hStream, C2hStreamOptions, StreamError};
use fpga_driver::{Card, ResourceError, RunMode};
use fpga_pci::{LogLimit, log_limited};

use crate::error::ShareError;
use crate::lane::BUFFER;
use crate::stream_out::StreamRefused;

/// Number of buffers.
const SLOTS: u32 = 4;
/// Granularity of the lengths of buffers in bytes (PG195, "Length Granularity").
const GRANULE: usize = 64;

/// Bytes that a client has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) count: usize,
    /// Their packet ends with them.
    pub(crate) ends: bool,
}

/// A C2H stream channel.
#[derive(Debug)]
pub(crate) struct InPort {
    stream: C2hStream,
    client: Option<u64>,
    /// Bytes that the client wants, until it has some.
    wanted: usize,
    /// Bytes that have arrived and that the client has not taken.
    arrived: VecDeque<u8>,
    /// A packet ends with them.
    ends: bool,
    /// The bytes taken last did not end their packet.
    is_inside_packet: bool,
    /// Everything up to the end of the packet is dropped.
    discards: bool,
    /// A packet has ended on this channel.
    has_packets: bool,
    /// The card has reported an error, which the client does not know yet.
    has_failed: bool,
    log: LogLimit,
}

impl InPort {
    pub(crate) fn open(card: &Card, number: u8) -> Result<Self, ShareError> {
        let options = C2hStreamOptions::default().buffers(SLOTS).buffer_size(BUFFER);
        let taken = match card.c2h_stream_with(number, options) {
            Err(error) if matches!(error.kind, ResourceError::CreditModeUnsupported { .. }) => {
                card.c2h_stream_with(number, options.run_mode(RunMode::Batch))
            }
            taken => taken,
        };
        let stream = taken?;
        // The last owner of the card may have left a packet open.
        let discards = stream.is_inside_packet();
        Ok(Self {
            stream,
            client: None,
            wanted: 0,
            arrived: VecDeque::with_capacity(BUFFER),
            ends: false,
            is_inside_packet: false,
            discards,
            has_packets: discards,
            has_failed: false,
            log: LogLimit::new("packets to clients"),
        })
    }

    /// Takes the channel for `client`. Returns `false` if another one has it.
    pub(crate) fn claim(&mut self, client: u64) -> bool {
        *self.client.get_or_insert(client) == client
    }

    /// Frees the channel of `client`: see [`interrupt`](Self::interrupt).
    pub(crate) fn release(&mut self, client: u64) {
        self.interrupt(client);
        if self.client == Some(client) {
            self.client = None;
        }
    }

    /// Drops the bytes that have arrived for `client`, and the rest of their packet when it arrives.
    pub(crate) fn interrupt(&mut self, client: u64) {
        if self.client != Some(client) {
            return;
        }
        self.wanted = 0;
        self.poll();
        let mut is_inside = self.is_inside_packet;
        if !self.arrived.is_empty() {
            is_inside = !self.ends;
            self.arrived.clear();
        }
        // Bytes of a buffer that is not full belong to the packet that has begun.
        is_inside |= self.stream.has_part_begun();
        self.discards |= is_inside && self.has_packets;
        (self.is_inside_packet, self.ends, self.has_failed) = (false, false, false);
    }

    /// The client wants nothing more for now. A buffer that is posted already stays.
    pub(crate) fn stop(&mut self, client: u64) {
        if self.client == Some(client) {
            self.wanted = 0;
        }
    }

    /// Takes bytes of one packet: `None` while none have arrived.
    pub(crate) fn receive(
        &mut self,
        client: u64,
        into: &mut [u8],
    ) -> Result<Option<Received>, StreamRefused> {
        if !self.claim(client) {
            return Err(StreamRefused);
        }
        self.wanted = into.len();
        if !self.poll() {
            return Ok(None);
        }
        if std::mem::take(&mut self.has_failed) {
            return Err(StreamRefused);
        }
        let count = into.len().min(self.arrived.len());
        for (byte, arrived) in into.iter_mut().zip(self.arrived.drain(..count)) {
            *byte = arrived;
        }
        let ends = self.ends && self.arrived.is_empty();
        if ends {
            self.ends = false;
        }
        (self.wanted, self.is_inside_packet) = (0, !ends);
        Ok(Some(Received { count, ends }))
    }

    /// Takes parts that the card has closed, and posts buffers. Returns whether the client can take bytes, or has to know of an error.
    pub(crate) fn poll(&mut self) -> bool {
        while self.arrived.is_empty() && !self.has_failed && self.stream.has_part() {
            self.take_part();
        }
        if !self.arrived.is_empty() || self.has_failed {
            return true;
        }
        if self.stream.posted_parts() == 0 && self.wanted > 0 {
            let length = self.wanted.next_multiple_of(GRANULE).min(BUFFER);
            if let Err(error) = self.stream.post_part(length) {
                log_limited!(self.log, WARN, "receiving of a client's packet failed: {error}");
                self.has_failed = true;
                return true;
            }
        }
        // A simulated card may work in this call.
        self.stream.relax();
        false
    }

    fn take_part(&mut self) {
        match self.stream.next_part() {
            Ok(None) => {}
            Ok(Some(part)) => {
                self.has_packets |= part.ends_packet;
                if self.discards {
                    self.discards = !part.ends_packet;
                    return;
                }
                let arrived = &mut self.arrived;
                part.buffer.read_chunks(|_, bytes| arrived.extend(bytes));
                self.ends = part.ends_packet;
            }
            Err(error) => {
                log_limited!(self.log, WARN, "receiving of a client's packet failed: {error}");
                self.discards |= matches!(error.kind, StreamError::Packet(_));
                self.has_failed = true;
            }
        }
    }
}
