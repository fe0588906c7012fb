//! The self-test: a healthy card passes all tests and is unchanged afterwards; every fault makes the right test report it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

use std::sync::Arc;
use std::time::Duration;

use fpga_card::{AccessLog, AccessTarget, CardDescription};
use fpga_diag::validate::{self, Report, SCRATCH_BYTES, Status, TestResult, ValidateOptions};
use fpga_driver::{BarOffset, Card, CardAddr, CardRange, Direction, OpenOptions};
use fpga_pci::QuarantineReason;
use fpga_registers::xdma::{ChannelBlock, channel_base};
use fpga_sim::{CardFailure, SimNetwork};
use fpga_tests::bytes;
use fpga_tests::cards::{
    DMA_BAR, assert_closed, assert_pool, described, fast_network, network, open, peek, poke, register,
    with_channels,
};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};

/// End of the built-in card's memory, and the memory that the self-test uses by default.
const MEMORY: u64 = 8 << 30;
const SCRATCH: u64 = MEMORY - (64 << 10) - SCRATCH_BYTES;

fn validate(card: &Card, options: ValidateOptions) -> Report {
    validate::run(card, options, &mut |_| ())
}

fn of(description: CardDescription, options: ValidateOptions) -> Report {
    validate(&open(&network(description)), options)
}

/// Names of the tests with this status.
fn names(report: &Report, status: Status) -> Vec<&str> {
    report.tests.iter().filter(|test| test.status == status).map(|test| test.name.as_str()).collect()
}

/// Asserts that the test of this name has this status, and that its message contains these parts.
#[track_caller]
fn assert_test(report: &Report, name: &str, status: Status, parts: &[&str]) {
    let test = report.test(name).unwrap_or_else(|| panic!("no test {name} in {report:#?}"));
    assert_eq!(test.status, status, "{test}");
    let text = test.to_string();
    for part in parts {
        assert!(text.contains(part), "\"{part}\" is not in: {test}");
    }
}

/// Asserts that exactly these tests warned and exactly these failed.
#[track_caller]
fn assert_only(report: &Report, warned: &[&str], failed: &[&str]) {
    assert_eq!(names(report, Status::Warn), warned, "{report:#?}");
    assert_eq!(names(report, Status::Fail), failed, "{report:#?}");
    assert_eq!(report.has_failed(), !failed.is_empty());
}

#[test]
fn validate_healthy_card_passes_and_is_unchanged() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let around = CardAddr::new(SCRATCH - 4096);
    let length = usize::try_from(MEMORY - around.get()).unwrap_or(0);
    let before = bytes(1, length);
    poke(&network, 0, around, &before);
    let mut reported = Vec::new();
    let report = validate::run(&card, ValidateOptions::default(), &mut |test: &TestResult| {
        reported.push(test.clone())
    });
    assert_eq!(reported, report.tests, "every result is reported, in order");
    assert_only(&report, &[], &[]);
    assert_eq!(names(&report, Status::Skip), [""; 0]);
    assert_eq!(report.scratch, Some(CardRange::new(CardAddr::new(SCRATCH), SCRATCH_BYTES)));
    assert!(report.supports_credit_mode() && report.supports_hybrid_waits() && report.supports_long_blocks());
    assert_eq!(report.writeback_needs_enable(), Some(false));
    for channel in ["h2c0", "h2c3", "c2h0", "c2h3"] {
        assert_test(&report, &format!("transfer.{channel}"), Status::Pass, &["1048576", "byte for byte"]);
        assert_test(&report, &format!("interrupts.{channel}"), Status::Pass, &["vector"]);
    }
    assert_test(&report, "ni.loopback", Status::Pass, &["itself"]);

    assert!(peek(&network, 0, around, length) == before, "card memory is unchanged");
    assert_pool(&card, 0, 0);
    // Masks, credit mode, fetch halt, relaxed ordering, network interface.
    for (bar, at, value) in [
        (DMA_BAR, 0x2004, 0),
        (DMA_BAR, 0x2010, 0),
        (DMA_BAR, 0x6010, 0),
        (DMA_BAR, 0x6020, 0),
        (DMA_BAR, 0x301C, 1),
        (0, 0x2008, 0),
    ] {
        assert_eq!(register(&network, 0, bar, BarOffset::new(at)), value, "register {at:#x}");
    }
    assert_eq!(network.with_card(0, |card| card.config().msix_enabled()), Some(false));
    // All resources are free.
    drop((card.h2c(3), card.c2h(3), card.cdma()));
    drop(card);
    assert_closed(&network, 0);
}

