//! Fault-injecting backend: it replaces register values, drops or refuses register writes, holds one byte of card memory at a fixed value,
//! and removes the card at a chosen register access. It serves for cards that no card file describes, for failures at a chosen register
//! access, and for backends without other means to cause faults. It also counts accesses, because the cost of a card behind a kernel can
//! only be measured on this side.
//!
//! This file is longer than most: it implements every function of [`Backend`], of which most only pass calls on.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fpga_driver::{BarOffset, CardAddr, Iova};
use fpga_pci::Backend;
use fpga_pci::{
    AccessCounters, Bar, BarError, Clock, ConfigSpaceError, DmaAccess, DmaMapError, Interrupt,
    InterruptError, Mmio, MmioError, OsError, ResetError, ResetLevel, SharedMemory, lock,
};
use fpga_registers::xdma::{IRQ_BASE, IrqBlock};
use fpga_sim::{CardFailure, SimBackend, SimNetwork};

/// Register that reads as a fixed value.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedRegister {
    /// BAR of the register.
    pub bar: u8,
    /// Offset in the BAR.
    pub at: u64,
    /// Value that a read returns.
    pub value: u32,
}

/// Faults that are active now.
#[derive(Debug)]
struct InjectedFaults {
    replaced: Vec<ReplacedRegister>,
    refuse_writes: bool,
    /// BAR and offset of registers whose writes are lost.
    dropped_writes: Vec<(u8, u64)>,
    /// Register (BAR and offset) that keeps only these bits of a written value.
    narrow: Option<((u8, u64), u32)>,
    stuck_cell: Option<(CardAddr, u8)>,
    delayed_write: Option<DelayedWrite>,
    /// Number of register accesses before this failure occurs.
    trap: Option<(u64, CardFailure)>,
    /// Failure that has occurred.
    failure: CardFailure,
    interrupts: InterruptFault,
    /// Maximum access right of every new DMA mapping, whatever the driver requests.
    access: Option<DmaAccess>,
}

/// A register whose writes arrive after further steps of the card.
#[derive(Debug)]
struct DelayedWrite {
    /// BAR and offset.
    register: (u8, u64),
    /// Steps of the card before each write, one after the other; `None`: before every write, as many steps as the card can do.
    steps: Option<VecDeque<u32>>,
}

/// Fault of the interrupts that a wait expects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InterruptFault {
    /// Interrupts arrive.
    #[default]
    Normal,
    /// Interrupts are lost.
    Lost,
    /// Every wait wakes at once, with or without an interrupt.
    Spurious,
    /// Every other wait ends without the interrupt that has arrived.
    Late,
}

/// Timeouts with which the driver's sleeps guard against a lost interrupt. Shorter ones are timers.
const GUARD: Duration = Duration::from_millis(100);
/// The same while transmit windows are open: then the driver also looks for a halted CDMA engine, which raises no interrupt.
const WINDOW_GUARD: Duration = Duration::from_millis(10);
/// Time between two polls of the card in a wait that ignores its guard timeout.
const STEP: Duration = Duration::from_millis(100);
/// Maximum time of such a wait, for wake-ups that are lost on the host's side: far longer than a loaded machine delays a thread.
const MAX_SLEEP: Duration = Duration::from_secs(300);
/// Duration of a wait for an interrupt that does not arrive.
const LOST: Duration = Duration::from_millis(20);
/// The DMA BAR of simulated cards.
const DMA_BAR: u8 = 1;

/// Register accesses and interrupts that passed through this backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessTraffic {
    /// Register reads; a block read counts once per word.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// Interrupts that woke waits.
    pub interrupts: u64,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    interrupts: AtomicU64,
    /// Waits for interrupts so far, those in progress, and those whose interrupt was lost.
    sleeps: AtomicU64,
    asleep: AtomicU64,
    lost_wakeups: AtomicU64,
}

/// A DMA mapping that exists.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// First address.
    pub iova: Iova,
    /// Mapped memory.
    pub memory: SharedMemory,
}

/// Backend that injects faults into the one it wraps.
pub struct FaultInjectingBackend {
    inner: Arc<dyn Backend>,
    /// Network and number of the simulated card, where it runs in this process.
    card: Option<(SimNetwork, usize)>,
    faults: Arc<Mutex<InjectedFaults>>,
    counts: Arc<Counts>,
    mappings: Mutex<Vec<Mapping>>,
    waits: AtomicU64,
    ignore_timeouts: AtomicBool,
    /// Time of the backend's own clock in nanoseconds, and whether the driver sees that clock.
    time: AtomicU64,
    own_clock: AtomicBool,
}

