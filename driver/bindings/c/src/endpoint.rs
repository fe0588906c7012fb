//! Endpoints: transfers from card to card over the network.

use std::borrow::Cow;

use fpga_driver::{Card, CardAddr, NodeId};
use fpga_rdma::{
    Endpoint, EndpointCounters, EndpointError, Notification, ReadTicket, ReadableHandle, RegionHandle,
    RemoteRegion, Scheme, SendCompletion, SendError, SendFailure, SendOptions, SendTicket,
};

use crate::call::{bytes, call, duration, out_bytes, read_options, set, set_if, write_struct};
use crate::code::Code;
use crate::endpoint_options::{COptions, CSend, send_options};
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::layout::c_struct;
use crate::remote::{CRegion, remote_region};
use crate::status::Status;
use crate::wait::{CANCELLATION, with_wait};

c_struct! {
    /// Properties of an endpoint.
    CInfo = "fpga_endpoint_info" {
        node: u32,
        incarnation: u32,
        scheme: u32,
        idle: u32,
        usable_start: u64,
        usable_length: u64,
        now_ns: u64,
    }
}

c_struct! {
    /// Completion of a transfer.
    CCompletion = "fpga_send_completion" {
        ticket: u64,
        node: u32,
        result: i32,
        reason: i32,
        segments: u32,
        length: u64,
        packets: u64,
        retransmits: u64,
        started_ns: u64,
        finished_ns: u64,
    }
}

c_struct! {
    /// Arrival of a transfer.
    CNotification = "fpga_notification" {
        node: u32,
        incarnation: u32,
        transfer: u32,
        reserved: u32,
        address: u64,
        length: u64,
        time_ns: u64,
    }
}

c_struct! {
    /// Capabilities of another node.
    CPeer = "fpga_peer" {
        node: u32,
        incarnation: u32,
        wire_version: u32,
        packet_size: u32,
        mask_bits: u32,
        schemes: u32,
        registry_timeout_ns: u64,
    }
}

c_struct! {
    /// Counters of an endpoint.
    CCounters = "fpga_endpoint_counters" {
        packets: u64,
        retransmits: u64,
        acknowledged: u64,
        timeouts: u64,
        refused: u64,
        segments: u64,
        completed: u64,
        failed: u64,
        events: u64,
        notifications: u64,
        windows: u64,
        turns: u64,
        faults: u64,
        events_dropped: u64,
        resyncs: u64,
        reads_served: u64,
        reads_refused: u64,
    }
}

/// Endpoint with what the numbers and structures of C programs stand for.
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

fn number_of(ticket: SendTicket) -> u64 {
    u64::from(ticket.generation()) << u32::BITS | u64::from(ticket.slot())
}

impl CardEndpoint {
    fn note(&mut self, ticket: SendTicket) -> u64 {
        let slot = ticket.slot() as usize;
        if slot >= self.tickets.len() {
            self.tickets.resize(slot + 1, None);
        }
        if let Some(place) = self.tickets.get_mut(slot) {
            *place = Some(ticket);
        }
        number_of(ticket)
    }

    fn ticket(&self, number: u64) -> Result<SendTicket, Failure> {
        let slot = usize::try_from(number & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let known = self.tickets.get(slot).copied().flatten().filter(|ticket| number_of(*ticket) == number);
        known.ok_or_else(|| Failure::of(Status::Ticket, "the endpoint has no transfer with this ticket"))
    }

    fn end(&mut self, ticket: SendTicket) {
        if let Some(place) = self.tickets.get_mut(ticket.slot() as usize) {
            place.take_if(|known| *known == ticket);
        }
    }
}

impl Code for EndpointError {
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

impl Code for SendError {
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

/// Status and reason of a transfer that failed.
pub(crate) const fn send_failure(failure: &SendFailure) -> (Status, i32) {
    match failure {
        SendFailure::Unanswered { .. } => (Status::Peer, 1),
        SendFailure::Refused { .. } => (Status::Peer, 2),
        SendFailure::ReceiverNotReady { .. } => (Status::Peer, 3),
        SendFailure::Forgotten { .. } => (Status::Peer, 4),
        SendFailure::Scheme { .. } => (Status::Unsupported, 5),
        SendFailure::Deadline { .. } => (Status::TimedOut, 7),
        SendFailure::Cancelled { .. } => (Status::Cancelled, 8),
        SendFailure::Superseded { .. } => (Status::Peer, 9),
        _ => (Status::Peer, 6),
    }
}

/// Advice about a transfer that failed.
pub(crate) fn send_advice(failure: &SendFailure) -> Option<Cow<'static, str>> {
    match failure {
        SendFailure::Superseded { .. } => Some(Cow::Borrowed(
            "close the endpoint and open it again without an incarnation: it starts with a later one; check that no other node has this node id",
        )),
        other => other.help(),
    }
}

/// Nanoseconds of a time on the card's clock.
pub(crate) fn nanoseconds(time: core::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Takes the card's end of the network.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_open(
    card: u64,
    options: *const COptions,
    size: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        set(out, 0)?;
        let card = handle::shared(card, Card::clone)?;
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
    })
}

/// Closes an endpoint.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_close(endpoint: u64) -> Status {
    call(|| Ok(handle::close::<CardEndpoint>(endpoint)?))
}

/// Returns the properties of an endpoint.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_get_info(endpoint: u64, info: *mut CInfo, size: usize) -> Status {
    call(|| {
        handle::with(endpoint, |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
            let usable = endpoint.usable_memory();
            let found = CInfo {
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
    })
}

/// Starts a transfer to another node's region.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_send(
    endpoint: u64,
    source: u64,
    target: *const CRegion,
    offset: u64,
    length: u64,
    options: *const CSend,
    size: usize,
    ticket: *mut u64,
) -> Status {
    call(|| {
        set_if(ticket, u64::MAX)?;
        let (target, options) = (remote_region(target)?, send_options(options, size)?);
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let sent = send(end, CardAddr::new(source), &target, offset, length, options)?;
            set_if(ticket, sent)
        })
    })
}

