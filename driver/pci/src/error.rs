//! Errors, one enum per operation. `Display` states what failed, on which object, and why; `help()` returns what to do.
//!
//! All of them are values that a driver can store, compare and count; those of the register and memory paths are small (`Copy`). The text
//! of a system error is produced when it is displayed. All are in one file, so that their wording can be compared.

use core::fmt;

use fpga_host::OtherFunction;
use fpga_registers::{BarOffset, Iova, quantity};

use crate::function::ResetLevel;
use crate::process::OtherProcess;

mod help;
mod server;

pub use server::{ConnectionError, ServerError};

/// An error number of the operating system, as a comparable value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// From a raw `errno` value.
    #[must_use]
    pub const fn from_raw(errno: i32) -> Self {
        Self(errno)
    }

    /// The raw `errno` value; 0 if the failure carried none (for example a short read).
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("short transfer");
        }
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for OsError {}

impl From<rustix::io::Errno> for OsError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl From<std::io::Error> for OsError {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(0))
    }
}

/// Error of a register access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MmioError {
    /// The access does not lie inside the BAR (or inside the view of it).
    #[error(
        "access of {width} at {at} reaches beyond {end:#x}, where the BAR (or the part of it in use) ends",
        width = quantity(*width, "byte"),
    )]
    OutOfRange {
        /// First byte of the access, from the start of the BAR.
        at: BarOffset,
        /// Bytes accessed.
        width: u64,
        /// End of the BAR, or of the part of it that was opened: bytes from the start of the BAR.
        end: u64,
    },
    /// The offset is not a multiple of the access width.
    #[error(
        "access of {width} at {at} is not aligned to its width",
        width = quantity(*width, "byte"),
    )]
    Misaligned {
        /// First byte of the access, from the start of the BAR.
        at: BarOffset,
        /// Width of one access in bytes.
        width: u64,
    },
    /// The device does not answer at its registers: they read as all ones while configuration space does not answer
    /// or has memory decoding off, the system refused the access, or an access raised a bus error.
    #[error(
        "the card is gone: it does not answer at {at} (removed, reset, powered off, link down, or memory decoding off)"
    )]
    Gone {
        /// The register that was accessed.
        at: BarOffset,
    },
    /// The device was reset since this handle was opened.
    #[error("access at {at} through a handle from before a reset of the device")]
    Stale {
        /// The register that was to be accessed.
        at: BarOffset,
    },
    /// The system refused the access (only if a BAR is accessed by file descriptor).
    #[error("the system refused the access at {at}: {source}")]
    Refused {
        /// The register that was to be accessed.
        at: BarOffset,
        /// The system's reason.
        r#source: OsError,
    },
    /// The process that serves the device could not perform the access.
    #[error("the access at {at} was not performed: {source}")]
    Server {
        /// The register that was to be accessed.
        at: BarOffset,
        /// Reason.
        r#source: ServerError,
    },
    /// The handle was made by another process.
    #[error(transparent)]
    OtherProcess(#[from] OtherProcess),
}

impl MmioError {
    /// Whether the device is permanently unreachable through this handle: it was removed, or the connection to the process that serves it
    /// has ended. A server that is slow ([`ServerError::TimedOut`]) does not count.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        match self {
            Self::Gone { .. } => true,
            Self::Server { source, .. } => source.is_disconnected(),
            _ => false,
        }
    }
}

/// Error of opening a BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarError {
    /// BAR numbers are 0 to 5.
    #[error("BAR {index} does not exist: BARs are numbered 0 to 5")]
    BadIndex {
        /// Requested number.
        index: u8,
    },
    /// The device does not implement this BAR (or it is the upper half of a 64-bit one).
    #[error("the device does not implement BAR {index}")]
    Absent {
        /// Requested number.
        index: u8,
    },
    /// The BAR is of a kind that cannot be accessed here (I/O ports).
    #[error("BAR {index} is an I/O port BAR, which this backend does not access")]
    Unsupported {
        /// Requested number.
        index: u8,
    },
    /// Mapping it into the process failed.
    #[error("mapping BAR {index} at region offset {offset:#x} failed: {source}")]
    MapFailed {
        /// BAR number.
        index: u8,
        /// Start of the part that was to be mapped, in bytes from the start of the BAR.
        offset: u64,
        /// The system's reason.
        r#source: OsError,
    },
}

