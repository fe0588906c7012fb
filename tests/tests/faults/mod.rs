//! Bad input and failing devices: each has its typed error. In every case each buffer is either returned or in quarantine, exactly once,
//! and the card can be used afterwards.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::expect_used, reason = "a panic is the failure report")]

mod addresses;
mod devices;
mod opening;

use fpga_card::CardDescription;
use fpga_driver::Error;
use fpga_driver::bulk::{self, BulkError};
use fpga_driver::{
    Card, CardAddr, ChannelOptions, Completion, H2cChannel, NetworkInterface, OpenError, OpenOptions,
    ResourceError, SubmitError, TransferError, WaitOptions,
    errors::{ChannelFault, FaultCause},
};
use fpga_firmware::generated::{CONTRACT_CHECKSUM, CONTRACT_MAJOR, IDENTITY_MAGIC};
use fpga_firmware::identity::{IdentityError, IdentityReadError};
use fpga_pci::Bounced;
use fpga_pci::DmaPoolOptions;
use fpga_registers::xdma::StatusError as StatusBit;
use fpga_ring::ring::RefusalReason;
use fpga_sim::{CardFailure, SimNetwork};
use fpga_tests::bytes;
use fpga_tests::cards::{
    DMA_BAR, assert_closed, assert_pool, described, network, open, open_with, peek, poke, seeded,
};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};
use proptest::prelude::*;

/// Number of allocations for descriptors and write-back of one channel.
const AREA: usize = 1;
const MEMORY: u64 = 0x2_0000_0000;

fn ignored() -> OpenOptions {
    OpenOptions::default().network_interface(NetworkInterface::Ignored)
}

fn try_open(network: &SimNetwork, options: OpenOptions) -> Result<Card, Error<OpenError>> {
    Card::from_backend_with(network.backend(0), options)
}

/// Asserts that a transfer through the channel arrives.
fn assert_works(network: &SimNetwork, card: &Card, channel: &mut H2cChannel, seed: u64) {
    let data = bytes(seed, 20_000);
    let at = CardAddr::new(0xC_0001);
    drop(channel.write(card.buffer_from(&data).unwrap(), at).unwrap());
    assert!(peek(network, 0, at, data.len()) == data);
}

/// Asserts that a message contains these parts and is longer than a word.
fn assert_message(error: &dyn std::fmt::Display, parts: &[&str]) {
    let message = format!("{error:#}");
    for part in ["mock:0"].iter().chain(parts) {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}
