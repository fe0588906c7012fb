//! A transport that lies: some registers read as something else, writes are refused, a cell of its memory is stuck, the card leaves
//! in the middle. For cards that no card file describes, for failures at a register access of one's choice, and for doors behind
//! which nothing else can be made to fail. It counts, too: what a card behind a kernel costs can be seen from this side alone.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fpga_driver::pci::{
    AccessCounters, Bar, BarError, BarInfo, Clock, ConfigError, DeviceEvents, DmaAccess, DmaMapError,
    Interrupt, InterruptError, MemoryKind, Mmio, MmioError, OsError, ResetError, ResetLevel, SharedMemory,
};
use fpga_driver::registers::xdma::{IRQ_BASE, IrqBlock};
use fpga_driver::sim::{CardFailure, SimBackend, SimNetwork};
use fpga_driver::{Backend, BarOffset, CardAddr, Iova};

/// A register that reads as something else.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedRegister {
    /// Its BAR.
    pub bar: u8,
    /// Its offset there.
    pub at: u64,
    /// What it reads as.
    pub value: u32,
}

/// What is wrong at the moment.
#[derive(Debug)]
struct InjectedFaults {
    replaced: Vec<ReplacedRegister>,
    refuse_writes: bool,
    /// BAR and offset of registers whose writes are lost.
    dropped_writes: Vec<(u8, u64)>,
    stuck_cell: Option<(CardAddr, u8)>,
    delayed_write: Option<DelayedWrite>,
    /// So many register accesses are left until this happens.
    trap: Option<(u64, CardFailure)>,
    /// What has happened.
    failure: CardFailure,
    interrupts: InterruptFault,
    /// Whatever is asked for, the device may do no more than this.
    access: Option<DmaAccess>,
}

/// A register whose writes the card overtakes.
#[derive(Debug)]
struct DelayedWrite {
    /// BAR and offset.
    register: (u8, u64),
    /// Steps of the card before each write, one after the other; `None`: before every one as many as there are to take.
    steps: Option<VecDeque<u32>>,
}

/// What becomes of the interrupts that a wait is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InterruptFault {
    /// They arrive.
    #[default]
    Normal,
    /// They are lost.
    Lost,
    /// Every wait is woken at once, whether there was one or not.
    Spurious,
    /// Every other wait ends without the one that has arrived.
    Late,
}

/// Time-outs by which the driver's sleeps guard against a lost interrupt, with windows out and without. Shorter ones are timers.
const GUARDS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// Time between two looks at the card of a wait whose guard is not heeded.
const STEP: Duration = Duration::from_millis(100);
/// Maximum time of such a wait, for wake-ups that are lost on the host's side: far beyond what a loaded machine delays a thread by.
const MAX_SLEEP: Duration = Duration::from_secs(300);
/// How long is waited for an interrupt that does not come.
const LOST: Duration = Duration::from_millis(20);
/// The DMA BAR of simulated cards.
const DMA_BAR: u8 = 1;

/// What went over the seam.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessTraffic {
    /// Register reads; a block counts once per word.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// Interrupts that waits were woken by.
    pub interrupts: u64,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    interrupts: AtomicU64,
    /// Waits for interrupts so far, those under way, and those that no interrupt has ended though nothing else could.
    sleeps: AtomicU64,
    asleep: AtomicU64,
    lost_wakeups: AtomicU64,
}

/// A mapping for DMA that was made and not undone.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// First address.
    pub iova: Iova,
    /// What is mapped there.
    pub memory: SharedMemory,
}

/// A card some of whose registers lie.
pub struct FaultInjectingBackend {
    inner: Arc<dyn Backend>,
    /// The simulated card's number, where it is one of this process.
    card: Option<(SimNetwork, usize)>,
    faults: Arc<Mutex<InjectedFaults>>,
    counts: Arc<Counts>,
    mappings: Mutex<Vec<Mapping>>,
    waits: AtomicU64,
    ignore_timeouts: AtomicBool,
    /// Time of a clock of its own, in nanoseconds, and whether that is what the driver sees.
    time: AtomicU64,
    own_clock: AtomicBool,
}

impl core::fmt::Debug for FaultInjectingBackend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tampered").field("name", &self.inner.name()).finish_non_exhaustive()
    }
}

