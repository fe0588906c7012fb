//! Layout of one channel's descriptor ring, validated once.

use fpga_registers::xdma::{Direction, PollWriteback, descriptor};
use fpga_registers::{Iova, quantity};

/// Bytes of one descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = descriptor::SIZE as u64;
/// A block of adjacent descriptors never crosses this boundary; data is cut there too.
pub(super) const PAGE: u64 = descriptor::BLOCK_BOUNDARY as u64;
/// Descriptors in one page.
pub(super) const PAGE_DESCRIPTORS: u64 = PAGE / DESCRIPTOR_BYTES;
/// Maximum number of adjacent descriptors in a block: Nxt_adj counts 0..=63 descriptors after the first.
pub(super) const MAX_BLOCK: u8 = 64;
/// The completed count of the poll-mode write-back has 24 bits (PG195).
pub(super) const COUNT_MASK: u32 = PollWriteback::COUNT_MODULUS - 1;
/// Maximum descriptor length that keeps splits on page boundaries, in bytes: the 28-bit length field holds 2^28 - 1, and this is the next
/// lower multiple of 4 KiB.
pub const MAX_DESCRIPTOR_LENGTH: u32 = (1 << 28) - 4096;
/// Maximum number of credits outstanding: the credit counter has 10 bits (PG195, SGDMA Descriptor Credits).
pub const MAX_CREDITS: u32 = (1 << 10) - 1;
/// Maximum number of ring entries. Far below 2^24, so that a run's count never wraps within the write-back's 24 bits.
pub const MAX_ENTRIES: u32 = 1 << 16;

/// Bytes in descriptors of more than 4096 bytes that are posted without a completion report before the next end of an operation requests
/// one. A card moves them in about 20 us. The report costs a write of 4 bytes, and an interrupt if the host sleeps.
pub const REPORT_BYTES: u64 = 256 << 10;

/// Card side of the channel: determines the descriptor's card-side address and EOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardSide {
    /// AXI-MM, incrementing: the card address advances with the bytes moved.
    Memory,
    /// AXI-MM with `non_inc_mode` (channel control bit 25): every descriptor names the same card address, as for
    /// a FIFO behind one address.
    FixedAddress,
    /// H2C AXI-ST: no card address; an operation is a packet, whose last descriptor carries EOP (TLAST).
    StreamOut {
        /// Width of the data path in bytes: the length of a descriptor that does not end a packet is a multiple of it (PG195, status bit
        /// 5).
        beat: u32,
    },
    /// C2H AXI-ST: the source field is the host address of the descriptor's metadata write-back (length and EOP). Ring entry `i` reports at
    /// `writebacks + 32 x i`, half a cache line each, as in every driver; see [`Packets`](super::Packets).
    StreamIn {
        /// Host address of entry 0's metadata write-back; 32-byte aligned.
        writebacks: Iova,
    },
}

/// Descriptors that request a completion report (Completed, control bit 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionPolicy {
    /// The last descriptor of a run, and within a run each end of an operation by which [`REPORT_BYTES`] of long descriptors have passed
    /// since the last report: one interrupt or status event for many small operations, and one for each large operation.
    #[default]
    EndOfRun,
    /// The last descriptor of every operation: a poll-mode host sees each operation finish within a long run.
    EachOperation,
}

/// Geometry and rules of a [`Ring`](super::Ring).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingConfig {
    /// Direction of the data; determines which descriptor field is the host's.
    pub direction: Direction,
    /// Device address of entry 0 of the descriptor memory; 32-byte aligned.
    pub base: Iova,
    /// Number of descriptors in the ring: a power of two, 2..=65536.
    pub entries: u32,
    /// Maximum number of operations in the ring: a power of two, 1..=65536. Default: equal to `entries`.
    pub operations: u32,
    /// Maximum descriptor length in bytes: a multiple of 4096, at most [`MAX_DESCRIPTOR_LENGTH`] (the default). 4096 avoids quirk 1
    /// entirely, but needs one descriptor per page.
    pub max_descriptor_length: u32,
    /// Maximum number of adjacent descriptors in a block, 1..=64 (default 64).
    pub block_descriptors: u8,
    /// Maximum number of descriptors in a run with long descriptors. Some IP builds mishandle more than one adjacent block when descriptors
    /// are longer than 4096 bytes (stall or magic error). A run that contains such a descriptor is therefore one block of at most this
    /// many. The default 16 corresponds to one 512-byte read request; `None` removes the limit on hardware that is known to be correct.
    pub long_run_descriptors: Option<u8>,
    /// Card side of the descriptors. Default: incrementing memory.
    pub card_side: CardSide,
    /// Descriptors that report completion. Default: the last of a run, and those that end large operations.
    pub report: CompletionPolicy,
}