/// Error of a configuration space access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigSpaceError {
    /// Outside the configuration space.
    #[error(
        "configuration access of {length} at {at:#x} is outside the {size:#x} bytes of configuration space",
        length = quantity(*length, "byte"),
    )]
    OutOfRange {
        /// First byte.
        at: u16,
        /// Length in bytes.
        length: usize,
        /// Size of the device's configuration space: 256 or 4096.
        size: usize,
    },
    /// The system refused the access.
    #[error("configuration access at {at:#x} failed: {source}")]
    Refused {
        /// First byte.
        at: u16,
        /// The system's reason.
        r#source: OsError,
    },
    /// The device does not answer: vendor id reads as all ones.
    #[error("the card is gone: configuration space reads as all ones (removed, powered off, or link down)")]
    Gone,
    /// A capability list that loops or leaves its area.
    #[error(
        "the capability list is damaged: invalid entry at {at:#x} after {seen}",
        seen = quantity(*seen, "entry"),
    )]
    BadCapabilityList {
        /// Offset of the invalid entry.
        at: u16,
        /// Number of entries read before it.
        seen: u8,
    },
    /// The process that serves the device could not perform the access.
    #[error("configuration access at {at:#x} was not performed: {source}")]
    Server {
        /// First byte.
        at: u16,
        /// Reason.
        r#source: ServerError,
    },
}

/// Error of mapping or unmapping memory for DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmaMapError {
    /// Address or length is not a multiple of the page size.
    #[error("DMA mapping of {length:#x} bytes at {iova} is not a multiple of the page size {page:#x}")]
    Misaligned {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
        /// The granule of the IOMMU in bytes.
        page: u64,
    },
    /// The device cannot use these addresses.
    #[error("{length:#x} bytes at {iova} are outside the IOVA ranges that the IOMMU permits")]
    OutsideRanges {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
    },
    /// The addresses overlap an existing mapping.
    #[error("{length:#x} bytes at {iova} overlap an existing mapping")]
    Overlap {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
    },
    /// No mapping, or not exactly this one, exists at the address.
    #[error("no mapping of exactly {length:#x} bytes exists at {iova}")]
    NotMapped {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
    },
    /// The limit on locked memory: mapped memory is pinned and counts against it.
    #[error(
        "{length:#x} bytes cannot be mapped at {iova}: this process may lock {limit}, has {locked} locked, and needs {needed}",
        limit = quantity(*limit, "byte"),
    )]
    LockedMemory {
        /// First address.
        iova: Iova,
        /// Length of the requested mapping in bytes.
        length: u64,
        /// Bytes locked already, as far as the process can determine.
        locked: u64,
        /// Maximum number of bytes that it may lock (RLIMIT_MEMLOCK).
        limit: u64,
        /// Minimum limit with which this mapping would have been possible.
        needed: u64,
    },
    /// No memory could be locked, although this process is below its limit: an iommufd counts the mappings of all of a user's programs
    /// against that limit, and a process sees only its own.
    #[error(
        "{length:#x} bytes cannot be mapped at {iova}: all programs of this user together may lock {limit} (iommufd), or memory is short",
        limit = quantity(*limit, "byte"),
    )]
    LockedMemoryOfUser {
        /// First address.
        iova: Iova,
        /// Length of the requested mapping in bytes.
        length: u64,
        /// Maximum number of bytes that the user's programs may lock (RLIMIT_MEMLOCK of this process).
        limit: u64,
    },
    /// The limit on the number of mappings.
    #[error(
        "{length:#x} bytes cannot be mapped at {iova}: {in_use} mappings exist, and the kernel permits {limit}"
    )]
    TooManyMappings {
        /// First address.
        iova: Iova,
        /// Length of the requested mapping in bytes.
        length: u64,
        /// Mappings made through this device.
        in_use: usize,
        /// Maximum number of mappings that the kernel accepts.
        limit: u32,
    },
    /// The system lacks a resource for mappings: memory, or space in its tables.
    #[error("the system's limit was reached mapping {length:#x} bytes at {iova}: {source}")]
    LimitReached {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
        /// The system's reason.
        r#source: OsError,
    },
    /// The system refused the mapping.
    #[error("the system refused the DMA mapping of {length:#x} bytes at {iova}: {source}")]
    Refused {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
        /// The system's reason.
        r#source: OsError,
    },
    /// The process that serves the device could not perform the operation.
    #[error("DMA mapping of {length:#x} bytes at {iova}: {source}")]
    Server {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
        /// Reason.
        r#source: ServerError,
    },
}

