//! Regions of card memory that other nodes write, ranges that they read, and reads.

use fpga_driver::{CardAddr, CardRange, NodeId};
use fpga_rdma::{ReadCompletion, ReadError, ReadFailure, RemoteReadable};

use crate::abi::{Status, fpga_read_completion, fpga_readable, fpga_region, fpga_send_options, zeroed};
use crate::call::{duration, set, set_if, write_struct};
use crate::code::StatusCode;
use crate::endpoint::{CardEndpoint, nanoseconds, send_advice, send_failure};
use crate::endpoint_options::send_options;
use crate::error::Failure;
use crate::handle;
use crate::remote::{remote_readable, remote_region};
use crate::wait::with_wait;

pub(crate) fn fpga_region_open(
    endpoint: u64,
    source_node: u32,
    address: u64,
    length: u64,
    region: *mut fpga_region,
) -> Result<(), Failure> {
    set(region, zeroed())?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let range = CardRange::new(CardAddr::new(address), length);
        let opened = end.endpoint.open_region(NodeId::new(source_node), range)?;
        let remote = opened.remote;
        end.regions.push(opened);
        set(region, remote.into())
    })
}

pub(crate) fn fpga_region_close(endpoint: u64, region: *const fpga_region) -> Result<(), Failure> {
    let region = remote_region(region)?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let index = end.regions.iter().position(|known| known.remote == region);
        let Some((index, opened)) = index.and_then(|index| Some((index, end.regions.get(index)?))) else {
            return Err(Failure::argument("the region is not open at this endpoint"));
        };
        end.endpoint.close_region(opened)?;
        end.regions.swap_remove(index);
        Ok(())
    })
}

pub(crate) fn fpga_readable_open(
    endpoint: u64,
    reader_node: u32,
    address: u64,
    length: u64,
    readable: *mut fpga_readable,
) -> Result<(), Failure> {
    set(readable, zeroed())?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let range = CardRange::new(CardAddr::new(address), length);
        let opened = end.endpoint.open_readable(NodeId::new(reader_node), range)?;
        let RemoteReadable { node, length, mailbox } = opened.remote;
        end.readables.push(opened);
        set(readable, fpga_readable { node: node.get(), reserved: 0, length, mailbox: mailbox.into() })
    })
}

pub(crate) fn fpga_readable_close(endpoint: u64, readable: *const fpga_readable) -> Result<(), Failure> {
    let readable = remote_readable(readable)?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let index = end.readables.iter().position(|known| known.remote == readable);
        let Some((index, opened)) = index.and_then(|index| Some((index, end.readables.get(index)?))) else {
            return Err(Failure::argument("the readable range is not open at this endpoint"));
        };
        end.endpoint.close_readable(opened)?;
        end.readables.swap_remove(index);
        Ok(())
    })
}

impl StatusCode for ReadError {
    fn status(&self) -> Status {
        match self {
            Self::Range { .. } => Status::Range,
            Self::Overlap { .. } => Status::InUse,
            Self::Full => Status::Full,
            Self::Send(error) => error.status(),
            Self::Endpoint(error) => error.status(),
            Self::Upload(error) => error.kind.status(),
            _ => Status::Full,
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "parameters of the header")]
pub(crate) fn fpga_endpoint_read(
    endpoint: u64,
    source: *const fpga_readable,
    offset: u64,
    destination: u64,
    length: u64,
    options: *const fpga_send_options,
    size: usize,
    ticket: *mut u64,
) -> Result<(), Failure> {
    set(ticket, u64::MAX)?;
    let (source, options) = (remote_readable(source)?, send_options(options, size)?);
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let started = end.endpoint.read(&source, offset, CardAddr::new(destination), length, options)?;
        let number = end.next_read;
        end.next_read += 1;
        end.reads.push((number, started));
        set(ticket, number)
    })
}

fn complete(
    end: &mut CardEndpoint,
    done: &ReadCompletion,
    completion: *mut fpga_read_completion,
    size: usize,
) -> Result<(), Failure> {
    let index = end.reads.iter().position(|(_, ticket)| *ticket == done.ticket);
    let number = index.map_or(u64::MAX, |index| end.reads.swap_remove(index).0);
    let failed = done.result.as_ref().err().map(|failure| {
        let status = match failure {
            ReadFailure::Cancelled { .. } => Status::Cancelled,
            ReadFailure::Request(failure) => send_failure(failure).0,
            _ => Status::Peer,
        };
        (failure, status)
    });
    let found = fpga_read_completion {
        ticket: number,
        node: done.node.get(),
        result: failed.as_ref().map_or(Status::Ok, |(_, status)| *status) as i32,
        length: done.length,
        started_ns: nanoseconds(done.started),
        finished_ns: nanoseconds(done.finished),
    };
    if !completion.is_null() {
        write_struct(completion, size, &found)?;
    }
    let Some((failure, status)) = failed else { return Ok(()) };
    let advice = match failure {
        ReadFailure::Request(request) => send_advice(request),
        _ => None,
    };
    Err(end.failure(status, failure, advice))
}

pub(crate) fn fpga_endpoint_next_read(
    endpoint: u64,
    completion: *mut fpga_read_completion,
    size: usize,
    found: *mut u32,
) -> Result<(), Failure> {
    set(found, 0)?;
    handle::with(endpoint, |end: &mut CardEndpoint| {
        let Some(done) = end.endpoint.next_read() else { return Ok(()) };
        set(found, 1)?;
        complete(end, &done, completion, size)
    })
}

/// Returns the read of a ticket.
fn read_of(end: &CardEndpoint, number: u64) -> Result<fpga_rdma::ReadTicket, Failure> {
    let known = end.reads.iter().find(|(known, _)| *known == number).map(|(_, ticket)| *ticket);
    known.ok_or_else(|| Failure::of(Status::Ticket, "the endpoint has no read with this ticket"))
}

pub(crate) fn fpga_endpoint_wait_read(
    endpoint: u64,
    ticket: u64,
    timeout_ns: u64,
    completion: *mut fpga_read_completion,
    size: usize,
) -> Result<(), Failure> {
    with_wait(endpoint, core::ptr::null(), |end: &mut CardEndpoint| {
        let ticket = read_of(end, ticket)?;
        let done = end.endpoint.wait_read(ticket, duration(timeout_ns))?;
        complete(end, &done, completion, size)
    })
}

pub(crate) fn fpga_endpoint_cancel_read(
    endpoint: u64,
    ticket: u64,
    cancelled: *mut u32,
) -> Result<(), Failure> {
    set_if(cancelled, 0)?;
    handle::with_claimed(endpoint, |end: &mut CardEndpoint| {
        let ticket = read_of(end, ticket)?;
        set_if(cancelled, end.endpoint.cancel_read(ticket)?.into())
    })
}
