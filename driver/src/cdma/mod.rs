//! AXI CDMA (PG034): the engine that copies card memory to card memory.
//!
//! | To | Use |
//! |---|---|
//! | copy and wait, on every build | [`Cdma::copy`], [`Cdma::copy_with_timeout`]; [`Cdma::copy_with_progress`] can be stopped |
//! | keep many copies in flight, or copy a list of segments as one | [`Cdma::into_ring`], [`CdmaRing`] (builds with scatter-gather) |
//!
//! The engine has simple mode, and in some builds scatter-gather mode. It is in one mode at a time and switches only while idle. Therefore
//! the ring takes the [`Cdma`] and returns it. Bytes that a build without data realignment cannot move go through host memory, if channels
//! are lent for them ([`Cdma::set_bounce_channels`]).

mod bounce;
mod copy;
mod error;
mod options;
mod path;
mod recover;
mod ring;
mod wait;

use core::sync::atomic::{AtomicBool, Ordering};
use fpga_pci::Waited;
use std::sync::Arc;

use fpga_pci::{Bar, MmioError};
use fpga_registers::cdma::{CdmaBlock, Cdmacr, Cdmasr};
use fpga_registers::{BarOffset, CardAddr};

use crate::error::{At as _, CardPart, Error, ErrorPlace};
use crate::shared::Shared;
use crate::silence::AllOnesCause;
use fpga_pci::poll_until;

pub use error::{CdmaError, CdmaFault, CdmaFaultPosition, CdmaRingError, CopyFault};
pub use options::{CdmaRingOptions, DescriptorPath};
pub use ring::{CdmaCompletion, CdmaRing};

/// Minimum time for a reset, in nanoseconds.
const MIN_RESET_NS: u64 = 25_000_000;
/// CDMA engine of a card. It has one owner at a time.
#[derive(Debug)]
pub struct Cdma {
    registers: Bar,
    /// Channels for bytes that the engine cannot move.
    bounce: Option<bounce::BounceChannels>,
    /// Maximum number of bytes per start: less than [`copy::CHUNK_BYTES`] once the length register has cut a value.
    chunk: u32,
    /// A reset timed out.
    stuck: AtomicBool,
    card: Arc<Shared>,
}

/// Control register of a chain that is polled, without the mode bit.
const CHAIN_CONTROL: Cdmacr = Cdmacr::new().with_irq_threshold(1);

/// Maximum data width in bytes: chunks are multiples of it.
const MAX_DATA_BYTES: u32 = 128;
const BASE: BarOffset = BarOffset::ZERO;

impl Cdma {
    pub(crate) const fn new(card: Arc<Shared>, registers: Bar) -> Self {
        Self { registers, bounce: None, chunk: copy::CHUNK_BYTES, stuck: AtomicBool::new(false), card }
    }

    /// Place of the engine's errors.
    pub(crate) fn place(&self) -> ErrorPlace {
        self.card.place_at(CardPart::Cdma)
    }

    /// Returns the error of registers that read as all ones.
    #[cold]
    fn silent(&self) -> CdmaError {
        match self.card.all_ones_cause() {
            cause @ AllOnesCause::UserLogic => CdmaError::Silent(cause),
            cause @ AllOnesCause::Server(_) => CdmaError::Silent(cause),
            AllOnesCause::Gone | AllOnesCause::Registers => CdmaError::Gone,
        }
    }

    /// Reads the status register.
    ///
    /// # Errors
    /// [`CdmaError::Gone`], [`CdmaError::Silent`], [`CdmaError::Cause`].
    pub fn status(&self) -> Result<Cdmasr, Error<CdmaError>> {
        self.read_status().at(|| self.place())
    }

    pub(crate) fn read_status(&self) -> Result<Cdmasr, CdmaError> {
        let status = CdmaBlock::SR.read(&self.registers, BASE).map_err(CdmaError::from)?;
        if status.into_bits() == u32::MAX {
            return Err(self.silent());
        }
        Ok(status)
    }

    /// Resets the engine, which is the only way to leave an error (PG034).
    ///
    /// # Errors
    /// [`CdmaError::Stuck`] if the reset does not complete.
    pub fn reset(&self) -> Result<(), Error<CdmaError>> {
        self.reset_engine().at(|| self.place())
    }

