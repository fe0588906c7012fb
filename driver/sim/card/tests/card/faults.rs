//! Planned faults: each one is injected at its opportunity, with its effect, and at no other time. The tests are in one file, in the order
//! of the list of faults that a plan supports.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_INTERRUPT, START_POLL, WRITEBACK, chain};
use fpga_card::fault_plan::{FaultsDescription, Opportunity};
use fpga_card::{
    CardDescription, DescriptionError, ErrorMessage, FaultKind, FaultPlan, InjectedFault, PlannedFault,
};
use fpga_protocol::time::Nanos;
use std::path::Path;

fn parse(faults: &str) -> Result<CardDescription, DescriptionError> {
    let text = format!("schema_version: 3\nmemory: {{ size: 0x4000000 }}\nfaults:\n{faults}");
    CardDescription::parse(Path::new("card.yaml"), &text)
}

/// Creates a card whose file has these faults.
fn with(faults: &str) -> CardTestbed {
    let mut testbed = CardTestbed::with(parse(&format!("  list:\n{faults}\n")).expect("a plan"));
    testbed.write(DMA, 0x90, 0x00FF_FE7E);
    testbed.write(DMA, 0x1090, 0x00FF_FE7E);
    testbed.write(DMA, 0x2014, 0xFF);
    testbed.write(DMA, 0x20A0, 0x0302_0100);
    testbed.write(DMA, 0x20A4, 0x0706_0504);
    testbed.write(DMA, 0x88, WRITEBACK as u32);
    testbed
}

fn plan(faults: impl IntoIterator<Item = PlannedFault>) -> FaultPlan {
    faults.into_iter().fold(FaultPlan::new(1), FaultPlan::with)
}

/// One run of `count` descriptors of 64 bytes on H2C 0; each one requests a write-back.
fn run(testbed: &mut CardTestbed, count: u32, start: u32) {
    testbed.write(DMA, 0x0C, 1);
    for index in 0..count {
        let last = index + 1 == count;
        let at = DESCRIPTORS + 32 * u64::from(index);
        let control = MAGIC | COMPLETED | if last { STOP } else { 0 };
        testbed.host.descriptor(at, control, 64, DATA, 0x100 * u64::from(index), at + 32);
    }
    testbed.start(H2C0, DESCRIPTORS, 0, start);
    testbed.run();
}

/// Programs also write plans, for cards that other processes serve.
#[test]
fn fault_plan_round_trips_yaml() {
    let text = "seed: 7
list:
  - { fault: late_interrupt, delay_ns: 5000, vector: 3, skip: 2, times: null, one_in: 9 }
  - { fault: spurious_interrupt, vector: 1, on: descriptor }
  - { fault: wrong_count, by: -1, channel: c2h3, times: 4 }
  - { fault: impossible_count, count: 0xFFFFFF, channel: h2c0 }
  - { fault: torn_writeback, bytes: 2 }
  - { fault: wrong_metadata, words: [0x12340001, 100] }
  - { fault: pci_error, error: completion_timeout, on: access }
";
    let read: FaultsDescription = serde_yaml::from_str(text).unwrap();
    let written = serde_yaml::to_string(&read).unwrap();
    assert_eq!(serde_yaml::from_str::<FaultsDescription>(&written).unwrap(), read, "{written}");
    assert_eq!(read.plan().unwrap().list.len(), 7);
    assert!(!written.contains("delay_ns: null") && written.contains("times: null"), "{written}");
}

