//! Random parameters of a round.
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small bounds")]

use fpga_firmware::{Incarnation, TransferId};
use fpga_netmodel::{
    BitRate, Blackout, Bursts, Conditions, Delay, Impairments, Loss, Order, Probability, Rate,
};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::sender::SenderConfig;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::{FaultMix, SoakOptions};
use crate::scenario::RECEIVER;

/// Packet lifetime, longer than any delay of a round's links.
pub(super) const PACKET_LIFETIME: Nanos = Nanos::from_millis(20);

/// Random numbers of a round.
pub(super) struct RoundRng(pub(super) Pcg32);

impl RoundRng {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Random fraction between 0 and `most`, in steps of a millionth of it.
    fn fraction(&mut self, most: f64) -> f64 {
        most * f64::from(u32::try_from(self.below(1_000_001)).unwrap_or(0)) / 1e6
    }

    /// Random number whose logarithm is uniformly distributed.
    pub(super) fn spread(&mut self, longest: u64) -> u64 {
        let bits = u64::BITS - longest.max(1).leading_zeros();
        loop {
            let bit = self.below(bits.into());
            let length = (1 << bit) + self.below(1 << bit);
            if length <= longest {
                return length;
            }
        }
    }

    fn micros(&mut self, most: u64) -> Nanos {
        Nanos::new(self.below(most * 1000 + 1))
    }
}

/// Parameters of a round's network.
pub(super) struct RoundParameters {
    pub(super) there: Impairments,
    pub(super) back: Impairments,
    pub(super) sender: SenderConfig,
    pub(super) receiver: ReceiverConfig,
    /// Maximum length of a transfer in bytes.
    pub(super) longest: u64,
    pub(super) deadline: Nanos,
    /// Times of restarts, and the restarted side.
    pub(super) restarts: Vec<(Nanos, Side)>,
    /// Times and durations of pauses of the sender's host: its card continues.
    pub(super) pauses: Vec<(Nanos, Nanos)>,
    pub(super) gentle: bool,
    /// Whether the length of transfers is not limited.
    pub(super) of_any_size: bool,
    /// Whether there are few op numbers, and one incarnation of the sender.
    pub(super) are_numbers_reused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    /// With new keys, as hosts choose them at random.
    Receiver,
    /// With the same keys, not receiving until nothing that was sent before can still arrive.
    ReceiverAfterAPause,
}

/// Draws the parameters of a round.
pub(super) fn draw(soak: &SoakOptions, random: &mut RoundRng) -> RoundParameters {
    match soak.faults {
        FaultMix::All => everything(soak, random),
        FaultMix::DelayedDuplicates => delayed_duplicates(soak, random),
    }
}

fn tables(
    soak: &SoakOptions,
    random: &mut RoundRng,
    sender: &mut SenderConfig,
    receiver: &mut ReceiverConfig,
) -> u64 {
    sender.packet_size_log2 = [9, 9, 9, 9, 9, 9, 9, 12, 12, 10, 8, 6][random.below(12) as usize];
    let mask_bits = [32, 32, 32, 1, 2, 7, 8, 31, 64, 100, 255, 256][random.below(12) as usize];
    sender.mask_bits = mask_bits;
    let whole = u32::from(mask_bits) << sender.packet_size_log2;
    sender.segment_size = if random.one_in(3) { random.between(1, whole.into()) as u32 } else { whole };
    // Segments of a few bytes would make as many packets.
    sender.segment_size = sender.segment_size.max(64).min(whole);
    sender.big_threshold = random.below(u64::from(sender.segment_size) + 1) as u32;
    sender.op_entries = [256, 256, 256, 1024, 64, 8, 2, 1][random.below(8) as usize];
    sender.packet_lifetime = PACKET_LIFETIME;
    sender.first_transfer = TransferId::new((random.0.next_u32() & 0xFF).wrapping_neg());
    receiver.packet_size_log2 = sender.packet_size_log2;
    receiver.mask_bits = mask_bits;
    receiver.registry_entries = [64, 64, 64, 256, 8, 3, 1][random.below(7) as usize];
    receiver.escape_slots = [64, 64, 16, 3, 1, 0][random.below(6) as usize];
    receiver.packet_lifetime = PACKET_LIFETIME;
    receiver.transfers = if random.one_in(3) { random.between(1, 16) as u16 } else { 128 };
    receiver.tombstones = if random.one_in(3) { random.between(2, 20) as u16 } else { 128 };
    // Small packets and tiny tables make a long round.
    let slow =
        sender.packet_size_log2 < 9 || sender.op_entries < 64 || mask_bits < 8 || sender.segment_size < 4096;
    if slow { soak.longest.min(16 << 10) } else { soak.longest }
}

