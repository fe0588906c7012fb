//! One opened PCI function on any backend: the kernel's VFIO, a served card, or a card in this process.
//!
//! A backend supplies registers, memory mappings, interrupts and reset, and no part of the protocol above them.

use core::ops::RangeInclusive;

use fpga_registers::Iova;
use fpga_registers::pci::{command, header, power};
use fpga_registers::xdma::Direction;

use crate::config::{ConfigSpace, identity, power_control, read_u16};
use crate::{
    AccessCounters, Bar, BarError, BarInfo, CardTiming, Clock, ConfigSpaceError, DeviceEvents, DmaAccess,
    DmaMapError, Interrupt, InterruptError, MemoryKind, ResetError, ResetLevel, ServerError, SharedMemory,
};

/// One opened PCI function.
///
/// All methods take `&self` and may be called from several threads; calls that change the same thing (interrupts,
/// reset) are serialised by the implementation.
///
/// # Requirements on an implementation
///
/// * Memory given to [`map_dma`](Self::map_dma) is accessed on behalf of the device only, and only at addresses that a descriptor has given
///   to the device.
/// * After [`unmap_dma`](Self::unmap_dma) returned `Ok` the device no longer reaches the memory.
/// * Bus mastering is off when the function is opened, and is switched off first when it is closed.
///
/// Memory safety does not depend on any of this: an implementation that breaks these rules, or a device that writes to a wrong address,
/// produces wrong bytes in [`DmaBuffer`](crate::DmaBuffer)s and [`RegisteredMemory`](crate::RegisteredMemory)s, which are only read and
/// written by copies and atomic words.
pub trait Backend: Send + Sync {
    /// Name for messages: the PCI address or the name of the simulated card.
    fn name(&self) -> &str;

    /// Reads configuration space into `into`, starting at byte `at`.
    ///
    /// # Errors
    /// [`ConfigSpaceError::OutOfRange`] beyond the device's configuration space; [`ConfigSpaceError::Refused`] by the system.
    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError>;

    /// Writes `from` to configuration space, starting at byte `at`.
    ///
    /// # Errors
    /// As [`config_read`](Self::config_read).
    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError>;

    /// Implemented BARs by number. The upper half of a 64-bit BAR is `None`.
    fn bars(&self) -> [Option<BarInfo>; 6];

    /// Opens BAR `index` for register access.
    ///
    /// # Errors
    /// See [`BarError`].
    fn open_bar(&self, index: u8) -> Result<Bar, BarError>;

    /// Maps the whole of `memory` for the device at addresses from `iova` on. The implementation keeps a clone of `memory` (or of its
    /// mapping) until it is unmapped.
    ///
    /// # Errors
    /// See [`DmaMapError`]. Nothing is mapped in this case.
    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError>;

    /// Removes one mapping of [`map_dma`](Self::map_dma): same start, same length.
    ///
    /// # Errors
    /// See [`DmaMapError`]. The memory must be treated as still mapped in this case.
    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError>;

    /// Address ranges that may be mapped, ascending, without overlap: the ranges that the IOMMU permits, without holes such as the MSI
    /// window.
    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>>;

    /// Granule of mappings in bytes. A power of two.
    fn dma_page_size(&self) -> u64 {
        4096
    }

