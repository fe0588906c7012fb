//! Simulated card: XDMA (PG195), AXI CDMA (PG034), card memory, a network interface, and the PCI function around them.
//!
//! One [`Card`] is a value without threads, clocks or sockets. Software reaches it through configuration space and BARs
//! ([`Card::config_read`], [`Card::bar_write`], ...). The card reaches its host through [`HostPort`] and the network through frames.
//! [`Card::step`] does one bounded unit of work per call, so a run is a sequence of calls that can be repeated exactly. [`Card::work`]
//! does the same work in bursts, at the speed of the machine. The in-process backend, the vfio-user server and the tests all drive this
//! model.
//!
//! | Module | Contents |
//! ---|---|
//! | [`description`] | the YAML card file; [`CardDescription::builtins`]: models of real boards |
//! | [`config_space`] | type-0 header, BAR sizing, capabilities: power, MSI, MSI-X, PCI Express, error reporting |
//! | [`host`] | the traits through which the card reaches its host |
//! | [`fault_plan`] | faults to inject, as data |
//! | [`fault_log`] | faults that happened, including those that no status bit shows |
//! | [`counters`] | access counters and access log |
//!
//! No register write, descriptor or packet makes the card panic.

mod bars;
mod boards;
mod card;
mod cdma;
pub mod config_space;
mod copy_engine;
pub mod counters;
pub mod description;
mod design;
pub mod fault_log;
pub mod fault_plan;
mod hooks;
pub mod host;
mod interrupt_messages;
mod irq;
mod link;
mod locate;
mod memory;
mod msix;
mod ni;
mod offsets;
mod pacer;
mod reading;
mod scheduler;
mod space;
mod step;
mod stream;
pub mod validate;
mod work;
mod xdma;

pub use boards::Builtin;
pub use card::{Card, CardError, NoSuchAddress};
pub use config_space::{BarLayout, BarRole, CorrectableError, InterruptMethod, PciError, UncorrectableError};
pub use copy_engine::CopyEngine;
pub use counters::{Access, AccessLog, AccessTarget, CardCounters, USER_INTERRUPTS};
pub use description::CardDescription;
pub use design::{
    AxiAccess, Design, DesignAccess, DesignError, DesignPoll, LoadedDescriptor, Requester, StreamBytes,
};
pub use fault_log::{Fault, FaultKind, FaultLog, Unit};
pub use fault_plan::{FaultPlan, InjectedFault, PlannedFault, StreamWritebackFault};
pub use host::{
    DmaFault, DmaPart, DmaSpace, ErrorMessage, FrameParts, FrameSink, FrameSource, HostPort, Interrupt,
    NoHost,
};
pub use pacer::TimePart;
pub use reading::DescriptionError;
pub use validate::Problem;
