//! Engines that cannot be confirmed idle, registers that cannot be written, streams that end early: memory that may still be reached is in
//! quarantine and counted, all other memory is returned.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::io;
use std::sync::Arc;

use fpga_driver::bulk::{self, BulkError};
use fpga_driver::{
    Advice, C2hChannel, Card, CardAddr, CardRange, Direction, Error, H2cChannel, NodeId, OpenError,
    ReadVolatile, SharedSlice, SubmitError, WaitOptions, WriteVolatile, errors::FaultCause,
};
use fpga_rdma::{Endpoint, SendOptions};
use fpga_registers::xdma::{ChannelBlock, channel_base};
use fpga_sim::SimNetwork;
use fpga_tests::bytes;
use fpga_tests::cards::{DMA_BAR, assert_pool, fast_network, peek, with_channels};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};
use fpga_tests::testbed::options;

fn fault_injecting_card() -> (SimNetwork, Arc<FaultInjectingBackend>, Card) {
    let network = fast_network(with_channels(4, 4));
    let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
    let card = Card::from_backend(backend.clone()).unwrap();
    (network, backend, card)
}

/// Status register of a channel that is busy for ever.
fn busy(direction: Direction, number: u8) -> ReplacedRegister {
    let at = ChannelBlock::STATUS.address(channel_base(direction, number)).get();
    ReplacedRegister { bar: DMA_BAR, at, value: 1 }
}

fn assert_works(network: &SimNetwork, card: &Card, channel: &mut H2cChannel) {
    let data = bytes(8, 10_000);
    drop(channel.write(card.buffer_from(&data).unwrap(), CardAddr::new(0x9_0000)).unwrap());
    assert!(peek(network, 0, CardAddr::new(0x9_0000), 10_000) == data);
}

#[test]
fn wedged_channel_cannot_be_taken_over() {
    let network = fast_network(with_channels(4, 4));
    let backend = FaultInjectingBackend::new(network.backend(0), vec![busy(Direction::C2h, 2)]);
    let error = Card::from_backend(backend.clone()).unwrap_err();
    let Error { kind: OpenError::NotIdle { channel, waited, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!((channel.to_string().as_str(), waited.as_millis()), ("c2h2", 2000));
    assert_eq!(error.advice(), Some(Advice::ResetHungEngine), "{error}");
    // The card is in this thread.
    assert!(error.to_string().contains("within 2000 ms of virtual time"), "{error}");
    assert_eq!(network.with_card(0, |card| card.config().bus_master()), Some(false));
    backend.replace(Vec::new());
    let card = Card::from_backend(backend).unwrap();
    assert_works(&network, &card, &mut card.h2c(0).unwrap());
}

#[test]
fn wedged_endpoint_channel_keeps_memory() {
    let (network, backend, card) = fault_injecting_card();
    let mut endpoint = Endpoint::open_with(&card, &options(1)).unwrap();
    let region =
        endpoint.open_region(NodeId::ANY, CardRange::new(CardAddr::new(0x20_0000), 100_000)).unwrap();
    endpoint.send(CardAddr::ZERO, &region.remote, 0, 100_000, SendOptions::default()).unwrap();
    endpoint.poll().unwrap();
    network.step();
    backend.replace(vec![busy(Direction::H2c, 3)]);
    drop(endpoint);
    // Descriptor ring and header blocks. The event ring is returned, because the interface reports that it is off.
    assert_pool(&card, 0, 2);
    backend.replace(Vec::new());
    drop(Endpoint::open_with(&card, &options(2)).unwrap());
    // Without that report events may still be pushed.
    let control = ReplacedRegister { bar: 0, at: 0x2008, value: 5 };
    let endpoint = Endpoint::open_with(&card, &options(3)).unwrap();
    backend.replace(vec![control]);
    drop(endpoint);
    assert_pool(&card, 0, 3);
}

/// A file that ends, or fails, after a given number of bytes.
struct FailingStream {
    left: usize,
    error: bool,
}

impl FailingStream {
    fn take(&mut self, length: usize) -> io::Result<usize> {
        if self.left == 0 && self.error {
            return Err(io::Error::other("disk on fire"));
        }
        let length = length.min(self.left);
        self.left -= length;
        Ok(length)
    }
}

impl ReadVolatile for FailingStream {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        self.take(into.len())
    }
}

impl WriteVolatile for FailingStream {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        self.take(from.len())
    }
}

