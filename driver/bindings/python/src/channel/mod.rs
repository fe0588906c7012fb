//! DMA channels between host memory and card memory.
//!
//! A channel is shared by Python threads: [`Shared`] lends the driver's channel to one of them at a time. A call that waits has it in turns
//! of some milliseconds ([`work`]), so that others can look at it, cancel and close meanwhile. Blocking and asynchronous calls do the same
//! work. Memory of Python objects moves in one of two ways ([`transfer`]): DMA memory ([`crate::memory`]) in place, everything else through
//! buffers of the driver.

mod batch;
mod class;
mod engine;
mod shared;
mod ticket;
mod transfer;
mod work;

pub(crate) use class::{Channel, Channels};
pub(crate) use shared::Shared;
pub(crate) use ticket::PyTicket;
pub(crate) use transfer::PyTransfer;
