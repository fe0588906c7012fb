//! Descriptor rings as memory logic: descriptors to write, doorbell values, and completions.
//!
//! | Module | Content |
//! |---|---|
//! | [`ring`] | the ring of one XDMA channel |
//! | [`cdma_ring`] | the ring of an AXI CDMA engine |
//!
//! A ring has no clock and makes no system call, register access or allocation after `new`: its caller writes the descriptors into
//! memory that the engine reads, rings the doorbell, and passes back what the engine reports. An impossible report is a typed error, never
//! a panic.

#![no_std]

extern crate alloc;

pub mod cdma_ring;
mod operations;
mod ranges;
mod refusal;
pub mod ring;

pub use operations::Token;
pub use refusal::{Refusal, RefusalReason};
