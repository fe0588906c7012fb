//! A design outside the model, behind the card's AXI ports.

use std::fmt;

use fpga_registers::CardAddr;

use crate::hooks::AxiError;

/// Error response of a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesignError {
    /// DECERR: no slave at this address.
    Decode,
    /// SLVERR: the slave refused.
    Slave,
}

impl From<DesignError> for AxiError {
    fn from(error: DesignError) -> Self {
        match error {
            DesignError::Decode => Self::Decode,
            DesignError::Slave => Self::Slave,
        }
    }
}

/// Design behind a card's AXI ports, in place of the model's memory and of the network interface's registers: another card, or a
/// simulation of user logic. The DMA engines, interrupts and configuration space remain those of the model.
///
/// The calls are made by the thread on which the card works. They may take as long as the accesses take; the card does nothing else
/// meanwhile.
pub trait Design: fmt::Debug + Send + Sync {
    /// Reads memory at the AXI master of the DMA engine, at most 64 KiB.
    ///
    /// # Errors
    /// [`DesignError`], which ends the descriptor.
    fn read(&self, at: CardAddr, into: &mut [u8]) -> Result<(), DesignError>;

    /// Writes memory likewise.
    ///
    /// # Errors
    /// [`DesignError`], which ends the descriptor.
    fn write(&self, at: CardAddr, from: &[u8]) -> Result<(), DesignError>;

    /// Reads the register at byte `offset`, a multiple of 4, of the AXI-Lite master (user BAR).
    fn read_register(&self, offset: u64) -> u32;

    /// Writes that register.
    fn write_register(&self, offset: u64, value: u32);
}
