//! RDMA reads: a request that makes the other node write (docs/protocol.md 10.9).
//!
//! A node that lets another node read keeps a *mailbox* for it: slots of card memory that the reader may write. A read consists of
//!
//! 1. a memory window at the reader, for exactly the expected bytes and for that node, with its own key;
//! 2. a request of 64 bytes, sent into a slot of the mailbox like any transfer: acknowledged, retransmitted, delivered once. It names the
//!    scheme, which both nodes run and which the answer uses too;
//! 3. at the other node, when the request's arrival is seen: a check of the request, and a transfer into the reader's window.
//!
//! So reads need no further function of the network interface than writes, and have the same reliability. The window is closed when the
//! read ends, with or without an error: later packets are refused.

mod error;
mod request;

use fpga_pci::Waited;
use std::collections::VecDeque;
use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_firmware::generated::{Scheme, ni as at};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{self, Command, Notify};
use fpga_registers::CardAddr;

use super::{
    Endpoint, EndpointError, Notification, RegionHandle, RemoteRegion, SendCompletion, SendOptions,
    SendTicket,
};
use crate::channel::{C2hChannel, ChannelOptions, WaitOptions};
use crate::error::{At as _, Error};
use crate::range::CardRange;
pub use error::{ReadError, ReadFailure};
use request::{Request, SLOT, SLOT_BYTES};

/// Maximum number of reads in progress: slots of a mailbox, and of the area from which requests are sent.
const SLOTS: usize = 8;
/// Size of a mailbox in bytes.
const MAILBOX: u64 = SLOT * SLOTS as u64;
/// Maximum number of nodes that may read at the same time.
const MAILBOXES: usize = 14;
/// Offset of mailboxes and requests in the card memory that the endpoint reserves: after the CDMA chain, before the event ring.
const MAILBOXES_AT: u64 = 8 << 10;
const REQUESTS_AT: u64 = MAILBOXES_AT + MAILBOX * MAILBOXES as u64;
const _: () = assert!(REQUESTS_AT + MAILBOX <= 16 << 10, "the event ring begins at 16 KiB");
/// Default timeout of an answer, and additional time for each of its bytes.
const TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_NS_PER_BYTE: u64 = 10;

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

/// Identifier of a read of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadTicket(u64);

/// Completion of a read: exactly one per accepted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadCompletion {
    /// Ticket that [`Endpoint::read`] returned.
    pub ticket: ReadTicket,
    /// Node that owns the data.
    pub node: NodeId,
    /// Requested length in bytes.
    pub length: u64,
    /// Result of the read. After a failure, the content of the destination is undefined.
    pub result: Result<(), ReadFailure>,
    /// Time of the call.
    pub started: Duration,
    /// Time at which the last byte was known to have arrived, or at which the read was given up.
    pub finished: Duration,
}

/// Read in progress.
#[derive(Debug)]
struct Pending {
    ticket: ReadTicket,
    node: NodeId,
    to: CardAddr,
    length: u64,
    window: RegionHandle,
    /// Request, until it has arrived.
    request: Option<SendTicket>,
    started: Nanos,
    deadline: Nanos,
}

/// Failed read whose answer may still be reported, if it was complete before the window was closed.
#[derive(Debug, Clone, Copy)]
struct ExpiredRead {
    node: NodeId,
    to: CardAddr,
    length: u64,
    /// Number of the last event that could report it.
    until: u32,
}

impl ExpiredRead {
    /// Returns whether the event with this running number is too late to report it.
    const fn is_over(&self, event: u32) -> bool {
        self.until.wrapping_sub(event) > u32::MAX / 2
    }
}

/// Range that another node may read.
#[derive(Debug, Clone, Copy)]
struct Readable {
    reader: NodeId,
    range: CardRange,
}

