//! Counters of the card, and the access log.

use fpga_protocol::time::Nanos;
use std::collections::VecDeque;

/// Interrupt inputs for user logic, `usr_irq_req` (PG195: up to 16).
pub const USER_INTERRUPTS: u8 = 16;

/// Counts since the card was made or [`crate::Card::clear_counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardCounters {
    /// MMIO read requests on any BAR; a block access counts once per 8 bytes.
    pub mmio_reads: u64,
    /// MMIO write requests on any BAR; a block access counts once per 8 bytes.
    pub mmio_writes: u64,
    /// Configuration-space reads.
    pub config_reads: u64,
    /// Configuration-space writes.
    pub config_writes: u64,
    /// Messages sent (MSI-X, MSI) and rises of the legacy line.
    pub interrupts: u64,
    /// Interrupts requested by each line of `usr_irq_req`: rises of the line while it is enabled.
    pub user_interrupts: [u64; USER_INTERRUPTS as usize],
    /// Descriptor fetches (read requests, not descriptors).
    pub descriptor_fetches: u64,
    /// XDMA descriptors finished.
    pub descriptors: u64,
    /// Bytes read from host memory by H2C channels, descriptors excluded.
    pub h2c_bytes: u64,
    /// Bytes written to host memory by C2H channels, write-backs excluded.
    pub c2h_bytes: u64,
    /// Poll-mode write-backs.
    pub writebacks: u64,
    /// Metadata write-backs of C2H stream channels.
    pub stream_writebacks: u64,
    /// Packets that stream ports accepted from H2C channels.
    pub packets_taken: u64,
    /// Packets that stream ports delivered to C2H channels.
    pub packets_given: u64,
    /// Number of times that the port behind an H2C stream channel deasserted TREADY, once per stall.
    pub stream_holds: u64,
    /// H2C stream descriptors that ended in a partial beat in the middle of a packet (PG195, `invalid_length`). Logic that counts beats
    /// instead of bytes (TKEEP) would see a hole there.
    pub partial_beats: u64,
    /// C2H stream descriptors whose length is not a multiple of 64 bytes, as PG195 ("Length Granularity") requires.
    pub odd_stream_buffers: u64,
    /// CDMA transfers or descriptors finished.
    pub cdma_descriptors: u64,
    /// Bytes copied by CDMA.
    pub cdma_bytes: u64,
    /// Frames sent to the network.
    pub frames_sent: u64,
    /// Frames received from the network.
    pub frames_received: u64,
    /// Payload bytes that the NI copied to buffers of frames; those of other frames went to the network from their windows.
    pub buffered_payload_bytes: u64,
    /// Payload bytes that the NI wrote to memory.
    pub received_payload_bytes: u64,
    /// Events written into the event ring.
    pub events: u64,
}

/// One access of software to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// Card time.
    pub time: Nanos,
    /// Address space of the access.
    pub target: AccessTarget,
    /// Byte offset.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// The access was a write.
    pub write: bool,
    /// The first (up to 8) bytes read or written, little-endian.
    pub value: u64,
}

/// Address space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessTarget {
    /// PCI configuration space.
    Config,
    /// The BAR with this index.
    Bar(u8),
    /// The expansion ROM.
    Rom,
}

/// Destination of recorded accesses.
#[non_exhaustive]
pub enum AccessLog {
    /// No recording.
    Off,
    /// The last `capacity` accesses.
    Bounded {
        /// Entries kept.
        capacity: usize,
        /// The entries, oldest first.
        entries: VecDeque<Access>,
    },
    /// Each access is passed to a closure.
    Sink(Box<dyn FnMut(&Access) + Send>),
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("Off"),
            Self::Bounded { capacity, entries } => f
                .debug_struct("Bounded")
                .field("capacity", capacity)
                .field("entries", &entries.len())
                .finish(),
            Self::Sink(_) => f.write_str("Sink"),
        }
    }
}

impl AccessLog {
    /// Keeps the last `capacity` accesses.
    #[must_use]
    pub fn bounded(capacity: usize) -> Self {
        Self::Bounded { capacity, entries: VecDeque::with_capacity(capacity) }
    }

    pub(crate) fn record(&mut self, access: &Access) {
        match self {
            Self::Off => {}
            Self::Bounded { capacity, entries } => {
                if entries.len() >= *capacity {
                    entries.pop_front();
                }
                if *capacity > 0 {
                    entries.push_back(*access);
                }
            }
            Self::Sink(sink) => sink(access),
        }
    }
}

/// First bytes, up to eight, as a little-endian number.
pub(crate) fn leading_value(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
