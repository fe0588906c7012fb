//! Shared code of the cases: an opened card on a fault-injecting backend, and channel pairs (a channel under test and one of the other
//! direction that checks it).

use crate::causes::Lower as _;
use core::cell::RefCell;
use core::time::Duration;
use fpga_pci::InterruptError;
use std::sync::Arc;
use std::time::Instant;

use fpga_card::fault_plan::FaultEntry;
use fpga_driver::{
    Card, CardAddr, CardRange, ChannelOptions, Direction, DmaBuffer, Error, MemoryHandle, OpenOptions,
    ResourceError, RunMode, WaitOptions, recovery,
    recovery::{RecoveryLevel, RecoveryOptions},
};
use fpga_pci::Backend;
use fpga_sim::SimNetwork;
use fpga_sim::served::MessageCount;

use super::{Build, Capability, Cost, Fixture, Skip, TestBackend, UserLevel, Verdict, faults};
use crate::bed::{Channel, SETUPS, TestSetup};
use crate::fault_injecting::FaultInjectingBackend;
use crate::{TIMEOUT, bytes};

/// Bytes of card memory that cases use where its size is known.
const SCRATCH: u64 = 32 << 20;
/// Bytes of card memory that cases use where its size is unknown: the block memory of the vendor's example design.
const SCRATCH_UNKNOWN: u64 = 4096;
/// Bytes of a transfer that measures a card's rate.
const RATE_SAMPLE: u64 = 64 << 10;
/// Start of the memory that cases use. The memory below stays as it is: programs mostly fill memory from the start.
const SCRATCH_START: u64 = 1 << 20;

/// Wait options with a long timeout: a machine may be busy.
#[must_use]
pub fn long_wait() -> WaitOptions {
    WaitOptions::default().timeout(TIMEOUT)
}

/// One card, for one case.
pub struct CaseContext<'a> {
    backend: &'a dyn TestBackend,
    fixture: &'a dyn Fixture,
    costs: RefCell<Vec<Cost>>,
}

impl core::fmt::Debug for CaseContext<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CaseContext").field("backend", &self.backend.name()).finish_non_exhaustive()
    }
}

/// An opened card.
#[derive(Debug)]
pub struct Opened {
    /// The card.
    pub card: Card,
    /// Fault-injecting backend of the card.
    pub injector: Arc<FaultInjectingBackend>,
    /// Card memory that may be used.
    pub scratch: CardRange,
    /// Counter of messages to the card, if it is reached by messages.
    pub messages: Option<MessageCount>,
}

/// Maximum time until an engine is idle, where a case makes it hang. An engine that works stops within microseconds.
pub const HANG_TIMEOUT: Duration = Duration::from_millis(200);

/// Unit of the sizes that [`CaseContext::bytes_within`] returns, in bytes: a beat of the widest data bus.
const PACE_STEP: usize = 64;

impl<'a> CaseContext<'a> {
    pub(super) const fn new(backend: &'a dyn TestBackend, fixture: &'a dyn Fixture) -> Self {
        Self { backend, fixture, costs: RefCell::new(Vec::new()) }
    }

    /// Reports the cost of this work beside the case's outcome.
    pub fn show(&self, cost: Cost) {
        self.costs.borrow_mut().push(cost);
    }

    pub(super) fn take_costs(&mut self) -> Vec<Cost> {
        core::mem::take(self.costs.get_mut())
    }

    /// The backend.
    #[must_use]
    pub const fn backend(&self) -> &dyn TestBackend {
        self.backend
    }

    /// The simulated card itself, where it is in this process.
    #[must_use]
    pub fn simulated(&self) -> Option<(SimNetwork, usize)> {
        self.fixture.card()
    }

    /// Whether the card runs in its own thread, in real time.
    #[must_use]
    pub fn real_time(&self) -> bool {
        self.backend.missing_reason(Capability::Repeatable).is_some()
    }

    /// Returns the number of bytes that this card moves on one channel within `span`: a multiple of 64, and at least that.
    ///
    /// The driver has limits in real time that are made for hardware: 25 ms for an engine to stop, 100 ms between two looks at a sleeping
    /// channel, a second for a part of a copy inside the card. A design in a simulator moves a few bytes per microsecond and exceeds them
    /// without a fault. A case whose expectation holds only below such a limit sizes its transfers by this function, with a `span` of at
    /// most a twentieth of the limit. The rate is measured: the faster of two transfers of 64 KiB, in the slower direction. Channels 0 must
    /// be free. In virtual time, sizes are unlimited.
    #[must_use]
    pub fn bytes_within(&self, opened: &Opened, span: Duration) -> usize {
        if !self.real_time() {
            return usize::MAX;
        }
        let (bytes, took) = (u128::from(RATE_SAMPLE.min(opened.scratch.length)), opened.sample_time());
        let within = bytes * span.as_nanos() / took.as_nanos().max(1);
        (usize::try_from(within).unwrap_or(usize::MAX) / PACE_STEP * PACE_STEP).max(PACE_STEP)
    }

