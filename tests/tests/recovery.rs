//! Recovery steps: what each finds and does, how far the recovery escalates, and what it leaves unchanged.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

use std::sync::Arc;

use fpga_card::{AccessLog, AccessTarget, CardDescription};
use fpga_driver::recovery::{self, RecoveryStep, RecoveryStepOutcome, RecoveryStepReport};
use fpga_driver::{
    Advice, BarOffset, Card, CardAddr, ChannelName, ChannelOptions, Direction, Error, OpenError, OpenOptions,
    ResourceError, RunMode, WaitOptions,
    errors::FaultCause,
    recovery::{RecoveryError, RecoveryLevel, RecoveryOptions, RecoveryReport},
};
use fpga_pci::Backend;
use fpga_pci::{ResetLevel, config};
use fpga_rdma::Endpoint;
use fpga_registers::cdma::CdmaBlock;
use fpga_registers::pci::header;
use fpga_registers::xdma::{ChannelBlock, channel_base};
use fpga_sim::{CardFailure, SimNetwork};
use fpga_tests::bytes;
use fpga_tests::cards::{DMA_BAR, described, fast_network, network, open, peek, register, with_channels};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};
use fpga_tests::testbed::options;

const H2C0: ChannelName = ChannelName { direction: Direction::H2c, number: 0 };
const C2H1: ChannelName = ChannelName { direction: Direction::C2h, number: 1 };

fn step(report: &RecoveryReport, wanted: RecoveryStep) -> &RecoveryStepReport {
    report
        .steps
        .iter()
        .find(|report| report.step == wanted)
        .unwrap_or_else(|| panic!("no {wanted} in {report:#?}"))
}

/// Steps that had an effect or failed.
fn active(report: &RecoveryReport) -> Vec<String> {
    let idle = |report: &&RecoveryStepReport| report.outcome != RecoveryStepOutcome::NotNeeded;
    report
        .steps
        .iter()
        .filter(idle)
        .map(|report| format!("{} {}", report.step, report.outcome.word()))
        .collect()
}

/// Runs the recovery on a card that no process has open.
fn unopened(network: &SimNetwork, options: RecoveryOptions) -> Result<RecoveryReport, Error<RecoveryError>> {
    let backend: Arc<dyn Backend> = network.backend(0);
    recovery::recover(&backend, &OpenOptions::default(), &options)
}

#[track_caller]
fn assert_works(network: &SimNetwork, card: &Card) {
    let data = bytes(9, 10_000);
    let buffer = card.buffer_from(&data).unwrap();
    let mut channel = card.h2c(0).unwrap();
    channel.write(buffer, CardAddr::new(0x9000)).unwrap();
    assert!(peek(network, 0, CardAddr::new(0x9000), 10_000) == data);
}

/// Leaves the card as a process does that is killed during a run of this channel.
fn process_killed_during_run(network: &SimNetwork, options: ChannelOptions) {
    let card = open(network);
    let mut channel = card.c2h_with(1, options).unwrap();
    for n in 0..4 {
        let buffer = card.buffer(100_000).unwrap();
        channel.submit(buffer, CardAddr::new(n << 20)).unwrap();
    }
    channel.poll().unwrap();
    for _ in 0..3 {
        network.step();
    }
    core::mem::forget((channel, card));
}

#[test]
fn recovery_run_of_killed_process_is_stopped_and_reported() {
    let network = network(CardDescription::default());
    process_killed_during_run(&network, ChannelOptions::default());
    let report = unopened(&network, RecoveryOptions::default()).unwrap();
    assert!(report.well && !report.reopen);
    assert_eq!(active(&report), ["c2h1 recovered"]);
    let found = &step(&report, RecoveryStep::Channel(C2H1)).found;
    assert!(found.contains("running") && found.contains("of its run done"), "{found}");
    assert!(step(&report, RecoveryStep::Channel(C2H1)).duration_ns > 0);
    let base = channel_base(Direction::C2h, 1);
    for at in [ChannelBlock::CONTROL.address(base), ChannelBlock::STATUS.address(base)] {
        assert_eq!(register(&network, 0, DMA_BAR, at), 0);
    }
    let again = unopened(&network, RecoveryOptions::default()).unwrap();
    assert_eq!(active(&again), [""; 0]);
}

