//! Configuration of a descriptor ring of the card-internal copy engine, validated once.

use fpga_registers::cdma::descriptor;
use fpga_registers::{CardAddr, quantity};

/// Size of a ring entry in bytes (PG034 "Scatter Gather Transfer Descriptor Definition").
pub const ENTRY_BYTES: u64 = descriptor::SIZE as u64;
/// Maximum number of ring entries: 4 MiB of descriptors.
pub const MAX_ENTRIES: u32 = 1 << 16;
/// Width of the length field that every build has, in bits: 23 before version 4.1, 26 since (PG034, CONTROL word). It is also the maximum
/// that a ring uses. A status word does not report a length, so a build that cuts it would complete a copy that moved too little; the three
/// further bits would save one descriptor in 8 MiB.
pub const LENGTH_BITS: u8 = 23;

/// Geometry of a [`Ring`](super::Ring), and build options of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingConfig {
    /// Card address of entry 0 as the engine's descriptor port sees it: a multiple of 64. The ring is within one 4 GiB block, so that the
    /// high word of all descriptor pointers is the same and the low word identifies an entry.
    pub base: CardAddr,
    /// Number of entries: a power of two, 2..=65536. One of them stays free.
    pub entries: u32,
    /// Maximum number of operations in the ring: a power of two, 1..=65536. Default: equal to `entries`.
    pub operations: u32,
    /// Bits of the length field that descriptors use, 8..=23. Default [`LENGTH_BITS`], which every build has.
    pub length_bits: u8,
    /// Width of the build's data path in bytes: a power of two, 4..=128. Long copies are split at multiples of it, so that a
    /// split never makes an aligned copy unaligned. Default 64.
    pub data_bytes: u32,
    /// Whether the build has the data realignment engine, which permits any address. Without it both addresses must be
    /// multiples of [`data_bytes`](Self::data_bytes). Default: true.
    pub realignment: bool,
    /// Address bits of the build, 32..=64. Default 64.
    pub address_bits: u8,
}

impl RingConfig {
    /// Creates a configuration of `entries` descriptors at `base`, for a build with 64 address bits, 23 length bits and realignment.
    #[must_use]
    pub const fn new(base: CardAddr, entries: u32) -> Self {
        Self {
            base,
            entries,
            operations: entries,
            length_bits: LENGTH_BITS,
            data_bytes: 64,
            realignment: true,
            address_bits: 64,
        }
    }

    /// Bytes of descriptor memory.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.entries as u64 * ENTRY_BYTES
    }

    /// Maximum length of one descriptor's copy, in bytes: the maximum of the length field, rounded down to the data width.
    #[must_use]
    pub const fn max_descriptor_length(&self) -> u32 {
        let longest = (1 << self.length_bits) - 1;
        longest - longest % self.data_bytes
    }

    /// Highest address of the build's address width.
    #[must_use]
    pub const fn last_address(&self) -> u64 {
        u64::MAX >> (64 - self.address_bits)
    }

    /// Checks the rules of all fields.
    ///
    /// # Errors
    /// The first violated rule, with the value found.
    pub const fn validate(&self) -> Result<(), CdmaRingConfigError> {
        if !self.entries.is_power_of_two() || self.entries < 2 || self.entries > MAX_ENTRIES {
            return Err(CdmaRingConfigError::Entries { found: self.entries });
        }
        if !self.operations.is_power_of_two() || self.operations > MAX_ENTRIES {
            return Err(CdmaRingConfigError::Operations { found: self.operations });
        }
        if self.length_bits < 8 || self.length_bits > LENGTH_BITS {
            return Err(CdmaRingConfigError::LengthBits { found: self.length_bits });
        }
        if !self.data_bytes.is_power_of_two() || self.data_bytes < 4 || self.data_bytes > 128 {
            return Err(CdmaRingConfigError::DataBytes { found: self.data_bytes });
        }
        if self.address_bits < 32 || self.address_bits > 64 {
            return Err(CdmaRingConfigError::AddressBits { found: self.address_bits });
        }
        let (base, bytes) = (self.base.get(), self.bytes());
        let last = base.saturating_add(bytes - 1);
        if !base.is_multiple_of(descriptor::ALIGNMENT)
            || last - base != bytes - 1
            || base >> 32 != last >> 32
            || last > self.last_address()
        {
            return Err(CdmaRingConfigError::Base { found: self.base, bytes });
        }
        Ok(())
    }
}

/// Reason why a ring configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaRingConfigError {
    /// Entry count out of range.
    #[error(
        "a CDMA ring of {found} is not possible; permitted: a power of two from 2 to {MAX_ENTRIES}",
        found = quantity(*found, "descriptor"),
    )]
    Entries {
        /// Requested entries.
        found: u32,
    },
    /// Operation count out of range.
    #[error(
        "{found} operation slots in a CDMA ring are not possible; permitted: a power of two from 1 to {MAX_ENTRIES}"
    )]
    Operations {
        /// Requested operations.
        found: u32,
    },
    /// Descriptor memory unaligned or outside the permitted addresses.
    #[error(
        "CDMA descriptor memory of {bytes} at {found} is not aligned to 64 bytes, or not within one 4 GiB block that the engine can address",
        bytes = quantity(*bytes, "byte"),
    )]
    Base {
        /// Requested address.
        found: CardAddr,
        /// Size of the descriptor memory.
        bytes: u64,
    },
    /// Length field out of range.
    #[error(
        "descriptors with {found} length bits are not possible; permitted: 8 to {LENGTH_BITS}, which every build has"
    )]
    LengthBits {
        /// Bits given.
        found: u8,
    },
    /// Data path out of range.
    #[error(
        "a CDMA data path of {found} is not possible; builds have a power of two from 4 to 128",
        found = quantity(*found, "byte"),
    )]
    DataBytes {
        /// Bytes given.
        found: u32,
    },
    /// Address width out of range.
    #[error("{found} CDMA address bits are not possible; builds have 32 to 64")]
    AddressBits {
        /// Bits given.
        found: u8,
    },
}
