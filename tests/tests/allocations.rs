//! Heap use: a path in its steady state allocates nothing, and a long transfer needs no more memory than a short one.
//!
//! Driver, simulated cards and network run in this thread, so that all their allocations are counted.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use core::time::Duration;
use fpga_diag::inspect::Inspect as _;
use std::io::{Read, Write};

use fpga_driver::{
    C2hChannel, Card, CardAddr, CardRange, CdmaRingOptions, ChannelOptions, Completion, DescriptorPath,
    DmaBuffer, H2cChannel, MemoryHandle, RunMode, ScatterGatherEntry, WaitMode, WaitOptions, bulk,
    stream::{C2hStreamOptions, PacketFragment},
};
use fpga_firmware::generated::Scheme;
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Order, Probability};
use fpga_pci::Bounced;
use fpga_pci::testing::CountingAllocator;
use fpga_protocol::Nanos;
use fpga_rdma::{Endpoint, RemoteRegion, SendOptions};
use fpga_sim::{SimNetwork, SimNetworkBuilder};
use fpga_tests::bed::{SETUPS, TestBed};
use fpga_tests::cards::{described, network, open, with_channels};
use fpga_tests::testbed::Testbed;
use fpga_tests::{DeliveryOrder, SOURCE, TARGET};
use rand_core::Rng;
use rand_pcg::Pcg64;

const DEPTH: usize = 64;

/// Common interface of both kinds of channels.
trait Channel {
    fn submit(&mut self, buffer: DmaBuffer, card: CardAddr);
    fn poll(&mut self) -> usize;
    fn next(&mut self) -> Option<Completion>;
}

macro_rules! channel {
    ($($name:ident)*) => {
        $(impl Channel for $name {
            fn submit(&mut self, buffer: DmaBuffer, card: CardAddr) {
                $name::submit(self, buffer, card).unwrap();
            }

            fn poll(&mut self) -> usize {
                $name::poll(self).unwrap()
            }

            fn next(&mut self) -> Option<Completion> {
                self.next_completion()
            }
        })*
    };
}

channel!(H2cChannel C2hChannel);

impl Channel for Box<dyn Channel> {
    fn submit(&mut self, buffer: DmaBuffer, card: CardAddr) {
        (**self).submit(buffer, card);
    }

    fn poll(&mut self) -> usize {
        (**self).poll()
    }

    fn next(&mut self) -> Option<Completion> {
        (**self).next()
    }
}

/// Keeps `DEPTH` transfers of `size` bytes in flight until `count` more have ended.
fn run(network: &SimNetwork, channel: &mut impl Channel, free: &mut Vec<DmaBuffer>, count: usize) {
    let mut ended = 0;
    let mut place = 0;
    while ended < count {
        while let Some(buffer) = free.pop() {
            place = (place + 1) % (2 * DEPTH as u64);
            channel.submit(buffer, CardAddr::new(place << 16));
        }
        channel.poll();
        while let Some(done) = channel.next() {
            assert!(done.outcome.is_ok());
            free.push(done.buffer.unwrap());
            ended += 1;
        }
        network.step();
    }
}

fn steady(mut take: impl FnMut(&Card, u8) -> Box<dyn Channel>) {
    let network = network(with_channels(2, 2));
    let card = open(&network);
    for (number, size) in [(0, 64), (1, 4096), (0, 60_000)] {
        let mut channel = take(&card, number);
        let mut free: Vec<_> = (0..DEPTH).map(|_| card.buffer(size).unwrap()).collect();
        // Warm-up: card memory is allocated at the first write, and queues grow to their final length.
        run(&network, &mut channel, &mut free, 20 * DEPTH);
        let (allocations, ()) =
            CountingAllocator::count(|| run(&network, &mut channel, &mut free, 50 * DEPTH));
        assert_eq!(allocations, 0, "{size} bytes: {allocations} allocations in {} transfers", 50 * DEPTH);
    }
}

#[test]
fn h2c_write_allocates_nothing() {
    steady(|card, number| Box::new(card.h2c(number).unwrap()));
}

#[test]
fn c2h_read_allocates_nothing() {
    steady(|card, number| Box::new(card.c2h(number).unwrap()));
}

