//! Segments from host to host through two cards, with registers and descriptors alone, in every delivery order.
#![expect(clippy::cast_possible_truncation, reason = "patterns and addresses are small")]
#![expect(clippy::expect_used, reason = "a test's preparation either works or is the failure")]

use fpga_card::{AccessLog, CardDescription};
use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::{Flags, memory, ni};
use fpga_firmware::ids::{NodeId, OpNumber, TransferId};
use fpga_firmware::window::{WindowHeader, WindowKind};
use fpga_netmodel::Order;
use fpga_pci::{Backend, Bar, DmaAccess, HugePages, SharedMemory};
use fpga_registers::{BarOffset, CardAddr, Iova};
use fpga_sim::{SimBackend, SimNetwork, SimNetworkBuilder, ThreadOptions};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const RING: Iova = Iova::new(0x40_0000);
const DATA: u64 = 0x10_0000;
const TARGET: u64 = 0x300_0001;

struct Node {
    card: Arc<SimBackend>,
    user: Bar,
    bypass: Bar,
    host: SharedMemory,
    ring: SharedMemory,
    taken: u32,
}

impl Node {
    fn open(network: &SimNetwork, number: usize) -> Self {
        let card = network.backend(number);
        card.set_bus_master(true).expect("config space");
        let host = SharedMemory::anonymous(1 << 20, HugePages::No).expect("memory");
        let ring = SharedMemory::anonymous(64 * EVENTS as usize, HugePages::No).expect("memory");
        card.map_dma(Iova::new(DATA), &host, DmaAccess::Both).expect("free addresses");
        card.map_dma(RING, &ring, DmaAccess::WriteByDevice).expect("free addresses");
        let user = card.open_bar(0).expect("the user BAR");
        let bypass = card.open_bar(2).expect("the bypass BAR");
        let node = Self { card, user, bypass, host, ring, taken: 0 };
        node.ni(ni::INCARNATION, 7);
        // Nothing here retransmits after a timeout, and real time does not stop.
        node.ni(ni::ESCAPE_TIMEOUT_US, 3_600_000_000);
        node.ni(ni::REGISTRY_TIMEOUT_US, 3_600_000_000);
        node.ni(ni::EVENT_RING_BASE_LOW, RING.get() as u32);
        node.ni(ni::EVENT_RING_SIZE, EVENTS);
        node.ni(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
        node
    }

    fn ni(&self, register: u32, value: u32) {
        self.user.write32(BarOffset::new((ni::BLOCK_OFFSET + register).into()), value).expect("a register");
    }

    fn open_memory(&self) {
        let set = |register: u32, value| {
            self.user
                .write32(BarOffset::new((memory::BLOCK_OFFSET + register).into()), value)
                .expect("a register");
        };
        set(memory::INDEX, 0);
        set(memory::SOURCE_NODE, 1);
        set(memory::BASE_LOW, TARGET as u32);
        set(memory::LENGTH_LOW, 1 << 20);
        set(memory::KEY_LOW, 99);
        set(memory::PERMISSIONS, 1);
        set(memory::COMMIT, 1);
    }

    fn event(&mut self) -> Option<Event> {
        let at = 64 * (self.taken as usize % EVENTS as usize);
        let mut bytes = [0; 64];
        self.ring.read(at, &mut bytes).expect("inside the ring");
        let event = Event::decode(&bytes).ok().filter(|event| event.sequence == self.taken + 1)?;
        self.taken += 1;
        self.ni(ni::EVENT_CONSUMED, self.taken);
        Some(event)
    }

    /// Moves data between host and card with one descriptor on channel 0.
    fn dma(&self, base: u64, length: u32, from: u64, to: u64) {
        let dma = self.card.open_bar(1).expect("the DMA BAR");
        let words =
            [0xAD4B_0003, length, from as u32, (from >> 32) as u32, to as u32, (to >> 32) as u32, 0, 0];
        self.host.store_words(0, words).expect("inside the memory");
        for (at, value) in [(0x0C, 1), (0x4080, DATA as u32), (0x4084, 0), (0x4088, 0), (0x04, 0xF8_3E1F)] {
            dma.write32(BarOffset::new(base + at), value).expect("a register");
        }
        while dma.read32(BarOffset::new(base + 0x40)).expect("a register") & 1 != 0 {
            self.card.relax();
        }
    }
}

/// Entries of event rings, 64 bytes each: twice the number of events from all packets that wait in the escape channel once. The receiving
/// host does not poll before the end, and a registry refuses packets whose events would fill more than half of its ring.
/// The escape channel has space for every packet that arrives before its start: nothing here retransmits a refused packet.
const EVENTS: u32 = 4096;

fn card(node: u32) -> CardDescription {
    let mut description = CardDescription::default();
    description.ni.node_id = node;
    description.ni.escape_slots = 256;
    description
}

fn data(length: u32) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn two_cards(order: Order, seed: u64) -> SimNetworkBuilder {
    SimNetwork::builder().card(card(1)).card(card(2)).impairments(order).seed(seed)
}

fn transfer(order: Order, seed: u64, data: &[u8]) {
    transfer_in(&two_cards(order, seed).build().expect("two cards"), data);
}

fn transfer_in(network: &SimNetwork, data: &[u8]) {
    let (mut a, mut b) = (Node::open(network, 0), Node::open(network, 1));
    b.open_memory();
    let segments: Vec<_> = data.chunks(16384).collect();
    let window_base = 0x10_0000_0000_u64;
    a.host.write(4096, data).expect("inside the memory");
    let mut done = 0;
    for (index, segment) in segments.iter().enumerate() {
        let packets = segment.len().div_ceil(512) as u16;
        let header = WindowHeader {
            sequence: index as u32 + 1,
            flags: Flags::NOTIFY_RECEIVER,
            destination: NodeId::new(2),
            transfer: TransferId::new(1),
            oldest_live: TransferId::new(1),
            segment: index as u32,
            segment_count: segments.len() as u32,
            segment_length: segment.len() as u32,
            base: CardAddr::new(TARGET + 16384 * index as u64),
            key: 99,
            transfer_base: CardAddr::new(TARGET),
            transfer_length: data.len() as u64,
            first_packet: 0,
            packet_count: packets,
            packet_size_log2: 9,
            kind: WindowKind::Data,
            segment_packets: packets,
            tries: 0,
            path: 0,
            command: fpga_firmware::window::CommandFields::NONE,
            link: fpga_firmware::window::LinkFields::NONE,
        };
        let ops: Vec<_> = (0..packets).map(|slot| OpNumber::from_parts(slot, index as u16)).collect();
        let mut block = [0; 1152];
        let length = header.encode(&ops, &mut block).expect("a header");
        let window = window_base + 0x8000 * (index as u64 % 8);
        let payload = (DATA + 4096) + 16384 * index as u64;
        // The payload directly from the host; the header through host memory; the commit word last.
        a.dma(0, segment.len() as u32, payload, window + 0x1000);
        a.host.write(1024, &block[..length]).expect("inside the memory");
        a.dma(0, length as u32, DATA + 1024, window);
        a.host.write(1024, &header.commit_word()).expect("inside the memory");
        a.dma(0, 4, DATA + 1024, window + 0xFC0);
        if index % 8 == 7 {
            network.step_until_idle();
        }
    }
    network.step_until_idle();
    while let Some(event) = a.event() {
        assert!(!matches!(event.kind, EventKind::Fault), "{event:?}");
        done += usize::from(event.kind == EventKind::SegmentDone);
    }
    let noticed = std::iter::from_fn(|| b.event()).filter(|event| event.kind == EventKind::Notice).count();
    assert_eq!(
        (done, noticed),
        (segments.len(), 1),
        "every segment completes once, with one notice in total"
    );
    b.dma(0x1000, data.len() as u32, TARGET, DATA + 4096);
    let mut back = vec![0; data.len()];
    b.host.read(4096, &mut back).expect("inside the memory");
    assert!(back == data);
    assert_eq!(network.undeliverable_frames(), 0);
    let mut word = [0; 4];
    b.bypass.read_block(BarOffset::new(TARGET - 1), &mut word).expect("inside the BAR");
    assert_eq!(word[1..], data[..3]);
}

#[test]
fn transfer_in_order_delivery_arrives() {
    let data: Vec<u8> =
        (0..200_001_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    transfer(Order::InOrder, 0, &data);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transfer_random_delivery_arrives(seed: u64, depth in 1_usize..60, length in 4_u32..60_000) {
        transfer(Order::random(depth), seed, &data(length));
    }
}

/// All accesses of software to the cards, with time (the cards') and value, and the results.
fn trace(seed: u64) -> (Vec<String>, String) {
    let network = two_cards(Order::random(16), seed).build().expect("two cards");
    for number in 0..2 {
        network.with_card(number, |card| card.set_access_log(AccessLog::bounded(1 << 20)));
    }
    transfer_in(&network, &data(150_000));
    let mut accesses = Vec::new();
    let mut counters = Vec::new();
    for number in 0..2 {
        network.with_card(number, |card| {
            counters.push(*card.counters());
            let AccessLog::Bounded { entries, .. } = card.set_access_log(AccessLog::Off) else { return };
            accesses.extend(entries.iter().map(|access| format!("{access:?}")));
        });
    }
    (accesses, format!("{} {counters:?}", network.now()))
}

#[test]
fn transfer_same_seed_repeats_run() {
    let (accesses, outcome) = trace(3);
    assert!(accesses.len() > 100, "the log has the accesses");
    assert!((accesses, outcome) == trace(3), "same seed, same run");
    assert!(trace(3) != trace(4), "another seed, another order of the network");
}

#[test]
fn transfer_threaded_cards_arrives() {
    let orders = [Order::InOrder, Order::random(40), Order::Script(vec![3, 1, 0, 2])];
    for order in orders {
        for spin in [Duration::ZERO, Duration::from_micros(50)] {
            let options = ThreadOptions::default().spin(spin);
            let network = two_cards(order.clone(), 1).threaded(options).build().expect("two cards");
            transfer_in(&network, &data(200_001));
        }
    }
}

/// Registries larger than the processor's nearer caches: the frames of a burst are announced before they are delivered.
#[test]
fn transfer_large_registries_arrives() {
    let large = |node| {
        let mut card = card(node);
        card.ni.registry_entries = 4096;
        card
    };
    let network = SimNetwork::builder().card(large(1)).card(large(2));
    let network = network.impairments(Order::random(40)).seed(1);
    let network = network.threaded(ThreadOptions::default()).build().expect("two cards");
    assert_eq!(network.with_card(1, |card| card.expects_frames()), Some(true));
    transfer_in(&network, &data(200_001));
}
