//! Opening a card and taking its resources.

mod interrupts;

pub use interrupts::InterruptVectors;

use std::sync::Arc;

use fpga_pci::{
    AccessCounters, Backend, Bar, Clock, DeviceEvents, DmaAccess, DmaBuffer, DmaPool, MapRefused, MmioError,
    RegisteredMemory, SharedMemory, lock,
};
use fpga_registers::BarOffset;
use fpga_registers::xdma::{
    CONFIG_BASE, ChannelMask, ConfigBlock, Direction, IRQ_BASE, IrqBlock, UserMask, WriteFlushTimeout,
    irq::channel_bit,
};

use crate::cdma::Cdma;
use crate::channel::{C2hChannel, Channel, ChannelOptions, Engine, H2cChannel, Side};
use crate::discover::{self, BarRoles};
use crate::error::{At as _, CardPart, Error, ErrorPlace, OpenError, Refused, ResourceError};
use crate::identify::{network_interface, read_ids};
use crate::info::{CardInfo, PciIds, XdmaInfo, cdma_of};
use crate::name::{CardName, ChannelName};
use crate::options::OpenOptions;
use crate::shared::{Shared, idle_timeout, needed_access, quiesce};
use crate::silence::{AllOnesCause, reads_all_ones};
use crate::spec::CardSpec;
use crate::stream::{C2hStream, C2hStreamOptions, H2cStream};

/// Opened card. Clones are handles to the same card, which closes with the last handle of any kind (channel, CDMA, endpoint).
#[derive(Debug, Clone)]
pub struct Card {
    pub(crate) shared: Arc<Shared>,
}

impl Card {
    /// Opens the card that `spec` names, with default options: `"0000:65:00.0"`, `"vfio-user:SOCKET"`, `"mock"`, `"mock:us-x8"`; see
    /// [`CardSpec`].
    ///
    /// ```
    /// # #[cfg(feature = "sim")]
    /// let card = fpga_driver::Card::open("mock")?;
    /// # Ok::<(), fpga_driver::Error<fpga_driver::OpenError>>(())
    /// ```
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(spec: &str) -> Result<Self, Error<OpenError>> {
        Self::open_with(&spec.parse()?, OpenOptions::default())
    }