/// Length of the bulk transfers.
const LENGTH: u64 = 9 << 20;

fn write(
    card: &Card,
    channel: &mut H2cChannel,
    source: &mut FailingStream,
    at: CardAddr,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error<BulkError>> {
    bulk::write_from(card, channel, source, at, LENGTH, WaitOptions::default(), progress)
}

fn read(
    card: &Card,
    channel: &mut C2hChannel,
    at: CardAddr,
    sink: &mut FailingStream,
) -> Result<(), Error<BulkError>> {
    bulk::read_into(card, channel, at, LENGTH, sink, WaitOptions::default(), &mut |_| ())
}

#[test]
fn failed_bulk_transfer_leaves_nothing_in_flight() {
    let (network, _backend, card) = fault_injecting_card();
    let mut h2c = card.h2c(0).unwrap();
    let mut c2h = card.c2h(0).unwrap();
    let at = CardAddr::ZERO;
    for left in [0, 1, (1 << 20) - 1, 1 << 20, 5_000_000] {
        let error = write(&card, &mut h2c, &mut FailingStream { left, error: false }, at, &mut |_| ());
        assert!(matches!(error, Err(Error { kind: BulkError::Short { .. }, .. })), "{error:?}");
        let error = write(&card, &mut h2c, &mut FailingStream { left, error: true }, at, &mut |_| ());
        let Err(Error { kind: BulkError::Stream { cause, .. }, .. }) = error else { panic!("{error:?}") };
        assert_eq!(cause.to_string(), "disk on fire");
        let error = read(&card, &mut c2h, at, &mut FailingStream { left, error: true });
        assert!(matches!(error, Err(Error { kind: BulkError::Stream { .. }, .. })), "{error:?}");
        assert_eq!((h2c.in_flight(), c2h.in_flight()), (0, 0));
        assert!(h2c.next_completion().is_none() && c2h.next_completion().is_none());
        assert_pool(&card, 2, 0);
    }
    // Beyond the end of memory, from the first chunk or from a later one on.
    for start in [0x2_0000_0000, 0x2_0000_0000 - (3 << 20)] {
        let at = CardAddr::new(start);
        let mut plenty = FailingStream { left: usize::MAX, error: false };
        let error = write(&card, &mut h2c, &mut plenty, at, &mut |_| ());
        assert!(
            matches!(error, Err(Error { kind: BulkError::Submit(SubmitError::CardMemory { .. }), .. })),
            "{error:?}"
        );
        let error = read(&card, &mut c2h, at, &mut plenty);
        assert!(
            matches!(error, Err(Error { kind: BulkError::Submit(SubmitError::CardMemory { .. }), .. })),
            "{error:?}"
        );
        assert_pool(&card, 2, 0);
    }
    // A bus error in the middle.
    network.with_card(0, |card| card.poison(CardAddr::new(5 << 20), 64));
    let mut plenty = FailingStream { left: usize::MAX, error: false };
    let error = write(&card, &mut h2c, &mut plenty, at, &mut |_| ());
    let Err(Error { kind: BulkError::Fault { done, cause: fault, .. }, .. }) = error else {
        panic!("{error:?}")
    };
    assert!(matches!(fault.cause, FaultCause::Status(_)), "{fault}");
    // The chunks before the address, from the start of the transfer.
    let chunks = ((5 << 20) - at.get()) >> 20 << 20;
    assert_eq!(done, chunks);
    network.with_card(0, |card| card.poison(CardAddr::ZERO, 0));
    assert_pool(&card, 2, 0);
    let mut reported = Vec::new();
    write(&card, &mut h2c, &mut plenty, at, &mut |done| reported.push(done)).unwrap();
    assert_eq!(reported.last(), Some(&LENGTH));
    assert!(reported.is_sorted());
    assert_works(&network, &card, &mut h2c);
}
