//! Permanent faults of real cards, as registers show them.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_INTERRUPT, START_POLL, chain};
use fpga_card::description::{QuirksDescription, RangeDescription};
use fpga_card::{FaultKind, Unit};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;

fn with(set: impl FnOnce(&mut QuirksDescription)) -> CardTestbed {
    let mut description = small();
    set(&mut description.quirks);
    CardTestbed::with(description)
}

fn last_fault(bench: &CardTestbed) -> (FaultKind, Unit, u64) {
    let fault = bench.card.faults().iter().next_back().expect("a fault");
    (fault.kind, fault.unit, fault.address)
}

#[test]
fn quirk_every_second_dma_bar_read_fails() {
    let mut bench = with(|quirks| quirks.every_second_read_fails = true);
    let identifiers: Vec<_> = (0..6).map(|_| bench.read(DMA, 0x2000)).collect();
    assert_eq!(identifiers, [0x1FC2_0006, u32::MAX].repeat(3));
    chain(&mut bench, &[64], STOP | COMPLETED);
    bench.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    bench.run();
    assert_eq!(bench.read(DMA, 0x40), 0b110);
    assert_eq!(bench.read(DMA, 0x44), u32::MAX, "this one fails");
    assert_eq!(bench.read(DMA, 0x44), 0b110, "and has cleared nothing");
    assert_ne!(bench.read(USER, 0), u32::MAX, "the user BAR is another slave");
    let mut word = [0; 4];
    for _ in 0..3 {
        bench.card.bar_peek(DMA, 0x2000, &mut word);
        assert_eq!(u32::from_le_bytes(word), 0x1FC2_0006, "peeking from outside changes nothing");
    }
    assert_eq!(bench.read(DMA, 0x2000), u32::MAX, "eight reads before this one");
}

#[test]
fn quirk_busy_lingers_until_status_read() {
    for status in [0x40, 0x44] {
        let mut bench = with(|quirks| quirks.busy_after_error = true);
        bench.host.descriptor(DESCRIPTORS, 0, 64, DATA, 0, 0);
        bench.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        bench.run();
        assert_eq!(bench.read(DMA, status), 1 << 4 | 1, "magic error, and busy");
        assert_eq!(bench.read(DMA, 0x40) & 1, 0, "the second read returns the true value");
        // Without an error, busy does not linger.
        bench.write(DMA, 0x0C, 1);
        chain(&mut bench, &[64], STOP | COMPLETED);
        bench.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        bench.run();
        assert_eq!(bench.read(DMA, status), 0b110);
    }
    let mut bench = CardTestbed::new();
    bench.host.descriptor(DESCRIPTORS, 0, 64, DATA, 0, 0);
    bench.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    bench.run();
    assert_eq!(bench.read(DMA, 0x40), 1 << 4, "a card without quirks");
}

#[test]
fn quirk_early_msix_writes_are_lost() {
    for (lost, entry) in [(true, (0, u32::MAX)), (false, (0xFEE0_0000, 0))] {
        let mut bench = with(|quirks| quirks.early_msix_writes_lost = lost);
        bench.card.disable_msix();
        bench.write(DMA, 0x8000, 0xFEE0_0000);
        bench.write(DMA, 0x800C, 0);
        assert_eq!((bench.read(DMA, 0x8000), bench.read(DMA, 0x800C)), entry);
        assert_eq!(bench.card.faults().len(), if lost { 2 } else { 0 });
        // Enabled with the function masked, then written, as PG195 requires: works on both.
        bench.card.config_write(0x62, &0xC000_u16.to_le_bytes());
        bench.write(DMA, 0x8000, 0xFEE1_0000);
        bench.write(DMA, 0x800C, 0);
        assert_eq!((bench.read(DMA, 0x8000), bench.read(DMA, 0x800C)), (0xFEE1_0000, 0));
        bench.card.config_write(0x62, &0x8000_u16.to_le_bytes());
        bench.write(DMA, 0x90, 0x6);
        bench.write(DMA, 0x2014, 1);
        chain(&mut bench, &[16], STOP | COMPLETED);
        bench.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        bench.run();
        assert_eq!(bench.host.interrupts, [0]);
    }
}

#[test]
fn quirk_silent_user_bar() {
    let mut bench = with(|quirks| quirks.silent_user_bar = true);
    for at in [0, 4, 0x1004, 0x2000, 0x2008] {
        assert_eq!(bench.read(USER, at), u32::MAX, "{at:#x}");
    }
    bench.write(USER, 0x1000, 1 << 2);
    bench.write(USER, 0x2008, 1);
    bench.run();
    assert!(bench.card.faults().is_empty(), "posted writes vanish without a trace");
    assert_eq!(bench.read(DMA, 0x2000), 0x1FC2_0006, "the DMA BAR works");
}