/// State of an endpoint's reads, as reader and as owner of the data.
#[derive(Debug, Default)]
pub(super) struct Reads {
    next_ticket: u64,
    pending: [Option<Pending>; SLOTS],
    completions: VecDeque<ReadCompletion>,
    mailboxes: [Option<Readable>; MAILBOXES],
    /// Channel that fetches requests; taken with the first readable range.
    fetch: Option<C2hChannel>,
    /// Requests that have arrived: mailbox and slot.
    arrived: VecDeque<(usize, u64)>,
    /// Answers that wait because the sender was full.
    unanswered: VecDeque<(Command, Scheme)>,
    /// Answers in progress.
    answers: Vec<SendTicket>,
    /// Requests whose read ended before they did.
    ignored: Vec<SendTicket>,
    /// Failed reads whose answers may have arrived just before.
    late: Vec<ExpiredRead>,
    pub(super) served: u64,
    pub(super) refused: u64,
}

impl Reads {
    /// Returns whether requests wait to be fetched and answered.
    pub(super) fn has_requests(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Returns the earliest deadline of a read in progress.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.pending.iter().flatten().map(|read| read.deadline).min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.iter().all(Option::is_none)
            && self.arrived.is_empty()
            && self.unanswered.is_empty()
            && self.answers.is_empty()
            && self.ignored.is_empty()
    }
}

impl Endpoint {
    fn reserved(&self, offset: u64) -> CardAddr {
        // The chain and the area after it were checked to be in card memory.
        CardAddr::new(self.transmit.chain().get().wrapping_add(offset))
    }

