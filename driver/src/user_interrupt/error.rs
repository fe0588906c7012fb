//! Errors of user interrupts.

use fpga_pci::{InterruptError, MmioError};

use crate::name::CardName;
use fpga_pci::Waited;

/// Error of waiting for a user interrupt, or of setting it up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserInterruptError {
    /// The wait timed out. The line is unchanged: wait again.
    #[error(
        "{card}: no interrupt of user {} after {waited}; wait longer, or check that the design raises usr_irq_req (`fpgactl irq list` shows the lines that are high)",
        named(lines)
    )]
    TimedOut {
        /// Name of the card.
        card: CardName,
        /// Lines of the wait.
        lines: Vec<u8>,
        /// Time waited.
        waited: Waited,
    },
    /// The card does not answer.
    #[error(
        "{card}: user interrupt {line}: the card is gone (its registers read as all ones); open the card again when it is back"
    )]
    Gone {
        /// Name of the card.
        card: CardName,
        /// Line number.
        line: u8,
    },
    /// The card was reset since the line was taken, or another program cleared the line's mask.
    #[error(
        "{card}: user interrupt {line}: the card was reset, or its interrupt masks were cleared by another program; open the card again"
    )]
    Reset {
        /// Name of the card.
        card: CardName,
        /// Line number.
        line: u8,
    },
    /// The line was disabled by its owner.
    #[error("{card}: user interrupt {line} is disabled; call UserInterrupt::enable before waiting for it")]
    Disabled {
        /// Name of the card.
        card: CardName,
        /// Line number.
        line: u8,
    },
    /// Waiting for the file descriptor failed.
    #[error("{card}: user interrupt {line}: {source}")]
    Interrupt {
        /// Name of the card.
        card: CardName,
        /// Line number.
        line: u8,
        /// Underlying error.
        source: InterruptError,
    },
    /// A register access failed.
    #[error("{card}: user interrupt {line}: {source}")]
    Mmio {
        /// Name of the card.
        card: CardName,
        /// Line number.
        line: u8,
        /// Underlying error.
        source: MmioError,
    },
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
