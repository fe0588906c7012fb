//! One claimed line: its descriptor, its mask bit in the interrupt block, and what is known of its level.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fpga_pci::{Backend, Interrupt, InterruptError, MmioError};
use fpga_registers::xdma::{ChannelMask, IRQ_BASE, IrqBlock, UserMask};

use super::{Delivery, UserInterruptError};
use crate::error::ResourceError;
use crate::shared::UserInterruptClaim;

/// Period of the descriptor of a line that is polled.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A line of `usr_irq_req` that a program has.
#[derive(Debug)]
pub(super) struct UserInterruptLine {
    interrupt: Interrupt,
    delivery: Delivery,
    state: Mutex<State>,
    claim: UserInterruptClaim,
}

#[derive(Debug, Default)]
struct State {
    enabled: bool,
    /// The line was reported as high, is masked where it has an interrupt, and was not seen low since. Always false with
    /// [`Delivery::Message`].
    high: bool,
    /// Interrupts that a wait has taken from the descriptor for whoever asks next.
    arrived: u64,
    reported: u64,
}

impl UserInterruptLine {
    /// Takes the line and enables it. `interrupt`: its interrupt, `None` to poll.
    pub(super) fn take(
        claim: UserInterruptClaim,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, ResourceError> {
        let delivery = match &interrupt {
            None => Delivery::Polled,
            Some(interrupt) if interrupt.is_level() => Delivery::Level,
            Some(interrupt) if interrupt.is_shared() => Delivery::SharedMessage,
            Some(_) => Delivery::Message,
        };
        let card = || claim.card.name.clone();
        let interrupt = interrupt
            .map_or_else(|| Interrupt::every(POLL_PERIOD), Ok)
            .map_err(|source| ResourceError::Interrupt { card: card(), source })?;
        let line = Self { interrupt, delivery, state: Mutex::default(), claim };
        let failed = |source| ResourceError::Mmio { card: line.card(), source };
        // After the answer nothing more comes of an earlier owner, whose write to the mask was posted: what has come is dropped.
        line.pending().map_err(failed)?;
        let _ = line.interrupt.try_take();
        // Should it fail, dropping the line masks it.
        line.set_enabled(true).map_err(failed)?;
        Ok(line)
    }

    pub(super) const fn number(&self) -> u8 {
        self.claim.line
    }

    pub(super) const fn delivery(&self) -> Delivery {
        self.delivery
    }

    pub(super) const fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.claim.card.transport
    }

