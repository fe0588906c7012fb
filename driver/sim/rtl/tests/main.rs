//! RTL in Verilator behind the driver. Without Verilator the tests print that they are skipped, and pass.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod abandoned;
mod bars;
mod board;
mod cdma;
mod checker;
mod clock;
mod cost;
mod descriptors;
mod faults;
mod foreign;
mod icarus;
mod model;
mod network;
mod ni_cards;
mod pair;
mod record;
mod simulator;
mod streams;
mod transfers;
mod waveform;
mod wrapper;