fn everything(soak: &SoakOptions, random: &mut RoundRng) -> RoundParameters {
    let (mut sender, mut receiver) =
        (SenderConfig::default(), ReceiverConfig::new(RECEIVER, Incarnation::new(1)));
    let longest = tables(soak, random, &mut sender, &mut receiver);
    let gentle_loss = !random.one_in(3);
    let most = if gentle_loss { 0.05 } else { 0.10 };
    let distance = random.micros(10);
    let rate = Rate {
        rate: BitRate::from_gbps([1, 10, 40, 100][random.below(4) as usize]),
        queue: Nanos::from_micros(random.between(100, 5_000)),
    };
    let mut blackouts = Vec::new();
    if random.one_in(5) {
        for _ in 0..random.between(1, 3) {
            blackouts.push(Blackout { from: random.micros(60_000), length: Nanos::from_millis(10) });
        }
    }
    let mut way = || {
        let mut impairments = Impairments::default().rate(rate).distance(distance);
        impairments.data = conditions(random, most);
        impairments.control = conditions(random, most);
        impairments.blackouts.clone_from(&blackouts);
        let hold_back = Nanos::from_micros(50);
        impairments.order = match random.below(4) {
            0 => Order::InOrder,
            1 => Order::Random { depth: random.between(2, 64) as usize, patience: hold_back },
            _ => Order::Degree { degree: 1 << random.below(9), patience: hold_back },
        };
        impairments
    };
    let (there, back) = (way(), way());
    let restarts = (0..u64::from(random.one_in(6)) * random.between(1, 3))
        .map(|_| {
            let side = [Side::Sender, Side::Receiver, Side::ReceiverAfterAPause][random.below(3) as usize];
            (random.micros(30_000), side)
        })
        .collect::<Vec<_>>();
    let pauses = (0..u64::from(random.one_in(6)) * random.between(1, 3))
        .map(|_| (random.micros(30_000), Nanos::from_millis(random.between(1_000, 5_000))))
        .collect::<Vec<_>>();
    let is_short = random.one_in(10);
    let deadline =
        if is_short { Nanos::from_micros(random.between(100, 30_000)) } else { Nanos::from_secs(60) };
    let gentle = gentle_loss && restarts.is_empty() && pauses.is_empty() && !is_short;
    RoundParameters {
        there,
        back,
        sender,
        receiver,
        longest,
        deadline,
        restarts,
        pauses,
        gentle,
        of_any_size: longest == soak.longest,
        are_numbers_reused: false,
    }
}

fn conditions(random: &mut RoundRng, most_loss: f64) -> Conditions {
    let probability = |fraction| Probability::new(fraction).unwrap_or_default();
    let rate = random.fraction(most_loss);
    let loss = match Bursts::of(rate, 1.0 + random.fraction(7.0)) {
        Ok(bursts) if random.one_in(3) => Loss::Bursts(bursts),
        _ => Loss::Independent(probability(rate)),
    };
    let (least, mean) = (random.micros(5), random.micros(20));
    let delay = match random.below(6) {
        0 => Delay::Uniform { least, most: least.saturating_add(mean) },
        1 => Delay::Exponential { least, mean },
        2 => Delay::Normal { mean, deviation: least },
        3 => Delay::LogNormal { least, median: mean, sigma: 0.5 },
        _ => Delay::Constant(Nanos::ZERO),
    };
    Conditions::default()
        .loss(loss)
        .delay(delay)
        .copies(
            probability(random.fraction(0.05)),
            Delay::Exponential { least, mean: Nanos::from_micros(100) },
        )
        .damage(probability(random.fraction(0.01)))
}

fn delayed_duplicates(soak: &SoakOptions, random: &mut RoundRng) -> RoundParameters {
    let (mut sender, mut receiver) =
        (SenderConfig::default(), ReceiverConfig::new(RECEIVER, Incarnation::new(1)));
    tables(soak, random, &mut sender, &mut receiver);
    sender.packet_size_log2 = 6;
    sender.mask_bits = sender.mask_bits.min(8);
    sender.segment_size = u32::from(sender.mask_bits) << 6;
    sender.big_threshold = sender.segment_size;
    receiver.packet_size_log2 = 6;
    receiver.mask_bits = sender.mask_bits;
    // Numbers are reused after two to eight packets of a slot.
    sender.generation_bits = random.between(1, 3) as u8;
    sender.op_entries = random.between(2, 64) as u32;
    let lifetime = Nanos::from_micros(random.between(20, 500));
    sender.packet_lifetime = lifetime;
    receiver.packet_lifetime = lifetime;
    let probability = |fraction| Probability::new(fraction).unwrap_or_default();
    // Held back for up to the lifetime, less the travel time itself.
    let copy = Delay::Uniform { least: Nanos::ZERO, most: lifetime.saturating_sub(Nanos::from_micros(5)) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(probability(random.fraction(0.05))))
        .copies(probability(0.3), copy);
    let rate = Rate { rate: BitRate::from_gbps(100), queue: Nanos::from_micros(3) };
    let link = Impairments::both(conditions).rate(rate).distance(Nanos::from_micros(1));
    // Abandoned transfers leave packets in the escape channel, where they wait for longer than the reuse delay of their numbers.
    let micros = lifetime.get() / 1000;
    let is_short = micros.is_multiple_of(4);
    let deadline = if is_short { Nanos::from_micros(20 + micros * 7 % 280) } else { Nanos::from_secs(60) };
    RoundParameters {
        there: link.clone(),
        back: link,
        sender,
        receiver,
        longest: soak.longest.min(2048),
        deadline,
        restarts: Vec::new(),
        pauses: Vec::new(),
        gentle: !is_short,
        of_any_size: false,
        are_numbers_reused: true,
    }
}
