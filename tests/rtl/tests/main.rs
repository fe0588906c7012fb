//! Modules of the network interface against the protocol engine. Without Verilator the tests print that they are skipped, and pass.

#![expect(clippy::unwrap_used, reason = "tests")]

mod dispatch;
mod ethernet;
mod events;
mod frames;
mod front_ends;
mod lint;
mod messages;
mod packets;
mod planted;
mod planted_fault;
mod ports;
mod random;
mod receive;
mod registers;
mod scenario;
mod simulation;
mod top;
mod transmit;
mod windows;
mod write;

/// The protocol engine's tests that run here, too, find their test bed at this name.
use receive::common;

/// All tests with every size of every module.
#[test]
#[ignore = "long: 300 s: some forty models"]
fn every_size_matches() {
    let (name, value) = fpga_ni_tests::ALL_SIZES;
    let tests = std::process::Command::new(std::env::current_exe().unwrap()).env(name, value).status();
    assert!(tests.unwrap().success(), "see the output above");
}
