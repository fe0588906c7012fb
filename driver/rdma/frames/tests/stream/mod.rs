//! Publisher and subscribers over endpoints of simulated cards on one network.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::panic, reason = "a panic is the failure report")]
#![expect(clippy::indexing_slicing, reason = "a panic is the failure report")]

mod bad_input;
mod batches;
pub(crate) mod bed;
mod connections;
mod delivery;
mod drop_and_abort;
mod errata;
mod faults;
mod hostile_publisher;
mod idle;
mod replay;
mod threads;
