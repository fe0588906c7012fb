//! Claimed user interrupt line: its file descriptor, its mask bit in the IRQ block, and its level as far as known.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use fpga_pci::{Backend, Interrupt, MmioError, lock};
use fpga_registers::xdma::{ChannelMask, IRQ_BASE, IrqBlock, UserMask};

use super::{Delivery, UserInterruptError};
use crate::error::{CardPart, ErrorPlace, ResourceError};
use crate::shared::UserInterruptClaim;

/// Period of the file descriptor of a polled line.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// Line of `usr_irq_req` that the program has taken.
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
    /// The line was reported as high, is masked if it has an interrupt, and was not seen low since. Always false with
    /// [`Delivery::Message`].
    high: bool,
    /// Number of interrupts that a wait has taken from the file descriptor for the next call of `take`.
    arrived: u64,
    reported: u64,
}

impl UserInterruptLine {
    /// Takes the line and enables it. `interrupt` is its interrupt, `None` to poll.
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
        let interrupt = interrupt.map_or_else(|| Interrupt::every(POLL_PERIOD), Ok)?;
        let line = Self { interrupt, delivery, state: Mutex::default(), claim };
        // The answer comes after the last effect of an earlier owner, whose write to the mask was posted. Interrupts up to here are
        // dropped.
        line.pending()?;
        let _ = line.interrupt.try_take();
        // If this fails, dropping the line masks it.
        line.set_enabled(true)?;
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
        &*self.claim.card.backend
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Prepares for a program that waits for the descriptor by itself.
    pub(super) fn expect_event_loop(&self) {
        // Without a thread, a simulated card works only while it is polled: the program notices that nothing arrives.
        if let Err(error) = self.backend().work_unattended() {
            tracing::warn!(card = %self.claim.card.name, %error, "the simulated card works only while it is polled");
        }
    }

    pub(super) fn reported(&self) -> u64 {
        self.state().reported
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.state().enabled
    }

    /// Returns whether a wait has to read the register, because no interrupt signals the next change: the line is polled, or it is masked
    /// until it falls.
    pub(super) fn needs_polling(&self) -> bool {
        self.delivery == Delivery::Polled || self.state().high
    }

    /// Reads the levels of all lines.
    fn pending_word(&self) -> Result<u32, MmioError> {
        let bar = &self.claim.card.dma_bar;
        let read = || IrqBlock::USER_PENDING.read(bar, IRQ_BASE).map(UserMask::into_bits);
        // The upper half is reserved, so all ones are not a valid answer. Some cores return all ones at every second read.
        match read()? {
            u32::MAX => match read()? {
                u32::MAX => Err(MmioError::Gone { at: IrqBlock::USER_PENDING.address(IRQ_BASE) }),
                word => Ok(word),
            },
            word => Ok(word),
        }
    }

    /// Reads whether the line is high.
    pub(super) fn pending(&self) -> Result<bool, MmioError> {
        Ok(self.pending_word()? & self.claim.mask().into_bits() != 0)
    }

    fn unmask(&self) -> Result<(), MmioError> {
        if self.delivery == Delivery::Polled {
            // No handler takes its interrupt: enabled, it would assert the legacy line of a card whose messages are off.
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
        // All sources share a legacy line; this source no longer asserts it.
        self.interrupt.rearm();
        Ok(())
    }

    pub(super) fn set_enabled(&self, on: bool) -> Result<(), MmioError> {
        self.claim.card.check_process()?;
        let mut state = self.state();
        state.enabled = on;
        state.high = false;
        if on {
            return self.unmask();
        }
        self.mask()?;
        // The write is posted: after this answer no further interrupt comes.
        self.pending_word().map(drop)
    }

    /// Makes a line that is still high interrupt again: setting a mask bit while its source is high sends an interrupt (PG195).
    pub(super) fn rearm(&self) -> Result<(), MmioError> {
        self.claim.card.check_process()?;
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

    /// Records interrupts that a wait has taken from the file descriptor.
    pub(super) fn note(&self, interrupts: u64) {
        self.state().arrived += interrupts;
    }

    /// Returns the number of interrupts since the last call.
    pub(super) fn take_arrived(&self) -> Result<u64, UserInterruptError> {
        self.claim.card.check_process().map_err(UserInterruptError::of)?;
        let mut state = self.state();
        let woken = core::mem::take(&mut state.arrived).saturating_add(self.interrupt.try_take());
        let count = match self.delivery {
            Delivery::Message => woken,
            _ if state.enabled => {
                u64::from(self.sample_level(&mut state, woken > 0).map_err(UserInterruptError::of)?)
            }
            _ => 0,
        };
        state.reported = state.reported.saturating_add(count);
        Ok(count)
    }

    /// Samples the level of a line that shares its interrupt. Returns whether it has risen. A line that is high stays masked until it has
    /// fallen, so that neither it nor the users of the same interrupt are woken continuously.
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
                // Another user of a legacy line may have masked this line while it was high.
                if was_high || woken {
                    self.unmask()?;
                }
                Ok(false)
            }
        }
    }

    /// Checks that the line can still interrupt: the card is present, and the line's mask is unchanged.
    pub(super) fn check(&self) -> Result<(), UserInterruptError> {
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
            Ok(false) => Err(UserInterruptError::Reset),
            Err(source) => Err(UserInterruptError::of(source)),
        }
    }

    /// Place of the line's errors.
    pub(super) fn place(&self) -> ErrorPlace {
        self.claim.card.place_at(CardPart::UserInterrupt(self.number()))
    }

    /// Place of errors that concern several lines.
    pub(super) fn card_place(&self) -> ErrorPlace {
        self.claim.card.place()
    }
}

impl Drop for UserInterruptLine {
    /// Masks the line, which may stay high as long as the design holds it.
    fn drop(&mut self) {
        let _ = self.mask();
    }
}
