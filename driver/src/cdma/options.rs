//! The shape of a ring of copies.

use fpga_registers::CardAddr;
use fpga_ring::cdma_ring::{LENGTH_BITS_BEFORE_4_1, RingConfig};

use crate::channel::H2cChannel;
use crate::setters::setters;

/// How descriptors get into card memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum DescriptorPath {
    /// Written through the bypass BAR, and read back before the engine is told: the registers are behind another AXI master, so
    /// nothing else orders the two. Progress is read from the descriptors' status words, which are proof. One read per batch,
    /// one per look.
    Bypass {
        /// The card address at which the BAR's first byte lands (its PCIe-to-AXI translation, a build option).
        window: CardAddr,
    },
    /// By DMA on a channel that is lent: its completion proves that they are there, without a read. Progress is read from the
    /// current-descriptor register: one read per look, and one of the status register when it has reached the tail.
    ///
    /// Choose it where there is no bypass BAR or where batches are large. The register is documented as the descriptor being
    /// processed (PG034, CURDESC_PNTR); a build whose register ran ahead of the data would report copies too early.
    Channel(Box<H2cChannel>),
}

impl DescriptorPath {
    /// Through the bypass BAR, whose first byte lands at card address `window`.
    #[must_use]
    pub const fn bypass(window: CardAddr) -> Self {
        Self::Bypass { window }
    }

    /// By DMA on `channel`, which is lent: [`CdmaRing::close`](super::CdmaRing::close) gives it back.
    #[must_use]
    pub fn channel(channel: H2cChannel) -> Self {
        Self::Channel(Box::new(channel))
    }
}

/// The shape of a ring of copies, and what the engine was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CdmaRingOptions {
    /// Card address of the descriptors: 64 bytes each, a multiple of 64, in memory that the engine's descriptor port reaches.
    pub base: CardAddr,
    /// Descriptors: a power of two, 2 to 65536, of which one stays free. Default 256.
    pub descriptors: u32,
    /// Copies in flight at most: a power of two. Default 256.
    pub copies: u32,
    /// Bits of the build's length field. Default 23, which fits every build; 26 for IP version 4.1 and later: longer descriptors,
    /// so fewer. More than the build has would copy too little.
    pub length_bits: u8,
    /// Bytes of the build's data path. Default 64.
    pub data_bytes: u32,
    /// The build has the data realignment engine (DRE). Default true; without it both addresses must be multiples of
    /// [`data_bytes`](Self::data_bytes), and others are refused, unless the engine was lent channels for them
    /// ([`Cdma::set_bounce_channels`](super::Cdma::set_bounce_channels), which also says what these two are).
    pub realignment: bool,
    /// Which user interrupt `cdma_introut` is wired to, 0 to 15: a matter of the design. Without it the ring is polled.
    pub user_interrupt: Option<u8>,
    /// Descriptors per completion interrupt, 1 to 255. Default 1.
    pub interrupt_threshold: u8,
    /// The completion interrupt comes at the latest this long after a descriptor, in units of 125 clocks of the descriptor port;
    /// 0, the default, is never. Needed with a threshold above 1.
    pub interrupt_delay: u8,
}

impl CdmaRingOptions {
    /// A ring whose descriptors lie at `base`.
    #[must_use]
    pub const fn new(base: CardAddr) -> Self {
        Self {
            base,
            descriptors: 256,
            copies: 256,
            length_bits: LENGTH_BITS_BEFORE_4_1,
            data_bytes: 64,
            realignment: true,
            user_interrupt: None,
            interrupt_threshold: 1,
            interrupt_delay: 0,
        }
    }

    pub(super) const fn config(&self, address_bits: u8) -> RingConfig {
        let mut config = RingConfig::new(self.base, self.descriptors);
        config.operations = self.copies;
        config.length_bits = self.length_bits;
        config.data_bytes = self.data_bytes;
        config.realignment = self.realignment;
        config.address_bits = address_bits;
        config
    }
}

setters! {
    impl CdmaRingOptions {
        /// A ring of so many descriptors.
        descriptors: u32;
        /// At most so many copies in flight.
        copies: u32;
        /// The build's length field has so many bits.
        length_bits: u8;
        /// The build's data path has so many bytes.
        data_bytes: u32;
        /// Whether the build realigns data.
        realignment: bool;
        /// One completion interrupt per so many descriptors.
        interrupt_threshold: u8;
        /// The completion interrupt comes at the latest after so many units of 125 clocks.
        interrupt_delay: u8;
    }
}

impl CdmaRingOptions {
    /// The engine's interrupt is user interrupt `line`.
    #[must_use]
    pub const fn user_interrupt(mut self, line: u8) -> Self {
        self.user_interrupt = Some(line);
        self
    }
}
