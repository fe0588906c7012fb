//! Endpoints: transfers from card to card over the network.

use std::borrow::Cow;

use fpga_driver::{CardAddr, NodeId};
use fpga_rdma::{
    Endpoint, EndpointError, Notification, ReadTicket, ReadableHandle, RegionHandle, Scheme, SendCompletion,
    SendError, SendFailure, SendTicket,
};

use crate::abi::{
    FPGA_SEND_CANCELLED, FPGA_SEND_DEADLINE, FPGA_SEND_DONE, FPGA_SEND_FORGOTTEN, FPGA_SEND_NOT_READY,
    FPGA_SEND_OTHER, FPGA_SEND_REFUSED, FPGA_SEND_SCHEME, FPGA_SEND_SUPERSEDED, FPGA_SEND_UNANSWERED, Status,
    fpga_endpoint_counters, fpga_endpoint_info, fpga_endpoint_options, fpga_notification, fpga_peer,
    fpga_region, fpga_send_completion, fpga_send_options,
};
use crate::call::{bytes, duration, out_bytes, read_options, set, set_if, write_struct};
use crate::code::StatusCode;
use crate::endpoint_options::send_options;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::remote::remote_region;
use crate::wait::{CANCELLATION, with_wait};

/// An endpoint, and the objects that tickets and structures of the C program refer to.
pub(crate) struct CardEndpoint {
    pub(crate) endpoint: Endpoint,
    /// Tickets by slot of the sender's table.
    tickets: Vec<Option<SendTicket>>,
    pub(crate) regions: Vec<RegionHandle>,
    pub(crate) readables: Vec<ReadableHandle>,
    /// Reads in progress, and the number of the next one.
    pub(crate) reads: Vec<(u64, ReadTicket)>,
    pub(crate) next_read: u64,
}

// SAFETY: the only type of this kind.
unsafe impl Object for CardEndpoint {
    const KIND: Kind = Kind::Endpoint;
}

/// Returns the number of a ticket for C programs.
fn number_of(ticket: SendTicket) -> u64 {
    u64::from(ticket.generation()) << u32::BITS | u64::from(ticket.slot())
}

impl CardEndpoint {
    /// Records a ticket and returns its number.
    fn record(&mut self, ticket: SendTicket) -> u64 {
        let slot = ticket.slot() as usize;
        if slot >= self.tickets.len() {
            self.tickets.resize(slot + 1, None);
        }
        if let Some(known) = self.tickets.get_mut(slot) {
            *known = Some(ticket);
        }
        number_of(ticket)
    }

    fn ticket(&self, number: u64) -> Result<SendTicket, Failure> {
        let slot = usize::try_from(number & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let known = self.tickets.get(slot).copied().flatten().filter(|ticket| number_of(*ticket) == number);
        known.ok_or_else(|| Failure::of(Status::Ticket, "the endpoint has no transfer with this ticket"))
    }

    /// Returns the failure of a transfer or read.
    pub(crate) fn failure(
        &self,
        status: Status,
        error: &impl core::fmt::Display,
        advice: Option<Cow<'static, str>>,
    ) -> Failure {
        Failure::on_card(status, error, self.endpoint.card().name()).in_endpoint().advise_some(advice)
    }

    /// Removes the ticket of a transfer that has ended.
    fn remove(&mut self, ticket: SendTicket) {
        if let Some(known) = self.tickets.get_mut(ticket.slot() as usize) {
            known.take_if(|known| *known == ticket);
        }
    }
}

impl StatusCode for EndpointError {
    fn status(&self) -> Status {
        match self {
            Self::NoInterface
            | Self::Scheme { .. }
            | Self::Schemes { .. }
            | Self::Tuning { .. }
            | Self::OpTable { .. } => Status::Unsupported,
            Self::Config(_) | Self::Option { .. } => Status::Argument,
            Self::Resource(error) => error.kind.status(),
            Self::Cdma(error) => error.kind.status(),
            Self::Channel(error) => error.kind.status(),
            Self::Submit(error) => error.kind.status(),
            Self::Prepare(error) | Self::Fetch(error) => error.kind.status(),
            Self::Upload(_) | Self::Chain { .. } => Status::Fault,
            Self::Cause(cause) => cause.status(),
            Self::RegionRange { .. } => Status::Range,
            Self::RegionsFull { .. } => Status::NoMemory,
            Self::TimedOut { .. } | Self::NoArrival { .. } => Status::TimedOut,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::NoPeer { .. } => Status::Peer,
            Self::EventsLost { .. } => Status::Lost,
            Self::WindowsStuck { .. } => Status::Wedged,
            _ => Status::System,
        }
    }
}

impl StatusCode for SendError {
    fn status(&self) -> Status {
        match self {
            Self::Scheme { .. } => Status::Unsupported,
            Self::Peer { .. } => Status::Peer,
            Self::Cause(cause) => cause.status(),
            _ if self.is_full() => Status::Full,
            _ => Status::Range,
        }
    }
}

/// Returns the status of a failed transfer, and its `fpga_send_reason`.
pub(crate) const fn send_failure(failure: &SendFailure) -> (Status, i32) {
    match failure {
        SendFailure::Unanswered { .. } => (Status::Peer, FPGA_SEND_UNANSWERED),
        SendFailure::Refused { .. } => (Status::Peer, FPGA_SEND_REFUSED),
        SendFailure::ReceiverNotReady { .. } => (Status::Peer, FPGA_SEND_NOT_READY),
        SendFailure::Forgotten { .. } => (Status::Peer, FPGA_SEND_FORGOTTEN),
        SendFailure::Scheme { .. } => (Status::Unsupported, FPGA_SEND_SCHEME),
        SendFailure::Deadline { .. } => (Status::TimedOut, FPGA_SEND_DEADLINE),
        SendFailure::Cancelled { .. } => (Status::Cancelled, FPGA_SEND_CANCELLED),
        SendFailure::Superseded { .. } => (Status::Peer, FPGA_SEND_SUPERSEDED),
        _ => (Status::Peer, FPGA_SEND_OTHER),
    }
}

/// Returns the advice about a failed transfer.
pub(crate) fn send_advice(failure: &SendFailure) -> Option<Cow<'static, str>> {
    match failure {
        SendFailure::Superseded { .. } => Some(Cow::Borrowed(
            "close the endpoint and open it again without an incarnation: it starts with a later one; check that no other node has this node id",
        )),
        other => other.help(),
    }
}

