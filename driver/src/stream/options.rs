//! Options of the buffers of a C2H stream.

use fpga_ring::ring::MAX_ENTRIES;

use crate::channel::{ChannelOptions, RunMode};
use crate::error::ResourceError;

/// Alignment of buffer sizes: PG195 requires that buffers of C2H stream descriptors are multiples of it.
const GRANULE: usize = 64;
const MAX_BUFFER_SIZE: usize = 64 << 20;

/// Options of a C2H stream's ring of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct C2hStreamOptions {
    /// Number of buffers: a power of two, 2 to 65536. Default 256.
    pub buffers: u32,
    /// Size of each buffer in bytes: a multiple of 64. Default 4096. A packet occupies as many buffers as it needs, at least one. All
    /// buffers together must hold the longest packet. Descriptors of larger buffers are fetched one by one, because some IP builds
    /// mishandle blocks of them.
    pub buffer_size: usize,
    /// Way to keep the ring running. Default: credit mode, in which buffers return to a running channel. Batch mode works on every card,
    /// but the stream stalls between two batches.
    pub run_mode: RunMode,
}

impl Default for C2hStreamOptions {
    fn default() -> Self {
        Self { buffers: 256, buffer_size: 4096, run_mode: RunMode::Credit }
    }
}

impl C2hStreamOptions {
    /// Returns the options of the underlying channel: one descriptor per buffer, each of which is reported.
    pub(crate) fn channel(&self) -> Result<ChannelOptions, ResourceError> {
        let (buffers, size) = (self.buffers, self.buffer_size);
        let fits = buffers.is_power_of_two() && (2..=MAX_ENTRIES).contains(&buffers);
        if !fits || size == 0 || size > MAX_BUFFER_SIZE || !size.is_multiple_of(GRANULE) {
            return Err(ResourceError::StreamBuffers { buffers, size });
        }
        Ok(ChannelOptions::default()
            .descriptors(buffers)
            .transfers(buffers)
            .run_mode(self.run_mode)
            .report_each(true))
    }
}

fpga_registers::setters! {
    impl C2hStreamOptions {
        /// Sets the number of buffers.
        buffers: u32;
        /// Sets the size of each buffer in bytes.
        buffer_size: usize;
        /// Sets the way to keep the ring running.
        run_mode: RunMode;
    }
}
