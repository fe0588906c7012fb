//! Outgoing frames, in reused buffers.

use fpga_firmware::wire::{CRC_LENGTH, Control, EncodeError, MAX_CONTROL_LENGTH, START_HEADER_LENGTH};
use std::collections::VecDeque;

/// Number of queued frames from which data packets wait: back-pressure of the network port.
const MAX_QUEUED_FRAMES: usize = 256;
/// Maximum number of buffers kept for reuse. A scheme without a window has as many packets in flight as the network accepts, and their
/// buffers return together.
const MAX_SPARE_BUFFERS: usize = 8192;

/// Outgoing queue and spare buffers.
#[derive(Debug)]
pub(super) struct FrameQueue {
    queue: VecDeque<Vec<u8>>,
    /// Buffers for any frame.
    spare: Vec<Vec<u8>>,
    /// Buffers for packets without payload: those for any frame would have to be zeroed again for a longer frame.
    control_buffers: Vec<Vec<u8>>,
    /// Length of the longest frame of any kind.
    max_frame_bytes: usize,
    pub(super) sent: u32,
    /// Payload bytes copied to buffers.
    pub(super) payload_bytes: u64,
}

impl FrameQueue {
    /// Creates a queue for packets with at most `packet_size` payload bytes.
    pub(super) fn new(packet_size: usize) -> Self {
        let max_frame_bytes = (START_HEADER_LENGTH + packet_size + CRC_LENGTH).max(MAX_CONTROL_LENGTH);
        let queue = VecDeque::with_capacity(MAX_QUEUED_FRAMES);
        Self {
            queue,
            spare: Vec::new(),
            control_buffers: Vec::new(),
            max_frame_bytes,
            sent: 0,
            payload_bytes: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        while let Some(frame) = self.queue.pop_front() {
            self.recycle(frame);
        }
        self.sent = 0;
    }

    /// Counts a frame that has left without a buffer.
    pub(super) const fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    pub(super) fn has_space(&self) -> bool {
        self.queue.len() < MAX_QUEUED_FRAMES
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.queue.pop_front()
    }

    /// Returns a buffer that fits any frame.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.max_frame_bytes))
    }

    pub(super) fn recycle(&mut self, frame: Vec<u8>) {
        let pool = if frame.capacity() >= self.max_frame_bytes {
            &mut self.spare
        } else {
            &mut self.control_buffers
        };
        if pool.len() < MAX_SPARE_BUFFERS && frame.capacity() >= MAX_CONTROL_LENGTH {
            pool.push(frame);
        }
    }

    /// Queues the frame that `encode` writes into a buffer for `payload` bytes and headers; queues nothing if `encode` fails.
    pub(super) fn send(
        &mut self,
        payload: usize,
        encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    ) -> Result<(), EncodeError> {
        let frame = self.spare();
        let space = (START_HEADER_LENGTH + CRC_LENGTH).saturating_add(payload).max(MAX_CONTROL_LENGTH);
        self.encode(frame, space.min(self.max_frame_bytes), encode)?;
        self.payload_bytes += payload as u64;
        Ok(())
    }

    /// Queues a packet without payload.
    pub(super) fn send_control(&mut self, control: &Control) -> Result<(), EncodeError> {
        let frame = self.control_buffers.pop().unwrap_or_else(|| Vec::with_capacity(MAX_CONTROL_LENGTH));
        self.encode(frame, MAX_CONTROL_LENGTH, |buffer| control.encode(buffer))
    }

    fn encode(
        &mut self,
        mut frame: Vec<u8>,
        space: usize,
        encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    ) -> Result<(), EncodeError> {
        // Zeroes only the bytes that the last use of the buffer truncated.
        frame.resize(space, 0);
        match encode(&mut frame) {
            Ok(length) => {
                frame.truncate(length);
                self.queue.push_back(frame);
                self.note_sent();
                Ok(())
            }
            Err(error) => {
                self.recycle(frame);
                Err(error)
            }
        }
    }
}
