//! The card-internal copy engine, AXI CDMA (PG034): card memory to card memory.

use std::sync::Arc;

use fpga_pci::{Bar, MmioError};
use fpga_registers::cdma::{BytesToTransfer, CdmaBlock, Cdmacr, Cdmasr, MAX_LEN};
use fpga_registers::{BarOffset, CardAddr};

use crate::card::Shared;
use crate::error::CardName;

/// How long a reset may take. It waits for the AXI transfer under way; a slave that never answers never lets go.
const RESET_LIMIT_NS: u64 = 100_000_000;
/// How long a copy of the longest piece (64 MiB) may take: 64 MB/s is far below any memory.
const COPY_LIMIT_NS: u64 = 1_000_000_000;
/// Largest piece of a long copy, 32 MiB: below the 26-bit limit and a multiple of every data width, so that the pieces after the first
/// are as aligned as the first.
const PIECE: u64 = 1 << 25;
const _: () = assert!(PIECE <= MAX_LEN as u64);

/// A copy or the engine's set-up failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaError {
    /// A range ends beyond the address space.
    #[error("{card} CDMA: {length} bytes from {start} leave the card's address space; give a shorter length")]
    AddressRange {
        /// Which card.
        card: CardName,
        /// First address.
        start: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// A range ends behind the card's memory.
    #[error(
        "{card} CDMA: {length} bytes at {start} end behind the card's memory; `fpgactl info` shows where it is"
    )]
    CardMemory {
        /// Which card.
        card: CardName,
        /// First address.
        start: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// Source and destination overlap: the engine reads ahead, so the result would be undefined.
    #[error(
        "{card} CDMA: {length} bytes from {source_start} to {destination} overlap; copy through another place"
    )]
    Overlap {
        /// Which card.
        card: CardName,
        /// First source address.
        source_start: CardAddr,
        /// First destination address.
        destination: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// The engine halted with an error and was reset.
    #[error(
        "{card} CDMA: copy of {length} bytes from {source_start} to {destination} failed after {done} bytes: {status}; the engine was reset and can be used again"
    )]
    Engine {
        /// Which card.
        card: CardName,
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Bytes of the whole copy.
        length: u64,
        /// Bytes that were copied for certain.
        done: u64,
        /// The status register.
        status: Cdmasr,
    },
    /// The engine does not become idle, or its reset does not end.
    #[error(
        "{card} CDMA: {what} did not end within {waited_ms} ms (status {status}); an AXI slave does not answer: reset the card"
    )]
    Stuck {
        /// Which card.
        card: CardName,
        /// What.
        what: &'static str,
        /// How long it was given, in milliseconds.
        waited_ms: u64,
        /// The status register.
        status: Cdmasr,
    },
    /// Every register reads as all ones.
    #[error("{card} CDMA: the card is gone (registers read as all ones); reopen it when it is back")]
    Gone {
        /// Which card.
        card: CardName,
    },
    /// The build has no scatter-gather engine.
    #[error(
        "{card} CDMA: built without scatter-gather, which the network interface needs; load a bitstream with it"
    )]
    NoScatterGather {
        /// Which card.
        card: CardName,
    },
    /// A register access failed.
    #[error("{card} CDMA: {source}")]
    Mmio {
        /// Which card.
        card: CardName,
        /// What failed.
        source: MmioError,
    },
}

/// The CDMA engine of a card. One owner at a time.
#[derive(Debug)]
pub struct Cdma {
    registers: Bar,
    card: Arc<Shared>,
}

const BASE: BarOffset = BarOffset::ZERO;

impl Cdma {
    pub(crate) const fn new(card: Arc<Shared>, registers: Bar) -> Self {
        Self { registers, card }
    }

    fn name(&self) -> CardName {
        self.card.name.clone()
    }

    fn mmio(&self, source: MmioError) -> CdmaError {
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
        let error = |source| self.mmio(source);
        CdmaBlock::CR.write(&self.registers, BASE, Cdmacr::new().with_reset(true)).map_err(error)?;
        let began = self.card.transport.now();
        loop {
            let control = CdmaBlock::CR.read(&self.registers, BASE).map_err(error)?;
            if control.into_bits() == u32::MAX {
                return Err(CdmaError::Gone { card: self.name() });
            }
            if !control.reset() {
                return Ok(());
            }
            self.within(began, RESET_LIMIT_NS, "a reset")?;
        }
    }

