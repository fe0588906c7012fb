//! PCI transports, DMA memory and interrupts: the fence.
//!
//! This is the only package of the workspace that contains `unsafe`. What it offers is safe to call from packages
//! that forbid it:
//!
//! | Module | What |
//! |---|---|
//! | [`backend`] | [`Backend`]: one opened PCI function, whatever stands behind it |
//! | [`mmio`] | [`Bar`]: checked 32- and 64-bit register access |
//! | [`memory`] | [`SharedMemory`]: memory that a device may access at any time; copies and atomics only |
//! | [`dma`] | [`DmaPool`], [`DmaBuffer`], [`RegisteredMemory`]: memory mapped once, handed out as owned pieces |
//! | [`iova`] | [`IovaAllocator`]: addresses as the device sees them |
//! | [`interrupt`] | [`Interrupt`] and [`InterruptTrigger`]: eventfds |
//! | [`events`] | [`DeviceEvents`]: bus errors, requests to give the device back |
//! | [`barrier`] | memory barriers with a name and a reason |
//! | [`config`] | configuration space: capabilities, MSI-X, BAR registers, bus master |
//! | [`vfio`] | the kernel's vfio-pci: group and container, or iommufd |
//! | [`wait`] | [`Deadline`], [`Backoff`]: when a wait ends, and what it does meanwhile |
//! | `testing` | for tests: a counting global allocator and a function with nothing behind it (feature `testing`) |
//!
//! # What the unsafe code relies on
//!
//! 1. *Mappings outlive their users.* A raw mapping is owned by an `Arc`; every pointer into it is derived through a
//!    borrow of that `Arc`, or is kept next to a handle that keeps the mapping, and is bounds- and alignment-checked
//!    first.
//! 2. *Memory that a device can reach is only touched by atomic accesses*, or by assembly that stands for them, so a device (or another process)
//!    that changes it underneath produces a wrong value, never undefined behaviour.
//! 3. *No reference to such memory exists that is not made of atomics*: [`SharedMemory`], [`DmaBuffer`] and [`RegisteredMemory`] give
//!    copies, atomic words and [`SharedSlice`]s, never a `&[u8]` or a `&mut [u8]`. All of it is made in this crate; a [`Backend`]
//!    is given memory to map and supplies none. So neither a device that fails, nor a server process that is hostile, nor a
//!    [`Backend`] in safe code that breaks its contract, nor a program that writes descriptors by hand through a [`Bar`] can do
//!    more than change bytes.
//! 4. *Memory is unmapped from the IOMMU before it is freed*; if that fails, or if it is unknown whether the device
//!    is idle, the memory is leaked and counted ([`DmaPool::quarantine`]).
//!
//! What no type can rule out is a device that writes where it was not told to, inside memory that is mapped for it: the bytes there
//! are wrong then. The IOMMU confines it to the pool's regions.
#![expect(
    unsafe_code,
    reason = "the fence: raw mappings, device memory and ioctls are wrapped here and nowhere else"
)]

pub mod backend;
pub mod barrier;
pub mod config;
pub mod dma;
pub mod error;
pub mod events;
pub mod interrupt;
pub mod iova;
pub mod memory;
pub mod mmio;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vfio;
pub mod wait;

/// Target of log events that repeat what an error of the API says. A program that prints those errors can filter it out.
pub const FAULT_LOG: &str = "fpga::fault";

pub use backend::{AccessCounters, Backend, BarInfo, BarKind, DmaAccess, ResetLevel};
pub use dma::{
    DmaBuffer, DmaPool, DmaPoolOptions, DmaPoolStats, IovaRange, MapRefused, QuarantineReason,
    QuarantineRecord, RegisteredMemory,
};
pub use error::{
    BarError, ConfigError, ConnectionError, DmaAllocError, DmaMapError, InterruptError, IovaError,
    MemoryError, MmioError, OsError, ResetError, ServerError,
};
pub use events::{DeviceEvent, DeviceEvents};
/// What the kernel shows of functions before any is opened.
pub use fpga_host::{self as host, OtherFunction, ParsePciAddressError, PciAddress};
pub use interrupt::{Interrupt, InterruptTrigger};
pub use iova::IovaAllocator;
pub use memory::{Bounced, HugePages, MemoryKind, ReadVolatile, SharedMemory, SharedSlice, WriteVolatile};
pub use mmio::{Bar, Mmio, catch_bus_errors};
pub use wait::{Backoff, Clock, Deadline};
