//! User-space driver for FPGA cards with XDMA and AXI CDMA.
//!
//! | To | Use |
//! |---|---|
//! | open a card and read its properties | [`Card`], [`CardInfo`] |
//! | move data between host and card | [`Channel`], [`H2cChannel`], [`C2hChannel`], [`bulk`] |
//! | send and receive packets, where the card's channels are AXI4-Stream | [`stream`] |
//! | copy inside the card memory | [`Cdma`], [`CdmaRing`] |
//! | receive interrupts of the design on the card | [`UserInterrupt`], [`UserInterrupts`] |
//! | move data from card to card over a network | package `fpga-rdma` |
//! | repair a card that does not work | [`recovery`] |
//! | test a card, record register accesses and replay them | package `fpga-diag` |
//! | do all of this without a card | [`sim`], [`Card::open`] of `"mock"` (feature `sim`, off by default) |
//!
//! # Buffer ownership
//!
//! A [`DmaBuffer`] has one owner. Submitting moves it in; the completion, the refusal or the error moves it back out, exactly once. If the
//! engine cannot be confirmed idle, the buffer is not returned: it stays in quarantine and is never reused
//! ([`DmaPool::quarantined`] lists such buffers with the reason).
//!
//! # Threads
//!
//! The driver runs in the caller's thread. Channels are `Send` and are not shared: their owner polls them. The driver starts no threads. In
//! the steady state it takes no lock, allocates nothing and reads no register.

mod advice;
pub mod bulk;
mod card;
mod cdma;
mod channel;
mod discover;
mod error;
pub mod extension;
mod fault;
mod identify;
mod info;
mod name;
mod ni;
mod options;
mod owner;
mod range;
mod raw;
mod reach;
pub mod recovery;
mod wait;

mod engine_interrupt;
mod shared;
mod silence;
mod simulation;
mod spec;
mod store;
pub mod stream;
pub mod user_interrupt;

pub use advice::Advice;
pub use card::{Card, InterruptVectors};
pub use cdma::{Cdma, CdmaCompletion, CdmaError, CdmaRing, CdmaRingOptions, DescriptorPath};
pub use channel::{
    AnyDirection, C2h, C2hChannel, Cancellation, Channel, ChannelEvents, ChannelOptions, Completion,
    FromCard, H2c, H2cChannel, MemoryHandle, RunMode, ScatterGatherEntry, Ticket, ToCard, WaitMode,
    WaitOptions,
};
pub use discover::{BarRoles, DmaBarReason};
pub use error::{
    ChannelError, Error, ErrorPlace, OpenError, Refused, ResourceError, SubmitError, TransferError,
    TransferFailed,
};
pub use fpga_firmware::{Incarnation, NodeId};
pub use fpga_pci::{
    Bar, DmaAccess, DmaBuffer, DmaPool, DmaPoolOptions, HugePages, PciAddress, ReadVolatile,
    RegisteredMemory, SharedMemory, SharedSlice, Waited, WriteVolatile, catch_bus_errors,
};
pub use fpga_registers::{BarOffset, CardAddr, Iova, xdma::Direction};
pub use fpga_ring::cdma_ring::CopyEntry as CdmaSegment;
pub use identify::NI_SUBSYSTEM;
pub use info::{CardInfo, PciIds, VIEW_SUBSYSTEM, XdmaInfo};
pub use name::ChannelName;
pub use ni::NiInfo;
pub use options::{NetworkInterface, OpenOptions};
pub use owner::SharedSocket;
pub use range::CardRange;
pub use spec::{AccessOptions, CardSpec};
pub use stream::{C2hStream, H2cStream};
pub use user_interrupt::{UserInterrupt, UserInterrupts};

/// Details of errors: causes, positions and registers that the errors of the other modules contain.
pub mod errors {
    pub use crate::cdma::{CdmaFault, CdmaFaultPosition, CdmaRingError, CopyFault};
    pub use crate::error::{CardPart, Cause, CauseClass, ErrorKind};
    pub use crate::fault::{ChannelFault, FaultCause, FaultPosition};
    pub use crate::silence::AllOnesCause;
    pub use fpga_pci::{MemoryError, MmioError};
}

/// Simulated cards for tests of applications. [`Card::open`] of `"mock"` needs none of it; package `fpga-sim` has the rest: threads, faults,
/// links between processes, backends of one's own.
#[cfg(feature = "sim")]
pub mod sim {
    pub use fpga_sim::{CardDescription, SimNetwork, SimNetworkBuilder};
}

/// Compiles and runs the README's program as a test.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../../README.md")]
struct Readme;
