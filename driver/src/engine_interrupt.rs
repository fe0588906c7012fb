//! User interrupt on which a waiting thread sleeps: the copy engine's, or the event ring's.

use core::time::Duration;
use std::sync::Arc;

use fpga_pci::{Interrupt, InterruptError, MmioError};
use fpga_registers::xdma::{ChannelMask, IRQ_BASE, IrqBlock, UserMask};

use crate::shared::{Shared, UserInterruptClaim};

/// Line of `usr_irq_req` that stays high as long as its cause persists. It is masked unless a thread sleeps on it.
#[derive(Debug)]
pub struct EngineInterrupt {
    interrupt: Interrupt,
    mask: UserMask,
    armed: bool,
    card: Arc<Shared>,
    /// Released after the line is masked.
    _claim: UserInterruptClaim,
}

impl EngineInterrupt {
    /// Takes the line. `None` if interrupts are not enabled, if there is no such line, or if the program holds it
    /// ([`Card::user_interrupt`](crate::Card::user_interrupt)).
    pub(crate) fn take(card: &Arc<Shared>, line: u8) -> Option<Self> {
        let interrupt = card.user_interrupt(line)?;
        let claim = card.claim_line(line)?;
        Some(Self { interrupt, mask: claim.mask(), armed: false, card: Arc::clone(card), _claim: claim })
    }

    /// Returns whether the line is enabled.
    #[must_use]
    pub const fn is_armed(&self) -> bool {
        self.armed
    }

    /// Enables the line. Enabling a line that is high sends its message at once (PG195), so no interrupt is lost between this call and the
    /// sleep.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn arm(&mut self) -> Result<(), MmioError> {
        // The message of an earlier sleep would end this one early.
        let _ = self.interrupt.try_take();
        IrqBlock::USER_ENABLE_SET.write(&self.card.dma_bar, IRQ_BASE, self.mask)?;
        self.armed = true;
        self.interrupt.rearm();
        Ok(())
    }

    /// Masks the line.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn disarm(&mut self) -> Result<(), MmioError> {
        self.armed = false;
        IrqBlock::USER_ENABLE_CLEAR.write(&self.card.dma_bar, IRQ_BASE, self.mask)
    }

    /// Returns the interrupt to sleep on, for a caller that cannot keep a borrow of the line.
    #[must_use]
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Sleeps until the interrupt; `None` after `at_most`.
    pub(crate) fn wait(&self, at_most: Duration) -> Result<Option<u64>, InterruptError> {
        self.card.backend.wait_interrupt(&self.interrupt, at_most)
    }

    /// Rearms a legacy line. Call it after a wakeup that found nothing: another source asserts the line then.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn rearm_shared_line(&self) -> Result<(), MmioError> {
        if !self.interrupt.is_level() {
            return Ok(());
        }
        self.card.rearm_shared_line(&self.interrupt, ChannelMask::new(), self.mask)
    }
}

impl Drop for EngineInterrupt {
    /// Masks the line, which may stay high as long as its cause is not cleared.
    fn drop(&mut self) {
        let _ = self.disarm();
    }
}
