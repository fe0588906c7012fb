//! Regions and ranges of other nodes: structures that a program can send to another process, and their bytes.

use fpga_driver::{CardAddr, NodeId};
use fpga_rdma::{RemoteReadable, RemoteRegion};

use crate::call::{array, bytes, bytes_mut, call, set};
use crate::error::Failure;
use crate::layout::{CStruct, Member, c_struct, zeroed};
use crate::status::Status;

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
fn one<T: CStruct + Member>(given: *const T, what: &str) -> Result<T, Failure> {
    array(given, 1)?.first().copied().ok_or_else(|| Failure::null(what))
}

/// Reads the region of a caller.
pub(crate) fn remote_region(region: *const CRegion) -> Result<RemoteRegion, Failure> {
    Ok(one(region, "the region")?.into())
}

pub(crate) fn remote_readable(readable: *const CReadable) -> Result<RemoteReadable, Failure> {
    let CReadable { node, length, mailbox, .. } = one(readable, "the readable range")?;
    Ok(RemoteReadable { node: NodeId::new(node), length, mailbox: mailbox.into() })
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
        set(region, zeroed())?;
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
        set(readable, zeroed())?;
        let mut words = Words(bytes(from, length)?);
        words.mark(READABLE_MARK, "readable range")?;
        let (node, length) = (words.u32()?, words.u64()?);
        set(readable, CReadable { node, reserved: 0, length, mailbox: words.region()? })
    })
}
