//! A swarm of small worlds.
//!
//! A world has 2 to 16 nodes, each with a simulated card and an endpoint: the complete path from the driver's queues to the memory of another
//! card. In a third of the worlds the applications exchange messages ([`messages`]), in a sixth frame streams
//! ([`streams`]), instead of transfers. A [`Plan`] of a seed chooses the network, its impairments, the sizes of all tables, the work of the applications, and failures:
//! partitions, hosts that pause or restart, cards that are removed. At some time the world heals. [`run`] runs a plan in virtual time, in one thread.
//!
//! *Safety*, throughout: every byte arrives exactly once and only where a window permits it; no completion and no notification before
//! the last byte, none twice; failures only with a cause. *Progress*: once the world has healed, everything that was accepted ends within
//! [`end_limit`], all tables become empty, host memory is as at the start, and new transfers succeed.

pub mod choices;
mod clock;
pub mod coverage;
mod fabric;
pub mod messages;
mod minimise;
pub mod model;
mod node;
pub mod plan;
mod reads;
mod schedule;
pub mod streams;
pub mod swarm;
mod world;

pub use minimise::{Reduction, minimise, run};
pub use model::Outcome;
pub use plan::Plan;
pub use world::end_limit;
