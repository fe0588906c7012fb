//! Frame sizes and the layout of frames in card memory.

use fpga_driver::{CardAddr, CardRange};
use fpga_registers::quantity;

use crate::blocks::BLOCK_BYTES;

/// Alignment of frames in bytes: the requirement of the widest copy engine without realignment (PG034).
const ALIGNMENT: u64 = 64;

/// Impossible sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// Frames without data.
    #[error("frames of 0 bytes of data: give the maximum number of bytes of a frame")]
    NoData,
    /// No slots.
    #[error(
        "no slots: a stream needs at least one, and one more for every frame that is filled while others are in flight"
    )]
    NoSlots,
    /// The number of slots of a subscriber is not a power of two up to the maximum; positions are counted modulo 2^32.
    #[error(
        "{slots}: the number of slots of a subscriber must be a power of two, up to {}",
        crate::MAX_SLOTS, slots = quantity(*slots, "slot"))]
    Slots {
        /// Requested number of slots.
        slots: u32,
    },
    /// More than the available card memory.
    #[error(
        "{slots} of {slot} each ({data} of data) exceed the {memory} of card memory that can be used; use fewer slots or smaller frames",
        slot = quantity(*slot, "byte"),
        data = quantity(*data, "byte"),
        memory = quantity(*memory, "byte"),
        slots = quantity(*slots, "slot"),
    )]
    Memory {
        /// Number of slots.
        slots: u32,
        /// Length of a slot in bytes.
        slot: u64,
        /// Length of the data in a slot in bytes.
        data: u64,
        /// Usable card memory in bytes.
        memory: u64,
    },
    /// Frames longer than any address range, whatever the number of slots.
    #[error(
        "frames of {data} of data and {value} of value exceed the address range",
        data = quantity(*data, "byte"),
        value = quantity(*value, "byte"),
    )]
    FrameTooLong {
        /// Length of the data in bytes.
        data: u64,
        /// Length of the value in bytes.
        value: u32,
    },
}

/// Maximum sizes of a frame, the same for all frames of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    max_value_length: u32,
    max_data_length: u64,
    stride: u64,
}

impl Geometry {
    /// Creates the geometry of frames of up to `max_data_length` bytes of data, with a value of up to `max_value_length` bytes in front.
    ///
    /// # Errors
    /// [`GeometryError::NoData`], [`GeometryError::FrameTooLong`].
    pub fn new(max_value_length: u32, max_data_length: u64) -> Result<Self, GeometryError> {
        if max_data_length == 0 {
            return Err(GeometryError::NoData);
        }
        let whole = max_data_length.checked_add(BLOCK_BYTES + u64::from(max_value_length));
        let stride = whole.and_then(|whole| whole.checked_next_multiple_of(ALIGNMENT));
        // Host memory holds a whole frame.
        let stride = stride.filter(|stride| isize::try_from(*stride).is_ok());
        let stride =
            stride.ok_or(GeometryError::FrameTooLong { data: max_data_length, value: max_value_length })?;
        Ok(Self { max_value_length, max_data_length, stride })
    }

    /// Maximum length of a value in bytes.
    #[must_use]
    pub const fn max_value_length(&self) -> u32 {
        self.max_value_length
    }

    /// Maximum length of the data in bytes.
    #[must_use]
    pub const fn max_data_length(&self) -> u64 {
        self.max_data_length
    }

    /// Bytes from one slot to the next, header and value included.
    #[must_use]
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// Length in bytes of a whole frame with `data` bytes of data.
    #[must_use]
    pub const fn frame_length(&self, data: u64) -> u64 {
        // At most the stride, which was checked.
        self.data_offset().saturating_add(data)
    }

    /// Offset of the data in a frame, in bytes.
    #[must_use]
    pub const fn data_offset(&self) -> u64 {
        BLOCK_BYTES + self.max_value_length as u64
    }

    /// Places `slots` slots at the start of `memory`, and `blocks` blocks of 64 bytes behind them.
    ///
    /// # Errors
    /// [`GeometryError::NoSlots`], [`GeometryError::Memory`].
    pub fn layout(&self, slots: u32, blocks: u32, memory: CardRange) -> Result<Layout, GeometryError> {
        if slots == 0 {
            return Err(GeometryError::NoSlots);
        }
        let lost = memory.start.get().wrapping_neg() % ALIGNMENT;
        let frames = self.stride.checked_mul(slots.into());
        let whole = frames.and_then(|bytes| bytes.checked_add(u64::from(blocks) * BLOCK_BYTES));
        let fits = whole.filter(|whole| whole.checked_add(lost).is_some_and(|end| end <= memory.length));
        let (Some(frames), Some(length), Some(start)) = (frames, fits, memory.start.checked_add(lost)) else {
            let (slot, data) = (self.stride, self.max_data_length);
            return Err(GeometryError::Memory { slots, slot, data, memory: memory.length });
        };
        Ok(Layout { start, stride: self.stride, frames, length })
    }
}

