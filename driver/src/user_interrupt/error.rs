//! Errors of user interrupts.

use fpga_pci::MmioError;

use crate::advice::Advice;
use crate::error::{Cause, ErrorKind};
use fpga_pci::Waited;

/// Error of waiting for a user interrupt, or of setting it up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserInterruptError {
    /// The wait timed out. The line is unchanged: wait again.
    #[error("no interrupt of user {} after {waited}", named(lines))]
    TimedOut {
        /// Lines of the wait.
        lines: Vec<u8>,
        /// Time waited.
        waited: Waited,
    },
    /// The card does not answer.
    #[error("the card is gone (its registers read as all ones)")]
    Gone,
    /// The card was reset since the line was taken, or another program cleared the line's mask.
    #[error("the card was reset, or its interrupt masks were cleared by another program")]
    Reset,
    /// The line was disabled by its owner.
    #[error("the line is disabled")]
    Disabled,
    /// A register access, or waiting for the file descriptor, failed.
    #[error(transparent)]
    Cause(Cause),
}

impl UserInterruptError {
    /// Returns the cause of a failed register access.
    pub(super) fn of(source: MmioError) -> Self {
        match source {
            MmioError::Stale { .. } => Self::Reset,
            MmioError::Gone { .. } => Self::Gone,
            source => source.into(),
        }
    }
}

crate::error::with_cause!(UserInterruptError);

impl ErrorKind for UserInterruptError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::TimedOut { .. } => Advice::CheckUserInterrupt,
            Self::Gone => Advice::ReopenCard,
            Self::Reset => Advice::DropCard,
            Self::Disabled => Advice::EnableUserInterrupt,
            Self::Cause(cause) => return cause.advice(),
        })
    }
}

/// Formats line numbers as text.
fn named(lines: &[u8]) -> String {
    let numbers: Vec<String> = lines.iter().map(u8::to_string).collect();
    match numbers.split_last() {
        Some((last, [])) => format!("line {last}"),
        Some((last, others)) => format!("lines {} and {last}", others.join(", ")),
        None => "lines".to_owned(),
    }
}