/// Error of setting up interrupts, or of waiting for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterruptError {
    /// More vectors than the device has, or than the system can provide.
    #[error("{asked} interrupt vectors requested, {available} available")]
    TooMany {
        /// Requested number of vectors.
        asked: u32,
        /// Available number of vectors.
        available: u32,
    },
    /// Vectors are enabled already.
    #[error("interrupts are enabled already")]
    AlreadyEnabled,
    /// No event descriptor could be created.
    #[error("no event descriptor could be created: {source}")]
    NoDescriptor {
        /// The system's reason.
        r#source: OsError,
    },
    /// The system refused to enable or disable interrupts.
    #[error("the system refused to set {count} interrupt vectors: {source}")]
    Refused {
        /// Number of vectors to enable; 0 for disabling.
        count: u32,
        /// The system's reason.
        r#source: OsError,
    },
    /// Waiting failed.
    #[error("waiting for an interrupt failed: {source}")]
    WaitFailed {
        /// The system's reason.
        r#source: OsError,
    },
    /// The process that serves the device could not perform the operation.
    #[error("{count} interrupt vectors were not set: {source}")]
    Server {
        /// Number of vectors to enable; 0 for disabling.
        count: u32,
        /// Reason.
        r#source: ServerError,
    },
    /// The handle was made by another process.
    #[error(transparent)]
    OtherProcess(#[from] OtherProcess),
}

/// List of items for a message.
pub(crate) struct DisplayList<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for DisplayList<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Reason why a device may not have a reset.
const fn reset_reason(level: ResetLevel) -> &'static str {
    match level {
        ResetLevel::Function => "public XDMA cards report none (FLReset-, NoSoftRst+)",
        ResetLevel::Hot => "it requires a separate port above the device, and access to that port",
    }
}

/// Error of a reset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    /// The device (or this backend) has no reset of that level.
    #[error("the device supports no {level} reset here: {}", reset_reason(*level))]
    Unsupported {
        /// Requested level.
        level: ResetLevel,
    },
    /// The reset would also affect functions of other owners. Nothing was done.
    #[error("a {level} reset would also reset {}, which this process does not own", DisplayList(others))]
    NotOwned {
        /// Requested level.
        level: ResetLevel,
        /// Affected functions.
        others: Vec<OtherFunction>,
    },
    /// The reset was attempted and failed.
    #[error("the {level} reset failed: {source}")]
    Failed {
        /// Requested level.
        level: ResetLevel,
        /// The system's reason.
        r#source: OsError,
    },
    /// The reset was done, but the device does not answer afterwards.
    #[error("the device does not answer after a {level} reset")]
    NoAnswer {
        /// Requested level.
        level: ResetLevel,
    },
    /// The process that serves the device could not perform the reset.
    #[error("the {level} reset failed: {source}")]
    Server {
        /// Requested level.
        level: ResetLevel,
        /// Reason.
        r#source: ServerError,
    },
}

/// Error of accessing or creating shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Outside the memory.
    #[error(
        "access of {length} at offset {offset:#x} is outside the memory of {size:#x} bytes",
        length = quantity(*length, "byte"),
    )]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Length in bytes.
        length: usize,
        /// Size of the memory in bytes.
        size: usize,
    },
    /// A word access at an offset that is not a multiple of its width.
    #[error("offset {offset:#x} is not a multiple of {alignment}, as word accesses require")]
    Misaligned {
        /// The offset.
        offset: usize,
        /// Required alignment.
        alignment: usize,
    },
    /// A size of zero, or one that exceeds the address space.
    #[error(
        "shared memory size {length:#x} is invalid: it must be at least 1 byte and fit into the address space"
    )]
    BadLength {
        /// Requested size in bytes.
        length: usize,
    },
    /// The system provided no memory.
    #[error("the system did not provide {length:#x} bytes of shared memory: {source}")]
    Unavailable {
        /// Requested size in bytes.
        length: usize,
        /// The system's reason.
        r#source: OsError,
    },
}