#[test]
fn credit_mode_allocates_nothing() {
    let options = ChannelOptions::default().run_mode(RunMode::Credit);
    steady(|card, number| Box::new(card.h2c_with(number, options).unwrap()));
    steady(|card, number| Box::new(card.c2h_with(number, options).unwrap()));
}

/// Keeps the channel full of parts, or of lists, of registered memory until `count` more have ended.
fn run_registered(
    bed: &mut TestBed,
    memory: MemoryHandle,
    list: &mut [ScatterGatherEntry],
    size: usize,
    count: u64,
) {
    let end = bed.channel.ended() + count;
    let mut place = 0;
    while bed.channel.ended() < end {
        let full = if list.is_empty() {
            let at = CardAddr::new(place << 16);
            bed.channel.submit_at(memory, 0, size, at).is_err()
        } else {
            for (entry, n) in list.iter_mut().zip(0..) {
                entry.card = CardAddr::new((place << 16) + (n << 13));
            }
            bed.channel.submit_list(list).is_err()
        };
        place = (place + 1) % 128;
        if full {
            bed.channel.poll().unwrap();
            bed.network.step();
        }
    }
}

#[test]
fn registered_memory_and_lists_allocate_nothing() {
    for setup in SETUPS {
        for (size, entries) in [(64, 0), (4096, 0), (60_000, 0), (64, 3), (4096, 5)] {
            let mut bed = TestBed::with(setup, setup.options().transfers(64));
            let memory = bed.register_memory(64 << 10);
            let entry =
                |n: usize| ScatterGatherEntry { memory, offset: n << 13, length: size, card: CardAddr::ZERO };
            let mut list: Vec<_> = (0..entries).map(entry).collect();
            run_registered(&mut bed, memory, &mut list, size, 2000);
            let work = || run_registered(&mut bed, memory, &mut list, size, 5000);
            let (allocations, ()) = CountingAllocator::count(work);
            assert_eq!(allocations, 0, "{setup:?}: {entries} entries of {size} bytes");
            assert!(bed.completions().is_empty());
        }
    }
}

#[test]
fn channel_wait_allocates_nothing() {
    for setup in SETUPS {
        let mut bed = TestBed::with_interrupts(setup);
        let memory = bed.register_memory(4 << 20);
        let hybrid = WaitMode::Hybrid { spin: Duration::from_micros(1) };
        let round = |bed: &mut TestBed| {
            for mode in [WaitMode::Poll, WaitMode::Interrupt, hybrid] {
                for length in [64, 4 << 20] {
                    let ticket = bed.channel.submit_at(memory, 0, length, CardAddr::ZERO).unwrap();
                    bed.channel.wait_ended(ticket, WaitOptions::default().mode(mode)).unwrap();
                }
            }
        };
        round(&mut bed);
        let (allocations, ()) = CountingAllocator::count(|| (0..20).for_each(|_| round(&mut bed)));
        assert_eq!(allocations, 0, "{setup:?}");
    }
}

#[test]
fn stream_packets_allocate_nothing() {
    let sections = "xdma: { stream: true }\nstream:\n  logic: source\n  flush_empty: true\n  source: { longest: 9000 }\n";
    for mode in [RunMode::Credit, RunMode::Batch] {
        let network = network(described(sections));
        let card = open(&network);
        let mut rx = card.c2h_stream_with(0, C2hStreamOptions::default().buffers(64).run_mode(mode)).unwrap();
        let mut tx = card.h2c_stream_with(0, ChannelOptions::default().run_mode(mode)).unwrap();
        let memory = tx.register_memory(card.registered_memory(64 << 10).unwrap()).unwrap();
        let parts = [(0, 64), (1000, 128), (5000, 1)].map(|(offset, length)| PacketFragment {
            memory,
            offset,
            length,
        });
        let mut packets = |count: u64| {
            let end = rx.statistics().packets + count;
            while rx.statistics().packets < end {
                while tx.submit_at(memory, 0, 4096).is_ok() && tx.submit_list(&parts).is_ok() {}
                tx.poll().unwrap();
                if let Some(packet) = rx.next_packet().unwrap() {
                    assert!(packet.parts().map(|part| part.len()).sum::<usize>() == packet.len());
                }
                network.step();
            }
        };
        packets(500);
        let (allocations, ()) = CountingAllocator::count(|| packets(2000));
        assert_eq!(allocations, 0, "{mode:?}");
    }
}