#[test]
fn quirk_silent_slave_hangs_channel_until_reset() {
    for (base, enable) in [(H2C0, 1 << 14), (C2H0, 1 << 9)] {
        let mut bench = CardTestbed::new();
        bench.host.put(DATA, &[0x77; 256]);
        bench.card.silence(CardAddr::new(0x8000), 0x100);
        // The first descriptor is good, the second accesses the range, the third is never executed.
        for (index, card) in [(0_u64, 0), (1, 0x8000 - 64), (2, 0x100)] {
            let (source, destination) = if base == H2C0 { (DATA, card) } else { (card, DATA) };
            let at = DESCRIPTORS + 32 * index;
            bench.host.descriptor(at, MAGIC, 128, source, destination, at + 32);
        }
        bench.start(base, DESCRIPTORS, 2, START_POLL | 0x1F << 14 | enable);
        bench.run();
        assert_eq!(bench.read(DMA, base + 0x48), 1);
        assert_eq!(bench.read(DMA, base + 0x40), 1, "busy, and no error bit");
        assert_eq!(last_fault(&bench).0, FaultKind::AxiSilent);
        assert_eq!(last_fault(&bench).2, 0x8000);
        if base == H2C0 {
            assert_eq!(bench.memory(0x8000 - 64, 64), [0x77; 64], "data before the range arrived");
        }
        bench.write(DMA, base + 0x0C, 1);
        bench.run();
        assert_eq!(bench.read(DMA, base + 0x40), 1, "clearing run does not help");
        bench.card.silence(CardAddr::ZERO, 0);
        bench.write(DMA, base + 0x08, 1);
        assert_eq!(
            bench.card.work(Nanos::ZERO, &mut bench.host, 100),
            0,
            "nor does an answer that comes too late"
        );
        assert_eq!(bench.read(DMA, base + 0x40), 1);
        // Other channels continue.
        chain(&mut bench, &[64], STOP);
        bench.start(H2C0 + 0x100, DESCRIPTORS, 0, START_POLL);
        bench.run();
        assert_eq!(bench.read(DMA, 0x148), 1);
        bench.card.reset();
        bench.card.set_command(true, true);
        assert_eq!(bench.read(DMA, base + 0x40), 0);
        bench.start(H2C0, DESCRIPTORS, 0, START_POLL);
        bench.run();
        assert_eq!(bench.read(DMA, 0x48), 1, "a reset ends it");
    }
}

#[test]
fn quirk_silent_slave_hangs_cdma_and_its_reset() {
    let mut description = small();
    description.quirks.silent_memory = Some(RangeDescription::new(0x10_0000, 0x1_0000));
    // A simple copy from the range, a chain whose descriptor is in it, a chain that copies to it.
    for case in 0..3 {
        let mut bench = CardTestbed::with(description.clone());
        if case == 0 {
            bench.write(USER, 0x1018, 0x10_0000);
            bench.write(USER, 0x1020, 0x2000);
            bench.write(USER, 0x1028, 64);
        } else {
            let words = [0_u64, 0x2000, 0x10_0000, 64];
            bench.poke(0x4000, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
            let at = if case == 1 { 0x10_0040 } else { 0x4000 };
            bench.write(USER, 0x1000, 8);
            bench.write(USER, 0x1008, at);
            bench.write(USER, 0x1010, at);
            bench.write(USER, 0x1014, 0);
        }
        bench.run();
        assert_eq!(bench.read(USER, 0x1004) & 0x772, 0, "case {case}: neither idle nor an error");
        assert_eq!((last_fault(&bench).0, last_fault(&bench).1), (FaultKind::AxiSilent, Unit::Cdma));
        bench.write(USER, 0x1000, 1 << 2);
        bench.run();
        assert_eq!(bench.read(USER, 0x1000) & 1 << 2, 1 << 2, "the soft reset never ends");
        bench.card.reset();
        bench.card.set_command(true, true);
        assert_eq!(bench.read(USER, 0x1004) & 2, 2, "idle again");
        assert_eq!(bench.read(USER, 0x1000), 0x0001_0002);
    }
}

#[test]
fn quirk_bypass_bar_reads_ones_without_answer() {
    let mut bench = CardTestbed::new();
    bench.poke(0x8000, &[5; 8]);
    bench.card.silence(CardAddr::new(0x8000), 8);
    assert_eq!(bench.read(BYPASS, 0x8000), u32::MAX);
    bench.write(BYPASS, 0x8000, 9);
    assert_eq!(last_fault(&bench).0, FaultKind::AxiSilent);
    bench.card.silence(CardAddr::ZERO, 0);
    assert_eq!(bench.memory(0x8000, 8), [5; 8]);
}

#[test]
fn quirk_reprogramming_loses_config_space_and_memory() {
    let mut bench = CardTestbed::new();
    bench.card.config_write(0x10, &0xE000_0000_u32.to_le_bytes());
    bench.poke(0x1234, &[1, 2, 3]);
    bench.write(DMA, 0x88, 0x40);
    chain(&mut bench, &[0x4_0000], STOP);
    bench.start(H2C0, DESCRIPTORS, 0, START_POLL);
    bench.step();
    bench.card.reprogram();
    let mut bytes = [0; 4];
    bench.card.config_read(0x10, &mut bytes);
    assert_eq!(bytes, [0; 4], "the BAR has no address");
    bench.card.config_read(0, &mut bytes);
    assert_eq!(u32::from_le_bytes(bytes), 0x903F_10EE, "but the function answers");
    assert_eq!(bench.read(DMA, 0x2000), u32::MAX, "memory decoding is off");
    assert!(!bench.step(), "and nothing runs");
    bench.card.set_command(true, true);
    assert_eq!(bench.read(DMA, 0x88), 0);
    assert_eq!(bench.read(DMA, 0x40), 0);
    assert_eq!(bench.memory(0x1234, 3), [0; 3], "card memory is lost");
    assert_eq!(bench.card.resident_pages(), 0);
}
