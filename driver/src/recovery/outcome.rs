//! Report of a recovery.

use core::fmt;
use fpga_pci::Waited;

use super::RecoveryLevel;
use crate::advice::Advice;
use crate::error::{Cause, CauseClass, ErrorKind, OpenError, widen};
use crate::name::ChannelName;

/// Recovery step: a reset, or the part of the first level for one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecoveryStep {
    /// Registers of the DMA BAR as a whole; reported only if they do not answer.
    Registers,
    /// One channel.
    Channel(ChannelName),
    /// CDMA engine.
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
    /// Returns the level of the step.
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

/// Outcome of a recovery step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryStepOutcome {
    /// The step restored the normal state.
    Recovered,
    /// The state was already normal.
    NotNeeded,
    /// The device or its backend does not support the step.
    Unsupported {
        /// Reason.
        reason: Cause,
    },
    /// The step failed.
    Failed {
        /// Reason.
        reason: Cause,
    },
}

impl RecoveryStepOutcome {
    /// Returns the outcome as one word: `recovered`, `not-needed`, `unsupported`, `failed`.
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
            Self::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}

/// Reason why a recovery step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RecoveryStepError {
    /// The registers read as all ones.
    #[error(
        "the registers read as all ones although configuration space answers: only a hot reset of the bus can help"
    )]
    AllOnes,
    /// The engine does not become idle.
    #[error(
        "not idle after {waited} (status {status}); an AXI slave or a stream does not answer: only a reset can help"
    )]
    NotIdle {
        /// Timeout on the clock of the card.
        waited: Waited,
        /// Decoded status register.
        status: String,
    },
    /// The reset, or a register access, failed.
    #[error(transparent)]
    Cause(Cause),
    /// The card cannot be reached after a reset.
    #[error("after the reset: {0}")]
    AfterReset(Cause),
    /// After the reset, the identifiers are not those of an XDMA core.
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

crate::error::with_cause!(RecoveryError, RecoveryStepError);

impl From<RecoveryStepError> for Cause {
    fn from(error: RecoveryStepError) -> Self {
        let (class, advice) = match error {
            RecoveryStepError::Cause(cause) => return cause,
            RecoveryStepError::AfterReset(ref cause) => (cause.class(), cause.advice()),
            RecoveryStepError::AllOnes => (CauseClass::Gone, None),
            _ => (CauseClass::Refused, None),
        };
        Self::new(class, advice, error)
    }
}

/// Report of one recovery step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryStepReport {
    /// Recovery step.
    pub step: RecoveryStep,
    /// State before the step, as text.
    pub found: String,
    /// Outcome of the step.
    pub outcome: RecoveryStepOutcome,
    /// Duration on the backend's clock, in nanoseconds.
    pub duration_ns: u64,
}

/// Report of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Name of the card.
    pub card: String,
    /// Executed steps, in order.
    pub steps: Vec<RecoveryStepReport>,
    /// At the end the card answered, and no checked engine was busy.
    pub well: bool,
    /// The card was reset, so earlier handles are stale. Drop them all, then open the card again.
    pub reopen: bool,
}

impl RecoveryReport {
    /// Returns the outcome of `level`; `None` if it was not executed. For [`RecoveryLevel::Channel`], the worst outcome of its parts.
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

/// Error of a recovery that could not be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The card does not answer, not even in configuration space.
    #[error("the card is gone: configuration space reads as all ones")]
    Gone,
    /// Configuration space answers, and the registers do not.
    #[error(
        "the registers read as all ones though configuration space answers: memory decoding was lost, or the FPGA was re-programmed"
    )]
    AllOnes,
    /// The process uses parts that would be stopped.
    #[error("{what} in use in this process")]
    InUse {
        /// Parts in use.
        what: String,
    },
    /// The card was opened for inspection only ([`OpenOptions::observe`](crate::OpenOptions::observe)).
    #[error("the card was opened for inspection only, so it cannot be stopped or reset")]
    Observed,
    /// The handle was opened before a reset.
    #[error("the card was reset since it was opened")]
    Stale,
    /// The channel number is too high.
    #[error("channel {channel} does not exist; the card has {}", channel.others(*available))]
    NoSuchChannel {
        /// Requested channel.
        channel: ChannelName,
        /// Number of channels in this direction.
        available: u8,
    },
    /// The BAR roles cannot be determined, or a BAR cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A register access failed before the first step.
    #[error(transparent)]
    Cause(Cause),
}

impl ErrorKind for RecoveryError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Gone => {
                Advice::text("check slot and power, remove the function, rescan the bus, then open it again")
            }
            Self::AllOnes => Advice::ResetBus,
            Self::InUse { .. } => Advice::DropHandlesOrForce,
            Self::Observed => Advice::OpenForUse,
            Self::Stale => Advice::DropCard,
            Self::NoSuchChannel { .. } => Advice::text("name one that the card has"),
            Self::Open(error) => return error.advice(),
            Self::Cause(cause) => return cause.advice(),
        })
    }

    fn names_place(&self) -> bool {
        matches!(self, Self::Open(error) if error.names_place())
    }
}

widen! { OpenError => RecoveryError }