impl RingConfig {
    /// Safe defaults for a memory-mapped channel whose descriptor memory starts at `base`.
    #[must_use]
    pub const fn new(direction: Direction, base: Iova, entries: u32) -> Self {
        Self {
            direction,
            base,
            entries,
            operations: entries,
            max_descriptor_length: MAX_DESCRIPTOR_LENGTH,
            block_descriptors: MAX_BLOCK,
            long_run_descriptors: Some(16),
            card_side: CardSide::Memory,
            report: CompletionPolicy::EndOfRun,
        }
    }

    /// Checks the rules of all fields.
    ///
    /// # Errors
    /// The first violated rule, with the value found.
    pub fn validate(&self) -> Result<(), RingConfigError> {
        if !self.entries.is_power_of_two() || self.entries < 2 || self.entries > MAX_ENTRIES {
            return Err(RingConfigError::Entries { found: self.entries });
        }
        if !self.operations.is_power_of_two() || self.operations > MAX_ENTRIES {
            return Err(RingConfigError::Operations { found: self.operations });
        }
        let bytes = u64::from(self.entries) * DESCRIPTOR_BYTES;
        if !self.base.get().is_multiple_of(DESCRIPTOR_BYTES) || self.base.get().checked_add(bytes).is_none() {
            return Err(RingConfigError::Base { found: self.base, bytes });
        }
        let length = self.max_descriptor_length;
        if length == 0 || length > MAX_DESCRIPTOR_LENGTH || !length.is_multiple_of(4096) {
            return Err(RingConfigError::DescriptorLength { found: length });
        }
        let limit = self.long_run_descriptors.unwrap_or(1);
        for found in [self.block_descriptors, limit] {
            if found == 0 || found > MAX_BLOCK {
                return Err(RingConfigError::Block { found });
            }
        }
        match (self.card_side, self.direction) {
            (CardSide::StreamOut { .. }, Direction::C2h) | (CardSide::StreamIn { .. }, Direction::H2c) => {
                Err(RingConfigError::StreamDirection)
            }
            (CardSide::StreamOut { beat }, _) if !beat.is_power_of_two() || beat > 4096 => {
                Err(RingConfigError::Beat { found: beat })
            }
            (CardSide::StreamIn { writebacks }, _)
                if !writebacks.get().is_multiple_of(32) || writebacks.get().checked_add(bytes).is_none() =>
            {
                Err(RingConfigError::Writebacks { found: writebacks, bytes })
            }
            _ => Ok(()),
        }
    }
}

/// Reason why a ring configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingConfigError {
    /// Entry count out of range.
    #[error(
        "a descriptor ring of {found} is not possible; permitted: a power of two from 2 to {MAX_ENTRIES}",
        found = quantity(*found, "entry"),
    )]
    Entries {
        /// Requested entries.
        found: u32,
    },
    /// Operation count out of range.
    #[error(
        "{found} operation slots in a ring are not possible; permitted: a power of two from 1 to {MAX_ENTRIES}"
    )]
    Operations {
        /// Requested operations.
        found: u32,
    },
    /// Descriptor memory unaligned or outside the address space.
    #[error(
        "descriptor memory of {bytes} at {found} is not aligned to 32 bytes, or leaves the address space",
        bytes = quantity(*bytes, "byte"),
    )]
    Base {
        /// Requested address.
        found: Iova,
        /// Size of the descriptor memory.
        bytes: u64,
    },
    /// Descriptor length limit out of range.
    #[error(
        "descriptors of up to {found} are not possible; permitted: a multiple of 4096 up to {MAX_DESCRIPTOR_LENGTH}",
        found = quantity(*found, "byte"),
    )]
    DescriptorLength {
        /// Requested limit.
        found: u32,
    },
    /// Block length out of range.
    #[error("blocks of {found} adjacent descriptors are not possible; permitted: 1 to 64")]
    Block {
        /// Requested limit.
        found: u8,
    },
    /// Stream out needs H2C, stream in needs C2H.
    #[error("a stream channel's direction and card side differ: StreamOut belongs to H2C, StreamIn to C2H")]
    StreamDirection,
    /// Invalid beat size.
    #[error(
        "beats of {found} are not possible; permitted: a power of two up to 4096",
        found = quantity(*found, "byte"),
    )]
    Beat {
        /// Requested bytes.
        found: u32,
    },
    /// Metadata write-backs unaligned or outside the address space.
    #[error(
        "metadata write-back memory of {bytes} at {found} is not aligned to 32 bytes, or leaves the address space",
        bytes = quantity(*bytes, "byte"),
    )]
    Writebacks {
        /// Requested address.
        found: Iova,
        /// Size of the write-back memory.
        bytes: u64,
    },
}