/// Layout of slots and blocks in card memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    start: CardAddr,
    stride: u64,
    frames: u64,
    length: u64,
}

impl Layout {
    /// Whole range of the layout.
    #[must_use]
    pub const fn range(&self) -> CardRange {
        CardRange::new(self.start, self.length)
    }

    /// Offset of slot `slot` from the start.
    #[must_use]
    pub const fn slot_offset(&self, slot: u32) -> u64 {
        // The slots were checked to fit when the layout was made; another number yields an address that is refused.
        self.stride.saturating_mul(slot as u64)
    }

    /// Offset of block `block` from the start.
    #[must_use]
    pub const fn block_offset(&self, block: u32) -> u64 {
        self.frames.saturating_add(BLOCK_BYTES * block as u64)
    }

    /// Card address of an offset.
    #[must_use]
    pub const fn address(&self, offset: u64) -> CardAddr {
        CardAddr::new(self.start.get().saturating_add(offset))
    }

    /// Returns the slot that begins at `address`.
    #[must_use]
    pub fn slot_at(&self, address: CardAddr) -> Option<u32> {
        let offset = address.get().checked_sub(self.start.get()).filter(|offset| *offset < self.frames)?;
        if offset % self.stride != 0 {
            return None;
        }
        u32::try_from(offset / self.stride).ok()
    }

    /// Returns the block that begins at `address`.
    #[must_use]
    pub fn block_at(&self, address: CardAddr) -> Option<u32> {
        let offset = address.get().checked_sub(self.start.get())?.checked_sub(self.frames)?;
        if offset % BLOCK_BYTES != 0 || offset >= self.length - self.frames {
            return None;
        }
        u32::try_from(offset / BLOCK_BYTES).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn geometry_invalid_sizes_are_refused() {
        assert_eq!(Geometry::new(0, 0), Err(GeometryError::NoData));
        for data in [u64::MAX, u64::MAX - 200, i64::MAX as u64] {
            assert!(matches!(Geometry::new(64, data), Err(GeometryError::FrameTooLong { .. })), "{data}");
        }
        let geometry = Geometry::new(8, 100).unwrap();
        assert_eq!((geometry.stride(), geometry.frame_length(3)), (192, 75));
        let memory = CardRange::new(CardAddr::new(0), 1000);
        assert_eq!(geometry.layout(0, 1, memory), Err(GeometryError::NoSlots));
        assert!(geometry.layout(4, 1, memory).is_ok());
        assert!(matches!(geometry.layout(5, 1, memory), Err(GeometryError::Memory { memory: 1000, .. })));
        assert!(matches!(geometry.layout(u32::MAX, 1, memory), Err(GeometryError::Memory { .. })));
    }

    proptest! {
        #[test]
        fn geometry_slots_and_blocks_are_disjoint_and_inside(
            start in 0..1_000_u64, value in 0..200_u32, data in 1..5_000_u64, slots in 1..20_u32, blocks in 0..9_u32,
        ) {
            let memory = CardRange::new(CardAddr::new(start), 1 << 20);
            let geometry = Geometry::new(value, data).unwrap();
            let layout = geometry.layout(slots, blocks, memory).unwrap();
            let mut ranges = Vec::new();
            for slot in 0..slots {
                let at = layout.address(layout.slot_offset(slot));
                prop_assert_eq!((layout.slot_at(at), layout.block_at(at)), (Some(slot), None));
                prop_assert_eq!(at.get() % ALIGNMENT, 0);
                ranges.push(CardRange::new(at, geometry.frame_length(data)));
            }
            for block in 0..blocks {
                let at = layout.address(layout.block_offset(block));
                prop_assert_eq!((layout.slot_at(at), layout.block_at(at)), (None, Some(block)));
                ranges.push(CardRange::new(at, BLOCK_BYTES));
            }
            for (number, range) in ranges.iter().enumerate() {
                prop_assert!(memory.contains(range.start, range.length));
                prop_assert!(layout.range().contains(range.start, range.length));
                prop_assert!(ranges[number + 1..].iter().all(|other| !range.overlaps(*other)));
            }
            prop_assert_eq!(layout.block_at(layout.address(layout.block_offset(blocks))), None);
        }
    }
}
