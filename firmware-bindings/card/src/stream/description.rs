//! What the card file says of stream ports (section `stream`).

use serde::Deserialize;

/// What lies behind the stream ports of an AXI4-Stream build ([`XdmaDescription::stream`](crate::description::XdmaDescription::stream)).
///
/// Every channel has a port of its own (PG195). A C2H port without a partner (fewer H2C channels) never delivers anything; an H2C
/// port without one takes and forgets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct StreamDescription {
    /// What the ports are connected to.
    pub logic: StreamLogic,
    /// Room between two ports, in bytes: a power of two, 4 KiB to 16 MiB. It holds at most as many packets as beats.
    pub fifo_bytes: u32,
    /// The write flush timeout closes descriptors that hold no data yet too. PG195 speaks of "the write data it already received",
    /// so the default is false: a channel that nothing ever arrives at stays busy whatever software does.
    pub flush_empty: bool,
    /// Clearing Run ends a C2H descriptor that holds no data yet, without completing it: the channel halts (`idle_stopped`), and what
    /// arrives later is the next run's. Otherwise the channel waits for data for that descriptor, whatever software does, and the
    /// next packet goes where the old run wanted it.
    pub stop_drops_empty: bool,
    /// What `logic: source` generates.
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

/// What stream ports are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StreamLogic {
    /// H2C channel n to C2H channel n, through a FIFO.
    Loopback,
    /// Every C2H channel gets generated packets; what H2C channels bring is taken and forgotten.
    Source,
}

/// Generated packets.
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
    /// Packets of each channel; `null`: without end.
    pub packets: Option<u64>,
    /// Nanoseconds of silence after every packet, and before the first.
    pub gap_ns: u64,
    /// Most bytes per microsecond; 0: as fast as they are taken.
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

impl SourceDescription {
    /// Packet `number` of C2H channel `channel`, as the source generates it.
    #[must_use]
    pub fn packet(&self, channel: u8, number: u64) -> Vec<u8> {
        let mut generator = super::source::Packet::new(self, channel, number);
        let mut bytes = vec![0; usize::try_from(generator.length()).unwrap_or(0)];
        generator.fill(&mut bytes);
        bytes
    }
}