    pub(super) fn card(&self) -> crate::CardName {
        self.claim.card.name.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reported(&self) -> u64 {
        self.state().reported
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.state().enabled
    }

    /// Whether waiting has to look at the register, because no interrupt says what happens next: the line is polled, or it is masked
    /// until it falls.
    pub(super) fn needs_polling(&self) -> bool {
        self.delivery == Delivery::Polled || self.state().high
    }

    /// The word of all lines' levels.
    fn pending_word(&self) -> Result<u32, MmioError> {
        let bar = &self.claim.card.dma_bar;
        let read = || IrqBlock::USER_PENDING.read(bar, IRQ_BASE).map(UserMask::into_bits);
        // Its upper half is reserved: all ones are no answer. Some cores give that to every second read.
        match read()? {
            u32::MAX => match read()? {
                u32::MAX => Err(MmioError::Gone { at: IrqBlock::USER_PENDING.address(IRQ_BASE) }),
                word => Ok(word),
            },
            word => Ok(word),
        }
    }

    /// Whether the line is high now.
    pub(super) fn pending(&self) -> Result<bool, MmioError> {
        Ok(self.pending_word()? & self.claim.mask().into_bits() != 0)
    }

    fn unmask(&self) -> Result<(), MmioError> {
        if self.delivery == Delivery::Polled {
            // Nobody takes its interrupt: enabled, it would assert the legacy line of a card whose messages are off.
            return Ok(());
        }
        IrqBlock::USER_ENABLE_SET.write(&self.claim.card.dma_bar, IRQ_BASE, self.claim.mask())?;
        self.interrupt.rearm();
        Ok(())
    }

    fn mask(&self) -> Result<(), MmioError> {
        if self.delivery == Delivery::Polled {
            return Ok(());
        }
        IrqBlock::USER_ENABLE_CLEAR.write(&self.claim.card.dma_bar, IRQ_BASE, self.claim.mask())?;
        // A legacy line is everybody's: what this one has asserted is out of the way now.
        self.interrupt.rearm();
        Ok(())
    }

    pub(super) fn set_enabled(&self, on: bool) -> Result<(), MmioError> {
        let mut state = self.state();
        state.enabled = on;
        state.high = false;
        if on {
            return self.unmask();
        }
        self.mask()?;
        // The write is posted: once this is answered, nothing more comes.
        self.pending_word().map(drop)
    }

    /// A line that is still high interrupts again: a mask bit that is set while its source is high sends one (PG195).
    pub(super) fn rearm(&self) -> Result<(), MmioError> {
        let mut state = self.state();
        if !state.enabled {
            return Ok(());
        }
        if self.delivery == Delivery::Message {
            self.mask()?;
        }
        state.high = false;
        self.unmask()
    }

    /// A wait has taken these from the descriptor.
    pub(super) fn note(&self, interrupts: u64) {
        self.state().arrived += interrupts;
    }

    /// Interrupts since the last call.
    pub(super) fn take_arrived(&self) -> Result<u64, UserInterruptError> {
        let mut state = self.state();
        let woken = core::mem::take(&mut state.arrived).saturating_add(self.interrupt.try_take());
        let count = match self.delivery {
            Delivery::Message => woken,
            _ if state.enabled => {
                u64::from(self.sample_level(&mut state, woken > 0).map_err(|e| self.failed(e))?)
            }
            _ => 0,
        };
        state.reported = state.reported.saturating_add(count);
        Ok(count)
    }

    /// Looks at the level, where interrupts are not this line's alone: whether it has risen. A line that is high stays masked until it has
    /// fallen, so that neither it nor whoever shares its interrupt is woken without end.
    fn sample_level(&self, state: &mut State, woken: bool) -> Result<bool, MmioError> {
        let high = self.pending()?;
        match (high, state.high) {
            (true, false) => {
                state.high = true;
                self.mask()?;
                Ok(true)
            }
            (true, true) => Ok(false),
            (false, was_high) => {
                state.high = false;
                if woken && self.delivery == Delivery::Level {
                    let card = &self.claim.card;
                    card.rearm_shared_line(&self.interrupt, ChannelMask::new(), self.claim.mask())?;
                }
                // Somebody else on a legacy line may have masked it while it was high.
                if was_high || woken {
                    self.unmask()?;
                }
                Ok(false)
            }
        }
    }

    /// Whether the line can still interrupt: the card is there, and its mask as it was left.
    pub(super) fn check(&self) -> Result<(), UserInterruptError> {
        let (card, line) = (self.card(), self.number());
        let checked = || -> Result<bool, MmioError> {
            self.pending_word()?;
            let state = self.state();
            if self.delivery != Delivery::Message || !state.enabled {
                return Ok(true);
            }
            let enabled = IrqBlock::USER_ENABLE.read(&self.claim.card.dma_bar, IRQ_BASE)?;
            Ok(enabled.into_bits() & self.claim.mask().into_bits() != 0)
        };
        match checked() {
            Ok(true) => Ok(()),
            Ok(false) => Err(UserInterruptError::Reset { card, line }),
            Err(source) => Err(self.failed(source)),
        }
    }

    pub(super) fn failed(&self, source: MmioError) -> UserInterruptError {
        let (card, line) = (self.card(), self.number());
        match source {
            MmioError::Stale { .. } => UserInterruptError::Reset { card, line },
            source if source.is_gone() => UserInterruptError::Gone { card, line },
            source => UserInterruptError::Mmio { card, line, source },
        }
    }

    pub(super) fn wait_failed(&self, source: InterruptError) -> UserInterruptError {
        UserInterruptError::Interrupt { card: self.card(), line: self.number(), source }
    }
}

impl Drop for UserInterruptLine {
    /// The line may stay high for as long as its design holds it.
    fn drop(&mut self) {
        let _ = self.mask();
    }
}
