//! Frame that is being filled.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use fpga_driver::{DmaBuffer, SharedSlice};
use fpga_registers::quantity;

use crate::blocks::BLOCK;

/// Memory of a frame's bytes.
#[derive(Debug)]
pub(super) enum FrameMemory {
    /// In a slot of the pool, from which the card fetches them.
    Slot(usize, DmaBuffer),
    /// In ordinary memory, until a slot is free.
    Heap(Vec<u8>),
}

impl FrameMemory {
    pub(super) fn bytes(&mut self) -> SharedSlice<'_> {
        match self {
            Self::Slot(_, buffer) => buffer.memory(),
            Self::Heap(bytes) => SharedSlice::from_mut(bytes),
        }
    }
}

/// Queue in which the memory of dropped frames returns, from any thread.
pub(super) type ReturnQueue = Arc<ArrayQueue<FrameMemory>>;

/// More bytes than a frame has space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} of {length} does not fit into a frame of this stream, which has space for {room}; open the publisher with larger frames",
    length = quantity(*length, "byte"),
    room = quantity(*room, "byte"),
)]
pub struct TooLong {
    /// Data or value.
    pub what: &'static str,
    /// Length in bytes.
    pub length: usize,
    /// Maximum length in bytes.
    pub room: usize,
}

/// Frame that its user fills and then publishes. If it is dropped, its memory returns to the pool, from any thread. The memory holds the
/// content of an earlier frame.
#[derive(Debug)]
#[must_use = "a frame that is dropped is not published"]
pub struct Frame {
    /// `None` only while it is being dropped or published.
    pub(super) memory: Option<FrameMemory>,
    pub(super) return_queue: ReturnQueue,
    pub(super) value_length: usize,
    pub(super) max_value_length: usize,
    /// Maximum length of a frame's data in this stream. Slots are rounded up and may be longer.
    pub(super) max_data_length: usize,
    pub(super) length: usize,
}

impl Frame {
    /// The memory of the value and of the data.
    fn parts(&mut self) -> (SharedSlice<'_>, SharedSlice<'_>) {
        let (max_value_length, max_data_length) = (self.max_value_length, self.max_data_length);
        let bytes = self.memory.as_mut().map(FrameMemory::bytes).unwrap_or_default();
        let data = bytes.len().saturating_sub(BLOCK + max_value_length).min(max_data_length);
        let part = |offset, length| bytes.slice(offset, length).unwrap_or_default();
        (part(BLOCK, max_value_length), part(BLOCK + max_value_length, data))
    }

    /// The whole memory for the frame's data; [`set_len`](Self::set_len) sets the number of bytes that count.
    ///
    /// The memory stays mapped for the card, so it is not a slice: write into it, let [`write_chunks`](SharedSlice::write_chunks) fill it,
    /// or read a file into it ([`ReadVolatile`](fpga_driver::ReadVolatile)).
    #[must_use]
    pub fn data_mut(&mut self) -> SharedSlice<'_> {
        self.parts().1
    }

    /// The data, as long as the length that was set.
    #[must_use]
    pub fn data(&mut self) -> SharedSlice<'_> {
        let length = self.length;
        self.parts().1.slice(0, length).unwrap_or_default()
    }

    /// Sets the length of the data in bytes. The default is the maximum length.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn set_len(&mut self, length: usize) -> Result<(), TooLong> {
        let room = self.parts().1.len();
        if length > room {
            return Err(TooLong { what: "data", length, room });
        }
        self.length = length;
        Ok(())
    }

    /// Copies `data` into the frame and sets the length to its length.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn fill(&mut self, data: &[u8]) -> Result<(), TooLong> {
        self.set_len(data.len())?;
        let whole = self.data().write(0, data);
        debug_assert!(whole.is_ok(), "the length was just set");
        Ok(())
    }

    /// Sets the value in front of the data, such as a digest of the data or a time. Without it the value is empty.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn set_value(&mut self, value: &[u8]) -> Result<(), TooLong> {
        let (length, place) = (value.len(), self.parts().0);
        let room = place.len();
        place.write(0, value).map_err(|_| TooLong { what: "the value", length, room })?;
        self.value_length = length;
        Ok(())
    }

    /// Whether the frame is in ordinary memory, because all slots were in flight.
    #[must_use]
    pub const fn is_on_heap(&self) -> bool {
        matches!(self.memory, Some(FrameMemory::Heap(_)))
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // The queue has space for every frame that was ever taken.
            let _ = self.return_queue.push(memory);
        }
    }
}
