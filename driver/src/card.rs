//! Opening a card, and what is known of it.

use core::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fpga_firmware::generated::BlockType;
use fpga_firmware::identity::{Identity, ReadError};
use fpga_pci::{
    AccessCounters, Bar, ConfigError, DmaBuffer, DmaPool, DmaPoolOptions, Interrupt, MmioError, Transport,
    config,
};
use fpga_registers::pci::{command, header};
use fpga_registers::xdma::{
    ChannelBlock, ChannelControl, ChannelMask, Direction, IRQ_BASE, IrqBlock, MAX_CHANNELS, Target, UserMask,
    VectorNumbers, channel_base, irq::channel_bit,
};
use fpga_registers::{BarOffset, CardAddr};

use crate::cdma::Cdma;
use crate::channel::{C2hChannel, ChannelName, ChannelOptions, Engine, H2cChannel};
use crate::discover::{self, BarRoles};
use crate::error::{CardName, OpenError, ResourceError};
use crate::info::{CardInfo, XdmaInfo};
use crate::ni::NiInfo;

/// PCI subsystem ids of bitstreams that carry the identity block: only there is the user BAR read without being told to.
const NI_SUBSYSTEM: (u16, u16) = (fpga_registers::pci::VENDOR_XILINX, 0x4E49);

/// How long a channel that was left running may take to stop.
const QUIESCE_LIMIT_NS: u64 = 2_000_000_000;

/// Whether the card carries the network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum NetworkInterface {
    /// Look for it if the PCI subsystem id is one of ours. The user BAR of any other card is never read: a read may have side
    /// effects there, or never be answered.
    #[default]
    BySubsystem,
    /// The identity block is there; refuse the card if it is not.
    Expected,
    /// Do not look.
    Ignored,
}

/// How to open a card.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Number of the BAR with the XDMA registers, if it cannot be told.
    pub dma_bar: Option<u8>,
    /// Whether to look for the network interface.
    pub network_interface: NetworkInterface,
    /// Where DMA memory comes from.
    pub memory: DmaPoolOptions,
}

impl OpenOptions {
    /// The XDMA registers are in BAR `index`.
    #[must_use]
    pub const fn dma_bar(mut self, index: u8) -> Self {
        self.dma_bar = Some(index);
        self
    }

    /// Whether to look for the network interface.
    #[must_use]
    pub const fn network_interface(mut self, choice: NetworkInterface) -> Self {
        self.network_interface = choice;
        self
    }

    /// Where DMA memory comes from.
    #[must_use]
    pub fn memory(mut self, options: DmaPoolOptions) -> Self {
        self.memory = options;
        self
    }
}

/// A range of card addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardRange {
    /// First address.
    pub start: CardAddr,
    /// Bytes.
    pub length: u64,
}

impl CardRange {
    /// `length` bytes from `start` on.
    #[must_use]
    pub const fn new(start: CardAddr, length: u64) -> Self {
        Self { start, length }
    }

    /// Whether all of `length` bytes from `start` on lie inside.
    #[must_use]
    pub const fn contains(&self, start: CardAddr, length: u64) -> bool {
        match start.get().checked_sub(self.start.get()) {
            Some(offset) => offset <= self.length && length <= self.length - offset,
            None => false,
        }
    }

    /// Its last address.
    #[must_use]
    pub const fn last(&self) -> CardAddr {
        CardAddr::new(self.start.get().saturating_add(self.length.saturating_sub(1)))
    }
}

/// What all handles of one card share. Dropped when the last of them is: channels first, then this.
pub(crate) struct Shared {
    pub(crate) name: CardName,
    pub(crate) pool: DmaPool,
    pub(crate) dma_bar: Bar,
    pub(crate) user_bar: Option<Bar>,
    pub(crate) info: CardInfo,
    pub(crate) interrupts: Mutex<Vec<Interrupt>>,
    ranges: Option<Vec<CardRange>>,
    /// Taken channels: H2C in bits 3:0, C2H in bits 7:4; bit 8 the CDMA, bit 9 the endpoint.
    taken: AtomicU32,
    pub(crate) transport: Arc<dyn Transport>,
}

const CDMA_TAKEN: u32 = 1 << 8;
const ENDPOINT_TAKEN: u32 = 1 << 9;

