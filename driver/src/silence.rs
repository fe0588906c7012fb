//! Cause of registers that read as all ones: one decision for the whole driver.

use core::fmt;

use fpga_pci::{Backend, Bar, ConfigSpaceError, MmioError, config};
use fpga_registers::xdma::{IRQ_BASE, IrqBlock};

use crate::advice::Advice;
use crate::error::Cause;

/// Cause of a register of the user BAR that reads as all ones, as far as configuration space and the DMA BAR show it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllOnesCause {
    /// Configuration space reads as all ones: the card was removed or lost power, or its link is down.
    Gone,
    /// The process that serves the card does not answer, so nothing is known about the card.
    Server(Cause),
    /// Configuration space answers, and the registers of the DMA engine do not: memory decoding is off, or the FPGA was configured again.
    Registers,
    /// Configuration space and the DMA engine answer: the design's logic behind the user BAR does not, or the value is all ones.
    UserLogic,
}

impl AllOnesCause {
    /// Asks configuration space first, then the DMA BAR.
    pub(crate) fn ask(backend: &dyn Backend, dma_bar: &Bar) -> Self {
        match config::identity(backend) {
            Err(ConfigSpaceError::Server { source, .. }) => Self::Server(source.into()),
            Err(_) => Self::Gone,
            Ok(_) if reads_all_ones(dma_bar) => Self::Registers,
            Ok(_) => Self::UserLogic,
        }
    }
}

impl AllOnesCause {
    /// Returns what to do about it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self {
            Self::Gone => Advice::text("check slot, power and link, then open the card again"),
            Self::Server(cause) => cause.advice().unwrap_or(Advice::ReopenCard),
            Self::Registers => Advice::ResetBus,
            Self::UserLogic => Advice::text("check its clock, its reset and the offset of its registers"),
        }
    }
}

impl fmt::Display for AllOnesCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(error) => return error.fmt(f),
            Self::Gone => "the card is gone: configuration space reads as all ones",
            Self::Registers => {
                "configuration space answers, but the registers of the DMA engine read as all ones, too: memory decoding is off, or the FPGA was configured again"
            }
            Self::UserLogic => {
                "the card and its DMA engine answer, but the logic behind the user BAR reads as all ones"
            }
        })
    }
}

impl std::error::Error for AllOnesCause {}

/// Returns whether a confirmed XDMA register BAR no longer answers: an identifier is never all ones.
pub(crate) fn reads_all_ones(bar: &Bar) -> bool {
    match IrqBlock::IDENTIFIER.read(bar, IRQ_BASE) {
        Ok(identifier) => identifier.into_bits() == u32::MAX,
        // A server that does not answer is reported as such by the next access.
        Err(error) => matches!(error, MmioError::Gone { .. }),
    }
}