#[test]
fn recovery_check_only_changes_nothing() {
    let network = network(CardDescription::default());
    process_killed_during_run(&network, ChannelOptions::default());
    let base = channel_base(Direction::C2h, 1);
    let control = || register(&network, 0, DMA_BAR, ChannelBlock::CONTROL.address(base));
    let before = control();
    assert_ne!(before & 1, 0, "the channel runs");
    let command = || config::read_u16(&*network.backend(0), header::COMMAND).unwrap();
    network.backend(0).set_bus_master(false).unwrap();
    let commanded = command();
    let card = Card::from_backend_with(network.backend(0), OpenOptions::default().observe(true)).unwrap();
    assert_eq!(card.info().xdma.c2h_channels, 4);
    assert!(ChannelBlock::STATUS.read(card.dma_bar(), base).unwrap().busy());
    let observed = |error: Option<Error<ResourceError>>| {
        assert!(matches!(error, Some(Error { kind: ResourceError::Observed, .. })), "{error:?}")
    };
    observed(card.h2c(0).err());
    observed(card.c2h(1).err());
    observed(card.cdma().err());
    observed(card.enable_interrupts().err());
    let forced = card.recover_with(&RecoveryOptions::default().force(true));
    assert!(matches!(forced, Err(Error { kind: RecoveryError::Observed, .. })), "{forced:?}");
    drop(card);
    assert_eq!((control(), command()), (before, commanded));
    // Its owner can still open it.
    assert_works(&network, &open(&network));
}

#[test]
fn recovery_credits_and_fetch_halt_are_cleared() {
    let network = network(CardDescription::default());
    process_killed_during_run(&network, ChannelOptions::default().run_mode(RunMode::Credit));
    network.step_until_idle();
    let card = open(&network);
    card.dma_bar().write32(BarOffset::new(0x6014), 1).unwrap();
    core::mem::forget(card);
    assert_eq!(register(&network, 0, DMA_BAR, BarOffset::new(0x6020)), 1 << 17);
    let report = unopened(&network, RecoveryOptions::default()).unwrap();
    assert_eq!(active(&report), ["h2c0 recovered", "c2h1 recovered"]);
    assert!(step(&report, RecoveryStep::Channel(H2C0)).found.contains("fetch halted"));
    assert!(step(&report, RecoveryStep::Channel(C2H1)).found.contains("credit mode"));
    for at in [0x6010, 0x6020] {
        assert_eq!(register(&network, 0, DMA_BAR, BarOffset::new(at)), 0);
    }
}

#[test]
fn recovery_ni_and_cdma_of_killed_process_are_stopped() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let endpoint = Endpoint::open_with(&card, &options(1)).unwrap();
    let user = card.user_bar().cloned().unwrap_or_else(|| panic!("a user BAR"));
    // A copy of length 0: the engine halts with an error.
    let btt = BarOffset::new(0x1000).offset_by(CdmaBlock::BTT.offset());
    let control = BarOffset::new(0x1000).offset_by(CdmaBlock::CR.offset());
    user.write32(control, 0).and_then(|()| user.write32(btt, 0)).unwrap();
    network.step_until_idle();
    card.enable_interrupts().unwrap();
    core::mem::forget((endpoint, card));
    let report = unopened(&network, RecoveryOptions::default()).unwrap();
    let parts = active(&report);
    for part in ["ni recovered", "cdma recovered", "interrupts recovered"] {
        assert!(parts.iter().any(|found| found == part), "{parts:?}");
    }
    assert_eq!(step(&report, RecoveryStep::NetworkInterface).found, "enabled");
    assert!(step(&report, RecoveryStep::Cdma).found.contains("dma_internal_error"));
    assert_eq!(register(&network, 0, 0, BarOffset::new(0x2008)), 0);
    assert_eq!(register(&network, 0, DMA_BAR, BarOffset::new(0x2010)), 0);
}

#[test]
fn recovery_single_channel_leaves_others() {
    let network = network(CardDescription::default());
    process_killed_during_run(&network, ChannelOptions::default());
    let report = unopened(&network, RecoveryOptions::default().channel(H2C0)).unwrap();
    assert_eq!(report.steps.len(), 1);
    let running = |network: &SimNetwork| {
        register(network, 0, DMA_BAR, ChannelBlock::CONTROL.address(channel_base(Direction::C2h, 1))) & 1
    };
    assert_eq!(running(&network), 1);
    // A request for one channel does not reset the whole card.
    let report = unopened(&network, RecoveryOptions::default().channel(C2H1).at_least(RecoveryLevel::Bus));
    let report = report.unwrap();
    assert_eq!((active(&report), report.reopen), (vec!["c2h1 recovered".to_owned()], false));
    assert_eq!(running(&network), 0);

    let network = self::network(with_channels(2, 1));
    let error = unopened(&network, RecoveryOptions::default().channel(C2H1)).unwrap_err();
    assert!(matches!(error.kind, RecoveryError::NoSuchChannel { available: 1, .. }), "{error}");
    let error = open(&network).recover_with(&RecoveryOptions::default().channel(C2H1)).unwrap_err();
    assert!(matches!(error.kind, RecoveryError::NoSuchChannel { available: 1, .. }), "{error}");
}

