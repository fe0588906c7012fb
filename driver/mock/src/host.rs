//! All that a card reaches of its host: memory through its IOMMU, and interrupts.

use crate::dma::DmaMap;
use fpga_card::{DmaFault, DmaSpace, HostPort};
use fpga_pci::InterruptTrigger;
use fpga_registers::Iova;

/// The host side of one card.
#[derive(Debug, Default)]
pub(crate) struct HostSide {
    pub(crate) map: DmaMap,
    pub(crate) interrupts: Vec<InterruptTrigger>,
}

impl DmaSpace for HostSide {
    #[inline]
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        self.map.read(at, into)
    }

    #[inline]
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        self.map.write(at, from)
    }
}

impl HostPort for HostSide {
    fn interrupt(&mut self, vector: u16) {
        if let Some(trigger) = self.interrupts.get(usize::from(vector)) {
            trigger.signal();
        }
    }
}
