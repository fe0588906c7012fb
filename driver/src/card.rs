//! Opening a card, and taking its parts.

use std::sync::Arc;

use fpga_firmware::generated::BlockType;
use fpga_pci::{
    AccessCounters, Bar, DmaAccess, DmaArea, DmaBuffer, DmaPool, MapRefused, MmioError, SharedMemory,
    Transport,
};
use fpga_registers::BarOffset;
use fpga_registers::xdma::{
    ChannelMask, Direction, IRQ_BASE, IrqBlock, UserMask, VectorNumbers, irq::channel_bit,
};

use crate::cdma::Cdma;
use crate::channel::{C2hChannel, ChannelOptions, Engine, H2cChannel};
use crate::discover::{self, BarRoles};
use crate::error::{OpenError, ResourceError};
use crate::identify::{mmio, network_interface, read_ids};
use crate::info::{CardInfo, PciIds, XdmaInfo};
use crate::name::ChannelName;
use crate::options::OpenOptions;
use crate::shared::{Shared, quiesce};

/// User interrupts of an XDMA (PG195, usr_irq_req).
const USER_INTERRUPTS: u32 = 16;

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
        let user_bar = roles.user.map(|bar| open(bar.index)).transpose()?;
        let began =
            Self::prepare(&*transport, &options, name.clone(), ids, roles, &dma_bar, user_bar.as_ref());
        // A card that leaves in the middle reads as all ones, which can look like another bitstream, or like a card without
        // channels: whatever was found, it has to be there still.
        if discover::reads_all_ones(&dma_bar) {
            return Err(OpenError::Gone { card: name });
        }
        let info = began?;
        transport.set_bus_master(true).map_err(|source| OpenError::Config { card: name, source })?;
        let pool = DmaPool::new(Arc::clone(&transport), options.memory);
        Ok(Self { shared: Shared::new(transport, info, pool, dma_bar, user_bar) })
    }

    /// Finds out what the card is, and puts to rest what an earlier owner left running.
    fn prepare(
        transport: &dyn Transport,
        options: &OpenOptions,
        name: String,
        ids: PciIds,
        roles: BarRoles,
        dma_bar: &Bar,
        user_bar: Option<&Bar>,
    ) -> Result<CardInfo, OpenError> {
        let xdma = XdmaInfo::read(dma_bar).map_err(|source| mmio(&name, source))?;
        for channel in xdma.channels() {
            quiesce(dma_bar, transport, &name, channel)?;
        }
        let mask_off = || -> Result<(), MmioError> {
            IrqBlock::CHANNEL_ENABLE.write(dma_bar, IRQ_BASE, ChannelMask::from_bits(0))?;
            IrqBlock::USER_ENABLE.write(dma_bar, IRQ_BASE, UserMask::from_bits(0))
        };
        mask_off().map_err(|source| mmio(&name, source))?;
        let (identity, ni) = network_interface(&name, options, ids.subsystem, &roles, user_bar)?;
        // A killed owner's interface may still push events to where its ring was: not before it is silent may the card do DMA.
        if let (Some(ni), Some(bar)) = (&ni, user_bar) {
            ni.silence(bar).map_err(|source| mmio(&name, source))?;
        }
        Ok(CardInfo { name, ids, roles, xdma, identity, ni })
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

    /// DMA memory of `length` bytes, at a page boundary, that stays shared with the card: for
    /// [`H2cChannel::attach`](crate::H2cChannel::attach). Its content is whatever was there.
    ///
    /// # Errors
    /// [`ResourceError::Memory`].
    pub fn area(&self, length: usize) -> Result<DmaArea, ResourceError> {
        const PAGE: usize = 4096;
        self.shared.pool.allocate_area(length, PAGE).map_err(|source| self.memory_error(source))
    }

    /// Maps memory of the caller's for the card, without copying it: a file, memory shared with another process, huge pages. It
    /// is unmapped when the area is dropped.
    ///
    /// # Errors
    /// [`MapRefused`] carries the memory back.
    pub fn map_memory(&self, memory: SharedMemory, access: DmaAccess) -> Result<DmaArea, MapRefused> {
        self.shared.pool.map(memory, access)
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
        let claim = self.shared.claim_channel(name)?;
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
        self.shared.take_cdma()?;
        Ok(Cdma::new(Arc::clone(&self.shared), registers))
    }

    /// Enables one interrupt vector per channel, H2C first, and as many of the vectors left as there are user interrupts (those
    /// stay masked until somebody waits for one). Call it before taking channels that wait by interrupt.
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
        let spare = self.shared.transport.interrupt_vectors().saturating_sub(channels);
        let enabled = self
            .shared
            .transport
            .enable_interrupts(channels + spare.min(USER_INTERRUPTS))
            .map_err(|source| ResourceError::Interrupt { card: card(), source })?;
        let program = || -> Result<(), MmioError> {
            for (register, first) in IrqBlock::CHANNEL_VECTORS.into_iter().zip([0u8, 4]) {
                let vectors = [first, first + 1, first + 2, first + 3];
                register.write(&self.shared.dma_bar, IRQ_BASE, VectorNumbers::of(vectors))?;
            }
            // User vectors follow the channels'. A line without a vector gets one beyond the enabled ones; it stays masked.
            let after_channels = xdma.h2c_channels.saturating_add(xdma.c2h_channels);
            for (register, line) in IrqBlock::USER_VECTORS.into_iter().zip([0u8, 4, 8, 12]) {
                let first = after_channels.saturating_add(line);
                let vectors = [0, 1, 2, 3].map(|n| first.saturating_add(n));
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