    pub(crate) fn reset_engine(&self) -> Result<(), CdmaError> {
        self.reset_within(self.card.idle_timeout())
    }

    /// As [`reset`](Self::reset), after a copy that used all of its `limit` nanoseconds: the engine gets a tenth of that time.
    fn reset_after(&self, limit: u64) -> Result<(), CdmaError> {
        self.reset_within((limit / 10).max(MIN_RESET_NS).min(self.card.idle_timeout()))
    }

    /// As [`reset`](Self::reset), before the engine is released. If an earlier reset timed out, it does not wait again, so that closing the
    /// card takes no further time.
    fn reset_without_wait(&self) -> Result<(), CdmaError> {
        self.reset_within(if self.stuck.load(Ordering::Relaxed) { 0 } else { self.card.idle_timeout() })
    }

    fn reset_within(&self, limit: u64) -> Result<(), CdmaError> {
        CdmaBlock::CR.write(&self.registers, BASE, Cdmacr::new().with_reset(true))?;
        let ended = self.within(limit, "a reset", || {
            let control = CdmaBlock::CR.read(&self.registers, BASE)?;
            if control.into_bits() == u32::MAX {
                return Err(self.silent());
            }
            Ok((!control.reset()).then_some(()))
        });
        self.stuck.store(matches!(ended, Err(CdmaError::Stuck { .. })), Ordering::Relaxed);
        ended
    }

    /// Polls until `look` returns a value, for at most `limit` nanoseconds.
    fn within<T>(
        &self,
        limit: u64,
        what: &'static str,
        mut look: impl FnMut() -> Result<Option<T>, CdmaError>,
    ) -> Result<T, CdmaError> {
        let seen = poll_until(&*self.card.backend, limit, |_| look())?;
        seen.or_else(|waited| {
            let waited = self.waited(waited);
            Err(CdmaError::Stuck { what, waited, status: self.read_status()? })
        })
    }

    /// Waiting time on the card's clock.
    pub(crate) fn waited(&self, nanoseconds: u64) -> Waited {
        Waited::new(&*self.card.backend, nanoseconds)
    }

    fn wait_idle(&self, limit: u64, what: &'static str) -> Result<Cdmasr, CdmaError> {
        self.within(limit, what, || {
            let status = self.read_status()?;
            // An error means that the engine is halted or halts soon. The caller resets it (PG034).
            Ok((status.idle() || status.has_error()).then_some(status))
        })
    }

    /// Resets the engine and enters scatter-gather mode with the first descriptor at `first`. `highest` is the last address that its
    /// descriptors will use. For chains that the caller keeps in card memory; [`into_ring`](Self::into_ring) is the usual way.
    ///
    /// # Errors
    /// [`CdmaError::NoScatterGather`], [`CdmaError::Narrow`], [`CdmaError::Stuck`] and those of [`status`](Self::status).
    pub fn begin_chain(&self, first: CardAddr, highest: CardAddr) -> Result<(), Error<CdmaError>> {
        self.begin_chain_at(first, highest).at(|| self.place())
    }

    fn begin_chain_at(&self, first: CardAddr, highest: CardAddr) -> Result<(), CdmaError> {
        self.prepare_chain()?;
        let written = highest.to_low_high().1;
        let held = self.held_high(written)?;
        if held != written {
            return Err(CdmaError::Narrow { register: "destination address", held, written });
        }
        self.start_chain(first, CHAIN_CONTROL)
    }

    /// Confirms that the build has scatter-gather, and resets the engine.
    fn prepare_chain(&self) -> Result<(), CdmaError> {
        if !self.read_status()?.sg_included() {
            return Err(CdmaError::NoScatterGather);
        }
        self.reset_engine()
    }

    /// Returns the bits of `written` that the high word of an address register keeps.
    fn held_high(&self, written: u32) -> Result<u32, CdmaError> {
        CdmaBlock::DESTINATION_HIGH
            .write(&self.registers, BASE, written)
            .and_then(|()| CdmaBlock::DESTINATION_HIGH.read(&self.registers, BASE))
            .map_err(CdmaError::from)
    }