#[test]
fn cdma_copy_allocates_nothing() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    for path in [DescriptorPath::bypass(CardAddr::ZERO), DescriptorPath::channel(card.h2c(0).unwrap())] {
        let options = CdmaRingOptions::new(CardAddr::new(0x10_0000)).descriptors(64);
        let mut ring = card.cdma().unwrap().into_ring(path, options).unwrap();
        let mut copies = |count: u64| {
            let (mut sent, mut ended) = (0, 0);
            while ended < count {
                let (from, to) = (CardAddr::new(0x20_0000), CardAddr::new(0x30_0000));
                while sent < count && ring.copy(from, to, 4096, sent).is_ok() {
                    sent += 1;
                }
                ring.poll().unwrap();
                network.step();
                while let Some(done) = ring.next_completion() {
                    assert!(done.outcome.is_ok() && done.payload == ended);
                    ended += 1;
                }
            }
        };
        copies(500);
        let (allocations, ()) = CountingAllocator::count(|| copies(2000));
        assert_eq!(allocations, 0);
    }
}

#[test]
fn mapped_buffers_allocate_nothing() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let mut held: Vec<_> = (0..DEPTH).map(|_| card.buffer(5000).unwrap()).collect();
    held.clear();
    let (allocations, ()) = CountingAllocator::count(|| {
        for round in 0..1000 {
            held.extend((0..DEPTH).map(|n| card.buffer(1 + (round + n) % 5000).unwrap()));
            held.clear();
        }
    });
    assert_eq!(allocations, 0);
}

/// A refusal is part of normal operation: a full ring is frequent.
#[test]
fn refusals_allocate_nothing() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let mut channel = card.h2c_with(0, ChannelOptions::default().descriptors(64)).unwrap();
    for _ in 0..64 {
        H2cChannel::submit(&mut channel, card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
    }
    let mut buffer = card.buffer(64).unwrap();
    let (allocations, _) = CountingAllocator::count(|| {
        for at in [0, u64::MAX].into_iter().cycle().take(1000) {
            buffer = match H2cChannel::submit(&mut channel, take(&mut buffer, &card), CardAddr::new(at)) {
                Err(refused) => refused.payload,
                Ok(_) => panic!("taken"),
            };
        }
    });
    assert_eq!(allocations, 0);
}

/// Takes the buffer out of its place and puts another buffer of mapped memory there.
fn take(buffer: &mut DmaBuffer, card: &Card) -> DmaBuffer {
    std::mem::replace(buffer, card.buffer(64).unwrap())
}

/// Runs `count` transfers, one after the other, in alternating directions.
fn exchange(net: &mut Testbed, regions: &[RemoteRegion; 2], count: usize, length: u64) {
    for n in 0..count {
        let from = n % 2;
        let ticket =
            net.end(from).send(SOURCE, &regions[1 - from], 0, length, SendOptions::default()).unwrap();
        net.settle();
        assert_eq!(
            net.completions[from].pop_front().map(|done| (done.ticket, done.result)),
            Some((ticket, Ok(())))
        );
        assert!(net.notifications[1 - from].pop_front().is_some());
    }
}

#[test]
fn network_path_allocates_nothing() {
    for (order, length) in [
        (DeliveryOrder::InOrder, 100),
        (DeliveryOrder::InOrder, 16_384),
        (DeliveryOrder::InOrder, 1 << 20),
        (DeliveryOrder::Random { seed: 3, depth: 64 }, 100_000),
    ] {
        let mut net = Testbed::new(order.clone());
        let regions = [0, 1].map(|index| net.region(index, TARGET, 1 << 20).remote);
        // Warm-up until the number of frames on the wire has reached its maximum.
        let (warm_up, counted) = if length > 100_000 { (40, 10) } else { (600, 40) };
        exchange(&mut net, &regions, warm_up, length);
        let (allocations, ()) = CountingAllocator::count(|| exchange(&mut net, &regions, counted, length));
        assert_eq!(allocations, 0, "{length} bytes, {order:?}");
        net.assert_clean();
    }
}

