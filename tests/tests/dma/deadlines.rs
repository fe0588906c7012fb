//! Blocking transfers with a deadline: a transfer that does not end in time is withdrawn, its buffer is returned, and others are not
//! affected.

use core::time::Duration;

use fpga_card::fault_plan::Opportunity;
use fpga_card::{FaultPlan, InjectedFault, PlannedFault};
use fpga_driver::{ChannelOptions, Error, RunMode, TransferError, WaitMode, bulk};
use fpga_tests::bed::TestSetup;
use fpga_tests::cards::{fast_network, halt, open, with_channels};

use super::*;

fn within(limit: Duration) -> WaitOptions {
    WaitOptions::default().timeout(limit)
}

fn bed(setup: TestSetup) -> TestBed {
    let network = fast_network(with_channels(2, 2));
    let card = open(&network);
    card.enable_interrupts().unwrap();
    TestBed::on(network, card, setup, setup.options().max_descriptor_length(4096))
}

/// Spurious interrupts, one for every register access: time advances, so that a deadline is kept where nothing moves, and work is done
/// where it can be.
#[test]
fn deadline_interrupt_storm_does_not_stop_clock() {
    for setup in SETUPS {
        for mode in [WaitMode::Interrupt, WaitMode::Hybrid { spin: Duration::from_micros(10) }] {
            let mut bed = bed(setup);
            let storm = |on: bool| {
                let vector = if setup.to_card() { 0 } else { 2 };
                let fault = InjectedFault::SpuriousInterrupt { vector, on: Opportunity::Access };
                let plan = FaultPlan::new(1);
                let plan = if on { plan.with(PlannedFault::new(fault).always()) } else { plan };
                bed.network.with_card(0, |card| card.set_fault_plan(&plan)).unwrap();
            };
            storm(true);
            halt(&bed.card, setup.direction, true);
            let wait = within(Duration::from_millis(2)).mode(mode);
            let buffer = bed.buffer(CardAddr::ZERO, &[7; 5000]);
            let failed = bed.channel.transfer(buffer, CardAddr::ZERO, wait).unwrap_err();
            let Error { kind: TransferError::Channel(ChannelError::TimedOut { waited, .. }), .. } =
                failed.error
            else {
                panic!("{setup:?} {mode:?}: {failed}")
            };
            let waited_us = waited.as_micros();
            assert!((2000..10_000).contains(&waited_us), "{setup:?} {mode:?}: {waited_us}");
            assert!(failed.buffer.is_some_and(|buffer| buffer.len() == 5000));
            halt(&bed.card, setup.direction, false);
            let struck =
                bed.network.with_card(0, |card| card.fault_progress().map(|(_, struck)| struck).sum::<u64>());
            assert!(
                struck.unwrap() > 20,
                "{setup:?} {mode:?}: {struck:?} interrupts are too few for an interrupt storm"
            );
            for _ in 0..4 {
                let buffer = bed.buffer(CardAddr::ZERO, &bytes(3, 50_000));
                bed.channel.transfer(buffer, CardAddr::ZERO, wait).unwrap();
            }
            storm(false);
            bed.assert_works(1);
            assert_pool(&bed.card, AREA, 0);
        }
    }
}

/// Long transfers in chunks, in any mode.
#[test]
fn deadline_bulk_transfers_end_in_any_mode() {
    // A short ring makes bulk transfers slow.
    for (mode, transfers) in [(RunMode::Batch, 256), (RunMode::Credit, 256), (RunMode::Batch, 2)] {
        let network = fpga_tests::cards::network(with_channels(1, 1));
        let card = open(&network);
        card.enable_interrupts().unwrap();
        let options = ChannelOptions::default().run_mode(mode).transfers(transfers);
        let (mut h2c, mut c2h) = (card.h2c_with(0, options).unwrap(), card.c2h_with(0, options).unwrap());
        let data = bytes(5, (5 << 20) + 77);
        let (at, length) = (CardAddr::new(0x1001), data.len() as u64);
        for wait in [WaitMode::Poll, WaitMode::Interrupt, WaitMode::Hybrid { spin: Duration::from_micros(1) }]
        {
            let wait = WaitOptions::default().mode(wait);
            bulk::write_from(&card, &mut h2c, &mut &data[..], at, length, wait, &mut |_| ()).unwrap();
            let mut back = Vec::new();
            bulk::read_into(&card, &mut c2h, at, length, &mut back, wait, &mut |_| ()).unwrap();
            assert!(back == data, "{mode:?} {transfers}");
        }
    }
}
