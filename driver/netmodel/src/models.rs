//! Probabilities, laws of loss and of delay, and the dice that decide by them.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::{Cause, Class};
use fpga_firmware::Nanos;

/// 2^32, in which probabilities are counted.
const PROBABILITY_ONE: u64 = 1 << 32;
/// Most bits flipped in one frame. The polynomial of CRC-32C has Hamming distance 4 for frames of up to 2^31 bits
/// (Koopman, "32-bit cyclic redundancy codes for internet applications", 2002, table 1: 0x8F6E37A0), so whatever this model
/// damages, the receiver notices: a test that finds wrong bytes has found a defect.
const MAX_FLIPS: usize = 3;

/// A number that cannot be, in a law.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// Not between 0 and 1.
    #[error("a probability of {found}: give 0 to 1")]
    Probability {
        /// Value given.
        found: f64,
    },
    /// Bursts that are no bursts, or cannot bring about that much loss.
    #[error(
        "bursts of {length} frames that lose {rate} of all: give a length of at least 1 and a loss below 1"
    )]
    Bursts {
        /// Share of frames asked for.
        rate: f64,
        /// Mean length asked for.
        length: f64,
    },
}

/// How likely something is, in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(PROBABILITY_ONE);

    /// `fraction`, 0.0 to 1.0.
    ///
    /// # Errors
    /// [`DistributionError::Probability`] outside of that, or for what is no number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 0 and 2^32"
    )]
    pub fn new(fraction: f64) -> Result<Self, DistributionError> {
        if (0.0..=1.0).contains(&fraction) {
            Ok(Self(libm::round(fraction * PROBABILITY_ONE as f64) as u64))
        } else {
            Err(DistributionError::Probability { found: fraction })
        }
    }

    /// One in `n`; never for 0.
    #[must_use]
    pub const fn one_in(n: u32) -> Self {
        if n == 0 { Self::NEVER } else { Self(PROBABILITY_ONE / n as u64) }
    }

    /// As a fraction.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
    pub const fn fraction(self) -> f64 {
        self.0 as f64 / PROBABILITY_ONE as f64
    }

    /// Whether this happens at all.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    fn occurs(self, numbers: &mut Pcg32) -> bool {
        u64::from(numbers.next_u32()) < self.0
    }
}

/// Loss in bursts: the model of Gilbert and Elliott. A link is in one of two states, which may change before each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bursts {
    /// How likely a burst begins.
    pub enter: Probability,
    /// How likely it ends; 1 / this is its mean length in frames.
    pub leave: Probability,
    /// Loss within a burst.
    pub inside: Probability,
    /// Loss outside.
    pub outside: Probability,
}

impl Bursts {
    /// Bursts of `length` frames on average in which everything is lost, so many that `rate` of all frames is.
    ///
    /// # Errors
    /// [`DistributionError::Bursts`] unless 0 <= rate < 1 and length >= 1, or if bursts would have to begin more often than always.
    pub fn of(rate: f64, length: f64) -> Result<Self, DistributionError> {
        let error = DistributionError::Bursts { rate, length };
        if !(0.0..1.0).contains(&rate) || !(1.0..1e9).contains(&length) {
            return Err(error);
        }
        let leave = 1.0 / length;
        // In the long run bursts begin as often as they end: (1 - rate) x enter = rate x leave.
        let enter = Probability::new(rate * leave / (1.0 - rate)).map_err(|_| error)?;
        let leave = Probability::new(leave).map_err(|_| error)?;
        Ok(Self { enter, leave, inside: Probability::ALWAYS, outside: Probability::NEVER })
    }
}

/// How frames are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Each by itself.
    Independent(Probability),
    /// In bursts.
    Bursts(Bursts),
}

impl Default for Loss {
    fn default() -> Self {
        Self::Independent(Probability::NEVER)
    }
}

/// How long frames travel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// All alike.
    Constant(Nanos),
    /// Anything between the two, equally likely.
    Uniform {
        /// Shortest.
        least: Nanos,
        /// Longest.
        most: Nanos,
    },
    /// A part that is always there, and an exponential one.
    Exponential {
        /// The part that is always there.
        least: Nanos,
        /// Mean of the other part.
        mean: Nanos,
    },
    /// Normal, cut off at zero.
    Normal {
        /// Mean.
        mean: Nanos,
        /// Standard deviation.
        deviation: Nanos,
    },
    /// A part that is always there, and one whose logarithm is normal: long tails.
    LogNormal {
        /// The part that is always there.
        least: Nanos,
        /// Median of the other part.
        median: Nanos,
        /// Standard deviation of its natural logarithm.
        sigma: f64,
    },
}

impl Default for Delay {
    fn default() -> Self {
        Self::Constant(Nanos::ZERO)
    }
}

impl Delay {
    fn sample(&self, numbers: &mut Pcg32) -> Nanos {
        // Two numbers for every frame, whatever the law takes.
        let (first, second) = (uniform(numbers), uniform(numbers));
        match *self {
            Self::Constant(delay) => delay,
            Self::Uniform { least, most } => {
                let span = float(most.saturating_sub(least));
                least.saturating_add(nanos(first * (span + 1.0)).min(most.saturating_sub(least)))
            }
            Self::Exponential { least, mean } => {
                least.saturating_add(nanos(-libm::log(1.0 - first) * float(mean)))
            }
            Self::Normal { mean, deviation } => {
                nanos(float(mean) + standard_normal(first, second) * float(deviation))
            }
            Self::LogNormal { least, median, sigma } => {
                let factor = libm::exp(standard_normal(first, second) * sigma);
                least.saturating_add(nanos(float(median) * factor))
            }
        }
    }
}