#[test]
fn validate_same_seed_repeats_run() {
    let run = |seed| of(with_channels(2, 1), ValidateOptions::default().seed(seed));
    let (first, again) = (run(7), run(7));
    // Only the endpoint's incarnation differs, and the report does not contain it.
    assert_eq!(first, again);
    assert_only(&run(8), &[], &[]);
}

#[test]
fn validate_keeps_enabled_interrupts() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    card.enable_interrupts().unwrap();
    assert_only(&validate(&card, ValidateOptions::default()), &[], &[]);
    assert_eq!(network.with_card(0, |card| card.config().msix_enabled()), Some(true));
    assert_eq!(register(&network, 0, DMA_BAR, BarOffset::new(0x2010)), 3);
}

#[test]
fn validate_every_card_build_passes() {
    for (h2c, c2h) in [(1, 1), (1, 4), (4, 1), (3, 2)] {
        let report = of(with_channels(h2c, c2h), ValidateOptions::default());
        assert_only(&report, &[], &[]);
        let transfers =
            names(&report, Status::Pass).iter().filter(|name| name.starts_with("transfer.")).count();
        assert_eq!(transfers, usize::from(h2c + c2h) + 1);
    }
    for sections in [
        "xdma: { data_width: 64, h2c_channels: 1, c2h_channels: 1 }",
        "xdma: { h2c_channels: 1, c2h_channels: 1 }\nni: { event_push: false }",
        "xdma: { h2c_channels: 1, c2h_channels: 1 }\nbars: { bypass: null }",
    ] {
        let report = of(described(sections), ValidateOptions::default());
        assert_only(&report, &[], &[]);
    }
}

#[test]
fn validate_without_ni_needs_range() {
    let plain = || described("pci: { subsystem_device: 7 }");
    let network = network(plain());
    let card = open(&network);
    network.with_card(0, |card| card.set_access_log(AccessLog::bounded(100_000)));
    let report = validate(&card, ValidateOptions::default());
    assert_only(&report, &[], &[]);
    assert_test(&report, "memory.save", Status::Skip, &["give a scratch range"]);
    assert_test(&report, "transfer.h2c0", Status::Skip, &["give a scratch range"]);
    assert_test(&report, "cdma.copy", Status::Skip, &["no identity block"]);
    assert_test(&report, "ni.loopback", Status::Skip, &["no network interface"]);
    assert_test(&report, "credits.enable", Status::Pass, &["8 channels"]);
    assert!(!report.supports_credit_mode());
    assert!(report.test("memory.restore").is_none() && report.scratch.is_none());
    let AccessLog::Bounded { entries, .. } =
        network.with_card(0, |card| card.set_access_log(AccessLog::Off)).unwrap_or(AccessLog::Off)
    else {
        panic!("no access log")
    };
    assert!(!entries.is_empty());
    assert!(
        entries.iter().all(|access| access.target != AccessTarget::Bar(0)),
        "the user BAR of another design is not accessed"
    );

    let range = CardRange::new(CardAddr::new(0x12_3000), 3 << 20);
    let before = bytes(2, 3 << 20);
    poke(&network, 0, range.start, &before);
    let report = validate(&card, ValidateOptions::default().scratch(range));
    assert_only(&report, &[], &[]);
    assert_test(&report, "transfer.together", Status::Pass, &["h2c0", "c2h3"]);
    assert!(report.supports_credit_mode() && report.supports_long_blocks());
    assert!(peek(&network, 0, range.start, 3 << 20) == before);
}

#[test]
fn validate_short_range_skips_large_tests() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let range = CardRange::new(CardAddr::new(0x7000), 4096);
    let before = bytes(3, 3 * 4096);
    poke(&network, 0, CardAddr::new(0x6000), &before);
    let report = validate(&card, ValidateOptions::default().scratch(range));
    assert_only(&report, &[], &[]);
    assert_test(&report, "transfer.h2c0", Status::Pass, &["1 to 512 bytes", "do not fit"]);
    assert_test(&report, "descriptors.long", Status::Skip, &["longer range"]);
    assert_test(&report, "ni.loopback", Status::Skip, &["256 KiB"]);
    assert!(
        peek(&network, 0, CardAddr::new(0x6000), before.len()) == before,
        "memory outside the range is unchanged"
    );
}

