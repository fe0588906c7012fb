//! User-space driver for FPGA cards with XDMA and AXI CDMA, and reliable RDMA between them.
//!
//! | To | Use |
//! |---|---|
//! | open a card and read its properties | [`Card`], [`CardInfo`] |
//! | move data between host and card | [`H2cChannel`], [`C2hChannel`], [`bulk`] |
//! | send and receive packets, where the card's channels are AXI4-Stream | [`stream`] |
//! | copy inside the card memory | [`Cdma`], [`CdmaRing`] |
//! | receive interrupts of the design on the card | [`UserInterrupt`], [`UserInterrupts`] |
//! | move data from card to card over a network | [`Endpoint`] |
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
//! The driver runs in the caller's thread. Channels and endpoints are `Send` and are not shared: their owner polls them. The driver starts
//! no threads. In the steady state it takes no lock, allocates nothing and reads no register. [`SharedEndpoint`](endpoint::SharedEndpoint)
//! puts an endpoint behind a lock, for threads and tasks that share one.
#![forbid(unsafe_code)]

mod advice;
pub mod bulk;
mod card;
mod cdma;
mod channel;
mod discover;
pub mod endpoint;
mod error;
mod fault;
mod identify;
mod info;
mod name;
mod ni;
mod options;
mod range;
mod raw;
mod reach;
pub mod recovery;
mod wait;

mod engine_interrupt;
mod setters;
mod shared;
mod silence;
mod spec;
mod store;
pub mod stream;
pub mod user_interrupt;

pub use advice::Advice;
pub use card::{Card, InterruptVectors};
pub use cdma::{
    Cdma, CdmaCompletion, CdmaError, CdmaFault, CdmaFaultCause, CdmaFaultPosition, CdmaRing, CdmaRingError,
    CdmaRingOptions, CdmaSubmitError, DescriptorPath,
};
pub use channel::{
    C2hChannel, Cancellation, ChannelEvents, ChannelOptions, Completion, H2cChannel, MemoryHandle, RunMode,
    ScatterGatherEntry, Ticket, WaitMode, WaitOptions,
};
pub use discover::{BarRoles, DmaBarReason};
pub use endpoint::Endpoint;
pub use error::{
    CardPart, ChannelError, Error, ErrorKind, ErrorPlace, OpenError, Refused, ResourceError, SubmitError,
    TransferError, TransferFailed,
};
pub use fault::{ChannelFault, FaultCause, FaultPosition};
pub use fpga_firmware::{Incarnation, NodeId};
pub use fpga_pci::vfio::{VfToken, VfioInterface, VfioOpenError};
pub use fpga_pci::{
    Backend, Backoff, Bar, BarError, Bounced, Clock, ConfigError, DeviceEvent, DeviceEvents, DmaAccess,
    DmaAllocError, DmaBuffer, DmaPool, DmaPoolOptions, HugePages, InterruptError, MmioError, PciAddress,
    ReadVolatile, RegisteredMemory, ResetLevel, SharedMemory, SharedSlice, Waited, WriteVolatile,
    catch_bus_errors,
};
pub use fpga_registers::{BarOffset, CardAddr, Iova, xdma::Direction};
pub use fpga_ring::cdma_ring::CopyEntry as CdmaSegment;
pub use fpga_ring::ring::RefusalReason;
pub use fpga_vfio_user::VfioUserOpenError;
pub use identify::NI_SUBSYSTEM;
pub use info::{CardInfo, PciIds, XdmaInfo};
pub use name::ChannelName;
pub use ni::{NiInfo, TransmitWindows};
pub use options::{NetworkInterface, OpenOptions};
pub use range::CardRange;
pub use raw::RawChannel;
pub use recovery::{RecoveryError, RecoveryLevel, RecoveryOptions, RecoveryReport};
pub use silence::AllOnesCause;
pub use spec::{AccessOptions, CardSpec, CardSpecError};
pub use stream::{
    C2hStream, C2hStreamOptions, H2cStream, Packet, PacketFragment, SendStatistics, StreamError, StreamPart,
    StreamStatistics,
};
pub use user_interrupt::{UserInterrupt, UserInterruptError, UserInterrupts};

/// Simulated cards for tests of applications, and the network between them. [`Card::open`] of `"mock"` needs none of it.
#[cfg(feature = "sim")]
pub mod sim {
    pub use fpga_netmodel::{Impairments, Order};
    pub use fpga_sim::{
        CardDescription, CardFailure, DescriptionError, FaultPlan, SimBackend, SimNetwork, SimNetworkBuilder,
        SimNetworkError, ThreadOptions,
    };
}

/// Compiles and runs the README's program as a test.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../../README.md")]
struct Readme;
