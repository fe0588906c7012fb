//! A card served on a socket, driven by raw messages.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a panic is the failure report")]

mod client;
mod device;
mod foreign_client;
mod hostile;
mod interrupts;
mod memory;
mod messages;
mod posted;
mod protocol;
mod raw;
mod slow_reads;
mod socket;
