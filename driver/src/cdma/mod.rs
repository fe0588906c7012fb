//! The card-internal copy engine, AXI CDMA (PG034): card memory to card memory.
//!
//! | To | Use |
//! |---|---|
//! | copy and wait, on any build | [`Cdma::copy`], [`Cdma::copy_with_timeout`] |
//! | keep many copies in flight, or copy scattered pieces as one | [`Cdma::into_ring`], [`CdmaRing`] (builds with scatter-gather) |
//!
//! The engine has both modes or the simple one alone; it is in one at a time, and switches only while idle. That is why the ring
//! takes the [`Cdma`] and gives it back. What a build without data realignment cannot move goes through host memory, where channels for
//! that are lent ([`Cdma::set_bounce_channels`]).

mod bounce;
mod error;
mod options;
mod path;
mod recover;
mod ring;
mod wait;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use fpga_pci::{Bar, MmioError};
use fpga_registers::cdma::{BytesToTransfer, CdmaBlock, Cdmacr, Cdmasr};
use fpga_registers::{BarOffset, CardAddr};
use fpga_ring::cdma_ring::CopyEntry;

use crate::name::CardName;
use crate::shared::Shared;
use crate::wait::poll_until;

pub use error::{
    BounceRefused, CdmaError, CdmaFault, CdmaFaultCause, CdmaFaultPosition, CdmaRefused, CdmaRingError,
    CdmaRingRefused, CdmaSubmitError,
};
pub use options::{CdmaRingOptions, DescriptorPath};
pub use ring::{CdmaCompletion, CdmaRing};

/// How long a copy of the longest piece (4 MiB) may take: 4 MB/s is far below any memory.
const COPY_LIMIT_NS: u64 = 1_000_000_000;
/// Minimum time for a reset.
const MIN_RESET_NS: u64 = 25_000_000;
/// Largest piece of a long copy: 4 MiB fits the 23-bit length of older builds as well as the 26-bit one, and is a multiple of
/// every data width, so that the pieces after the first are as aligned as the first.
const CHUNK_BYTES: u32 = 1 << 22;

/// The CDMA engine of a card. One owner at a time.
#[derive(Debug)]
pub struct Cdma {
    registers: Bar,
    /// For what the engine cannot move.
    bounce: Option<bounce::BounceChannels>,
    /// A reset was given its time and did not end.
    stuck: AtomicBool,
    card: Arc<Shared>,
}

/// The control register of a chain that nobody waits for by interrupt, but for the mode.
pub(crate) const CHAIN_CONTROL: Cdmacr = Cdmacr::new().with_irq_threshold(1);

const BASE: BarOffset = BarOffset::ZERO;

impl Cdma {
    pub(crate) const fn new(card: Arc<Shared>, registers: Bar) -> Self {
        Self { registers, bounce: None, stuck: AtomicBool::new(false), card }
    }

    pub(crate) fn name(&self) -> CardName {
        self.card.name.clone()
    }

    pub(crate) fn mmio(&self, source: MmioError) -> CdmaError {
        CdmaError::Mmio { card: self.name(), source }
    }

    /// The status register.
    ///
    /// # Errors
    /// [`CdmaError::Gone`], [`CdmaError::Mmio`].
    pub fn status(&self) -> Result<Cdmasr, CdmaError> {
        let status = CdmaBlock::SR.read(&self.registers, BASE).map_err(|source| self.mmio(source))?;
        if status.into_bits() == u32::MAX {
            return Err(CdmaError::Gone { card: self.name() });
        }
        Ok(status)
    }

    /// Resets the engine: the only way out of an error (PG034).
    ///
    /// # Errors
    /// [`CdmaError::Stuck`] if the reset does not end.
    pub fn reset(&self) -> Result<(), CdmaError> {
        self.reset_within(self.card.idle_timeout())
    }

    /// As [`reset`](Self::reset), after a copy that took all of its `limit` nanoseconds: an engine that is not reset within a tenth of
    /// that time hangs.
    fn reset_after(&self, limit: u64) -> Result<(), CdmaError> {
        self.reset_within((limit / 10).max(MIN_RESET_NS).min(self.card.idle_timeout()))
    }

    /// As [`reset`](Self::reset), before the engine is given up: one that was given its time once is not waited for again, as
    /// whoever closes the card wants to get on.
    fn reset_without_wait(&self) -> Result<(), CdmaError> {
        self.reset_within(if self.stuck.load(Ordering::Relaxed) { 0 } else { self.card.idle_timeout() })
    }

