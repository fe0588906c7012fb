//! Host side of a card: memory through its IOMMU, interrupts, error messages.

use std::sync::Arc;

use crate::dma::DmaMap;
use crate::link::Link;
use crate::observer::{HostEvent, HostObserver};
use crate::signals::{Kind, Signals};
use fpga_card::{DmaFault, DmaPart, DmaSpace, ErrorMessage, FrameParts, FrameSink, HostPort, Interrupt};
use fpga_firmware::NodeId;
use fpga_registers::Iova;

/// The host side of one card.
#[derive(Debug, Default)]
pub(crate) struct HostSide {
    pub(crate) map: DmaMap,
    pub(crate) signals: Signals,
    pub(crate) observer: Option<Arc<dyn HostObserver>>,
    /// The link to other processes, during a burst of work.
    pub(crate) direct: DirectPort,
}

/// Network port that passes frames from transmit windows to a link.
#[derive(Debug, Default)]
pub(crate) struct DirectPort {
    pub(crate) link: Option<Link>,
    /// Number of frames in this burst, and their bytes.
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

impl FrameSink for DirectPort {
    fn send(&mut self, frame: &FrameParts<'_>) {
        if let Some(link) = &mut self.link {
            link.queue_parts([frame.header, frame.payload, &frame.checksum]);
            self.frames += 1;
            self.bytes += frame.length() as u64;
        }
    }
}

impl HostSide {
    #[inline]
    pub(crate) fn observe(&self, event: &HostEvent<'_>) {
        if let Some(observer) = &self.observer {
            observer.observed(event);
        }
    }

    fn observe_parts(&self, parts: &[DmaPart], is_write: bool) {
        if self.observer.is_none() {
            return;
        }
        for DmaPart { at, length, .. } in parts.iter().copied() {
            self.observe(&memory_event(at, length, is_write));
        }
    }

    fn observe_fault(&self, fault: DmaFault) {
        self.observe(&HostEvent::MemoryRefused { at: fault.at });
    }
}

const fn memory_event(at: Iova, length: usize, is_write: bool) -> HostEvent<'static> {
    if is_write { HostEvent::MemoryWrite { at, length } } else { HostEvent::MemoryRead { at, length } }
}

impl DmaSpace for HostSide {
    #[inline]
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        self.observe(&memory_event(at, into.len(), false));
        self.map.read(at, into).inspect_err(|fault| self.observe_fault(*fault))
    }

    #[inline]
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        self.observe(&memory_event(at, from.len(), true));
        self.map.write(at, from).inspect_err(|fault| self.observe_fault(*fault))
    }

    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        self.observe_parts(parts, false);
        self.map.read_parts(parts, memory).inspect_err(|(_, fault)| self.observe_fault(*fault))
    }

    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        self.observe_parts(parts, true);
        self.map.write_parts(parts, memory).inspect_err(|(_, fault)| self.observe_fault(*fault))
    }
}

impl HostPort for HostSide {
    fn interrupt(&mut self, interrupt: Interrupt) {
        self.observe(&HostEvent::Interrupt(interrupt));
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

    fn frame_sink(&mut self, destination: NodeId) -> Option<&mut dyn FrameSink> {
        self.direct.link.as_ref().filter(|link| link.takes_parts(destination))?;
        Some(&mut self.direct)
    }
}
