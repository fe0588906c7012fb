//! Regions and ranges of other nodes: structures that a program can send to another process, and their bytes.

use fpga_driver::{CardAddr, NodeId};
use fpga_rdma::{RemoteReadable, RemoteRegion};

use crate::abi::{FPGA_READABLE_BYTES, FPGA_REGION_BYTES, Plain, Status, fpga_readable, fpga_region, zeroed};
use crate::call::{array, bytes, bytes_mut, set};
use crate::error::Failure;

/// First word of an encoded region, and of an encoded readable range. Its last byte is the version.
const REGION_MARK: u32 = u32::from_le_bytes(*b"RGN\x01");
const READABLE_MARK: u32 = u32::from_le_bytes(*b"RDB\x01");
/// Lengths of both as bytes.
const REGION_BYTES: usize = FPGA_REGION_BYTES as usize;
const READABLE_BYTES: usize = FPGA_READABLE_BYTES as usize;

impl From<RemoteRegion> for fpga_region {
    fn from(region: RemoteRegion) -> Self {
        let RemoteRegion { node, address, length, key } = region;
        Self { node: node.get(), reserved: 0, address: address.get(), length, key }
    }
}

impl From<fpga_region> for RemoteRegion {
    fn from(region: fpga_region) -> Self {
        let fpga_region { node, address, length, key, .. } = region;
        Self { node: NodeId::new(node), address: CardAddr::new(address), length, key }
    }
}

/// Reads the structure at `given`, which the error calls `name`.
fn one<T: Plain>(given: *const T, name: &str) -> Result<T, Failure> {
    array(given, 1)?.first().copied().ok_or_else(|| Failure::null(name))
}

pub(crate) fn remote_region(region: *const fpga_region) -> Result<RemoteRegion, Failure> {
    Ok(one(region, "the region")?.into())
}

pub(crate) fn remote_readable(readable: *const fpga_readable) -> Result<RemoteReadable, Failure> {
    let fpga_readable { node, length, mailbox, .. } = one(readable, "the readable range")?;
    Ok(RemoteReadable { node: NodeId::new(node), length, mailbox: mailbox.into() })
}

fn put_region(bytes: &mut Vec<u8>, region: &fpga_region) {
    bytes.extend(region.node.to_le_bytes());
    for word in [region.address, region.length, region.key] {
        bytes.extend(word.to_le_bytes());
    }
}

/// Reader of encoded regions.
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

    /// Checks the first word of an encoded object, which the error calls `name`.
    fn mark(&mut self, mark: u32, name: &str) -> Result<(), Failure> {
        if self.u32()? == mark {
            return Ok(());
        }
        Err(Failure::argument(&format!("the bytes are no {name} of this version")))
    }

    fn region(&mut self) -> Result<fpga_region, Failure> {
        Ok(fpga_region {
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

pub(crate) fn fpga_region_encode(
    region: *const fpga_region,
    to: *mut u8,
    length: usize,
) -> Result<(), Failure> {
    let mut encoded = Vec::with_capacity(REGION_BYTES);
    encoded.extend(REGION_MARK.to_le_bytes());
    put_region(&mut encoded, &one(region, "the region")?);
    put(to, length, &encoded)
}

pub(crate) fn fpga_region_decode(
    from: *const u8,
    length: usize,
    region: *mut fpga_region,
) -> Result<(), Failure> {
    set(region, zeroed())?;
    let mut words = Words(bytes(from, length)?);
    words.mark(REGION_MARK, "region")?;
    set(region, words.region()?)
}

pub(crate) fn fpga_readable_encode(
    readable: *const fpga_readable,
    to: *mut u8,
    length: usize,
) -> Result<(), Failure> {
    let readable = one(readable, "the readable range")?;
    let mut encoded = Vec::with_capacity(READABLE_BYTES);
    encoded.extend(READABLE_MARK.to_le_bytes());
    encoded.extend(readable.node.to_le_bytes());
    encoded.extend(readable.length.to_le_bytes());
    put_region(&mut encoded, &readable.mailbox);
    encoded.resize(READABLE_BYTES, 0);
    put(to, length, &encoded)
}

pub(crate) fn fpga_readable_decode(
    from: *const u8,
    length: usize,
    readable: *mut fpga_readable,
) -> Result<(), Failure> {
    set(readable, zeroed())?;
    let mut words = Words(bytes(from, length)?);
    words.mark(READABLE_MARK, "readable range")?;
    let (node, length) = (words.u32()?, words.u64()?);
    set(readable, fpga_readable { node, reserved: 0, length, mailbox: words.region()? })
}