/// Network that loses, damages, duplicates, delays and reorders packets and answers.
fn impaired_network() -> SimNetworkBuilder {
    let chance = |fraction| Probability::new(fraction).unwrap();
    let conditions = Conditions::default()
        .loss(Loss::Independent(chance(0.02)))
        .damage(chance(0.01))
        .copies(chance(0.05), Delay::Uniform { least: Nanos::ZERO, most: Nanos::from_micros(50) });
    let order = Order::Degree { degree: 64, patience: Nanos::from_micros(20) };
    let impairments = Impairments::both(conditions).order(order).distance(Nanos::from_micros(1));
    SimNetwork::builder().impairments(impairments).seed(5)
}

/// Packets that are retransmitted, refused, buffered, or reported twice cause no allocation. The cards' tables are small, so that they
/// refuse many.
fn check_path_with_loss(schemes: &[Scheme], warm_up: usize, rounds: usize) {
    for scheme in schemes {
        let card = described("ni: { registry_entries: 2, escape_slots: 4 }");
        let mut net = Testbed::joined(2, &card, impaired_network(), |mut options| {
            options.scheme = *scheme;
            options.round_trip = Duration::from_micros(60);
            options
        });
        let regions = [0, 1].map(|index| net.region(index, TARGET, 4 << 20).remote);
        let round = |net: &mut Testbed, count: u64| {
            for n in 0..count {
                net.send(0, SOURCE, &regions[1], n << 18, 40_000);
                net.send(1, SOURCE, &regions[0], n << 18, 700);
            }
            net.settle();
            for end in [0, 1] {
                assert_eq!(net.notifications[end].drain(..).count() as u64, count);
                assert!(net.completions[end].drain(..).all(|done| done.result == Ok(())));
            }
        };
        // Warm-up until the number of frames on the wire has exceeded the later maximum.
        (0..warm_up).for_each(|_| round(&mut net, 16));
        let counted = |net: &mut Testbed| {
            let tables = net.end(1).tables().counters().unwrap();
            (net.network.network_counters().data, tables)
        };
        let before = counted(&mut net);
        let (allocations, ()) = CountingAllocator::count(|| (0..rounds).for_each(|_| round(&mut net, 8)));
        let after = counted(&mut net);
        assert_eq!(allocations, 0, "{scheme}: {allocations} allocations");
        assert!(after.0.lost > before.0.lost && after.0.duplicated > before.0.duplicated, "{:?}", after.0);
        assert!(after.1.duplicates > before.1.duplicates, "{scheme}: {:?}", after.1);
        if *scheme == Scheme::Registry {
            assert!(after.1.registry_full > before.1.registry_full, "{:?}", after.1);
            assert!(after.1.escape_dropped > before.1.escape_dropped, "{:?}", after.1);
        }
    }
}

/// One scheme of each kind of sender: the host's, and the card's. It needs its time for the warm-up, after which all queues have their
/// final length.
#[test]
fn network_path_with_loss_allocates_nothing() {
    // Three counted rounds. Every fault that is asserted occurs in them; after a shorter warm-up they do not all occur.
    check_path_with_loss(&[Scheme::Registry, Scheme::Selective], 12, 3);
}

#[test]
#[ignore = "long: 30 s: every scheme, a longer warm-up and four times the rounds"]
fn network_path_with_loss_longer_run_allocates_nothing() {
    check_path_with_loss(Scheme::ALL, 16, 8);
}

/// A wait that sleeps allocates no more than one that polls.
#[test]
fn network_wait_allocates_nothing() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let ends = [0, 1].map(|number| {
        let card = Card::from_backend(network.backend(number)).unwrap();
        card.enable_interrupts().unwrap();
        Endpoint::open(&card).unwrap()
    });
    let [mut sender, mut receiver] = ends;
    let region = receiver.open_region(sender.node(), CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    let mut round = || {
        let ticket = sender.send(SOURCE, &region, 0, 100_000, SendOptions::default()).unwrap();
        assert_eq!(sender.wait(ticket, Duration::from_secs(1)).unwrap().result, Ok(()));
        assert_eq!(receiver.wait_notification(Duration::from_secs(1)).unwrap().length, 100_000);
        assert!(receiver.wait_notification(Duration::from_millis(1)).is_err());
    };
    (0..8).for_each(|_| round());
    let (allocations, ()) = CountingAllocator::count(|| (0..8).for_each(|_| round()));
    assert_eq!(allocations, 0);
}

