//! Discrete-event network simulator for the RDMA schemes: their state machines in virtual time, without card or driver.
//!
//! ```
//! use fpga_core::Nanos;
//! use fpga_netsim::{BitRate, Scenario, Simulation};
//!
//! let scenario = Scenario::new(1 << 20).rate(BitRate::from_gbps(100)).delay(Nanos::from_micros(2));
//! let report = Simulation::new(&scenario)?.run()?;
//! assert_eq!(report.packets, 2048);
//! // The receiver knows first: its own card tells it, and no acknowledgement has to travel.
//! assert!(report.received < report.completed);
//! # Ok::<(), fpga_netsim::SimulationError>(())
//! ```
//!
//! What runs is [`fpga_core::sender::Sender`] and [`fpga_core::receiver::Receiver`], the very code that the driver and the
//! simulated card run, so a figure from here is one of the implementation, not of a model of it. A run depends on its
//! [`Scenario`] alone: the same scenario gives the same [`Report`] to the last bit.
//!
//! | Module | What |
//! |---|---|
//! | [`scenario`] | what is simulated |
//! | [`simulation`] | the event loop and its report |
//! | [`notice`] | what the receiver's own completion saves, by hops |
//! | [`soak`] | random transfers under random trouble, each of them checked |
//!
//! What happens on the way is [`fpga_core::impair`]'s, the model that the simulated cards' network has too.
//!
//! # What it does not do yet
//!
//! * Two nodes, one path in each direction, one transfer. No switches, no cross traffic, no contention at a receiver.
//! * The registry scheme only; the other published schemes have no state machine to run yet.
//! * Hosts and cards take no time: no PCIe, no CDMA, no transmit windows, no event ring. The sender hands over its next
//!   window when the last packet of the one before has left. So a figure is an upper bound of what hardware can do.
//! * Payload bytes are not carried, only counted; that they arrive where they belong is what the tests of the state machines
//!   and of the whole stack show.
//! * Packets are charged their own length. Preamble, framing and gaps of the link below are not modelled.
//! * No command line for single runs, no plots; the programs `soak` and `notice` each do one thing.
#![forbid(unsafe_code)]

mod frame;
pub mod notice;
pub mod scenario;
pub mod simulation;
pub mod soak;

pub use fpga_core::impair::BitRate;
pub use scenario::{Scenario, ScenarioError};
pub use simulation::{Report, Simulation, SimulationError};
