//! Write-backs: data that the engine writes to host memory in addition to the payload.

use crate::decode::FieldKind;

/// Upper half of the first word of a [`StreamWriteback`].
pub const STREAM_MAGIC: u16 = 0x52B4;
/// Size of a [`StreamWriteback`] in bytes.
pub const STREAM_SIZE: u32 = 8;
/// Size of a [`PollWriteback`] in bytes.
pub const POLL_SIZE: u32 = 4;

register_value! {
    /// Poll-mode write-back of a channel (PG195 "Poll Mode").
    ///
    /// The count is the low part of the channel's `completed` register: all descriptors since run was set, not only
    /// those flagged Completed. Compare it modulo 2 to the 24.
    pub struct PollWriteback {
        /// Completed descriptors, low 24 bits.
        24 count: u32;
        7 _reserved_24: u8;
        /// Any error bit of the channel's status is set.
        1 error: bool;
    }

    /// First word of a [`StreamWriteback`].
    pub struct StreamWritebackStatus {
        /// The packet ended in this descriptor.
        1 eop: bool;
        15 _reserved_1: u16;
        /// [`STREAM_MAGIC`].
        16 magic: u16 = STREAM_MAGIC, FieldKind::Hex;
    }
}

impl PollWriteback {
    /// Modulus of the count.
    pub const COUNT_MODULUS: u32 = 1 << 24;

    /// Creates the write-back of a channel whose `completed` register reads `completed`, of which 24 bits are kept.
    #[must_use]
    pub const fn of(completed: u32, error: bool) -> Self {
        Self::new().with_count(completed % Self::COUNT_MODULUS).with_error(error)
    }
}

/// Metadata that a C2H stream channel writes per descriptor (PG195 and PG344 "DMA C2H Stream").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StreamWriteback {
    /// Magic number and end-of-packet bit.
    pub status: StreamWritebackStatus,
    /// Bytes received into the descriptor's buffer.
    pub length: u32,
}

const _: () = assert!(size_of::<StreamWriteback>() == STREAM_SIZE as usize);

impl StreamWriteback {
    /// Creates a write-back of `length` bytes.
    #[must_use]
    pub const fn new(length: u32, eop: bool) -> Self {
        Self { status: StreamWritebackStatus::new().with_eop(eop), length }
    }

    /// Returns the two words in memory order, each to be stored little-endian.
    #[must_use]
    pub const fn to_words(&self) -> [u32; 2] {
        [self.status.into_bits(), self.length]
    }

    /// Creates a write-back from two words in memory order. Nothing is checked: see [`StreamWriteback::has_magic`].
    #[must_use]
    pub const fn from_words(words: [u32; 2]) -> Self {
        Self { status: StreamWritebackStatus::from_bits(words[0]), length: words[1] }
    }

    /// Returns whether the engine has written here since the memory was zeroed.
    #[must_use]
    pub const fn has_magic(&self) -> bool {
        self.status.magic() == STREAM_MAGIC
    }
}
