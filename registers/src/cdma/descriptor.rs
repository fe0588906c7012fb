//! Scatter-gather descriptors (PG034 "Scatter Gather Transfer Descriptor Definition").

use crate::addr::CardAddr;
use crate::quantity;

/// Size of a descriptor in bytes, of which the engine reads the first half.
pub const SIZE: u32 = 64;
/// Alignment of a descriptor in bytes. One sentence of PG034 says 128: see [`errata`](crate::errata).
pub const ALIGNMENT: u64 = 64;

register_value! {
    /// Control word of a descriptor.
    pub struct SgControl {
        /// Bytes to copy; zero is an error.
        26 bytes: u32;
        6 _reserved_26: u8;
    }

    /// Status word of a descriptor. Software zeroes it before each use.
    pub struct SgStatus {
        28 _reserved_0: u32;
        /// A length of zero, or an internal error.
        1 dma_internal_error: bool;
        /// An AXI slave reported an error.
        1 dma_slave_error: bool;
        /// No AXI slave at the address.
        1 dma_decode_error: bool;
        /// The engine is done with the descriptor.
        1 completed: bool;
    }
}

impl SgStatus {
    /// Bits that report an error.
    pub const ERRORS: Self =
        Self::new().with_dma_internal_error(true).with_dma_slave_error(true).with_dma_decode_error(true);

    /// Returns whether any error bit is set.
    #[must_use]
    pub const fn has_error(self) -> bool {
        self.into_bits() & Self::ERRORS.into_bits() != 0
    }
}

/// Reason why a length is invalid: above the control word's 26 bits, or zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "CDMA descriptor length of {length} is outside 1 to {}; split the copy",
    super::MAX_LEN,
    length = quantity(*length, "byte"),
)]
pub struct LengthError {
    /// Requested length in bytes.
    pub length: u32,
}

/// A descriptor as the engine reads it: eight words, then 32 bytes for software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SgDescriptor {
    /// Address of the next descriptor, a multiple of 64.
    pub next: CardAddr,
    /// Source address.
    pub source: CardAddr,
    /// Destination address.
    pub destination: CardAddr,
    /// Control word with the length.
    pub control: SgControl,
    /// Status word.
    pub status: SgStatus,
    /// Free for software; the engine does not read it.
    pub software: [u32; 8],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SgDescriptor>() == SIZE as usize);
    assert!(offset_of!(SgDescriptor, next) == 0x00);
    assert!(offset_of!(SgDescriptor, source) == 0x08);
    assert!(offset_of!(SgDescriptor, destination) == 0x10);
    assert!(offset_of!(SgDescriptor, control) == 0x18);
    assert!(offset_of!(SgDescriptor, status) == 0x1C);
    assert!(offset_of!(SgDescriptor, software) == 0x20);
};

impl SgDescriptor {
    /// Creates a descriptor that copies `length` bytes, with a cleared status; its successor and software words are zero.
    ///
    /// # Errors
    /// A length of zero or above [`MAX_LEN`](super::MAX_LEN).
    pub const fn new(source: CardAddr, destination: CardAddr, length: u32) -> Result<Self, LengthError> {
        if length == 0 || length > super::MAX_LEN {
            return Err(LengthError { length });
        }
        Ok(Self {
            next: CardAddr::ZERO,
            source,
            destination,
            control: SgControl::new().with_bytes(length),
            status: SgStatus::new(),
            software: [0; 8],
        })
    }

    /// Sets the successor.
    #[must_use]
    pub const fn with_next(mut self, next: CardAddr) -> Self {
        self.next = next;
        self
    }

    /// Returns the eight words that the engine reads, in memory order, each to be stored little-endian.
    #[must_use]
    pub const fn to_engine_words(&self) -> [u32; 8] {
        let (next_low, next_high) = self.next.to_low_high();
        let (source_low, source_high) = self.source.to_low_high();
        let (destination_low, destination_high) = self.destination.to_low_high();
        [
            next_low,
            next_high,
            source_low,
            source_high,
            destination_low,
            destination_high,
            self.control.into_bits(),
            self.status.into_bits(),
        ]
    }

    /// Returns all sixteen words in memory order, each to be stored little-endian.
    #[must_use]
    pub const fn to_words(&self) -> [u32; 16] {
        let mut words = [0; 16];
        let engine = self.to_engine_words();
        let mut index = 0;
        while index < 8 {
            words[index] = engine[index];
            words[8 + index] = self.software[index];
            index += 1;
        }
        words
    }

    /// Creates a descriptor from the eight words that the engine reads; software words are zero. Nothing is checked.
    #[must_use]
    pub const fn from_engine_words(words: [u32; 8]) -> Self {
        Self {
            next: CardAddr::from_low_high(words[0], words[1]),
            source: CardAddr::from_low_high(words[2], words[3]),
            destination: CardAddr::from_low_high(words[4], words[5]),
            control: SgControl::from_bits(words[6]),
            status: SgStatus::from_bits(words[7]),
            software: [0; 8],
        }
    }

    /// Creates a descriptor from sixteen words in memory order. Nothing is checked, reserved bits are kept.
    #[must_use]
    pub const fn from_words(words: [u32; 16]) -> Self {
        let mut engine = [0; 8];
        let mut software = [0; 8];
        let mut index = 0;
        while index < 8 {
            engine[index] = words[index];
            software[index] = words[8 + index];
            index += 1;
        }
        let mut descriptor = Self::from_engine_words(engine);
        descriptor.software = software;
        descriptor
    }
}
