//! Segment size, found by trial.
//!
//! A transfer that is cut into segments passes three stages, one segment after the other: read by the card, sent, written. Small segments
//! pay the cost of a command too often; large ones make two stages wait for the third. If a command costs o and each stage moves B bytes
//! per second, M bytes in segments of n take T = k (o + n/B) + 2 n/B with k = M/n, rounded up. The minimum is near n = sqrt(M o B / 2). The
//! tuner knows neither o nor B: it measures.

/// Three stages of a segmented transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pipeline {
    /// Cost of a command at the first stage, in picoseconds.
    pub command: u64,
    /// Time of a byte at each stage, in picoseconds.
    pub byte: u64,
    /// Payload bytes of a packet.
    pub packet: u64,
    /// Bytes on the wire of each packet in addition to its payload: the second stage sends them too.
    pub header: u64,
}

impl Pipeline {
    /// 0.5 µs per command, 10 GB/s, packets of 512 bytes with the registry scheme's headers.
    pub const DEFAULT: Self = Self { command: 500_000, byte: 100, packet: 512, header: 60 };

    /// Time in microseconds for `total` bytes in segments of `segment`, computed stage by stage and segment by segment.
    #[must_use]
    pub fn run(&self, total: u64, segment: u64) -> f64 {
        let segment = segment.max(1);
        let mut free = [0_u64; 3];
        let mut left = total;
        while left > 0 {
            let length = left.min(segment);
            left -= length;
            let packets = length.div_ceil(self.packet.max(1));
            let payload = length.saturating_mul(self.byte);
            let times = [
                self.command.saturating_add(payload),
                payload.saturating_add(packets.saturating_mul(self.header).saturating_mul(self.byte)),
                payload,
            ];
            let mut ready = 0;
            for (free, time) in free.iter_mut().zip(times) {
                *free = ready.max(*free).saturating_add(time);
                ready = *free;
            }
        }
        let [.., end] = free;
        micros(end)
    }

    /// Time in microseconds by the closed form, which has no headers.
    #[must_use]
    pub fn closed_form(&self, total: u64, segment: u64) -> f64 {
        let segment = segment.max(1);
        let each = self.command.saturating_add(segment.saturating_mul(self.byte));
        micros(
            total
                .div_ceil(segment)
                .saturating_mul(each)
                .saturating_add(2 * segment.saturating_mul(self.byte)),
        )
    }

    /// Best segment size by the closed form, in bytes, as whole packets.
    #[must_use]
    pub fn best(&self, total: u64) -> u64 {
        let packet = self.packet.max(1);
        let candidates = (1..=total.div_ceil(packet)).map(|packets| packets * packet);
        candidates
            .min_by(|a, b| self.closed_form(total, *a).total_cmp(&self.closed_form(total, *b)))
            .unwrap_or(packet)
    }
}

#[expect(clippy::cast_precision_loss, reason = "picoseconds of a transfer, far below 2^53")]
fn micros(picos: u64) -> f64 {
    picos as f64 / 1e6
}

/// Segment size, in whole packets of `packet` bytes, for transfers of `total` bytes, and the number of sizes tried. `time` measures a
/// transfer. From a segment of 16 KiB the size is doubled, or halved, as long as that is faster; then the midpoints to both neighbours are
/// tried.
pub fn tune(total: u64, packet: u64, mut time: impl FnMut(u64) -> f64) -> (u64, u32) {
    let packet = packet.max(1);
    let whole = total.div_ceil(packet).max(1);
    let mut tried = 0;
    let mut measure = |packets: u64| {
        tried += 1;
        time(packets * packet)
    };
    let mut best = ((16 << 10) / packet).clamp(1, whole);
    let mut fastest = measure(best);
    for up in [true, false] {
        loop {
            let next = if up { best * 2 } else { best / 2 }.clamp(1, whole);
            let found = if next == best { f64::INFINITY } else { measure(next) };
            if found >= fastest {
                break;
            }
            (best, fastest) = (next, found);
        }
    }
    for next in [best + best / 2, best - best / 4] {
        if (1..=whole).contains(&next) && next != best {
            let found = measure(next);
            if found < fastest {
                (best, fastest) = (next, found);
            }
        }
    }
    (best * packet, tried)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 11] = [14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24];

    #[test]
    fn tuner_without_overheads_matches_closed_form() {
        let pipeline = Pipeline { header: 0, ..Pipeline::DEFAULT };
        for size in SIZES.map(|log2| 1 << log2) {
            for segment in (9..=14).map(|log2| 1 << log2) {
                let (run, form) = (pipeline.run(size, segment), pipeline.closed_form(size, segment));
                assert!((run - form).abs() < 1e-6, "{size} in {segment}: {run}, not {form}");
            }
        }
    }

    /// The square root of M o B / 2 is the continuous optimum; whole packets and whole segments come close to it.
    #[test]
    fn tuner_best_segment_is_near_square_root() {
        for total in SIZES.map(|log2| 1_u64 << log2) {
            let root = (micros(total * 1_000_000) * 5000.0 / 2.0).sqrt();
            let best = micros(Pipeline::DEFAULT.best(total) * 1_000_000);
            assert!(best > root / 1.5 && best < root * 1.5, "{total}: {best}, not {root}");
        }
    }

    /// With several costs and rates, and sizes that are not powers of two.
    #[test]
    fn tuner_is_within_tenth_of_best() {
        for command in [100_000, 500_000, 2_000_000] {
            let pipeline = Pipeline { command, ..Pipeline::DEFAULT };
            for total in SIZES.into_iter().flat_map(|log2| [1 << log2, (1 << log2) * 4 / 3]) {
                let (found, tried) = tune(total, 512, |segment| pipeline.run(total, segment));
                let best = pipeline.closed_form(total, pipeline.best(total));
                let share = Pipeline { header: 0, ..pipeline }.run(total, found) / best;
                assert!(
                    share <= 1.10,
                    "{total} bytes, {command} ps: segments of {found} take {share} of the best"
                );
                assert!(tried <= 20, "{total}: {tried}");
            }
        }
    }

    #[test]
    fn tuner_any_input_does_not_panic() {
        for total in [0, 1, 511, 513, 100_000] {
            for packet in [0, 1, 512, 4096] {
                let (found, _) = tune(total, packet, |_| f64::NAN);
                assert!(found > 0);
            }
        }
    }
}