fn send(
    end: &mut CardEndpoint,
    source: CardAddr,
    target: &RemoteRegion,
    offset: u64,
    length: u64,
    options: SendOptions,
) -> Result<u64, Failure> {
    let ticket = end.endpoint.send(source, target, offset, length, options)?;
    Ok(end.note(ticket))
}

/// Does the endpoint's work.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_poll(endpoint: u64, work: *mut usize) -> Status {
    call(|| {
        set_if(work, 0)?;
        handle::with(endpoint, |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
            let done = endpoint.poll()?;
            if done == 0 {
                endpoint.relax();
            }
            set_if(work, done)
        })
    })
}

/// Reports a completion, and the failure of its transfer.
fn complete(
    end: &mut CardEndpoint,
    done: &SendCompletion,
    completion: *mut CCompletion,
    size: usize,
) -> Result<(), Failure> {
    end.end(done.ticket);
    let failed = done.result.as_ref().err().map(|failure| (failure, send_failure(failure)));
    let found = CCompletion {
        ticket: number_of(done.ticket),
        node: done.node.get(),
        result: failed.as_ref().map_or(Status::Ok, |(_, (status, _))| *status) as i32,
        reason: failed.as_ref().map_or(0, |(_, (_, reason))| *reason),
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
    match failed {
        Some((failure, (status, _))) => {
            let failed = Failure::on_card(status, failure, end.endpoint.card().name()).in_endpoint();
            Err(failed.advise_some(send_advice(failure)))
        }
        None => Ok(()),
    }
}

/// Takes the oldest completion.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_next_completion(
    endpoint: u64,
    completion: *mut CCompletion,
    size: usize,
    found: *mut u32,
) -> Status {
    call(|| {
        set(found, 0)?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let Some(done) = end.endpoint.next_completion() else { return Ok(()) };
            set(found, 1)?;
            complete(end, &done, completion, size)
        })
    })
}

/// Waits until a transfer has ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_wait(
    endpoint: u64,
    ticket: u64,
    timeout_ns: u64,
    completion: *mut CCompletion,
    size: usize,
) -> Status {
    call(|| {
        with_wait(endpoint, core::ptr::null(), |end: &mut CardEndpoint| {
            let ticket = end.ticket(ticket)?;
            let done = end.endpoint.wait(ticket, duration(timeout_ns))?;
            complete(end, &done, completion, size)
        })
    })
}

/// Withdraws a transfer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_cancel(endpoint: u64, ticket: u64, cancelled: *mut u32) -> Status {
    call(|| {
        set_if(cancelled, 0)?;
        handle::with_claimed(endpoint, |end: &mut CardEndpoint| {
            let ticket = end.ticket(ticket)?;
            set_if(cancelled, end.endpoint.cancel(ticket).into())
        })
    })
}

fn report(arrival: &Notification, notification: *mut CNotification, size: usize) -> Result<(), Failure> {
    let found = CNotification {
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

/// Takes the oldest arrival.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_next_notification(
    endpoint: u64,
    notification: *mut CNotification,
    size: usize,
    found: *mut u32,
) -> Status {
    call(|| {
        set(found, 0)?;
        out_bytes(notification.cast(), size)?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let Some(arrival) = end.endpoint.next_notification() else { return Ok(()) };
            set(found, 1)?;
            report(&arrival, notification, size)
        })
    })
}

/// Waits for the oldest arrival.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_wait_notification(
    endpoint: u64,
    timeout_ns: u64,
    notification: *mut CNotification,
    size: usize,
) -> Status {
    call(|| {
        out_bytes(notification.cast(), size)?;
        with_wait(endpoint, core::ptr::null(), |end: &mut CardEndpoint| {
            let arrival = end.endpoint.wait_notification(duration(timeout_ns))?;
            report(&arrival, notification, size)
        })
    })
}

/// Writes card memory through the endpoint's own channel.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_write(
    endpoint: u64,
    card_address: u64,
    data: *const u8,
    length: usize,
) -> Status {
    call(|| {
        let data = bytes(data, length)?;
        with_wait(endpoint, core::ptr::null(), |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
            if data.is_empty() {
                return Ok(());
            }
            let buffer = endpoint.card().buffer_from(data)?;
            let written = endpoint.write(buffer, CardAddr::new(card_address));
            written.map(drop).map_err(|failed| failed.error.into())
        })
    })
}

/// Asks another node for its capabilities.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_wait_peer(
    endpoint: u64,
    node: u32,
    timeout_ns: u64,
    peer: *mut CPeer,
    size: usize,
) -> Status {
    call(|| {
        with_wait(endpoint, core::ptr::null(), |CardEndpoint { endpoint, .. }: &mut CardEndpoint| {
            let found = endpoint.wait_peer(NodeId::new(node), duration(timeout_ns))?;
            if peer.is_null() {
                return Ok(());
            }
            let bit = |scheme: Scheme| 1_u32.checked_shl(scheme.value()).unwrap_or(0);
            let found = CPeer {
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
    })
}

/// Returns the counters of an endpoint.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_get_counters(
    endpoint: u64,
    counters: *mut CCounters,
    size: usize,
) -> Status {
    call(|| {
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let EndpointCounters { sender, .. } = end.endpoint.counters();
            let all = end.endpoint.counters();
            let found = CCounters {
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
    })
}
