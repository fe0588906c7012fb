//! What names a packet, and what its answer says about time.

use fpga_firmware::ids::OpNumber;
use fpga_protocol::Nanos;
use fpga_protocol::op_table::{OpTable, OpTableConfig};

/// SPECIMEN: a number is free with its acknowledgement, and names the next packet then [E1-13].
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
    // Packet A was sent twice and is answered twice; between the answers B gets its place, and is lost.
    let mut literal = LiteralOps::default();
    let of_a = literal.take('A');
    assert_eq!(literal.acknowledge(of_a), Some('A'));
    literal.take('B');
    assert_eq!(literal.acknowledge(of_a), Some('B'), "B counts as received and is nowhere");

    // One place and the fewest generations: what is in the table is never what a late answer names.
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
    // The numbers are used up until A's and B's answers have died out.
    let third: Option<OpNumber> = take(&mut table, 2);
    assert_eq!(third, None);
}

/// A path and back: answers take 90 to 110 us.
struct Path(u64);

impl Path {
    fn trip(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        90 + (self.0 >> 33) % 21
    }
}

/// What a sender believes of a path.
#[derive(Clone, Copy, Debug)]
struct EstimatedPath {
    /// The least of its means of 64 samples, in microseconds.
    mean: u64,
    /// The least of its samples.
    sample: u64,
}

/// A thousand packets, one after the other, each sent again whenever its wait comes to T + d of the last 64 samples; nothing is lost.
/// `echo`: the answer says which try it is to, and is held against that one's time; literally a resend overwrites the send time, and
/// whatever comes is taken for the latest copy's answer.
fn samples(echo: bool) -> EstimatedPath {
    let mut path = Path(11);
    let mut last = vec![100u64; 64];
    let mut least = EstimatedPath { mean: u64::MAX, sample: u64::MAX };
    for n in 0..1000 {
        let mean = last.iter().sum::<u64>() / 64;
        let variance = last.iter().map(|sample| sample.abs_diff(mean).pow(2)).sum::<u64>() / 64;
        let wait = mean + variance.isqrt();
        // The first copy is answered first: all others leave later and take as long.
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