#[test]
fn recovery_held_channel_needs_force() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let mut channel = card.h2c(0).unwrap();
    let cdma = card.cdma();
    let buffer = card.buffer(500_000).unwrap();
    let ticket = channel.submit(buffer, CardAddr::ZERO).unwrap();
    channel.poll().unwrap();
    let error = card.recover(RecoveryLevel::Bus).unwrap_err();
    let Error { kind: RecoveryError::InUse { what, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!(what, "h2c0, the CDMA engine are");
    assert_eq!(error.advice(), Some(Advice::DropHandlesOrForce), "{error}");
    // Another channel is not in use.
    let other = card.recover_with(&RecoveryOptions::default().channel(C2H1));
    assert!(other.is_ok_and(|report| report.well));
    let done = channel.wait(ticket, WaitOptions::default()).unwrap();
    assert_eq!(done.outcome, Ok(500_000), "the transfer is unaffected");

    let buffer = card.buffer(500_000).unwrap();
    let ticket = channel.submit(buffer, CardAddr::ZERO).unwrap();
    channel.poll().unwrap();
    let report = card.recover_with(&RecoveryOptions::default().force(true)).unwrap();
    assert!(report.well);
    assert_eq!(active(&report), ["h2c0 recovered"]);
    let done = channel.wait(ticket, WaitOptions::default()).unwrap();
    let fault = done.outcome.unwrap_err();
    assert!(
        matches!(fault.kind.cause, FaultCause::NoError(_)),
        "the channel's owner gets an error without status bits: {fault}"
    );
    drop((channel, cdma));
    assert_works(&network, &card);
    assert!(card.recover(RecoveryLevel::Bus).is_ok_and(|report| report.well && !report.reopen));
}

#[test]
fn recovery_keeps_enabled_interrupts() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    card.enable_interrupts().unwrap();
    let report = card.recover(RecoveryLevel::Channel).unwrap();
    assert_eq!(active(&report), [""; 0]);
    assert_eq!(register(&network, 0, DMA_BAR, BarOffset::new(0x2010)), 3);
}

#[test]
fn recovery_requested_reset_is_done() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let report = card.recover_with(&RecoveryOptions::default().at_least(RecoveryLevel::Function));
    let report = report.unwrap();
    // Public XDMA cards have no function level reset: that is not an error of the recovery.
    assert!(report.well && !report.reopen);
    assert_eq!(active(&report), ["function unsupported"]);
    assert_works(&network, &card);

    // A higher maximum level allows the next stronger reset instead, and both are reported.
    let further =
        RecoveryOptions::default().at_least(RecoveryLevel::Function).with_max_level(RecoveryLevel::Bus);
    let report = card.recover_with(&further).unwrap();
    assert!(report.well && report.reopen);
    assert_eq!(active(&report), ["function unsupported", "bus recovered"]);
    drop(card);

    let card = open(&network);
    let report = card.recover_with(&RecoveryOptions::default().at_least(RecoveryLevel::Bus));
    let report = report.unwrap();
    assert!(report.well && report.reopen);
    assert_eq!(active(&report), ["bus recovered"]);
    let error = card.recover(RecoveryLevel::Channel).unwrap_err();
    assert!(matches!(error.kind, RecoveryError::Stale), "{error}");
    drop(card);
    assert_works(&network, &open(&network));
}

#[test]
fn recovery_stuck_engine_escalates() {
    let network = fast_network(with_channels(2, 2));
    let at = ChannelBlock::STATUS.address(channel_base(Direction::C2h, 1)).get();
    let injector =
        FaultInjectingBackend::new(network.backend(0), vec![ReplacedRegister { bar: DMA_BAR, at, value: 1 }]);
    let backend: Arc<dyn Backend> = injector.clone();
    // The card cannot be opened in this state, which is the main use of the recovery.
    assert!(matches!(
        Card::from_backend(Arc::clone(&backend)),
        Err(Error { kind: OpenError::NotIdle { .. }, .. })
    ));
    let recover = |level| {
        let options = RecoveryOptions::default().with_max_level(level);
        recovery::recover(&backend, &OpenOptions::default(), &options).unwrap()
    };
    let report = recover(RecoveryLevel::Channel);
    assert!(!report.well && !report.reopen);
    assert_eq!(active(&report), ["c2h1 failed"]);
    let RecoveryStepOutcome::Failed { reason } = &step(&report, RecoveryStep::Channel(C2H1)).outcome else {
        panic!("{report:#?}")
    };
    assert!(reason.to_string().starts_with("not idle after 2000 ms"), "{reason}");
    let report = recover(RecoveryLevel::Bus);
    // The register reads wrong after the reset too: a completed reset alone does not make the card healthy.
    assert!(!report.well && report.reopen);
    assert_eq!(active(&report), ["c2h1 failed", "function unsupported", "bus failed"]);
    injector.replace(Vec::new());
    assert!(recover(RecoveryLevel::Bus).well);
    drop(backend);
    assert!(Card::from_backend(injector).is_ok());
}

