//! What a packet costs, counted by the card.

use fpga_driver::ChannelOptions;
use fpga_driver::pci::AccessCounters;

use super::*;

const SOURCE: &str = "xdma: { stream: true }\nstream:\n  logic: source\n  flush_empty: true\n  source: { shortest: 64, longest: 4096 }\n";
const COUNT: u64 = 4096;

fn since(card: &Card, before: AccessCounters) -> (u64, u64, u64) {
    let now = card.counters().unwrap();
    let interrupts = now.interrupts - before.interrupts;
    (now.mmio_reads - before.mmio_reads, now.mmio_writes - before.mmio_writes, interrupts)
}

#[test]
fn receiving_by_polling_reads_no_register_and_writes_few() {
    let world = cards::world(described(SOURCE));
    let card = cards::open(&world);
    for buffers in [64, 256] {
        let mut rx = card.c2h_stream_with(0, C2hStreamOptions::default().buffers(buffers)).unwrap();
        let run = |rx: &mut C2hStream, count: u64| {
            let end = rx.statistics().packets + count;
            while rx.statistics().packets < end {
                if rx.next_packet().unwrap().is_none() {
                    rx.relax();
                }
            }
        };
        run(&mut rx, 1000);
        let before = card.counters().unwrap();
        run(&mut rx, COUNT);
        let (reads, writes, interrupts) = since(&card, before);
        assert_eq!((reads, interrupts), (0, 0));
        assert!(writes <= COUNT / 16, "{buffers} buffers: {writes} writes for {COUNT} packets");
    }
}

/// Silence between packets costs nothing either.
#[test]
fn polling_for_packets_that_come_slowly() {
    let sections = "xdma: { stream: true }\nstream:\n  logic: source\n  flush_empty: true\n  source: { gap_ns: 5000000 }\n";
    let world = Setup { sections, ..Setup::new(RunMode::CreditRing) }.world();
    let card = cards::open(&world);
    let mut rx = card.c2h_stream(0).unwrap();
    rx.wait_packet(WaitOptions::default()).unwrap();
    let before = card.counters().unwrap();
    for _ in 0..64 {
        rx.wait_packet(WaitOptions::default()).unwrap();
    }
    let (reads, writes, _) = since(&card, before);
    assert!(reads == 0 && writes <= 4, "{reads} reads, {writes} writes");
}

#[test]
fn sending_by_polling_reads_no_register_and_writes_few() {
    let world = cards::world(described(SOURCE));
    let card = cards::open(&world);
    for mode in MODES {
        let depth = if mode == RunMode::StopRuns { 256 } else { 64 };
        let options = ChannelOptions::default().run_mode(mode).descriptors(2 * depth).transfers(depth);
        let mut tx = card.h2c_stream_with(0, options).unwrap();
        let memory = tx.attach(card.area(4096).unwrap()).unwrap();
        let run = |tx: &mut H2cStream, count: u64| {
            let end = tx.ended() + count;
            while tx.ended() < end {
                while tx.submit_at(memory, 0, 1000).is_ok() {}
                tx.poll().unwrap();
                tx.relax();
            }
        };
        run(&mut tx, 1000);
        let before = card.counters().unwrap();
        run(&mut tx, COUNT);
        let (reads, writes, interrupts) = since(&card, before);
        assert_eq!((reads, interrupts), (0, 0), "{mode:?}");
        assert!(writes <= COUNT / 16, "{mode:?}: {writes} writes for {COUNT} packets");
    }
}
