//! AXI CDMA (PG034): the engine that copies card memory to card memory.
//!
//! | To | Use |
//! |---|---|
//! | copy and wait, on every build | [`Cdma::copy`], [`Cdma::copy_with_timeout`] |
//! | keep many copies in flight, or copy a list of segments as one | [`Cdma::into_ring`], [`CdmaRing`] (builds with scatter-gather) |
//!
//! The engine has simple mode, and in some builds scatter-gather mode. It is in one mode at a time and switches only while idle. Therefore
//! the ring takes the [`Cdma`] and returns it. Bytes that a build without data realignment cannot move go through host memory, if channels
//! are lent for them ([`Cdma::set_bounce_channels`]).

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
use fpga_pci::poll_until;

pub use error::{CdmaError, CdmaFault, CdmaFaultCause, CdmaFaultPosition, CdmaRingError, CdmaSubmitError};
pub use options::{CdmaRingOptions, DescriptorPath};
pub use ring::{CdmaCompletion, CdmaRing};

/// Maximum time for a copy of the longest chunk (4 MiB), in nanoseconds: 4 MB/s is far below any memory.
const COPY_LIMIT_NS: u64 = 1_000_000_000;
/// Minimum time for a reset, in nanoseconds.
const MIN_RESET_NS: u64 = 25_000_000;
/// Maximum chunk of a long copy: 4 MiB fits the 23-bit length of older builds as well as the 26-bit one. It is a multiple of every data
/// width, so all chunks have the alignment of the first one.
const CHUNK_BYTES: u32 = 1 << 22;

/// CDMA engine of a card. It has one owner at a time.
#[derive(Debug)]
pub struct Cdma {
    registers: Bar,
    /// Channels for bytes that the engine cannot move.
    bounce: Option<bounce::BounceChannels>,
    /// A reset timed out.
    stuck: AtomicBool,
    card: Arc<Shared>,
}