impl core::fmt::Debug for FaultInjectingBackend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FaultInjectingBackend").field("name", &self.inner.name()).finish_non_exhaustive()
    }
}

impl FaultInjectingBackend {
    /// Writes the fixed value to the stuck byte of card memory.
    fn hold_cell(&self) {
        if let Some((at, value)) = lock(&self.faults).stuck_cell
            && let Some((network, number)) = &self.card
        {
            network.with_card(*number, |card| card.poke(at, &[value]).is_ok());
        }
    }

    /// Wraps `inner` with registers replaced.
    #[must_use]
    pub fn new(inner: Arc<SimBackend>, replaced: Vec<ReplacedRegister>) -> Arc<Self> {
        let card = (inner.network().clone(), inner.card_number());
        Self::with(inner, Some(card), replaced)
    }

    /// Wraps any backend; `card` is given where it is a simulated card whose network is at hand.
    #[must_use]
    pub fn wrap(inner: Arc<dyn Backend>, card: Option<(SimNetwork, usize)>) -> Arc<Self> {
        Self::with(inner, card, Vec::new())
    }

    fn with(
        inner: Arc<dyn Backend>,
        card: Option<(SimNetwork, usize)>,
        replaced: Vec<ReplacedRegister>,
    ) -> Arc<Self> {
        let faults = InjectedFaults {
            replaced,
            refuse_writes: false,
            dropped_writes: Vec::new(),
            narrow: None,
            stuck_cell: None,
            delayed_write: None,
            trap: None,
            failure: CardFailure::None,
            interrupts: InterruptFault::Normal,
            access: None,
        };
        let (faults, counts) = (Arc::new(Mutex::new(faults)), Arc::new(Counts::default()));
        Arc::new(Self {
            inner,
            card,
            faults,
            counts,
            mappings: Mutex::new(Vec::new()),
            waits: AtomicU64::new(0),
            ignore_timeouts: AtomicBool::new(false),
            time: AtomicU64::new(0),
            own_clock: AtomicBool::new(false),
        })
    }

    /// Gives the driver a clock that claims to be the system's. It advances by a microsecond for each step of a polling loop and by the
    /// full duration of each sleep, so that the duration of a wait does not depend on the machine.
    pub fn use_virtual_monotonic_clock(&self) {
        self.time.store(self.inner.now(), Ordering::SeqCst);
        self.own_clock.store(true, Ordering::SeqCst);
    }

    /// Advances the backend's own clock. Returns whether the driver sees that clock.
    fn pass(&self, span: Duration) -> bool {
        let own = self.own_clock.load(Ordering::SeqCst);
        if own {
            self.time.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
        own
    }

    /// Lets the card work while the driver sleeps for `span` of the backend's own clock.
    fn work_for(&self, span: Duration) {
        match &self.card {
            Some((network, _)) => network.advance(span.into()),
            None => self.inner.relax(),
        }
    }

    /// Accesses and interrupts so far.
    #[must_use]
    pub fn traffic(&self) -> AccessTraffic {
        AccessTraffic {
            reads: self.counts.reads.load(Ordering::Relaxed),
            writes: self.counts.writes.load(Ordering::Relaxed),
            interrupts: self.counts.interrupts.load(Ordering::Relaxed),
        }
    }

    /// Makes waits for interrupts ignore, or observe again, the timeouts that guard against lost interrupts. A wait that only such a guard
    /// would have ended counts as a [lost wake-up](Self::lost_wakeups). Timers are observed: a wait that a timer ends has not lost an
    /// interrupt.
    pub fn ignore_timeouts(&self, on: bool) {
        self.ignore_timeouts.store(on, Ordering::SeqCst);
    }

    /// Number of waits for an interrupt so far.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.counts.sleeps.load(Ordering::SeqCst)
    }

    /// Number of waits for an interrupt in progress.
    #[must_use]
    pub fn waiter_count(&self) -> u64 {
        self.counts.asleep.load(Ordering::SeqCst)
    }

    /// Number of waits that [ignore their guard](Self::ignore_timeouts) and whose interrupt was lost: a simulated card of this process
    /// asserts an enabled line and has sent no message. Other cards do not show this: there, waits that no interrupt has ended for minutes.
    #[must_use]
    pub fn lost_wakeups(&self) -> u64 {
        self.counts.lost_wakeups.load(Ordering::SeqCst)
    }

