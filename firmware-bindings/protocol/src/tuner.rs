//! Segment length of a transfer, chosen from the times of the stages that its segments pass (source 001, figure 5).
//!
//! A segment is copied into a transmit window, and then sent packet by packet; a packet is in the receiver's memory when
//! it arrives. The next segment is copied meanwhile. Short segments pay the cost of a command too often; of long ones,
//! the first copy delays everything, because no packet leaves before it ends. With k = M/n segments of n bytes:
//!
//! | Stage | Time of a segment |
//! |---|---|
//! | copy | c = command + n / copy rate + turnaround / windows |
//! | wire | w = (n + headers) / wire rate |
//! | op table | f = (turnaround + c + w + round trip) n / bytes in flight |
//!
//! T = turnaround + max(c + k w, k c + w, (k - 1) f + c + w), with the length of the last segment where it differs. The
//! closed form of the source, T = k (o + n/B) + 2 n/B, is the same for stages of one rate B without headers, turnaround
//! or limit of the packets in flight, but for one n/B: there a third stage writes whole segments.
//!
//! Loss and disorder are not in the formula: a lost packet is retransmitted alone, so its cost depends on the packet size,
//! not on the segment length.

use crate::time::Nanos;

/// Picoseconds of a byte at 1 MB/s.
const PICOS_PER_BYTE: u64 = 1_000_000;
/// Maximum number of equal parts that are tried.
const MAX_PARTS: u64 = 16;

/// Times of the stages between two cards. Rates are in megabytes (10^6 bytes) per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathTiming {
    /// Time of a segment in the copy engine beside its bytes: o of the closed form. Default 200 ns, two descriptors.
    pub command: Nanos,
    /// Rate of the copy engine (default 16,000).
    pub copy_rate: u64,
    /// Rate of the slowest link of the network (default 12500: 100 Gbit/s).
    pub wire_rate: u64,
    /// Bytes of a packet on the wire beside its payload (default 84).
    pub packet_overhead: u32,
    /// Time from a free window until its copy begins, and from its last packet until the host knows that it is free (default
    /// 2.7 us).
    pub turnaround: Nanos,
    /// Number of transmit windows that share the turnaround (default 8).
    pub windows: u32,
    /// Time from a packet's departure to its acknowledgement without load (default 1 us).
    pub round_trip: Nanos,
}

impl Default for PathTiming {
    fn default() -> Self {
        Self {
            command: Nanos::new(200),
            copy_rate: 16_000,
            wire_rate: 12_500,
            packet_overhead: 84,
            turnaround: Nanos::new(2700),
            windows: 8,
            round_trip: Nanos::new(1000),
        }
    }
}

/// Limits of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimits {
    /// Payload bytes of a full packet.
    pub packet: u32,
    /// Maximum segment length in bytes.
    pub longest: u32,
    /// Maximum number of packets in flight.
    pub in_flight: u32,
}

impl PathTiming {
    /// Returns the predicted time, in picoseconds, from submission until the last byte has arrived, for `length` bytes in
    /// segments of `segment` bytes. Saturates.
    #[must_use]
    pub fn transfer_time(&self, length: u64, segment: u64, limits: &SegmentLimits) -> u64 {
        let turnaround = picos(self.turnaround);
        let segment = segment.clamp(1, length.max(1));
        let full = length / segment;
        let rest = length % segment;
        let (more, last) = if rest == 0 { (full.saturating_sub(1), segment) } else { (full, rest) };
        let (copy, wire) = self.stages(segment, limits);
        let (last_copy, last_wire) = self.stages(last, limits);
        let before_last = if more == 0 {
            last_copy
        } else {
            // The slowest stage works without a pause.
            let by_wire = copy.saturating_add(more.saturating_mul(wire));
            let by_copy = more.saturating_mul(copy).saturating_add(wire.max(last_copy));
            let in_flight = u64::from(limits.packet.max(1)).saturating_mul(limits.in_flight.max(1).into());
            let stay =
                turnaround.saturating_add(copy).saturating_add(wire).saturating_add(picos(self.round_trip));
            let flight = u128::from(stay) * u128::from(segment) / u128::from(in_flight);
            let flight = u64::try_from(flight).unwrap_or(u64::MAX);
            let by_flight = more.saturating_mul(flight).saturating_add(last_copy);
            by_wire.max(by_copy).max(by_flight)
        };
        turnaround.saturating_add(before_last).saturating_add(last_wire)
    }

