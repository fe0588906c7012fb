//! Cost of a transfer, counted by the card: register reads and writes, interrupts.

use fpga_driver::RunMode;
use fpga_pci::AccessCounters;
use fpga_tests::bed::TestSetup;

use super::*;

/// Difference of the current counters and `before`.
fn since(bed: &TestBed, before: AccessCounters) -> AccessCounters {
    let now = bed.card.counters().unwrap();
    AccessCounters {
        mmio_reads: now.mmio_reads - before.mmio_reads,
        mmio_writes: now.mmio_writes - before.mmio_writes,
        interrupts: now.interrupts - before.interrupts,
        descriptors: now.descriptors - before.descriptors,
        dma_bytes: now.dma_bytes - before.dma_bytes,
        ..now
    }
}

/// One transfer, posted alone: the minimum number of writes of its run mode.
#[test]
fn cost_single_transfer_writes_minimum() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        let one = |bed: &mut TestBed| {
            let ticket = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        };
        for _ in 0..100 {
            one(&mut bed);
        }
        let before = bed.card.counters().unwrap();
        for _ in 0..1000 {
            one(&mut bed);
        }
        let cost = since(&bed, before);
        assert_eq!((cost.mmio_reads, cost.interrupts, cost.descriptors), (0, 0, 1000), "{setup:?}");
        // Batch mode: stop, pointer, adjacency, run (the pointer's high word stays the same). Credit mode: credits.
        let most = if matches!(setup.mode, RunMode::Batch) { 4000 } else { 1000 };
        assert!(cost.mmio_writes <= most, "{setup:?}: {} writes", cost.mmio_writes);
    }
}

/// Every way to submit costs the same number of doorbells: a list costs no more than a part.
#[test]
fn cost_list_uses_as_few_doorbells_as_parts() {
    fn cost(setup: TestSetup) -> [u64; 2] {
        [false, true].map(|lists| {
            let mut bed = TestBed::new(setup);
            let memory = bed.register_memory(1 << 16);
            let round = |bed: &mut TestBed| {
                let mut last = None;
                for n in 0..64_u64 {
                    let card = CardAddr::new(n << 16);
                    let entry = |k: usize| fpga_driver::ScatterGatherEntry {
                        memory,
                        offset: k << 13,
                        length: 64,
                        card: card.checked_add((k as u64) << 12).unwrap(),
                    };
                    last = Some(if lists {
                        bed.channel.submit_list(&[entry(0), entry(1), entry(2)]).unwrap()
                    } else {
                        bed.channel.submit_at(memory, 0, 64, card).unwrap()
                    });
                }
                bed.channel.wait_ended(last.unwrap(), WaitOptions::default()).unwrap();
            };
            round(&mut bed);
            let before = bed.card.counters().unwrap();
            round(&mut bed);
            let cost = since(&bed, before);
            assert_eq!(cost.mmio_reads, 0);
            assert_eq!(cost.descriptors, if lists { 3 * 64 } else { 64 });
            cost.mmio_writes
        })
    }
    for setup in SETUPS {
        let [parts, lists] = cost(setup);
        assert_eq!(parts, lists, "{setup:?}");
    }
}