    /// Sleeps until the interrupt arrives, however long that takes, or until it is known to be lost. `looks`: only for some time, because the
    /// driver waits for something else, too.
    fn wait_for_interrupt(&self, interrupt: &Interrupt, looks: bool) -> Result<Option<u64>, InterruptError> {
        let began = Instant::now();
        loop {
            if let Some(arrived) = self.inner.wait_interrupt(interrupt, STEP)? {
                return Ok(Some(arrived));
            }
            if self.asserts_line() || began.elapsed() >= MAX_SLEEP {
                // The card's state was read before the event fd, so a message that the card had sent by then is seen here.
                match interrupt.try_take() {
                    0 => {
                        self.counts.lost_wakeups.fetch_add(1, Ordering::SeqCst);
                        return Ok(None);
                    }
                    arrived => return Ok(Some(arrived)),
                }
            }
            if looks {
                return Ok(None);
            }
        }
    }

    /// Whether the card asserts a user interrupt that is enabled.
    fn asserts_line(&self) -> bool {
        let Some((network, number)) = &self.card else { return false };
        let asserted = network.with_card(*number, |card| {
            let mut read = |at: BarOffset| {
                let mut word = [0; 4];
                card.bar_peek(DMA_BAR, at.get(), &mut word);
                u32::from_le_bytes(word)
            };
            let request = read(IrqBlock::USER_REQUEST.address(IRQ_BASE));
            request & read(IrqBlock::USER_ENABLE.address(IRQ_BASE)) != 0
        });
        asserted.unwrap_or(false)
    }

    /// DMA mappings, oldest first.
    #[must_use]
    pub fn mappings(&self) -> Vec<Mapping> {
        lock(&self.mappings).clone()
    }

    /// Removes a mapping from the IOMMU. The driver's own unmapping of it succeeds all the same.
    ///
    /// # Errors
    /// The system's errors.
    pub fn unmap_behind_driver(&self, mapping: &Mapping) -> Result<(), DmaMapError> {
        self.inner.unmap_dma(mapping.iova, mapping.memory.len() as u64)
    }

    /// Restricts the device to `access` on one mapping.
    ///
    /// # Errors
    /// The system's errors.
    pub fn restrict_access(&self, mapping: &Mapping, access: DmaAccess) -> Result<(), DmaMapError> {
        self.inner.unmap_dma(mapping.iova, mapping.memory.len() as u64)?;
        self.inner.map_dma(mapping.iova, &mapping.memory, access)
    }

    /// Restores a mapping that was removed.
    ///
    /// # Errors
    /// The system's errors.
    pub fn remap(&self, mapping: &Mapping) -> Result<(), DmaMapError> {
        self.inner.map_dma(mapping.iova, &mapping.memory, DmaAccess::Both)
    }

    /// Restricts every mapping made from now on to `access`, whatever is requested. `None` ends the restriction.
    pub fn restrict_all_access(&self, access: Option<DmaAccess>) {
        lock(&self.faults).access = access;
    }

    /// Makes the card fail after `accesses` more register accesses.
    pub fn fail_after(&self, accesses: u64, failure: CardFailure) {
        lock(&self.faults).trap = Some((accesses, failure));
    }

    /// Whether the requested failure has occurred.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        lock(&self.faults).failure != CardFailure::None
    }

    /// Restores the card and ends all faults.
    pub fn restore(&self) {
        let mut faults = lock(&self.faults);
        (faults.trap, faults.failure, faults.interrupts) = (None, CardFailure::None, InterruptFault::Normal);
        faults.replaced.clear();
        faults.dropped_writes.clear();
        if let Some((network, number)) = &self.card {
            network.fail(*number, CardFailure::None);
        }
    }

    /// Sets the fault of interrupts from now on.
    pub fn interrupts(&self, what: InterruptFault) {
        lock(&self.faults).interrupts = what;
    }

    /// Replaces the values of these registers and no others from now on.
    pub fn replace(&self, replaced: Vec<ReplacedRegister>) {
        lock(&self.faults).replaced = replaced;
    }

    /// Drops writes to these registers (BAR and offset) and no others from now on.
    pub fn drop_writes(&self, deaf: Vec<(u8, u64)>) {
        lock(&self.faults).dropped_writes = deaf;
    }

    /// Makes a register (BAR and offset) keep only the bits of `mask` from now on.
    pub fn narrow_register(&self, register: (u8, u64), mask: u32) {
        lock(&self.faults).narrow = Some((register, mask));
    }

    /// Holds a byte of card memory at `value` from now on.
    pub fn hold_byte(&self, at: CardAddr, value: u8) {
        lock(&self.faults).stuck_cell = Some((at, value));
    }

    /// Lets the card do all the work it can before a write to this register arrives, as when the CPU is preempted between two writes.
    pub fn delay_write(&self, write: Option<(u8, u64)>) {
        lock(&self.faults).delayed_write = write.map(|register| DelayedWrite { register, steps: None });
    }

    /// Lets the card do the given number of steps before the first write to this register, before the second, and so on.
    pub fn delay_writes(&self, register: (u8, u64), steps: &[u32]) {
        let steps = Some(steps.iter().copied().collect());
        lock(&self.faults).delayed_write = Some(DelayedWrite { register, steps });
    }

    /// Makes the system refuse every register write (`on`), or accept writes again.
    pub fn refuse_writes(&self, on: bool) {
        lock(&self.faults).refuse_writes = on;
    }
}

