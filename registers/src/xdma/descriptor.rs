//! DMA descriptors (PG195 and PG344 "Descriptors").
//!
//! A descriptor is 32 bytes of host memory, aligned to 32. It describes one transfer and contains the address of the next descriptor. The
//! engine fetches adjacent descriptors with one read: `next_adjacent` is the number of *extra* descriptors that follow the one at `next`
//! without a gap. Such a block holds at most [`MAX_BLOCK`] descriptors and never crosses a 4 KiB boundary.

use crate::addr::{CardAddr, Iova};
use crate::decode::FieldKind;
use crate::quantity;
use crate::words::{join, split};
use crate::xdma::Direction;

/// Upper half of every control word.
pub const MAGIC: u16 = 0xAD4B;
/// Size and alignment of a descriptor in bytes.
pub const SIZE: u32 = 32;
/// Maximum length of one descriptor's transfer in bytes: the field has 28 bits.
pub const MAX_LEN: u32 = (1 << 28) - 1;
/// Maximum number of descriptors in one block of adjacent ones.
pub const MAX_BLOCK: u32 = 64;
/// Boundary in bytes that a block of adjacent descriptors does not cross.
pub const BLOCK_BOUNDARY: u32 = 4096;

register_value! {
    /// The control word of a descriptor. A new one carries the magic number.
    pub struct DescriptorControl {
        /// Fetch no descriptor beyond this one; done, it sets status `descriptor_stopped`.
        1 stop: bool;
        /// Done, it sets status `descriptor_completed`, which interrupts and writes back as configured.
        1 completed: bool;
        2 _reserved_2: u8;
        /// H2C AXI4-Stream: end the packet with this descriptor's last beat.
        1 eop: bool;
        3 _reserved_5: u8;
        /// Extra descriptors, 0 to 63, adjacent to the one at `next`.
        6 next_adjacent: u8;
        2 _reserved_14: u8;
        /// [`MAGIC`], else the engine stops with `magic_stopped`.
        16 magic: u16 = MAGIC, FieldKind::Hex;
    }
}

impl DescriptorControl {
    /// Returns whether the engine would accept the descriptor.
    #[must_use]
    pub const fn has_magic(self) -> bool {
        self.magic() == MAGIC
    }
}

/// Reason why a length is invalid: the descriptor's 28 bits cannot hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "descriptor length of {length} is above the limit of {MAX_LEN}; split the transfer",
    length = quantity(*length, "byte"),
)]
pub struct LengthError {
    /// Requested length in bytes.
    pub length: u32,
}

/// A descriptor as the engine reads it. On a little-endian host the structure's bytes are those in memory; [`Descriptor::to_words`] is
/// correct on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Descriptor {
    control: DescriptorControl,
    length: u32,
    source: u64,
    destination: u64,
    next: Iova,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Descriptor>() == SIZE as usize);
    assert!(offset_of!(Descriptor, control) == 0x00);
    assert!(offset_of!(Descriptor, length) == 0x04);
    assert!(offset_of!(Descriptor, source) == 0x08);
    assert!(offset_of!(Descriptor, destination) == 0x10);
    assert!(offset_of!(Descriptor, next) == 0x18);
};

impl Descriptor {
    const fn with_addresses(source: u64, destination: u64, length: u32) -> Result<Self, LengthError> {
        if length > MAX_LEN {
            return Err(LengthError { length });
        }
        Ok(Self { control: DescriptorControl::new(), length, source, destination, next: Iova::ZERO })
    }

    /// Creates a descriptor for `length` bytes from host memory to card memory.
    ///
    /// # Errors
    /// A length above [`MAX_LEN`].
    pub const fn h2c(source: Iova, destination: CardAddr, length: u32) -> Result<Self, LengthError> {
        Self::with_addresses(source.get(), destination.get(), length)
    }

    /// Creates a descriptor for `length` bytes from card memory to host memory.
    ///
    /// # Errors
    /// A length above [`MAX_LEN`].
    pub const fn c2h(source: CardAddr, destination: Iova, length: u32) -> Result<Self, LengthError> {
        Self::with_addresses(source.get(), destination.get(), length)
    }