    fn reset_within(&self, limit: u64) -> Result<(), CdmaError> {
        let error = |source| self.mmio(source);
        CdmaBlock::CR.write(&self.registers, BASE, Cdmacr::new().with_reset(true)).map_err(error)?;
        let ended = self.within(limit, "a reset", || {
            let control = CdmaBlock::CR.read(&self.registers, BASE).map_err(error)?;
            if control.into_bits() == u32::MAX {
                return Err(CdmaError::Gone { card: self.name() });
            }
            Ok((!control.reset()).then_some(()))
        });
        self.stuck.store(matches!(ended, Err(CdmaError::Stuck { .. })), Ordering::Relaxed);
        ended
    }

    /// Looks until there is something to see, for `limit` nanoseconds at most.
    fn within<T>(
        &self,
        limit: u64,
        what: &'static str,
        mut look: impl FnMut() -> Result<Option<T>, CdmaError>,
    ) -> Result<T, CdmaError> {
        let seen = poll_until(&*self.card.transport, limit, |_| look())?;
        seen.or_else(|waited| {
            let waited_ms = waited / 1_000_000;
            Err(CdmaError::Stuck { card: self.name(), what, waited_ms, status: self.status()? })
        })
    }

    fn wait_idle(&self, limit: u64, what: &'static str) -> Result<Cdmasr, CdmaError> {
        self.within(limit, what, || {
            let status = self.status()?;
            // An error means halted, now or soon, and ends in a reset (PG034), by the caller.
            Ok((status.idle() || status.has_error()).then_some(status))
        })
    }

    /// Copies `length` bytes from `source` to `destination` and waits until they are there. A long copy is cut into pieces
    /// of 4 MiB; there is no limit of time on the whole.
    ///
    /// Where the build has no data realignment, both addresses have to be multiples of its data width, or channels lent
    /// ([`set_bounce_channels`](Self::set_bounce_channels)).
    ///
    /// # Errors
    /// [`CdmaError`]. After [`CdmaError::Engine`] the engine has been reset and can be used again.
    pub fn copy(&mut self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        self.copy_until(source, destination, length, None)
    }

    /// As [`copy`](Self::copy), but gives up after `timeout`.
    ///
    /// # Errors
    /// As `copy`; [`CdmaError::TimedOut`] says how much was copied. The engine has been reset then and can be used again.
    pub fn copy_with_timeout(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
        timeout: Duration,
    ) -> Result<(), CdmaError> {
        let limit = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.copy_until(source, destination, length, Some(limit))
    }

