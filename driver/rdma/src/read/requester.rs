//! Side that reads: requests, and the answers that other nodes write.

use fpga_pci::Waited;
use fpga_registers::invariant::DebugExpect as _;
use std::collections::VecDeque;
use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_firmware::generated::ni as at;
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Command, Notify};
use fpga_registers::CardAddr;

use super::super::{
    Endpoint, EndpointError, Notification, RegionHandle, SendCompletion, SendOptions, SendTicket,
};
use fpga_driver::extension::At as _;
use fpga_driver::{CardRange, Error, WaitOptions};

use super::error::{ReadError, ReadFailure};
use super::request::{Request, SLOT};
use super::responder::RemoteReadable;
use super::{REQUESTS_AT, SLOTS, TIMEOUT, TIMEOUT_NS_PER_BYTE};

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

/// Reads of this endpoint.
#[derive(Debug, Default)]
pub(in super::super) struct ReadRequester {
    next_ticket: u64,
    pending: [Option<Pending>; SLOTS],
    completions: VecDeque<ReadCompletion>,
    /// Requests whose read ended before they did.
    ignored: Vec<SendTicket>,
    /// Failed reads whose answers may have arrived just before.
    late: Vec<ExpiredRead>,
}

impl ReadRequester {
    /// Returns the earliest deadline of a read in progress.
    pub(in super::super) fn next_deadline(&self) -> Option<Nanos> {
        self.pending.iter().flatten().map(|read| read.deadline).min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.iter().all(Option::is_none) && self.ignored.is_empty()
    }

    /// Returns whether `length` bytes at `address` from `node` belong to the answer to a read.
    pub(super) fn is_answer(&self, node: NodeId, address: CardAddr, length: u64) -> bool {
        let part = CardRange::new(address, length);
        let answers = |from: NodeId, to, length| from == node && CardRange::new(to, length).overlaps(part);
        self.pending.iter().flatten().any(|read| answers(read.node, read.to, read.length))
            || self.late.iter().any(|late| answers(late.node, late.to, late.length))
    }
}

