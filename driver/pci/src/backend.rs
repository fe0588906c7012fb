//! One opened PCI function, whatever stands behind it: the kernel's vfio, a served card, a card in this process.
//!
//! A backend supplies registers, memory mappings, interrupts and reset, and nothing of the protocol on top.

use core::fmt;
use core::ops::RangeInclusive;

use fpga_registers::Iova;

use crate::{
    Bar, BarError, Clock, ConfigError, DeviceEvents, DmaMapError, Interrupt, InterruptError, MemoryKind,
    ResetError, SharedMemory, config,
};

/// What a BAR decodes. PCI Local Bus 3.0, section 6.2.5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BarKind {
    /// Memory, 32-bit address.
    Memory32,
    /// Memory, 64-bit address: takes this and the next BAR register.
    Memory64,
    /// I/O ports. Listed, but not opened by any backend.
    Io,
}

/// One implemented BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BarInfo {
    /// Number, 0 to 5.
    pub index: u8,
    /// Size in bytes.
    pub size: u64,
    /// What it decodes.
    pub kind: BarKind,
    /// The device promises that reads have no side effects and that writes may be merged.
    pub prefetchable: bool,
}

/// What the device may do with mapped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DmaAccess {
    /// The device reads it (host to card).
    ReadByDevice,
    /// The device writes it (card to host).
    WriteByDevice,
    /// Both.
    Both,
}

impl DmaAccess {
    /// Whether the device may read.
    #[must_use]
    pub const fn device_reads(self) -> bool {
        matches!(self, Self::ReadByDevice | Self::Both)
    }

    /// Whether the device may write.
    #[must_use]
    pub const fn device_writes(self) -> bool {
        matches!(self, Self::WriteByDevice | Self::Both)
    }
}

/// How much a reset resets. The ladder of recovery goes from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ResetLevel {
    /// Function-level reset of this function alone (PCIe Base, section 6.6.2).
    Function,
    /// Hot reset of the link: every function below the port.
    Hot,
}

impl fmt::Display for ResetLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "function-level",
            Self::Hot => "hot",
        })
    }
}

/// What a card counted about its own use, since it was made. Simulated cards count; real ones do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessCounters {
    /// Register reads (each a full round trip on the bus).
    pub mmio_reads: u64,
    /// Register writes (posted).
    pub mmio_writes: u64,
    /// Interrupt messages sent.
    pub interrupts: u64,
    /// Interrupts that each line of user logic has asked for.
    pub user_interrupts: [u64; 16],
    /// DMA descriptors executed.
    pub descriptors: u64,
    /// Bytes moved by DMA, both directions.
    pub dma_bytes: u64,
}

/// One opened PCI function.
///
/// All methods take `&self` and may be called from several threads; calls that change the same thing (interrupts,
/// reset) are serialised by the implementation.
///
/// # What an implementation owes
///
/// * Memory handed to [`map_dma`](Self::map_dma) is accessed on behalf of the device only, and only at addresses that the device
///   was told by a descriptor.
/// * After [`unmap_dma`](Self::unmap_dma) returned `Ok` the device reaches the memory no more.
/// * Bus mastering is off when the function is opened, and is switched off first when it is closed.
///
/// Memory safety does not depend on any of this: an implementation that breaks these rules, or a device that writes where it
/// was not told to, produces wrong bytes in [`DmaBuffer`](crate::DmaBuffer)s and [`RegisteredMemory`](crate::RegisteredMemory)s, which are read and
/// written by copies and atomic words alone.
pub trait Backend: Send + Sync {
    /// For messages: the PCI address or the name of the simulated card.
    fn name(&self) -> &str;

    /// Reads configuration space into `into`, starting at byte `at`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] beyond the device's configuration space; [`ConfigError::Refused`] by the system.
    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigError>;

    /// Writes `from` to configuration space, starting at byte `at`.
    ///
    /// # Errors
    /// As [`config_read`](Self::config_read).
    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigError>;

    /// The implemented BARs by number. The upper half of a 64-bit BAR is `None`.
    fn bars(&self) -> [Option<BarInfo>; 6];