    /// Runs `case` on a card of another build.
    ///
    /// # Errors
    /// The case's, or the skip where the backend has no such card.
    pub fn on(&self, build: &Build, case: impl FnOnce(&CaseContext<'_>) -> Verdict) -> Verdict {
        let fixture = self.backend.fixture_of(build).map_err(Skip)?;
        let mut context = CaseContext::new(self.backend, &*fixture);
        let verdict = case(&context);
        self.costs.borrow_mut().append(context.costs.get_mut());
        verdict
    }

    /// Sets these faults of the card and no others from now on.
    pub fn set_faults(&self, list: impl IntoIterator<Item = FaultEntry>) {
        let set = self.fixture.set_faults(&faults::plan(list));
        set.unwrap_or_else(|why| panic!("setting the card's faults failed: {why}"));
    }

    /// Number of times that the set faults have occurred.
    #[must_use]
    pub fn strikes(&self) -> u64 {
        self.fixture.strikes().unwrap_or_else(|why| panic!("reading the number of faults failed: {why}"))
    }

    /// Puts a removed card back.
    pub fn replug(&self) {
        self.fixture.replug().unwrap_or_else(|why| panic!("putting the card back failed: {why}"));
    }

    /// Sets what the card's user logic does with a user interrupt line.
    pub fn user_line(&self, line: u8, level: UserLevel) {
        self.fixture.user_line(line, level).unwrap_or_else(|why| panic!("user interrupt {line}: {why}"));
    }

    /// Makes the bus report an error.
    ///
    /// # Errors
    /// The skip, where the backend cannot cause one.
    pub fn bus_error(&self) -> Result<(), Skip> {
        self.fixture.bus_error().map_err(Skip)
    }

    /// Opens the backend of the card anew.
    #[must_use]
    pub fn open_backend(&self) -> Arc<FaultInjectingBackend> {
        let backend =
            self.fixture.open_backend().unwrap_or_else(|why| panic!("opening the backend failed: {why}"));
        FaultInjectingBackend::wrap(backend, self.fixture.card())
    }

    /// Resets the card with the recovery steps, by the mildest reset that the backend has.
    pub fn reset(&self) {
        let backend = self.open_backend() as Arc<dyn Backend>;
        // A short limit is enough: the caller has already found that the engines do not stop.
        let options = RecoveryOptions::default()
            .at_least(RecoveryLevel::Function)
            .with_max_level(RecoveryLevel::Bus)
            .limit(Duration::from_millis(50));
        let report = recovery::recover(&backend, &OpenOptions::default(), &options)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(report.well && report.reopen, "{report:?}");
    }

    /// Opens the card.
    #[must_use]
    pub fn open(&self) -> Opened {
        self.open_with(OpenOptions::default())
    }

    /// Opens the card for a case in which an engine hangs: the driver gives up such an engine early.
    #[must_use]
    pub fn open_to_hang(&self) -> Opened {
        self.open_with(OpenOptions::default().idle_timeout(HANG_TIMEOUT))
    }

    /// Opens the card with options.
    #[must_use]
    pub fn open_with(&self, options: OpenOptions) -> Opened {
        let memory = self.fixture.memory();
        let options = memory.map_or(options.clone(), |memory| options.card_memory(memory));
        let options =
            self.fixture.cdma_offset().map_or(options.clone(), |offset| options.cdma_offset(offset));
        let opened = Opened::on(self.open_backend(), options);
        let scratch =
            memory.map_or(opened.scratch, |memory| CardRange::new(memory.start, memory.length.min(SCRATCH)));
        Opened { messages: self.fixture.messages(), scratch, ..opened }
    }
}

impl Opened {
    /// Opens the card through the fault-injecting backend `injector`.
    #[must_use]
    pub fn on(injector: Arc<FaultInjectingBackend>, options: OpenOptions) -> Self {
        let card = Card::from_backend_with(
            Arc::<FaultInjectingBackend>::clone(&injector) as Arc<dyn Backend>,
            options,
        )
        .unwrap_or_else(|error| panic!("opening the card failed: {error}"));
        let scratch = match &card.info().ni {
            Some(ni) => {
                let start = ni.memory.start.get().saturating_add(SCRATCH_START);
                let length = ni.memory.length.saturating_sub(2 * SCRATCH_START).min(SCRATCH);
                CardRange::new(CardAddr::new(start), length)
            }
            None => CardRange::new(CardAddr::ZERO, SCRATCH_UNKNOWN),
        };
        Self { card, injector, scratch, messages: None }
    }