const fn taken_bit(name: ChannelName) -> u32 {
    match name.direction {
        Direction::C2h => 1 << (4 + name.number % 4),
        _ => 1 << (name.number % 4),
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("name", &self.name).field("info", &self.info).finish_non_exhaustive()
    }
}

/// The right to use one channel; given back when dropped.
#[derive(Debug)]
pub(crate) struct ChannelClaim {
    pub(crate) name: ChannelName,
    card: Arc<Shared>,
}

impl Drop for ChannelClaim {
    fn drop(&mut self) {
        self.card.taken.fetch_and(!taken_bit(self.name), Ordering::AcqRel);
    }
}

impl Shared {
    /// The card addresses that DMA can reach, where they are known.
    pub(crate) fn reachable(&self) -> Option<&[CardRange]> {
        self.ranges.as_deref()
    }

    fn take(&self, bit: u32, what: impl FnOnce() -> String) -> Result<(), ResourceError> {
        if self.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            return Ok(());
        }
        Err(ResourceError::InUse { card: self.name.clone(), what: what() })
    }

    pub(crate) fn give_back_cdma(&self) {
        self.taken.fetch_and(!CDMA_TAKEN, Ordering::AcqRel);
    }

    pub(crate) fn take_endpoint(&self) -> Result<(), ResourceError> {
        self.take(ENDPOINT_TAKEN, || "the endpoint".to_owned())
    }

    pub(crate) fn give_back_endpoint(&self) {
        self.taken.fetch_and(!ENDPOINT_TAKEN, Ordering::AcqRel);
    }

    fn channels(&self) -> impl Iterator<Item = ChannelName> + use<> {
        self.info.xdma.channels()
    }
}

impl Drop for Shared {
    /// Stop, confirm idle, take the right to do DMA away, and only then let the pool unmap memory.
    fn drop(&mut self) {
        for name in self.channels() {
            if let Err(error) = quiesce(&self.dma_bar, &*self.transport, &self.name, name) {
                tracing::warn!(card = %self.name, %error, "closing the card");
            }
        }
        let _ = IrqBlock::CHANNEL_ENABLE.write(&self.dma_bar, IRQ_BASE, ChannelMask::from_bits(0));
        let _ = IrqBlock::USER_ENABLE.write(&self.dma_bar, IRQ_BASE, UserMask::from_bits(0));
        let _ = self.transport.disable_interrupts();
        if let Err(error) = self.transport.set_bus_master(false) {
            tracing::warn!(card = %self.name, %error, "switching bus mastering off");
        }
    }
}

/// An opened card. Clones are handles to the same card; it closes with the last handle of any kind (channel, CDMA, endpoint).
#[derive(Debug, Clone)]
pub struct Card {
    pub(crate) shared: Arc<Shared>,
}

