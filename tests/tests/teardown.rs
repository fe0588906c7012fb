//! Closing in any order at any time: nothing stays mapped, running or able to run, every buffer is accounted for, and the card can be
//! opened again.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::any::Any;

use fpga_driver::{Card, CardAddr, CardRange, ChannelOptions, Direction, NetworkInterface, OpenOptions};
use fpga_pci::Backend;
use fpga_pci::{DmaPool, DmaPoolOptions};
use fpga_rdma::{Endpoint, SendOptions};
use fpga_registers::xdma::{ChannelBlock, channel_base};
use fpga_sim::SimNetwork;
use fpga_tests::bytes;
use fpga_tests::cards::{
    DMA_BAR, assert_closed, assert_pool, channels_idle, open, open_with, peek, poke, register,
};
use fpga_tests::orders;
use fpga_tests::testbed::options;

fn two_cards() -> SimNetwork {
    SimNetwork::builder().cards(2).build().unwrap()
}

/// Asserts that the whole card works: both directions, the copy engine, the endpoint.
fn assert_works(network: &SimNetwork) {
    let card = open(network);
    assert_pool(&card, 0, 0);
    let data = bytes(5, 30_001);
    let mut h2c = card.h2c(0).unwrap();
    let buffer = h2c.write(card.buffer_from(&data).unwrap(), CardAddr::new(0x4_0003)).unwrap();
    card.cdma().unwrap().copy(CardAddr::new(0x4_0003), CardAddr::new(0x8_0005), 30_001).unwrap();
    let buffer = card.c2h(0).unwrap().read(buffer, CardAddr::new(0x8_0005)).unwrap();
    assert!(buffer.to_vec() == data);
    drop((h2c, buffer));
    let mut endpoint = Endpoint::open_with(&card, &options(77)).unwrap();
    // The endpoint sends to itself: the network delivers every frame to the node in its header.
    let node = endpoint.node();
    let region = endpoint.open_region(node, CardRange::new(CardAddr::new(0x10_0000), 30_001)).unwrap();
    let ticket =
        endpoint.send(CardAddr::new(0x8_0005), &region.remote, 0, 30_001, SendOptions::default()).unwrap();
    let done = endpoint.wait(ticket, std::time::Duration::from_secs(1)).unwrap();
    assert_eq!(done.result, Ok(()));
    assert!(peek(network, 0, CardAddr::new(0x10_0000), 30_001) == data);
}

/// Named objects that are dropped one by one.
type Things = Vec<(&'static str, Option<Box<dyn Any>>)>;

fn boxed<T: 'static>(thing: T) -> Option<Box<dyn Any>> {
    Some(Box::new(thing))
}

/// A card with all resources taken and transfers in every direction in flight, after `steps` units of work.
fn busy_card(network: &SimNetwork, steps: usize) -> (Things, DmaPool) {
    let card = open(network);
    let short = ChannelOptions::default().max_descriptor_length(4096);
    let mut h2c = card.h2c_with(0, short).unwrap();
    let mut c2h = card.c2h_with(1, short).unwrap();
    for n in 0..4 {
        h2c.submit(card.buffer_from(&bytes(n, 40_000)).unwrap(), CardAddr::new(n << 16)).unwrap();
        c2h.submit(card.buffer(40_000).unwrap(), CardAddr::new(n << 16)).unwrap();
    }
    let buffer = card.buffer(12_345).unwrap();
    poke(network, 0, CardAddr::new(0x100_0000), &bytes(9, 300_000));
    let mut endpoint = Endpoint::open_with(&card, &options(1)).unwrap();
    let node = endpoint.node();
    let region = endpoint.open_region(node, CardRange::new(CardAddr::new(0x200_0000), 300_000)).unwrap();
    endpoint.send(CardAddr::new(0x100_0000), &region.remote, 0, 300_000, SendOptions::default()).unwrap();
    for _ in 0..steps / 2 {
        endpoint.poll().unwrap();
        network.step();
    }
    h2c.poll().unwrap();
    c2h.poll().unwrap();
    for _ in 0..steps / 2 {
        network.step();
    }
    // Some transfers are queued after the runs, and some have ended without being collected.
    h2c.poll().unwrap();
    h2c.submit(card.buffer(100).unwrap(), CardAddr::ZERO).unwrap();
    let pool = card.memory().clone();
    let things = vec![
        ("h2c", boxed(h2c)),
        ("c2h", boxed(c2h)),
        ("endpoint", boxed(endpoint)),
        ("buffer", boxed(buffer)),
        ("card", boxed(card)),
    ];
    (things, pool)
}

