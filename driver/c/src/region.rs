//! Regions of card memory that other nodes write, and ranges that they read: structures that a program can send to another process.

use fpga_driver::endpoint::{ReadCompletion, ReadError, ReadFailure, RemoteReadable, RemoteRegion};
use fpga_driver::{CardAddr, CardRange, NodeId};

use crate::call::{array, bytes, bytes_mut, call, duration, set, set_if, with_wait};
use crate::endpoint::{CardEndpoint, nanoseconds, send_advice, send_failure};
use crate::endpoint_options::{CSend, send_options};
use crate::error::Failure;
use crate::handle;
use crate::layout::{c_struct, write_struct};
use crate::status::{Code, Status};

/// First word of a region and of a readable range as bytes, with the version in its last byte.
const REGION_MARK: u32 = u32::from_le_bytes(*b"RGN\x01");
const READABLE_MARK: u32 = u32::from_le_bytes(*b"RDB\x01");
/// Lengths, as in the header.
const REGION_BYTES: usize = 32;
const READABLE_BYTES: usize = 48;

c_struct! {
    /// Region of a node's card memory that another node may write.
    CRegion = "fpga_region" {
        node: u32,
        reserved: u32,
        address: u64,
        length: u64,
        key: u64,
    }
}

c_struct! {
    /// Range of a node's card memory that another node may read.
    CReadable = "fpga_readable" {
        node: u32,
        reserved: u32,
        length: u64,
        mailbox: CRegion,
    }
}

c_struct! {
    /// Completion of a read.
    CRead = "fpga_read_completion" {
        ticket: u64,
        node: u32,
        result: i32,
        length: u64,
        started_ns: u64,
        finished_ns: u64,
    }
}

impl From<RemoteRegion> for CRegion {
    fn from(region: RemoteRegion) -> Self {
        let RemoteRegion { node, address, length, key } = region;
        Self { node: node.get(), reserved: 0, address: address.get(), length, key }
    }
}

impl From<CRegion> for RemoteRegion {
    fn from(region: CRegion) -> Self {
        let CRegion { node, address, length, key, .. } = region;
        Self { node: NodeId::new(node), address: CardAddr::new(address), length, key }
    }
}

/// Reads one structure of a caller.
fn one<T: crate::layout::CStruct + crate::layout::Member>(given: *const T, what: &str) -> Result<T, Failure> {
    array(given, 1)?.first().copied().ok_or_else(|| Failure::null(what))
}

/// Reads the region of a caller.
pub(crate) fn remote_region(region: *const CRegion) -> Result<RemoteRegion, Failure> {
    Ok(one(region, "the region")?.into())
}

fn remote_readable(readable: *const CReadable) -> Result<RemoteReadable, Failure> {
    let CReadable { node, length, mailbox, .. } = one(readable, "the readable range")?;
    Ok(RemoteReadable { node: NodeId::new(node), length, mailbox: mailbox.into() })
}

/// Opens a region for the writes of one node, or of all.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_region_open(
    endpoint: u64,
    source_node: u32,
    address: u64,
    length: u64,
    region: *mut CRegion,
) -> Status {
    call(|| {
        set(region, crate::layout::zeroed())?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let range = CardRange::new(CardAddr::new(address), length);
            let opened = end.endpoint.open_region(NodeId::new(source_node), range)?;
            let remote = opened.remote;
            end.regions.push(opened);
            set(region, remote.into())
        })
    })
}

/// Closes a region.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_region_close(endpoint: u64, region: *const CRegion) -> Status {
    call(|| {
        let region = remote_region(region)?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let at = end.regions.iter().position(|known| known.remote == region);
            let Some((at, opened)) = at.and_then(|at| Some((at, end.regions.get(at)?))) else {
                return Err(Failure::argument("the region is not open at this endpoint"));
            };
            end.endpoint.close_region(opened)?;
            end.regions.swap_remove(at);
            Ok(())
        })
    })
}

fn put_region(bytes: &mut Vec<u8>, region: &CRegion) {
    bytes.extend(region.node.to_le_bytes());
    for word in [region.address, region.length, region.key] {
        bytes.extend(word.to_le_bytes());
    }
}

