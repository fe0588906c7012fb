//! The simulated card: XDMA (PG195), AXI CDMA (PG034), card memory, a network interface, and the PCI function around
//! them.
//!
//! One [`Card`] is a value without threads, clocks or sockets. Software reaches it through configuration space and
//! BARs ([`Card::config_read`], [`Card::bar_write`], ...); the card reaches its host through [`HostPort`] and the
//! network through frames. [`Card::step`] does the work, one bounded unit at a time, so a run is a sequence of calls
//! that can be repeated exactly; [`Card::work`] does the same work in bursts, at the speed of the machine. The
//! in-process backend, the vfio-user server and the tests all drive this one model.
//!
//! | Module | What |
//! |---|---|
//! | [`description`] | the YAML card file; [`CardDescription::builtins`]: shapes of real boards |
//! | [`config_space`] | type-0 header, BAR sizing, capabilities: power, MSI, MSI-X, PCI Express, error reporting |
//! | [`host`] | the traits through which the card reaches its host |
//! | [`fault_plan`] | what is to go wrong, as data |
//! | [`fault_log`] | what went wrong, including what no status bit shows |
//! | [`counters`] | access counters and access log |
//!
//! Nothing that software writes to a register, puts into a descriptor or sends as a packet makes the card panic.

#![forbid(unsafe_code)]

mod bars;
mod boards;
mod card;
mod cdma;
pub mod config_space;
pub mod counters;
pub mod description;
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
mod scheduler;
mod space;
mod stream;
pub mod validate;
mod xdma;

pub use boards::Builtin;
pub use card::{Card, CardError, NoSuchAddress};
pub use config_space::{BarLayout, BarRole, CorrectableError, InterruptMethod, PciError, UncorrectableError};
pub use counters::{Access, AccessLog, AccessTarget, CardCounters};
pub use description::{CardDescription, DescriptionError};
pub use fault_log::{Fault, FaultKind, FaultLog, Unit};
pub use fault_plan::{FaultPlan, InjectedFault, PlannedFault, StreamWritebackFault};
pub use host::{DmaFault, DmaPart, DmaSpace, ErrorMessage, HostPort, Interrupt, NoHost};
pub use irq::USER_INTERRUPTS;
pub use validate::Problem;
