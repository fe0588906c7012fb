//! The buffers of a C2H stream.

use fpga_ring::ring::MAX_ENTRIES;

use crate::card::Card;
use crate::channel::{ChannelOptions, RunMode};
use crate::error::ResourceError;

/// PG195: buffers of C2H stream descriptors should be multiples of this.
const GRANULE: usize = 64;
const MAX_BUFFER_SIZE: usize = 64 << 20;

/// Shape of a C2H stream's ring of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct C2hStreamOptions {
    /// Buffers: a power of two, 2 to 65536. Default 256.
    pub buffers: u32,
    /// Bytes of each: a multiple of 64. A packet takes as many buffers as it needs, a small one takes a whole one. All together
    /// they must hold the longest packet. Default 4096; of larger ones descriptors are fetched one by one, because some IP builds
    /// mishandle blocks of those.
    pub buffer_size: usize,
    /// How the ring is kept running. Default: the credit ring, where buffers go back to a channel that is running. Stop runs work
    /// on every card; the stream stands still between two of them.
    pub run_mode: RunMode,
}

impl Default for C2hStreamOptions {
    fn default() -> Self {
        Self { buffers: 256, buffer_size: 4096, run_mode: RunMode::Credit }
    }
}

impl C2hStreamOptions {
    /// So many buffers.
    #[must_use]
    pub const fn buffers(mut self, buffers: u32) -> Self {
        self.buffers = buffers;
        self
    }

    /// Buffers of so many bytes.
    #[must_use]
    pub const fn buffer_size(mut self, bytes: usize) -> Self {
        self.buffer_size = bytes;
        self
    }

    /// Keeps the ring running this way.
    #[must_use]
    pub const fn run_mode(mut self, run_mode: RunMode) -> Self {
        self.run_mode = run_mode;
        self
    }

    /// What the channel below has to be: a descriptor for every buffer, each of which reports.
    pub(crate) fn channel(&self, card: &Card) -> Result<ChannelOptions, ResourceError> {
        let (buffers, size) = (self.buffers, self.buffer_size);
        let fits = buffers.is_power_of_two() && (2..=MAX_ENTRIES).contains(&buffers);
        if !fits || size == 0 || size > MAX_BUFFER_SIZE || !size.is_multiple_of(GRANULE) {
            let card = card.shared.name.clone();
            return Err(ResourceError::StreamBuffers { card, buffers, size });
        }
        Ok(ChannelOptions::default()
            .descriptors(buffers)
            .transfers(buffers)
            .run_mode(self.run_mode)
            .report_each(true))
    }
}
