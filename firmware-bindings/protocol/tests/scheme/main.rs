//! The schemes as pairs of ends: everything that can happen to a few packets, and the documents' readings, which fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on may as well stop")]

mod any;
mod errata;
mod errata_list;
mod explore;
mod literal;
mod literal_receivers;
mod small;
mod traits;