fn locked<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultInjectingBackend {
    /// Writes the cell that does not keep its value.
    fn hold_cell(&self) {
        if let Some((at, value)) = locked(&self.faults).stuck_cell
            && let Some((network, number)) = &self.card
        {
            network.with_card(*number, |card| card.poke(at, &[value]).is_ok());
        }
    }

    /// `inner` with registers replaced.
    #[must_use]
    pub fn new(inner: Arc<SimBackend>, replaced: Vec<ReplacedRegister>) -> Arc<Self> {
        let card = (inner.network().clone(), inner.card_number());
        Self::with(inner, Some(card), replaced)
    }

    /// Any transport; `card` where it is a simulated one whose network is at hand.
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

    /// From now on the driver sees a clock that claims to be the system's, and advances by a microsecond for each step of a polling loop
    /// and by as much as a sleep is to take: what a wait takes by it does not depend on the machine.
    pub fn use_virtual_monotonic_clock(&self) {
        self.time.store(self.inner.now(), Ordering::SeqCst);
        self.own_clock.store(true, Ordering::SeqCst);
    }

    /// Lets time pass on the clock of its own. Returns whether there is one.
    fn pass(&self, span: Duration) -> bool {
        let own = self.own_clock.load(Ordering::SeqCst);
        if own {
            self.time.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
        own
    }

    /// What went over the seam so far.
    #[must_use]
    pub fn traffic(&self) -> AccessTraffic {
        AccessTraffic {
            reads: self.counts.reads.load(Ordering::Relaxed),
            writes: self.counts.writes.load(Ordering::Relaxed),
            interrupts: self.counts.interrupts.load(Ordering::Relaxed),
        }
    }

    /// Waits for interrupts do not heed the time-outs that guard against lost interrupts from now on, or heed them again. A wait that only
    /// such a guard would have ended [oversleeps](Self::lost_wakeups). Timers are heeded: what a timer ends is no lost interrupt.
    pub fn ignore_timeouts(&self, on: bool) {
        self.ignore_timeouts.store(on, Ordering::SeqCst);
    }

    /// Waits for an interrupt so far.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.counts.sleeps.load(Ordering::SeqCst)
    }

    /// Waits for an interrupt that are under way.
    #[must_use]
    pub fn waiter_count(&self) -> u64 {
        self.counts.asleep.load(Ordering::SeqCst)
    }

    /// Waits of those that [sleep on](Self::ignore_timeouts) whose interrupt was lost: a simulated card of this process asserts an enabled
    /// line, and has sent no message. Other cards do not tell: there, waits that no interrupt has ended for minutes.
    #[must_use]
    pub fn lost_wakeups(&self) -> u64 {
        self.counts.lost_wakeups.load(Ordering::SeqCst)
    }

    /// Sleeps until the interrupt comes, however long that takes, or until it is known to be lost.
    fn wait_for_interrupt(&self, interrupt: &Interrupt) -> Result<Option<u64>, InterruptError> {
        let began = Instant::now();
        loop {
            if let Some(arrived) = self.inner.wait_interrupt(interrupt, STEP)? {
                return Ok(Some(arrived));
            }
            if self.asserts_line() || began.elapsed() >= MAX_SLEEP {
                // The card is asked before the descriptor: a message that it has sent by then is there.
                match interrupt.try_take() {
                    0 => {
                        self.counts.lost_wakeups.fetch_add(1, Ordering::SeqCst);
                        return Ok(None);
                    }
                    arrived => return Ok(Some(arrived)),
                }
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

    /// What the device can reach, oldest first.
    #[must_use]
    pub fn mappings(&self) -> Vec<Mapping> {
        locked(&self.mappings).clone()
    }

    /// The IOMMU forgets one of them; the driver's own unmapping of it will go well all the same.
    ///
    /// # Errors
    /// The system's.
    pub fn unmap_behind_driver(&self, mapping: &Mapping) -> Result<(), DmaMapError> {
        self.inner.unmap_dma(mapping.iova, mapping.memory.len() as u64)
    }

    /// From now on the device may do no more than this with one of them.
    ///
    /// # Errors
    /// The system's.
    pub fn restrict_access(&self, mapping: &Mapping, access: DmaAccess) -> Result<(), DmaMapError> {
        self.inner.unmap_dma(mapping.iova, mapping.memory.len() as u64)?;
        self.inner.map_dma(mapping.iova, &mapping.memory, access)
    }

    /// Maps again what was taken away.
    ///
    /// # Errors
    /// The system's.
    pub fn remap(&self, mapping: &Mapping) -> Result<(), DmaMapError> {
        self.inner.map_dma(mapping.iova, &mapping.memory, DmaAccess::Both)
    }

    /// From now on, whatever mapping is asked for, the device may do no more than this. `None` ends it.
    pub fn restrict_all_access(&self, access: Option<DmaAccess>) {
        locked(&self.faults).access = access;
    }

    /// After `accesses` more register accesses the card fails.
    pub fn fail_after(&self, accesses: u64, failure: CardFailure) {
        locked(&self.faults).trap = Some((accesses, failure));
    }

    /// Whether the failure that was asked for has happened.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        locked(&self.faults).failure != CardFailure::None
    }

    /// The card is back, and everything that was wrong is right again.
    pub fn restore(&self) {
        let mut faults = locked(&self.faults);
        (faults.trap, faults.failure, faults.interrupts) = (None, CardFailure::None, InterruptFault::Normal);
        faults.replaced.clear();
        faults.dropped_writes.clear();
        if let Some((network, number)) = &self.card {
            network.fail(*number, CardFailure::None);
        }
    }

    /// What becomes of interrupts from now on.
    pub fn interrupts(&self, what: InterruptFault) {
        locked(&self.faults).interrupts = what;
    }

    /// Replaces these registers from now on, and no others.
    pub fn replace(&self, replaced: Vec<ReplacedRegister>) {
        locked(&self.faults).replaced = replaced;
    }

    /// Writes to these registers, BAR and offset, are lost from now on, and to no others.
    pub fn drop_writes(&self, deaf: Vec<(u8, u64)>) {
        locked(&self.faults).dropped_writes = deaf;
    }

    /// A byte of card memory that always holds the same from now on.
    pub fn hold_byte(&self, at: CardAddr, value: u8) {
        locked(&self.faults).stuck_cell = Some((at, value));
    }

    /// From now on the card does all it can before a write to this register arrives, as when the CPU is taken away between two
    /// writes.
    pub fn delay_write(&self, write: Option<(u8, u64)>) {
        locked(&self.faults).delayed_write = write.map(|register| DelayedWrite { register, steps: None });
    }

    /// The same, but that the card takes so many steps before the first write from now on, so many before the second, and so on.
    pub fn delay_writes(&self, register: (u8, u64), steps: &[u32]) {
        let steps = Some(steps.iter().copied().collect());
        locked(&self.faults).delayed_write = Some(DelayedWrite { register, steps });
    }

    /// Whether the system refuses every register write from now on.
    pub fn refuse_writes(&self, on: bool) {
        locked(&self.faults).refuse_writes = on;
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
    /// One access more; how the card fails at it.
    fn count(&self, counter: &AtomicU64, accesses: u64) -> CardFailure {
        counter.fetch_add(accesses, Ordering::Relaxed);
        let mut faults = locked(&self.faults);
        match &mut faults.trap {
            Some((0, failure)) => {
                faults.failure = *failure;
                faults.trap = None;
                if let Some((network, number)) = &self.card {
                    // The whole card, not its registers alone: what left the bus does no DMA either.
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
        // Writes are posted: nobody learns that there is no card.
        if self.count(&self.counts.writes, accesses) == CardFailure::None { write() } else { Ok(()) }
    }
}

impl Mmio for FaultInjectingBar {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        let value = self.read(at, 1, u32::MAX, || self.inner.read32(at))?;
        let faults = locked(&self.faults);
        let replaced =
            faults.replaced.iter().find(|replaced| replaced.bar == self.index && replaced.at == at.get());
        Ok(replaced.map_or(value, |replaced| replaced.value))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        let mut faults = locked(&self.faults);
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
        drop(faults);
        self.write(1, || self.inner.write32(at, value))
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        self.read(at, 1, u64::MAX, || self.inner.read64(at))
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        self.write(1, || self.inner.write64(at, value))
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
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigError> {
        if locked(&self.faults).failure == CardFailure::Gone {
            into.fill(0xFF);
            return Ok(());
        }
        self.inner.config_read(at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigError> {
        if locked(&self.faults).failure == CardFailure::Gone {
            return Ok(());
        }
        self.inner.config_write(at, from)
    }

    fn bars(&self) -> [Option<BarInfo>; 6] {
        self.inner.bars()
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let inner = self.inner.open_bar(index)?;
        let (card, faults, counts) = (self.card.clone(), Arc::clone(&self.faults), Arc::clone(&self.counts));
        Ok(Bar::new(Arc::new(FaultInjectingBar { inner, card, index, faults, counts })))
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let forced = locked(&self.faults).access;
        self.inner.map_dma(iova, memory, forced.unwrap_or(access))?;
        locked(&self.mappings).push(Mapping { iova, memory: memory.clone() });
        Ok(())
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let undone = self.inner.unmap_dma(iova, length);
        // One that a test has taken away behind the driver's back is not missed.
        let known = {
            let mut mappings = locked(&self.mappings);
            let before = mappings.len();
            mappings.retain(|mapping| mapping.iova != iova);
            mappings.len() != before
        };
        match undone {
            Err(DmaMapError::NotMapped { .. }) if known => Ok(()),
            undone => undone,
        }
    }

    fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        self.inner.iova_ranges()
    }

    fn dma_page_size(&self) -> u64 {
        self.inner.dma_page_size()
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
        if locked(&self.faults).failure == CardFailure::Gone {
            return Err(ResetError::NoAnswer { level });
        }
        self.inner.reset(level)?;
        // Registers that read as all ones are what a reset is for.
        locked(&self.faults).failure = CardFailure::None;
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
            self.inner.relax();
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
            self.inner.relax();
            return Ok(None);
        }
        let what = locked(&self.faults).interrupts;
        if what == InterruptFault::Spurious {
            // Woken at once, by nothing.
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
        let guard = GUARDS.contains(&timeout);
        self.counts.sleeps.fetch_add(1, Ordering::SeqCst);
        self.counts.asleep.fetch_add(1, Ordering::SeqCst);
        let arrived = match what {
            InterruptFault::Lost => self.inner.wait_interrupt(interrupt, timeout.min(LOST)),
            _ if sleeps_on && guard => self.wait_for_interrupt(interrupt),
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

    fn events(&self) -> Result<DeviceEvents, InterruptError> {
        self.inner.events()
    }

    fn counters(&self) -> Option<AccessCounters> {
        // A card in another process counts nothing here, a served one of this process does.
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