    /// Kind of memory for DMA pools, the one that [`map_dma`](Self::map_dma) maps best. The default is memory of this process alone; a
    /// backend whose device is in another process needs memory that can be passed to it. The memory itself is always allocated by this
    /// crate, never by a backend.
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Anonymous
    }

    /// Returns the number of interrupt vectors of the device.
    fn interrupt_vectors(&self) -> u32;

    /// Enables vectors `0..count`, all at once.
    ///
    /// # Errors
    /// See [`InterruptError`]; nothing is enabled in this case. [`InterruptError::TooMany`] holds the number of available vectors: fewer
    /// than the device has if the system is short of them.
    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError>;

    /// Disables all vectors. Does nothing if none are enabled.
    ///
    /// # Errors
    /// [`InterruptError::Refused`].
    fn disable_interrupts(&self) -> Result<(), InterruptError>;

    /// Device events of the system besides interrupts. They are armed when the function is opened, so that none is missed. The default has
    /// no events.
    ///
    /// # Errors
    /// [`InterruptError::NoDescriptor`].
    fn events(&self) -> Result<DeviceEvents, InterruptError> {
        DeviceEvents::new(None, None)
    }

    /// Resets the device. Afterwards BARs opened before are stale ([`MmioError::Stale`](crate::MmioError::Stale) if the backend can detect
    /// it), bus mastering is off, and the device must be initialised again.
    ///
    /// # Errors
    /// See [`ResetError`]. The state of the device is unknown in this case.
    fn reset(&self, level: ResetLevel) -> Result<(), ResetError>;

    /// Claims AXI4-Stream channel `number` of a card that several programs share. Returns `false` if another one has it. Others are not
    /// shared: the default claims nothing.
    ///
    /// # Errors
    /// [`ServerError`].
    fn claim_stream(&self, direction: Direction, number: u8) -> Result<bool, ServerError> {
        let _ = (direction, number);
        Ok(true)
    }

    /// Releases a stream channel that was claimed and is stopped.
    fn release_stream(&self, direction: Direction, number: u8) {
        let _ = (direction, number);
    }

    /// Nanoseconds since an arbitrary start, on the clock that [`clock`](Self::clock) names.
    fn now(&self) -> u64;

    /// The clock that [`now`](Self::now) reads and that timeouts of waits use: virtual for a card that is simulated inside the calling
    /// thread.
    fn clock(&self) -> Clock {
        Clock::Monotonic
    }

    /// Performs one step of a polling loop: a spin-loop hint on hardware ([`wait::spin`](crate::wait::spin), which yields from time to
    /// time), a step of the card for a card inside this thread.
    fn relax(&self);

    /// Lets `span` pass without polling the device: this thread sleeps. A card inside this thread works meanwhile, in its own time.
    fn pause(&self, span: core::time::Duration) {
        crate::sleep(span);
    }

    /// Prepares for programs that wait for descriptors of this device by themselves, in an event loop. A card inside this thread gets a
    /// thread that works while nothing else polls the card; others work anyway.
    ///
    /// # Errors
    /// [`InterruptError::WaitFailed`] if the system has no thread.
    fn work_unattended(&self) -> Result<(), InterruptError> {
        Ok(())
    }

    /// Sleeps until `interrupt`, one of those returned by [`enable_interrupts`](Self::enable_interrupts), was signalled. Returns `None`
    /// after `timeout`. A card inside this thread takes its steps meanwhile, in its own time.
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

    /// Access counters of the card, if it counts.
    fn counters(&self) -> Option<AccessCounters> {
        None
    }

    /// Rates and latencies of the card, if the backend knows them.
    fn timing(&self) -> Option<CardTiming> {
        None
    }

    /// Switches bus mastering (the permission of the device to do DMA and to send interrupts) on or off. Devices are opened with it off:
    /// the driver switches it on when it is ready.
    ///
    /// # Errors
    /// As [`config_read`](Self::config_read); [`ConfigSpaceError::Gone`] if the bit does not keep its value.
    fn set_bus_master(&self, on: bool) -> Result<(), ConfigSpaceError> {
        identity(self)?;
        let before = read_u16(self, header::COMMAND)?;
        let wanted = if on { before | command::BUS_MASTER } else { before & !command::BUS_MASTER };
        if wanted != before {
            self.config_write(header::COMMAND, &wanted.to_le_bytes())?;
        }
        // The read also waits until the write has arrived: after switching off, no new request leaves the device.
        if read_u16(self, header::COMMAND)? & command::BUS_MASTER != wanted & command::BUS_MASTER {
            return Err(ConfigSpaceError::Gone);
        }
        Ok(())
    }
}

impl<T: Backend + ?Sized> ConfigSpace for T {
    fn read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        self.config_read(at, into)
    }
}

/// Wakes the function if it is in a lower power state: switches to D0.
///
/// # Errors
/// [`ConfigSpaceError`].
pub fn wake<T: Backend + ?Sized>(backend: &T) -> Result<(), ConfigSpaceError> {
    if let Some(at) = power_control(backend) {
        let before = read_u16(backend, at)?;
        if before & power::STATE_MASK != 0 {
            // PME status is cleared by writing 1, so it is written as 0.
            let awake = before & !(power::STATE_MASK | power::PME_STATUS);
            backend.config_write(at, &awake.to_le_bytes())?;
        }
    }
    Ok(())
}

