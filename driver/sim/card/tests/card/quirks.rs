//! Permanent faults of real cards, as registers show them.

use crate::support::*;
use crate::xdma::{DATA, DESCRIPTORS, H2C0, START_INTERRUPT, START_POLL, chain};
use fpga_card::description::QuirksDescription;
use fpga_card::{FaultKind, Unit};
use fpga_registers::CardAddr;

fn with(set: impl FnOnce(&mut QuirksDescription)) -> CardTestbed {
    let mut description = small();
    set(&mut description.quirks);
    CardTestbed::with(description)
}

fn last_fault(testbed: &CardTestbed) -> (FaultKind, Unit, u64) {
    let fault = testbed.card.faults().iter().next_back().expect("a fault");
    (fault.kind, fault.unit, fault.address)
}

#[test]
fn quirk_every_second_dma_bar_read_fails() {
    let mut testbed = with(|quirks| quirks.every_second_read_fails = true);
    let identifiers: Vec<_> = (0..6).map(|_| testbed.read(DMA, 0x2000)).collect();
    assert_eq!(identifiers, [0x1FC2_0006, u32::MAX].repeat(3));
    chain(&mut testbed, &[64], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 0b110);
    assert_eq!(testbed.read(DMA, 0x44), u32::MAX, "this one fails");
    assert_eq!(testbed.read(DMA, 0x44), 0b110, "and has cleared nothing");
    assert_ne!(testbed.read(USER, 0), u32::MAX, "the user BAR is another slave");
    let mut word = [0; 4];
    for _ in 0..3 {
        testbed.card.bar_peek(DMA, 0x2000, &mut word);
        assert_eq!(u32::from_le_bytes(word), 0x1FC2_0006, "peeking from outside changes nothing");
    }
    assert_eq!(testbed.read(DMA, 0x2000), u32::MAX, "eight reads before this one");
}

#[test]
fn quirk_busy_lingers_until_status_read() {
    for status in [0x40, 0x44] {
        let mut testbed = with(|quirks| quirks.busy_after_error = true);
        testbed.host.descriptor(DESCRIPTORS, 0, 64, DATA, 0, 0);
        testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        testbed.run();
        assert_eq!(testbed.read(DMA, status), 1 << 4 | 1, "magic error, and busy");
        assert_eq!(testbed.read(DMA, 0x40) & 1, 0, "the second read returns the true value");
        // Without an error, busy does not linger.
        testbed.write(DMA, 0x0C, 1);
        chain(&mut testbed, &[64], STOP | COMPLETED);
        testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        testbed.run();
        assert_eq!(testbed.read(DMA, status), 0b110);
    }
    let mut testbed = CardTestbed::new();
    testbed.host.descriptor(DESCRIPTORS, 0, 64, DATA, 0, 0);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 1 << 4, "a card without quirks");
}

#[test]
fn quirk_early_msix_writes_are_lost() {
    for (lost, entry) in [(true, (0, u32::MAX)), (false, (0xFEE0_0000, 0))] {
        let mut testbed = with(|quirks| quirks.early_msix_writes_lost = lost);
        testbed.card.disable_msix();
        testbed.write(DMA, 0x8000, 0xFEE0_0000);
        testbed.write(DMA, 0x800C, 0);
        assert_eq!((testbed.read(DMA, 0x8000), testbed.read(DMA, 0x800C)), entry);
        assert_eq!(testbed.card.faults().len(), if lost { 2 } else { 0 });
        // Enabled with the function masked, then written, as PG195 requires: works on both.
        testbed.card.config_write(0x62, &0xC000_u16.to_le_bytes());
        testbed.write(DMA, 0x8000, 0xFEE1_0000);
        testbed.write(DMA, 0x800C, 0);
        assert_eq!((testbed.read(DMA, 0x8000), testbed.read(DMA, 0x800C)), (0xFEE1_0000, 0));
        testbed.card.config_write(0x62, &0x8000_u16.to_le_bytes());
        testbed.write(DMA, 0x90, 0x6);
        testbed.write(DMA, 0x2014, 1);
        chain(&mut testbed, &[16], STOP | COMPLETED);
        testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
        testbed.run();
        assert_eq!(testbed.host.interrupts, [0]);
    }
}

#[test]
fn quirk_silent_user_bar() {
    let mut testbed = with(|quirks| quirks.silent_user_bar = true);
    for at in [0, 4, 0x1004, 0x2000, 0x2008] {
        assert_eq!(testbed.read(USER, at), u32::MAX, "{at:#x}");
    }
    testbed.write(USER, 0x1000, 1 << 2);
    testbed.write(USER, 0x2008, 1);
    testbed.run();
    assert!(testbed.card.faults().is_empty(), "posted writes vanish without a trace");
    assert_eq!(testbed.read(DMA, 0x2000), 0x1FC2_0006, "the DMA BAR works");
}

#[test]
fn quirk_bypass_bar_reads_ones_without_answer() {
    let mut testbed = CardTestbed::new();
    testbed.poke(0x8000, &[5; 8]);
    testbed.card.silence(CardAddr::new(0x8000), 8);
    assert_eq!(testbed.read(BYPASS, 0x8000), u32::MAX);
    testbed.write(BYPASS, 0x8000, 9);
    assert_eq!(last_fault(&testbed).0, FaultKind::AxiSilent);
    testbed.card.silence(CardAddr::ZERO, 0);
    assert_eq!(testbed.memory(0x8000, 8), [5; 8]);
}

#[test]
fn quirk_reprogramming_loses_config_space_and_memory() {
    let mut testbed = CardTestbed::new();
    testbed.card.config_write(0x10, &0xE000_0000_u32.to_le_bytes());
    testbed.poke(0x1234, &[1, 2, 3]);
    testbed.write(DMA, 0x88, 0x40);
    chain(&mut testbed, &[0x4_0000], STOP);
    testbed.start(H2C0, DESCRIPTORS, 0, START_POLL);
    testbed.step();
    testbed.card.reprogram();
    let mut bytes = [0; 4];
    testbed.card.config_read(0x10, &mut bytes);
    assert_eq!(bytes, [0; 4], "the BAR has no address");
    testbed.card.config_read(0, &mut bytes);
    assert_eq!(u32::from_le_bytes(bytes), 0x903F_10EE, "but the function answers");
    assert_eq!(testbed.read(DMA, 0x2000), u32::MAX, "memory decoding is off");
    assert!(!testbed.step(), "and nothing runs");
    testbed.card.set_command(true, true);
    assert_eq!(testbed.read(DMA, 0x88), 0);
    assert_eq!(testbed.read(DMA, 0x40), 0);
    assert_eq!(testbed.memory(0x1234, 3), [0; 3], "card memory is lost");
    assert_eq!(testbed.card.resident_pages(), 0);
}
