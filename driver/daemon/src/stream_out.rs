//! One H2C stream channel of the shared card, for one client at a time.
//!
//! The bytes of a client's descriptor become one transfer of the owner, and the descriptor ends with it, so the card holds the client back. A
//! transfer that does not end its packet has whole beats; the rest of a beat waits for the packet's next bytes.
//!
//! A client that ends inside a packet leaves it open in the card. The packet is ended with the rest of a beat, or with a beat of zeros, so
//! that it does not continue with the next client's bytes.

use std::collections::VecDeque;

use fpga_driver::{Card, ChannelOptions, H2cStream, MemoryHandle, ResourceError, RunMode, Ticket};
use fpga_pci::{LogLimit, log_limited};

use crate::error::ShareError;
use crate::lane::BUFFER;

/// Maximum number of transfers in flight.
const SLOTS: usize = 4;
/// Maximum width of the data path in bytes, which a transfer may be longer than the bytes of a descriptor.
const MAX_BEAT: usize = 64;
const SLOT: usize = BUFFER + MAX_BEAT;

/// The card has refused the bytes, or another client has the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamRefused;

/// Bytes of the client's descriptor in progress.
#[derive(Debug)]
enum Sending {
    None,
    /// No slot is free.
    Waiting {
        data: Vec<u8>,
        ends: bool,
    },
    InFlight(Ticket),
    Failed,
}

/// An H2C stream channel.
#[derive(Debug)]
pub(crate) struct OutPort {
    stream: H2cStream,
    memory: MemoryHandle,
    beat: usize,
    client: Option<u64>,
    sending: Sending,
    /// Bytes of the packet that do not fill a beat yet.
    partial_beat: Vec<u8>,
    /// Bytes of a packet were submitted, and its end was not.
    is_packet_open: bool,
    /// The open packet has lost its client.
    must_end: bool,
    /// Number of submissions: determines the slot of the next one.
    submissions: usize,
    /// Transfers that have failed and were not reported.
    failed: VecDeque<Ticket>,
    log: LogLimit,
}

impl OutPort {
    pub(crate) fn open(card: &Card, number: u8) -> Result<Self, ShareError> {
        let options = ChannelOptions::default().descriptors(64).transfers(64).report_each(true);
        let taken = match card.h2c_stream_with(number, options.run_mode(RunMode::Credit)) {
            Err(error) if matches!(error.kind, ResourceError::CreditModeUnsupported { .. }) => {
                card.h2c_stream_with(number, options)
            }
            taken => taken,
        };
        let mut stream = taken?;
        let memory = stream.register_memory(card.registered_memory(SLOTS * SLOT)?);
        let memory = memory.map_err(|refused| refused.error)?;
        let width = card.info().xdma.data_width.unwrap_or(512) / 8;
        let beat = usize::try_from(width).unwrap_or(MAX_BEAT).clamp(1, MAX_BEAT);
        Ok(Self {
            stream,
            memory,
            beat,
            client: None,
            sending: Sending::None,
            partial_beat: Vec::with_capacity(MAX_BEAT),
            is_packet_open: false,
            must_end: false,
            submissions: 0,
            failed: VecDeque::new(),
            log: LogLimit::new("packets of clients"),
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

    /// Drops bytes of `client` that were not submitted, and ends its packet.
    pub(crate) fn interrupt(&mut self, client: u64) {
        if self.client != Some(client) {
            return;
        }
        self.sending = Sending::None;
        if self.is_packet_open {
            self.must_end = true;
        } else {
            self.partial_beat.clear();
        }
        self.poll();
    }

    /// Sends bytes of a descriptor: `Ok(false)` until the card has taken them ([`result`](Self::result)).
    pub(crate) fn send(&mut self, client: u64, from: &[u8], ends: bool) -> Result<bool, StreamRefused> {
        if !self.claim(client) {
            return Err(StreamRefused);
        }
        self.sending = Sending::Waiting { data: from.to_vec(), ends };
        self.result(client)
    }

    /// Returns whether the card has taken the bytes in progress.
    pub(crate) fn result(&mut self, client: u64) -> Result<bool, StreamRefused> {
        if self.client != Some(client) {
            return Err(StreamRefused);
        }
        if !self.poll() {
            return Ok(false);
        }
        match std::mem::replace(&mut self.sending, Sending::None) {
            Sending::Failed => Err(StreamRefused),
            _ => Ok(true),
        }
    }

    /// Continues transfers. Returns whether the bytes in progress have a result.
    pub(crate) fn poll(&mut self) -> bool {
        let is_lost = self.stream.poll().is_err();
        while let Some(completion) = self.stream.next_completion() {
            if let Err(fault) = completion.outcome {
                log_limited!(self.log, WARN, "sending of a client's packet failed: {fault}");
                self.failed.push_back(completion.ticket);
                self.failed.truncate(SLOTS);
            }
        }
        if self.must_end && self.has_slot() {
            let mut last = std::mem::take(&mut self.partial_beat);
            if last.is_empty() {
                last.resize(self.beat, 0);
            }
            let _ = self.submit(&last, true);
            self.must_end = false;
        }
        if let Sending::Waiting { .. } = self.sending
            && !self.must_end
            && self.has_slot()
            && let Sending::Waiting { data, ends } = std::mem::replace(&mut self.sending, Sending::None)
        {
            self.sending = self.start(&data, ends);
        }
        match &self.sending {
            Sending::None | Sending::Failed => true,
            Sending::Waiting { .. } if is_lost => {
                self.sending = Sending::Failed;
                true
            }
            Sending::Waiting { .. } => false,
            Sending::InFlight(ticket) => {
                let ticket = *ticket;
                if !is_lost && !self.stream.has_ended(ticket) {
                    // A simulated card may work in this call.
                    self.stream.relax();
                    return false;
                }
                let has_failed = self.failed.contains(&ticket);
                self.failed.retain(|failed| *failed != ticket);
                self.sending = if is_lost || has_failed { Sending::Failed } else { Sending::None };
                true
            }
        }
    }

    fn has_slot(&self) -> bool {
        usize::try_from(self.stream.in_flight()).is_ok_and(|count| count < SLOTS)
    }

    /// Starts the transfer of `data` after the partial beat; keeps its own partial beat if its packet continues.
    fn start(&mut self, data: &[u8], ends: bool) -> Sending {
        let mut bytes = std::mem::take(&mut self.partial_beat);
        bytes.extend_from_slice(data);
        let whole = if ends { bytes.len() } else { bytes.len() - bytes.len() % self.beat };
        let rest = bytes.split_off(whole);
        self.partial_beat = rest;
        if bytes.is_empty() {
            return Sending::None;
        }
        self.submit(&bytes, ends).map_or(Sending::Failed, Sending::InFlight)
    }

    /// Submits bytes; there is a free slot.
    fn submit(&mut self, bytes: &[u8], ends: bool) -> Option<Ticket> {
        let offset = self.submissions % SLOTS * SLOT;
        self.stream.memory(self.memory)?.write(offset, bytes).ok()?;
        let submitted = if ends {
            self.stream.submit_at(self.memory, offset, bytes.len())
        } else {
            self.stream.submit_part_at(self.memory, offset, bytes.len())
        };
        match submitted {
            Ok(ticket) => {
                self.submissions = self.submissions.wrapping_add(1);
                self.is_packet_open = !ends;
                // A failure of the channel is found by the next poll.
                let _ = self.stream.poll();
                Some(ticket)
            }
            Err(error) => {
                log_limited!(self.log, WARN, "sending of a client's packet failed: {error}");
                None
            }
        }
    }
}
