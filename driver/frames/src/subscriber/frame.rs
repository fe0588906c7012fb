//! A frame that has arrived.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use fpga_driver::DmaBuffer;

use crate::cells::{BLOCK, FrameHeader};
use crate::sequence::Sequence;

/// Frames' way back, by position: from whichever thread they are dropped in.
pub(super) type Home = Arc<ArrayQueue<(u32, DmaBuffer)>>;

/// A frame, to be read. Dropping it gives its slot back to the publisher, from any thread; held, it is room that the publisher does
/// not have.
#[derive(Debug)]
pub struct ReceivedFrame {
    /// `None` only while it is being dropped.
    pub(super) buffer: Option<DmaBuffer>,
    pub(super) home: Home,
    pub(super) position: u32,
    pub(super) header: FrameHeader,
}

impl ReceivedFrame {
    fn parts(&self) -> (&[u8], &[u8]) {
        let bytes = self.buffer.as_ref().map(DmaBuffer::as_slice).unwrap_or_default();
        let rest = bytes.get(BLOCK..).unwrap_or_default();
        // Lengths were checked against each other when the head was read.
        let room = usize::try_from(self.header.value_room).unwrap_or(usize::MAX);
        rest.split_at_checked(room).unwrap_or_default()
    }

    /// Its number.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        self.header.sequence
    }

    /// When it was published, by the clock of the publisher's card, in nanoseconds.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.header.time
    }

    /// What its publisher made of the data.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let length = usize::try_from(self.header.value_length).unwrap_or(usize::MAX);
        self.parts().0.get(..length).unwrap_or_default()
    }

    /// The data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.parts().1
    }
}

impl Drop for ReceivedFrame {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            // There is a place for every slot.
            let _ = self.home.push((self.position, buffer));
        }
    }
}