    fn within(&self, began: u64, limit: u64, what: &'static str) -> Result<(), CdmaError> {
        let waited = self.card.transport.now().saturating_sub(began);
        if waited < limit {
            self.card.transport.relax();
            return Ok(());
        }
        Err(CdmaError::Stuck {
            card: self.name(),
            what,
            waited_ms: waited / 1_000_000,
            status: self.status()?,
        })
    }

    fn wait_idle(&self, limit: u64, what: &'static str) -> Result<Cdmasr, CdmaError> {
        let began = self.card.transport.now();
        loop {
            let status = self.status()?;
            // Idle after an error means halted: errors end in a reset (PG034), by the caller.
            if status.idle() {
                return Ok(status);
            }
            self.within(began, limit, what)?;
        }
    }

    /// Copies `length` bytes from `source` to `destination` and waits until they are there. Longer copies than one
    /// transfer can be (64 MiB - 1) are cut.
    ///
    /// # Errors
    /// [`CdmaError`]. After [`CdmaError::Engine`] the engine has been reset and can be used again.
    pub fn copy(&mut self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        self.check(source, destination, length)?;
        let idle = self.wait_idle(COPY_LIMIT_NS, "the copy before")?;
        if idle.has_error() {
            self.reset()?;
        }
        let control = CdmaBlock::CR.read(&self.registers, BASE).map_err(|source| self.mmio(source))?;
        if control.sg_mode() {
            CdmaBlock::CR
                .write(&self.registers, BASE, control.with_sg_mode(false))
                .map_err(|source| self.mmio(source))?;
        }
        let mut done = 0;
        while done < length {
            let piece = PIECE.min(length - done);
            let (from, to) = (source.get() + done, destination.get() + done);
            self.start(CardAddr::new(from), CardAddr::new(to), piece).map_err(|source| self.mmio(source))?;
            let status = self.wait_idle(COPY_LIMIT_NS, "a copy")?;
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
            done += piece;
        }
        Ok(())
    }

    fn start(&self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), MmioError> {
        let (low, high) = source.to_low_high();
        CdmaBlock::SOURCE_LOW.write(&self.registers, BASE, low)?;
        CdmaBlock::SOURCE_HIGH.write(&self.registers, BASE, high)?;
        let (low, high) = destination.to_low_high();
        CdmaBlock::DESTINATION_LOW.write(&self.registers, BASE, low)?;
        CdmaBlock::DESTINATION_HIGH.write(&self.registers, BASE, high)?;
        let bytes = u32::try_from(length).unwrap_or(MAX_LEN);
        CdmaBlock::BTT.write(&self.registers, BASE, BytesToTransfer::new().with_bytes(bytes))
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

    /// Resets the engine and puts it into scatter-gather mode with the first descriptor at `first`.
    pub(crate) fn begin_chain(&self, first: CardAddr) -> Result<(), CdmaError> {
        if !self.status()?.sg_included() {
            return Err(CdmaError::NoScatterGather { card: self.name() });
        }
        self.reset()?;
        let (low, high) = first.to_low_high();
        let program = || -> Result<(), MmioError> {
            // The pointers reload when SGMode rises; after the reset it is low.
            CdmaBlock::CR.write(
                &self.registers,
                BASE,
                Cdmacr::new().with_sg_mode(true).with_irq_threshold(1),
            )?;
            CdmaBlock::CURDESC_LOW.write(&self.registers, BASE, low)?;
            CdmaBlock::CURDESC_HIGH.write(&self.registers, BASE, high)
        };
        program().map_err(|source| self.mmio(source))
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

impl Drop for Cdma {
    /// A chain under way is dropped; the engine is as after power-up for its next owner.
    fn drop(&mut self) {
        let idle = self.status().map(|status| status.idle() && !status.has_error());
        if !matches!(idle, Ok(true)) {
            let _ = self.reset();
        }
        self.card.give_back_cdma();
    }
}
