//! Virtual time: every part of a card moves bytes at the rate of its description, with its latency, and parts overlap.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_driver::{CardAddr, WaitOptions};
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;
use fpga_tests::cards::{described, network, open};
use fpga_tests::testbed::Testbed;
use fpga_tests::{DeliveryOrder, SOURCE, TARGET, bytes};

const MIB: u64 = 1 << 20;
/// Payload bytes of a PCIe packet with the configuration of the built-in card, and its other bytes.
const PAYLOAD: u64 = 128;
const OVERHEAD: u64 = 24;

fn at(offset: u64) -> CardAddr {
    CardAddr::new(offset)
}

/// Nanoseconds of virtual time that `work` needs.
fn duration(network: &SimNetwork, work: impl FnOnce()) -> u64 {
    let before = network.now();
    work();
    network.now().saturating_sub(before).get()
}

/// Duration of a write of 4 MiB to a card with these `sections`.
fn write(sections: &str) -> u64 {
    let network = network(described(sections));
    let card = open(&network);
    let mut channel = card.h2c(0).unwrap();
    let buffer = card.buffer(4 << 20).unwrap();
    duration(&network, || drop(channel.write(buffer, at(0)).unwrap()))
}

/// Checks that `took` is `expected`, with up to 2 % and `slack` nanoseconds more.
#[track_caller]
fn assert_close(took: u64, expected: u64, slack: u64) {
    assert!((expected..=expected + expected / 50 + slack).contains(&took), "{took} instead of {expected} ns");
}

#[test]
fn time_of_dma_is_that_of_slowest_part() {
    let on_link = 4 * MIB + 4 * MIB / PAYLOAD * OVERHEAD;
    // 8 GT/s on 16 lanes: 15.754 GB/s. 2.5 GT/s on one lane after 8b/10b: 0.25 GB/s.
    assert_close(write(""), on_link * 1000 / 15_754, 3000);
    assert_close(write("link: { speed: 1, width: 1 }"), on_link * 1000 / 250, 3000);
    // 64 bits at 250 MHz.
    assert_close(write("xdma: { data_width: 64 }"), on_link * 1000 / 2000, 3000);
    assert_close(write("memory: { megabytes_per_second: 500 }"), 4 * MIB * 1000 / 500, 3000);
}

#[test]
fn time_of_short_dma_is_latency() {
    let short = |sections: &str| {
        let network = network(described(sections));
        let card = open(&network);
        let mut channel = card.h2c(0).unwrap();
        let mut buffer = card.buffer(64).unwrap();
        // The first transfer also starts the channel.
        buffer = channel.write(buffer, at(0)).unwrap();
        duration(&network, || drop(channel.write(buffer, at(0)).unwrap()))
    };
    let usual = short("");
    // Doorbell, descriptor fetch, data, result: 250 + 600 + 600 + 120 + 250 ns, and some polls.
    assert!((1500..2500).contains(&usual), "{usual} ns");
    // Descriptor fetch and data are read.
    let longer = short("link: { read_latency_ns: 1600 }") - usual;
    assert!((1900..2200).contains(&longer), "{longer} ns");
}

#[test]
fn time_of_copy_counts_every_byte_of_memory_twice() {
    let copy = |sections: &str| {
        let network = network(described(sections));
        let card = open(&network);
        let mut cdma = card.cdma().unwrap();
        duration(&network, || cdma.copy(at(0), at(64 * MIB), 4 * MIB).unwrap())
    };
    assert_close(copy(""), 2 * 4 * MIB * 1000 / 17_000, 3000);
    // 32 bits at 250 MHz.
    assert_close(copy("cdma: { data_width: 32 }"), 4 * MIB * 1000 / 1000, 3000);
}

#[test]
fn time_of_both_directions_overlaps() {
    let network = network(described("memory: { megabytes_per_second: 100000 }"));
    let card = open(&network);
    let (mut h2c, mut c2h) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let alone = duration(&network, || drop(h2c.write(card.buffer(4 << 20).unwrap(), at(0)).unwrap()));
    let both = duration(&network, || {
        let sent = h2c.submit(card.buffer(4 << 20).unwrap(), at(0)).unwrap();
        let received = c2h.submit(card.buffer(4 << 20).unwrap(), at(64 * MIB)).unwrap();
        h2c.poll().unwrap();
        c2h.poll().unwrap();
        h2c.wait(sent, WaitOptions::default()).unwrap();
        c2h.wait(received, WaitOptions::default()).unwrap();
    });
    assert!(both < alone + alone / 10, "{both} ns together, {alone} ns alone");
}

#[test]
fn time_of_transfer_counts_headers_of_packets() {
    let carried = |packet: u64| {
        let sections = format!("ni: {{ packet_size: {packet}, megabits_per_second: 10000 }}");
        let mut net = Testbed::of(&described(&sections), DeliveryOrder::InOrder, |options| options);
        let region = net.region(1, TARGET, MIB).remote;
        // The first transfer also waits until the node may send.
        net.carry(SOURCE, &region, 0, &bytes(1, 64));
        net.put(0, SOURCE, &bytes(2, 1 << 20));
        let before = net.network.now();
        let ticket = net.send(0, SOURCE, &region, 0, MIB);
        while !net.completions[0].iter().any(|done| done.ticket == ticket) {
            net.poll(0).unwrap();
            net.poll(1).unwrap();
            net.network.step();
        }
        net.network.now().saturating_sub(before).get()
    };
    // 1250 bytes per microsecond. Headers and the Ethernet frame add 60 to 100 bytes to each packet.
    for packet in [64, 512, 4096] {
        let (least, most) = (MIB + MIB / packet * 60, MIB + MIB / packet * 100);
        let took = carried(packet);
        assert!(
            (least * 8 / 10..most * 8 / 10 + 60_000).contains(&took),
            "{packet}: {took} ns for {least} to {most} bytes"
        );
    }
}

#[test]
fn time_spent_adds_up_to_all_time() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, MIB).remote;
    net.carry(SOURCE, &region, 0, &bytes(1, 300_000));
    let spent = net.network.time_spent();
    assert_eq!(spent.total(), net.network.now());
    for part in [spent.pcie, spent.card, spent.network, spent.host] {
        assert_ne!(part, Nanos::ZERO, "{spent:?}");
    }
}

/// The same work needs the same time, to the nanosecond.
#[test]
fn time_is_deterministic() {
    let run = || {
        let mut net = Testbed::new(DeliveryOrder::Random { seed: 3, depth: 16 });
        let region = net.region(1, TARGET, MIB).remote;
        net.carry(SOURCE, &region, 0, &bytes(1, 300_000));
        (net.network.now(), net.network.time_spent())
    };
    assert_eq!(run(), run());
}
