//! Options of a ring of copies.

use fpga_registers::CardAddr;
use fpga_ring::cdma_ring::{LENGTH_BITS, RingConfig};

use crate::channel::H2cChannel;

/// Path of descriptors into card memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum DescriptorPath {
    /// Write descriptors through the bypass BAR, and read them back before the doorbell: the registers are behind another AXI master, so
    /// nothing else orders the two. Progress is read from the descriptors' status words, which prove completion. Costs one read per batch
    /// and one per poll.
    Bypass {
        /// Card address of the BAR's first byte (its PCIe-to-AXI translation, a build option).
        window: CardAddr,
    },
    /// Write descriptors by DMA on a lent channel, whose completion proves without a read that they have arrived. Progress is read from the
    /// current-descriptor register. Costs one read per poll, and a read of the status register when the engine has reached the tail.
    ///
    /// Choose it if there is no bypass BAR or if batches are large. The register is documented as the descriptor being processed (PG034,
    /// CURDESC_PNTR). A build whose register is ahead of the data would report copies too early.
    Channel(Box<H2cChannel>),
}

impl DescriptorPath {
    /// Returns the path through the bypass BAR, whose first byte has card address `window`.
    #[must_use]
    pub const fn bypass(window: CardAddr) -> Self {
        Self::Bypass { window }
    }

    /// Returns the path by DMA on `channel`. [`CdmaRing::close`](super::CdmaRing::close) returns the channel.
    #[must_use]
    pub fn channel(channel: H2cChannel) -> Self {
        Self::Channel(Box::new(channel))
    }
}

/// Options of a ring of copies, and build options of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CdmaRingOptions {
    /// Card address of the descriptors, a multiple of 64, in memory that the engine's descriptor port reaches. Each descriptor has 64
    /// bytes.
    pub base: CardAddr,
    /// Number of descriptors: a power of two, 2 to 65536. One of them stays free. Default 256.
    pub descriptors: u32,
    /// Maximum number of copies in flight: a power of two. Default 256.
    pub copies: u32,
    /// Bits of the length field that descriptors use, 8 to 23. Default 23, which every build has (PG034). A ring uses fewer bits if a copy
    /// of this [`Cdma`](super::Cdma) found the register narrower ([`Cdma::length_bits`](super::Cdma::length_bits)).
    pub length_bits: u8,
    /// Width of the build's data path in bytes. Default 64.
    pub data_bytes: u32,
    /// The build has the data realignment engine (DRE). Default true. If false, both addresses must be multiples of
    /// [`data_bytes`](Self::data_bytes); other copies are refused, unless channels were lent for them
    /// ([`Cdma::set_bounce_channels`](super::Cdma::set_bounce_channels), which also sets these two options).
    pub realignment: bool,
    /// User interrupt to which the design connects `cdma_introut`, 0 to 15. `None`: the ring is polled.
    pub user_interrupt: Option<u8>,
    /// Number of descriptors per completion interrupt, 1 to 255. Default 1.
    pub interrupt_threshold: u8,
    /// Maximum delay of the completion interrupt after a descriptor, in units of 125 clock cycles of the descriptor port. 0, the default,
    /// disables it. Required with a threshold above 1.
    pub interrupt_delay: u8,
}

impl CdmaRingOptions {
    /// Creates options for a ring with descriptors at card address `base`.
    #[must_use]
    pub const fn new(base: CardAddr) -> Self {
        Self {
            base,
            descriptors: 256,
            copies: 256,
            length_bits: LENGTH_BITS,
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

fpga_registers::setters! {
    impl CdmaRingOptions {
        /// Sets the number of descriptors.
        descriptors: u32;
        /// Sets the maximum number of copies in flight.
        copies: u32;
        /// Sets the bits of the length field that descriptors use.
        length_bits: u8;
        /// Sets the width of the build's data path in bytes.
        data_bytes: u32;
        /// Sets whether the build has data realignment (DRE).
        realignment: bool;
        /// Sets the number of descriptors per completion interrupt.
        interrupt_threshold: u8;
        /// Sets the maximum delay of the completion interrupt, in units of 125 clock cycles.
        interrupt_delay: u8;
    }
}

impl CdmaRingOptions {
    /// Sets the user interrupt to which the engine's interrupt is connected.
    #[must_use]
    pub const fn user_interrupt(mut self, line: u8) -> Self {
        self.user_interrupt = Some(line);
        self
    }
}