    /// Card address `offset` bytes into the memory that may be used.
    #[must_use]
    pub fn at(&self, offset: u64) -> CardAddr {
        CardAddr::new(self.scratch.start.get() + offset)
    }

    /// Returns the time of a transfer of [`RATE_SAMPLE`] bytes in the slower direction.
    fn sample_time(&self) -> Duration {
        let length = usize::try_from(RATE_SAMPLE.min(self.scratch.length)).unwrap_or(0);
        let mut buffer = Some(self.card.buffer(length).expect("DMA memory"));
        let mut fastest = |transfer: &mut dyn FnMut(DmaBuffer) -> DmaBuffer| {
            let mut time = || {
                let began = Instant::now();
                buffer = buffer.take().map(&mut *transfer);
                began.elapsed()
            };
            time().min(time())
        };
        let mut channels = (self.card.h2c(0).ok(), self.card.c2h(0).ok());
        let written = channels.0.as_mut().map(|h2c| {
            fastest(&mut |buffer| {
                h2c.write_with(buffer, self.at(0), long_wait()).expect("the write succeeds")
            })
        });
        let read = channels.1.as_mut().map(|c2h| {
            fastest(&mut |buffer| c2h.read_with(buffer, self.at(0), long_wait()).expect("the read succeeds"))
        });
        written.max(read).unwrap_or_default()
    }

    /// Skips the case unless the card is known to have `bytes` bytes of usable memory.
    ///
    /// # Errors
    /// The skip.
    pub fn needs(&self, bytes: u64) -> Result<(), Skip> {
        if self.scratch.length >= bytes {
            return Ok(());
        }
        Err(Skip(format!(
            "the case needs {bytes} bytes of card memory, and the known size is {}",
            self.scratch.length
        )))
    }

