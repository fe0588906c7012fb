//! A design outside the model, behind the card's AXI ports.

use std::fmt;
use std::sync::Arc;

use fpga_registers::CardAddr;

use crate::bars::{read_dwords, write_dwords};
use crate::fault_log::Unit;

/// Reason why an access of a design has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesignError {
    /// DECERR: no slave at this address.
    Decode,
    /// SLVERR: the slave refused.
    Slave,
    /// The access has begun and has no response yet. [`Design::outcome`] returns the result, after [`crate::Card::wake_channels`].
    Pending,
}

/// Memory access at the AXI master of the DMA engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxiAccess {
    /// The channel. It has at most one access in progress.
    pub unit: Unit,
    /// First byte.
    pub at: CardAddr,
    /// Bytes per beat if every beat goes to the same address; `None` for incrementing addresses.
    pub fixed: Option<u32>,
}

/// Design behind a card's AXI ports, in place of the model's memory and of the network interface's registers: another card, or a
/// simulation of user logic. The DMA engines, interrupts and configuration space remain those of the model.
///
/// The memory accesses are made by the thread on which the card works. Two kinds of design:
///
/// * A blocking one returns when the access is over. The card does nothing else meanwhile.
/// * Another one returns [`DesignError::Pending`] and calls [`crate::Card::wake_channels`] when a response has arrived. Meanwhile the other
///   channels work and registers answer. An access without a response hangs its channel until the card is reset.
///
/// Register accesses block the caller, which does not hold the card (see [`crate::Card::design_access`]).
pub trait Design: fmt::Debug + Send + Sync {
    /// Reads memory, at most 64 KiB.
    ///
    /// # Errors
    /// [`DesignError`]; all except `Pending` end the descriptor.
    fn read(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError>;

    /// Writes memory likewise.
    ///
    /// # Errors
    /// [`DesignError`]; all except `Pending` end the descriptor.
    fn write(&self, access: AxiAccess, from: &[u8]) -> Result<(), DesignError>;

    /// Returns the result of an access that was `Pending`. `into` receives the data of a read and is empty for a write.
    ///
    /// # Errors
    /// [`DesignError`]; `Pending` if there is still no response. A blocking design is never asked.
    fn outcome(&self, access: AxiAccess, into: &mut [u8]) -> Result<(), DesignError> {
        let _ = (access, into);
        Err(DesignError::Slave)
    }

    /// Reads the register at byte `offset`, a multiple of 4, of the AXI-Lite master (user BAR).
    fn read_register(&self, offset: u64) -> u32;

    /// Writes that register.
    fn write_register(&self, offset: u64, value: u32);

    /// The lines of `usr_irq_req` in `lines` were acknowledged (`usr_irq_ack`). Called with the card held: it must not block.
    fn interrupts_acknowledged(&self, lines: u32) {
        let _ = lines;
    }

    /// The card was reset: accesses in progress have no requester any more. Called with the card held: it must not block.
    fn reset(&self) {}
}

/// Access of the user BAR that a design answers ([`crate::Card::design_access`]).
#[derive(Clone, Debug)]
pub struct DesignAccess {
    design: Arc<dyn Design>,
    offset: u64,
}

impl DesignAccess {
    pub(crate) fn new(design: Arc<dyn Design>, offset: u64) -> Self {
        Self { design, offset }
    }

    /// Reads `into.len()` bytes.
    pub fn read(&self, into: &mut [u8]) {
        read_dwords(self.offset, into, |at, _| self.design.read_register(at));
    }

    /// Writes `from`. Returns `false` and writes nothing if it does not consist of whole dwords.
    #[must_use]
    pub fn write(&self, from: &[u8]) -> bool {
        write_dwords(self.offset, from, |at, value| self.design.write_register(at, value))
    }
}
