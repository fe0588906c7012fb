//! The simulated card from outside: registers, descriptors, packets.
#![expect(clippy::cast_possible_truncation, reason = "addresses and patterns of tests are small")]

mod cdma;
mod network;
mod pci_function;
mod robustness;
mod support;
mod xdma;
