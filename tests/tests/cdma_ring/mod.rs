//! CDMA rings, whole stack, with both routes for descriptors.
#![expect(clippy::cast_possible_truncation, reason = "lengths of tests")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

mod drop_and_abort;
mod interleavings;
mod interrupts;
mod realignment;
mod upload;
mod work;

pub(crate) use std::time::Duration;

pub(crate) use fpga_driver::{
    BarOffset, Card, CardAddr, CdmaCompletion, CdmaError, CdmaRing, CdmaRingOptions, CdmaSegment,
    DescriptorPath, Ticket, TransferError, WaitMode, WaitOptions,
    errors::{CdmaRingError, CopyFault, FaultCause},
};
pub(crate) use fpga_registers::cdma::{CdmaBlock, Cdmasr};
pub(crate) use fpga_registers::xdma::{IRQ_BASE, IrqBlock};
pub(crate) use fpga_ring::cdma_ring::{CdmaRingConfigError, RefusalReason};
pub(crate) use fpga_sim::SimNetwork;
pub(crate) use fpga_tests::cards::{
    DMA_BAR, assert_closed, assert_pool, described, fast_network, network, open, peek, poke, register,
    seeded, with_channels,
};
pub(crate) use fpga_tests::fault_injecting::FaultInjectingBackend;
pub(crate) use fpga_tests::{TIMEOUT, bytes};
pub(crate) use proptest::prelude::*;

pub(crate) const MEMORY: u64 = 0x2_0000_0000;
/// Card address of the descriptors.
pub(crate) const BASE: u64 = 0x10_0000;
/// Card address of destinations that have space for copies of 64 MiB.
pub(crate) const FAR: u64 = 0x4000_0000;
/// The CDMA's registers in the user BAR of the built-in card.
pub(crate) const CDMA: BarOffset = BarOffset::new(0x1000);
pub(crate) const USER_BAR: u8 = 0;

pub(crate) fn at(offset: u64) -> CardAddr {
    CardAddr::new(offset)
}

pub(crate) fn segment(source: u64, destination: u64, length: u64) -> CdmaSegment {
    CdmaSegment::new(at(source), at(destination), length)
}

pub(crate) fn opened() -> (SimNetwork, Card) {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    (network, card)
}

/// Route by which descriptors reach card memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorRoute {
    Bypass,
    Channel,
}

pub(crate) const SETUPS: [DescriptorRoute; 2] = [DescriptorRoute::Bypass, DescriptorRoute::Channel];

pub(crate) fn path(card: &Card, route: DescriptorRoute) -> DescriptorPath {
    match route {
        DescriptorRoute::Bypass => DescriptorPath::bypass(at(0)),
        DescriptorRoute::Channel => DescriptorPath::channel(card.h2c(0).unwrap()),
    }
}

pub(crate) fn options() -> CdmaRingOptions {
    CdmaRingOptions::new(at(BASE)).descriptors(16).copies(16)
}

pub(crate) fn ring<T>(card: &Card, route: DescriptorRoute, options: CdmaRingOptions) -> CdmaRing<T> {
    let made = card.cdma().unwrap().into_ring(path(card, route), options);
    made.unwrap_or_else(|refused| panic!("{refused}"))
}

pub(crate) fn refusal(card: &Card, path: DescriptorPath, options: CdmaRingOptions) -> CdmaRingError {
    let refused = card.cdma().unwrap().into_ring::<()>(path, options).unwrap_err();
    // The returned engine works.
    let mut cdma = refused.payload.0;
    cdma.copy(at(0x40_0000), at(0x50_0000), 64).unwrap();
    refused.error.kind
}

pub(crate) fn long_wait() -> WaitOptions {
    WaitOptions::default().timeout(TIMEOUT)
}

/// Waits for one copy that must arrive.
pub(crate) fn arrives<T>(ring: &mut CdmaRing<T>, ticket: Ticket) -> T {
    let done = ring.wait(ticket, long_wait()).unwrap();
    assert_eq!(done.ticket, ticket);
    done.outcome.unwrap_or_else(|fault| panic!("{fault}"));
    done.payload
}

/// Runs a copy that must arrive with the right data.
pub(crate) fn assert_works(network: &SimNetwork, ring: &mut CdmaRing<u64>, seed: u64) {
    let data = bytes(seed, 7001);
    poke(network, 0, at(0x30_0001), &data);
    let ticket = ring.copy(at(0x30_0001), at(0x50_0003), 7001, seed).unwrap();
    assert_eq!(arrives(ring, ticket), seed);
    assert!(peek(network, 0, at(0x50_0003), 7001) == data);
}

pub(crate) fn executed(network: &SimNetwork) -> u64 {
    network.with_card(0, |card| card.counters().cdma_descriptors).unwrap()
}

/// Completions of everything that has ended, oldest first.
pub(crate) fn drain<T>(ring: &mut CdmaRing<T>) -> Vec<CdmaCompletion<T>> {
    std::iter::from_fn(|| ring.next_completion()).collect()
}
