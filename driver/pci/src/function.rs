//! Properties of a PCI function: its BARs, resets, clock and counters, and the permitted accesses to its memory.

use core::fmt;

/// Kind of a BAR. PCI Local Bus 3.0, section 6.2.5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BarKind {
    /// Memory, 32-bit address.
    Memory32,
    /// Memory, 64-bit address: uses this and the next BAR register.
    Memory64,
    /// I/O ports. Listed, but not opened by any backend.
    Io,
}

/// One implemented BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BarInfo {
    /// BAR number, 0 to 5.
    pub index: u8,
    /// Size in bytes.
    pub size: u64,
    /// Kind of the BAR.
    pub kind: BarKind,
    /// The device promises that reads have no side effects and that writes may be merged.
    pub prefetchable: bool,
}

/// Permitted accesses of the device to mapped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DmaAccess {
    /// The device reads it (host to card).
    ReadByDevice,
    /// The device writes it (card to host).
    WriteByDevice,
    /// Both.
    Both,
}

impl DmaAccess {
    /// Returns whether the device may read.
    #[must_use]
    pub const fn device_reads(self) -> bool {
        matches!(self, Self::ReadByDevice | Self::Both)
    }

    /// Returns whether the device may write.
    #[must_use]
    pub const fn device_writes(self) -> bool {
        matches!(self, Self::WriteByDevice | Self::Both)
    }
}

/// Scope of a reset. Recovery escalates from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ResetLevel {
    /// Function level reset of this function alone (PCIe Base, section 6.6.2).
    Function,
    /// Hot reset of the link: every function below the port.
    Hot,
}

impl fmt::Display for ResetLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "function-level",
            Self::Hot => "hot",
        })
    }
}

/// Access counters of a card since it was created. Simulated cards count; real ones do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessCounters {
    /// Register reads (each a full round trip on the bus).
    pub mmio_reads: u64,
    /// Register writes (posted).
    pub mmio_writes: u64,
    /// Interrupt messages sent.
    pub interrupts: u64,
    /// Interrupts requested on each user interrupt line.
    pub user_interrupts: [u64; 16],
    /// DMA descriptors executed.
    pub descriptors: u64,
    /// Bytes moved by DMA, both directions.
    pub dma_bytes: u64,
}

/// Rates and latencies of a card, which no register reports. Simulated cards know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardTiming {
    /// Nanoseconds from a read request of the card to its completion.
    pub read_latency_ns: u32,
    /// Nanoseconds of a posted write, in either direction.
    pub write_latency_ns: u32,
    /// Nanoseconds of an access of card memory.
    pub memory_latency_ns: u32,
    /// Rate of all accesses of card memory together, in MB/s.
    pub memory_megabytes_per_second: u64,
    /// Rate of the CDMA's data path, in MB/s.
    pub copy_megabytes_per_second: u64,
    /// Nanoseconds of the CDMA per descriptor, in addition to its data.
    pub copy_descriptor_ns: u32,
    /// Rate of the network port, in Mbit/s.
    pub network_megabits_per_second: u64,
    /// Nanoseconds from one card's port to another card's, without the network between them.
    pub network_latency_ns: u32,
}

/// The clock that [`Backend::now`](crate::Backend::now) reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The system's monotonic clock.
    Monotonic,
    /// A simulation's time, which advances with the simulation's work and is unrelated to wall-clock time.
    Virtual,
}
