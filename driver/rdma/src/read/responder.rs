//! Side that owns the data: mailboxes for requests, and the answers to them.

use std::collections::VecDeque;

use fpga_firmware::NodeId;
use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;
use fpga_protocol::sender::{self, Command, Notify};
use fpga_registers::CardAddr;

use super::super::{
    Endpoint, EndpointError, Notification, RegionHandle, RemoteRegion, SendCompletion, SendOptions,
    SendTicket,
};
use fpga_driver::extension::At as _;
use fpga_driver::{C2hChannel, CardRange, ChannelOptions, Error};

use super::request::{Request, SLOT, SLOT_BYTES};
use super::{MAILBOX, MAILBOXES, MAILBOXES_AT};

/// Range of a node's card memory that this node may read. Its owner passes it on by means of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteReadable {
    /// Node that owns the memory.
    pub node: NodeId,
    /// Size of the readable range in bytes.
    pub length: u64,
    /// Region for requests.
    pub mailbox: RemoteRegion,
}

/// Handle of a readable range at its owner, needed to close it.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadableHandle {
    window: RegionHandle,
    /// Description of the range for the reader.
    pub remote: RemoteReadable,
}

/// Range that another node may read.
#[derive(Debug, Clone, Copy)]
struct Readable {
    reader: NodeId,
    range: CardRange,
}

/// Readable ranges of this endpoint, and the answers to other nodes' requests.
#[derive(Debug, Default)]
pub(in super::super) struct ReadResponder {
    mailboxes: [Option<Readable>; MAILBOXES],
    /// Channel that fetches requests; taken with the first readable range.
    fetch: Option<C2hChannel>,
    /// Requests that have arrived: mailbox and slot.
    arrived: VecDeque<(usize, u64)>,
    /// Answers that wait because the sender was full.
    unanswered: VecDeque<(Command, Scheme)>,
    /// Answers in progress.
    answers: Vec<SendTicket>,
    pub(in super::super) served: u64,
    pub(in super::super) refused: u64,
}

impl ReadResponder {
    /// Returns whether requests wait to be fetched and answered.
    pub(in super::super) fn has_requests(&self) -> bool {
        !self.arrived.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.arrived.is_empty() && self.unanswered.is_empty() && self.answers.is_empty()
    }
}

impl Endpoint {
    /// Lets node `reader` read `range` of this card's memory. [`poll`](Self::poll) of this endpoint answers its requests. Uses a memory
    /// window and, with the first call, a C2H channel that fetches requests ([`EndpointOptions::read_channel`]).
    ///
    /// # Errors
    /// [`EndpointError::RegionRange`], [`EndpointError::RegionsFull`], [`EndpointError::Resource`], [`EndpointError::Cause`].
    ///
    /// [`EndpointOptions::read_channel`]: crate::EndpointOptions::read_channel
    pub fn open_readable(
        &mut self,
        reader: NodeId,
        range: CardRange,
    ) -> Result<ReadableHandle, Error<EndpointError>> {
        self.open_mailbox(reader, range).at(|| self.place())
    }

    fn open_mailbox(&mut self, reader: NodeId, range: CardRange) -> Result<ReadableHandle, EndpointError> {
        if range.length == 0
            || reader == NodeId::ANY
            || !self.usable_memory().contains(range.start, range.length)
        {
            return Err(EndpointError::RegionRange { range, usable: self.usable_memory() });
        }
        let Some(index) = self.reads.responder.mailboxes.iter().position(Option::is_none) else {
            return Err(EndpointError::RegionsFull { capacity: MAILBOXES });
        };
        if self.reads.responder.fetch.is_none() {
            let last = self.card.info().xdma.c2h_channels.saturating_sub(1);
            let channel = self.settings.read_channel.unwrap_or(last);
            self.reads.responder.fetch = Some(self.card.c2h_with(channel, ChannelOptions::default())?);
        }
        let mailbox = CardRange::new(self.reserved(MAILBOXES_AT + MAILBOX * index as u64), MAILBOX);
        let window = self.open_window(reader, mailbox)?;
        if let Some(place) = self.reads.responder.mailboxes.get_mut(index) {
            *place = Some(Readable { reader, range });
        }
        let remote =
            RemoteReadable { node: self.settings.info.node, length: range.length, mailbox: window.remote };
        Ok(ReadableHandle { window, remote })
    }

