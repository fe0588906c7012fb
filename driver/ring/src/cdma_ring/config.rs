//! What a descriptor ring of the card-internal copy engine is built for, checked once.

use fpga_registers::CardAddr;
use fpga_registers::cdma::descriptor;

/// Bytes from one ring entry to the next (PG034 "Scatter Gather Transfer Descriptor Definition").
pub const ENTRY_BYTES: u64 = descriptor::SIZE as u64;
/// The largest ring: 4 MiB of descriptors.
pub const MAX_ENTRIES: u32 = 1 << 16;
/// Bits of the length field in builds before 4.1: every build has at least these unless it was asked for less.
pub const LENGTH_BITS_BEFORE_4_1: u8 = 23;
/// Bits of the longest length field there is (PG034, CONTROL word).
pub const MAX_LENGTH_BITS: u8 = 26;

/// Geometry of a [`Ring`](super::Ring), and what its engine was built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingConfig {
    /// Card address of entry 0 as the engine's descriptor port sees it: a multiple of 64. The ring stays within one 4 GiB
    /// block, so that the high word of every descriptor pointer is the same and one low word tells entries apart.
    pub base: CardAddr,
    /// Entries: a power of two, 2..=65536. One of them stays free.
    pub entries: u32,
    /// Operations that may be in the ring at once: a power of two, 1..=65536. Default: as many as entries.
    pub operations: u32,
    /// Bits of the build's length field, 8..=26. Default 23: what every build since the first has. A longer copy than the
    /// build's field holds would be cut without a word.
    pub length_bits: u8,
    /// Bytes of the build's data path: a power of two, 4..=128. Long copies are cut at multiples of it, so that a cut never
    /// makes an aligned copy unaligned. Default 64.
    pub data_bytes: u32,
    /// The build has the data realignment engine: any address will do. Without it both addresses must be multiples of
    /// [`data_bytes`](Self::data_bytes). Default: it has.
    pub realignment: bool,
    /// Address bits of the build, 32..=64. Default 64.
    pub address_bits: u8,
}

impl RingConfig {
    /// `entries` descriptors from `base` on, for a build with 64 address bits, 23 length bits and realignment.
    #[must_use]
    pub const fn new(base: CardAddr, entries: u32) -> Self {
        Self {
            base,
            entries,
            operations: entries,
            length_bits: LENGTH_BITS_BEFORE_4_1,
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

    /// The longest copy that one descriptor describes: what the length field holds, rounded down to the data width.
    #[must_use]
    pub const fn max_descriptor_length(&self) -> u32 {
        let longest = (1 << self.length_bits) - 1;
        longest - longest % self.data_bytes
    }

    /// The last address that the build can name.
    #[must_use]
    pub const fn last_address(&self) -> u64 {
        u64::MAX >> (64 - self.address_bits)
    }

    /// Checks every rule above.
    ///
    /// # Errors
    /// The first rule broken, with the value found.
    pub const fn validate(&self) -> Result<(), ConfigError> {
        if !self.entries.is_power_of_two() || self.entries < 2 || self.entries > MAX_ENTRIES {
            return Err(ConfigError::Entries { found: self.entries });
        }
        if !self.operations.is_power_of_two() || self.operations > MAX_ENTRIES {
            return Err(ConfigError::Operations { found: self.operations });
        }
        if self.length_bits < 8 || self.length_bits > MAX_LENGTH_BITS {
            return Err(ConfigError::LengthBits { found: self.length_bits });
        }
        if !self.data_bytes.is_power_of_two() || self.data_bytes < 4 || self.data_bytes > 128 {
            return Err(ConfigError::DataBytes { found: self.data_bytes });
        }
        if self.address_bits < 32 || self.address_bits > 64 {
            return Err(ConfigError::AddressBits { found: self.address_bits });
        }
        let (base, bytes) = (self.base.get(), self.bytes());
        let last = base.saturating_add(bytes - 1);
        if !base.is_multiple_of(descriptor::ALIGNMENT)
            || last - base != bytes - 1
            || base >> 32 != last >> 32
            || last > self.last_address()
        {
            return Err(ConfigError::Base { found: self.base, bytes });
        }
        Ok(())
    }
}

/// A ring that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Entry count out of range.
    #[error("a CDMA ring of {found} descriptors: give a power of two from 2 to {MAX_ENTRIES}")]
    Entries {
        /// Entries asked for.
        found: u32,
    },
    /// Operation count out of range.
    #[error("room for {found} operations in a CDMA ring: give a power of two from 1 to {MAX_ENTRIES}")]
    Operations {
        /// Operations asked for.
        found: u32,
    },
    /// Descriptor memory misplaced.
    #[error(
        "CDMA descriptors of {bytes} bytes at {found}: align them to 64 bytes, within one 4 GiB block that the engine can address"
    )]
    Base {
        /// Address asked for.
        found: CardAddr,
        /// Size of the descriptor memory.
        bytes: u64,
    },
    /// Length field out of range.
    #[error("a CDMA length field of {found} bits: builds have 8 to {MAX_LENGTH_BITS}")]
    LengthBits {
        /// Bits given.
        found: u8,
    },
    /// Data path out of range.
    #[error("a CDMA data path of {found} bytes: builds have a power of two from 4 to 128")]
    DataBytes {
        /// Bytes given.
        found: u32,
    },
    /// Address width out of range.
    #[error("{found} CDMA address bits: builds have 32 to 64")]
    AddressBits {
        /// Bits given.
        found: u8,
    },
}
