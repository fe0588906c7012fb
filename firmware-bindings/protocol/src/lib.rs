//! Protocol engine of the driver (sans-IO): queues, op table, receive registry, message schemes.
//!
//! | Module | Content |
//! |---|---|
//! | [`sender`] | sender of the registry scheme: queues, segmentation, retries, completions |
//! | [`receiver`] | receiver of the registry scheme, which runs in a card's NI |
//! | [`op_table`] | packets in flight, by op number |
//! | [`scheme`] | message schemes: reliable transfer of messages of numbered packets |
//! | [`feedback`] | link feedback and flow control |
//! | [`segment`] | classification and segmentation arithmetic |
//! | [`mirror`] | host copy of a card's registry, built from events alone |
//! | [`state`] | size of the state in the tables |
//! | [`timers`] | hierarchical timer wheel |
//! | [`tuner`] | segment length of a transfer, chosen from rates and latencies |
//!
//! # Contract of every state machine in this package
//!
//! * No clock, thread, system call or input/output. `now` is an argument.
//! * Four kinds of methods:
//!   * getters;
//!   * commands (`submit`, `cancel`);
//!   * inputs (`handle_*`), in any order and with any content. Stale, duplicate or impossible input is counted and
//!     ignored or answered with a typed error; it never causes a panic;
//!   * outputs (`poll_*`), to be called after commands and inputs until they return `None`.
//! * `poll_timeout` returns the time of the next call of `handle_timeout`. It may be early, never late; additional
//!   calls are harmless.
//! * Everything is allocated in `new`. The steady path allocates nothing: a full table means back-pressure.

#![no_std]

extern crate alloc;

mod disorder;
pub mod feedback;
mod free;
mod incarnations;
mod list;
pub mod mirror;
mod non_state;
pub mod op_table;
pub mod receiver;
mod refusals;
pub mod scheme;
pub mod segment;
pub mod sender;
mod slot_index;
pub mod spray;
pub mod state;
pub mod timers;
mod tournament;
pub mod tuner;

pub use fpga_firmware::time::{self, Nanos};
