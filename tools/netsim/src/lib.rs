//! Discrete-event network simulator for the RDMA schemes: their state machines in virtual time, without card or driver.
//!
//! ```
//! use fpga_protocol::Nanos;
//! use fpga_netsim::{BitRate, Scenario, Scheme, Simulation, Topology};
//!
//! let scenario = Scenario::new(1 << 20).rate(BitRate::from_gbps(100)).delay(Nanos::from_micros(2));
//! let report = Simulation::new(&scenario)?.run()?;
//! let flow = report.flows[0];
//! assert_eq!(flow.packets, 2048);
//! // The receiver completes first: its own card notifies it, and no acknowledgement has to travel.
//! assert!(flow.received < flow.completed);
//!
//! let torus = scenario.scheme(Scheme::Selective).topology(Topology::Torus { side: 3 }).permutation(64 << 10);
//! assert_eq!(Simulation::new(&torus)?.run()?.failures(), 0);
//! # Ok::<(), fpga_netsim::SimulationError>(())
//! ```
//!
//! The simulator runs `fpga_protocol`'s senders and receivers of the schemes of cards, behind [`fpga_protocol::scheme::traits`]; two
//! baselines are its own ([`scheme`]), inside the same message layer. The registry's are
//! the very code that the driver and the simulated card run, so a figure made here shows the implementation, not a model of it. A run
//! depends only on its [`Scenario`]: the same scenario gives the same [`Report`] to the last bit.
//!
//! | Module | Content |
//! |---|---|
//! | [`scenario`] | what is simulated |
//! | [`scheme`] | schemes, and the baselines that no card offers |
//! | [`mod@file`] | the same as YAML |
//! | [`topology`] | point to point, torus, tree of switches, Clos; the routes through them |
//! | [`simulation`] | the event loop and its report |
//! | [`figures`] | the figures of the published schemes |
//! | [`explain`], [`queue_report`] | causes of slow flows; queues |
//! | [`clos_table`] | the default transport on a Clos network, beside uet-htsim |
//! | [`sweep`] | a scenario over many seeds |
//! | [`parallel`], [`statistics`] | many runs at a time, and their combined results |
//! | [`notice`] | time saved by the receiver's own completion, by hops |
//! | [`soak`] | random transfers under random impairments, each of them checked |
//!
//! Impairments are those of [`fpga_netmodel`], the model that the simulated cards' network also uses.
//!
//! # Limitations
//!
//! * Hosts and cards take no time: no PCIe, no CDMA, no transmit windows, no event ring. A sender hands over its next packet when its link
//!   is free. So a figure is an upper bound of what hardware can do. A scenario can add copies into transmit windows
//!   ([`Scenario::copy`]).
//! * Switches forward whole packets and have a queue per link, or two with priorities. A controller reroutes pairs of hosts around links if routes are fixed
//!   ([`Routing::Fixed`]), and only to other shortest routes. With adaptive routing, each packet chooses its route and there is nothing to
//!   reroute.
//! * Payload bytes are not carried, only counted. The tests of the state machines and of the whole stack show that they arrive at the right
//!   address.
//! * Packets are charged their own length. Preamble, framing and gaps of the link layer are not modelled.

pub mod clos_table;
mod event_queue;
pub mod explain;
pub mod figures;
pub mod file;
mod host;
pub mod notice;
mod numbers;
pub mod parallel;
pub mod queue_report;
pub mod scenario;
pub mod scheme;
pub mod simulation;
pub mod soak;
pub mod statistics;
pub mod sweep;
pub mod topology;

pub use fpga_netmodel::BitRate;
pub use scenario::{Flow, Scenario, ScenarioError};
pub use scheme::Scheme;
pub use simulation::{
    FlowReport, HostReport, LinkFeedbackCounts, RateChange, Report, Simulation, SimulationError,
};
pub use topology::{Clos, Marking, Outage, PlainSwitch, Routing, SlowLink, Tier, Topology, TopologyError};