    /// Returns the number of address bits of the build, as far as its registers show: 32 plus the bits that a high word keeps. The engine
    /// must be idle.
    fn address_bits(&self) -> Result<u8, CdmaError> {
        let held = self.held_high(u32::MAX)?;
        // All 32 bits: a 64-bit build, or a card that does not answer.
        self.read_status()?;
        self.held_high(0)?;
        Ok(32 + u8::try_from(held.trailing_ones()).unwrap_or(0))
    }

    /// Enters scatter-gather mode after a reset, with the interrupts of `control`.
    fn start_chain(&self, first: CardAddr, control: Cdmacr) -> Result<(), CdmaError> {
        let (low, high) = first.to_low_high();
        let program = || -> Result<(), MmioError> {
            // The pointers reload when SGMode rises; it is low after the reset.
            CdmaBlock::CR.write(&self.registers, BASE, control.with_sg_mode(true))?;
            CdmaBlock::CURDESC_LOW.write(&self.registers, BASE, low)?;
            CdmaBlock::CURDESC_HIGH.write(&self.registers, BASE, high)
        };
        program().map_err(CdmaError::from)
    }

    /// Lets the engine of a [chain](Self::begin_chain) run up to and including the descriptor at `tail`.
    ///
    /// # Errors
    /// [`CdmaError::Cause`].
    pub fn extend_chain(&self, tail: CardAddr) -> Result<(), Error<CdmaError>> {
        self.advance(tail).at(|| self.place())
    }

    /// Resets the engine of a [chain](Self::begin_chain) that has halted and resumes it with the descriptor at `from`, up to and including
    /// the one at `tail` if there is one to run.
    ///
    /// # Errors
    /// [`CdmaError::Stuck`], [`CdmaError::Cause`].
    pub fn restart_chain(&self, from: CardAddr, tail: Option<CardAddr>) -> Result<(), Error<CdmaError>> {
        self.resume_chain(from, tail, CHAIN_CONTROL).at(|| self.place())
    }

    /// Returns the low word of the address of the descriptor at which the engine of a chain is (PG034, CURDESC_PNTR).
    ///
    /// # Errors
    /// [`CdmaError::Cause`].
    pub fn chain_position(&self) -> Result<u32, Error<CdmaError>> {
        self.current_low().at(|| self.place())
    }

    /// Resets an engine that has halted and resumes it with the descriptor at `from`, up to and including the one at `tail` if there is one
    /// to run.
    pub(crate) fn resume_chain(
        &self,
        from: CardAddr,
        tail: Option<CardAddr>,
        control: Cdmacr,
    ) -> Result<(), CdmaError> {
        self.reset_engine()?;
        self.start_chain(from, control)?;
        tail.map_or(Ok(()), |tail| self.advance(tail))
    }

    /// Lets the engine run up to and including the descriptor at `tail`. Writes the low word first, and always the high word: builds with
    /// more than 32 address bits start on it (PG034, TAILDESC_PNTR_MSB).
    pub(crate) fn advance(&self, tail: CardAddr) -> Result<(), CdmaError> {
        let (low, high) = tail.to_low_high();
        CdmaBlock::TAILDESC_LOW
            .write(&self.registers, BASE, low)
            .and_then(|()| CdmaBlock::TAILDESC_HIGH.write(&self.registers, BASE, high))
            .map_err(CdmaError::from)
    }
}

impl Cdma {
    /// Returns the low word of the current descriptor's address (PG034, CURDESC_PNTR).
    pub(crate) fn current_low(&self) -> Result<u32, CdmaError> {
        CdmaBlock::CURDESC_LOW.read(&self.registers, BASE).map_err(CdmaError::from)
    }

    /// Clears the completion and delay interrupts, so that the next one raises the line again.
    fn clear_interrupts(&self) -> Result<(), CdmaError> {
        CdmaBlock::SR.write(&self.registers, BASE, Cdmasr::INTERRUPTS).map_err(CdmaError::from)
    }
}

impl Drop for Cdma {
    /// Drops a chain in progress. The next owner finds the engine as after power-up.
    fn drop(&mut self) {
        if !self.card.process.is_current() {
            return;
        }
        let idle = self.read_status().map(|status| status.idle() && !status.has_error());
        if !matches!(idle, Ok(true)) {
            let _ = self.reset_without_wait();
        }
        self.card.release_cdma();
    }
}