struct FaultInjectingBar {
    inner: Bar,
    card: Option<(SimNetwork, usize)>,
    index: u8,
    faults: Arc<Mutex<InjectedFaults>>,
    counts: Arc<Counts>,
}

impl FaultInjectingBar {
    /// Counts register accesses. Returns the failure of the card at this access.
    fn count(&self, counter: &AtomicU64, accesses: u64) -> CardFailure {
        counter.fetch_add(accesses, Ordering::Relaxed);
        let mut faults = lock(&self.faults);
        match &mut faults.trap {
            Some((0, failure)) => {
                faults.failure = *failure;
                faults.trap = None;
                if let Some((network, number)) = &self.card {
                    // The whole card fails, not only its registers: a removed card does no DMA either.
                    network.fail(*number, faults.failure);
                }
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        faults.failure
    }

    fn read<T>(
        &self,
        at: BarOffset,
        accesses: u64,
        ones: T,
        read: impl FnOnce() -> Result<T, MmioError>,
    ) -> Result<T, MmioError> {
        match self.count(&self.counts.reads, accesses) {
            CardFailure::Gone => Err(MmioError::Gone { at }),
            CardFailure::AllOnes => Ok(ones),
            _ => read(),
        }
    }

    fn write(&self, accesses: u64, write: impl FnOnce() -> Result<(), MmioError>) -> Result<(), MmioError> {
        // Writes are posted: a write to an absent card reports no error.
        if self.count(&self.counts.writes, accesses) == CardFailure::None { write() } else { Ok(()) }
    }
}

impl Mmio for FaultInjectingBar {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        let value = self.read(at, 1, u32::MAX, || self.inner.read32(at))?;
        let faults = lock(&self.faults);
        let replaced =
            faults.replaced.iter().find(|replaced| replaced.bar == self.index && replaced.at == at.get());
        Ok(replaced.map_or(value, |replaced| replaced.value))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        let mut faults = lock(&self.faults);
        if faults.refuse_writes {
            return Err(MmioError::Refused { at, source: OsError::from_raw(5) });
        }
        if let Some((network, _)) = &self.card
            && let Some(overtaken) = &mut faults.delayed_write
            && overtaken.register == (self.index, at.get())
        {
            match &mut overtaken.steps {
                Some(steps) => {
                    for _ in 0..steps.pop_front().unwrap_or(0) {
                        network.step();
                    }
                }
                None => {
                    network.step_until_idle();
                }
            }
        }
        if faults.dropped_writes.contains(&(self.index, at.get())) {
            return Ok(());
        }
        let kept = faults.narrow.filter(|(register, _)| *register == (self.index, at.get()));
        drop(faults);
        self.write(1, || self.inner.write32(at, value & kept.map_or(u32::MAX, |(_, mask)| mask)))
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        self.read(at, 1, u64::MAX, || self.inner.read64(at))
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        self.write(1, || self.inner.write64(at, value))
    }

    fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        self.write(1, || self.inner.write_narrow(at, from))
    }

    fn read_block(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        let words = (into.len() / 4) as u64;
        if self.count(&self.counts.reads, words) == CardFailure::None {
            return self.inner.read_block(at, into);
        }
        into.fill(0xFF);
        Ok(())
    }

    fn write_block(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        self.write((from.len() / 4) as u64, || self.inner.write_block(at, from))
    }
}

