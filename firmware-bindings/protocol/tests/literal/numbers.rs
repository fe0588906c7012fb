//! Op numbers, and round trip samples from answers.

use fpga_firmware::ids::OpNumber;
use fpga_protocol::Nanos;
use fpga_protocol::op_table::{OpTable, OpTableConfig};

/// SPECIMEN: a number is free when it is acknowledged, and is reused for the next packet [E1-13].
#[derive(Default)]
struct LiteralOps(Vec<Option<char>>);

impl LiteralOps {
    fn take(&mut self, packet: char) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[at] = Some(packet);
        at
    }

    fn acknowledge(&mut self, number: usize) -> Option<char> {
        self.0[number].take()
    }
}

#[test]
fn e1_13_literal_number_reused_at_once_acknowledges_other_packet() {
    // Packet A was sent twice and is answered twice. Between the answers B gets its number, and is lost.
    let mut literal = LiteralOps::default();
    let of_a = literal.take('A');
    assert_eq!(literal.acknowledge(of_a), Some('A'));
    literal.take('B');
    assert_eq!(literal.acknowledge(of_a), Some('B'), "B counts as received and is nowhere");

    // One slot and the smallest number of generations: a late answer never matches the packet in the table.
    let now = Nanos::ZERO;
    let mut config = OpTableConfig::default();
    (config.entries, config.generation_bits) = (1, 1);
    let mut table = OpTable::new(config).unwrap();
    let take = |table: &mut OpTable, packet| table.take(now, 0, packet, Nanos::MAX);
    let of_a = take(&mut table, 0).unwrap();
    assert_eq!(table.acknowledge(now, of_a).map(|op| op.packet), Some(0));
    let of_b = take(&mut table, 1).unwrap();
    assert_eq!(table.acknowledge(now, of_a), None, "stale");
    assert_eq!(table.acknowledge(now, of_b).map(|op| op.packet), Some(1));
    // No number is free until A's and B's answers have expired.
    let third: Option<OpNumber> = take(&mut table, 2);
    assert_eq!(third, None);
}

/// A path with answer times of 90 to 110 us.
struct Path(u64);

impl Path {
    fn trip(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        90 + (self.0 >> 33) % 21
    }
}

/// A sender's estimate of a path.
#[derive(Clone, Copy, Debug)]
struct EstimatedPath {
    /// Minimum of its means of 64 samples, in microseconds.
    mean: u64,
    /// Minimum of its samples.
    sample: u64,
}

/// A thousand packets, one after the other, each retransmitted whenever its wait reaches T + d of the last 64 samples; nothing is lost.
/// `echo`: the answer contains the try count and is compared with that try's send time. Literally, a retransmission overwrites the send
/// time, and every answer counts as one to the latest copy.
fn samples(echo: bool) -> EstimatedPath {
    let mut path = Path(11);
    let mut last = vec![100u64; 64];
    let mut least = EstimatedPath { mean: u64::MAX, sample: u64::MAX };
    for n in 0..1000 {
        let mean = last.iter().sum::<u64>() / 64;
        let variance = last.iter().map(|sample| sample.abs_diff(mean).pow(2)).sum::<u64>() / 64;
        let wait = mean + variance.isqrt();
        // The first copy is answered first: all others leave later and take the same time.
        let answered = path.trip();
        let resends = (answered - 1) / wait.max(1);
        let sample = if echo { answered } else { answered - resends * wait };
        last[n % 64] = sample;
        least = EstimatedPath { mean: least.mean.min(mean), sample: least.sample.min(sample) };
    }
    least
}

#[test]
fn e2_2_literal_overwritten_send_time_gives_too_short_round_trip() {
    let echoed = samples(true);
    assert!(echoed.sample >= 90 && echoed.mean >= 95, "{echoed:?}");
    let literal = samples(false);
    assert!(literal.sample < 10, "{literal:?}");
    assert!(literal.mean < echoed.mean, "{literal:?}, {echoed:?}");
}