#[test]
fn validate_invalid_range_is_refused() {
    for (start, length, part) in [
        (0, 4095, "has 4095 bytes; give at least"),
        (MEMORY - 4096, 8192, "not inside the card's memory"),
        (u64::MAX - 10, 4096, "not inside the card's memory"),
    ] {
        let range = CardRange::new(CardAddr::new(start), length);
        let report = of(with_channels(1, 1), ValidateOptions::default().scratch(range));
        assert_only(&report, &[], &["memory.save"]);
        assert_test(&report, "memory.save", Status::Fail, &[part]);
        assert_test(&report, "abort", Status::Skip, &[part]);
    }
}

#[test]
fn validate_held_parts_are_skipped() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let held = (card.h2c(1), card.c2h(0), card.cdma());
    let report = validate(&card, ValidateOptions::default());
    assert_only(&report, &[], &[]);
    for name in ["transfer.h2c1", "transfer.c2h0", "interrupts.h2c1", "cdma.copy", "cdma.error"] {
        assert_test(&report, name, Status::Skip, &["in use"]);
    }
    assert_test(&report, "ni.loopback", Status::Skip, &["in use"]);
    assert_test(&report, "transfer.h2c0", Status::Pass, &[]);
    assert_test(&report, "credits.run", Status::Pass, &["6 channels", "h2c1, c2h0 in use"]);
    let (Ok(mut h2c), Ok(mut c2h), Ok(_)) = held else { panic!("the resources are not free") };
    let data = bytes(4, 5000);
    let sent = card.buffer_from(&data).map(|buffer| h2c.write(buffer, CardAddr::ZERO).is_ok());
    assert_eq!(sent, Ok(true));
    let buffer = card.buffer(5000).unwrap();
    let back = c2h.read(buffer, CardAddr::ZERO).unwrap();
    assert!(back.to_vec() == data);

    // Without one direction data cannot be compared.
    let network = self::network(with_channels(1, 1));
    let card = open(&network);
    let _held = card.c2h(0);
    let report = validate(&card, ValidateOptions::default());
    assert_only(&report, &[], &[]);
    assert_test(&report, "memory.save", Status::Skip, &["no c2h channel is free"]);
    assert_test(&report, "transfer.h2c0", Status::Skip, &["no c2h channel is free"]);
}

#[test]
fn validate_unreadable_memory_is_not_written() {
    let network = network(CardDescription::default());
    let card = open(&network);
    let bad = CardAddr::new(SCRATCH + 0x5000);
    network.with_card(0, |card| card.poison(bad, 64));
    let report = validate(&card, ValidateOptions::default());
    assert_only(&report, &[], &["memory.save"]);
    assert_test(
        &report,
        "memory.save",
        Status::Fail,
        &["c2h0", "slave error", "at descriptor 5", "0x1ffdf5000"],
    );
    assert_test(&report, "transfer.h2c0", Status::Skip, &["could not be saved"]);
    assert_pool(&card, 0, 0);
}

#[test]
fn validate_corrupted_memory_is_named() {
    let network = network(with_channels(1, 1));
    let card = open(&network);
    let report = validate::run(&card, ValidateOptions::default(), &mut |test| {
        let bad = if test.name == "memory.save" { 1 } else { 0 };
        // Poisoned for the duration of one test.
        network.with_card(0, |card| card.poison(CardAddr::new(SCRATCH + 100), bad));
    });
    assert_only(&report, &[], &["transfer.h2c0"]);
    assert_test(
        &report,
        "transfer.h2c0",
        Status::Fail,
        &["h2c0", "write: AXI slave error", "descriptor 0", "0x1ffdf0000"],
    );
    assert_test(&report, "memory.restore", Status::Pass, &["are restored"]);
    assert_pool(&card, 0, 0);
}

fn fault_injecting_card(
    description: CardDescription,
    replaced: Vec<ReplacedRegister>,
) -> (SimNetwork, Arc<FaultInjectingBackend>, Card) {
    let network = fast_network(description);
    let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
    let card = Card::from_backend_with(backend.clone(), OpenOptions::default()).unwrap();
    backend.replace(replaced);
    (network, backend, card)
}