#[test]
fn teardown_channels_buffer_endpoint_card_in_every_order() {
    for (n, order) in orders(5).into_iter().enumerate() {
        let network = two_cards();
        let (mut things, pool) = busy_card(&network, [0, 7, 40, 150, 600][n % 5]);
        let names: Vec<_> = order.iter().map(|&index| things[index].0).collect();
        for &index in &order {
            things[index].1 = None;
            // Between the drops the card does the work that it still may do.
            for _ in 0..3 {
                network.step();
            }
        }
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.in_use_bytes, stats.quarantined), (0, 0, 0), "{names:?}");
        // The card is closed before its memory is freed: it cannot reach the memory any more.
        assert!(channels_idle(&network, 0), "{names:?}");
        assert_eq!(network.with_card(0, |card| card.config().bus_master()), Some(false), "{names:?}");
        drop(pool);
        assert_closed(&network, 0);
        assert_works(&network);
        assert_closed(&network, 0);
    }
}

#[test]
fn buffer_outlives_card() {
    let network = two_cards();
    let card = open(&network);
    let mut buffer = card.buffer(4096).unwrap();
    buffer.fill(3);
    drop(card);
    assert_eq!(buffer.to_vec(), [3; 4096]);
    assert_eq!(network.with_card(0, |card| card.config().bus_master()), Some(false));
    assert_ne!(network.mapped_bytes(0), 0, "the pool exists as long as its buffers");
    drop(buffer);
    assert_closed(&network, 0);
}

#[test]
fn open_stops_run_of_earlier_process() {
    for steps in [0, 1, 5, 20] {
        let network = two_cards();
        let mut memory = DmaPoolOptions::default();
        memory.region_size = 64 << 20;
        let card = open_with(&network, OpenOptions::default().memory(memory));
        // The first allocation of the only region.
        let region = card.buffer(64).unwrap().iova();
        let mut forgotten = Vec::new();
        for number in 0..4 {
            let mut h2c =
                card.h2c_with(number, ChannelOptions::default().max_descriptor_length(4096)).unwrap();
            h2c.submit(card.buffer(1 << 20).unwrap(), CardAddr::ZERO).unwrap();
            h2c.poll().unwrap();
            let mut c2h =
                card.c2h_with(number, ChannelOptions::default().max_descriptor_length(4096)).unwrap();
            c2h.submit(card.buffer(1 << 20).unwrap(), CardAddr::ZERO).unwrap();
            c2h.poll().unwrap();
            forgotten.push((h2c, c2h));
        }
        for _ in 0..steps {
            network.step();
        }
        // State after a process was killed: no handle was dropped. The kernel removes its mappings and clears bus mastering, but does not
        // clear run bits.
        let mapped = card.memory().stats();
        assert_eq!(mapped.regions, 1);
        std::mem::forget((forgotten, card));
        let backend = network.backend(0);
        backend.set_bus_master(false).unwrap();
        backend.unmap_dma(region, mapped.mapped_bytes as u64).unwrap();
        assert_eq!(network.mapped_bytes(0), 0);
        let run = ChannelBlock::CONTROL.address(channel_base(Direction::C2h, 3));
        assert_eq!(register(&network, 0, DMA_BAR, run) & 1, 1, "still running");
        let again = open(&network);
        assert!(channels_idle(&network, 0));
        let before = network.with_card(0, |card| card.counters().c2h_bytes);
        network.step_until_idle();
        assert_eq!(
            network.with_card(0, |card| card.counters().c2h_bytes),
            before,
            "the card writes no further data"
        );
        let data = bytes(1, 100_000);
        for number in 0..4 {
            let buffer = again
                .h2c(number)
                .unwrap()
                .write(again.buffer_from(&data).unwrap(), CardAddr::new(0x100))
                .unwrap();
            let buffer = again.c2h(number).unwrap().read(buffer, CardAddr::new(0x100)).unwrap();
            assert!(buffer.to_vec() == data);
        }
    }
}

#[test]
fn refused_open_leaves_nothing_enabled() {
    let mut file = fpga_card::CardDescription::default();
    file.ni.checksum_override = Some(1);
    let network = SimNetwork::builder().card(file).build().unwrap();
    for _ in 0..3 {
        assert!(Card::from_backend(network.backend(0)).is_err());
        assert_closed(&network, 0);
    }
    let options = OpenOptions::default().network_interface(NetworkInterface::Ignored);
    drop(Card::from_backend_with(network.backend(0), options).unwrap());
    assert_closed(&network, 0);
}