#[test]
fn fault_interrupts_lost_late_or_spurious() {
    let mut testbed = with("    - { fault: lost_interrupt, vector: 0, skip: 1 }");
    for round in 1..=3 {
        run(&mut testbed, 1, START_INTERRUPT);
        let expected = if round == 1 { 1 } else { round - 1 };
        assert_eq!(testbed.host.interrupts.len(), expected, "the second one is lost, round {round}");
        assert_eq!(testbed.read(DMA, 0x44), 0b110, "the registers have it");
    }
    let mut testbed = with("    - { fault: late_interrupt, delay_ns: 5000 }");
    run(&mut testbed, 1, START_INTERRUPT);
    assert!(testbed.host.interrupts.is_empty());
    assert!(testbed.card.next_deadline().is_some(), "something is due");
    testbed.card.step(Nanos::new(testbed.now + 4_900), &mut testbed.host);
    assert!(testbed.host.interrupts.is_empty());
    testbed.card.step(Nanos::new(testbed.now + 5_000), &mut testbed.host);
    assert_eq!(testbed.host.interrupts, [0]);
    let mut testbed = with("    - { fault: spurious_interrupt, vector: 9, skip: 3, times: 2 }");
    for _ in 0..10 {
        testbed.read(DMA, 0x2000);
    }
    testbed.run();
    assert_eq!(testbed.host.interrupts, [9, 9]);
    // On the line, the rise is lost, not the level.
    let mut testbed = with("    - { fault: lost_interrupt }");
    testbed.card.disable_msix();
    run(&mut testbed, 1, START_INTERRUPT);
    assert!(!testbed.host.line && testbed.card.line_asserted());
}

#[test]
fn fault_stalled_channel_is_busy_until_reset() {
    let mut testbed = with("    - { fault: stall, channel: h2c0, skip: 2 }");
    run(&mut testbed, 5, START_INTERRUPT);
    assert_eq!((testbed.read(DMA, 0x48), testbed.read(DMA, 0x40) & 1), (2, 1));
    testbed.write(DMA, 0x0C, 1);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40) & 1, 1, "clearing Run does not help");
    testbed.write(DMA, 0x10C, 1);
    chain(&mut testbed, &[64], STOP);
    testbed.start(0x100, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x148), 1, "the other channels work");
    testbed.card.reset();
    testbed.card.set_command(true, true);
    run(&mut testbed, 5, START_INTERRUPT);
    assert_eq!(testbed.read(DMA, 0x48), 5, "a plan strikes as often as it says, resets or not");
}

#[test]
fn fault_counts_are_wrong_as_planned() {
    // Two runs; the values of the register and of the write-back after each.
    let cases = [
        ("wrong_count, by: 3, times: null", [(7, 7), (5, 5)]),
        ("wrong_count, by: -1, channel: h2c0, times: null", [(3, 3), (1, 1)]),
        ("stale_count, skip: 5, times: null", [(4, 4), (4, 4)]),
        ("impossible_count, count: 0x1234567, channel: h2c0, times: null", [(0x123_4567, 0x23_4567); 2]),
        ("impossible_count, count: 9, channel: c2h0, times: null", [(4, 4), (2, 2)]),
    ];
    for (fault, expected) in cases {
        let mut testbed = with(&format!("    - {{ fault: {fault} }}"));
        for (count, (register, writeback)) in [4, 2].into_iter().zip(expected) {
            run(&mut testbed, count, START_POLL);
            assert_eq!(testbed.host.get_word(WRITEBACK), writeback, "{fault}");
            assert_eq!(testbed.read(DMA, 0x48), register, "{fault}");
        }
    }
}

#[test]
fn fault_writebacks_missing_or_torn() {
    let mut testbed = with("    - { fault: missing_writeback, skip: 3 }");
    run(&mut testbed, 4, START_POLL);
    assert_eq!(testbed.host.get_word(WRITEBACK), 3, "the last one is missing");
    assert_eq!(testbed.read(DMA, 0x48), 4);
    for (bytes, expected) in [(1, 0xFFFF_FF01_u32), (2, 0xFFFF_0001), (3, 0xFF00_0001)] {
        let mut testbed = with(&format!("    - {{ fault: torn_writeback, channel: h2c0, bytes: {bytes} }}"));
        testbed.host.put(WRITEBACK, &[0xFF; 4]);
        run(&mut testbed, 1, START_POLL);
        assert_eq!(testbed.host.get_word(WRITEBACK), expected);
    }
}