/// Converts a time to nanoseconds.
pub(crate) fn nanoseconds(time: core::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn fpga_endpoint_open(
    card: u64,
    options: *const fpga_endpoint_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::card(card)?;
    let mut endpoint = Endpoint::open_with(&card, &read_options(options, size)?.options()?)?;
    endpoint.set_cancellation(Some(CANCELLATION));
    let endpoint = CardEndpoint {
        endpoint,
        tickets: Vec::new(),
        regions: Vec::new(),
        readables: Vec::new(),
        reads: Vec::new(),
        next_read: 0,
    };
    set(out, handle::add(endpoint)?)
}

pub(crate) fn fpga_endpoint_close(endpoint: u64) -> Result<(), Failure> {
    Ok(handle::close::<CardEndpoint>(endpoint)?)
}

pub(crate) fn fpga_endpoint_get_info(
    endpoint: u64,
    info: *mut fpga_endpoint_info,
    size: usize,
) -> Result<(), Failure> {
    handle::with(endpoint, |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
        let usable = endpoint.usable_memory();
        let found = fpga_endpoint_info {
            node: endpoint.node().get(),
            incarnation: endpoint.incarnation().get(),
            scheme: endpoint.scheme().value(),
            idle: endpoint.is_idle().into(),
            usable_start: usable.start.get(),
            usable_length: usable.length,
            now_ns: nanoseconds(endpoint.now()),
        };
        write_struct(info, size, &found)
    })
}

#[expect(clippy::too_many_arguments, reason = "parameters of the header")]
pub(crate) fn fpga_endpoint_send(
    endpoint: u64,
    source: u64,
    target: *const fpga_region,
    offset: u64,
    length: u64,
    options: *const fpga_send_options,
    size: usize,
    ticket: *mut u64,
) -> Result<(), Failure> {
    set_if(ticket, u64::MAX)?;
    let (target, options) = (remote_region(target)?, send_options(options, size)?);
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let sent = end.endpoint.send(CardAddr::new(source), &target, offset, length, options)?;
        set_if(ticket, end.record(sent))
    })
}

pub(crate) fn fpga_endpoint_poll(endpoint: u64, work: *mut usize) -> Result<(), Failure> {
    set_if(work, 0)?;
    handle::with(endpoint, |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
        let done = endpoint.poll()?;
        if done == 0 {
            endpoint.relax();
        }
        set_if(work, done)
    })
}

/// Writes a completion, and returns the failure of its transfer.
fn complete(
    end: &mut CardEndpoint,
    done: &SendCompletion,
    completion: *mut fpga_send_completion,
    size: usize,
) -> Result<(), Failure> {
    end.remove(done.ticket);
    let failed = done.result.as_ref().err().map(|failure| (failure, send_failure(failure)));
    let found = fpga_send_completion {
        ticket: number_of(done.ticket),
        node: done.node.get(),
        result: failed.as_ref().map_or(Status::Ok, |(_, (status, _))| *status) as i32,
        reason: failed.as_ref().map_or(FPGA_SEND_DONE, |(_, (_, reason))| *reason),
        segments: done.segments,
        length: done.length,
        packets: done.packets,
        retransmits: done.retransmits,
        started_ns: nanoseconds(done.started),
        finished_ns: nanoseconds(done.finished),
    };
    if !completion.is_null() {
        write_struct(completion, size, &found)?;
    }
    failed.map_or(Ok(()), |(failure, (status, _))| Err(end.failure(status, failure, send_advice(failure))))
}

