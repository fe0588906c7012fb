//! Doorbells: how queued descriptors reach the engine.

use fpga_pci::{MmioError, barrier};
use fpga_registers::invariant::DebugExpect as _;
use fpga_registers::xdma::{Adjacent, ChannelBlock, Credits, SgdmaBlock};
use fpga_ring::ring::{CreditGrant, Run};

use super::RunMode;
use super::engine::Engine;
use crate::error::ChannelError;
use crate::store::RingMemory;

/// Minimum batch after which the cache lines of the next descriptors are prefetched. After a single transfer, a prefetch would only take
/// bandwidth from the engine's fetch.
const PREFETCH_FROM: u32 = 4;
/// Number of descriptors to prefetch: a typical batch.
const PREFETCH: u32 = 32;
const DESCRIPTOR_BYTES: usize = 32;

impl Engine {
    /// Posts queued descriptors, unless a run has to end first.
    #[inline]
    pub(crate) fn post(&mut self) -> Result<(), ChannelError> {
        self.check_usable()?;
        match self.options.run_mode {
            RunMode::Batch if self.ring.is_running() => Ok(()),
            RunMode::Batch => self.start_run(),
            RunMode::Credit => self.post_credits(),
        }
    }

    fn start_run(&mut self) -> Result<(), ChannelError> {
        let Some(area) = self.area.as_ref().debug_expect("a usable channel has its memory") else {
            return Ok(());
        };
        let Some(run) = self.ring.start_run(&mut RingMemory::new(area)) else { return Ok(()) };
        // The engine counts each run from zero, but the word still holds the count of the last run. The engine is idle, so no write-back is
        // in flight that this write could overwrite.
        let _ =
            area.memory().store_u32(self.writeback, 0).debug_expect("the area contains the write-back word");
        barrier::descriptor_before_doorbell();
        self.note_progress();
        self.start_engine(run).map_err(|source| self.backend_lost(source))?;
        self.line.starts();
        self.prefetch(run.descriptors);
        Ok(())
    }

    fn post_credits(&mut self) -> Result<(), ChannelError> {
        let Some(area) = self.area.as_ref().debug_expect("a usable channel has its memory") else {
            return Ok(());
        };
        let Some(extension) = self.ring.post_credits(&mut RingMemory::new(area)) else { return Ok(()) };
        let CreditGrant { start, credits } = extension;
        if start.is_some() {
            let _ = area
                .memory()
                .store_u32(self.writeback, 0)
                .debug_expect("the area contains the write-back word");
        }
        barrier::descriptor_before_doorbell();
        self.note_progress();
        if let Some(run) = start {
            self.start_engine(run).map_err(|source| self.backend_lost(source))?;
        }
        // The ring never has more credits outstanding than the register can hold.
        let grant = u16::try_from(credits)
            .ok()
            .and_then(Credits::of)
            .debug_expect("credits fit the register")
            .unwrap_or_default();
        SgdmaBlock::CREDITS
            .write(&self.bar, self.sgdma, grant)
            .map_err(|source| self.backend_lost(source))?;
        self.prefetch(credits);
        Ok(())
    }

    /// Starts the engine, which needs a rising edge of Run, while the bit of the last run is still set. It is cleared before the pointers
    /// change, as the vendor's driver does. Registers that already hold the right value are not written.
    fn start_engine(&mut self, run: Run) -> Result<(), MmioError> {
        let stop = self.stop_control();
        ChannelBlock::CONTROL.write(&self.bar, self.base, stop)?;
        let (low, high) = run.first.to_low_high();
        SgdmaBlock::DESCRIPTOR_LOW.write(&self.bar, self.sgdma, low)?;
        if self.high_word != Some(high) {
            SgdmaBlock::DESCRIPTOR_HIGH.write(&self.bar, self.sgdma, high)?;
            self.high_word = Some(high);
        }
        if self.adjacent != Some(run.adjacent) {
            let adjacent = Adjacent::new().with_extra(run.adjacent);
            SgdmaBlock::ADJACENT.write(&self.bar, self.sgdma, adjacent)?;
            self.adjacent = Some(run.adjacent);
        }
        ChannelBlock::CONTROL.write(&self.bar, self.base, stop.with_run(true))
    }

    /// Prefetches the cache lines of the next descriptors for writing while the engine works on this batch. The engine read them last, so
    /// each store would otherwise wait for its line.
    #[inline]
    fn prefetch(&self, batch: u32) {
        if batch < PREFETCH_FROM {
            return;
        }
        let next = self.ring.next_entry();
        let to_end = self.ring.config().entries - next;
        let count = PREFETCH.min(self.ring.free_entries()).min(to_end);
        if let Some(area) = &self.area {
            let bytes = count as usize * DESCRIPTOR_BYTES;
            area.memory().prefetch_write(next as usize * DESCRIPTOR_BYTES, bytes);
        }
    }
}
