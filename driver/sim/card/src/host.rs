//! Interface of the card to its surroundings: host memory by IOVA, interrupts, error messages, and a network that takes frames at once.

use fpga_firmware::NodeId;
use fpga_firmware::wire::CRC_LENGTH;
use fpga_registers::Iova;
use fpga_registers::invariant::DebugExpect as _;

/// Host memory as the card reaches it through the IOMMU.
///
/// Every access uses the current mappings. An implementation looks the address up each time, walks adjacent mappings (one access may span
/// many), checks permissions, and refuses unmapped addresses.
pub trait DmaSpace {
    /// Copies host memory at `at` into `into`: a memory read request.
    ///
    /// # Errors
    /// [`DmaFault`] at the first byte that the card may not read; the bytes before it were copied.
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault>;

    /// Copies `from` into host memory at `at`: a memory write request.
    ///
    /// # Errors
    /// [`DmaFault`] at the first byte that the card may not write; the bytes before it were written.
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault>;

    /// [`read`](Self::read) of every part, in order. For kilobytes of data, which an implementation may be able to move in bulk. Every part
    /// lies inside `memory`.
    ///
    /// # Errors
    /// The index of the first part that fails, and its fault. The parts before it were copied, those after it were not tried.
    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        parts.iter().enumerate().try_for_each(|(index, part)| {
            let into = memory.get_mut(part.range()).debug_expect("a part of the memory").unwrap_or_default();
            self.read(part.at, into).map_err(|fault| (index, fault))
        })
    }

    /// [`write`](Self::write) of every part, in order; see [`read_parts`](Self::read_parts).
    ///
    /// # Errors
    /// As for [`read_parts`](Self::read_parts).
    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        parts.iter().enumerate().try_for_each(|(index, part)| {
            let from = memory.get(part.range()).debug_expect("a part of the memory").unwrap_or_default();
            self.write(part.at, from).map_err(|fault| (index, fault))
        })
    }
}

/// One of many accesses in a row: an address in host memory and a range of the other memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaPart {
    /// First byte in host memory.
    pub at: Iova,
    /// First byte in the other memory.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

impl DmaPart {
    /// Range of the part in the other memory, as an index.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset.saturating_add(self.length)
    }
}

/// Interrupt to the host, by the method that software has enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interrupt {
    /// MSI-X message of this table entry.
    Msix(u16),
    /// MSI message with this number, below the number of messages that software has enabled.
    Msi(u16),
    /// The legacy line of the pin in configuration space rises (`true`) or falls. The line is a level; its changes are reported
    /// ([`crate::Card::line_asserted`] returns the level).
    Line(bool),
}

/// Error message to the root complex (PCIe 6.2), which becomes an AER event on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorMessage {
    /// ERR_COR.
    Correctable,
    /// ERR_NONFATAL.
    NonFatal,
    /// ERR_FATAL: the link is no longer reliable.
    Fatal,
}

/// A packet with payload, in parts where they are.
#[derive(Clone, Copy, Debug)]
pub struct FrameParts<'a> {
    /// Header of the packet.
    pub header: &'a [u8],
    /// Payload, in a transmit window.
    pub payload: &'a [u8],
    /// Checksum over both, which follows the payload.
    pub checksum: [u8; CRC_LENGTH],
}

impl FrameParts<'_> {
    /// Length of the frame in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.header.len() + self.payload.len() + CRC_LENGTH
    }
}

/// Network port that takes frames from where their parts are, so that the card needs no buffer for them.
pub trait FrameSink {
    /// Sends a frame, or loses it, as a network does.
    fn send(&mut self, frame: &FrameParts<'_>);
}

/// A frame that is not in the card's memory, and whose bytes others may change at any time.
pub trait FrameSource {
    /// Length of the frame in bytes.
    fn length(&self) -> usize;

    /// Copy of the frame's first bytes, which is made once: as many as the longest header has, if the frame is as long.
    fn start(&self) -> &[u8];

    /// Copies bytes of the frame from `offset` on. Returns `false` beyond its end, and if the memory is gone.
    fn read(&self, offset: usize, into: &mut [u8]) -> bool;
}

/// The surroundings of one card: host memory, interrupts, error messages, and a network that takes frames at once.
pub trait HostPort: DmaSpace {
    /// Delivers an interrupt.
    fn interrupt(&mut self, interrupt: Interrupt);

    /// Delivers an error message. The default, for a host without error reporting, ignores it.
    fn error(&mut self, message: ErrorMessage) {
        let _ = message;
    }

    /// Returns the network port that takes frames for node `destination` at once. The default has none: frames wait in the card until
    /// [`crate::Card::take_frame_at`].
    fn frame_sink(&mut self, destination: NodeId) -> Option<&mut dyn FrameSink> {
        let _ = destination;
        None
    }
}

// A reference implements the trait too, so that `&mut dyn HostPort` fits a type parameter.
impl<T: DmaSpace + ?Sized> DmaSpace for &mut T {
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        (**self).read(at, into)
    }

    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        (**self).write(at, from)
    }

    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        (**self).read_parts(parts, memory)
    }

    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        (**self).write_parts(parts, memory)
    }
}

impl<T: HostPort + ?Sized> HostPort for &mut T {
    fn interrupt(&mut self, interrupt: Interrupt) {
        (**self).interrupt(interrupt);
    }

    fn error(&mut self, message: ErrorMessage) {
        (**self).error(message);
    }

    fn frame_sink(&mut self, destination: NodeId) -> Option<&mut dyn FrameSink> {
        (**self).frame_sink(destination)
    }
}

/// Access that the IOMMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the IOMMU does not permit the card to {} host memory at {at}", if *write { "write" } else { "read" })]
pub struct DmaFault {
    /// First refused address.
    pub at: Iova,
    /// The access was a write.
    pub write: bool,
}

/// Host without mappings that drops interrupts. For tests of registers alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl DmaSpace for NoHost {
    fn read(&mut self, at: Iova, _into: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { at, write: false })
    }

    fn write(&mut self, at: Iova, _from: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { at, write: true })
    }
}

impl HostPort for NoHost {
    fn interrupt(&mut self, _interrupt: Interrupt) {}
}