/// Reader of the bytes of a region.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn u32(&mut self) -> Result<u32, Failure> {
        let (word, rest) =
            self.0.split_first_chunk().ok_or_else(|| Failure::argument("bytes are missing"))?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*word))
    }

    fn u64(&mut self) -> Result<u64, Failure> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << u32::BITS)
    }

    fn mark(&mut self, mark: u32, what: &str) -> Result<(), Failure> {
        if self.u32()? == mark {
            return Ok(());
        }
        Err(Failure::argument(&format!("the bytes are no {what} of this version")))
    }

    fn region(&mut self) -> Result<CRegion, Failure> {
        Ok(CRegion {
            node: self.u32()?,
            reserved: 0,
            address: self.u64()?,
            length: self.u64()?,
            key: self.u64()?,
        })
    }
}

/// Copies an encoded structure to a caller.
fn put(to: *mut u8, length: usize, encoded: &[u8]) -> Result<(), Failure> {
    let to = bytes_mut(to, length)?;
    let to = to.get_mut(..encoded.len()).ok_or_else(|| {
        Failure::of(Status::Range, &format!("{length} bytes are given, and {} are needed", encoded.len()))
    })?;
    to.copy_from_slice(encoded);
    Ok(())
}

/// Writes a region as bytes, the same on every machine.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_region_encode(region: *const CRegion, to: *mut u8, length: usize) -> Status {
    call(|| {
        let mut encoded = Vec::with_capacity(REGION_BYTES);
        encoded.extend(REGION_MARK.to_le_bytes());
        put_region(&mut encoded, &one(region, "the region")?);
        put(to, length, &encoded)
    })
}

/// Reads a region from bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_region_decode(from: *const u8, length: usize, region: *mut CRegion) -> Status {
    call(|| {
        set(region, crate::layout::zeroed())?;
        let mut words = Words(bytes(from, length)?);
        words.mark(REGION_MARK, "region")?;
        set(region, words.region()?)
    })
}

/// Writes a readable range as bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_readable_encode(
    readable: *const CReadable,
    to: *mut u8,
    length: usize,
) -> Status {
    call(|| {
        let readable = one(readable, "the readable range")?;
        let mut encoded = Vec::with_capacity(READABLE_BYTES);
        encoded.extend(READABLE_MARK.to_le_bytes());
        encoded.extend(readable.node.to_le_bytes());
        encoded.extend(readable.length.to_le_bytes());
        put_region(&mut encoded, &readable.mailbox);
        encoded.resize(READABLE_BYTES, 0);
        put(to, length, &encoded)
    })
}

/// Reads a readable range from bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_readable_decode(
    from: *const u8,
    length: usize,
    readable: *mut CReadable,
) -> Status {
    call(|| {
        set(readable, crate::layout::zeroed())?;
        let mut words = Words(bytes(from, length)?);
        words.mark(READABLE_MARK, "readable range")?;
        let (node, length) = (words.u32()?, words.u64()?);
        set(readable, CReadable { node, reserved: 0, length, mailbox: words.region()? })
    })
}

/// Lets one node read a range.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_readable_open(
    endpoint: u64,
    reader_node: u32,
    address: u64,
    length: u64,
    readable: *mut CReadable,
) -> Status {
    call(|| {
        set(readable, crate::layout::zeroed())?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let range = CardRange::new(CardAddr::new(address), length);
            let opened = end.endpoint.open_readable(NodeId::new(reader_node), range)?;
            let RemoteReadable { node, length, mailbox } = opened.remote;
            end.readables.push(opened);
            set(readable, CReadable { node: node.get(), reserved: 0, length, mailbox: mailbox.into() })
        })
    })
}

/// Closes a readable range.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_readable_close(endpoint: u64, readable: *const CReadable) -> Status {
    call(|| {
        let readable = remote_readable(readable)?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let at = end.readables.iter().position(|known| known.remote == readable);
            let Some((at, opened)) = at.and_then(|at| Some((at, end.readables.get(at)?))) else {
                return Err(Failure::argument("the readable range is not open at this endpoint"));
            };
            end.endpoint.close_readable(opened)?;
            end.readables.swap_remove(at);
            Ok(())
        })
    })
}