impl Backend for FaultInjectingBackend {
    fpga_pci::forward_backend!(
        inner: work_unattended, name, bars, iova_ranges, dma_page_size, memory_kind, interrupt_vectors, enable_interrupts,
        disable_interrupts, events, claim_stream, release_stream,
    );

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        if lock(&self.faults).failure == CardFailure::Gone {
            into.fill(0xFF);
            return Ok(());
        }
        self.inner.config_read(at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError> {
        if lock(&self.faults).failure == CardFailure::Gone {
            return Ok(());
        }
        self.inner.config_write(at, from)
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let inner = self.inner.open_bar(index)?;
        let (card, faults, counts) = (self.card.clone(), Arc::clone(&self.faults), Arc::clone(&self.counts));
        Ok(Bar::new(Arc::new(FaultInjectingBar { inner, card, index, faults, counts })))
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let forced = lock(&self.faults).access;
        self.inner.map_dma(iova, memory, forced.unwrap_or(access))?;
        lock(&self.mappings).push(Mapping { iova, memory: memory.clone() });
        Ok(())
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let undone = self.inner.unmap_dma(iova, length);
        // The driver may unmap a mapping that a test has removed without the driver: that is not an error.
        let known = {
            let mut mappings = lock(&self.mappings);
            let before = mappings.len();
            mappings.retain(|mapping| mapping.iova != iova);
            mappings.len() != before
        };
        match undone {
            Err(DmaMapError::NotMapped { .. }) if known => Ok(()),
            undone => undone,
        }
    }

    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        if lock(&self.faults).failure == CardFailure::Gone {
            return Err(ResetError::NoAnswer { level });
        }
        self.inner.reset(level)?;
        // A reset clears the fault of registers that read as all ones.
        lock(&self.faults).failure = CardFailure::None;
        Ok(())
    }

    fn now(&self) -> u64 {
        if self.pass(Duration::ZERO) { self.time.load(Ordering::SeqCst) } else { self.inner.now() }
    }

    fn clock(&self) -> Clock {
        if self.pass(Duration::ZERO) { Clock::Monotonic } else { self.inner.clock() }
    }

    fn relax(&self) {
        self.pass(Duration::from_micros(1));
        self.inner.relax();
        self.hold_cell();
    }

    fn pause(&self, span: Duration) {
        if self.pass(span) {
            self.work_for(span);
        } else {
            self.inner.pause(span);
        }
        self.hold_cell();
    }

    fn wait_interrupt(
        &self,
        interrupt: &Interrupt,
        timeout: Duration,
    ) -> Result<Option<u64>, InterruptError> {
        if self.pass(timeout) {
            self.work_for(timeout);
            return Ok(None);
        }
        let what = lock(&self.faults).interrupts;
        if what == InterruptFault::Spurious {
            // A spurious wake-up.
            self.inner.relax();
            let arrived = self.inner.wait_interrupt(interrupt, Duration::ZERO)?;
            self.counts.interrupts.fetch_add(arrived.unwrap_or(0), Ordering::Relaxed);
            return Ok(Some(arrived.unwrap_or(1)));
        }
        if what == InterruptFault::Late && self.waits.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            self.inner.relax();
            return Ok(None);
        }
        let sleeps_on = self.ignore_timeouts.load(Ordering::SeqCst);
        let guard = timeout == GUARD || timeout == WINDOW_GUARD;
        self.counts.sleeps.fetch_add(1, Ordering::SeqCst);
        self.counts.asleep.fetch_add(1, Ordering::SeqCst);
        let arrived = match what {
            InterruptFault::Lost => self.inner.wait_interrupt(interrupt, timeout.min(LOST)),
            _ if sleeps_on && guard => self.wait_for_interrupt(interrupt, timeout == WINDOW_GUARD),
            _ => self.inner.wait_interrupt(interrupt, timeout),
        };
        self.counts.asleep.fetch_sub(1, Ordering::SeqCst);
        let arrived = arrived?;
        if what == InterruptFault::Lost {
            return Ok(None);
        }
        self.counts.interrupts.fetch_add(arrived.unwrap_or(0), Ordering::Relaxed);
        Ok(arrived)
    }

    fn counters(&self) -> Option<AccessCounters> {
        // A card in another process counts nothing here; a served card of this process does.
        self.inner.counters().or_else(|| {
            let (network, number) = self.card.as_ref()?;
            let counters = network.with_card(*number, |card| *card.counters())?;
            Some(AccessCounters {
                mmio_reads: counters.mmio_reads,
                mmio_writes: counters.mmio_writes,
                interrupts: counters.interrupts,
                user_interrupts: counters.user_interrupts,
                descriptors: counters.descriptors,
                dma_bytes: counters.h2c_bytes + counters.c2h_bytes,
            })
        })
    }
}
