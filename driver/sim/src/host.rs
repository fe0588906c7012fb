//! Host side of a card: memory through its IOMMU, interrupts, error messages.

use crate::dma::DmaMap;
use crate::signals::{Kind, Signals};
use fpga_card::{DmaFault, DmaPart, DmaSpace, ErrorMessage, HostPort, Interrupt};
use fpga_registers::Iova;

/// The host side of one card.
#[derive(Debug, Default)]
pub(crate) struct HostSide {
    pub(crate) map: DmaMap,
    pub(crate) signals: Signals,
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

    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        self.map.read_parts(parts, memory)
    }

    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        self.map.write_parts(parts, memory)
    }
}

impl HostPort for HostSide {
    fn interrupt(&mut self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Msix(vector) => self.signals.message(Kind::Msix, vector),
            Interrupt::Msi(message) => self.signals.message(Kind::Msi, message),
            Interrupt::Line(true) => self.signals.line(),
            // The client learns that the line has fallen by unmasking it.
            _ => {}
        }
    }

    fn error(&mut self, message: ErrorMessage) {
        // VFIO reports errors that the device cannot correct.
        if matches!(message, ErrorMessage::NonFatal | ErrorMessage::Fatal) {
            self.signals.message(Kind::Err, 0);
        }
    }
}
