//! The card-internal copy engine, AXI CDMA (PG034): card memory to card memory.

use std::sync::Arc;

use fpga_pci::{Bar, MmioError};
use fpga_registers::cdma::{BytesToTransfer, CdmaBlock, Cdmacr, Cdmasr};
use fpga_registers::{BarOffset, CardAddr};

use crate::name::CardName;
use crate::shared::Shared;

/// How long a reset may take. It waits for the AXI transfer under way; a slave that never answers never lets go.
const RESET_LIMIT_NS: u64 = 100_000_000;
/// How long a copy of the longest piece (4 MiB) may take: 4 MB/s is far below any memory.
const COPY_LIMIT_NS: u64 = 1_000_000_000;
/// Largest piece of a long copy: 4 MiB fits the 23-bit length of older builds as well as the 26-bit one, and is a multiple of
/// every data width, so that the pieces after the first are as aligned as the first.
const PIECE: u32 = 1 << 22;

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
    /// An address or length register does not hold what was written: the build is narrower.
    #[error(
        "{card} CDMA: the build's {register} register holds {held:#x} of {written:#x}: the copy needs a build with wider addresses or lengths; nothing was copied past what came before it"
    )]
    Narrow {
        /// Which card.
        card: CardName,
        /// Which register.
        register: &'static str,
        /// What it holds.
        held: u32,
        /// What was written.
        written: u32,
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
            // An error means halted, now or soon, and ends in a reset (PG034), by the caller.
            if status.idle() || status.has_error() {
                return Ok(status);
            }
            self.within(began, limit, what)?;
        }
    }

    /// Copies `length` bytes from `source` to `destination` and waits until they are there. A long copy is cut into pieces
    /// of 4 MiB.
    ///
    /// # Errors
    /// [`CdmaError`]. After [`CdmaError::Engine`] the engine has been reset and can be used again.
    pub fn copy(&mut self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        self.check(source, destination, length)?;
        let idle = self.wait_idle(COPY_LIMIT_NS, "the copy before")?;
        if idle.has_error() {
            self.reset()?;
        }
        // All of the control register: an earlier owner may have left scatter-gather, keyhole or cyclic mode on.
        CdmaBlock::CR
            .write(&self.registers, BASE, Cdmacr::new().with_irq_threshold(1))
            .map_err(|source| self.mmio(source))?;
        let mut done = 0;
        while done < length {
            let piece = u32::try_from(length - done).unwrap_or(PIECE).min(PIECE);
            let (from, to) = (source.get() + done, destination.get() + done);
            self.start(CardAddr::new(from), CardAddr::new(to), piece)?;
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

    /// Resets the engine and puts it into scatter-gather mode with the first descriptor at `first`. `highest`: the last address
    /// that its descriptors will name.
    pub(crate) fn begin_chain(&self, first: CardAddr, highest: CardAddr) -> Result<(), CdmaError> {
        if !self.status()?.sg_included() {
            return Err(CdmaError::NoScatterGather { card: self.name() });
        }
        self.reset()?;
        let written = highest.to_low_high().1;
        CdmaBlock::DESTINATION_HIGH
            .write(&self.registers, BASE, written)
            .map_err(|source| self.mmio(source))?;
        let held =
            CdmaBlock::DESTINATION_HIGH.read(&self.registers, BASE).map_err(|source| self.mmio(source))?;
        if held != written {
            return Err(CdmaError::Narrow {
                card: self.name(),
                register: "destination address",
                held,
                written,
            });
        }
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