    /// Opens the card that `spec` names. The memory range of a simulated card comes from its description, unless
    /// `options` have one.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(spec: &CardSpec, options: OpenOptions) -> Result<Self, Error<OpenError>> {
        let (backend, memory) = spec.reach(&options.access)?;
        let card_memory = options.card_memory.or(memory);
        let options = OpenOptions { card_memory, ..options };
        Self::from_backend_with(backend, options)
    }

    /// Opens the card behind `backend` with default options.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn from_backend(backend: Arc<dyn Backend>) -> Result<Self, Error<OpenError>> {
        Self::from_backend_with(backend, OpenOptions::default())
    }

    /// Opens the card behind `backend`: identifies its BARs, confirms the XDMA core, finds its channels, stops engines that an earlier owner
    /// left running, checks the identity block if there is one, and enables bus mastering. With
    /// [`OpenOptions::observe`](crate::OpenOptions::observe) it only reads. Open at most one `Card` (and its clones) per backend at a time: a
    /// second one would stop the engines of the first one.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing stays enabled after an error.
    pub fn from_backend_with(
        backend: Arc<dyn Backend>,
        options: OpenOptions,
    ) -> Result<Self, Error<OpenError>> {
        let name = CardName::from(backend.name());
        Self::assemble(backend, options).at(|| ErrorPlace::new(name, CardPart::Card))
    }

    fn assemble(backend: Arc<dyn Backend>, options: OpenOptions) -> Result<Self, OpenError> {
        let ids = read_ids(&*backend)?;
        let roles = discover::roles(&*backend, options.dma_bar)?;
        let dma_bar = backend.open_bar(roles.dma.index)?;
        discover::confirm(roles.dma.index, &dma_bar)?;
        let user_bar = roles.user.map(|bar| backend.open_bar(bar.index)).transpose()?;
        let began = Self::prepare(&*backend, &options, ids, roles, &dma_bar, user_bar.as_ref());
        // A card that is removed during these steps reads as all ones, which can look like another bitstream or like a card without
        // channels. So check that it is still present before using any result.
        if reads_all_ones(&dma_bar) {
            return Err(OpenError::Gone);
        }
        let info = began.map_err(crate::identify::silent_user_bar)?;
        if !options.observe {
            backend.set_bus_master(true)?;
        }
        let pool = DmaPool::new(Arc::clone(&backend), options.memory);
        Ok(Self { shared: Shared::new(backend, info, pool, dma_bar, user_bar, &options) })
    }

    /// Reads the card's properties and stops what an earlier owner left running.
    fn prepare(
        backend: &dyn Backend,
        options: &OpenOptions,
        ids: PciIds,
        roles: BarRoles,
        dma_bar: &Bar,
        user_bar: Option<&Bar>,
    ) -> Result<CardInfo, OpenError> {
        let xdma = XdmaInfo::read(dma_bar)?;
        let name = backend.name().to_owned();
        if options.observe {
            let (identity, ni) = network_interface(options, ids.subsystem, &roles, user_bar)?;
            let cdma = cdma_of(identity.as_ref(), options);
            return Ok(CardInfo { name, ids, roles, xdma, identity, cdma, ni });
        }
        for channel in xdma.channels() {
            quiesce(dma_bar, backend, channel, idle_timeout(options))?;
        }
        let mask_off = || -> Result<(), MmioError> {
            IrqBlock::CHANNEL_ENABLE.write(dma_bar, IRQ_BASE, ChannelMask::from_bits(0))?;
            IrqBlock::USER_ENABLE.write(dma_bar, IRQ_BASE, UserMask::from_bits(0))
        };
        mask_off()?;
        let (identity, ni) = network_interface(options, ids.subsystem, &roles, user_bar)?;
        // The network interface of a killed owner may still push events to its old event ring. Stop it before the card may do DMA.
        if let (Some(ni), Some(bar)) = (&ni, user_bar) {
            ni.stop_events(bar)?;
        }
        let cdma = cdma_of(identity.as_ref(), options);
        Ok(CardInfo { name, ids, roles, xdma, identity, cdma, ni })
    }

    /// Returns the card's properties.
    #[must_use]
    pub fn info(&self) -> &CardInfo {
        &self.shared.info
    }

    /// Returns the place of errors of this card, for callers that report errors of their own.
    #[must_use]
    pub fn place(&self) -> ErrorPlace {
        self.shared.place()
    }

    /// Returns the name it was opened by: a PCI address, or the simulated card's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the BAR with the XDMA registers.
    #[must_use]
    pub fn dma_bar(&self) -> &Bar {
        &self.shared.dma_bar
    }

    /// Returns the user BAR, if the card has one. The effect of a read is defined by the design.
    #[must_use]
    pub fn user_bar(&self) -> Option<&Bar> {
        self.shared.user_bar.as_ref()
    }

    /// Returns the cause of a register of the user BAR that reads as all ones: it asks configuration space and the DMA BAR.
    #[must_use]
    pub fn all_ones_cause(&self) -> AllOnesCause {
        self.shared.all_ones_cause()
    }

    /// Backs off after a poll that found nothing: spins, yields or sleeps, depending on the time already waited. Returns whether this
    /// thread has slept. For loops that poll several channels or endpoints. Call [`Backoff::reset`](fpga_pci::Backoff::reset) after a poll
    /// that found work.
    pub fn back_off(&self, backoff: &mut fpga_pci::Backoff) -> bool {
        backoff.back_off(&*self.shared.backend, u64::MAX)
    }

    /// Waits for `span` without accessing the card: this thread sleeps, and a simulated card in this process works meanwhile. For loops
    /// whose polls have found nothing for a while.
    pub fn pause(&self, span: core::time::Duration) {
        self.shared.backend.pause(span);
    }

    /// Returns the clock of the card's timeouts: virtual if the card is simulated in this process, and works only while it is polled.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.backend.clock()
    }

    /// Time since an arbitrary start, on the [clock](Self::clock) of the card's timeouts.
    #[must_use]
    pub fn now(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.shared.backend.now())
    }

    /// Returns the card's access counters; `None` on real cards, which do not count.
    #[must_use]
    pub fn counters(&self) -> Option<AccessCounters> {
        self.shared.backend.counters()
    }

    /// Returns the card's DMA pool.
    #[must_use]
    pub fn memory(&self) -> &DmaPool {
        &self.shared.pool
    }

    /// Allocates a DMA buffer of `length` bytes. Its content is unspecified.
    ///
    /// # Errors
    /// [`ResourceError::Cause`].
    pub fn buffer(&self, length: usize) -> Result<DmaBuffer, Error<ResourceError>> {
        self.shared.pool.allocate(length).map_err(ResourceError::from).at(|| self.shared.place())
    }

    /// Allocates a DMA buffer of `length` bytes for one direction: the card can only read it (H2C), or only write it (C2H). Its DMA
    /// mapping enforces this, whichever address and direction the card's descriptors have. A [`buffer`](Self::buffer) permits both.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn buffer_for(&self, direction: Direction, length: usize) -> Result<DmaBuffer, Error<ResourceError>> {
        let access = needed_access(direction);
        self.shared.pool.allocate_for(length, access).map_err(ResourceError::from).at(|| self.shared.place())
    }

    /// Allocates a DMA buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<DmaBuffer, Error<ResourceError>> {
        let mut buffer = self.buffer(bytes.len())?;
        // The buffer has the requested length, so the write fits.
        let whole = buffer.write(0, bytes);
        debug_assert!(whole.is_ok());
        Ok(buffer)
    }

    /// Allocates `length` bytes of page-aligned DMA memory that stays shared with the card, for
    /// [`H2cChannel::register_memory`](crate::H2cChannel::register_memory). Its content is unspecified. Clones of it can be registered with
    /// several channels, such as one for each direction.
    ///
    /// # Errors
    /// [`ResourceError::Cause`].
    pub fn registered_memory(&self, length: usize) -> Result<RegisteredMemory, Error<ResourceError>> {
        self.shared.registered_memory(length)
    }

    /// Maps memory of the caller for the card without copying it: a file, memory shared with another process, huge pages. It is unmapped
    /// when the returned memory and its clones are dropped.
    ///
    /// # Errors
    /// [`ResourceError::Cause`], which returns the memory.
    pub fn map_memory(
        &self,
        memory: SharedMemory,
        access: DmaAccess,
    ) -> Result<RegisteredMemory, Refused<SharedMemory, Error<ResourceError>>> {
        self.shared.pool.map(memory, access).map_err(|MapRefused { error, memory, .. }| {
            Refused { error: ResourceError::from(error), payload: memory }.at(|| self.place())
        })
    }

    /// Takes H2C channel `number` with default options.
    ///
    /// # Errors
    /// [`ResourceError::NoSuchChannel`], [`ResourceError::InUse`], [`ResourceError::Cause`].
    pub fn h2c(&self, number: u8) -> Result<H2cChannel, Error<ResourceError>> {
        self.h2c_with(number, ChannelOptions::default())
    }

    /// Takes H2C channel `number`.
    ///
    /// # Errors
    /// As [`h2c`](Self::h2c); [`ResourceError::Cause`] for invalid options.
    pub fn h2c_with(&self, number: u8, options: ChannelOptions) -> Result<H2cChannel, Error<ResourceError>> {
        self.engine(ChannelName { direction: Direction::H2c, number }, Side::Memory, options)
            .map(Channel::new)
    }

    /// Takes C2H channel `number` with default options.
    ///
    /// # Errors
    /// As [`h2c`](Self::h2c).
    pub fn c2h(&self, number: u8) -> Result<C2hChannel, Error<ResourceError>> {
        self.c2h_with(number, ChannelOptions::default())
    }

    /// Takes C2H channel `number`.
    ///
    /// # Errors
    /// As [`h2c_with`](Self::h2c_with).
    pub fn c2h_with(&self, number: u8, options: ChannelOptions) -> Result<C2hChannel, Error<ResourceError>> {
        self.engine(ChannelName { direction: Direction::C2h, number }, Side::Memory, options)
            .map(Channel::new)
    }

    /// Takes a memory-mapped channel of either direction.
    ///
    /// # Errors
    /// As [`h2c`](Self::h2c).
    pub fn channel(
        &self,
        direction: Direction,
        number: u8,
        options: ChannelOptions,
    ) -> Result<Channel, Error<ResourceError>> {
        self.engine(ChannelName { direction, number }, Side::Memory, options).map(Channel::new)
    }

    /// Takes H2C stream channel `number` with default options.
    ///
    /// # Errors
    /// As [`h2c`](Self::h2c); [`ResourceError::NotStream`] on a card with memory-mapped channels.
    pub fn h2c_stream(&self, number: u8) -> Result<H2cStream, Error<ResourceError>> {
        self.h2c_stream_with(number, ChannelOptions::default())
    }

    /// Takes H2C stream channel `number`. [`ChannelOptions::fixed_address`] has no effect on a stream.
    ///
    /// # Errors
    /// As [`h2c_stream`](Self::h2c_stream); [`ResourceError::Cause`] for invalid options.
    pub fn h2c_stream_with(
        &self,
        number: u8,
        options: ChannelOptions,
    ) -> Result<H2cStream, Error<ResourceError>> {
        let name = ChannelName { direction: Direction::H2c, number };
        self.engine(name, Side::Stream, options.fixed_address(false)).map(H2cStream)
    }

    /// Takes C2H stream channel `number` with default options.
    ///
    /// # Errors
    /// As [`h2c_stream`](Self::h2c_stream).
    pub fn c2h_stream(&self, number: u8) -> Result<C2hStream, Error<ResourceError>> {
        self.c2h_stream_with(number, C2hStreamOptions::default())
    }

    /// Takes C2H stream channel `number`.
    ///
    /// # Errors
    /// As [`h2c_stream`](Self::h2c_stream); [`ResourceError::Cause`] and [`ResourceError::StreamBuffers`] for invalid options,
    /// [`ResourceError::CreditModeUnsupported`].
    pub fn c2h_stream_with(
        &self,
        number: u8,
        options: C2hStreamOptions,
    ) -> Result<C2hStream, Error<ResourceError>> {
        let name = ChannelName { direction: Direction::C2h, number };
        let channel = options.channel().at(|| self.shared.place())?;
        let engine = self.engine(name, Side::Stream, channel)?;
        C2hStream::new(&self.shared, engine, &options)
    }

    /// Sets the card's write flush timeout (PG195, 0x3060). A C2H stream descriptor that has received data, and then nothing for
    /// 2^`exponent` clock cycles of the card, is closed; its packet continues in the next descriptor. 0, the value after a reset, disables
    /// the timeout. The register applies to all channels. An `exponent` above 31 is taken as 31.
    ///
    /// # Errors
    /// [`ResourceError::NotStream`], [`ResourceError::Observed`], [`ResourceError::Cause`].
    pub fn set_write_flush_timeout(&self, exponent: u8) -> Result<(), Error<ResourceError>> {
        self.flush_writes(exponent).at(|| self.shared.place())
    }

    fn flush_writes(&self, exponent: u8) -> Result<(), ResourceError> {
        self.shared.check_owned()?;
        if !self.shared.info.xdma.stream {
            return Err(ResourceError::NotStream);
        }
        // Set before the register is written: a descriptor closed by the timeout must not be taken for a fault. The flag stays set, because
        // such a completion may be in flight.
        if exponent != 0 {
            self.shared.flush.store(true, core::sync::atomic::Ordering::Relaxed);
        }
        let timeout = WriteFlushTimeout::new().with_exponent(exponent.min(31));
        ConfigBlock::WRITE_FLUSH_TIMEOUT
            .write(&self.shared.dma_bar, CONFIG_BASE, timeout)
            .map_err(ResourceError::from)
    }

    pub(crate) fn check_channel(&self, name: ChannelName) -> Result<(), ResourceError> {
        let available = self.shared.info.xdma.count(name.direction);
        if name.number < available {
            return Ok(());
        }
        Err(ResourceError::NoSuchChannel { channel: name, available })
    }

    fn engine(
        &self,
        name: ChannelName,
        side: Side,
        options: ChannelOptions,
    ) -> Result<Engine, Error<ResourceError>> {
        self.take_engine(name, side, options).at(|| self.shared.place())
    }

    pub(crate) fn take_engine(
        &self,
        name: ChannelName,
        side: Side,
        options: ChannelOptions,
    ) -> Result<Engine, ResourceError> {
        self.check_channel(name)?;
        match (side, self.shared.info.xdma.stream) {
            (Side::Memory, true) => return Err(ResourceError::Stream),
            (Side::Stream, false) => return Err(ResourceError::NotStream),
            _ => {}
        }
        let mut claim = self.shared.claim_channel(name)?;
        if matches!(side, Side::Stream) {
            claim.claim_stream()?;
        }
        let interrupt = {
            let interrupts = lock(&self.shared.interrupts);
            let vector = channel_bit(name.direction, name.number, self.shared.info.xdma.h2c_channels);
            interrupts.get(usize::from(vector)).cloned()
        };
        Engine::new(Arc::clone(&self.shared), claim, side, options, interrupt)
    }

    /// Takes the CDMA engine.
    ///
    /// # Errors
    /// [`ResourceError::Absent`] if neither the identity block nor [`OpenOptions::cdma_offset`] gives its offset, or if there is no user
    /// BAR; [`ResourceError::InUse`]; [`ResourceError::Cause`] if its registers are not inside the user BAR.
    pub fn cdma(&self) -> Result<Cdma, Error<ResourceError>> {
        let Some(at) = self.shared.info.cdma else {
            let reason = "the card has no identity block with the offset of its registers";
            return Err(ResourceError::Absent { what: "the CDMA engine", reason }).at(|| self.shared.place());
        };
        self.cdma_at(at)
    }

    /// Takes the CDMA engine with registers at offset `at` of the user BAR, for designs without an identity block.
    ///
    /// # Errors
    /// [`ResourceError::Absent`] without a user BAR, [`ResourceError::InUse`], [`ResourceError::Cause`] if its registers are not inside the
    /// user BAR.
    pub fn cdma_at(&self, at: BarOffset) -> Result<Cdma, Error<ResourceError>> {
        let Some(bar) = &self.shared.user_bar else {
            let error = ResourceError::Absent { what: "the CDMA engine", reason: "the card has no user BAR" };
            return Err(error).at(|| self.shared.place());
        };
        bar.slice(at, u64::from(fpga_registers::cdma::CdmaBlock::SIZE))
            .map_err(ResourceError::from)
            .and_then(|registers| self.cdma_with(registers))
            .at(|| self.shared.place())
    }

    fn cdma_with(&self, registers: Bar) -> Result<Cdma, ResourceError> {
        self.shared.take_cdma()?;
        Ok(Cdma::new(Arc::clone(&self.shared), registers))
    }

    /// Returns the device events of the card other than its interrupts: bus errors and device-release requests (REQ). Poll them, wait for
    /// them, or add their file descriptor to an event loop. They are collected from the moment the card's backend is opened.
    /// [`DeviceEvents::can_have`] returns which events a card can have.
    ///
    /// # Errors
    /// [`ResourceError::Cause`] if the system provides no file descriptor.
    pub fn events(&self) -> Result<DeviceEvents, Error<ResourceError>> {
        self.shared.backend.events().map_err(ResourceError::from).at(|| self.shared.place())
    }
}