/// Control register of a chain that is polled, without the mode bit.
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

    /// Reads the status register.
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

    /// Resets the engine, which is the only way to leave an error (PG034).
    ///
    /// # Errors
    /// [`CdmaError::Stuck`] if the reset does not complete.
    pub fn reset(&self) -> Result<(), CdmaError> {
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

    /// Polls until `look` returns a value, for at most `limit` nanoseconds.
    fn within<T>(
        &self,
        limit: u64,
        what: &'static str,
        mut look: impl FnMut() -> Result<Option<T>, CdmaError>,
    ) -> Result<T, CdmaError> {
        let seen = poll_until(&*self.card.backend, limit, |_| look())?;
        seen.or_else(|waited| {
            let waited_ms = waited / 1_000_000;
            Err(CdmaError::Stuck { card: self.name(), what, waited_ms, status: self.status()? })
        })
    }

    fn wait_idle(&self, limit: u64, what: &'static str) -> Result<Cdmasr, CdmaError> {
        self.within(limit, what, || {
            let status = self.status()?;
            // An error means that the engine is halted or halts soon. The caller resets it (PG034).
            Ok((status.idle() || status.has_error()).then_some(status))
        })
    }

    /// Copies `length` bytes from `source` to `destination` and waits until the copy has ended. A long copy is split into chunks of 4 MiB.
    /// There is no time limit for the whole copy.
    ///
    /// On a build without data realignment, both addresses must be multiples of its data width, or channels must be lent
    /// ([`set_bounce_channels`](Self::set_bounce_channels)).
    ///
    /// # Errors
    /// [`CdmaError`]. After [`CdmaError::Engine`] the engine was reset and can be used again.
    pub fn copy(&mut self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        self.copy_until(source, destination, length, None)
    }

    /// As [`copy`](Self::copy), with a time limit of `timeout`.
    ///
    /// # Errors
    /// As `copy`; [`CdmaError::TimedOut`] has the number of bytes copied. The engine was reset then and can be used again.
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
        let began = self.card.backend.now();
        let whole = CopyEntry::new(source, destination, length);
        let mut done = self.bounce(&whole, limit.map(|limit| (began, limit)))?;
        if done != 0 && done == length {
            return Ok(());
        }
        let passed = || self.card.backend.now().saturating_sub(began);
        let left = || limit.map_or(u64::MAX, |limit| limit.saturating_sub(passed()));
        let idle = self.wait_idle(COPY_LIMIT_NS.min(left()), "the copy before")?;
        if idle.has_error() {
            self.reset()?;
        }
        // Write the whole control register: an earlier owner may have left scatter-gather, keyhole or cyclic mode enabled.
        CdmaBlock::CR
            .write(&self.registers, BASE, Cdmacr::new().with_irq_threshold(1))
            .map_err(|source| self.mmio(source))?;
        while done < length {
            let piece = u32::try_from(length - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let (from, to) = (source.get() + done, destination.get() + done);
            self.start(CardAddr::new(from), CardAddr::new(to), piece)?;
            let left = left();
            // A chunk that takes longer than any memory needs is stuck, regardless of the caller's timeout.
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

    /// Starts one chunk. High address words are read back where they matter: a build with narrower addresses would drop them and copy from
    /// or to another address.
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
        // A chunk is far below the register's 26 bits and never empty.
        let bytes = BytesToTransfer::of(length).unwrap_or_default();
        CdmaBlock::BTT.write(&self.registers, BASE, bytes).map_err(mmio)?;
        let held = CdmaBlock::BTT.read(&self.registers, BASE).map_err(mmio)?.bytes();
        if held != length {
            // The engine has started with the truncated length.
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

    /// Checks a copy that crosses a multiple of 4 GiB against the width of the address registers, before its first chunk. Any other copy is
    /// checked by [`start`](Self::start), because all its addresses have the same high word.
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

    /// Resets the engine and enters scatter-gather mode with the first descriptor at `first`. `highest` is the last address that its
    /// descriptors will use.
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

    /// Confirms that the build has scatter-gather, and resets the engine.
    fn prepare_chain(&self) -> Result<(), CdmaError> {
        if !self.status()?.sg_included() {
            return Err(CdmaError::NoScatterGather { card: self.name() });
        }
        self.reset()
    }

    /// Returns the bits of `written` that the high word of an address register keeps.
    fn held_high(&self, written: u32) -> Result<u32, CdmaError> {
        CdmaBlock::DESTINATION_HIGH
            .write(&self.registers, BASE, written)
            .and_then(|()| CdmaBlock::DESTINATION_HIGH.read(&self.registers, BASE))
            .map_err(|source| self.mmio(source))
    }

    /// Returns the number of address bits of the build, as far as its registers show: 32 plus the bits that a high word keeps. The engine
    /// must be idle.
    fn address_bits(&self) -> Result<u8, CdmaError> {
        let held = self.held_high(u32::MAX)?;
        // All 32 bits: a 64-bit build, or a card that does not answer.
        self.status()?;
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
        program().map_err(|source| self.mmio(source))
    }

    /// Resets an engine that has halted and resumes it with the descriptor at `from`, up to and including the one at `tail` if there is one
    /// to run.
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

    /// Lets the engine run up to and including the descriptor at `tail`. Writes the low word first, and always the high word: builds with
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
    /// Returns the low word of the current descriptor's address (PG034, CURDESC_PNTR).
    pub(crate) fn current_low(&self) -> Result<u32, CdmaError> {
        CdmaBlock::CURDESC_LOW.read(&self.registers, BASE).map_err(|source| self.mmio(source))
    }

    /// Clears the completion and delay interrupts, so that the next one raises the line again.
    fn clear_interrupts(&self) -> Result<(), CdmaError> {
        CdmaBlock::SR.write(&self.registers, BASE, Cdmasr::INTERRUPTS).map_err(|source| self.mmio(source))
    }
}

/// Returns whether the only error is that the engine reached a descriptor marked complete: a used one, or a guard.
///
/// If the address registers are wider than 32 bits, a new tail takes two writes, and the second one starts an idle engine (PG034,
/// TAILDESC_PNTR_MSB). An engine that reaches the new tail between the two writes is started once too often, and runs past the tail.
pub(crate) const fn is_overrun(status: Cdmasr) -> bool {
    status.into_bits() & Cdmasr::ERRORS.into_bits() == Cdmasr::new().with_sg_internal_error(true).into_bits()
}

impl Drop for Cdma {
    /// Drops a chain in progress. The next owner finds the engine as after power-up.
    fn drop(&mut self) {
        let idle = self.status().map(|status| status.idle() && !status.has_error());
        if !matches!(idle, Ok(true)) {
            let _ = self.reset_without_wait();
        }
        self.card.release_cdma();
    }
}
