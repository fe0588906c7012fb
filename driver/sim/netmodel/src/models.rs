//! Probabilities, distributions of loss and delay, and their random decisions.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::{Cause, Class};
use fpga_firmware::Nanos;

/// Representation of probability 1: probabilities are multiples of 2^-32.
const PROBABILITY_ONE: u64 = 1 << 32;
/// Maximum number of bits flipped in one frame. The polynomial of CRC-32C has Hamming distance 4 for frames of up to 2^31 bits (Koopman,
/// "32-bit cyclic redundancy codes for internet applications", 2002, table 1: 0x8F6E37A0), so the receiver detects any damage by this
/// model: a test that finds wrong bytes has found a defect.
const MAX_FLIPS: usize = 3;

/// An invalid parameter of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// Not between 0 and 1.
    #[error("probability {found} is out of range: give 0 to 1")]
    Probability {
        /// Value given.
        found: f64,
    },
    /// Invalid bursts, or bursts that cannot cause the requested loss.
    #[error(
        "burst loss with mean length {length} frames and rate {rate} is out of range: give a length of at least 1 and a loss below 1"
    )]
    Bursts {
        /// Requested share of lost frames.
        rate: f64,
        /// Requested mean length in frames.
        length: f64,
    },
}

/// Probability in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(PROBABILITY_ONE);

    /// Creates a probability from `fraction`, 0.0 to 1.0.
    ///
    /// # Errors
    /// [`DistributionError::Probability`] for other values, including NaN.
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

    /// Probability 1 in `n`; [`NEVER`](Self::NEVER) for 0.
    #[must_use]
    pub const fn one_in(n: u32) -> Self {
        if n == 0 { Self::NEVER } else { Self(PROBABILITY_ONE / n as u64) }
    }

    /// Returns the probability as a fraction.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 2^32")]
    pub const fn fraction(self) -> f64 {
        self.0 as f64 / PROBABILITY_ONE as f64
    }

    /// Whether the probability is 0.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    fn occurs(self, numbers: &mut Pcg32) -> bool {
        u64::from(numbers.next_u32()) < self.0
    }
}

/// Loss in bursts: the Gilbert-Elliott model. A link is in one of two states, which may change before each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bursts {
    /// Probability that a burst begins.
    pub enter: Probability,
    /// Probability that a burst ends; 1 / this is its mean length in frames.
    pub leave: Probability,
    /// Loss probability within a burst.
    pub inside: Probability,
    /// Loss probability outside a burst.
    pub outside: Probability,
}

impl Bursts {
    /// Creates bursts with a mean of `length` frames in which every frame is lost, for an overall loss of `rate`.
    ///
    /// # Errors
    /// [`DistributionError::Bursts`] unless 0 <= rate < 1 and length >= 1, or if the required probability of a burst exceeds 1.
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

/// Distribution of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Independent losses.
    Independent(Probability),
    /// In bursts.
    Bursts(Bursts),
}

impl Default for Loss {
    fn default() -> Self {
        Self::Independent(Probability::NEVER)
    }
}

/// Distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// Constant delay.
    Constant(Nanos),
    /// Uniform distribution between two values.
    Uniform {
        /// Minimum.
        least: Nanos,
        /// Maximum.
        most: Nanos,
    },
    /// A constant and an exponentially distributed part.
    Exponential {
        /// The constant part.
        least: Nanos,
        /// Mean of the exponential part.
        mean: Nanos,
    },
    /// Normal distribution, truncated at zero.
    Normal {
        /// Mean.
        mean: Nanos,
        /// Standard deviation.
        deviation: Nanos,
    },
    /// A constant and a log-normally distributed part: long tails.
    LogNormal {
        /// The constant part.
        least: Nanos,
        /// Median of the log-normal part.
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
        // Two numbers for every frame, independent of the distribution.
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

/// Uniform number from 0 (included) to 1 (not included), in steps of 2^-32.
fn uniform(numbers: &mut Pcg32) -> f64 {
    f64::from(numbers.next_u32()) / 4_294_967_296.0
}

/// Box-Muller transform: two uniform numbers yield a normal one.
fn standard_normal(first: f64, second: f64) -> f64 {
    libm::sqrt(-2.0 * libm::log(1.0 - first)) * libm::cos(core::f64::consts::TAU * second)
}

#[expect(clippy::cast_precision_loss, reason = "a random delay uses at most 53 bits")]
const fn float(nanos: Nanos) -> f64 {
    nanos.get() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and zero is the smallest delay"
)]
const fn nanos(value: f64) -> Nanos {
    Nanos::new(value as u64)
}

/// Impairments of the frames of one class. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Conditions {
    /// Distribution of losses.
    pub loss: Loss,
    /// Distribution of delays.
    pub delay: Delay,
    /// Probability of a duplicate.
    pub copy: Probability,
    /// Distribution of the duplicate's delay.
    pub copy_delay: Delay,
    /// Probability that one to three bits are flipped.
    pub damage: Probability,
}

impl Conditions {
    /// Sets the distribution of losses.
    #[must_use]
    pub const fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// Sets the distribution of delays, duplicates included.
    #[must_use]
    pub const fn delay(mut self, delay: Delay) -> Self {
        self.delay = delay;
        self.copy_delay = delay;
        self
    }

    /// Sets the probability of a duplicate, and its delay.
    #[must_use]
    pub const fn copies(mut self, copy: Probability, delay: Delay) -> Self {
        self.copy = copy;
        self.copy_delay = delay;
        self
    }

    /// Sets the probability that one to three bits are flipped.
    #[must_use]
    pub const fn damage(mut self, damage: Probability) -> Self {
        self.damage = damage;
        self
    }
}

/// Disposition of one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameDisposition {
    pub(super) lost: bool,
    pub(super) delay: Nanos,
    /// Delay of the duplicate, if there is one.
    pub(super) copy: Option<Nanos>,
    bits: [u64; MAX_FLIPS],
    flips: usize,
}

impl FrameDisposition {
    /// Positions of the flipped bits, all different.
    pub(super) fn damaged_bits(&self) -> &[u64] {
        self.bits.get(..self.flips).unwrap_or_default()
    }
}

/// Conditions of one class with their streams of random numbers. An unused cause draws none.
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
            // Drawn for every frame, even if not needed.
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

    /// Draws four numbers per frame: whether, how many bits, and which.
    fn damage_bits(&mut self, fate: &mut FrameDisposition, damage: Probability, bits: u64) {
        let hit = damage.occurs(&mut self.damage);
        let draws = [0; MAX_FLIPS].map(|_| self.damage.next_u32());
        if !hit || bits == 0 {
            return;
        }
        let wanted = 1 + fpga_registers::cast::index(draws[0] % 3);
        for draw in draws.into_iter().take(wanted) {
            // The high half of a product: no division, and sufficiently uniform.
            let bit = (u128::from(draw) * u128::from(bits)) >> 32;
            let bit = u64::try_from(bit).unwrap_or(0);
            if !fate.damaged_bits().contains(&bit) {
                fate.bits[fate.flips] = bit;
                fate.flips += 1;
            }
        }
    }
}