    /// Enables interrupts.
    ///
    /// # Errors
    /// The skip, where the card has fewer vectors than channels.
    pub fn interrupts(&self) -> Result<(), Skip> {
        match self.card.enable_interrupts() {
            Ok(_) => Ok(()),
            Err(error) if error.kind.lower::<InterruptError>().is_some() => {
                Err(Skip(format!("enabling interrupts failed: {error}")))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Every direction and run mode that this card has on its first channels.
    #[must_use]
    pub fn setups(&self) -> Vec<TestSetup> {
        let has = |direction| self.card.info().xdma.count(direction) > 0;
        SETUPS.into_iter().filter(|setup| has(setup.direction)).collect()
    }

    /// Takes a channel pair with default options.
    ///
    /// # Errors
    /// As [`pair_with`](Self::pair_with).
    pub fn pair(&self, setup: TestSetup) -> Result<ChannelPair, Skip> {
        self.pair_with(setup, setup.options())
    }

    /// Takes channel 0 of `way`, and channel 0 of the other direction.
    ///
    /// # Errors
    /// The skip, where the card has no channel to check by or does not support the run mode.
    pub fn pair_with(&self, setup: TestSetup, options: ChannelOptions) -> Result<ChannelPair, Skip> {
        let channel = match setup.take(&self.card, 0, options) {
            Ok(channel) => channel,
            Err(error @ Error { kind: ResourceError::CreditModeUnsupported { .. }, .. }) => {
                return Err(Skip(error.to_string()));
            }
            Err(error) => panic!("{error}"),
        };
        let back = match setup.direction {
            Direction::C2h => Direction::H2c,
            _ => Direction::C2h,
        };
        let back = TestSetup { direction: back, mode: RunMode::Batch, threaded: setup.threaded };
        match back.take(&self.card, 0, back.options()) {
            Ok(other) => Ok(ChannelPair {
                setup,
                channel,
                other,
                card: self.card.clone(),
                base: self.scratch.start.get(),
            }),
            Err(error @ Error { kind: ResourceError::NoSuchChannel { .. }, .. }) => {
                Err(Skip(format!("no channel of the other direction to check the data with: {error}")))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Asserts that `areas` allocations are in use (those that channels keep for themselves) and `quarantined` are in quarantine.
    pub fn assert_pool(&self, areas: usize, quarantined: usize) {
        crate::cards::assert_pool(&self.card, areas, quarantined);
    }

    /// Closes the card. Nothing may be mapped afterwards, and bus mastering must be off.
    pub fn close(self) {
        let Self { card, injector, .. } = self;
        drop(card);
        assert!(injector.mappings().is_empty(), "mapped after closing: {:x?}", injector.mappings());
        let command = fpga_pci::config::read_u16(&*injector, COMMAND).expect("configuration space");
        assert_eq!(command & BUS_MASTER, 0, "the card may still do DMA: command register {command:#06x}");
    }
}

/// Command register and its bus-master bit (PCI Local Bus 3.0, 6.2.2).
const COMMAND: u16 = 4;
const BUS_MASTER: u16 = 1 << 2;

/// A channel under test, and one of the other direction to check it by.
#[derive(Debug)]
pub struct ChannelPair {
    /// Direction and run mode.
    pub setup: TestSetup,
    /// Channel under test.
    pub channel: Channel,
    other: Channel,
    card: Card,
    base: u64,
}

impl ChannelPair {
    /// Card address `offset` bytes into the memory that may be used.
    #[must_use]
    pub const fn at(&self, offset: u64) -> CardAddr {
        CardAddr::new(self.base + offset)
    }

    /// Writes card memory.
    pub fn write(&mut self, at: CardAddr, data: &[u8]) {
        let buffer = self.card.buffer_from(data).expect("DMA memory");
        let h2c = if self.setup.to_card() { &mut self.channel } else { &mut self.other };
        if let Err(failed) = h2c.transfer(buffer, at, long_wait()) {
            panic!("{:?}: {failed}", self.setup);
        }
    }

    /// Reads card memory.
    #[must_use]
    pub fn read(&mut self, at: CardAddr, length: usize) -> Vec<u8> {
        let mut buffer = self.card.buffer(length).expect("DMA memory");
        buffer.fill(0xEE);
        let c2h = if self.setup.to_card() { &mut self.other } else { &mut self.channel };
        match c2h.transfer(buffer, at, long_wait()) {
            Ok(buffer) => buffer.to_vec(),
            Err(failed) => panic!("{:?}: {failed}", self.setup),
        }
    }

    /// A buffer for a transfer of `data` to or from `at`. For a card-to-host transfer the data is written to `at`.
    #[must_use]
    pub fn buffer(&mut self, at: CardAddr, data: &[u8]) -> DmaBuffer {
        if self.setup.to_card() {
            return self.card.buffer_from(data).expect("DMA memory");
        }
        self.write(at, data);
        let mut buffer = self.card.buffer(data.len()).expect("DMA memory");
        buffer.fill(0xEE);
        buffer
    }

    /// Whether `data` is at the destination of a transfer between `buffer` and `at`.
    #[must_use]
    pub fn moved(&mut self, buffer: &DmaBuffer, at: CardAddr, data: &[u8]) -> bool {
        if self.setup.to_card() { self.read(at, data.len()) == data } else { buffer.to_vec() == data }
    }

    /// Puts `data` at the source of a transfer between registered memory and `at`.
    pub fn put(&mut self, memory: MemoryHandle, offset: usize, at: CardAddr, data: &[u8]) {
        let host = if self.setup.to_card() { data } else { &vec![0xEE; data.len()] };
        self.channel
            .memory(memory)
            .expect("registered memory")
            .write(offset, host)
            .expect("inside the memory");
        if !self.setup.to_card() {
            self.write(at, data);
        }
    }

    /// Whether `data` is at the destination of a transfer between registered memory and `at`.
    #[must_use]
    pub fn arrived(&mut self, memory: MemoryHandle, offset: usize, at: CardAddr, data: &[u8]) -> bool {
        if self.setup.to_card() {
            return self.read(at, data.len()) == data;
        }
        let mut found = vec![0; data.len()];
        self.channel
            .memory(memory)
            .expect("registered memory")
            .read(offset, &mut found)
            .expect("inside the memory");
        found == data
    }

    /// Returns the channel under test and drops the other one.
    #[must_use]
    pub fn into_channel(self) -> Channel {
        self.channel
    }

    /// Runs one transfer that has to arrive, with the given wait options.
    pub fn check(&mut self, seed: u64, length: usize, offset: u64, options: WaitOptions) {
        let (data, at) = (bytes(seed, length), self.at(offset));
        let buffer = self.buffer(at, &data);
        match self.channel.transfer(buffer, at, options) {
            Ok(buffer) => assert!(
                self.moved(&buffer, at, &data),
                "{:?}: {length} bytes at {at} differ from the data sent",
                self.setup
            ),
            Err(failed) => panic!("{:?}: {length} bytes at {at}: {failed}", self.setup),
        }
    }

    /// Asserts that the channel works.
    pub fn assert_works(&mut self, seed: u64) {
        self.check(seed, 3001, 0x101, long_wait());
    }
}
