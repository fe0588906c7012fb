//! A user interrupt that somebody sleeps on: the copy engine's, the event ring's.

use core::time::Duration;
use std::sync::Arc;

use fpga_pci::{Interrupt, InterruptError, MmioError};
use fpga_registers::xdma::{ChannelMask, IRQ_BASE, IrqBlock, UserMask};

use crate::shared::{Shared, UserInterruptClaim};

/// A line of `usr_irq_req`, which is high for as long as its cause is there. Masked unless somebody sleeps.
#[derive(Debug)]
pub(crate) struct EngineInterrupt {
    interrupt: Interrupt,
    mask: UserMask,
    armed: bool,
    card: Arc<Shared>,
    /// Given back after the line was masked.
    _claim: UserInterruptClaim,
}

impl EngineInterrupt {
    /// `None` if interrupts are not enabled, there is no such line, or a program has it ([`Card::user_interrupt`](crate::Card::user_interrupt)).
    pub(crate) fn take(card: &Arc<Shared>, line: u8) -> Option<Self> {
        let interrupt = card.user_interrupt(line)?;
        let claim = card.claim_line(line)?;
        Some(Self { interrupt, mask: claim.mask(), armed: false, card: Arc::clone(card), _claim: claim })
    }

    pub(crate) const fn is_armed(&self) -> bool {
        self.armed
    }

    /// Enabling a line that is up sends its message at once (PG195), so nothing is lost between here and the sleep.
    pub(crate) fn arm(&mut self) -> Result<(), MmioError> {
        // A message of an earlier sleep would end this one early.
        let _ = self.interrupt.try_take();
        IrqBlock::USER_ENABLE_SET.write(&self.card.dma_bar, IRQ_BASE, self.mask)?;
        self.armed = true;
        self.interrupt.rearm();
        Ok(())
    }

    pub(crate) fn disarm(&mut self) -> Result<(), MmioError> {
        self.armed = false;
        IrqBlock::USER_ENABLE_CLEAR.write(&self.card.dma_bar, IRQ_BASE, self.mask)
    }

    /// What to sleep on, for whoever may not keep the line meanwhile.
    pub(crate) fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Sleeps; `None` if the time was over first.
    pub(crate) fn wait(&self, at_most: Duration) -> Result<Option<u64>, InterruptError> {
        self.card.transport.wait_interrupt(&self.interrupt, at_most)
    }

    /// To be called by whoever was woken and found nothing: a legacy line was somebody else's then.
    pub(crate) fn rearm_shared_line(&self) -> Result<(), MmioError> {
        if !self.interrupt.is_level() {
            return Ok(());
        }
        self.card.rearm_shared_line(&self.interrupt, ChannelMask::new(), self.mask)
    }
}

impl Drop for EngineInterrupt {
    /// The line may stay up for as long as its cause is not cleared.
    fn drop(&mut self) {
        let _ = self.disarm();
    }
}