#[test]
fn validate_stuck_memory_cell_is_found() {
    let (_network, backend, card) = fault_injecting_card(with_channels(1, 1), Vec::new());
    let report = validate::run(&card, ValidateOptions::default(), &mut |test| {
        if test.name == "memory.save" {
            backend.hold_byte(CardAddr::new(SCRATCH + 64 + 2), 0x80);
        }
    });
    assert!(report.has_failed());
    assert_test(
        &report,
        "transfer.h2c0",
        Status::Fail,
        // Two bytes after the first transfer, which has one byte: in its guard bytes.
        &["h2c0: 1 bytes of walking ones", "byte 66 of 129", "0x80 instead of 0xa5", "outside the transfer"],
    );
    assert_test(&report, "transfer.c2h0", Status::Fail, &["c2h0"]);
    assert_test(&report, "memory.restore", Status::Fail, &["restoring card memory", "0x80 instead of 0x00"]);
    assert_test(&report, "interrupts.h2c0", Status::Pass, &[]);
}

#[test]
fn validate_wrong_counts_are_found() {
    let network = network(with_channels(2, 2));
    let card = open(&network);
    network.with_card(0, |card| card.override_completed_count(Some(77)));
    let report = validate(&card, ValidateOptions::default().timeout(Duration::from_millis(5)));
    // The endpoint's own channel rejects this count too.
    assert_only(&report, &["credits.run"], &["descriptors.count", "writeback", "ni.loopback"]);
    assert_test(&report, "descriptors.count", Status::Fail, &["h2c0 reports 77 completed", "run of 1"]);
    assert_test(&report, "writeback", Status::Fail, &["0x0000004d", "run of 5"]);
    assert_test(
        &report,
        "credits.run",
        Status::Warn,
        &["77 descriptors done instead of 0", "RunMode::Batch"],
    );
    assert!(!report.supports_credit_mode());
}

#[test]
fn validate_long_descriptor_quirk_is_warning() {
    let report = of(described("xdma: { long_descriptor_quirk: true }"), ValidateOptions::default());
    assert_only(&report, &["descriptors.long"], &[]);
    assert_test(
        &report,
        "descriptors.long",
        Status::Warn,
        &["h2c0", "lacks the magic number", "long_blocks off", "descriptors at 4 KiB"],
    );
    assert!(!report.supports_long_blocks() && report.supports_credit_mode());
}

#[test]
fn validate_reduced_builds_are_distinguished() {
    for (sections, warned, part) in [
        (
            "xdma: { h2c_channels: 1, c2h_channels: 1 }\ncdma: { dre: false }",
            "cdma.unaligned",
            "without data realignment",
        ),
        (
            "xdma: { h2c_channels: 1, c2h_channels: 1 }\ncdma: { sg: false }",
            "cdma.scatter_gather",
            "without scatter-gather",
        ),
        ("interrupts: { msix_vectors: 3 }", "interrupts.enable", "3 vectors for 8 channels"),
        (
            "xdma: { ip_version: 9, h2c_channels: 1, c2h_channels: 1 }",
            "registers.identifiers",
            "does not know the version",
        ),
    ] {
        let report = of(described(sections), ValidateOptions::default());
        assert_only(&report, &[warned], &[]);
        assert_test(&report, warned, Status::Warn, &[part]);
    }
    let sections = "xdma: { completed_writeback: flag_and_enable, h2c_channels: 1, c2h_channels: 1 }";
    let report = of(described(sections), ValidateOptions::default());
    assert_only(&report, &[], &[]);
    assert_test(&report, "writeback", Status::Pass, &["needs control bit 2"]);
    assert_eq!(report.writeback_needs_enable(), Some(true));
}