    /// Opens BAR `index` for register access.
    ///
    /// # Errors
    /// See [`BarError`].
    fn open_bar(&self, index: u8) -> Result<Bar, BarError>;

    /// Lets the device reach the whole of `memory` at addresses from `iova` on. The implementation keeps a clone
    /// of `memory` (or of its mapping) until it is unmapped.
    ///
    /// # Errors
    /// See [`DmaMapError`]. Nothing is mapped then.
    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError>;

    /// Undoes one [`map_dma`](Self::map_dma): same start, same length.
    ///
    /// # Errors
    /// See [`DmaMapError`]. The memory must be treated as still mapped then.
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError>;

    /// The addresses that may be mapped, ascending, without overlap: what the IOMMU permits, without holes such as
    /// the MSI window.
    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>>;

    /// Size in bytes that mappings are made in multiples of. A power of two.
    fn dma_page_size(&self) -> u64 {
        4096
    }

    /// Kind of memory that [`map_dma`](Self::map_dma) maps best: what pools are made of. The default is memory of this process
    /// alone; a backend whose device lives in another process asks for memory that can be passed on. The memory itself is
    /// always made by this crate, never by a backend.
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Anonymous
    }

    /// How many interrupt vectors the device has.
    fn interrupt_vectors(&self) -> u32;

    /// Enables vectors `0..count`, all at once.
    ///
    /// # Errors
    /// See [`InterruptError`]; nothing is enabled then. [`InterruptError::TooMany`] says how many can be had: fewer than the
    /// device has, where the system is short of them.
    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError>;

    /// Disables all vectors. Does nothing if none are enabled.
    ///
    /// # Errors
    /// [`InterruptError::Refused`].
    fn disable_interrupts(&self) -> Result<(), InterruptError>;

    /// What the system has to say about the device beside its interrupts. Armed when the function was opened, so that
    /// nothing is missed. The default has no events.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    fn events(&self) -> Result<DeviceEvents, InterruptError> {
        DeviceEvents::new(None, None)
    }

    /// Resets the device. Afterwards BARs opened before are stale ([`MmioError::Stale`](crate::MmioError::Stale)
    /// where the backend can tell), bus mastering is off, and the device needs its initialisation again.
    ///
    /// # Errors
    /// See [`ResetError`]. The state of the device is unknown then.
    fn reset(&self, level: ResetLevel) -> Result<(), ResetError>;

    /// Nanoseconds since an arbitrary start, on the clock that [`clock`](Self::clock) names.
    fn now(&self) -> u64;

    /// The clock that [`now`](Self::now) reads, and that time-outs of waits count: virtual for a card that is simulated inside the
    /// calling thread.
    fn clock(&self) -> Clock {
        Clock::Monotonic
    }

    /// One step of a polling loop: a spin-loop hint on hardware ([`wait::spin`](crate::wait::spin), which yields from time to time);
    /// lets a card inside this thread take a step.
    fn relax(&self);

    /// Lets `span` pass without a look at the device: this thread sleeps. A card inside this thread works meanwhile, in its own time.
    fn pause(&self, span: core::time::Duration) {
        std::thread::sleep(span);
    }

    /// Sleeps until `interrupt`, one of those that [`enable_interrupts`](Self::enable_interrupts) gave, was signalled,
    /// or `timeout` has passed: `None`. A card inside this thread takes its steps meanwhile, in its own time.
    ///
    /// # Errors
    /// [`InterruptError::WaitFailed`].
    fn wait_interrupt(
        &self,
        interrupt: &Interrupt,
        timeout: core::time::Duration,
    ) -> Result<Option<u64>, InterruptError> {
        interrupt.wait(timeout)
    }

    /// What the card counted, where it counts.
    fn counters(&self) -> Option<AccessCounters> {
        None
    }

    /// Switches bus mastering (the right of the device to do DMA and to send interrupts) on or off. Devices are
    /// opened with it off: the driver switches it on when it is ready.
    ///
    /// # Errors
    /// As [`config_read`](Self::config_read); [`ConfigError::Gone`] if the bit does not take.
    fn set_bus_master(&self, on: bool) -> Result<(), ConfigError> {
        config::set_bus_master(self, on)
    }
}