#[test]
fn fault_host_refuses_fetch_and_data() {
    let mut testbed =
        with("    - { fault: refused_fetch, skip: 1 }\n    - { fault: refused_data, channel: c2h0 }");
    testbed.host.put(DATA, &[7; 64]);
    run(&mut testbed, 3, START_INTERRUPT);
    assert_eq!((testbed.read(DMA, 0x40), testbed.read(DMA, 0x48)), (1 << 19 | 1 << 2, 1));
    let kinds: Vec<_> = testbed.card.faults().iter().map(|fault| fault.kind).collect();
    assert_eq!(kinds, [FaultKind::Injected, FaultKind::DescriptorFetchRefused]);
    testbed.poke(0, &[9; 64]);
    testbed.host.descriptor(DESCRIPTORS, MAGIC | STOP, 64, 0, DATA, 0);
    testbed.start(C2H0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!((testbed.read(DMA, 0x1040), testbed.read(DMA, 0x1048)), (0b10, 1), "nothing shows");
    assert_eq!(testbed.host.get(DATA, 64), [7; 64], "but nothing arrived");
    assert_eq!(
        testbed.card.faults().iter().next_back().map(|fault| fault.kind),
        Some(FaultKind::HostWriteLost)
    );
    let mut testbed = with("    - { fault: refused_data, channel: h2c0 }");
    run(&mut testbed, 2, START_INTERRUPT);
    assert_eq!((testbed.read(DMA, 0x40), testbed.read(DMA, 0x48)), (1 << 9, 0));
    assert_eq!(testbed.memory(0, 64), [0; 64]);
}

/// Bursts, as a card with its own thread does them, inject the fault at the same descriptor as single steps.
#[test]
fn fault_at_descriptor_strikes_in_bursts_too() {
    for fault in ["reset", "surprise_removal", "all_ones"] {
        for skip in 0..7_u32 {
            let mut testbed = with(&format!("    - {{ fault: {fault}, on: descriptor, skip: {skip} }}"));
            testbed.host.put(DATA, &[5; 64]);
            for (at, value) in [(0x0C, 1), (0x10C, 1), (0x190, 6)] {
                testbed.write(DMA, at, value);
            }
            for index in 0..8 {
                let at = DESCRIPTORS + 32 * index;
                let control = MAGIC | if index == 7 { STOP } else { 0 };
                testbed.host.descriptor(at, control, 64, DATA, 0x100 * (index + 1), at + 32);
            }
            testbed.start(H2C0, DESCRIPTORS, 0, START_POLL);
            // There would be further work after the fault.
            testbed.start(0x100, DESCRIPTORS, 0, START_INTERRUPT);
            while testbed.card.work(Nanos::ZERO, &mut testbed.host, 64) > 0 {}
            let answers = fault == "all_ones";
            let expected = if answers { 16 } else { u64::from(skip) + 1 };
            assert_eq!(testbed.card.counters().descriptors, expected, "{fault} after {skip}");
            assert_eq!(testbed.host.interrupts.is_empty(), !answers, "a removed card sends nothing");
        }
    }
}

#[test]
fn fault_removed_card_raises_nothing_and_line_falls() {
    for msix in [true, false] {
        let mut testbed = with("    - { fault: surprise_removal, on: descriptor, skip: 1 }");
        if !msix {
            testbed.card.disable_msix();
            // INTA, whose vector is 0: the vector of the first channel.
            testbed.write(DMA, 0x20A0, 0);
        }
        testbed.host.descriptor(DESCRIPTORS, MAGIC | COMPLETED, 64, DATA, 0, DESCRIPTORS + 32);
        testbed.host.descriptor(DESCRIPTORS + 32, MAGIC | COMPLETED | STOP, 64, DATA, 0, 0);
        testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        while testbed.host.interrupts.is_empty() && !testbed.host.line {
            assert!(testbed.step(), "the first descriptor is announced");
        }
        testbed.run();
        assert!(testbed.card.is_removed());
        // Any action of software: a change of the method, a register write.
        testbed.card.config_write(0x04, &[6, 0]);
        testbed.write(DMA, 0x2014, 0xFF);
        testbed.run();
        let (messages, rises) = (testbed.host.interrupts.len(), testbed.host.rises);
        assert_eq!((messages, rises, testbed.host.line), if msix { (1, 0, false) } else { (0, 1, false) });
        testbed.card.replug();
        testbed.card.set_command(true, true);
        testbed.card.enable_msix(32);
        testbed.write(DMA, 0x90, 6);
        testbed.write(DMA, 0x2014, 0xFF);
        run(&mut testbed, 1, START_INTERRUPT);
        assert_eq!(testbed.host.interrupts.len(), messages + 1, "back, it raises them again");
    }
}

#[test]
fn fault_link_error_is_reported() {
    for enabled in [false, true] {
        let mut testbed = with(
            "    - { fault: pci_error, error: malformed_tlp, skip: 1 }\n    - { fault: pci_error, error: poisoned_tlp, on: descriptor }",
        );
        testbed.card.set_error_reporting(enabled);
        run(&mut testbed, 1, START_INTERRUPT);
        let expected: &[_] = if enabled { &[ErrorMessage::NonFatal] } else { &[] };
        // The setup took more than one access, before reporting was enabled.
        assert_eq!(testbed.host.errors, expected);
        let mut status = [0; 4];
        testbed.card.config_read(0x104, &mut status);
        assert_eq!(u32::from_le_bytes(status), 1 << 18 | 1 << 12);
    }
}

#[test]
fn fault_chances_follow_seed() {
    let struck = |seed| {
        let mut testbed = CardTestbed::new();
        let fault = InjectedFault::MissingWriteback { channel: None };
        let mut plan = FaultPlan::new(seed);
        plan.list.push(PlannedFault::new(fault).always().with_probability(4));
        testbed.card.set_fault_plan(&plan);
        testbed.write(DMA, 0x88, WRITEBACK as u32);
        let mut missing = Vec::new();
        for round in 0..200 {
            testbed.host.put(WRITEBACK, &[0; 4]);
            run(&mut testbed, 1, START_POLL);
            if testbed.host.get_word(WRITEBACK) == 0 {
                missing.push(round);
            }
        }
        missing
    };
    let first = struck(1);
    assert_eq!(first, struck(1), "the same again");
    assert_ne!(first, struck(2));
    assert!((30..70).contains(&first.len()), "about one in four: {}", first.len());
}

#[test]
fn fault_never_striking_plan_changes_nothing() {
    let observe = |faults: Option<FaultPlan>| {
        let mut testbed = CardTestbed::new();
        if let Some(plan) = faults {
            testbed.card.set_fault_plan(&plan);
        }
        testbed.host.put(DATA, &pattern(64, 4));
        testbed.write(DMA, 0x88, WRITEBACK as u32);
        testbed.write(DMA, 0x90, 6);
        testbed.write(DMA, 0x2014, 1);
        testbed.card.clear_counters();
        run(&mut testbed, 40, START_POLL | 6);
        (
            *testbed.card.counters(),
            testbed.host.writes.clone(),
            testbed.host.interrupts.clone(),
            testbed.memory(0, 0x2800),
        )
    };
    let never = [
        InjectedFault::Stall { channel: None },
        InjectedFault::LostInterrupt { vector: None },
        InjectedFault::WrongCount { channel: None, by: 1 },
        InjectedFault::AllOnes { on: Opportunity::Access },
        InjectedFault::Reset { on: Opportunity::Descriptor },
    ];
    let never = plan(never.map(|fault| PlannedFault::new(fault).after(1 << 40)));
    assert_eq!(observe(None), observe(Some(never)));
}

#[test]
fn fault_plan_error_is_located() {
    let cases = [
        ("  seed: 1\n  list:\n    - fault: nonsense\n", 6, "fault", "unknown value"),
        ("  list:\n    - { fault: stall, channel: h2c4 }\n", 5, "fault", "unknown channel `h2c4`"),
        ("  list:\n    - fault: stall\n      chanel: h2c0\n", 6, "chanel", "unknown key"),
        (
            "  list:\n    - fault: stall\n    - fault: late_interrupt\n      vector: 1\n",
            6,
            "faults.list[1].fault",
            "needs the key `delay_ns`",
        ),
        (
            "  list:\n  - fault: stall\n    skip: 4\n  - fault: all_ones\n    channel: h2c0\n",
            8,
            "faults.list[1].channel",
            "does not use the key `channel`",
        ),
        (
            "  list:\n    - fault: torn_writeback\n      bytes: 4\n",
            6,
            "faults.list[0].bytes",
            "allowed: 1 to 3",
        ),
        (
            "  list:\n    - fault: status_error\n      error: broken\n",
            6,
            "faults.list[0].error",
            "align_mismatch",
        ),
        (
            "  list:\n    - fault: status_error\n      channel: c2h1\n      error: host_read_parity\n",
            6,
            "faults.list[0].channel",
            "other direction",
        ),
        (
            "  list:\n    - { fault: stall, skip: 1 }\n    - { fault: stall, one_in: 0 }\n",
            6,
            "faults.list[1].one_in",
            "1 to",
        ),
    ];
    for (text, expected, wanted, said) in cases {
        let error = parse(text).expect_err("refused");
        let (line, column, key) = match &error {
            DescriptionError::Syntax { line, column, key, .. } => (*line, *column, key.clone()),
            DescriptionError::Invalid { line, column, key, .. } => (*line, *column, key.clone()),
            other => panic!("{other:?}"),
        };
        assert_eq!((line, key.as_str()), (expected, wanted), "{error}");
        assert!(column > 1, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let older = CardDescription::parse(
        Path::new("card.yaml"),
        "schema_version: 2\nfaults:\n  list: [{ fault: reset }]\n",
    );
    let Err(DescriptionError::Invalid { line: 2, key, .. }) = older else { panic!("{older:?}") };
    assert_eq!(key, "faults");
}

/// vfio-pci resets a card when its owner closes it; the fault log is read afterwards.
#[test]
fn fault_log_survives_reset_and_counts_restart() {
    let mut testbed = CardTestbed::new();
    testbed.start(0, 0xBAD0_0000, 0, 0x00FF_FE7F);
    testbed.run();
    let before: Vec<_> = testbed.card.faults().iter().copied().collect();
    assert_eq!(
        before.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        [FaultKind::DescriptorFetchRefused]
    );
    testbed.card.reset();
    assert_eq!(testbed.card.faults().iter().copied().collect::<Vec<_>>(), before);
    assert_eq!((testbed.card.faults().total(), testbed.card.faults().ever()), (0, 1));
}

/// A block whose end is not mapped: the descriptors that arrived run, the refused read is one attempt, and nothing is read twice.
#[test]
fn fault_refused_fetch_is_one_attempt() {
    for mapped in [0, 1, 2, 5, 8] {
        let mut testbed = CardTestbed::new();
        let at = 0x80_0000;
        testbed.host.map(at, 32 * mapped);
        for index in 0..mapped as u64 {
            let (next, control) = (at + 32 * (index + 1), MAGIC | 0x700);
            testbed.host.descriptor(at + 32 * index, control, 64, 0x10_0000, 0x1000, next);
        }
        testbed.host.reads.clear();
        testbed.start(0, at, 7, 0x00FF_FE7F);
        testbed.run();
        let fetches: Vec<_> = testbed.host.reads.iter().filter(|read| read.0 >= at).copied().collect();
        // Eight of them lead to a ninth, which is in another block.
        let expected = if mapped == 8 { vec![(at, 256), (at + 256, 256)] } else { vec![(at, 256)] };
        assert_eq!(fetches, expected, "{mapped} descriptors are there");
        assert_eq!(testbed.read(DMA, 0x48), mapped as u32, "those that arrived run");
        assert_eq!(testbed.read(DMA, 0x40) & !0b110, 1 << 19, "then the fetch is reported");
        assert_eq!(testbed.card.faults().len(), 1);
        assert_eq!(testbed.card.faults().iter().next().unwrap().address, at + 32 * mapped as u64);
    }
}
