//! Facts about a card's design that the user gives.

use fpga_driver::{BarOffset, NetworkInterface, OpenOptions};

/// Facts about a card's design that the user gives because the card does not report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Design {
    /// `--dma-bar`.
    pub dma_bar: Option<u8>,
    /// `--cdma-offset`.
    pub cdma_offset: Option<BarOffset>,
    /// `--ni`.
    pub interface: bool,
}

impl Design {
    /// Options to open such a card.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.dma_bar = self.dma_bar;
        options.cdma_offset = self.cdma_offset;
        if self.interface {
            options = options.network_interface(NetworkInterface::Expected);
        }
        options
    }
}