/// Error of the IOVA allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IovaError {
    /// Length zero, or an alignment that is not a power of two.
    #[error(
        "cannot allocate {length:#x} bytes aligned to {alignment:#x}: the length must not be 0, the alignment a power of two"
    )]
    BadRequest {
        /// Requested length in bytes.
        length: u64,
        /// Requested alignment.
        alignment: u64,
    },
    /// No free range is large enough.
    #[error(
        "no free IOVA range of {length:#x} bytes aligned to {alignment:#x}; the largest free range has {largest:#x} bytes"
    )]
    Exhausted {
        /// Requested length in bytes.
        length: u64,
        /// Requested alignment.
        alignment: u64,
        /// Largest free range in bytes (saturated at 2^64 - 1).
        largest: u64,
    },
    /// The range is not free (reserving) or not allocated (releasing), fully or partly, or not managed.
    #[error(
        "{length:#x} bytes at {iova} are not all in the state that the operation requires: released twice, or never allocated"
    )]
    NotAllocated {
        /// First address.
        iova: Iova,
        /// Length in bytes.
        length: u64,
    },
}

/// Error of allocating a DMA buffer, or of mapping memory of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmaAllocError {
    /// A length of zero, or an alignment that is not a power of two or above the region size.
    #[error(
        "cannot allocate a buffer of {length} aligned to {alignment}: the length must not be 0, the alignment a power of two of at most {largest}",
        length = quantity(*length, "byte"),
    )]
    BadRequest {
        /// Requested length in bytes.
        length: usize,
        /// Requested alignment.
        alignment: usize,
        /// Maximum alignment that the pool supports.
        largest: usize,
    },
    /// The pool has reached its limit.
    #[error(
        "no memory for a DMA buffer of {length}: {in_use} in use, {mapped} of at most {limit} mapped, {quarantined} in quarantine",
        length = quantity(*length, "byte"),
        in_use = quantity(*in_use, "byte"),
        mapped = quantity(*mapped, "byte"),
        limit = quantity(*limit, "byte"),
    )]
    Exhausted {
        /// Requested length in bytes, as a multiple of 64.
        length: usize,
        /// Bytes in use at the moment.
        in_use: usize,
        /// Bytes mapped: of the regions that hold the bytes in use.
        mapped: usize,
        /// The pool's limit.
        limit: usize,
        /// Bytes in quarantine.
        quarantined: usize,
    },
    /// Memory of the caller that does not consist of whole pages of the IOMMU.
    #[error(
        "memory of {length:#x} bytes cannot be mapped for DMA: its start and its length must be multiples of the page size {page:#x}"
    )]
    NotWholePages {
        /// Size of the memory in bytes.
        length: usize,
        /// The granule of the IOMMU in bytes.
        page: u64,
    },
    /// Memory of the caller that this pool has mapped already.
    #[error("memory of {length:#x} bytes is mapped for this device already, at {iova}")]
    AlreadyMapped {
        /// First address as the device sees it.
        iova: Iova,
        /// Size of the memory in bytes.
        length: usize,
    },
    /// The device cannot use any of the addresses that the IOMMU permits.
    #[error(
        "the device has {bits} address bits, but the IOMMU permits no address below {first}: the card cannot reach host memory"
    )]
    AddressWidth {
        /// Address bits of the device, as set in the pool's options.
        bits: u32,
        /// First address that the IOMMU permits.
        first: Iova,
    },
    /// No host memory for another region.
    #[error("no memory for another DMA region: {0}")]
    Memory(MemoryError),
    /// No addresses for another region.
    #[error("no addresses for another DMA region: {0}")]
    Iova(IovaError),
    /// The IOMMU refused another region.
    #[error("another DMA region could not be mapped: {0}")]
    Map(DmaMapError),
    /// The handle was made by another process.
    #[error(transparent)]
    OtherProcess(#[from] OtherProcess),
}

impl From<DmaMapError> for DmaAllocError {
    fn from(error: DmaMapError) -> Self {
        Self::Map(error)
    }
}

impl From<IovaError> for DmaAllocError {
    fn from(error: IovaError) -> Self {
        Self::Iova(error)
    }
}

impl From<MemoryError> for DmaAllocError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}