impl Code for ReadError {
    fn status(&self) -> Status {
        match self {
            Self::Range { .. } => Status::Range,
            Self::Overlap { .. } => Status::InUse,
            Self::Full => Status::Full,
            Self::Send(error) => error.status(),
            Self::Endpoint(error) => error.status(),
            Self::Upload(error) => error.kind.status(),
            Self::Mmio(error) => crate::card::mmio_status(error),
            _ => Status::Full,
        }
    }
}

/// Starts a read of another node's memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_read(
    endpoint: u64,
    source: *const CReadable,
    offset: u64,
    destination: u64,
    length: u64,
    options: *const CSend,
    size: usize,
    ticket: *mut u64,
) -> Status {
    call(|| {
        set(ticket, u64::MAX)?;
        let (source, options) = (remote_readable(source)?, send_options(options, size)?);
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let started = end.endpoint.read(&source, offset, CardAddr::new(destination), length, options)?;
            let number = end.next_read;
            end.next_read += 1;
            end.reads.push((number, started));
            set(ticket, number)
        })
    })
}

fn complete(
    end: &mut CardEndpoint,
    done: &ReadCompletion,
    completion: *mut CRead,
    size: usize,
) -> Result<(), Failure> {
    let at = end.reads.iter().position(|(_, ticket)| *ticket == done.ticket);
    let number = at.map_or(u64::MAX, |at| end.reads.swap_remove(at).0);
    let failed = done.result.as_ref().err().map(|failure| {
        let status = match failure {
            ReadFailure::Cancelled { .. } => Status::Cancelled,
            ReadFailure::Request(failure) => send_failure(failure).0,
            _ => Status::Peer,
        };
        (failure, status)
    });
    let found = CRead {
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
    match failed {
        Some((failure, status)) => {
            let failed = Failure::on_card(status, failure, end.endpoint.card().name()).in_endpoint();
            Err(match failure {
                ReadFailure::Request(request) => failed.advise_some(send_advice(request)),
                _ => failed,
            })
        }
        None => Ok(()),
    }
}

/// Takes the oldest completion of a read.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_next_read(
    endpoint: u64,
    completion: *mut CRead,
    size: usize,
    found: *mut u32,
) -> Status {
    call(|| {
        set(found, 0)?;
        handle::with(endpoint, |end: &mut CardEndpoint| {
            let Some(done) = end.endpoint.next_read() else { return Ok(()) };
            set(found, 1)?;
            complete(end, &done, completion, size)
        })
    })
}

/// Returns the read of a ticket.
fn read_of(end: &CardEndpoint, number: u64) -> Result<fpga_driver::endpoint::ReadTicket, Failure> {
    let known = end.reads.iter().find(|(known, _)| *known == number).map(|(_, ticket)| *ticket);
    known.ok_or_else(|| Failure::of(Status::Ticket, "the endpoint has no read with this ticket"))
}

/// Waits until a read has ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_wait_read(
    endpoint: u64,
    ticket: u64,
    timeout_ns: u64,
    completion: *mut CRead,
    size: usize,
) -> Status {
    call(|| {
        with_wait(endpoint, core::ptr::null(), |end: &mut CardEndpoint| {
            let ticket = read_of(end, ticket)?;
            let done = end.endpoint.wait_read(ticket, duration(timeout_ns))?;
            complete(end, &done, completion, size)
        })
    })
}

/// Withdraws a read.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_endpoint_cancel_read(
    endpoint: u64,
    ticket: u64,
    cancelled: *mut u32,
) -> Status {
    call(|| {
        set_if(cancelled, 0)?;
        handle::with_claimed(endpoint, |end: &mut CardEndpoint| {
            let ticket = read_of(end, ticket)?;
            set_if(cancelled, end.endpoint.cancel_read(ticket)?.into())
        })
    })
}