#[test]
fn validate_failing_registers_are_named() {
    let replaced = |at, value| ReplacedRegister { bar: DMA_BAR, at, value };
    for (replacement, name, status, parts) in [
        (replaced(0x301C, 1), "registers.scratch", Status::Fail, &["0x301c"][..]),
        (replaced(0x4000, 0x1FC4_0106), "registers.identifiers", Status::Fail, &["h2c0_sgdma", "0x1fc40106"]),
        (replaced(0x6000, u32::MAX), "registers.identifiers", Status::Fail, &["sgdma at 0x6000", "2018.x"]),
        (replaced(0x3010, 7), "registers.identifiers", Status::Warn, &["system id", "0x0007"]),
        (replaced(0x0090, 0), "registers.masks", Status::Fail, &["h2c0 mask", "setting 0x2 makes it 0x0"]),
        (replaced(0x2010, 0), "registers.masks", Status::Fail, &["channel mask"]),
        (replaced(0x104C, 0), "registers.alignments", Status::Warn, &["c2h0", "1 B"]),
    ] {
        let (_network, _backend, card) = fault_injecting_card(with_channels(1, 1), vec![replacement]);
        let report = validate(&card, ValidateOptions::default());
        let (warned, failed) =
            if status == Status::Warn { (&[name][..], &[][..]) } else { (&[][..], &[name][..]) };
        assert_only(&report, warned, failed);
        assert_test(&report, name, status, parts);
    }
    let (_network, _backend, card) = fault_injecting_card(with_channels(1, 1), vec![replaced(0x6020, 0)]);
    let report = validate(&card, ValidateOptions::default());
    assert_only(&report, &["credits.enable"], &[]);
    assert_test(&report, "credits.enable", Status::Warn, &["h2c0, c2h0", "RunMode::Batch"]);
    assert_test(&report, "credits.run", Status::Skip, &["no credit mode"]);
    assert!(!report.supports_credit_mode());
}

#[test]
fn validate_stuck_engine_ends_test_and_keeps_memory() {
    let (network, backend, card) = fault_injecting_card(with_channels(2, 2), Vec::new());
    let at = ChannelBlock::STATUS.address(channel_base(Direction::H2c, 0)).get();
    let before = bytes(5, 4096);
    poke(&network, 0, CardAddr::new(SCRATCH), &before);
    let report = validate::run(&card, ValidateOptions::default(), &mut |test| {
        if test.name == "transfer.c2h1" {
            backend.replace(vec![ReplacedRegister { bar: DMA_BAR, at, value: 1 }]);
        }
    });
    assert_only(&report, &[], &["transfer.together"]);
    assert_test(
        &report,
        "transfer.together",
        Status::Fail,
        &["h2c0 does not stop", "2000 ms", "recovery::recover"],
    );
    assert_test(&report, "abort", Status::Skip, &["does not stop"]);
    // Another channel restores the memory.
    assert_test(&report, "memory.restore", Status::Pass, &["are restored"]);
    assert!(peek(&network, 0, CardAddr::new(SCRATCH), 4096) == before);
    let kept = card.memory().quarantined();
    assert!(!kept.is_empty());
    assert!(kept.iter().all(|record| record.reason == QuarantineReason::IdleNotConfirmed));
}

/// Removes the card after every `stride` tests.
fn removed_card_ends_test(stride: usize) {
    let total = of(with_channels(1, 1), ValidateOptions::default()).tests.len();
    for (failure, first) in [(CardFailure::Gone, 0), (CardFailure::AllOnes, stride / 2)] {
        for after in (first..total).step_by(stride) {
            let network = network(with_channels(1, 1));
            let card = open(&network);
            if after == 0 {
                network.fail(0, failure);
            }
            let mut reported = 0;
            let report = validate::run(&card, ValidateOptions::default(), &mut |_| {
                reported += 1;
                if reported == after {
                    network.fail(0, failure);
                }
            });
            let failed = names(&report, Status::Fail);
            assert_eq!(failed.len(), 1, "{failure:?} after {after}: {report:#?}");
            assert_test(&report, failed[0], Status::Fail, &["the card is gone", "recovery::recover"]);
            let at = report.tests.iter().position(|test| test.status == Status::Fail).unwrap_or(0);
            assert!(at >= after, "{failure:?} after {after}");
            for later in report.tests.iter().skip(at + 1) {
                assert_eq!(
                    (later.status, later.message.as_str()),
                    (Status::Skip, "the card is gone"),
                    "{later}"
                );
            }
            // When the card is back, everything passes: no resource is still taken.
            network.fail(0, CardFailure::None);
            drop(card);
            if after % 8 == 0 {
                assert_only(&validate(&open(&network), ValidateOptions::default()), &[], &[]);
            }
        }
    }
}

#[test]
fn validate_removed_card_ends_test() {
    removed_card_ends_test(6);
}

#[test]
#[ignore = "long: 5 s: after every test"]
fn validate_card_removed_after_every_test_ends_test() {
    removed_card_ends_test(1);
}
