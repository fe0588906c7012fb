//! The schemes as pairs of ends: all reachable states with a few packets, and the literal readings of the sources, which fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue may as well stop")]

mod any;
mod carry;
mod errata;
mod errata_list;
mod explore;
mod literal;
mod literal_receivers;
mod search;
mod small;
mod timer_receiver;
mod traits;
