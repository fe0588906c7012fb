//! How to open a card.

use core::time::Duration;

use fpga_pci::DmaPoolOptions;
use fpga_registers::BarOffset;

use crate::range::CardRange;

use crate::wait::IDLE_TIMEOUT_NS;

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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Number of the BAR with the XDMA registers, if it cannot be told.
    pub dma_bar: Option<u8>,
    /// Whether to look for the network interface.
    pub network_interface: NetworkInterface,
    /// Offset of the CDMA's registers in the user BAR, for designs without an identity block.
    pub cdma_offset: Option<BarOffset>,
    /// Where DMA memory comes from.
    pub memory: DmaPoolOptions,
    /// Card memory that DMA can reach, where the card does not say.
    pub card_memory: Option<CardRange>,
    /// Look only.
    pub observe: bool,
    /// How long an engine may take to come to rest. Default and maximum 2 s.
    pub idle_timeout: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            dma_bar: None,
            network_interface: NetworkInterface::default(),
            cdma_offset: None,
            memory: DmaPoolOptions::default(),
            card_memory: None,
            observe: false,
            idle_timeout: Duration::from_nanos(IDLE_TIMEOUT_NS),
        }
    }
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

    /// The CDMA's registers are at `offset` in the user BAR. An identity block that is found overrides it.
    #[must_use]
    pub const fn cdma_offset(mut self, offset: BarOffset) -> Self {
        self.cdma_offset = Some(offset);
        self
    }

    /// Opens the card as it is: nothing of it is stopped or set, it is not given the right to do DMA, and closing leaves it alone.
    /// Its registers can be accessed; its channels, CDMA engine, interrupts and endpoint cannot be taken
    /// ([`ResourceError::Observed`](crate::ResourceError)). For a look at a card that does not do what it should: it opens where an engine
    /// hangs, and what the engine hangs in is still there to be seen.
    #[must_use]
    pub const fn observe(mut self, only: bool) -> Self {
        self.observe = only;
        self
    }

    /// Says where the card's memory is, for a design without a network interface, which says it itself: transfers that are not inside it
    /// are then refused before anything is moved. Without it only the end of the address space is a limit.
    #[must_use]
    pub const fn card_memory(mut self, range: CardRange) -> Self {
        self.card_memory = Some(range);
        self
    }

    /// Maximum time that an engine may take to come to rest after it was told to stop, or was reset, when the card is opened, a channel is
    /// stopped, or a wait was in vain. An engine that takes longer hangs: its memory is quarantined, and only a reset of the card will
    /// help. Default and maximum 2 s, which the longest descriptor on the slowest link needs; a healthy engine needs microseconds.
    #[must_use]
    pub const fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Where DMA memory comes from.
    #[must_use]
    pub fn memory(mut self, options: DmaPoolOptions) -> Self {
        self.memory = options;
        self
    }
}