    /// Returns the segment length with the least predicted time: equal parts of the transfer, or a power of two packets; in
    /// whole packets, at most `limits.longest`. Of equal times, the longest segment, which has the fewest events.
    #[must_use]
    pub fn best_segment(&self, length: u64, limits: &SegmentLimits) -> u32 {
        let packet = u64::from(limits.packet.max(1));
        let longest = (u64::from(limits.longest) / packet).max(1);
        let all = length.div_ceil(packet).max(1);
        let powers = (0..32).map(|log2| 1_u64 << log2);
        let parts = (1..=MAX_PARTS).map(|parts| all.div_ceil(parts));
        let candidates = powers.chain(parts).chain([longest]).filter(|packets| *packets <= longest.min(all));
        let best = candidates
            .min_by_key(|packets| {
                (self.transfer_time(length, packets * packet, limits), core::cmp::Reverse(*packets))
            })
            .unwrap_or(1);
        u32::try_from(best * packet).unwrap_or(limits.longest)
    }

    /// Returns the time of a segment of `length` bytes in the copy engine and on the wire.
    fn stages(&self, length: u64, limits: &SegmentLimits) -> (u64, u64) {
        let packet = u64::from(limits.packet.max(1));
        let shared = picos(self.turnaround) / u64::from(self.windows.max(1));
        let copy = picos(self.command).saturating_add(shared).saturating_add(bytes(length, self.copy_rate));
        let headers = length.div_ceil(packet).saturating_mul(self.packet_overhead.into());
        (copy, bytes(length.saturating_add(headers), self.wire_rate))
    }
}

const fn picos(time: Nanos) -> u64 {
    time.get().saturating_mul(1000)
}

/// Returns the time of `length` bytes at `rate`, in picoseconds.
fn bytes(length: u64, rate: u64) -> u64 {
    length.saturating_mul(PICOS_PER_BYTE) / rate.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SegmentLimits = SegmentLimits { packet: 512, longest: 128 << 10, in_flight: 1 << 30 };

    /// Stages of one rate, without anything that the closed form does not have.
    fn source(command: u64) -> PathTiming {
        PathTiming {
            command: Nanos::new(command),
            copy_rate: 10_000,
            wire_rate: 10_000,
            packet_overhead: 0,
            turnaround: Nanos::ZERO,
            windows: 1,
            round_trip: Nanos::ZERO,
        }
    }

    #[test]
    fn tuner_plain_stages_match_closed_form_less_one_stage() {
        let timing = source(500);
        for length in (14..=24).map(|log2| 1_u64 << log2) {
            for segment in (9..=14).map(|log2| 1_u64 << log2) {
                let closed = length / segment * (500_000 + segment * 100) + 2 * segment * 100;
                assert_eq!(timing.transfer_time(length, segment, &LIMITS), closed - segment * 100);
            }
        }
    }

    /// The formula has its minimum at sqrt(M o B).
    #[test]
    fn tuner_best_segment_is_near_square_root() {
        for length in (14..=20).map(|log2| 1_u64 << log2) {
            for command in [100, 500, 2000] {
                let best = u64::from(source(command).best_segment(length, &LIMITS));
                let square = length * command * 10;
                assert!(
                    best * best * 2 >= square && best * best <= square * 2 || best == 128 << 10,
                    "{best}"
                );
            }
        }
    }

    #[test]
    fn tuner_choice_is_whole_packets_within_limits() {
        for length in [0, 1, 511, 513, 100_000, 1 << 40, u64::MAX] {
            for packet in [0, 1, 64, 512, 4096] {
                for longest in [0, 1, 512, 1000, 16 << 10, u32::MAX] {
                    let limits = SegmentLimits { packet, longest, in_flight: 0 };
                    let found = PathTiming::default().best_segment(length, &limits);
                    assert!(found > 0 && found.is_multiple_of(packet.max(1)), "{found}");
                    assert!(found <= longest.max(packet).max(1), "{found}");
                }
            }
        }
    }

    #[test]
    fn tuner_slow_wire_takes_short_segments() {
        let slow = PathTiming { wire_rate: 1250, ..PathTiming::default() };
        let [slow, fast] = [slow, PathTiming::default()].map(|timing| timing.best_segment(64 << 10, &LIMITS));
        assert!(slow < fast, "{slow} on a slow wire, {fast} on a fast one");
    }
}
