//! The engine of the driver, without input or output: queues, op table, receive registry.
//!
//! | Module | What |
//! |---|---|
//! | [`sender`] | the sending side of the registry scheme: queues, segmentation, retries, completions |
//! | [`receiver`] | its receiving side, which a card's network interface runs |
//! | [`op_table`] | packets in flight, by op number |
//! | [`scheme`] | the other published schemes, a message of numbered packets at a time |
//! | [`feedback`] | what links tell of themselves, and what is done about it |
//! | [`segment`] | classification and segmentation as arithmetic |
//! | [`mirror`] | the host's view of a card's registry, from events alone |
//! | [`state`] | how much state the tables hold |
//! | [`timers`] | a hierarchical wheel |
//!
//! # The contract of every state machine here
//!
//! * No clock, thread, system call or input/output. `now` is an argument.
//! * Four kinds of methods: getters; commands (`submit`, `cancel`); inputs (`handle_*`), in any order, with anything in them:
//!   stale, doubled or impossible input is counted and ignored or answered with a typed error, never a panic; outputs
//!   (`poll_*`), to be called after commands and inputs until they return `None`.
//! * `poll_timeout` says when `handle_timeout` wants to be called. It may be early, never late; calling too often is harmless.
//! * Everything is allocated in `new`. The steady path allocates nothing: full means back-pressure.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod feedback;
mod free;
mod list;
pub mod mirror;
mod non_state;
pub mod op_table;
pub mod receiver;
pub mod scheme;
pub mod segment;
pub mod sender;
pub mod state;
pub mod timers;

pub use fpga_firmware::time::{self, Nanos};