/// From 0 (included) to 1 (not included), in steps of 2^-32.
fn uniform(numbers: &mut Pcg32) -> f64 {
    f64::from(numbers.next_u32()) / 4_294_967_296.0
}

/// Box and Muller's way: two uniform numbers make a normal one.
fn standard_normal(first: f64, second: f64) -> f64 {
    libm::sqrt(-2.0 * libm::log(1.0 - first)) * libm::cos(core::f64::consts::TAU * second)
}

#[expect(clippy::cast_precision_loss, reason = "a random delay needs no more than 53 bits")]
const fn float(nanos: Nanos) -> f64 {
    nanos.get() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and zero is the least delay"
)]
const fn nanos(value: f64) -> Nanos {
    Nanos::new(value as u64)
}

/// What happens to the frames of one class. The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Conditions {
    /// How frames are lost.
    pub loss: Loss,
    /// How long they travel.
    pub delay: Delay,
    /// How likely a second copy travels.
    pub copy: Probability,
    /// How long the copy travels.
    pub copy_delay: Delay,
    /// How likely one to three bits arrive wrong.
    pub damage: Probability,
}

impl Conditions {
    /// How frames are lost.
    #[must_use]
    pub const fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// How long frames travel, copies included.
    #[must_use]
    pub const fn delay(mut self, delay: Delay) -> Self {
        self.delay = delay;
        self.copy_delay = delay;
        self
    }

    /// How likely a second copy travels, and how long.
    #[must_use]
    pub const fn copies(mut self, copy: Probability, delay: Delay) -> Self {
        self.copy = copy;
        self.copy_delay = delay;
        self
    }

    /// How likely one to three bits arrive wrong.
    #[must_use]
    pub const fn damage(mut self, damage: Probability) -> Self {
        self.damage = damage;
        self
    }
}

/// What becomes of one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameDisposition {
    pub(super) lost: bool,
    pub(super) delay: Nanos,
    /// The second copy's delay, if there is one.
    pub(super) copy: Option<Nanos>,
    bits: [u64; MAX_FLIPS],
    flips: usize,
}

impl FrameDisposition {
    /// The bits that arrive wrong, all different.
    pub(super) fn damaged_bits(&self) -> &[u64] {
        self.bits.get(..self.flips).unwrap_or_default()
    }
}

/// The conditions of one class with their streams of random numbers. A cause that is not there takes none.
#[derive(Clone, Debug)]
pub(super) struct ImpairmentRng {
    conditions: Conditions,
    in_burst: bool,
    loss: Pcg32,
    burst: Pcg32,
    delay: Pcg32,
    copy: Pcg32,
    copy_delay: Pcg32,
    damage: Pcg32,
}

impl ImpairmentRng {
    pub(super) fn new(conditions: Conditions, class: Class, seed: u64) -> Self {
        let numbers = |cause: Cause| cause.numbers_for(class, seed);
        Self {
            conditions,
            in_burst: false,
            loss: numbers(Cause::Loss),
            burst: numbers(Cause::Burst),
            delay: numbers(Cause::Delay),
            copy: numbers(Cause::Copy),
            copy_delay: numbers(Cause::CopyDelay),
            damage: numbers(Cause::Damage),
        }
    }

    /// Decides about the next frame, of `length` bytes.
    pub(super) fn decide(&mut self, length: u64) -> FrameDisposition {
        let Conditions { loss, delay, copy, copy_delay, damage } = self.conditions;
        let lost = match loss {
            Loss::Independent(probability) => !probability.is_never() && probability.occurs(&mut self.loss),
            Loss::Bursts(bursts) => {
                let change = if self.in_burst { bursts.leave } else { bursts.enter };
                self.in_burst ^= change.occurs(&mut self.burst);
                let here = if self.in_burst { bursts.inside } else { bursts.outside };
                here.occurs(&mut self.loss)
            }
        };
        let travel = |law: &Delay, numbers: &mut Pcg32| match law {
            Delay::Constant(delay) => *delay,
            law => law.sample(numbers),
        };
        let delay = travel(&delay, &mut self.delay);
        let copy = (!copy.is_never() && {
            let copied = copy.occurs(&mut self.copy);
            // Drawn even if not needed, as for every frame.
            copied || {
                let _ = travel(&copy_delay, &mut self.copy_delay);
                false
            }
        })
        .then(|| travel(&copy_delay, &mut self.copy_delay));
        let mut fate = FrameDisposition { lost, delay, copy, bits: [0; MAX_FLIPS], flips: 0 };
        if !damage.is_never() {
            self.damage_bits(&mut fate, damage, length.saturating_mul(8));
        }
        fate
    }

    /// Four numbers per frame: whether, how many bits, and which.
    fn damage_bits(&mut self, fate: &mut FrameDisposition, damage: Probability, bits: u64) {
        let hit = damage.occurs(&mut self.damage);
        let draws = [0; MAX_FLIPS].map(|_| self.damage.next_u32());
        if !hit || bits == 0 {
            return;
        }
        let wanted = 1 + fpga_registers::cast::index(draws[0] % 3);
        for draw in draws.into_iter().take(wanted) {
            // The high half of a product: no division, and even enough.
            let bit = (u128::from(draw) * u128::from(bits)) >> 32;
            let bit = u64::try_from(bit).unwrap_or(0);
            if !fate.damaged_bits().contains(&bit) {
                fate.bits[fate.flips] = bit;
                fate.flips += 1;
            }
        }
    }
}
