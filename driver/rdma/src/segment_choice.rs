//! Segment length of each transfer that the host sends.

use fpga_firmware::NodeId;
use fpga_firmware::wire::{CRC_LENGTH, DATA_HEADER_LENGTH};
use fpga_pci::CardTiming;
use fpga_protocol::Nanos;
use fpga_protocol::sender::SenderConfig;
use fpga_protocol::tuner::{PathTiming, SegmentLimits};

use super::Endpoint;
use super::options::EndpointOptions;
use fpga_driver::NiInfo;

/// Maximum segment length in bytes for a node whose mask is not known: what the masks of all usual builds cover.
const USUAL_MASK_BYTES: u32 = 16 << 10;
/// Bytes of an Ethernet frame beside its content: preamble, frame check sequence, gap (IEEE 802.3, 3.2 and 4.4.2).
const FRAME_OVERHEAD: u32 = 24;
/// Two polls of the host, of about 50 ns each.
const POLLS_NS: u64 = 100;

/// Rule by which segment lengths are chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentChoice {
    /// `None`: the configured length.
    timing: Option<PathTiming>,
    limits: SegmentLimits,
    threshold: u32,
}

impl SegmentChoice {
    pub(super) fn new(
        options: &EndpointOptions,
        info: &NiInfo,
        config: &SenderConfig,
        card: Option<CardTiming>,
    ) -> Self {
        let known = || card.map_or_else(PathTiming::default, |card| path_timing(&card, info));
        let timing = options.segment_size.is_none().then(known);
        let limits = SegmentLimits {
            packet: config.packet_size(),
            longest: config.segment_size,
            in_flight: config.packets_per_destination(),
        };
        Self { timing, limits, threshold: config.big_threshold }
    }

    /// Returns the segment length of a transfer of `length` bytes to a node with a mask of `mask_bits`, if known.
    pub(super) fn of(&self, length: u64, mask_bits: Option<u16>) -> u32 {
        let Some(timing) = self.timing.filter(|_| length > self.threshold.into()) else {
            return self.limits.longest;
        };
        let mask =
            mask_bits.map_or(USUAL_MASK_BYTES, |bits| u32::from(bits).saturating_mul(self.limits.packet));
        // At least a packet, whatever a node reports.
        let longest = self.limits.longest.min(mask.max(self.limits.packet));
        timing.best_segment(length, &SegmentLimits { longest, ..self.limits }).min(self.limits.longest)
    }
}

impl Endpoint {
    /// Returns the maximum size of a segment of this endpoint's transfers in bytes (of a message, if the card sends). At the receiving card
    /// each segment makes two events, and a transfer one more.
    #[must_use]
    pub fn segment_size(&self) -> u32 {
        self.sender.segment_size()
    }

    /// Returns the segment length of a transfer of `length` bytes to `node`
    /// ([`EndpointOptions::segment_size`]); of a message, if the card sends and messages are shorter.
    #[must_use]
    pub fn segment_length(&self, node: NodeId, length: u64) -> u32 {
        let longest = u32::try_from(length).unwrap_or(u32::MAX).max(1);
        let most = self.sender.segment_size();
        let segment = match self.sender.host() {
            Some(_) => self.sender.segment_of(length, self.mask_of(node)).min(most),
            None => most,
        };
        segment.min(longest)
    }
}

/// Times of the path between two cards like this one, without the network between them.
fn path_timing(card: &CardTiming, info: &NiInfo) -> PathTiming {
    let (read, write) = (u64::from(card.read_latency_ns), u64::from(card.write_latency_ns));
    let memory = u64::from(card.memory_latency_ns);
    let mut timing = PathTiming::default();
    // Two descriptors: the payload, and the commit word.
    timing.command = Nanos::new(2 * u64::from(card.copy_descriptor_ns));
    // A copy reads card memory; the window that it writes is memory of the NI.
    timing.copy_rate = card.copy_megabytes_per_second.min(card.memory_megabytes_per_second);
    timing.wire_rate = card.network_megabits_per_second / 8;
    let headers = u32::try_from(DATA_HEADER_LENGTH + CRC_LENGTH).unwrap_or(0);
    timing.packet_overhead = headers + FRAME_OVERHEAD;
    // Doorbell, descriptor fetch, read of the header block, write-back; doorbell of the chain, its descriptor, first data; event.
    timing.turnaround = Nanos::new(4 * write + 2 * read + 3 * memory + POLLS_NS);
    timing.windows = info.windows.count;
    timing.round_trip = Nanos::new(2 * u64::from(card.network_latency_ns));
    timing
}
