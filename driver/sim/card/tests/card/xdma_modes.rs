//! XDMA features besides plain transfers: interrupts, credits, fixed addresses, performance counters.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_INTERRUPT, chain};
use fpga_protocol::time::Nanos;

#[test]
fn xdma_credit_mode_fetches_only_granted() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[16, 16, 16, 16], STOP | COMPLETED);
    testbed.write(DMA, 0x408C, 5);
    assert_eq!(testbed.read(DMA, 0x408C), 0, "no credits outside credit mode");
    testbed.write(DMA, 0x6024, 1);
    assert_eq!(testbed.read(DMA, 0x6020), 1);
    testbed.start(H2C0, DESCRIPTORS, 3, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 0);
    assert_eq!(testbed.read(DMA, 0x40), 1, "waiting is busy");
    testbed.write(DMA, 0x408C, 2);
    testbed.write(DMA, 0x408C, 1);
    assert_eq!(testbed.read(DMA, 0x408C), 3, "writes add");
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 3);
    assert_eq!(testbed.read(DMA, 0x408C), 0);
    testbed.write(DMA, 0x408C, 4);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 4);
    testbed.write(DMA, 0x0C, 1);
    assert_eq!(testbed.read(DMA, 0x408C), 0, "cleared by the falling edge of run");
}

#[test]
fn xdma_fetch_halt_holds_chain() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[16], STOP);
    testbed.write(DMA, 0x6014, 1);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 0);
    testbed.write(DMA, 0x6018, 1);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 1);
}

#[test]
fn xdma_channel_interrupts_follow_masks_vectors_and_edges() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[16], STOP | COMPLETED);
    testbed.write(DMA, 0x90, 0x00F8_3E1E);
    testbed.write(DMA, 0x20A0, 0x0302_0105);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert!(testbed.host.interrupts.is_empty(), "the channel is masked in the IRQ block");
    assert_eq!(testbed.read(DMA, 0x204C), 1, "pending");
    assert_eq!(testbed.read(DMA, 0x2044), 0, "requested: source and mask");
    testbed.write(DMA, 0x2014, 0xFF);
    assert_eq!(testbed.host.interrupts, [5], "enabling an asserted source interrupts, by its vector");
    assert_eq!(testbed.read(DMA, 0x2044), 1);
    testbed.run();
    assert_eq!(testbed.host.interrupts, [5], "one message per edge");
    assert_eq!(testbed.read(DMA, 0x44), 0b110);
    assert_eq!(testbed.read(DMA, 0x204C), 0, "cleared with the engine's status");
    // C2H channels follow directly after the implemented H2C channels.
    testbed.write(DMA, 0x1090, 0xFF_FFFF);
    testbed.write(DMA, 0x20A4, 0x0000_0009);
    testbed.host.descriptor(DESCRIPTORS, MAGIC | STOP, 16, 0, DATA, 0);
    testbed.start(C2H0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x204C), 1 << 4);
    assert_eq!(testbed.host.interrupts, [5, 9]);
    testbed.write(DMA, 0x2018, 1 << 4);
    testbed.write(DMA, 0x2014, 1 << 4);
    assert_eq!(testbed.host.interrupts, [5, 9, 9]);
}

#[test]
fn msix_enabled_late_loses_nothing() {
    let mut testbed = CardTestbed::new();
    testbed.card.disable_msix();
    chain(&mut testbed, &[16], STOP | COMPLETED);
    testbed.write(DMA, 0x90, 0x6);
    testbed.write(DMA, 0x2014, 1);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert!(testbed.host.interrupts.is_empty());
    testbed.card.enable_msix(1);
    testbed.run();
    assert_eq!(testbed.host.interrupts, [0]);
}

#[test]
fn xdma_beat_takes_at_least_one_clock() {
    // All of it at one point of the card's time.
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[4096; 16], STOP);
    testbed.write(DMA, 0xC0, 0b101);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.card.work(Nanos::new(testbed.now), &mut testbed.host, 1000);
    let (cycles, beats) = (testbed.read(DMA, 0xC4), testbed.read(DMA, 0xCC));
    assert_eq!(beats, 16 * 4096 / 64);
    assert!(cycles >= beats, "{cycles} clocks for {beats} beats");
}

#[test]
fn xdma_long_descriptor_quirk_is_reproduced() {
    let mut description = small();
    description.xdma.long_descriptor_quirk = true;
    let mut testbed = CardTestbed::with(description);
    // Two blocks of two, with descriptors above 4 KiB.
    for (index, (at, adjacent, next)) in
        [(0, 0, 32), (32, 1, 0x1000), (0x1000, 0, 0x1020), (0x1020, 0, 0)].into_iter().enumerate()
    {
        let flags = if index == 3 { STOP } else { 0 };
        let control = MAGIC | adjacent << 8 | flags;
        testbed.host.descriptor(DESCRIPTORS + at, control, 8192, DATA, 0, DESCRIPTORS + next);
    }
    testbed.start(H2C0, DESCRIPTORS, 1, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 1 << 4);
    assert_eq!(testbed.read(DMA, 0x48), 2);
}
