//! Transfers that fail in sequence, time limits, quirks. Single faults are rows of the conformance suite's table.

use core::time::Duration;

use fpga_card::FaultKind;
use fpga_driver::{
    Advice, Card, Error, NetworkInterface, OpenOptions, ResourceError, RunMode, errors::FaultCause,
};
use fpga_registers::xdma::{PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock};
use fpga_tests::bed::TestSetup;
use fpga_tests::cards::{DMA_BAR, described, network, open_with, with_channels};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};

use super::*;

/// Number of faults of this kind in the card's log.
fn logged(bed: &TestBed, kind: FaultKind) -> usize {
    bed.network.with_card(0, |card| card.faults().iter().filter(|fault| fault.kind == kind).count()).unwrap()
}

/// A card without network interface: only the AXI bus knows where its memory of 1 MiB ends.
fn unknown_memory(setup: TestSetup) -> TestBed {
    let network = setup.network(described("memory: { size: 0x100000 }"));
    let card = open_with(&network, OpenOptions::default().network_interface(NetworkInterface::Ignored));
    TestBed::on(network, card, setup, setup.options().max_descriptor_length(4096))
}

/// Errors in the middle of a stream: a caller that continues to submit without checking outcomes loses only the batch of each error.
pub(crate) fn bad_stream(setup: TestSetup) {
    let mut bed = unknown_memory(setup);
    let memory = bed.register_memory(64 * 64);
    let mut rng = TestRng::new(12);
    let (mut submitted, mut failed, mut faults) = (0_u64, 0, 0);
    while submitted < 3000 {
        let bad = submitted % 100 == 99;
        let at = if bad { 0x10_0000 } else { 0x100 * (submitted % 64) };
        match bed.channel.submit_at(memory, 0, 64, CardAddr::new(at)) {
            Ok(_) => submitted += 1,
            Err(error) => assert!(error.is_full(), "{error}"),
        }
        if rng.below(7) == 0 {
            bed.channel.poll().unwrap();
            bed.channel.relax();
        }
        for done in bed.completions() {
            failed += 1;
            faults += u32::from(done.outcome.unwrap_err().kind.cause != FaultCause::EarlierFault);
        }
    }
    for done in bed.finish() {
        failed += 1;
        faults += u32::from(done.outcome.unwrap_err().kind.cause != FaultCause::EarlierFault);
    }
    assert_eq!(bed.channel.ended(), 3000);
    assert!((1..=30).contains(&faults), "{setup:?}: {faults}");
    assert!(failed >= faults && failed < 3000, "{setup:?}: {failed}");
    bed.assert_works(5);
}

#[test]
fn fault_bad_transfers_in_sequence_leave_channel_usable() {
    for setup in SETUPS {
        bad_stream(setup);
    }
}

/// Both counts in a timeout's message belong to the same run.
#[test]
fn fault_timeout_reports_progress_of_run() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(1 << 20);
        for _ in 0..10 {
            let ticket = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            let tickets = [0, 1].map(|_| bed.channel.submit_at(memory, 0, 1 << 20, CardAddr::ZERO).unwrap());
            let none = WaitOptions::default().timeout(Duration::ZERO);
            let error = bed.channel.wait_ended(tickets[1], none).unwrap_err();
            let Error { kind: ChannelError::TimedOut { completed, posted, .. }, .. } = error else {
                panic!("{error}")
            };
            // Both are in a separate run in either mode, because long descriptors do not share a run with blocks of short ones (quirk 1).
            assert_eq!((completed, posted), (0, 2), "{setup:?}");
            bed.channel.wait_ended(tickets[1], WaitOptions::default()).unwrap();
        }
    }
}

/// Long descriptors and short ones on a card that mishandles several blocks of long ones (quirk 1).
#[test]
fn quirk_1_long_descriptors_transfer() {
    for setup in SETUPS {
        let network = network(described("xdma: { long_descriptor_quirk: true }"));
        let card = fpga_tests::cards::open(&network);
        let mut bed = TestBed::on(network, card, setup, setup.options().descriptors(256).transfers(128));
        let memory = bed.register_memory(4 << 20);
        let mut rng = TestRng::new(11);
        for round in 0..300_u64 {
            let mut last = None;
            for _ in 0..=rng.below(40) {
                let length = if rng.below(6) == 0 { 4097 + rng.below(60_000) } else { 1 + rng.below(4096) };
                match bed.channel.submit_at(memory, rng.below(4096), length, CardAddr::new(round << 16)) {
                    Ok(ticket) => last = Some(ticket),
                    Err(error) => assert!(error.is_full(), "{error}"),
                }
                if rng.below(10) == 0 {
                    bed.channel.poll().unwrap();
                    bed.step(rng.below(10));
                }
            }
            if let Some(last) = last
                && rng.below(3) == 0
            {
                bed.channel.wait_ended(last, WaitOptions::default()).unwrap();
            }
            assert!(bed.completions().is_empty(), "{setup:?}: round {round}");
        }
        assert!(bed.finish().is_empty(), "{setup:?}");
        assert_eq!(logged(&bed, FaultKind::BadMagic), 0, "{setup:?}");
        bed.assert_works(10);
    }
}

#[test]
fn credit_mode_unsupported_is_refused() {
    for setup in SETUPS {
        let network = network(with_channels(2, 2));
        let held = SgdmaCommonBlock::CREDIT_MODE.address(SGDMA_COMMON_BASE).get();
        let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(backend.clone()).unwrap();
        // No channel has credit mode; all channels but this one have it.
        let own = PerChannel::one(setup.direction, 0).into_bits();
        for value in [0, 0x000F_000F & !own] {
            backend.replace(vec![ReplacedRegister { bar: DMA_BAR, at: held, value }]);
            match (setup.mode, setup.take(&card, 0, setup.options())) {
                (
                    RunMode::Credit,
                    Err(error @ Error { kind: ResourceError::CreditModeUnsupported { .. }, .. }),
                ) => {
                    assert_eq!(error.advice(), Some(Advice::UseBatchMode), "{error}");
                }
                (RunMode::Batch, Ok(mut channel)) => {
                    let buffer = card.buffer(5000).unwrap();
                    channel.transfer(buffer, CardAddr::ZERO, WaitOptions::default()).unwrap();
                }
                (_, other) => panic!("{setup:?}: {other:?}"),
            }
            assert_pool(&card, 0, 0);
        }
        // A refusal leaves the channel free, in either mode.
        backend.replace(Vec::new());
        for mode in [RunMode::Credit, RunMode::Batch, RunMode::Credit] {
            let setup = TestSetup { mode, ..setup };
            let channel = setup.take(&card, 0, setup.options()).unwrap();
            let mut bed = TestBed { setup, channel, card: card.clone(), network: network.clone() };
            bed.assert_works(11);
        }
    }
}
