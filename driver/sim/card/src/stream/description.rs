//! Stream ports in the card file (section `stream`).

use serde::Deserialize;

/// Logic behind the stream ports of an AXI4-Stream build ([`XdmaDescription::stream`](crate::description::XdmaDescription::stream)).
///
/// Every channel has its own port (PG195). A C2H port without a partner (fewer H2C channels) never delivers data. An H2C port without a
/// partner accepts and discards data.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct StreamDescription {
    /// Logic that the ports are connected to.
    pub logic: StreamLogic,
    /// Capacity between two ports in bytes: a power of two, 4 KiB to 16 MiB. It holds at most as many packets as beats.
    pub fifo_bytes: u32,
    /// The write flush timeout also closes descriptors without data. PG195 speaks of "the write data it already received", so the default
    /// is false: a channel that receives no data stays busy whatever software does.
    pub flush_empty: bool,
    /// Clearing Run ends a C2H descriptor without data, without completing it: the channel halts (`idle_stopped`), and later data belongs
    /// to the next run. Otherwise the channel waits for data for that descriptor whatever software does, and the next packet goes to the
    /// address of the old run.
    pub stop_drops_empty: bool,
    /// Packets that `logic: source` generates.
    pub source: SourceDescription,
}

impl Default for StreamDescription {
    fn default() -> Self {
        Self {
            logic: StreamLogic::Loopback,
            fifo_bytes: 64 * 1024,
            flush_empty: false,
            stop_drops_empty: true,
            source: SourceDescription::default(),
        }
    }
}

/// Logic that stream ports are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StreamLogic {
    /// Connects H2C channel n to C2H channel n through a FIFO.
    Loopback,
    /// Every C2H channel gets generated packets; data of H2C channels is discarded.
    Source,
}

/// Generator of packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SourceDescription {
    /// Seed of lengths and contents.
    pub seed: u64,
    /// Bytes of the shortest packet, at least 1.
    pub shortest: u32,
    /// Bytes of the longest packet, at most 16 MiB.
    pub longest: u32,
    /// Number of packets of each channel; `null`: no limit.
    pub packets: Option<u64>,
    /// Pause after every packet, and before the first one, in nanoseconds.
    pub gap_ns: u64,
    /// Maximum rate in bytes per microsecond; 0: no limit.
    pub bytes_per_us: u32,
    /// A fault: the first packet never ends.
    pub endless_packet: bool,
}

impl Default for SourceDescription {
    fn default() -> Self {
        Self {
            seed: 1,
            shortest: 64,
            longest: 4096,
            packets: None,
            gap_ns: 0,
            bytes_per_us: 0,
            endless_packet: false,
        }
    }
}
