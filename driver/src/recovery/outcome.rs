//! What the ladder reports.

use core::fmt;

use fpga_pci::{BarError, ConfigError, MmioError, ResetError};

use super::RecoveryLevel;
use crate::error::OpenError;
use crate::name::ChannelName;

/// One rung, or the part of the first rung that deals with one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecoveryStep {
    /// The DMA BAR's registers as a whole; reported only where they do not answer.
    Registers,
    /// One channel.
    Channel(ChannelName),
    /// The card-internal copy engine.
    Cdma,
    /// The network interface.
    NetworkInterface,
    /// The interrupt block's enable masks.
    Interrupts,
    /// Function-level reset.
    Function,
    /// Hot reset of the bus.
    Bus,
}

impl RecoveryStep {
    /// The level that it belongs to.
    #[must_use]
    pub const fn level(self) -> RecoveryLevel {
        match self {
            Self::Function => RecoveryLevel::Function,
            Self::Bus => RecoveryLevel::Bus,
            _ => RecoveryLevel::Channel,
        }
    }
}

impl fmt::Display for RecoveryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registers => f.pad("registers"),
            Self::Channel(name) => f.pad(&name.to_string()),
            Self::Cdma => f.pad("cdma"),
            Self::NetworkInterface => f.pad("ni"),
            Self::Interrupts => f.pad("interrupts"),
            Self::Function => f.pad("function"),
            Self::Bus => f.pad("bus"),
        }
    }
}

/// What became of a rung.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryStepOutcome {
    /// It did its work.
    Recovered,
    /// There was nothing to do.
    NotNeeded,
    /// The device, or the way it is reached, cannot do it.
    Unsupported {
        /// Why.
        reason: ResetError,
    },
    /// It was tried in vain.
    Failed {
        /// Why.
        reason: RecoveryStepError,
    },
}

impl RecoveryStepOutcome {
    /// One word for it: `recovered`, `not-needed`, `unsupported`, `failed`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::NotNeeded => "not-needed",
            Self::Unsupported { .. } => "unsupported",
            Self::Failed { .. } => "failed",
        }
    }
}

impl fmt::Display for RecoveryStepOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovered => f.write_str("recovered"),
            Self::NotNeeded => f.write_str("not needed"),
            Self::Unsupported { reason } => write!(f, "unsupported: {reason}"),
            Self::Failed { reason: why } => write!(f, "failed: {why}"),
        }
    }
}

/// Why a rung did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryStepError {
    /// The registers read as all ones.
    #[error(
        "the registers read as all ones although configuration space answers: memory decoding was lost, or the FPGA was \
         re-programmed; a hot reset of the bus is left"
    )]
    AllOnes,
    /// An engine goes on.
    #[error(
        "not idle after {waited_ms} ms (status {status}); an AXI slave or a stream does not answer: a reset is left"
    )]
    NotIdle {
        /// How long it was given, in milliseconds.
        waited_ms: u64,
        /// Its status register, decoded.
        status: String,
    },
    /// A register access failed.
    #[error(transparent)]
    Mmio(#[from] MmioError),
    /// The reset itself failed.
    #[error(transparent)]
    Reset(#[from] ResetError),
    /// The registers cannot be reached after a reset.
    #[error("after the reset: {0}")]
    Bar(#[from] BarError),
    /// Configuration space cannot be reached after a reset.
    #[error("after the reset: {0}")]
    Config(#[from] ConfigError),
    /// What answers is no XDMA.
    #[error(
        "after the reset the words at 0x2000 and 0x3000 are {irq:#010x} and {config:#010x} instead of 0x1fc2xxxx and \
         0x1fc3xxxx: was another bitstream loaded?"
    )]
    Identifiers {
        /// Word at 0x2000.
        irq: u32,
        /// Word at 0x3000.
        config: u32,
    },
}

/// What one rung found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryStepReport {
    /// Which.
    pub step: RecoveryStep,
    /// What it found before it did anything, for people.
    pub found: String,
    /// What became of it.
    pub outcome: RecoveryStepOutcome,
    /// How long it took on the transport's clock, in nanoseconds.
    pub duration_ns: u64,
}

/// What the ladder did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Which card.
    pub card: String,
    /// The rungs that were climbed, in order.
    pub steps: Vec<RecoveryStepReport>,
    /// At the end the card answered and nothing that was looked at was busy.
    pub well: bool,
    /// The card was reset: handles from before are stale. Drop them all, then open it again.
    pub reopen: bool,
}

impl RecoveryReport {
    /// What became of the rung of `level`; `None` if it was not climbed to. For [`RecoveryLevel::Channel`] the worst of its parts.
    #[must_use]
    pub fn outcome(&self, level: RecoveryLevel) -> Option<&RecoveryStepOutcome> {
        let rank = |outcome: &RecoveryStepOutcome| match outcome {
            RecoveryStepOutcome::NotNeeded => 0,
            RecoveryStepOutcome::Recovered => 1,
            RecoveryStepOutcome::Unsupported { .. } => 2,
            RecoveryStepOutcome::Failed { .. } => 3,
        };
        self.steps
            .iter()
            .filter(|report| report.step.level() == level)
            .map(|report| &report.outcome)
            .max_by_key(|outcome| rank(outcome))
    }
}

/// The ladder could not be climbed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// Nothing answers, not even configuration space.
    #[error("{card}: the card is gone: {advice}")]
    Gone {
        /// Which card.
        card: String,
        /// What to do.
        advice: &'static str,
    },
    /// Somebody in this process uses it.
    #[error(
        "{card}: {what} in use in this process; drop the handles first, or force it: their transfers are ended then, and a \
         reset makes them stale"
    )]
    InUse {
        /// Which card.
        card: String,
        /// What.
        what: String,
    },
    /// The card was opened for a look.
    #[error(
        "{card}: the card was opened to be looked at (OpenOptions::observe), so nothing of it is stopped or reset; open it without, or \
         recover it unopened (recovery::recover)"
    )]
    Observed {
        /// Which card.
        card: String,
    },
    /// The handle is from before a reset.
    #[error("{card}: the card was reset since it was opened; drop every handle of it, then open it again")]
    Stale {
        /// Which card.
        card: String,
    },
    /// The card has fewer channels.
    #[error("{card}: there is no channel {channel}; the card has {}", channel.others(*available))]
    NoSuchChannel {
        /// Which card.
        card: String,
        /// What was asked for.
        channel: ChannelName,
        /// How many there are.
        available: u8,
    },
    /// Which BAR is which cannot be told, or it cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A register access failed before anything was done.
    #[error("{card}: {source}")]
    Mmio {
        /// Which card.
        card: String,
        /// What failed.
        source: MmioError,
    },
}

impl RecoveryError {
    pub(super) const fn gone(card: String) -> Self {
        let advice = "configuration space reads as all ones, so nothing here reaches it; check slot and power, remove the \
                      function and rescan the bus, then open it again";
        Self::Gone { card, advice }
    }

    pub(super) const fn all_ones(card: String) -> Self {
        let advice = "its registers read as all ones though configuration space answers (memory decoding was lost, or the \
                      FPGA was re-programmed); recover it up to the level of the bus, or remove the function and rescan";
        Self::Gone { card, advice }
    }
}
