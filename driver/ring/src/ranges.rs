//! Ranges of memory in requests.

use fpga_registers::{CardAddr, Iova};

/// Contiguous range of host memory as the device addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// First byte.
    pub start: Iova,
    /// Length in bytes; empty ranges are skipped.
    pub length: u64,
}

impl HostRange {
    /// Creates a range of `length` bytes from `start`.
    #[must_use]
    pub const fn new(start: Iova, length: u64) -> Self {
        Self { start, length }
    }
}

/// One copy within card memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEntry {
    /// Source address, as the engine addresses it.
    pub source: CardAddr,
    /// Destination address.
    pub destination: CardAddr,
    /// Length in bytes; empty segments are skipped.
    pub length: u64,
}

impl CopyEntry {
    /// Creates a copy of `length` bytes from `source` to `destination`.
    #[must_use]
    pub const fn new(source: CardAddr, destination: CardAddr, length: u64) -> Self {
        Self { source, destination, length }
    }
}
