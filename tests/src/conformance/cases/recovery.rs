//! Resets under load, stale handles, the recovery steps, re-opening.

use fpga_driver::errors::CauseClass;
use fpga_driver::recovery::RecoveryStepOutcome;
use fpga_driver::{
    ChannelError, RunMode, SubmitError, TransferError,
    errors::FaultCause,
    recovery::{RecoveryLevel, RecoveryOptions},
};
use fpga_pci::Backend;
use fpga_pci::{MmioError, ResetError, ResetLevel};

use super::{Case, CaseContext, Verdict, case};
use crate::bed::TestSetup;
use crate::bytes;
use crate::conformance::case_context::{Opened, long_wait};
use crate::conformance::{Capability, Skip};

pub(super) const CASES: &[Case] = &[
    case("recovery.healthy_card_needs_nothing", &[], healthy_card),
    case("recovery.channel_level", &[], recovery_channel_level),
    case("recovery.reset_under_load", &[Capability::BusReset], reset_under_load),
    case("recovery.stale_handles", &[Capability::BusReset], stale_handles),
    case("recovery.bus_level", &[Capability::BusReset], recovery_bus_level),
];

const LENGTH: usize = 100_001;

fn healthy_card(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let mut names: Vec<_> = opened.card.info().xdma.channels().map(|name| name.to_string()).collect();
    names.extend(["ni", "cdma", "interrupts"].map(str::to_owned));
    for level in [RecoveryLevel::Channel, RecoveryLevel::Function, RecoveryLevel::Bus] {
        let report = opened.card.recover(level).expect("a recovery report");
        assert!(report.well && !report.reopen, "{report:?}");
        // The equipment of an external card, and the state in which it was left, are unknown.
        if context.simulated().is_some() {
            assert!(
                report.steps.iter().all(|entry| entry.outcome == RecoveryStepOutcome::NotNeeded),
                "{report:?}"
            );
            assert!(
                report.steps.iter().map(|entry| entry.step.to_string()).eq(names.iter().cloned()),
                "{report:?}"
            );
            assert_eq!(report.outcome(RecoveryLevel::Channel), Some(&RecoveryStepOutcome::NotNeeded));
        }
        assert_eq!(report.outcome(RecoveryLevel::Bus), None, "recovery stops at the level that was needed");
    }
    // The handles are still valid.
    opened.pair(opened.setups()[0])?.assert_works(1);
    opened.close();
    Ok(())
}

