//! The in-process backend: simulated cards behind [`fpga_pci::Backend`], and a network between them.
//!
//! ```
//! use fpga_netmodel::Order;
//! use fpga_sim::SimNetwork;
//! use fpga_pci::Backend;
//!
//! let network = SimNetwork::builder().cards(2).impairments(Order::random(4)).seed(7).build()?;
//! let card = network.backend(0);
//! let dma = card.open_bar(1).expect("BAR 1 is the DMA BAR of the built-in card");
//! assert_eq!(dma.read32(fpga_registers::BarOffset::new(0x3000)).expect("in range") >> 16, 0x1FC3);
//! # Ok::<(), fpga_sim::SimNetworkError>(())
//! ```
//!
//! Unless a simulated network is built with a thread of its own ([`SimNetworkBuilder::threaded`]), everything is inline and
//! single-threaded: time is virtual, cards work only inside [`SimNetwork::step`] and [`fpga_pci::Backend::relax`], and the same calls give
//! the same run. Software must sleep on an interrupt by [`fpga_pci::Backend::wait_interrupt`], which lets the cards work meanwhile.
//! Time-outs then count virtual time ([`fpga_pci::Clock::Virtual`]); if there is nothing to do, it advances to the next timer at once.

mod attendant;
mod backend;
mod bar;
mod builder;
mod dma;
mod error;
mod fabric;
mod hop;
mod host;
mod in_flight;
pub mod link;
mod network;
mod observer;
mod partition;
pub mod served;
mod signals;
mod state;
mod sync;
mod threaded;
mod time;

pub use attendant::Attendant;
pub use backend::SimBackend;
pub use builder::SimNetworkBuilder;
pub use dma::{ClientMapError, ClientMemory, DmaMap, FileError, RefusedAccesses, RemoteMemory};
pub use error::SimNetworkError;
pub use fabric::Fabric;
pub use fpga_card::description::{LinkRate, SCHEMA_VERSION, StreamLogic};
pub use fpga_card::fault_plan::FaultsDescription;
pub use fpga_card::{
    AxiAccess, BarLayout, BarRole, Builtin, CardDescription, CardError, CopyEngine, DescriptionError, Design,
    DesignAccess, DesignError, DesignPoll, FaultPlan, Interrupt, LoadedDescriptor, PlannedFault, Problem,
    Requester, StreamBytes, USER_INTERRUPTS, Unit,
};
pub use fpga_netmodel::{Impairments, Order, OrderError};
pub use hop::{HopCounters, HopFeedback, HopRoute, SimHop};
pub use network::SimNetwork;
pub use observer::{HostEvent, HostObserver};
pub use partition::{Board, Membership, Partitions};
pub use state::CardFailure;
pub use threaded::ThreadOptions;
pub use time::TimeSpent;
