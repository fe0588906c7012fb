//! DMA at the rate of the described link.

use crate::support::*;
use crate::xdma::{DATA, DESCRIPTORS, H2C0};
use fpga_card::CardDescription;
use fpga_card::description::LinkRate;
use fpga_protocol::time::Nanos;

/// Number of descriptors of the ring, and bytes of each.
const RING: u64 = 8;
const LENGTH: u32 = 4096;
/// 8 GT/s on 16 lanes after 128b/130b, in bytes per microsecond.
const RATE: u64 = 15_753;
/// Time of a descriptor on the link, in nanoseconds: 32 packets of 128 bytes, each with 24 bytes besides its payload.
const DESCRIPTOR_TIME_NS: u64 = (LENGTH as u64 + 32 * 24) * 1000 / RATE;
/// Time of the fetch of a descriptor.
const FETCH_TIME_PS: u64 = (32 + 24) * 1_000_000 / RATE;
/// Run, without interrupts.
const RUN: u32 = 1;

/// Card whose PCIe link alone takes time.
fn link_alone() -> CardDescription {
    let mut description = small();
    description.link.rate = LinkRate::Described;
    (description.link.read_latency_ns, description.link.write_latency_ns) = (0, 0);
    (description.memory.megabytes_per_second, description.memory.latency_ns) = (1_000_000, 0);
    description
}

/// Channel that runs a circular ring of descriptors without end.
fn cyclic(rate: LinkRate) -> CardTestbed {
    let mut description = link_alone();
    description.link.rate = rate;
    let mut testbed = CardTestbed::with(description);
    for n in 0..RING {
        let next = DESCRIPTORS + (n + 1) % RING * 32;
        testbed.host.descriptor(DESCRIPTORS + n * 32, MAGIC | COMPLETED, LENGTH, DATA, n * 0x1000, next);
    }
    // Start the performance counters.
    testbed.write(DMA, H2C0 + 0xC0, 0b100);
    testbed.start(H2C0, DESCRIPTORS, 0, RUN);
    testbed
}

fn completed(testbed: &mut CardTestbed) -> u64 {
    testbed.read(DMA, H2C0 + 0x48).into()
}

fn work(testbed: &mut CardTestbed, now: u64, units: u32) {
    testbed.now = now;
    testbed.card.work(Nanos::new(now), &mut testbed.host, units);
}

/// Reason for completions in bursts: without a rate a descriptor takes no time, and an engine executes all its descriptors in one turn.
#[test]
fn cyclic_ring_without_rate_completes_in_bursts() {
    let mut testbed = cyclic(LinkRate::Unlimited);
    // Fetches fill the channel's buffer first.
    work(&mut testbed, 0, 1000);
    assert!(completed(&mut testbed) > RING, "more than once round in an instant");
}

#[test]
fn cyclic_ring_with_rate_completes_singly() {
    let mut testbed = cyclic(LinkRate::Described);
    let mut seen = Vec::new();
    for now in (0..100 * DESCRIPTOR_TIME_NS).step_by(10) {
        let before = completed(&mut testbed);
        work(&mut testbed, now, 64);
        let done = completed(&mut testbed) - before;
        assert!(done <= 1, "{done} at {now} ns");
        if done == 1 {
            seen.push(now);
        }
    }
    // Descriptor fetches take some of the time.
    assert!((96..=101).contains(&seen.len()), "{} in the time of 100", seen.len());
    let gaps: Vec<u64> = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| gap.abs_diff(DESCRIPTOR_TIME_NS) <= 20), "{gaps:?}");
}

/// The card's thread sleeps until the link is free, and wakes up late: the waiting transfer counts from the time when it could have
/// started.
#[test]
fn link_rate_late_wake_up_loses_and_gains_nothing() {
    let mut testbed = cyclic(LinkRate::Described);
    // The first fetch begins.
    work(&mut testbed, 0, 1000);
    assert_eq!(completed(&mut testbed), 0);
    for now in (1..=20).map(|n| n * 50_000) {
        let due = testbed.card.next_deadline().expect("the link will be free");
        assert!(due.get() <= now, "{due:?} at {now}");
        for _ in 0..100 {
            work(&mut testbed, now, 64);
        }
        // Fetches share the link with the data: 32 bytes and a header per descriptor.
        let (done, expected) =
            (completed(&mut testbed), now * 1000 / (DESCRIPTOR_TIME_NS * 1000 + FETCH_TIME_PS));
        assert!(done.abs_diff(expected) <= 1 + expected / 100, "{done} after {now} ns, not {expected}");
        let beats = u64::from(testbed.read(DMA, H2C0 + 0xCC));
        assert!(beats <= now / 4 + u64::from(LENGTH) / 64, "{beats} beats in {} clocks", now / 4);
    }
    // An idle link accumulates no credit.
    testbed.write(DMA, H2C0 + 0x04, 0);
    for now in [1_100_000, 1_200_000, 5_000_000] {
        work(&mut testbed, now, 64);
    }
    testbed.write(DMA, H2C0 + 0xC0, 0b110);
    testbed.start(H2C0, DESCRIPTORS, 0, RUN);
    work(&mut testbed, 5_000_000, 64);
    assert!(completed(&mut testbed) <= 1);
}

#[test]
fn link_rate_channels_share_direction() {
    let description = link_alone();
    let mut testbed = CardTestbed::with(description);
    for n in 0..RING {
        let next = DESCRIPTORS + (n + 1) % RING * 32;
        testbed.host.descriptor(DESCRIPTORS + n * 32, MAGIC, LENGTH, DATA, n * 0x1000, next);
        let (at, next) = (0x1000 + n * 32, 0x1000 + (n + 1) % RING * 32);
        testbed.host.descriptor(
            DESCRIPTORS + at,
            MAGIC,
            LENGTH,
            n * 0x1000,
            DATA + 0x8000,
            DESCRIPTORS + next,
        );
    }
    testbed.start(H2C0, DESCRIPTORS, 0, RUN);
    testbed.start(H2C0 + 0x100, DESCRIPTORS, 0, RUN);
    testbed.start(0x1000, DESCRIPTORS + 0x1000, 0, RUN);
    for now in (0..100 * DESCRIPTOR_TIME_NS).step_by(10) {
        work(&mut testbed, now, 64);
    }
    let counts = [H2C0, H2C0 + 0x100, 0x1000].map(|base| u64::from(testbed.read(DMA, base + 0x48)));
    assert!(
        (93..=102).contains(&(counts[0] + counts[1])) && counts[0].abs_diff(counts[1]) <= 1,
        "{counts:?}"
    );
    assert!((98..=102).contains(&counts[2]), "{counts:?}");
}
