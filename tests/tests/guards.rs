//! Errors of callers and unusual cards that must not end in wrong data: regression tests.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use fpga_driver::{
    BarOffset, Card, CardAddr, CdmaError, ChannelError, Error, NodeId, SubmitError, TransferError,
};
use fpga_protocol::Nanos;
use fpga_rdma::{EndpointError, SendOptions};
use fpga_registers::xdma::{CONFIG_BASE, ConfigBlock};
use fpga_sim::{CardFailure, SimNetwork};
use fpga_tests::testbed::{self, Testbed};
use fpga_tests::{DeliveryOrder, Pair, SOURCE, bytes, cards};

#[test]
fn buffer_of_other_card_is_refused_and_returned() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let open = |index| Card::from_backend(network.backend(index)).unwrap();
    let (a, b) = (open(0), open(1));
    let buffer = b.buffer(4096).unwrap();
    let failed = a.c2h(0).unwrap().read(buffer, CardAddr::ZERO).unwrap_err();
    assert!(
        matches!(failed.error.kind, TransferError::Submit(SubmitError::ForeignBuffer)),
        "{:?}",
        failed.error
    );
    assert!(failed.buffer.is_some(), "the buffer is returned");
    assert_eq!(
        network.with_card(0, |card| card.counters().descriptors),
        Some(0),
        "card A executed no descriptor"
    );
}

#[test]
fn backend_serves_cards_in_sequence() {
    let network = cards::network(cards::described(""));
    let backend = network.backend(0);
    // A buffer that outlives its card keeps its region mapped; the next card's memory is at other addresses.
    let kept = Card::from_backend(Arc::clone(&backend) as _).unwrap().buffer(64).unwrap();
    let card = Card::from_backend(backend).unwrap();
    let next = card.buffer(64).unwrap();
    assert_ne!(kept.iova(), next.iova());
    card.h2c(0).unwrap().write(next, CardAddr::ZERO).unwrap();
}

#[test]
fn events_in_card_memory_are_not_taken_twice_after_reopen() {
    let description = cards::described("ni: { event_push: false }");
    let mut net = Testbed::of(&description, DeliveryOrder::InOrder, |options| options);
    let region = net.region(1, CardAddr::new(0x100_0000), 4096).remote;
    net.carry(SOURCE, &region, 0, &bytes(1, 4096));
    net.notifications[1].clear();

    net.ends[1] = None;
    let again = Card::from_backend(net.network.backend(1)).unwrap();
    let mut endpoint = fpga_rdma::Endpoint::open_with(&again, &testbed::options(3)).unwrap();
    assert_eq!(endpoint.poll(), Ok(0), "no further events");
    assert_eq!(endpoint.next_notification(), None);
}

#[test]
fn endpoint_unpolled_for_long_works() {
    let mut pair = Pair::new(DeliveryOrder::InOrder);
    let data = bytes(2, 40_000);
    pair.load(&data, SOURCE);
    let region = pair.region(40_000);
    pair.a.send(SOURCE, &region, 0, 40_000, SendOptions::default()).unwrap();
    pair.a.poll().unwrap();
    pair.network.advance(Nanos::from_millis(300));
    pair.a.poll().unwrap();
    pair.network.advance(Nanos::from_millis(300));
    pair.settle();
    assert_eq!(pair.a.next_completion().unwrap().result, Ok(()));
    assert!(pair.fetch(fpga_tests::TARGET, 40_000) == data);
}

#[test]
fn cdma_short_address_build_refuses_unreachable() {
    let network = cards::network(cards::described("cdma: { address_width: 32 }"));
    let card = cards::open(&network);
    let before = cards::peek(&network, 0, CardAddr::new(1 << 30), 4096);
    let mut cdma = card.cdma().unwrap();
    // 5 GiB: its low word alone means 1 GiB.
    let error = cdma.copy(CardAddr::ZERO, CardAddr::new(5 << 30), 4096).unwrap_err();
    assert!(matches!(error.kind, CdmaError::Narrow { register: "destination address", .. }), "{error}");
    assert_eq!(cards::peek(&network, 0, CardAddr::new(1 << 30), 4096), before);
    drop(cdma);
    let error = fpga_rdma::Endpoint::open_with(&card, &testbed::options(1)).unwrap_err();
    assert!(
        matches!(error.kind, EndpointError::Cdma(Error { kind: CdmaError::Narrow { .. }, .. })),
        "{error}"
    );
}

