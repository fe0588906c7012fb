//! What a transfer costs, counted by the card: register reads and writes, interrupts.

use fpga_driver::pci::AccessCounters;
use fpga_driver::{RunMode, WaitMode};
use fpga_tests::rig::Way;

use super::*;

/// Counters now, less `before`.
fn since(rig: &Rig, before: AccessCounters) -> AccessCounters {
    let now = rig.card.counters().unwrap();
    AccessCounters {
        mmio_reads: now.mmio_reads - before.mmio_reads,
        mmio_writes: now.mmio_writes - before.mmio_writes,
        interrupts: now.interrupts - before.interrupts,
        descriptors: now.descriptors - before.descriptors,
        dma_bytes: now.dma_bytes - before.dma_bytes,
        ..now
    }
}

/// Keeps the channel full of transfers of `length` bytes until `count` have been submitted and have ended.
fn stream(rig: &mut Rig, memory: fpga_driver::AttachedMemory, length: usize, count: u64) {
    let end = rig.channel.ended() + u64::from(rig.channel.in_flight()) + count;
    let mut left = count;
    while rig.channel.ended() < end {
        while left > 0 {
            let place = usize::try_from(left).unwrap() % 64 * length;
            match rig.channel.submit_at(memory, place, length, CardAddr::new(place as u64)) {
                Ok(_) => left -= 1,
                Err(refused) if refused.is_full() => break,
                Err(refused) => panic!("{refused}"),
            }
        }
        rig.channel.poll().unwrap();
        rig.channel.relax();
    }
}

#[test]
fn polling_reads_no_register_and_writes_few() {
    const COUNT: u64 = 8192;
    for way in WAYS {
        let depth = if matches!(way.mode, RunMode::StopRuns) { 256 } else { 64 };
        for (descriptors, length) in [(2 * depth, 64), (2 * depth, 4096), (depth, 64)] {
            let mut rig = Rig::with(way, way.options().descriptors(descriptors).transfers(depth));
            let memory = rig.attach(64 * 4096);
            stream(&mut rig, memory, length, 1000);
            let before = rig.card.counters().unwrap();
            stream(&mut rig, memory, length, COUNT);
            let cost = since(&rig, before);
            assert_eq!((cost.mmio_reads, cost.interrupts), (0, 0), "{way:?}");
            assert!(cost.mmio_writes <= COUNT / 16, "{way:?}: {} writes", cost.mmio_writes);
            assert_eq!((cost.descriptors, cost.dma_bytes), (COUNT, COUNT * length as u64));
            assert_pool(&rig.card, 1 + AREA, 0);
        }
    }
}

/// One transfer, posted alone: as few writes as its run mode needs.
#[test]
fn one_transfer_at_a_time() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let memory = rig.attach(4096);
        let one = |rig: &mut Rig| {
            let ticket = rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        };
        for _ in 0..100 {
            one(&mut rig);
        }
        let before = rig.card.counters().unwrap();
        for _ in 0..1000 {
            one(&mut rig);
        }
        let cost = since(&rig, before);
        assert_eq!((cost.mmio_reads, cost.interrupts, cost.descriptors), (0, 0, 1000), "{way:?}");
        // Stop, pointer, adjacency, run; the pointer's high word stays as it is. Or credits.
        let most = if matches!(way.mode, RunMode::StopRuns) { 4000 } else { 1000 };
        assert!(cost.mmio_writes <= most, "{way:?}: {} writes", cost.mmio_writes);
    }
}

#[test]
fn an_interrupt_per_batch_and_no_more_than_one_read() {
    const BATCHES: u64 = 50;
    for way in WAYS {
        for depth in [1, 8, 64, 256] {
            let mut rig = Rig::with_interrupts(way);
            let memory = rig.attach(64 * 4096);
            let interrupt = WaitOptions::default().mode(WaitMode::Interrupt);
            let batch = |rig: &mut Rig| {
                let last = (0..depth)
                    .map(|n| rig.channel.submit_at(memory, n % 64 * 4096, 4096, CardAddr::ZERO).unwrap())
                    .last();
                rig.channel.wait_ended(last.unwrap(), interrupt).unwrap();
            };
            // The first wait enables the interrupt.
            batch(&mut rig);
            let before = rig.card.counters().unwrap();
            for _ in 0..BATCHES {
                batch(&mut rig);
            }
            let cost = since(&rig, before);
            assert_eq!(cost.descriptors, BATCHES * depth as u64);
            assert!(cost.interrupts <= BATCHES, "{way:?} {depth}: {cost:?}");
            assert!(cost.mmio_reads <= BATCHES, "{way:?} {depth}: {cost:?}");
            assert!(cost.mmio_writes <= 6 * BATCHES, "{way:?} {depth}: {cost:?}");
        }
    }
}

#[test]
fn who_polls_is_not_interrupted() {
    for way in WAYS {
        let mut rig = Rig::with_interrupts(way);
        let memory = rig.attach(64 * 4096);
        stream(&mut rig, memory, 4096, 1000);
        assert_eq!(rig.card.counters().unwrap().interrupts, 0, "{way:?}");
        let once = |rig: &mut Rig, mode| {
            let ticket = rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default().mode(mode)).unwrap();
        };
        once(&mut rig, WaitMode::Interrupt);
        assert_eq!(rig.card.counters().unwrap().interrupts, 1, "{way:?}");
        // Nor after a wait by interrupt.
        let before = rig.card.counters().unwrap();
        for _ in 0..100 {
            once(&mut rig, WaitMode::Poll);
        }
        let cost = since(&rig, before);
        assert_eq!((cost.mmio_reads, cost.interrupts), (0, 0), "{way:?}");
    }
}

/// Every way to submit costs the same doorbells: a list is as cheap as a part.
#[test]
fn lists_cost_no_more_doorbells_than_parts() {
    fn cost(way: Way) -> [u64; 2] {
        [false, true].map(|lists| {
            let mut rig = Rig::new(way);
            let memory = rig.attach(1 << 16);
            let round = |rig: &mut Rig| {
                let mut last = None;
                for n in 0..64_u64 {
                    let card = CardAddr::new(n << 16);
                    let piece = |k: usize| fpga_driver::Piece {
                        memory,
                        offset: k << 13,
                        length: 64,
                        card: card.checked_add((k as u64) << 12).unwrap(),
                    };
                    last = Some(if lists {
                        rig.channel.submit_list(&[piece(0), piece(1), piece(2)]).unwrap()
                    } else {
                        rig.channel.submit_at(memory, 0, 64, card).unwrap()
                    });
                }
                rig.channel.wait_ended(last.unwrap(), WaitOptions::default()).unwrap();
            };
            round(&mut rig);
            let before = rig.card.counters().unwrap();
            round(&mut rig);
            let cost = since(&rig, before);
            assert_eq!(cost.mmio_reads, 0);
            assert_eq!(cost.descriptors, if lists { 3 * 64 } else { 64 });
            cost.mmio_writes
        })
    }
    for way in WAYS {
        let [parts, lists] = cost(way);
        assert_eq!(parts, lists, "{way:?}");
    }
}