impl Card {
    /// Opens a card with default options. One `Card` (and its clones) per transport at a time: a second one would stop the
    /// first one's engines.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(transport: Arc<dyn Transport>) -> Result<Self, OpenError> {
        Self::open_with(transport, OpenOptions::default())
    }

    /// Opens a card: finds its BARs, confirms that it is an XDMA, finds its channels, stops what an earlier owner left
    /// running, checks its identity where it has one, and gives it the right to do DMA.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing is left enabled then.
    pub fn open_with(transport: Arc<dyn Transport>, options: OpenOptions) -> Result<Self, OpenError> {
        let name = transport.name().to_owned();
        let ids = read_ids(&*transport, &name)?;
        let roles = discover::roles(&*transport, options.dma_bar)?;
        let open =
            |index| transport.open_bar(index).map_err(|source| OpenError::Bar { card: name.clone(), source });
        let dma_bar = open(roles.dma.index)?;
        discover::confirm(&name, roles.dma.index, &dma_bar)?;
        let xdma = XdmaInfo::read(&dma_bar).map_err(|source| mmio(&name, source))?;
        for channel in xdma.channels() {
            quiesce(&dma_bar, &*transport, &name, channel)?;
        }
        let mask_off = || -> Result<(), MmioError> {
            IrqBlock::CHANNEL_ENABLE.write(&dma_bar, IRQ_BASE, ChannelMask::from_bits(0))?;
            IrqBlock::USER_ENABLE.write(&dma_bar, IRQ_BASE, UserMask::from_bits(0))
        };
        mask_off().map_err(|source| mmio(&name, source))?;

        let user_bar = roles.user.map(|bar| open(bar.index)).transpose()?;
        let (identity, ni) = network_interface(&name, &options, ids.subsystem, &roles, user_bar.as_ref())?;
        let ranges = ni.as_ref().map(NiInfo::card_ranges);
        let info = CardInfo { name: name.clone(), ids, roles, xdma, identity, ni };

        // A killed owner's interface may still push events to where its ring was: not before it is silent may the card do DMA.
        if let (Some(ni), Some(bar)) = (&info.ni, &user_bar) {
            ni.silence(bar).map_err(|source| mmio(&name, source))?;
        }
        transport.set_bus_master(true).map_err(|source| OpenError::Config { card: name.clone(), source })?;
        let pool = DmaPool::new(Arc::clone(&transport), options.memory);
        Ok(Self {
            shared: Arc::new(Shared {
                name: name.into(),
                pool,
                dma_bar,
                user_bar,
                info,
                interrupts: Mutex::new(Vec::new()),
                ranges,
                taken: AtomicU32::new(0),
                transport,
            }),
        })
    }

    /// What is known of the card.
    #[must_use]
    pub fn info(&self) -> &CardInfo {
        &self.shared.info
    }

    /// The name it was opened by: a PCI address, or the simulated card's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The XDMA register BAR.
    #[must_use]
    pub fn dma_bar(&self) -> &Bar {
        &self.shared.dma_bar
    }

    /// The user BAR, if the card has one. What a read of it does is up to the design.
    #[must_use]
    pub fn user_bar(&self) -> Option<&Bar> {
        self.shared.user_bar.as_ref()
    }

    /// What the card counted about its own use; simulated cards count, real ones do not.
    #[must_use]
    pub fn counters(&self) -> Option<AccessCounters> {
        self.shared.transport.counters()
    }

    /// The card's DMA memory.
    #[must_use]
    pub fn memory(&self) -> &DmaPool {
        &self.shared.pool
    }

    /// A DMA buffer of `length` bytes. Its content is whatever was there.
    ///
    /// # Errors
    /// [`ResourceError::Memory`].
    pub fn buffer(&self, length: usize) -> Result<DmaBuffer, ResourceError> {
        self.shared.pool.allocate(length).map_err(|source| self.memory_error(source))
    }

    /// A DMA buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<DmaBuffer, ResourceError> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Ok(buffer)
    }

    pub(crate) fn memory_error(&self, source: fpga_pci::DmaAllocError) -> ResourceError {
        ResourceError::Memory { card: self.shared.name.clone(), source }
    }

    /// Takes H2C channel `number` with default options.
    ///
    /// # Errors
    /// [`ResourceError::NoSuchChannel`], [`ResourceError::InUse`], [`ResourceError::Memory`].
    pub fn h2c(&self, number: u8) -> Result<H2cChannel, ResourceError> {
        self.h2c_with(number, ChannelOptions::default())
    }

    /// Takes H2C channel `number`.
    ///
    /// # Errors
    /// As [`h2c`](Self::h2c); [`ResourceError::Ring`] for options that cannot be.
    pub fn h2c_with(&self, number: u8, options: ChannelOptions) -> Result<H2cChannel, ResourceError> {
        self.engine(ChannelName { direction: Direction::H2c, number }, options).map(H2cChannel)
    }

    /// Takes C2H channel `number` with default options.
    ///
    /// # Errors
    /// As [`h2c`](Self::h2c).
    pub fn c2h(&self, number: u8) -> Result<C2hChannel, ResourceError> {
        self.c2h_with(number, ChannelOptions::default())
    }

    /// Takes C2H channel `number`.
    ///
    /// # Errors
    /// As [`h2c_with`](Self::h2c_with).
    pub fn c2h_with(&self, number: u8, options: ChannelOptions) -> Result<C2hChannel, ResourceError> {
        self.engine(ChannelName { direction: Direction::C2h, number }, options).map(C2hChannel)
    }

    fn engine(&self, name: ChannelName, options: ChannelOptions) -> Result<Engine, ResourceError> {
        let card = || self.shared.name.clone();
        let available = self.shared.info.xdma.count(name.direction);
        if name.number >= available {
            return Err(ResourceError::NoSuchChannel { card: card(), channel: name, available });
        }
        if self.shared.info.xdma.stream {
            return Err(ResourceError::Stream { card: card() });
        }
        self.shared.take(taken_bit(name), || format!("channel {name}"))?;
        let claim = ChannelClaim { name, card: Arc::clone(&self.shared) };
        let interrupt = {
            let interrupts = self.shared.interrupts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let vector = channel_bit(name.direction, name.number, self.shared.info.xdma.h2c_channels);
            interrupts.get(usize::from(vector)).cloned()
        };
        Engine::new(Arc::clone(&self.shared), claim, options, interrupt)
    }

    /// Takes the CDMA engine.
    ///
    /// # Errors
    /// [`ResourceError::Absent`] if the identity block names none (or was not read), [`ResourceError::InUse`].
    pub fn cdma(&self) -> Result<Cdma, ResourceError> {
        let block = self.shared.info.identity.as_ref().map(|identity| identity.block(BlockType::Cdma).ok());
        let (Some(block), Some(bar)) = (block.flatten(), &self.shared.user_bar) else {
            return Err(ResourceError::Absent {
                card: self.shared.name.clone(),
                what: "the CDMA engine",
                reason: "the card has no identity block that says where its registers are; use Card::cdma_at",
            });
        };
        let registers = bar
            .slice(block.base(), u64::from(block.size))
            .map_err(|source| ResourceError::Mmio { card: self.shared.name.clone(), source })?;
        self.cdma_with(registers)
    }

    /// Takes the CDMA engine whose registers are at `at` in the user BAR: for designs without an identity block.
    ///
    /// # Errors
    /// [`ResourceError::Absent`] without a user BAR, [`ResourceError::InUse`], [`ResourceError::Mmio`] if it does not fit.
    pub fn cdma_at(&self, at: BarOffset) -> Result<Cdma, ResourceError> {
        let Some(bar) = &self.shared.user_bar else {
            return Err(ResourceError::Absent {
                card: self.shared.name.clone(),
                what: "the CDMA engine",
                reason: "the card has no user BAR",
            });
        };
        let registers = bar
            .slice(at, u64::from(fpga_registers::cdma::CdmaBlock::SIZE))
            .map_err(|source| ResourceError::Mmio { card: self.shared.name.clone(), source })?;
        self.cdma_with(registers)
    }

    fn cdma_with(&self, registers: Bar) -> Result<Cdma, ResourceError> {
        self.shared.take(CDMA_TAKEN, || "the CDMA engine".to_owned())?;
        Ok(Cdma::new(Arc::clone(&self.shared), registers))
    }

    /// Enables one interrupt vector per channel, H2C first. Call it before taking channels that wait by interrupt.
    ///
    /// # Errors
    /// [`ResourceError::Interrupt`] if the card has fewer vectors than channels, or the system refuses.
    pub fn enable_interrupts(&self) -> Result<(), ResourceError> {
        let card = || self.shared.name.clone();
        let xdma = &self.shared.info.xdma;
        let channels = u32::from(xdma.h2c_channels) + u32::from(xdma.c2h_channels);
        let mut interrupts = self.shared.interrupts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !interrupts.is_empty() {
            return Ok(());
        }
        let enabled = self
            .shared
            .transport
            .enable_interrupts(channels)
            .map_err(|source| ResourceError::Interrupt { card: card(), source })?;
        let program = || -> Result<(), MmioError> {
            for (register, first) in IrqBlock::CHANNEL_VECTORS.into_iter().zip([0u8, 4]) {
                let vectors = [first, first + 1, first + 2, first + 3];
                register.write(&self.shared.dma_bar, IRQ_BASE, VectorNumbers::of(vectors))?;
            }
            let mask = (1u32 << channels) - 1;
            IrqBlock::CHANNEL_ENABLE.write(&self.shared.dma_bar, IRQ_BASE, ChannelMask::from_bits(mask))
        };
        if let Err(source) = program() {
            let _ = self.shared.transport.disable_interrupts();
            return Err(ResourceError::Mmio { card: card(), source });
        }
        *interrupts = enabled;
        Ok(())
    }
}

