//! Configuration space, BARs, description, logs: the view of firmware and kernels before a driver loads.

use crate::support::*;
use fpga_card::description::DEFAULT_CARD_FILE;
use fpga_card::{AccessLog, AccessTarget, Card, CardDescription, DescriptionError, NoHost, Problem};
use fpga_registers::catalog::{self, CardLayout};
use fpga_registers::{AccessKind, BarOffset, CardAddr};
use std::path::Path;

fn word(card: &mut Card, at: u16) -> u32 {
    let mut bytes = [0; 4];
    card.config_read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn parse(text: &str) -> Result<CardDescription, DescriptionError> {
    CardDescription::parse(Path::new("card.yaml"), text)
}

#[test]
fn description_default_file_matches_default() {
    assert_eq!(parse(DEFAULT_CARD_FILE).unwrap(), CardDescription::default());
    assert_eq!(parse("schema_version: 3\n").unwrap(), CardDescription::default());
    for version in [1, 2] {
        let mut older = CardDescription::default();
        older.schema_version = version;
        let text = format!("schema_version: {version}\n");
        assert_eq!(parse(&text).unwrap(), older, "files of version {version} are read too");
    }
}

#[test]
fn description_unknown_key_is_located() {
    let error = parse("schema_version: 1\nxdma:\n  h2c_chanels: 2\n").unwrap_err();
    let DescriptionError::Syntax { line, column, key, message, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*line, *column, key.as_str()), (3, 3, "h2c_chanels"), "{message}");
    assert!(error.to_string().starts_with("card file card.yaml:3:3: key `h2c_chanels`"), "{error}");
}

#[test]
fn description_invalid_value_is_located() {
    let cases: [(&str, usize, &str); 23] = [
        ("schema_version: 0\n", 1, "schema_version"),
        ("schema_version: 4\n", 1, "schema_version"),
        ("schema_version: 2\npci:\n  flr: true\n", 3, "pci.flr"),
        ("schema_version: 2\nbars:\n  rom: { size: 2048 }\n", 3, "bars.rom"),
        ("schema_version: 2\nlink:\n  rate: described\n", 3, "link.rate"),
        ("schema_version: 3\nbars:\n  rom: { size: 3000 }\n", 3, "bars.rom.size"),
        ("schema_version: 3\nbars:\n  order: [dma, dma, user]\n", 3, "bars.order"),
        ("schema_version: 3\npci:\n  max_payload: 100\n", 3, "pci.max_payload"),
        ("schema_version: 3\ninterrupts:\n  msi_vectors: 3\n", 3, "interrupts.msi_vectors"),
        ("schema_version: 3\ninterrupts:\n  pin: 5\n", 3, "interrupts.pin"),
        ("schema_version: 1\nquirks: { busy_after_error: true }\n", 2, "quirks"),
        (
            "schema_version: 2\nquirks:\n  silent_memory: { base: 0, size: 0 }\n",
            3,
            "quirks.silent_memory.size",
        ),
        ("schema_version: 1\nxdma:\n  c2h_channels: 1\n  h2c_channels: 5\n", 4, "xdma.h2c_channels"),
        ("schema_version: 1\nxdma:\n  data_width: 100\n", 3, "xdma.data_width"),
        ("schema_version: 1\nmemory:\n  size: 100000\n", 3, "memory.size"),
        ("schema_version: 1\nni:\n  packet_size: 500\n", 3, "ni.packet_size"),
        ("schema_version: 1\nni:\n  window_base: 0x10000\n", 3, "ni.window_base"),
        ("schema_version: 1\nbars:\n  dma: { size: 0x8001 }\n", 3, "bars.dma.size"),
        ("schema_version: 2\nstream: { fifo_bytes: 4096 }\n", 2, "stream"),
        ("schema_version: 3\nstream:\n  fifo_bytes: 5000\n", 3, "stream.fifo_bytes"),
        ("schema_version: 3\nstream:\n  source:\n    longest: 0\n", 4, "stream.source.longest"),
        ("schema_version: 3\nstream:\n  source:\n    shortest: 0\n", 4, "stream.source.shortest"),
        ("schema_version: 3\nstream:\n  source:\n    shortest: 5000\n", 4, "stream.source.shortest"),
    ];
    for (text, expected, wanted) in cases {
        let error = parse(text).unwrap_err();
        let DescriptionError::Invalid { line, key, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*line, key.as_str()), (expected, wanted), "{error}");
    }
    let seven = "schema_version: 1\nbars:\n  user: { size: 65536, width: 64 }\n  dma: { size: 65536, width: 64 }\n  \
                 bypass: { size: 65536, width: 65 }\n";
    assert!(matches!(
        parse(seven),
        Err(DescriptionError::Invalid { problem: Problem::NotOneOf { key: "bars.bypass.width", .. }, .. })
    ));
}

