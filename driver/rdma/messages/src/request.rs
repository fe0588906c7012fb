//! Operations that an application posts.

use crate::address::PeerId;
use fpga_driver::{SharedMemory, SharedSlice};

/// Range of the application's memory. The address is opaque here: only [`HostMemory`] accesses the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRange {
    /// First byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Access to the application's memory. Ranges that are passed to it come from requests and from registered regions; the implementation
/// relies on the application to keep them valid until the request has completed, or until the region is deregistered.
pub trait HostMemory: Send + Sync {
    /// Copies `to.len()` bytes of the application's memory at `from` to `to`.
    fn read(&self, from: u64, to: SharedSlice<'_>);

    /// Copies `from` to the application's memory at `to`.
    fn write(&self, to: u64, from: SharedSlice<'_>);

    /// Lends whole pages of the application's memory to the card, which accesses the bytes of a request in them in place. The messenger drops the
    /// returned memory before the request completes. `None`, as by default: the data of requests is copied.
    fn lend(&self, from: u64, length: u64) -> Option<SharedMemory> {
        let _ = (from, length);
        None
    }
}

/// Maximum number of ranges in one request.
pub const MAX_RANGES: usize = 4;

/// Up to [`MAX_RANGES`] ranges, in order. They form one sequence of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRanges {
    ranges: [HostRange; MAX_RANGES],
    count: usize,
    length: u64,
}

impl HostRanges {
    /// Collects ranges; `None` if there are more than [`MAX_RANGES`], or if their total length overflows.
    pub fn new(ranges: impl IntoIterator<Item = HostRange>) -> Option<Self> {
        let mut all = Self::default();
        for range in ranges {
            all.length = all.length.checked_add(range.length)?;
            range.address.checked_add(range.length)?;
            *all.ranges.get_mut(all.count)? = range;
            all.count += 1;
        }
        Some(all)
    }

    /// A single range; `None` if it wraps around the end of the address space.
    #[must_use]
    pub fn one(address: u64, length: u64) -> Option<Self> {
        Self::new([HostRange { address, length }])
    }

    /// Total length in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[HostRange] {
        self.ranges.get(..self.count).unwrap_or_default()
    }

    /// Calls `access` with each contiguous part of the `length` bytes from `offset` on: its address, its position relative to `offset`, and
    /// its length. Bytes beyond the end are left out.
    pub(crate) fn parts(&self, offset: u64, length: u64, mut access: impl FnMut(u64, u64, u64)) {
        let (mut skip, mut done) = (offset, 0);
        for range in self.as_slice() {
            if skip >= range.length {
                skip -= range.length;
                continue;
            }
            let part = (range.length - skip).min(length - done);
            if part > 0 {
                access(range.address + skip, done, part);
                done += part;
            }
            skip = 0;
            if done == length {
                return;
            }
        }
    }
}

/// Values of the caller that come back in the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token {
    /// The application's context. [`Messenger::cancel`](crate::Messenger::cancel) finds a receive by it.
    pub context: u64,
    /// Any value.
    pub user: u64,
}

/// When an operation completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompleteWhen {
    /// As soon as the data has been copied and can be reused. Only for data of at most [`MAX_INJECT`](crate::MAX_INJECT) bytes. There is no
    /// completion, except if the operation fails.
    Injected,
    /// The data has arrived at the peer's card.
    #[default]
    Transmitted,
    /// The data is in memory of the peer's process. A message may not have matched a receive yet: it is kept by the peer's messenger within
    /// [`MessengerOptions::unexpected`](crate::MessengerOptions::unexpected). A message of more than 16 KiB, or beyond that limit, is sent once
    /// it has matched.
    Delivered,
    /// The data is in the peer's memory; for messages, a receive has matched.
    Matched,
}

impl CompleteWhen {
    /// Whether a message or write completes only after the peer's answer.
    pub(crate) const fn waits_for_peer(self) -> bool {
        matches!(self, Self::Delivered | Self::Matched)
    }
}

/// Message to a peer.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest {
    /// Receiver.
    pub peer: PeerId,
    /// Data. It must not change before the completion.
    pub data: HostRanges,
    /// Tag, for receives with [`TagPattern`]; `None`: for receives without.
    pub tag: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u64>,
    /// Time of the completion.
    pub complete: CompleteWhen,
    /// Returned with the completion.
    pub token: Token,
}

/// Tags that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagPattern {
    /// Expected tag.
    pub tag: u64,
    /// Bits of the tag that are not compared.
    pub ignore: u64,
}

/// Buffer for a message.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest {
    /// Sender; `None`: any.
    pub from: Option<PeerId>,
    /// Tags; `None`: messages without a tag.
    pub tag: Option<TagPattern>,
    /// Buffer.
    pub data: HostRanges,
    /// The buffer takes several messages, one after the other, until fewer bytes than this are free. One range only, no tag.
    pub multi: Option<u64>,
    /// Returned with the completion.
    pub token: Token,
}

/// Action of [`Messenger::peek`](crate::Messenger::peek) on a message that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// Only reports it.
    Look,
    /// Keeps it for the claim with the same context.
    Claim,
    /// Drops it.
    Discard,
}

/// Part of a peer's registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRange {
    /// Address: the owner's virtual address, or an offset into the region, as it was registered.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Key of the region.
    pub key: u64,
}

/// Write to a peer's registered memory, or read from it.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest {
    /// Owner of the memory.
    pub peer: PeerId,
    /// Local memory.
    pub data: HostRanges,
    /// Remote memory, of the same length. Several ranges are several requests.
    pub remote: RemoteRange,
    /// Immediate data of a write: the peer gets a completion with it.
    pub immediate: Option<u64>,
    /// Time of the completion. A read completes with its data in local memory.
    pub complete: CompleteWhen,
    /// Returned with the completion.
    pub token: Token,
}

/// Atomic operation on a peer's registered memory. The peer's host executes it.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRequest {
    /// Owner of the memory.
    pub peer: PeerId,
    /// Operation, as a number that [`AtomicUnit`] understands.
    pub operation: u8,
    /// Data type, as a number that [`AtomicUnit`] understands.
    pub datatype: u8,
    /// Remote memory.
    pub remote: RemoteRange,
    /// Operand.
    pub operand: HostRanges,
    /// Operand to compare with.
    pub compare: HostRanges,
    /// Buffer for the earlier content, of the same length as the remote memory; empty: not fetched.
    pub fetch: HostRanges,
    /// Time of the completion.
    pub complete: CompleteWhen,
    /// Returned with the completion.
    pub token: Token,
}

/// Atomic operation on the application's memory.
#[derive(Debug)]
pub struct AtomicCall<'a> {
    /// Operation of the request.
    pub operation: u8,
    /// Data type of the request.
    pub datatype: u8,
    /// First byte of the memory.
    pub address: u64,
    /// Length of the memory in bytes.
    pub length: u64,
    /// Operand: as long as the memory, or empty.
    pub operand: &'a [u8],
    /// Operand to compare with: as long as the memory, or empty.
    pub compare: &'a [u8],
    /// Place for the earlier content: as long as the memory, or empty.
    pub fetch: &'a mut [u8],
}

/// Executes atomic operations on the application's memory.
pub trait AtomicUnit: Send + Sync {
    /// Executes `call`. Returns `false` if the operation does not exist for the data type; nothing is changed then.
    fn apply(&self, call: AtomicCall<'_>) -> bool;
}