pub(crate) fn fpga_endpoint_next_completion(
    endpoint: u64,
    completion: *mut fpga_send_completion,
    size: usize,
    found: *mut u32,
) -> Result<(), Failure> {
    set(found, 0)?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let Some(done) = end.endpoint.next_completion() else { return Ok(()) };
        set(found, 1)?;
        complete(end, &done, completion, size)
    })
}

pub(crate) fn fpga_endpoint_wait(
    endpoint: u64,
    ticket: u64,
    timeout_ns: u64,
    completion: *mut fpga_send_completion,
    size: usize,
) -> Result<(), Failure> {
    with_wait(endpoint, core::ptr::null(), |end: &mut CardEndpoint| {
        let ticket = end.ticket(ticket)?;
        let done = end.endpoint.wait(ticket, duration(timeout_ns))?;
        complete(end, &done, completion, size)
    })
}

pub(crate) fn fpga_endpoint_cancel(endpoint: u64, ticket: u64, cancelled: *mut u32) -> Result<(), Failure> {
    set_if(cancelled, 0)?;
    handle::with_claimed(endpoint, |end: &mut CardEndpoint| {
        let ticket = end.ticket(ticket)?;
        set_if(cancelled, end.endpoint.cancel(ticket).into())
    })
}

fn write_notification(
    arrival: &Notification,
    notification: *mut fpga_notification,
    size: usize,
) -> Result<(), Failure> {
    let found = fpga_notification {
        node: arrival.node.get(),
        incarnation: arrival.incarnation.get(),
        transfer: arrival.transfer.get(),
        reserved: 0,
        address: arrival.address.get(),
        length: arrival.length,
        time_ns: arrival.time,
    };
    write_struct(notification, size, &found)
}

pub(crate) fn fpga_endpoint_next_notification(
    endpoint: u64,
    notification: *mut fpga_notification,
    size: usize,
    found: *mut u32,
) -> Result<(), Failure> {
    set(found, 0)?;
    out_bytes(notification.cast(), size)?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let Some(arrival) = end.endpoint.next_notification() else { return Ok(()) };
        set(found, 1)?;
        write_notification(&arrival, notification, size)
    })
}

pub(crate) fn fpga_endpoint_wait_notification(
    endpoint: u64,
    timeout_ns: u64,
    notification: *mut fpga_notification,
    size: usize,
) -> Result<(), Failure> {
    out_bytes(notification.cast(), size)?;
    with_wait(endpoint, core::ptr::null(), |end: &mut CardEndpoint| {
        let arrival = end.endpoint.wait_notification(duration(timeout_ns))?;
        write_notification(&arrival, notification, size)
    })
}

pub(crate) fn fpga_endpoint_write(
    endpoint: u64,
    card_address: u64,
    data: *const u8,
    length: usize,
) -> Result<(), Failure> {
    let data = bytes(data, length)?;
    with_wait(endpoint, core::ptr::null(), |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
        if data.is_empty() {
            return Ok(());
        }
        let buffer = endpoint.card().buffer_from(data)?;
        let written = endpoint.write(buffer, CardAddr::new(card_address));
        written.map(drop).map_err(|failed| failed.error.into())
    })
}

pub(crate) fn fpga_endpoint_wait_peer(
    endpoint: u64,
    node: u32,
    timeout_ns: u64,
    peer: *mut fpga_peer,
    size: usize,
) -> Result<(), Failure> {
    with_wait(endpoint, core::ptr::null(), |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
        let found = endpoint.wait_peer(NodeId::new(node), duration(timeout_ns))?;
        if peer.is_null() {
            return Ok(());
        }
        let bit = |scheme: Scheme| 1_u32.checked_shl(scheme.value()).unwrap_or(0);
        let found = fpga_peer {
            node: found.node.get(),
            incarnation: found.incarnation.get(),
            wire_version: found.wire_version.into(),
            packet_size: 1_u32.checked_shl(found.packet_size_log2.into()).unwrap_or(0),
            mask_bits: found.mask_bits.into(),
            schemes: found.schemes.iter().map(bit).fold(0, |all, one| all | one),
            registry_timeout_ns: nanoseconds(found.registry_timeout),
        };
        write_struct(peer, size, &found)
    })
}

pub(crate) fn fpga_endpoint_get_counters(
    endpoint: u64,
    counters: *mut fpga_endpoint_counters,
    size: usize,
) -> Result<(), Failure> {
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let all = end.endpoint.counters();
        let sender = &all.sender;
        let found = fpga_endpoint_counters {
            packets: sender.packets,
            retransmits: sender.retransmits,
            acknowledged: sender.acknowledged,
            timeouts: sender.timeouts,
            refused: sender.refused,
            segments: sender.segments,
            completed: sender.completed,
            failed: sender.failed,
            events: all.events,
            notifications: all.notifications,
            windows: all.windows,
            turns: all.turns,
            faults: all.faults,
            events_dropped: all.events_dropped,
            resyncs: all.mirror_resyncs,
            reads_served: all.reads_served,
            reads_refused: all.reads_refused,
        };
        write_struct(counters, size, &found)
    })
}
