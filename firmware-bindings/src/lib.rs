//! Contract of the bitstream: network interface registers, wire formats, identity.
//!
//! It defines what software may rely on in a bitstream with this project's network interface (NI), not the behaviour of either side:
//!
//! | Module | Contents |
//! ---|---|
//! | [`generated`] | register offsets, enums, layouts and register catalog, generated from `map/ni.yaml` |
//! | [`identity`] | identification of a card: contract version and block offsets |
//! | [`wire`] | packet formats, with their CRC-32C |
//! | [`window`] | the header block of a transmit window |
//! | [`event`] | the entries of the event ring |
//! | [`ids`] | node, transfer, message, incarnation and op number as types |
//! | [`time`] | nanoseconds, the unit of all timeouts |
//! | [`catalog`] | registers as data, for listings and dumps |
//!
//! `map/ni.yaml` is the single source; `map/ni.md` is the manual generated from it. After a change of the map run `cargo xtask generate`.
//!
//! # No panic on any input
//!
//! Packets come from a network, headers and events from memory that others write. Every decoder here accepts any bytes of any length and
//! returns a value or a typed error. A returned value is consistent in itself and needs no further checks of that. It can still be wrong:
//! the receiver must check addresses, keys and op numbers.
//!
//! # Features
//!
//! `std` (default): hardware-accelerated checksums. The package itself is `no_std + alloc`; this is its only dependency that needs the
//! standard library.

#![cfg_attr(not(test), no_std)]

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
