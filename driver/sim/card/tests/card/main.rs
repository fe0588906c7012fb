//! Tests of the simulated card through its public interface: registers, descriptors, packets.
#![expect(clippy::cast_possible_truncation, reason = "addresses and patterns of tests are small")]
#![expect(clippy::expect_used, clippy::panic, reason = "a test's preparation either works or is the failure")]

mod boards;
mod bursts;
mod cdma;
mod config_space;
mod design;
mod design_streams;
mod faults;
mod foreign_drivers;
mod foreign_others;
mod foreign_vendor;
mod interrupts;
mod link_rate;
mod network;
mod pci_function;
mod quirks;
mod robustness;
mod streams;
mod support;
mod xdma;
mod xdma_modes;
