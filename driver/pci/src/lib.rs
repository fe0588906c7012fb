//! PCI backends, DMA memory and interrupts: the unsafe boundary.
//!
//! `unsafe` code towards devices and shared memory is in this package alone; the other packages with it are foreign-language boundaries. Its
//! interface is safe to call from packages that forbid it:
//!
//! | Module | Content |
//! |---|---|
//! | [`backend`] | [`Backend`]: one opened PCI function, on any backend |
//! | [`mmio`] | [`Bar`]: checked 32- and 64-bit register access |
//! | [`memory`] | [`SharedMemory`]: memory that a device may access at any time; copies and atomics only |
//! | [`dma`] | [`DmaPool`], [`DmaBuffer`], [`RegisteredMemory`]: memory mapped once and handed out as owned allocations |
//! | [`iova`] | [`IovaAllocator`]: addresses as the device sees them |
//! | [`interrupt`] | [`Interrupt`] and [`InterruptTrigger`]: eventfds |
//! | [`events`] | [`DeviceEvents`]: bus errors, device-release requests (REQ) |
//! | [`barrier`] | memory barriers with a name and a reason |
//! | [`config`] | configuration space: capabilities, MSI-X, BAR registers, bus master |
//! | [`vfio`] | the kernel's vfio-pci: group and container, or iommufd |
//! | [`process`] | [`Process`]: handles are not usable in children after a fork |
//! | [`wait`] | [`Deadline`], [`Backoff`]: end of a wait, and backoff until then |
//! | `testing` | for tests: a counting global allocator and a stub function without a device (feature `testing`) |
//!
//! # Invariants of the unsafe code
//!
//! 1. *Mappings outlive their users.* A raw mapping is owned by an `Arc`; every pointer into it is derived through a borrow of that `Arc`,
//!    or is kept next to a handle that keeps the mapping, and is bounds- and alignment-checked first.
//! 2. *Memory that a device can reach is accessed only by atomic accesses*, or by equivalent assembly, so a concurrent change by a device
//!    (or another process) produces a wrong value, never undefined behaviour.
//! 3. *References to such memory are references to atomics only*: [`SharedMemory`], [`DmaBuffer`] and [`RegisteredMemory`] offer copies,
//!    atomic words and [`SharedSlice`]s, never a `&[u8]` or a `&mut [u8]`. All of it is allocated in this crate; a [`Backend`] gets memory
//!    to map and supplies none. So a faulty device, a hostile server process, a [`Backend`] in safe code that breaks its contract, or a
//!    program that writes descriptors through a [`Bar`] can only change bytes.
//! 4. *Memory is unmapped from the IOMMU before it is freed*; if that fails, or if it is unknown whether the device is idle, the memory is
//!    leaked and counted ([`DmaPool::quarantine`]).
//!
//! No type can exclude that a device writes to wrong addresses inside memory that is mapped for it: the bytes there are then wrong. The
//! IOMMU confines it to the pool's regions.
#![expect(
    unsafe_code,
    reason = "the unsafe boundary: raw mappings, device memory and ioctls are wrapped in this package only"
)]

pub mod backend;
pub mod barrier;
pub mod config;
mod descriptors;
pub mod dma;
pub mod error;
pub mod events;
mod function;
pub mod interrupt;
pub mod iova;
mod lock;
mod log_limit;
pub mod memory;
pub mod mmio;
mod poll;
pub mod process;
mod sleep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vfio;
pub mod wait;

/// Target of log events that repeat an error returned by the API. A program that prints those errors can filter it out.
pub const FAULT_LOG: &str = "fpga::fault";

pub use backend::Backend;
pub use descriptors::keep_descriptors;
pub use dma::{
    DmaBuffer, DmaPool, DmaPoolOptions, DmaPoolStats, IovaRange, MapRefused, QuarantineReason,
    QuarantineRecord, RegisteredMemory,
};
pub use error::{
    BarError, ConfigSpaceError, ConnectionError, DmaAllocError, DmaMapError, InterruptError, IovaError,
    MemoryError, MmioError, OsError, ResetError, ServerError,
};
pub use events::{DeviceEvent, DeviceEvents};
/// Information of the kernel about functions that are not opened.
pub use fpga_host::{self as host, Holder, OtherFunction, ParsePciAddressError, PciAddress};
#[doc(hidden)]
pub use fpga_registers::{Iova, xdma::Direction};
pub use function::{AccessCounters, BarInfo, BarKind, CardTiming, Clock, DmaAccess, ResetLevel};
pub use interrupt::{Interrupt, InterruptTrigger};
pub use iova::IovaAllocator;
pub use lock::lock;
pub use log_limit::LogLimit;
pub use memory::{Bounced, HugePages, MemoryKind, ReadVolatile, SharedMemory, SharedSlice, WriteVolatile};
pub use mmio::{Bar, Mmio, catch_bus_errors};
pub use poll::poll_until;
pub use process::{OtherProcess, Process};
pub use sleep::sleep;
pub use wait::{Backoff, Deadline, Waited};