    /// Creates a descriptor for `length` bytes from host memory to the card's stream. There is no card address.
    ///
    /// # Errors
    /// A length above [`MAX_LEN`].
    pub const fn h2c_stream(source: Iova, length: u32) -> Result<Self, LengthError> {
        Self::with_addresses(source.get(), 0, length)
    }

    /// Creates a descriptor for at most `length` bytes from the card's stream to host memory; a [`StreamWriteback`](super::StreamWriteback)
    /// is written to `writeback`.
    ///
    /// # Errors
    /// A length above [`MAX_LEN`].
    pub const fn c2h_stream(writeback: Iova, destination: Iova, length: u32) -> Result<Self, LengthError> {
        Self::with_addresses(writeback.get(), destination.get(), length)
    }

    /// Sets the control word.
    #[must_use]
    pub const fn with_control(mut self, control: DescriptorControl) -> Self {
        self.control = control;
        self
    }

    /// Sets the successor.
    #[must_use]
    pub const fn with_next(mut self, next: Iova) -> Self {
        self.next = next;
        self
    }

    /// The control word.
    #[must_use]
    pub const fn control(&self) -> DescriptorControl {
        self.control
    }

    /// Bytes to move. Reserved bits 31:28 are kept by [`Descriptor::from_words`] and excluded here.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.length & MAX_LEN
    }

    /// Address of the next descriptor.
    #[must_use]
    pub const fn next(&self) -> Iova {
        self.next
    }

    /// Host address to read (H2C) or write (C2H).
    #[must_use]
    pub const fn host_address(&self, direction: Direction) -> Iova {
        match direction {
            Direction::H2c => Iova::new(self.source),
            Direction::C2h => Iova::new(self.destination),
        }
    }

    /// Card address to write (H2C) or read (C2H); meaningless on a stream channel.
    #[must_use]
    pub const fn card_address(&self, direction: Direction) -> CardAddr {
        match direction {
            Direction::H2c => CardAddr::new(self.destination),
            Direction::C2h => CardAddr::new(self.source),
        }
    }

    /// Address to which a C2H stream channel writes its [`StreamWriteback`](super::StreamWriteback): the source field.
    #[must_use]
    pub const fn writeback_address(&self) -> Iova {
        Iova::new(self.source)
    }

    /// Returns the eight words in memory order, each to be stored little-endian.
    #[must_use]
    pub const fn to_words(&self) -> [u32; 8] {
        let (source_low, source_high) = split(self.source);
        let (destination_low, destination_high) = split(self.destination);
        let (next_low, next_high) = split(self.next.get());
        [
            self.control.into_bits(),
            self.length,
            source_low,
            source_high,
            destination_low,
            destination_high,
            next_low,
            next_high,
        ]
    }

    /// Creates a descriptor from eight words in memory order. Nothing is checked, reserved bits are kept: a simulated engine must also see
    /// invalid ones.
    #[must_use]
    pub const fn from_words(words: [u32; 8]) -> Self {
        Self {
            control: DescriptorControl::from_bits(words[0]),
            length: words[1],
            source: join(words[2], words[3]),
            destination: join(words[4], words[5]),
            next: Iova::new(join(words[6], words[7])),
        }
    }
}

/// Returns the number of the `available` descriptors, contiguous in memory from `first`, that the engine may fetch as one block.
///
/// At most [`MAX_BLOCK`], and none beyond the next 4 KiB boundary. At least one if any is available and `first` is aligned to 32.
#[must_use]
pub const fn block_length(first: Iova, available: u32) -> u32 {
    // Masked to 4 KiB, so the truncation is lossless.
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    let in_page = first.get() as u32 & (BLOCK_BOUNDARY - 1);
    let to_boundary = (BLOCK_BOUNDARY - in_page) / SIZE;
    let mut length = available;
    if length > MAX_BLOCK {
        length = MAX_BLOCK;
    }
    if length > to_boundary {
        length = to_boundary;
    }
    length
}

/// Adjacency count for a block that starts at `next` with `available` descriptors contiguous in memory from there, including
/// itself: 0 to 63.
///
/// It belongs in the control word of the descriptor before `next`, or in [`Adjacent`](super::Adjacent) for the first block.
#[must_use]
pub const fn next_adjacent(next: Iova, available: u32) -> u8 {
    // At most MAX_BLOCK - 1.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_BLOCK")]
    let extra = block_length(next, available).saturating_sub(1) as u8;
    extra
}
