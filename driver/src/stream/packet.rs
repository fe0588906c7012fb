//! Received packet, in the buffers to which the card wrote it.

use fpga_pci::{MemoryError, SharedSlice};
use fpga_registers::invariant::DebugExpect as _;
use fpga_ring::ring::{PacketSpan, Packets};

/// Packet borrowed from its stream. Its bytes are in one or more of the stream's buffers, which the next call to the stream posts again.
#[derive(Debug)]
pub struct Packet<'a> {
    memory: SharedSlice<'a>,
    packets: &'a Packets,
    span: PacketSpan,
    buffers: u64,
    size: usize,
}

impl<'a> Packet<'a> {
    pub(super) const fn new(
        memory: SharedSlice<'a>,
        packets: &'a Packets,
        span: PacketSpan,
        buffers: u32,
        size: usize,
    ) -> Self {
        Self { memory, packets, span, buffers: buffers as u64, size }
    }

    /// Returns the length in bytes, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a packet is never empty")]
    pub fn len(&self) -> usize {
        // At most the total size of the buffers, which are memory of this process.
        usize::try_from(self.span.bytes).unwrap_or(usize::MAX)
    }

    /// Returns the bytes in order, one part per filled buffer.
    pub fn parts(&self) -> impl Iterator<Item = SharedSlice<'a>> + use<'a> {
        let (memory, packets, buffers, size) = (self.memory, self.packets, self.buffers, self.size);
        let first = self.span.first;
        (first..first + u64::from(self.span.descriptors)).map(move |count| {
            // A buffer's number is below 65536, and its length was checked against its size.
            let at = usize::try_from(count % buffers).unwrap_or(0) * size;
            memory
                .slice(at, packets.length(count) as usize)
                .debug_expect("a buffer in the ring's memory")
                .unwrap_or_default()
        })
    }

    /// Copies bytes from `offset`, as many as `into` holds.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] if the range ends after the end of the packet; nothing is copied then.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let length = into.len();
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            return Err(MemoryError::OutOfRange { offset, length, size: self.len() });
        }
        let (mut skip, mut copied, mut rest) = (offset, 0, into);
        for part in self.parts() {
            let from = skip.min(part.len());
            skip -= from;
            let count = (part.len() - from).min(rest.len());
            let Some((now, later)) = rest.split_at_mut_checked(count) else { break };
            part.read(from, now)?;
            copied += count;
            rest = later;
        }
        if copied == length {
            Ok(())
        } else {
            Err(MemoryError::OutOfRange { offset, length, size: offset + copied })
        }
    }

    /// Returns a copy of all bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        let whole = self.read(0, &mut bytes);
        debug_assert!(whole.is_ok(), "a packet's own length");
        bytes
    }
}