#[test]
fn recovery_all_ones_needs_bus_reset() {
    for open_first in [true, false] {
        let network = network(CardDescription::default());
        let card = open_first.then(|| open(&network));
        network.fail(0, CardFailure::AllOnes);
        let recover = |level| {
            let options = RecoveryOptions::default().with_max_level(level);
            match &card {
                Some(card) => card.recover_with(&options),
                None => unopened(&network, options),
            }
        };
        let error = recover(RecoveryLevel::Channel).unwrap_err();
        assert!(matches!(error.kind, RecoveryError::AllOnes), "{error}");
        assert_eq!(error.advice(), Some(Advice::ResetBus), "{error}");
        let report = recover(RecoveryLevel::Function).unwrap();
        assert!(!report.well);
        assert_eq!(active(&report), ["registers failed", "function unsupported"]);
        let report = recover(RecoveryLevel::Bus).unwrap();
        assert!(report.well && report.reopen);
        assert_eq!(active(&report), ["registers failed", "function unsupported", "bus recovered"]);
        drop(card);
        assert_works(&network, &open(&network));
    }
}

#[test]
fn recovery_removed_card_is_reported() {
    let network = network(CardDescription::default());
    let card = open(&network);
    network.fail(0, CardFailure::Gone);
    for error in [
        card.recover(RecoveryLevel::Bus).unwrap_err(),
        unopened(&network, RecoveryOptions::default().at_least(RecoveryLevel::Bus)).unwrap_err(),
    ] {
        assert!(matches!(error.kind, RecoveryError::Gone), "{error}");
        assert!(format!("{error:#}").contains("rescan the bus"), "{error:#}");
    }
    network.fail(0, CardFailure::None);
    drop(card);
    assert_works(&network, &open(&network));
}

#[test]
fn recovery_external_reset_is_reported() {
    let network = network(CardDescription::default());
    let card = open(&network);
    network.backend(0).reset(ResetLevel::Hot).unwrap();
    assert!(matches!(card.recover(RecoveryLevel::Channel), Err(Error { kind: RecoveryError::Stale, .. })));
}

#[test]
fn recovery_foreign_user_bar_is_not_touched() {
    let network = network(described("pci: { subsystem_device: 7 }"));
    network.with_card(0, |card| card.set_access_log(AccessLog::bounded(10_000)));
    for level in [RecoveryLevel::Channel, RecoveryLevel::Bus] {
        let report = unopened(&network, RecoveryOptions::default().at_least(level));
        let report = report.unwrap();
        assert!(report.well && report.steps.iter().all(|report| report.step != RecoveryStep::Cdma));
        let report = open(&network).recover_with(&RecoveryOptions::default().at_least(level));
        assert!(report.is_ok_and(|report| report.well));
    }
    let log = network.with_card(0, |card| card.set_access_log(AccessLog::Off)).unwrap_or(AccessLog::Off);
    let AccessLog::Bounded { entries, .. } = log else { panic!("no access log") };
    assert!(!entries.is_empty());
    assert!(entries.iter().all(|access| access.target != AccessTarget::Bar(0)));
}

#[test]
fn recovery_non_xdma_is_not_reset() {
    let network = network(CardDescription::default());
    let replaced = vec![ReplacedRegister { bar: DMA_BAR, at: 0x2000, value: 0x1234 }];
    let backend: Arc<dyn Backend> = FaultInjectingBackend::new(network.backend(0), replaced);
    let options = RecoveryOptions::default().at_least(RecoveryLevel::Bus);
    let error = recovery::recover(&backend, &OpenOptions::default(), &options).unwrap_err();
    assert!(matches!(error.kind, RecoveryError::Open(OpenError::NotXdma { .. })), "{error}");
}