    /// Lets node `reader` read `range` of this card's memory. [`poll`](Self::poll) of this endpoint answers its requests. Uses a memory
    /// window and, with the first call, a C2H channel that fetches requests ([`EndpointOptions::read_channel`]).
    ///
    /// # Errors
    /// [`EndpointError::RegionRange`], [`EndpointError::RegionsFull`], [`EndpointError::Resource`], [`EndpointError::Mmio`].
    ///
    /// [`EndpointOptions::read_channel`]: super::EndpointOptions::read_channel
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
        let Some(index) = self.reads.mailboxes.iter().position(Option::is_none) else {
            return Err(EndpointError::RegionsFull { capacity: MAILBOXES });
        };
        if self.reads.fetch.is_none() {
            let last = self.card.info().xdma.c2h_channels.saturating_sub(1);
            let channel = self.settings.read_channel.unwrap_or(last);
            self.reads.fetch = Some(self.card.c2h_with(channel, ChannelOptions::default())?);
        }
        let mailbox = CardRange::new(self.reserved(MAILBOXES_AT + MAILBOX * index as u64), MAILBOX);
        let window = self.open_window(reader, mailbox)?;
        if let Some(place) = self.reads.mailboxes.get_mut(index) {
            *place = Some(Readable { reader, range });
        }
        let remote =
            RemoteReadable { node: self.settings.info.node, length: range.length, mailbox: window.remote };
        Ok(ReadableHandle { window, remote })
    }

    /// Closes a readable range: later requests are refused. Answers in progress continue.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn close_readable(&mut self, readable: &ReadableHandle) -> Result<(), Error<EndpointError>> {
        if !self.is_open(&readable.window) {
            return Ok(());
        }
        self.close_region(&readable.window)?;
        if let Some((index, _)) = self.mailbox_of(readable.window.remote.address)
            && let Some(place) = self.reads.mailboxes.get_mut(index)
        {
            *place = None;
        }
        Ok(())
    }

    /// Returns the mailbox and slot at an address, if there is one.
    fn mailbox_of(&self, address: CardAddr) -> Option<(usize, u64)> {
        let offset = address.get().checked_sub(self.reserved(MAILBOXES_AT).get())?;
        let index = usize::try_from(offset / MAILBOX).ok().filter(|index| *index < MAILBOXES)?;
        (offset % SLOT == 0).then_some((index, offset % MAILBOX / SLOT))
    }

    /// Reads `length` bytes at `offset` of `source` into this card's memory at `to`, by a request that the other node answers with a write.
    /// The read makes progress in [`poll`](Self::poll) and ends in exactly one [`ReadCompletion`]. Nothing else may write to the
    /// destination meanwhile.
    ///
    /// # Errors
    /// See [`ReadError`]. Nothing was started.
    pub fn read(
        &mut self,
        source: &RemoteReadable,
        offset: u64,
        to: CardAddr,
        length: u64,
        options: SendOptions,
    ) -> Result<ReadTicket, Error<ReadError>> {
        self.request_read(source, offset, to, length, options).at(|| self.place())
    }

    fn request_read(
        &mut self,
        source: &RemoteReadable,
        offset: u64,
        to: CardAddr,
        length: u64,
        options: SendOptions,
    ) -> Result<ReadTicket, ReadError> {
        let readable = source.length;
        if offset > readable || length > readable - offset {
            return Err(ReadError::Range { node: source.node, offset, length, readable });
        }
        let now = self.time();
        let usual = || TIMEOUT + Duration::from_nanos(length.saturating_mul(TIMEOUT_NS_PER_BYTE));
        let patience = options.deadline.unwrap_or_else(usual);
        let ticket = ReadTicket(self.reads.next_ticket);
        if length == 0 {
            self.reads.next_ticket += 1;
            let node = source.node;
            let done = ReadCompletion {
                ticket,
                node,
                length,
                result: Ok(()),
                started: now.into(),
                finished: now.into(),
            };
            self.reads.completions.push_back(done);
            return Ok(ticket);
        }
        // The answer uses the same scheme, and this card has to receive it.
        self.check_peer(source.node, SLOT, options.scheme)?;
        let scheme = options.scheme.unwrap_or(self.settings.scheme);
        let mut others = self.reads.pending.iter().flatten();
        if others.any(|other| CardRange::new(other.to, other.length).overlaps(CardRange::new(to, length))) {
            return Err(ReadError::Overlap { to, length });
        }
        let Some(slot) = self.reads.pending.iter().position(Option::is_none) else {
            return Err(ReadError::Full);
        };
        let from = self.reserved(REQUESTS_AT + SLOT * slot as u64);
        let window = self.open_writable(source.node, CardRange::new(to, length))?;
        let request = Request { offset, length, to, key: window.remote.key, scheme };
        match self.send_request(source, slot, from, &request, options.priority) {
            Ok(sent) => {
                self.reads.next_ticket += 1;
                let deadline = now.saturating_add(patience.into());
                let node = source.node;
                let pending =
                    Pending { ticket, node, to, length, window, request: Some(sent), started: now, deadline };
                if let Some(place) = self.reads.pending.get_mut(slot) {
                    *place = Some(pending);
                }
                Ok(ticket)
            }
            Err(error) => {
                self.close_window(&window)?;
                Err(error)
            }
        }
    }

    /// Writes the request to card memory and sends it.
    fn send_request(
        &mut self,
        source: &RemoteReadable,
        slot: usize,
        from: CardAddr,
        request: &Request,
        priority: u8,
    ) -> Result<SendTicket, ReadError> {
        let buffer = self.card.buffer_from(&request.encode()).map_err(EndpointError::from)?;
        self.transmit.write(buffer, from, WaitOptions::default()).map_err(|failed| failed.error)?;
        let command = Command {
            source: from,
            node: source.node,
            destination: CardAddr::new(source.mailbox.address.get().wrapping_add(SLOT * slot as u64)),
            length: SLOT,
            key: source.mailbox.key,
            notify: Notify::Receiver,
            deadline: None,
            priority,
        };
        let now = self.time();
        self.sender.submit(now, command, Some(request.scheme)).map_err(ReadError::Sender)
    }

    /// Withdraws a read; its completion reports this. Returns whether the read had not ended before. Data that the other node has already
    /// sent may be in card memory.
    ///
    /// # Errors
    /// [`EndpointError::Mmio`].
    pub fn cancel_read(&mut self, ticket: ReadTicket) -> Result<bool, Error<EndpointError>> {
        let named = |pending: &Option<Pending>| pending.as_ref().is_some_and(|read| read.ticket == ticket);
        let Some(slot) = self.reads.pending.iter().position(named) else { return Ok(false) };
        let Some(Some(read)) = self.reads.pending.get(slot) else { return Ok(false) };
        let failure = ReadFailure::Cancelled { node: read.node, length: read.length };
        self.end_read(self.time(), slot, Err(failure)).map(|()| true).at(|| self.place())
    }

    /// Returns the oldest completion of a read that was not taken yet.
    #[must_use]
    pub fn next_read(&mut self) -> Option<ReadCompletion> {
        self.reads.completions.pop_front()
    }

    /// Takes the completion of one read, if it has ended.
    pub(super) fn take_read(&mut self, ticket: ReadTicket) -> Option<ReadCompletion> {
        let position = self.reads.completions.iter().position(|done| done.ticket == ticket)?;
        self.reads.completions.remove(position)
    }

    /// Waits until the read has ended. Completions of other reads remain available.
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`] leaves the read in progress.
    pub fn wait_read(
        &mut self,
        ticket: ReadTicket,
        timeout: Duration,
    ) -> Result<ReadCompletion, Error<EndpointError>> {
        let late =
            |end: &Self| EndpointError::TimedOut { waited: Waited::of(&*end.card.shared.backend, timeout) };
        self.wait_until(timeout, late, |end| end.take_read(ticket)).at(|| self.place())
    }

    /// Processes an arrival that is a request or the answer to one. Returns false for arrivals of the application.
    pub(super) fn take_arrival(&mut self, now: Nanos, notice: &Notification) -> Result<bool, EndpointError> {
        if let Some((index, slot)) = self.mailbox_of(notice.address) {
            let reader = self.reads.mailboxes.get(index).copied().flatten().map(|readable| readable.reader);
            if notice.length == SLOT && reader == Some(notice.node) {
                self.reads.arrived.push_back((index, slot));
            } else {
                self.reads.refused += 1;
            }
            return Ok(true);
        }
        let event = self.events.taken();
        self.reads.late.retain(|late| !late.is_over(event));
        let is_late = |late: &ExpiredRead| {
            (late.node, late.to, late.length) == (notice.node, notice.address, notice.length)
        };
        // Such an answer must not count as the answer to another read into the same range.
        if let Some(at) = self.reads.late.iter().position(is_late) {
            self.reads.late.swap_remove(at);
            return Ok(true);
        }
        let slot = self.reads.pending.iter().position(|pending| {
            pending.as_ref().is_some_and(|read| {
                (read.node, read.to, read.length) == (notice.node, notice.address, notice.length)
            })
        });
        match slot {
            Some(slot) => self.end_read(now, slot, Ok(())).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns whether `length` bytes at `address` from `node` belong to a request to this node, or to an answer to it.
    pub(super) fn is_of_read(&self, node: NodeId, address: CardAddr, length: u64) -> bool {
        let part = CardRange::new(address, length);
        let answers = |from: NodeId, to, length| from == node && CardRange::new(to, length).overlaps(part);
        self.mailbox_of(address).is_some()
            || self.reads.pending.iter().flatten().any(|read| answers(read.node, read.to, read.length))
            || self.reads.late.iter().any(|late| answers(late.node, late.to, late.length))
    }

    /// Processes the completion of a transfer that is a request or an answer. Returns false for transfers of the application.
    pub(super) fn take_internal(&mut self, now: Nanos, done: &SendCompletion) -> Result<bool, EndpointError> {
        if let Some(at) = self.reads.answers.iter().position(|ticket| *ticket == done.ticket) {
            self.reads.answers.swap_remove(at);
            match done.result {
                Ok(()) => self.reads.served += 1,
                // The reader notices it by its own deadline.
                Err(_) => self.reads.refused += 1,
            }
            return Ok(true);
        }
        if let Some(at) = self.reads.ignored.iter().position(|ticket| *ticket == done.ticket) {
            self.reads.ignored.swap_remove(at);
            return Ok(true);
        }
        let asked = |pending: &Option<Pending>| {
            pending.as_ref().is_some_and(|read| read.request == Some(done.ticket))
        };
        let Some(slot) = self.reads.pending.iter().position(asked) else { return Ok(false) };
        if let Some(Some(read)) = self.reads.pending.get_mut(slot) {
            read.request = None;
        }
        if let Err(error) = done.result {
            self.end_read(now, slot, Err(ReadFailure::Request(error)))?;
        }
        Ok(true)
    }

    fn end_read(
        &mut self,
        now: Nanos,
        slot: usize,
        result: Result<(), ReadFailure>,
    ) -> Result<(), EndpointError> {
        let Some(read) = self.reads.pending.get_mut(slot).and_then(Option::take) else { return Ok(()) };
        if let Some(request) = read.request {
            // The answer overtook the request's acknowledgement, or the request is too late. Its completion, which comes in both cases, is
            // ignored.
            self.withdraw(now, request);
            self.reads.ignored.push(request);
        }
        let Pending { ticket, node, to, length, started, .. } = read;
        let failed = result.is_err();
        self.reads.completions.push_back(ReadCompletion {
            ticket,
            node,
            length,
            result,
            started: started.into(),
            finished: now.into(),
        });
        self.close_window(&read.window)?;
        if failed {
            // Read after the window is closed: no answer can complete later.
            let until = self.ni.read(at::EVENT_POSTED).map_err(EndpointError::Mmio)?;
            let taken = self.events.taken();
            self.reads.late.retain(|late| !late.is_over(taken.wrapping_add(1)));
            self.reads.late.push(ExpiredRead { node, to, length, until });
        }
        Ok(())
    }

    /// Answers requests that have arrived, and ends reads whose deadline has passed. Returns the amount of work done.
    pub(super) fn poll_reads(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        let mut work = 0;
        for slot in 0..SLOTS {
            let Some(Some(read)) = self.reads.pending.get(slot) else { continue };
            if now < read.deadline {
                continue;
            }
            let waited = Waited::new(&*self.card.shared.backend, now.saturating_sub(read.started).get());
            let failure = ReadFailure::NoAnswer { node: read.node, length: read.length, waited };
            self.end_read(now, slot, Err(failure))?;
            work += 1;
        }
        while let Some((index, slot)) = self.reads.arrived.pop_front() {
            work += 1;
            match self.fetch_request(index, slot)? {
                Some(command) => self.reads.unanswered.push_back(command),
                None => self.reads.refused += 1,
            }
        }
        while let Some((command, scheme)) = self.reads.unanswered.front() {
            match self.sender.submit(now, *command, Some(*scheme)) {
                Ok(ticket) => self.reads.answers.push(ticket),
                // Back-pressure: retry in a later poll.
                Err(sender::CommandError::Full { .. } | sender::CommandError::Destinations { .. }) => break,
                Err(_) => self.reads.refused += 1,
            }
            self.reads.unanswered.pop_front();
            work += 1;
        }
        Ok(work)
    }

    /// Fetches a request. Returns its answer, if the range may be read.
    fn fetch_request(&mut self, index: usize, slot: u64) -> Result<Option<(Command, Scheme)>, EndpointError> {
        let at = self.reserved(MAILBOXES_AT + MAILBOX * index as u64 + SLOT * slot);
        let (Some(fetch), Some(Some(readable))) =
            (&mut self.reads.fetch, self.reads.mailboxes.get(index).copied())
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
}
