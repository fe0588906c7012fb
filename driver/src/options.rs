//! Options for opening a card.

use core::time::Duration;

use fpga_pci::DmaPoolOptions;
use fpga_registers::BarOffset;

use crate::range::CardRange;
use crate::spec::AccessOptions;

use crate::wait::IDLE_TIMEOUT_NS;

/// Whether to read the network interface's identity block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum NetworkInterface {
    /// Read the identity block if the PCI subsystem id is [`NI_SUBSYSTEM`](crate::NI_SUBSYSTEM) or [`VIEW_SUBSYSTEM`](crate::VIEW_SUBSYSTEM). The user BAR of any other card is never
    /// read: a read may have side effects there, or may never complete.
    #[default]
    BySubsystem,
    /// Require the identity block; opening fails without it.
    Expected,
    /// Do not read the identity block.
    Ignored,
}

/// Options for opening a card.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Number of the BAR with the XDMA registers, if it cannot be determined from configuration space.
    pub dma_bar: Option<u8>,
    /// Whether to read the network interface's identity block.
    pub network_interface: NetworkInterface,
    /// Offset of the CDMA's registers in the user BAR, for designs without an identity block.
    pub cdma_offset: Option<BarOffset>,
    /// Source and limits of DMA memory.
    pub memory: DmaPoolOptions,
    /// Card memory that DMA can reach, for cards without a network interface.
    pub card_memory: Option<CardRange>,
    /// Open for inspection only; see [`observe`](Self::observe).
    pub observe: bool,
    /// Maximum time until an engine is idle. Default and maximum 2 s.
    pub idle_timeout: Duration,
    /// How a card outside this process is accessed. Not used by [`Card::from_backend`](crate::Card::from_backend).
    pub access: AccessOptions,
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
            access: AccessOptions::default(),
        }
    }
}

impl OpenOptions {
    /// Sets the source and limits of DMA memory.
    #[must_use]
    pub fn memory(mut self, options: DmaPoolOptions) -> Self {
        self.memory = options;
        self
    }
}

fpga_registers::setters! {
    impl OpenOptions {
        /// Sets the number of the BAR with the XDMA registers.
        dma_bar: u8 => Some;
        /// Sets whether to read the network interface's identity block.
        network_interface: NetworkInterface;
        /// Sets the offset of the CDMA's registers in the user BAR. An identity block overrides it.
        cdma_offset: BarOffset => Some;
        /// Opens the card for inspection only. Nothing is stopped or configured, bus mastering is not enabled, and closing changes nothing.
        /// Registers can be accessed. Channels, the CDMA engine, interrupts and the endpoint cannot be taken
        /// ([`ResourceError::Observed`](crate::ResourceError)). Use it to inspect a faulty card: it also opens cards with a hung engine, and
        /// keeps the state that caused the hang.
        observe: bool;
        /// Sets the range of card memory, for a design without a network interface (a network interface reports the range itself). Transfers
        /// outside the range are refused before any data moves. Without it, only the end of the address space is a limit.
        card_memory: CardRange => Some;
        /// Sets the maximum time until an engine is idle after a stop or a reset: when the card is opened, when a channel is stopped, and after
        /// a wait that timed out. An engine that takes longer is treated as hung: its memory is quarantined, and only a reset of the card will
        /// help. Default and maximum 2 s, which the longest descriptor on the slowest link needs. A healthy engine needs microseconds.
        idle_timeout: Duration;
        /// How a card outside this process is accessed.
        access: AccessOptions;
    }
}
