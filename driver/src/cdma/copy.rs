//! Copies in simple mode: one start of the engine per chunk.

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use core::time::Duration;
use fpga_registers::invariant::DebugExpect as _;

use fpga_registers::CardAddr;
use fpga_registers::cdma::{BytesToTransfer, CdmaBlock, Cdmacr};
use fpga_ring::cdma_ring::{CopyEntry, LENGTH_BITS};

use super::error::{CdmaError, CopyFault};
use super::{BASE, Cdma, MAX_DATA_BYTES};
use crate::error::{At as _, Error};
use crate::shared::Shared;

/// Maximum time for a copy of the longest chunk (4 MiB), in nanoseconds: 4 MB/s is far below any memory.
const COPY_LIMIT_NS: u64 = 1_000_000_000;
/// Interval in nanoseconds in which the caller of a copy is asked whether to stop.
const PROGRESS_INTERVAL_NS: u64 = 10_000_000;
/// Maximum chunk of a long copy: 4 MiB fits the 23-bit length of older builds as well as the 26-bit one. It is a multiple of every data
/// width, so all chunks have the alignment of the first one.
pub(super) const CHUNK_BYTES: u32 = 1 << 22;

/// Start and time limit of a copy, in nanoseconds of the card's clock.
#[derive(Debug, Clone, Copy)]
struct CopyTime {
    began: u64,
    limit: Option<u64>,
}

impl CopyTime {
    fn passed(self, card: &Shared) -> u64 {
        card.backend.now().saturating_sub(self.began)
    }

    fn left(self, card: &Shared) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.passed(card)))
    }
}

impl Cdma {
    /// Width of the length field that a new handle assumes, in bits: every build has it (PG034).
    pub const ASSUMED_LENGTH_BITS: u8 = LENGTH_BITS;