#[test]
fn function_without_memory_decoding_reads_all_ones() {
    let mut testbed = CardTestbed::new();
    testbed.card.set_command(false, true);
    assert_eq!(testbed.read(DMA, 0x2000), u32::MAX);
    testbed.write(DMA, 0x301C, 0);
    testbed.card.set_command(true, true);
    assert_eq!(testbed.read(DMA, 0x301C), 1, "the write was lost");
    assert_eq!(testbed.read(5, 0), u32::MAX, "no such BAR");
    assert_eq!(testbed.read(DMA, 0x1_0000), u32::MAX, "beyond the BAR");
}

#[test]
fn function_accesses_are_counted_and_logged() {
    let mut testbed = CardTestbed::new();
    testbed.card.set_access_log(AccessLog::bounded(3));
    testbed.read(DMA, 0x2000);
    testbed.read(DMA, 0x3000);
    testbed.write(DMA, 0x04, 6);
    word(&mut testbed.card, 0);
    let counters = *testbed.card.counters();
    assert_eq!((counters.mmio_reads, counters.mmio_writes, counters.config_reads), (2, 1, 1));
    let AccessLog::Bounded { entries, .. } = testbed.card.access_log() else { panic!("a bounded log") };
    let seen: Vec<_> =
        entries.iter().map(|access| (access.target, access.offset, access.write, access.value)).collect();
    assert_eq!(
        seen,
        [
            (AccessTarget::Bar(DMA), 0x3000, false, 0x1FC3_0006),
            (AccessTarget::Bar(DMA), 0x04, true, 6),
            (AccessTarget::Config, 0, false, 0x903F_10EE),
        ]
    );
    let (sender, receiver) = std::sync::mpsc::channel();
    testbed.card.set_access_log(AccessLog::Sink(Box::new(move |access| {
        let _ = sender.send(access.offset);
    })));
    testbed.read(DMA, 0x48);
    assert_eq!(receiver.try_recv(), Ok(0x48));
    let mut bytes = [0; 4];
    testbed.card.bar_peek(DMA, 0x2000, &mut bytes);
    assert_eq!(testbed.card.counters().mmio_reads, 3, "peeking counts nothing");
}

#[test]
fn function_reset_keeps_memory_only() {
    let mut testbed = CardTestbed::new();
    testbed.poke(0x1000, b"kept");
    testbed.write(DMA, 0x90, 6);
    testbed.write(USER, 0x2004, 77);
    testbed.card.reset();
    assert_eq!(testbed.memory(0x1000, 4), b"kept");
    assert_eq!(testbed.read(DMA, 0x90), u32::MAX, "memory decoding is off again");
    testbed.card.set_command(true, true);
    assert_eq!((testbed.read(DMA, 0x90), testbed.read(USER, 0x2004)), (0, 0));
}

#[test]
fn function_large_card_memory_is_lazy() {
    let mut description = CardDescription::default();
    description.memory.size = 256 << 30;
    description.ni.window_base = 1 << 40;
    let mut card = Card::new(description).unwrap();
    card.poke(CardAddr::new((255 << 30) + 5), b"end").unwrap();
    assert_eq!(card.resident_pages(), 1);
    assert!(card.poke(CardAddr::new(256 << 30), b"x").is_err());
    card.bar_write(0, 0, &[0; 4], &mut NoHost);
}

/// Every register of the shared catalogue is at its offset, has its reset value, keeps written values only where the catalogue allows it,
/// and has read side effects only where the catalogue lists them.
#[test]
fn function_registers_match_catalogue() {
    let mut testbed = CardTestbed::new();
    testbed.card.disable_msix();
    let layout = CardLayout::new(4, 4).with_cdma(BarOffset::new(0x1000));
    let mut checked = 0;
    for register in layout.registers() {
        let bar = if register.bar() == catalog::BarRole::User { USER } else { DMA };
        let at = register.address().get();
        if let Some(reset) = register.reset() {
            assert_eq!(testbed.read(bar, at), reset, "{} after reset", register.name());
            checked += 1;
        }
        if register.access() == AccessKind::ReadOnly {
            let before = testbed.read(bar, at);
            testbed.write(bar, at, !before);
            assert_eq!(testbed.read(bar, at), before, "{} is read-only", register.name());
        }
    }
    assert!(checked > 200, "{checked}");
}