/// Forced recovery stops the run of a channel that still has an owner.
fn recovery_channel_level(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(1 << 20)?;
    for setup in opened.setups() {
        let mut pair = opened.pair_with(setup, setup.options().max_descriptor_length(4096))?;
        for seed in 0..4 {
            let (data, at) = (bytes(seed, LENGTH), pair.at(0));
            let buffer = pair.buffer(at, &data);
            let ticket = pair.channel.submit(buffer, at).expect("accepted");
            pair.channel.poll().expect("started");
            let report =
                opened.card.recover_with(&RecoveryOptions::default().force(true)).expect("a recovery report");
            assert!(report.well && !report.reopen, "{setup:?}: {report:?}");
            let done = pair.channel.wait(ticket, long_wait()).expect("the transfer ends");
            assert!(done.buffer.is_some(), "{setup:?}: the buffer is returned");
            if setup.mode == RunMode::Credit && done.outcome.is_ok() {
                // The transfer had ended before the recovery stopped the run without its owner. The next transfer detects the stop.
                let buffer = opened.card.buffer(64).expect("DMA memory");
                let at = pair.at(0);
                if let Err(found) = pair.channel.transfer(buffer, at, long_wait()) {
                    let silent = matches!(&found.error.kind, TransferError::Fault(fault) if matches!(fault.cause, FaultCause::NoError(_))
                    );
                    assert!(silent && found.buffer.is_some(), "{setup:?}: {found}");
                }
            }
            pair.assert_works(seed);
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Resets the card by the mildest means that it has; skips the case where it has none.
fn reset(opened: &Opened) -> Verdict {
    let mut why = String::new();
    for level in [ResetLevel::Hot, ResetLevel::Function] {
        match opened.injector.reset(level) {
            Ok(()) => return Ok(()),
            Err(error @ ResetError::Unsupported { .. }) => why = error.to_string(),
            Err(error) => panic!("{error}"),
        }
    }
    Err(Skip(why))
}

/// Whether the error reports a stale handle, or a card that does not answer through it.
fn stale(error: &ChannelError) -> bool {
    match error {
        ChannelError::Cause(cause) => matches!(cause.class(), CauseClass::Reset | CauseClass::Gone),
        error => matches!(error, ChannelError::Gone { .. }),
    }
}

fn under_load(opened: &Opened, setup: TestSetup, context: &CaseContext<'_>, step: usize) -> Verdict {
    opened.needs(8 << 20)?;
    let mut pair = opened.pair_with(setup, setup.options().max_descriptor_length(4096))?;
    let mut tickets = Vec::new();
    for n in 0..4 {
        let (data, at) = (bytes(n, LENGTH), pair.at(n << 20));
        let buffer = pair.buffer(at, &data);
        tickets.push(pair.channel.submit(buffer, at).expect("accepted"));
    }
    pair.channel.poll().expect("started");
    if let Some((network, _)) = context.simulated() {
        for _ in 0..step {
            network.step();
        }
    }
    reset(opened)?;
    let mut reports = 0;
    let (mut back, mut kept) = (0, 0);
    for ticket in tickets {
        let done = match pair.channel.wait(ticket, long_wait()) {
            Ok(done) => done,
            Err(error) => {
                assert!(stale(&error.kind), "{setup:?}: {error}");
                reports += 1;
                pair.channel.wait(ticket, long_wait()).expect("the transfer has ended")
            }
        };
        assert!(matches!(&done.outcome, Ok(_) | Err(_)));
        if let Err(fault) = &done.outcome {
            assert!(
                matches!(
                    fault.kind.cause,
                    FaultCause::Reset | FaultCause::NoError(_) | FaultCause::EarlierFault
                ),
                "{setup:?}: {fault}"
            );
        }
        if done.buffer.is_some() { back += 1 } else { kept += 1 }
    }
    assert!(reports <= 1, "{setup:?}: the loss is reported at most once");
    assert_eq!(back + kept, 4);
    let stats = opened.card.memory().stats();
    assert!(
        stats.quarantined >= kept,
        "{setup:?}: buffers that are not returned are counted in quarantine: {stats:?}"
    );
    let refused = pair.channel.submit(opened.card.buffer(64).expect("memory"), pair.at(0));
    match refused {
        Err(refused) => {
            assert!(matches!(&refused.error.kind, SubmitError::Channel(error) if stale(error)), "{refused}");
        }
        Ok(ticket) => {
            let error = pair
                .channel
                .wait(ticket, long_wait())
                .expect_err("a channel from before the reset transfers nothing");
            assert!(stale(&error.kind), "{setup:?}: {error}");
        }
    }
    Ok(())
}

fn reset_under_load(context: &mut CaseContext<'_>) -> Verdict {
    let probe = context.open();
    let setups = probe.setups();
    probe.close();
    // Only in this process can the progress of the work at that time be chosen.
    let steps: &[usize] = if context.simulated().is_some() { &[0, 5, 40, 400] } else { &[0] };
    for setup in setups {
        for &step in steps {
            let opened = context.open();
            under_load(&opened, setup, context, step)?;
            drop(opened);
            let again = context.open();
            again.pair(setup)?.assert_works(step as u64);
            again.assert_pool(0, 0);
            again.close();
        }
    }
    Ok(())
}

/// A handle from before a reset reads no value and starts nothing.
fn stale_handles(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let bar = opened.card.dma_bar().clone();
    reset(&opened)?;
    let at = fpga_registers::xdma::CONFIG_BASE;
    let read = bar.read32(at);
    assert!(matches!(read, Err(MmioError::Stale { .. } | MmioError::Gone { .. })), "{read:?}");
    let taken = opened.card.h2c(0).map(drop);
    assert!(taken.is_err(), "a card handle from before the reset provides no channel");
    drop(opened);
    drop(bar);
    let again = context.open();
    again.pair(again.setups()[0])?.assert_works(1);
    again.close();
    Ok(())
}

fn recovery_bus_level(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    let options = RecoveryOptions::default().at_least(RecoveryLevel::Bus);
    let report = opened.card.recover_with(&options).expect("a recovery report");
    if let Some(outcome) = report.outcome(RecoveryLevel::Bus)
        && outcome.word() == "unsupported"
    {
        return Err(Skip(outcome.to_string()));
    }
    assert!(report.well && report.reopen, "{report:?}");
    drop(opened);
    let again = context.open();
    again.pair(again.setups()[0])?.assert_works(2);
    again.close();
    Ok(())
}