fn mmio(card: &str, source: MmioError) -> OpenError {
    OpenError::Mmio { card: card.to_owned(), source }
}

fn read_ids(transport: &dyn Transport, name: &str) -> Result<crate::info::PciIds, OpenError> {
    let read = || -> Result<crate::info::PciIds, ConfigError> {
        let (vendor, device) = config::identity(transport)?;
        let subsystem = (
            config::read_u16(transport, header::SUBSYSTEM_VENDOR_ID)?,
            config::read_u16(transport, header::SUBSYSTEM_ID)?,
        );
        let enabled = config::read_u16(transport, header::COMMAND)?;
        if vendor != fpga_registers::pci::VENDOR_NONE && enabled & command::MEMORY_SPACE == 0 {
            transport.config_write(header::COMMAND, &(enabled | command::MEMORY_SPACE).to_le_bytes())?;
        }
        Ok(crate::info::PciIds { vendor, device, subsystem })
    };
    let ids = match read() {
        Err(ConfigError::Gone) => return Err(OpenError::Gone { card: name.to_owned() }),
        other => other.map_err(|source| OpenError::Config { card: name.to_owned(), source })?,
    };
    if ids.vendor == fpga_registers::pci::VENDOR_NONE {
        return Err(OpenError::Gone { card: name.to_owned() });
    }
    Ok(ids)
}

