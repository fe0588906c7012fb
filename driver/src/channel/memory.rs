//! Memory that is registered with a channel.

use fpga_pci::RegisteredMemory;
use fpga_registers::CardAddr;
use fpga_ring::ring::HostRange;

/// Handle of memory registered with one channel. It is never reused, by any channel, after the memory is deregistered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryHandle {
    pub(super) index: usize,
    pub(super) number: u64,
}

/// Number of an entry whose memory is deregistered; handles are numbered from 1.
pub(super) const DEREGISTERED: u64 = 0;

/// Entry of a scatter-gather list: a part of registered memory, and its card address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScatterGatherEntry {
    /// Handle of the memory.
    pub memory: MemoryHandle,
    /// Offset of the first byte in the memory.
    pub offset: usize,
    /// Length in bytes; empty entries are skipped.
    pub length: usize,
    /// First card address.
    pub card: CardAddr,
}

/// Registered memory and its use.
#[derive(Debug)]
pub(super) struct RegisteredEntry {
    pub(super) area: Option<RegisteredMemory>,
    pub(super) start: u64,
    pub(super) length: usize,
    /// Number of the handle; [`DEREGISTERED`] once the memory is deregistered.
    pub(super) number: u64,
    /// Number of the transfer after the last one that uses the memory.
    pub(super) used_until: u64,
}

impl RegisteredEntry {
    /// Returns whether `range` includes bytes of this memory.
    pub(super) fn overlaps(&self, range: HostRange) -> bool {
        let start = range.start.get();
        // Neither end overflows: both ranges were checked against the address space.
        start < self.start + self.length as u64 && self.start < start + range.length
    }
}