/// Implements methods of [`Backend`] by those of the backend in a field: `forward_backend!(inner: bars, relax);`. For backends in front of
/// another one.
#[macro_export]
#[rustfmt::skip]
macro_rules! forward_backend {
    ($field:ident: $($method:ident),* $(,)?) => { $($crate::forward_backend!(@$method $field);)* };
    (@name $f:ident) => { $crate::forward_backend!($f fn name() -> &str); };
    (@config_read $f:ident) => { $crate::forward_backend!($f fn config_read(at: u16, into: &mut [u8]) -> Result<(), $crate::ConfigSpaceError>); };
    (@config_write $f:ident) => { $crate::forward_backend!($f fn config_write(at: u16, from: &[u8]) -> Result<(), $crate::ConfigSpaceError>); };
    (@bars $f:ident) => { $crate::forward_backend!($f fn bars() -> [Option<$crate::BarInfo>; 6]); };
    (@open_bar $f:ident) => { $crate::forward_backend!($f fn open_bar(index: u8) -> Result<$crate::Bar, $crate::BarError>); };
    (@map_dma $f:ident) => { $crate::forward_backend!($f fn map_dma(iova: $crate::Iova, memory: &$crate::SharedMemory, access: $crate::DmaAccess) -> Result<(), $crate::DmaMapError>); };
    (@unmap_dma $f:ident) => { $crate::forward_backend!($f fn unmap_dma(iova: $crate::Iova, length: u64) -> Result<(), $crate::DmaMapError>); };
    (@iova_ranges $f:ident) => { $crate::forward_backend!($f fn iova_ranges() -> Vec<core::ops::RangeInclusive<$crate::Iova>>); };
    (@dma_page_size $f:ident) => { $crate::forward_backend!($f fn dma_page_size() -> u64); };
    (@memory_kind $f:ident) => { $crate::forward_backend!($f fn memory_kind() -> $crate::MemoryKind); };
    (@interrupt_vectors $f:ident) => { $crate::forward_backend!($f fn interrupt_vectors() -> u32); };
    (@enable_interrupts $f:ident) => { $crate::forward_backend!($f fn enable_interrupts(count: u32) -> Result<Vec<$crate::Interrupt>, $crate::InterruptError>); };
    (@disable_interrupts $f:ident) => { $crate::forward_backend!($f fn disable_interrupts() -> Result<(), $crate::InterruptError>); };
    (@events $f:ident) => { $crate::forward_backend!($f fn events() -> Result<$crate::DeviceEvents, $crate::InterruptError>); };
    (@reset $f:ident) => { $crate::forward_backend!($f fn reset(level: $crate::ResetLevel) -> Result<(), $crate::ResetError>); };
    (@claim_stream $f:ident) => { $crate::forward_backend!($f fn claim_stream(direction: $crate::Direction, number: u8) -> Result<bool, $crate::ServerError>); };
    (@release_stream $f:ident) => { $crate::forward_backend!($f fn release_stream(direction: $crate::Direction, number: u8) -> ()); };
    (@now $f:ident) => { $crate::forward_backend!($f fn now() -> u64); };
    (@clock $f:ident) => { $crate::forward_backend!($f fn clock() -> $crate::Clock); };
    (@relax $f:ident) => { $crate::forward_backend!($f fn relax() -> ()); };
    (@pause $f:ident) => { $crate::forward_backend!($f fn pause(span: core::time::Duration) -> ()); };
    (@work_unattended $f:ident) => { $crate::forward_backend!($f fn work_unattended() -> Result<(), $crate::InterruptError>); };
    (@wait_interrupt $f:ident) => { $crate::forward_backend!($f fn wait_interrupt(interrupt: &$crate::Interrupt, timeout: core::time::Duration) -> Result<Option<u64>, $crate::InterruptError>); };
    (@counters $f:ident) => { $crate::forward_backend!($f fn counters() -> Option<$crate::AccessCounters>); };
    (@timing $f:ident) => { $crate::forward_backend!($f fn timing() -> Option<$crate::CardTiming>); };
    (@set_bus_master $f:ident) => { $crate::forward_backend!($f fn set_bus_master(on: bool) -> Result<(), $crate::ConfigSpaceError>); };
    ($field:ident fn $method:ident($($argument:ident: $kind:ty),*) -> $result:ty) => {
        fn $method(&self $(, $argument: $kind)*) -> $result {
            self.$field.$method($($argument),*)
        }
    };
}
