//! Publisher and subscribers over endpoints of simulated cards on one network.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]
#![expect(clippy::indexing_slicing, reason = "a panic is the failure report")]

mod bad_input;
mod endings;
mod errata;
mod faults;
mod idle;
mod lies;
mod replay;
mod rig;
mod threads;
mod whole;