/// Endless file that is not stored anywhere.
struct Endless(Pcg64);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.fill_bytes(into);
        Ok(into.len())
    }
}

/// Writer that compares the data with the expected data.
struct Compared {
    expected: Endless,
    chunk: Vec<u8>,
    bytes: u64,
}

impl Write for Compared {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.chunk.resize(from.len(), 0);
        self.expected.read_exact(&mut self.chunk)?;
        assert!(self.chunk == from, "differs within {} bytes from {}", from.len(), self.bytes);
        self.bytes += from.len() as u64;
        Ok(from.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn endless() -> Endless {
    Endless(Pcg64::new(11, 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96))
}

/// Every scheme whose sender is the card's: host, both cards and the network between them.
#[test]
fn message_schemes_path_allocates_nothing() {
    for scheme in Scheme::ALL.iter().filter(|scheme| **scheme != Scheme::Registry) {
        let card = fpga_card::CardDescription::default();
        let order = DeliveryOrder::Random { seed: 1, depth: 16 };
        let mut net = Testbed::of(&card, order, |mut options| {
            options.scheme = *scheme;
            options
        });
        let region = net.region(1, TARGET, 4 << 20).remote;
        let round = |net: &mut Testbed| {
            net.send(0, SOURCE, &region, 0, 4 << 20);
            net.settle();
            assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
            assert!(net.notifications[1].pop_front().is_some());
        };
        // Warm-up until the number of frames on the wire has exceeded the later maximum: congestion windows grow.
        (0..16).for_each(|_| round(&mut net));
        let (allocations, ()) = CountingAllocator::count(|| round(&mut net));
        assert_eq!(allocations, 0, "{scheme}: {allocations} allocations in 8192 packets");
    }
}

/// Moves `total` bytes from host to card to card to host in chunks. Beyond the cards' memory that needs no more memory than a few chunks.
fn check_memory_of_transfer(total: u64) {
    const CHUNK: u64 = 8 << 20;
    const LIMIT: u64 = 48 << 20;
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let cards = [0, 1].map(|index| net.end(index).card().clone());
    let mut h2c = cards[0].h2c(0).unwrap();
    let mut c2h = cards[1].c2h(0).unwrap();
    let region = net.region(1, TARGET, CHUNK).remote;
    let mut source = Bounced::new(endless());
    let mut sink = Bounced::new(Compared { expected: endless(), chunk: Vec::new(), bytes: 0 });
    let (peak, ()) = CountingAllocator::peak(|| {
        for _ in 0..total / CHUNK {
            bulk::write_from(
                &cards[0],
                &mut h2c,
                &mut source,
                SOURCE,
                CHUNK,
                fpga_driver::WaitOptions::default(),
                &mut |_| (),
            )
            .unwrap();
            net.send(0, SOURCE, &region, 0, CHUNK);
            net.settle();
            assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
            assert!(net.notifications[1].pop_front().is_some());
            bulk::read_into(
                &cards[1],
                &mut c2h,
                TARGET,
                CHUNK,
                &mut sink,
                fpga_driver::WaitOptions::default(),
                &mut |_| (),
            )
            .unwrap();
        }
    });
    assert_eq!(sink.into_inner().bytes, total);
    let resident: usize =
        [0, 1].map(|index| net.network.with_card(index, |card| card.resident_pages()).unwrap()).iter().sum();
    let card_memory = resident as u64 * (64 << 10);
    let mapped: usize = cards.iter().map(|card| card.memory().stats().mapped_bytes).sum();
    // Card memory is mapped and not on the heap, so that `peak` does not contain it.
    let beyond = peak + mapped as u64;
    assert!(beyond < LIMIT, "{beyond} bytes in addition to {card_memory} bytes of card memory");
    // Card memory itself: one chunk and a few pages on each card.
    assert!(card_memory < 2 * (CHUNK + (1 << 20)), "{card_memory}");
    net.assert_clean();
}

/// It needs its time for more data than the limit, from host to host.
#[test]
fn long_transfer_memory_equals_short_transfer() {
    check_memory_of_transfer(56 << 20);
}

#[test]
#[ignore = "long: 7 s: 256 MiB"]
fn longer_transfer_memory_equals_short_transfer() {
    check_memory_of_transfer(256 << 20);
}
