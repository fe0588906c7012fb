//! What can go wrong with a user interrupt.

use fpga_pci::{InterruptError, MmioError};

use crate::error::waited;
use crate::name::CardName;

/// Waiting for a user interrupt, or setting it up, failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserInterruptError {
    /// The wait's time is over. The line is as it was: wait again.
    #[error(
        "{card}: no interrupt of user {} after {}; wait longer, or check that the design raises usr_irq_req (`fpgactl irq list` shows the lines that are high)",
        named(lines), waited(*waited_us)
    )]
    TimedOut {
        /// Which card.
        card: CardName,
        /// The lines that were waited for.
        lines: Vec<u8>,
        /// How long was waited, in microseconds.
        waited_us: u64,
    },
    /// The card does not answer any more.
    #[error(
        "{card}: user interrupt {line}: the card is gone (its registers read as all ones); open the card again when it is back"
    )]
    Gone {
        /// Which card.
        card: CardName,
        /// Which line.
        line: u8,
    },
    /// The card was reset since the line was taken, or another program has cleared the line's mask.
    #[error(
        "{card}: user interrupt {line}: the card was reset, or its interrupt masks were cleared by another program; open the card again"
    )]
    Reset {
        /// Which card.
        card: CardName,
        /// Which line.
        line: u8,
    },
    /// The line was disabled by its owner.
    #[error("{card}: user interrupt {line} is disabled; call UserInterrupt::enable before waiting for it")]
    Disabled {
        /// Which card.
        card: CardName,
        /// Which line.
        line: u8,
    },
    /// Waiting for the descriptor failed.
    #[error("{card}: user interrupt {line}: {source}")]
    Interrupt {
        /// Which card.
        card: CardName,
        /// Which line.
        line: u8,
        /// What failed.
        source: InterruptError,
    },
    /// A register access failed.
    #[error("{card}: user interrupt {line}: {source}")]
    Mmio {
        /// Which card.
        card: CardName,
        /// Which line.
        line: u8,
        /// What failed.
        source: MmioError,
    },
}

/// Lines in words.
fn named(lines: &[u8]) -> String {
    let numbers: Vec<String> = lines.iter().map(u8::to_string).collect();
    match numbers.split_last() {
        Some((last, [])) => format!("line {last}"),
        Some((last, others)) => format!("lines {} and {last}", others.join(", ")),
        None => "lines".to_owned(),
    }
}
