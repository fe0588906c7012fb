//! A card served on a socket, driven by raw messages.
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests: what is not expected fails them")]

mod client;
mod device;
mod interrupts;
mod memory;
mod protocol;
mod socket;