#[test]
fn cdma_copy_beyond_address_width_copies_nothing() {
    let network = cards::network(cards::described("cdma: { address_width: 32 }"));
    let card = cards::open(&network);
    let mut cdma = card.cdma().unwrap();
    // Two chunks of 4 MiB below 4 GiB, two above.
    let (below, length) = (CardAddr::new((4 << 30) - (8 << 20)), 16 << 20);
    cards::poke(&network, 0, CardAddr::ZERO, &[7; 4096]);
    let error = cdma.copy(CardAddr::ZERO, below, length).unwrap_err();
    assert!(matches!(error.kind, CdmaError::Narrow { register: "destination address", .. }), "{error}");
    assert_eq!(cards::peek(&network, 0, below, 4096), [0; 4096]);
    let error = cdma.copy(below, CardAddr::ZERO, length).unwrap_err();
    assert!(matches!(error.kind, CdmaError::Narrow { register: "source address", .. }), "{error}");
    assert_eq!(cards::peek(&network, 0, CardAddr::ZERO, 4096), [7; 4096]);
    cdma.copy(CardAddr::ZERO, below, 8 << 20).expect("a copy within the address width succeeds");
    assert_eq!(cards::peek(&network, 0, below, 4096), [7; 4096]);
}

#[test]
fn await_on_removed_card_ends() {
    let network = cards::network(cards::described(""));
    let card = cards::open(&network);
    let mut channel = card.h2c(0).unwrap();
    let ticket = channel.submit(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap();
    channel.poll().unwrap();
    network.fail(0, CardFailure::Gone);
    let outcome = {
        let mut future = pin!(channel.completion(ticket));
        let mut context = Context::from_waker(Waker::noop());
        (0..1_000_000).find_map(|_| match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        })
    };
    assert!(matches!(outcome, Some(Err(Error { kind: ChannelError::Gone { .. }, .. }))), "{outcome:?}");
    // The transfer has ended as aborted; its buffer is in quarantine, because the card may still reach it.
    let done = channel.next_completion().unwrap();
    assert!(done.outcome.is_err() && done.buffer.is_none());
    assert!(matches!(channel.poll(), Err(Error { kind: ChannelError::Gone { .. }, .. })));
    assert_eq!(card.memory().quarantined().len(), 2, "the buffer and the ring");
}

#[test]
fn region_closed_twice_keeps_successor_open() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let first = net.region(1, CardAddr::new(0x100_0000), 4096);
    net.end(1).close_region(&first).unwrap();
    let second = net.region(1, CardAddr::new(0x200_0000), 4096);
    net.end(1).close_region(&first).unwrap();
    net.carry(SOURCE, &second.remote, 0, &bytes(5, 4096));
}

#[test]
fn open_stops_events_of_earlier_owner_before_bus_master() {
    let network = SimNetwork::builder().cards(1).build().unwrap();
    let card = Card::from_backend(network.backend(0)).unwrap();
    let endpoint = fpga_rdma::Endpoint::open_with(&card, &testbed::options(1)).unwrap();
    // Like a killed process: nothing is switched off.
    core::mem::forget(endpoint);
    core::mem::forget(card);
    let control = BarOffset::new(0x2008);
    assert_ne!(cards::register(&network, 0, 0, control), 0, "the interface is on");
    let _next = Card::from_backend(network.backend(0)).unwrap();
    assert_eq!(cards::register(&network, 0, 0, control), 0, "the interface is off");
}

#[test]
fn addresses_above_4_gib_work() {
    let mut net = Testbed::new(DeliveryOrder::Random { seed: 6, depth: 64 });
    // Source and target cross the boundary at different offsets.
    let region = net.region(1, CardAddr::new((1 << 32) - 70_001), 200_000).remote;
    net.carry(CardAddr::new((1 << 32) - 100_003), &region, 0, &bytes(6, 200_000));
    assert_eq!(region.node, NodeId::new(2));
}

#[test]
fn network_transfer_reads_no_register() {
    let mut pair = Pair::new(DeliveryOrder::Random { seed: 7, depth: 64 });
    pair.load(&bytes(7, 1 << 20), SOURCE);
    let region = pair.region(1 << 20);
    let reads =
        |pair: &Pair| [&pair.a, &pair.b].map(|end| end.card().counters().map(|counters| counters.mmio_reads));
    let before = reads(&pair);
    let (completions, notifications) = pair.transfer(&region, 1 << 20);
    assert_eq!((completions.len(), notifications.len()), (1, 1));
    assert_eq!(reads(&pair), before);
}

#[test]
fn card_reports_enabled_interrupts() {
    let network = cards::network(cards::described(""));
    let card = cards::open(&network);
    let mode = || ConfigBlock::INTERRUPT_MODE.read(card.dma_bar(), CONFIG_BASE).unwrap();
    assert!(!mode().msi() && !mode().msix());
    card.enable_interrupts().unwrap();
    assert!(!mode().msi() && mode().msix());
}