/// Stops a channel and waits until it is idle: whoever had the card before may have been killed in the middle of a run.
fn quiesce(bar: &Bar, transport: &dyn Transport, card: &str, channel: ChannelName) -> Result<(), OpenError> {
    let base = channel_base(channel.direction, channel.number);
    let error = |source| OpenError::Mmio { card: card.to_owned(), source };
    ChannelBlock::CONTROL.write(bar, base, ChannelControl::new()).map_err(error)?;
    let began = transport.now();
    loop {
        let status = ChannelBlock::STATUS.read(bar, base).map_err(error)?;
        if status.into_bits() == u32::MAX {
            return Err(OpenError::Gone { card: card.to_owned() });
        }
        if !status.busy() {
            return Ok(());
        }
        let waited = transport.now().saturating_sub(began);
        if waited >= QUIESCE_LIMIT_NS {
            return Err(OpenError::NotIdle { card: card.to_owned(), channel, waited_ms: waited / 1_000_000 });
        }
        transport.relax();
    }
}

type Interface = (Option<Identity>, Option<NiInfo>);

fn network_interface(
    card: &str,
    options: &OpenOptions,
    subsystem: (u16, u16),
    roles: &BarRoles,
    bar: Option<&Bar>,
) -> Result<Interface, OpenError> {
    let wanted = match options.network_interface {
        NetworkInterface::Ignored => false,
        NetworkInterface::Expected => true,
        NetworkInterface::BySubsystem => subsystem == NI_SUBSYSTEM,
    };
    if !wanted {
        return Ok((None, None));
    }
    let (Some(bar), Some(role)) = (bar, roles.user) else {
        return Err(OpenError::RoleAbsent {
            card: card.to_owned(),
            role: "user (AXI-Lite)",
            needed_for: "the network interface",
        });
    };
    let needed = u64::from(fpga_firmware::generated::USER_BAR_MIN_SIZE);
    if role.size < needed {
        return Err(OpenError::BarTooSmall {
            card: card.to_owned(),
            role: "user",
            index: role.index,
            size: role.size,
            needed,
        });
    }
    let identity = Identity::read(bar, bar.size()).map_err(|source| match source {
        ReadError::Access { error, .. } => mmio(card, error),
        source => OpenError::Identity { card: card.to_owned(), source },
    })?;
    let ni = NiInfo::read(bar, &identity).map_err(|source| mmio(card, source))?;
    Ok((Some(identity), Some(ni)))
}

/// The number of channels in one direction: the vendor's driver too stops at the first one that is missing.
pub(crate) fn count_channels(bar: &Bar, direction: Direction) -> Result<u8, MmioError> {
    for number in 0..MAX_CHANNELS {
        let id = ChannelBlock::IDENTIFIER.read(bar, channel_base(direction, number))?;
        if !id.is(Target::channel(direction)) || id.channel() != number {
            return Ok(number);
        }
    }
    Ok(MAX_CHANNELS)
}
