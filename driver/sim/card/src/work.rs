//! Kind and amount of an engine's next unit of work, for the pacer.

use fpga_registers::xdma::Direction;

/// Maximum number of bytes of one paced unit of a channel, and of a part of a copy, so that long descriptors of one channel do not delay
/// short ones of another.
pub(crate) const QUANTUM: usize = 4096;

/// Next unit of an engine, with its amount of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing that takes time.
    Instant,
    /// Reads `bytes` of descriptors from the host.
    Fetch { bytes: u64 },
    /// Moves `bytes` between host and card. `first`: of a descriptor.
    Dma { direction: Direction, bytes: u64, first: bool },
    /// Stream channel, whose length is known only afterwards: begins when its direction is free.
    Stream { direction: Direction },
    /// Copies `bytes` within the card. `first`: of a descriptor. `accesses`: how many of its two sides are card memory; transmit windows
    /// are memory of the NI.
    Copy { bytes: u64, first: bool, accesses: u8 },
    /// Writes an event to the host, or to card memory.
    Event { bytes: u64, to_host: bool },
}
