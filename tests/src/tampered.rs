//! A transport that lies: some registers read as something else, writes are refused, or a cell of its memory is stuck. For cards that no card file describes
//! and for failures that the simulated card does not have.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_driver::mock::{MockTransport, World};
use fpga_driver::pci::{
    AccessCounters, Bar, BarError, BarInfo, ConfigError, DmaAccess, DmaMapError, Interrupt, InterruptError,
    Mmio, MmioError, OsError, ResetError, ResetLevel, SharedMemory,
};
use fpga_driver::{BarOffset, CardAddr, Iova, Transport};

/// A register that reads as something else.
#[derive(Debug, Clone, Copy)]
pub struct Replaced {
    /// Its BAR.
    pub bar: u8,
    /// Its offset there.
    pub at: u64,
    /// What it reads as.
    pub value: u32,
}

/// What is wrong at the moment.
#[derive(Debug, Default)]
struct Faults {
    replaced: Vec<Replaced>,
    refuse_writes: bool,
    stuck_cell: Option<(CardAddr, u8)>,
    /// BAR and offset.
    overtaken: Option<(u8, u64)>,
}

/// A simulated card some of whose registers lie.
#[derive(Debug)]
pub struct Tampered {
    inner: Arc<MockTransport>,
    faults: Arc<Mutex<Faults>>,
}

fn locked(faults: &Mutex<Faults>) -> MutexGuard<'_, Faults> {
    faults.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tampered {
    /// `inner` with registers replaced.
    #[must_use]
    pub fn new(inner: Arc<MockTransport>, replaced: Vec<Replaced>) -> Arc<Self> {
        Arc::new(Self { inner, faults: Arc::new(Mutex::new(Faults { replaced, ..Faults::default() })) })
    }

    /// Replaces these registers from now on, and no others.
    pub fn replace(&self, replaced: Vec<Replaced>) {
        locked(&self.faults).replaced = replaced;
    }

    /// A byte of card memory that always holds the same from now on.
    pub fn stick(&self, at: CardAddr, value: u8) {
        locked(&self.faults).stuck_cell = Some((at, value));
    }

    /// From now on the card does all it can before a write to this register arrives, as when the CPU is taken away between two
    /// writes.
    pub fn overtake(&self, write: Option<(u8, u64)>) {
        locked(&self.faults).overtaken = write;
    }

    /// Whether the system refuses every register write from now on.
    pub fn refuse_writes(&self, on: bool) {
        locked(&self.faults).refuse_writes = on;
    }
}

struct TamperedBar {
    inner: Bar,
    world: World,
    index: u8,
    faults: Arc<Mutex<Faults>>,
}

impl Mmio for TamperedBar {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        let value = self.inner.read32(at)?;
        let faults = locked(&self.faults);
        let replaced =
            faults.replaced.iter().find(|replaced| replaced.bar == self.index && replaced.at == at.get());
        Ok(replaced.map_or(value, |replaced| replaced.value))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        let faults = locked(&self.faults);
        if faults.refuse_writes {
            return Err(MmioError::Refused { at, source: OsError::from_raw(5) });
        }
        if faults.overtaken == Some((self.index, at.get())) {
            self.world.step_until_idle();
        }
        drop(faults);
        self.inner.write32(at, value)
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        self.inner.read64(at)
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        self.inner.write64(at, value)
    }

    fn read_block(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        self.inner.read_block(at, into)
    }

    fn write_block(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        self.inner.write_block(at, from)
    }
}

impl Transport for Tampered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigError> {
        self.inner.config_read(at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigError> {
        self.inner.config_write(at, from)
    }

    fn bars(&self) -> [Option<BarInfo>; 6] {
        self.inner.bars()
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let inner = self.inner.open_bar(index)?;
        let world = self.inner.world().clone();
        Ok(Bar::new(Arc::new(TamperedBar { inner, world, index, faults: Arc::clone(&self.faults) })))
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        self.inner.map_dma(iova, memory, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        self.inner.unmap_dma(iova, length)
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        self.inner.iova_ranges()
    }

    fn interrupt_vectors(&self) -> u32 {
        self.inner.interrupt_vectors()
    }

    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        self.inner.enable_interrupts(count)
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        self.inner.disable_interrupts()
    }

    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        self.inner.reset(level)
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn relax(&self) {
        self.inner.relax();
        if let Some((at, value)) = locked(&self.faults).stuck_cell {
            self.inner.world().with_card(self.inner.card_number(), |card| card.poke(at, &[value]).is_ok());
        }
    }

    fn wait_interrupt(
        &self,
        interrupt: &Interrupt,
        timeout: Duration,
    ) -> Result<Option<u64>, InterruptError> {
        self.inner.wait_interrupt(interrupt, timeout)
    }

    fn counters(&self) -> Option<AccessCounters> {
        self.inner.counters()
    }
}
