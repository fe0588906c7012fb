//! The contract of the bitstream: network interface registers, wire formats, identity.
//!
//! What a bitstream with our network interface (NI) promises to software, and nothing of how either side behaves:
//!
//! | Module | What |
//! |---|---|
//! | [`generated`] | register offsets, enums, layouts and register catalogue, written from `map/ni.yaml` |
//! | [`identity`] | is this card ours, does it speak our contract version, and where are its blocks |
//! | [`wire`] | packet formats, with their CRC-32C |
//! | [`window`] | the header block of a transmit window |
//! | [`event`] | the entries of the event ring |
//! | [`ids`] | node, transfer, message, incarnation and op number as types |
//! | [`time`] | nanoseconds, in which every time-out is stated |
//! | [`catalog`] | registers as data, for listings and dumps |
//!
//! `map/ni.yaml` is the single source; `map/ni.md` is the manual made from it. After a change of the map run
//! `cargo xtask generate`.
//!
//! # No panic on any input
//!
//! Packets come from a network, headers and events from memory that somebody else writes. Every decoder here takes any
//! bytes of any length and answers with a value or a typed error; what it returns can be used without further checks of
//! its own consistency. It can still be a lie: addresses, keys and op numbers are the receiver's to judge.
//!
//! # Features
//!
//! `std` (default): hardware-accelerated checksums. The package itself is `no_std + alloc`; this
//! is its one dependency that needs the standard library.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod macros;

mod bytes;
pub mod catalog;
pub mod crc;
pub mod event;
pub mod generated;
pub mod geometry;
pub mod identity;
pub mod ids;
pub mod time;
pub mod window;
pub mod wire;

pub use ids::{Incarnation, MessageId, NodeId, OpNumber, SegmentIndex, TransferId};
pub use time::Nanos;
