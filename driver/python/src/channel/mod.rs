//! DMA channels between host memory and card memory.
//!
//! A channel is shared by Python threads: [`Shared`] has the driver's channel behind a lock. Memory of Python objects moves in one of two
//! ways: DMA memory ([`crate::memory`]) in place, everything else through a buffer of the driver ([`copy`]).

mod batch;
mod class;
mod copy;
mod engine;
mod ticket;

pub(crate) use class::{Channels, add};
pub(crate) use engine::{Shared, Side};