    /// Closes a readable range: later requests are refused. Answers in progress continue.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn close_readable(&mut self, readable: &ReadableHandle) -> Result<(), Error<EndpointError>> {
        if !self.is_open(&readable.window) {
            return Ok(());
        }
        self.close_region(&readable.window)?;
        if let Some((index, _)) = self.mailbox_of(readable.window.remote.address)
            && let Some(place) = self.reads.responder.mailboxes.get_mut(index)
        {
            *place = None;
        }
        Ok(())
    }

    /// Fetches a request. Returns its answer, if the range may be read.
    fn fetch_request(&mut self, index: usize, slot: u64) -> Result<Option<(Command, Scheme)>, EndpointError> {
        let at = self.reserved(MAILBOXES_AT + MAILBOX * index as u64 + SLOT * slot);
        let (Some(fetch), Some(Some(readable))) =
            (&mut self.reads.responder.fetch, self.reads.responder.mailboxes.get(index).copied())
        else {
            return Ok(None);
        };
        let buffer = self.card.buffer(SLOT_BYTES)?;
        let buffer = fetch.read(buffer, at).map_err(|failed| EndpointError::Fetch(failed.error))?;
        let mut bytes = [0; SLOT_BYTES];
        let Ok(()) = buffer.read(0, &mut bytes) else { return Ok(None) };
        let Some(request) = Request::decode(&bytes) else { return Ok(None) };
        let Request { offset, length, to, key, scheme } = request;
        let Readable { reader, range } = readable;
        if offset > range.length || length > range.length - offset {
            return Ok(None);
        }
        let source = CardAddr::new(range.start.get() + offset);
        // This address cannot be a source. The reader notices it by its own deadline, as with any other refusal.
        if !self.is_source(source) {
            return Ok(None);
        }
        if reader == self.settings.info.node
            && CardRange::new(source, length).overlaps(CardRange::new(to, length))
        {
            return Ok(None);
        }
        if !self.settings.schemes.contains(scheme) {
            return Ok(None);
        }
        let notify = Notify::Receiver;
        let command = Command {
            source,
            node: reader,
            destination: to,
            length,
            key,
            notify,
            deadline: None,
            priority: 0,
        };
        Ok(Some((command, scheme)))
    }

    /// Processes the arrival of a request. Returns false for other arrivals.
    pub(super) fn take_request(&mut self, notice: &Notification) -> bool {
        if let Some((index, slot)) = self.mailbox_of(notice.address) {
            let reader =
                self.reads.responder.mailboxes.get(index).copied().flatten().map(|readable| readable.reader);
            if notice.length == SLOT && reader == Some(notice.node) {
                self.reads.responder.arrived.push_back((index, slot));
            } else {
                self.reads.responder.refused += 1;
            }
            return true;
        }
        false
    }

    /// Processes the completion of an answer. Returns false for other transfers.
    pub(super) fn end_answer(&mut self, done: &SendCompletion) -> bool {
        if let Some(at) = self.reads.responder.answers.iter().position(|ticket| *ticket == done.ticket) {
            self.reads.responder.answers.swap_remove(at);
            match done.result {
                Ok(()) => self.reads.responder.served += 1,
                // The reader notices it by its own deadline.
                Err(_) => self.reads.responder.refused += 1,
            }
            return true;
        }
        false
    }

    /// Answers requests that have arrived. Returns the amount of work done.
    pub(super) fn answer_requests(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        let mut work = 0;
        while let Some((index, slot)) = self.reads.responder.arrived.pop_front() {
            work += 1;
            match self.fetch_request(index, slot)? {
                Some(command) => self.reads.responder.unanswered.push_back(command),
                None => self.reads.responder.refused += 1,
            }
        }
        while let Some(&(command, scheme)) = self.reads.responder.unanswered.front() {
            let mask = self.mask_of(command.node);
            match self.sender.submit(now, command, &SendOptions::default().scheme(scheme), mask) {
                Ok(ticket) => self.reads.responder.answers.push(ticket),
                // Back-pressure: retry in a later poll.
                Err(sender::CommandError::Full { .. } | sender::CommandError::Destinations { .. }) => break,
                Err(_) => self.reads.responder.refused += 1,
            }
            self.reads.responder.unanswered.pop_front();
            work += 1;
        }
        Ok(work)
    }
}