    /// Copies `length` bytes from `source` to `destination` and waits until the copy has ended. A long copy is split into chunks of 4 MiB,
    /// which fit the length register of every build (PG034: 23 bits, 26 from version 4.1 on). Each length is read back. If the register
    /// holds fewer bits, the copy continues behind the bytes that the engine has moved. There is no time limit for the whole copy.
    ///
    /// On a build without data realignment, both addresses must be multiples of its data width, or channels must be lent
    /// ([`set_bounce_channels`](Self::set_bounce_channels)).
    ///
    /// # Errors
    /// [`CdmaError`]. After [`CdmaError::Copy`] the engine was reset and can be used again.
    pub fn copy(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
    ) -> Result<(), Error<CdmaError>> {
        self.copy_with_progress(source, destination, length, None, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`copy`](Self::copy), with a time limit of `timeout`.
    ///
    /// # Errors
    /// As `copy`; [`CopyFault::TimedOut`] has the number of bytes copied. The engine was reset then and can be used again.
    pub fn copy_with_timeout(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
        timeout: Duration,
    ) -> Result<(), Error<CdmaError>> {
        let progress = &mut |_| ControlFlow::Continue(());
        self.copy_with_progress(source, destination, length, Some(timeout), progress)
    }

    /// As [`copy`](Self::copy), with a time limit of `timeout`, if any. `progress` is called with the number of bytes copied: after each
    /// chunk, and every 10 ms while the engine copies one. It can stop the copy there, for example at a signal or at a limit of another clock
    /// than the card's.
    ///
    /// # Errors
    /// As [`copy_with_timeout`](Self::copy_with_timeout); [`CopyFault::Stopped`] has the number of bytes copied. Inside a chunk, the engine
    /// gets some milliseconds for its reset. If it needs longer, the next copy waits for it.
    pub fn copy_with_progress(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
        timeout: Option<Duration>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error<CdmaError>> {
        self.copy_chunks(source, destination, length, timeout, progress).at(|| self.place())
    }

    fn copy_chunks(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
        timeout: Option<Duration>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), CdmaError> {
        let limit = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        self.check(source, destination, length)?;
        self.check_width(source, destination, length)?;
        let time = CopyTime { began: self.card.backend.now(), limit };
        let whole = CopyEntry::new(source, destination, length);
        let mut done = self.bounce(&whole, limit.map(|limit| (time.began, limit)))?;
        if done != 0 && done == length {
            return Ok(());
        }
        if self.stuck.load(Ordering::Relaxed) {
            // An earlier copy was stopped, and has not waited for the reset.
            self.reset_within(self.card.idle_timeout().min(time.left(&self.card)))?;
        }
        let idle = self.wait_idle(COPY_LIMIT_NS.min(time.left(&self.card)), "the copy before")?;
        if idle.has_error() {
            self.reset_engine()?;
        }
        self.enter_simple_mode()?;
        while done < length {
            done += u64::from(self.copy_chunk(&whole, done, time, progress)?);
            if done < length && time.left(&self.card) == 0 {
                return Err(self.out_of_time(&whole, done, time));
            }
            if progress(done).is_break() && done < length {
                return Err(CdmaError::Copy { segment: whole, done, cause: CopyFault::Stopped });
            }
        }
        Ok(())
    }

    /// Copies the next chunk of `whole`, of which `done` bytes are copied. Returns the number of bytes that it copied.
    fn copy_chunk(
        &mut self,
        whole: &CopyEntry,
        done: u64,
        time: CopyTime,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u32, CdmaError> {
        let written = u32::try_from(whole.length - done).unwrap_or(u32::MAX).min(self.chunk);
        let at = |start: CardAddr| CardAddr::new(start.get() + done);
        let held = self.start(at(whole.source), at(whole.destination), written)?;
        let copied = if held == written { Some(written) } else { self.adopt_length(held, written) };
        let Some(copied) = copied else {
            self.reset_engine()?;
            let cause = CopyFault::LengthRegister { held, written };
            return Err(CdmaError::Copy { segment: *whole, done, cause });
        };
        let left = time.left(&self.card);
        // Without the caller's limit, a chunk that takes longer than any memory needs is stuck.
        let limit = if time.limit.is_some() { left } else { COPY_LIMIT_NS };
        let mut looked = self.card.backend.now();
        let idle = self.within(limit, "a copy", || {
            let status = self.read_status()?;
            let now = self.card.backend.now();
            if status.idle() || status.has_error() {
                return Ok(Some(status));
            }
            if now.saturating_sub(looked) >= PROGRESS_INTERVAL_NS {
                looked = now;
                if progress(done).is_break() {
                    return Err(self.stopped(whole, done));
                }
            }
            Ok(None)
        });
        let mut status = match idle {
            Err(CdmaError::Stuck { .. }) if time.limit.is_some() => {
                return Err(self.out_of_time(whole, done, time));
            }
            waited => waited?,
        };
        if held == 0 {
            // All bits were cut, and the engine refuses a length of 0 (PG034, DMAIntErr): nothing was moved.
            self.reset_engine()?;
            self.enter_simple_mode()?;
            status = status.with_dma_internal_error(false);
        }
        if status.has_error() {
            self.reset_engine()?;
            return Err(CdmaError::Copy { segment: *whole, done, cause: CopyFault::Status(status) });
        }
        Ok(copied)
    }

    /// Begins to reset the engine inside a copy that is to stop. Returns the error of the copy.
    fn stopped(&self, whole: &CopyEntry, done: u64) -> CdmaError {
        // A reset that is not complete in this time is continued by the next copy.
        match self.reset_after(0) {
            Ok(()) | Err(CdmaError::Stuck { .. }) => {
                CdmaError::Copy { segment: *whole, done, cause: CopyFault::Stopped }
            }
            Err(error) => error,
        }
    }

    /// Resets the engine after a copy that has used its time. Returns the error of the copy, or that of the reset.
    fn out_of_time(&self, whole: &CopyEntry, done: u64, time: CopyTime) -> CdmaError {
        if let Err(error) = self.reset_after(time.limit.unwrap_or(u64::MAX)) {
            return error;
        }
        let cause = CopyFault::TimedOut { waited: self.waited(time.passed(&self.card)) };
        CdmaError::Copy { segment: *whole, done, cause }
    }

    /// Writes the whole control register: an earlier owner may have left scatter-gather, keyhole or cyclic mode enabled.
    fn enter_simple_mode(&self) -> Result<(), CdmaError> {
        CdmaBlock::CR
            .write(&self.registers, BASE, Cdmacr::new().with_irq_threshold(1))
            .map_err(CdmaError::from)
    }

    /// Handles a length register that holds fewer bits than were written. The engine has started with the value that it holds, so it copies
    /// the first `held` bytes of the chunk. Returns the number of bytes after which the copy continues with shorter chunks; `None` if the
    /// value is not what a narrower register keeps.
    fn adopt_length(&mut self, held: u32, written: u32) -> Option<u32> {
        let bits = (held ^ written).trailing_zeros();
        let chunk = 1_u32.checked_shl(bits)?.wrapping_sub(1) & !(MAX_DATA_BYTES - 1);
        if held.checked_shr(bits)? != 0 || chunk == 0 {
            return None;
        }
        tracing::warn!(card = %self.card.name, bits, "the CDMA's length register is narrower than PG034 states; copies use shorter chunks");
        self.chunk = chunk;
        // The next chunk has the alignment of this one. Bytes behind the last multiple are copied again.
        Some(held & !(MAX_DATA_BYTES - 1))
    }

    /// Width of the length field that copies and rings assume, in bits: 23, which every build of PG034 has; less once a copy has found the
    /// register narrower.
    #[must_use]
    pub fn length_bits(&self) -> u8 {
        if self.chunk == CHUNK_BYTES {
            return LENGTH_BITS;
        }
        u8::try_from(u32::BITS - self.chunk.leading_zeros()).unwrap_or(LENGTH_BITS)
    }

    /// Starts one chunk. High address words are read back where they matter: a build with narrower addresses would drop them and copy from
    /// or to another address. Returns the length that the register holds, with which the engine has started.
    fn start(&self, source: CardAddr, destination: CardAddr, length: u32) -> Result<u32, CdmaError> {
        let addresses = [
            ("source address", CdmaBlock::SOURCE_LOW, CdmaBlock::SOURCE_HIGH, source),
            ("destination address", CdmaBlock::DESTINATION_LOW, CdmaBlock::DESTINATION_HIGH, destination),
        ];
        for (register, low, high, address) in addresses {
            let (low_word, written) = address.to_low_high();
            low.write(&self.registers, BASE, low_word)?;
            high.write(&self.registers, BASE, written)?;
            if written != 0 {
                let held = high.read(&self.registers, BASE)?;
                if held != written {
                    return Err(CdmaError::Narrow { register, held, written });
                }
            }
        }
        // A chunk is far below the register's 26 bits and never empty.
        let bytes =
            BytesToTransfer::of(length).debug_expect("a chunk fits the length register").unwrap_or_default();
        CdmaBlock::BTT.write(&self.registers, BASE, bytes)?;
        let held = CdmaBlock::BTT.read(&self.registers, BASE)?;
        if held.into_bits() == u32::MAX {
            return Err(self.silent());
        }
        Ok(held.bytes())
    }

    fn check(&self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
        for start in [source, destination] {
            if start.checked_add(length).is_none() {
                return Err(CdmaError::AddressRange { start, length });
            }
            let Some(ranges) = self.card.reachable() else { continue };
            if !ranges.iter().any(|range| range.contains(start, length)) {
                return Err(CdmaError::CardMemory { start, length });
            }
        }
        let apart = source.get().abs_diff(destination.get());
        if apart < length {
            return Err(CdmaError::Overlap { segment: CopyEntry::new(source, destination, length) });
        }
        Ok(())
    }

    /// Checks a copy that crosses a multiple of 4 GiB against the width of the address registers, before its first chunk. Any other copy is
    /// checked by [`start`](Self::start), because all its addresses have the same high word.
    fn check_width(&self, source: CardAddr, destination: CardAddr, length: u64) -> Result<(), CdmaError> {
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
            high.write(&self.registers, BASE, written)?;
            let held = high.read(&self.registers, BASE)?;
            if held != written {
                return Err(CdmaError::Narrow { register, held, written });
            }
        }
        Ok(())
    }
}
