//! Frame that has arrived.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use fpga_driver::{DmaBuffer, SharedSlice};

use crate::blocks::{BLOCK, FrameHeader};
use fpga_frames_wire::Sequence;

/// Queue in which dropped frames return by position, from any thread.
pub(super) type ReturnQueue = Arc<ArrayQueue<(u32, DmaBuffer)>>;

/// Received frame. Dropping it returns its slot to the publisher, from any thread. A frame that is kept occupies a slot of this subscriber.
#[derive(Debug)]
pub struct ReceivedFrame {
    /// `None` only while it is being dropped.
    pub(super) buffer: Option<DmaBuffer>,
    pub(super) return_queue: ReturnQueue,
    pub(super) position: u32,
    pub(super) header: FrameHeader,
}

impl ReceivedFrame {
    /// Returns `length` bytes from byte `offset` after the header. The lengths were checked against each other when the header was read.
    fn part(&self, offset: usize, length: usize) -> SharedSlice<'_> {
        let bytes = self.buffer.as_ref().map(DmaBuffer::memory).unwrap_or_default();
        bytes.slice(offset.saturating_add(BLOCK), length).unwrap_or_default()
    }

    /// Sequence number of the frame.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        self.header.sequence
    }

    /// Publication time by the clock of the publisher's card, in nanoseconds.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.header.time
    }

    /// The value that its publisher computed from the data.
    #[must_use]
    pub fn value(&self) -> SharedSlice<'_> {
        self.part(0, usize::try_from(self.header.value_length).unwrap_or(usize::MAX))
    }

    /// The data. The memory stays mapped for the card, so it is not a slice: copy out of it ([`read`](SharedSlice::read),
    /// [`to_vec`](SharedSlice::to_vec)), iterate over it ([`read_chunks`](SharedSlice::read_chunks)), or write it to a file
    /// ([`WriteVolatile`](fpga_driver::WriteVolatile)).
    #[must_use]
    pub fn data(&self) -> SharedSlice<'_> {
        let value_space = usize::try_from(self.header.max_value_length).unwrap_or(usize::MAX);
        self.part(value_space, usize::try_from(self.header.data_length).unwrap_or(usize::MAX))
    }
}

impl Drop for ReceivedFrame {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // The queue has space for every slot.
            let _ = self.return_queue.push((self.position, buffer));
        }
    }
}