    /// Copies within `limit` nanoseconds.
    fn copy_until(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
        limit: Option<u64>,
    ) -> Result<(), CdmaError> {
        self.check(source, destination, length)?;
        self.check_width(source, destination, length)?;
        let began = self.card.transport.now();
        let whole = CopyEntry::new(source, destination, length);
        let mut done = self.bounce(&whole, limit.map(|limit| (began, limit)))?;
        if done != 0 && done == length {
            return Ok(());
        }
        let passed = || self.card.transport.now().saturating_sub(began);
        let left = || limit.map_or(u64::MAX, |limit| limit.saturating_sub(passed()));
        let idle = self.wait_idle(COPY_LIMIT_NS.min(left()), "the copy before")?;
        if idle.has_error() {
            self.reset()?;
        }
        // All of the control register: an earlier owner may have left scatter-gather, keyhole or cyclic mode on.
        CdmaBlock::CR
            .write(&self.registers, BASE, Cdmacr::new().with_irq_threshold(1))
            .map_err(|source| self.mmio(source))?;
        while done < length {
            let piece = u32::try_from(length - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let (from, to) = (source.get() + done, destination.get() + done);
            self.start(CardAddr::new(from), CardAddr::new(to), piece)?;
            let left = left();
            // A piece that takes longer than any memory needs is stuck, whatever the caller's patience.
            let waited = self.wait_idle(COPY_LIMIT_NS.min(left), "a copy");
            let out_of_time = limit.is_some_and(|limit| passed() >= limit);
            let status = match waited {
                Err(CdmaError::Stuck { .. }) if left < COPY_LIMIT_NS => None,
                Ok(status) if out_of_time && !status.has_error() => {
                    done += u64::from(piece);
                    if done == length {
                        return Ok(());
                    }
                    None
                }
                waited => Some(waited?),
            };
            let Some(status) = status else {
                self.reset_after(limit.unwrap_or(u64::MAX))?;
                return Err(CdmaError::TimedOut {
                    card: self.name(),
                    source_start: source,
                    destination,
                    length,
                    done,
                    waited_ms: passed() / 1_000_000,
                });
            };
            if status.has_error() {
                self.reset()?;
                return Err(CdmaError::Engine {
                    card: self.name(),
                    source_start: source,
                    destination,
                    length,
                    done,
                    status,
                });
            }
            done += u64::from(piece);
        }
        Ok(())
    }

    /// Starts one piece. High words are read back where they matter: a build with narrower addresses would drop them and copy
    /// from or to somewhere else.
    fn start(&self, source: CardAddr, destination: CardAddr, length: u32) -> Result<(), CdmaError> {
        let mmio = |source| self.mmio(source);
        let addresses = [
            ("source address", CdmaBlock::SOURCE_LOW, CdmaBlock::SOURCE_HIGH, source),
            ("destination address", CdmaBlock::DESTINATION_LOW, CdmaBlock::DESTINATION_HIGH, destination),
        ];
        for (register, low, high, address) in addresses {
            let (low_word, written) = address.to_low_high();
            low.write(&self.registers, BASE, low_word).map_err(mmio)?;
            high.write(&self.registers, BASE, written).map_err(mmio)?;
            if written != 0 {
                let held = high.read(&self.registers, BASE).map_err(mmio)?;
                if held != written {
                    return Err(CdmaError::Narrow { card: self.name(), register, held, written });
                }
            }
        }
        // A piece is far below the register's 26 bits and never empty.
        let bytes = BytesToTransfer::of(length).unwrap_or_default();
        CdmaBlock::BTT.write(&self.registers, BASE, bytes).map_err(mmio)?;
        let held = CdmaBlock::BTT.read(&self.registers, BASE).map_err(mmio)?.bytes();
        if held != length {
            // The engine has started with what it kept.
            self.reset()?;
            return Err(CdmaError::Narrow { card: self.name(), register: "length", held, written: length });
        }
        Ok(())
    }

    fn check(&self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        for start in [source, destination] {
            if start.checked_add(length).is_none() {
                return Err(CdmaError::AddressRange { card: self.name(), start, length });
            }
            let Some(ranges) = self.card.reachable() else { continue };
            if !ranges.iter().any(|range| range.contains(start, length)) {
                return Err(CdmaError::CardMemory { card: self.name(), start, length });
            }
        }
        let apart = source.get().abs_diff(destination.get());
        if apart < length {
            return Err(CdmaError::Overlap { card: self.name(), source_start: source, destination, length });
        }
        Ok(())
    }

    /// Checks a copy that crosses a multiple of 4 GiB against the width of the address registers, before its first piece. A copy that does
    /// not is checked by [`start`](Self::start): all its addresses have the same high word.
    fn check_width(&self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        let mmio = |source| self.mmio(source);
        let addresses = [
            ("source address", CdmaBlock::SOURCE_HIGH, source),
            ("destination address", CdmaBlock::DESTINATION_HIGH, destination),
        ];
        for (register, high, start) in addresses {
            // The range ends inside the address space.
            let last = CardAddr::new(start.get().saturating_add(length.saturating_sub(1)));
            let written = last.to_low_high().1;
            if written == start.to_low_high().1 {
                continue;
            }
            self.wait_idle(COPY_LIMIT_NS, "the copy before")?;
            high.write(&self.registers, BASE, written).map_err(mmio)?;
            let held = high.read(&self.registers, BASE).map_err(mmio)?;
            if held != written {
                return Err(CdmaError::Narrow { card: self.name(), register, held, written });
            }
        }
        Ok(())
    }

    /// Resets the engine and puts it into scatter-gather mode with the first descriptor at `first`. `highest`: the last address
    /// that its descriptors will name.
    pub(crate) fn begin_chain(&self, first: CardAddr, highest: CardAddr) -> Result<(), CdmaError> {
        self.prepare_chain()?;
        let written = highest.to_low_high().1;
        let held = self.held_high(written)?;
        if held != written {
            return Err(CdmaError::Narrow {
                card: self.name(),
                register: "destination address",
                held,
                written,
            });
        }
        self.start_chain(first, CHAIN_CONTROL)
    }

    /// Confirms that there is scatter-gather, and resets the engine.
    fn prepare_chain(&self) -> Result<(), CdmaError> {
        if !self.status()?.sg_included() {
            return Err(CdmaError::NoScatterGather { card: self.name() });
        }
        self.reset()
    }

    /// What an address register's high word keeps of `written`.
    fn held_high(&self, written: u32) -> Result<u32, CdmaError> {
        CdmaBlock::DESTINATION_HIGH
            .write(&self.registers, BASE, written)
            .and_then(|()| CdmaBlock::DESTINATION_HIGH.read(&self.registers, BASE))
            .map_err(|source| self.mmio(source))
    }

    /// Address bits of the build, as far as its registers show: those above 32 that a high word keeps. The engine is idle.
    fn address_bits(&self) -> Result<u8, CdmaError> {
        let held = self.held_high(u32::MAX)?;
        // All 32: a 64-bit build, or nobody there.
        self.status()?;
        self.held_high(0)?;
        Ok(32 + u8::try_from(held.trailing_ones()).unwrap_or(0))
    }

    /// Enters scatter-gather mode after a reset, with these interrupts.
    fn start_chain(&self, first: CardAddr, control: Cdmacr) -> Result<(), CdmaError> {
        let (low, high) = first.to_low_high();
        let program = || -> Result<(), MmioError> {
            // The pointers reload when SGMode rises; after the reset it is low.
            CdmaBlock::CR.write(&self.registers, BASE, control.with_sg_mode(true))?;
            CdmaBlock::CURDESC_LOW.write(&self.registers, BASE, low)?;
            CdmaBlock::CURDESC_HIGH.write(&self.registers, BASE, high)
        };
        program().map_err(|source| self.mmio(source))
    }

    /// Resets an engine that has halted, and lets it go on with the descriptor at `from`, up to and including the one at `tail` if
    /// there is one to run.
    pub(crate) fn resume_chain(
        &self,
        from: CardAddr,
        tail: Option<CardAddr>,
        control: Cdmacr,
    ) -> Result<(), CdmaError> {
        self.reset()?;
        self.start_chain(from, control)?;
        tail.map_or(Ok(()), |tail| self.advance(tail))
    }

    /// Lets the engine run up to and including the descriptor at `tail`. Low word first, and always the high word: builds with
    /// more than 32 address bits start on it (PG034, TAILDESC_PNTR_MSB).
    pub(crate) fn advance(&self, tail: CardAddr) -> Result<(), CdmaError> {
        let (low, high) = tail.to_low_high();
        CdmaBlock::TAILDESC_LOW
            .write(&self.registers, BASE, low)
            .and_then(|()| CdmaBlock::TAILDESC_HIGH.write(&self.registers, BASE, high))
            .map_err(|source| self.mmio(source))
    }
}

impl Cdma {
    /// Low word of the current descriptor's address (PG034, CURDESC_PNTR).
    pub(crate) fn current_low(&self) -> Result<u32, CdmaError> {
        CdmaBlock::CURDESC_LOW.read(&self.registers, BASE).map_err(|source| self.mmio(source))
    }

    /// Clears the completion and delay interrupts, so that the next one raises the line again.
    fn clear_interrupts(&self) -> Result<(), CdmaError> {
        CdmaBlock::SR.write(&self.registers, BASE, Cdmasr::INTERRUPTS).map_err(|source| self.mmio(source))
    }
}

/// The one error of an engine that met a descriptor marked complete: a used one, or a guard.
///
/// Where the address registers are wider than 32 bits a new tail takes two writes, of which the second starts an engine that is at rest
/// (PG034, TAILDESC_PNTR_MSB). One that reaches the new tail between the two is started once too often, and runs on behind it.
pub(crate) const fn is_overrun(status: Cdmasr) -> bool {
    status.into_bits() & Cdmasr::ERRORS.into_bits() == Cdmasr::new().with_sg_internal_error(true).into_bits()
}

impl Drop for Cdma {
    /// A chain under way is dropped; the engine is as after power-up for its next owner.
    fn drop(&mut self) {
        let idle = self.status().map(|status| status.idle() && !status.has_error());
        if !matches!(idle, Ok(true)) {
            let _ = self.reset_without_wait();
        }
        self.card.release_cdma();
    }
}