impl Endpoint {
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
        self.card.check_process().map_err(EndpointError::from)?;
        let readable = source.length;
        if offset > readable || length > readable - offset {
            return Err(ReadError::Range { node: source.node, offset, length, readable });
        }
        self.next_poll = Nanos::ZERO;
        let now = self.time();
        let usual = || TIMEOUT + Duration::from_nanos(length.saturating_mul(TIMEOUT_NS_PER_BYTE));
        let patience = options.deadline.unwrap_or_else(usual);
        let ticket = ReadTicket(self.reads.requester.next_ticket);
        if length == 0 {
            self.reads.requester.next_ticket += 1;
            let node = source.node;
            let done = ReadCompletion {
                ticket,
                node,
                length,
                result: Ok(()),
                started: now.into(),
                finished: now.into(),
            };
            self.reads.requester.completions.push_back(done);
            return Ok(ticket);
        }
        // The answer uses the same scheme, and this card has to receive it.
        self.check_peer(source.node, SLOT, options.scheme)?;
        let scheme = options.scheme.unwrap_or(self.settings.scheme);
        let mut others = self.reads.requester.pending.iter().flatten();
        if others.any(|other| CardRange::new(other.to, other.length).overlaps(CardRange::new(to, length))) {
            return Err(ReadError::Overlap { to, length });
        }
        let Some(slot) = self.reads.requester.pending.iter().position(Option::is_none) else {
            return Err(ReadError::Full);
        };
        let from = self.reserved(REQUESTS_AT + SLOT * slot as u64);
        let window = self.open_writable(source.node, CardRange::new(to, length))?;
        let request = Request { offset, length, to, key: window.remote.key, scheme };
        match self.send_request(source, slot, from, &request, options.priority) {
            Ok(sent) => {
                self.reads.requester.next_ticket += 1;
                let deadline = now.saturating_add(patience.into());
                let node = source.node;
                let pending =
                    Pending { ticket, node, to, length, window, request: Some(sent), started: now, deadline };
                if let Some(place) = self.reads.requester.pending.get_mut(slot) {
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
        let mask = self.mask_of(source.node);
        self.sender
            .submit(now, command, &SendOptions::default().scheme(request.scheme), mask)
            .map_err(|error| ReadError::Send(super::super::SendError::of(error)))
    }

    /// Withdraws a read; its completion reports this. Returns whether the read had not ended before. Data that the other node has already
    /// sent may be in card memory.
    ///
    /// # Errors
    /// [`EndpointError::Cause`].
    pub fn cancel_read(&mut self, ticket: ReadTicket) -> Result<bool, Error<EndpointError>> {
        let named = |pending: &Option<Pending>| pending.as_ref().is_some_and(|read| read.ticket == ticket);
        let Some(slot) = self.reads.requester.pending.iter().position(named) else { return Ok(false) };
        let Some(Some(read)) = self.reads.requester.pending.get(slot) else { return Ok(false) };
        let failure = ReadFailure::Cancelled { node: read.node, length: read.length };
        self.end_read(self.time(), slot, Err(failure)).map(|()| true).at(|| self.place())
    }

    /// Returns the oldest completion of a read that was not taken yet.
    #[must_use]
    pub fn next_read(&mut self) -> Option<ReadCompletion> {
        self.reads.requester.completions.pop_front()
    }

    /// Takes the completion of one read, if it has ended.
    pub(super) fn take_read(&mut self, ticket: ReadTicket) -> Option<ReadCompletion> {
        let position = self.reads.requester.completions.iter().position(|done| done.ticket == ticket)?;
        self.reads.requester.completions.remove(position)
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
            |end: &Self| EndpointError::TimedOut { waited: Waited::of(&**end.card.backend(), timeout) };
        self.wait_until(timeout, late, |end| end.take_read(ticket)).at(|| self.place())
    }

    fn end_read(
        &mut self,
        now: Nanos,
        slot: usize,
        result: Result<(), ReadFailure>,
    ) -> Result<(), EndpointError> {
        let read = self.reads.requester.pending.get_mut(slot).and_then(Option::take);
        let Some(read) = read.debug_expect("a read in progress") else { return Ok(()) };
        if let Some(request) = read.request {
            // The answer overtook the request's acknowledgement, or the request is too late. Its completion, which comes in both cases, is
            // ignored.
            self.withdraw(now, request);
            self.reads.requester.ignored.push(request);
        }
        let Pending { ticket, node, to, length, started, .. } = read;
        let failed = result.is_err();
        self.reads.requester.completions.push_back(ReadCompletion {
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
            let until = self.ni.read(at::EVENT_POSTED).map_err(EndpointError::from)?;
            let taken = self.events.taken();
            self.reads.requester.late.retain(|late| !late.is_over(taken.wrapping_add(1)));
            self.reads.requester.late.push(ExpiredRead { node, to, length, until });
        }
        Ok(())
    }

    /// Processes the arrival of an answer. Returns false for arrivals of the application.
    pub(super) fn take_answer(&mut self, now: Nanos, notice: &Notification) -> Result<bool, EndpointError> {
        let event = self.events.taken();
        self.reads.requester.late.retain(|late| !late.is_over(event));
        let is_late = |late: &ExpiredRead| {
            (late.node, late.to, late.length) == (notice.node, notice.address, notice.length)
        };
        // Such an answer must not count as the answer to another read into the same range.
        if let Some(at) = self.reads.requester.late.iter().position(is_late) {
            self.reads.requester.late.swap_remove(at);
            return Ok(true);
        }
        let slot = self.reads.requester.pending.iter().position(|pending| {
            pending.as_ref().is_some_and(|read| {
                (read.node, read.to, read.length) == (notice.node, notice.address, notice.length)
            })
        });
        match slot {
            Some(slot) => self.end_read(now, slot, Ok(())).map(|()| true),
            None => Ok(false),
        }
    }

    /// Processes the completion of a request. Returns false for other transfers.
    pub(super) fn end_request(&mut self, now: Nanos, done: &SendCompletion) -> Result<bool, EndpointError> {
        if let Some(at) = self.reads.requester.ignored.iter().position(|ticket| *ticket == done.ticket) {
            self.reads.requester.ignored.swap_remove(at);
            return Ok(true);
        }
        let asked = |pending: &Option<Pending>| {
            pending.as_ref().is_some_and(|read| read.request == Some(done.ticket))
        };
        let Some(slot) = self.reads.requester.pending.iter().position(asked) else { return Ok(false) };
        if let Some(Some(read)) = self.reads.requester.pending.get_mut(slot) {
            read.request = None;
        }
        if let Err(error) = done.result {
            self.end_read(now, slot, Err(ReadFailure::Request(error)))?;
        }
        Ok(true)
    }

    /// Ends reads whose deadline has passed. Returns their number.
    pub(super) fn expire_reads(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        let mut work = 0;
        for slot in 0..SLOTS {
            let Some(Some(read)) = self.reads.requester.pending.get(slot) else { continue };
            if now < read.deadline {
                continue;
            }
            let waited = Waited::new(&**self.card.backend(), now.saturating_sub(read.started).get());
            let failure = ReadFailure::NoAnswer { node: read.node, length: read.length, waited };
            self.end_read(now, slot, Err(failure))?;
            work += 1;
        }
        Ok(work)
    }
}
