//! XDMA channel registers, driven directly as PG195 describes.
use crate::support::*;
use fpga_card::description::WritebackRule;
use fpga_card::{CardDescription, FaultKind};

pub(crate) const H2C0: u64 = 0x0000;
pub(crate) const C2H0: u64 = 0x1000;
/// Control values with which the vendor's driver starts a channel in interrupt mode and in poll mode.
pub(crate) const START_INTERRUPT: u32 = 0x00F8_3E1F;
pub(crate) const START_POLL: u32 = 0x04F8_3E19;
pub(crate) const DESCRIPTORS: u64 = 0x10_0000;
pub(crate) const DATA: u64 = 0x11_0000;
pub(crate) const WRITEBACK: u64 = 0x10_8000;

/// Chain with `lengths` at DESCRIPTORS, H2C from DATA to card address 0, in one block; flags on the last descriptor.
pub(crate) fn chain(testbed: &mut CardTestbed, lengths: &[u32], last_flags: u32) {
    let mut offset = 0_u64;
    for (index, length) in lengths.iter().enumerate() {
        let at = DESCRIPTORS + 32 * index as u64;
        let last = index + 1 == lengths.len();
        let left = lengths.len() as u32 - 1 - index as u32;
        let adjacent = left.saturating_sub(1).min(63) << 8;
        let flags = if last { last_flags } else { 0 };
        let next = if last { 0 } else { at + 32 };
        testbed.host.descriptor(at, MAGIC | adjacent | flags, *length, DATA + offset, offset, next);
        offset += u64::from(*length);
    }
}

#[test]
fn xdma_identifiers_of_every_block() {
    let mut testbed = CardTestbed::new();
    let expected = [
        (0x0000, 0x1FC0_0006),
        (0x0100, 0x1FC0_0106),
        (0x0300, 0x1FC0_0306),
        (0x1000, 0x1FC1_0006),
        (0x1200, 0x1FC1_0206),
        (0x2000, 0x1FC2_0006),
        (0x3000, 0x1FC3_0006),
        (0x4000, 0x1FC4_0006),
        (0x4100, 0x1FC4_0106),
        (0x5300, 0x1FC5_0306),
        (0x6000, 0x1FC6_0006),
    ];
    for (at, word) in expected {
        assert_eq!(testbed.read(DMA, at), word, "{at:#x}");
    }
    let mut description = small();
    description.xdma.h2c_channels = 2;
    description.xdma.ip_version = 5;
    let mut testbed = CardTestbed::with(description);
    assert_eq!(testbed.read(DMA, 0x0100), 0x1FC0_0105);
    assert_eq!(testbed.read(DMA, 0x0200), 0, "an unimplemented channel reads as zero");
}

#[test]
fn xdma_reset_values_and_plain_registers() {
    let mut testbed = CardTestbed::new();
    assert_eq!(testbed.read(DMA, 0x4C), 0x0001_0140);
    assert_eq!(testbed.read(DMA, 0x3010), 0xFF01);
    assert_eq!(testbed.read(DMA, 0x3018), 3);
    assert_eq!(testbed.read(DMA, 0x301C), 1);
    assert_eq!(testbed.read(DMA, 0x3040), 0x55);
    assert_eq!(testbed.read(DMA, 0x3044), 0x55);
    testbed.write(DMA, 0x301C, 0);
    assert_eq!(testbed.read(DMA, 0x301C), 0, "the vendor's register toggle test");
    testbed.write(DMA, 0x3040, 2);
    assert_eq!(testbed.read(DMA, 0x3040), 0x22);
    testbed.write(DMA, 0x3060, 0xFF);
    assert_eq!(testbed.read(DMA, 0x3060), 0x1F);
    for at in [0x88, 0x8C] {
        testbed.write(DMA, at, 0xDEAD_BEE0);
        assert_eq!(testbed.read(DMA, at), 0xDEAD_BEE0);
    }
    testbed.write(DMA, 0x4088, 0xFFFF_FFFF);
    assert_eq!(testbed.read(DMA, 0x4088), 0x3F);
}

/// The register shows the described value, and writes do not change it.
#[test]
fn xdma_bus_device_function_follows_description() {
    let mut description = CardDescription::default();
    description.pci.bus_device_function = 0x41 << 8 | 3 << 3 | 1;
    let mut testbed = CardTestbed::with(description);
    assert_eq!(testbed.read(DMA, 0x3004), 0x4119);
    testbed.write(DMA, 0x3004, u32::MAX);
    assert_eq!(testbed.read(DMA, 0x3004), 0x4119);
}

#[test]
fn xdma_control_has_set_and_clear_aliases() {
    let mut testbed = CardTestbed::new();
    testbed.write(DMA, 0x04, 0xFFFF_FFFE);
    assert_eq!(testbed.read(DMA, 0x04), 0x0EFF_FE7E, "reserved bits read as zero");
    testbed.write(DMA, 0x0C, 0x0EFF_FE00);
    assert_eq!(testbed.read(DMA, 0x04), 0x7E);
    testbed.write(DMA, 0x08, 0x0400_0000);
    assert_eq!(testbed.read(DMA, 0x04), 0x0400_007E);
    assert_eq!(testbed.read(DMA, 0x08), 0, "the aliases read as zero");
    testbed.write(DMA, 0x90, 0x6);
    testbed.write(DMA, 0x94, 0x18);
    testbed.write(DMA, 0x98, 0x2);
    assert_eq!(testbed.read(DMA, 0x90), 0x1C);
}

#[test]
fn xdma_status_clears_by_w1c_read_0x44_and_run() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 0b110);
    assert_eq!(testbed.read(DMA, 0x40), 0b110, "0x40 is for peeking");
    testbed.write(DMA, 0x40, 0b010);
    assert_eq!(testbed.read(DMA, 0x40), 0b100, "write 1 to clear");
    assert_eq!(testbed.read(DMA, 0x44), 0b100);
    assert_eq!(testbed.read(DMA, 0x44), 0, "cleared by reading");
    testbed.write(DMA, 0x04, START_INTERRUPT & !1);
    testbed.write(DMA, 0x04, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 0b110);
    testbed.write(DMA, 0x0C, 1);
    assert_eq!(testbed.read(DMA, 0x48), 1, "the count outlives run");
    testbed.write(DMA, 0x08, 1);
    assert_eq!(testbed.read(DMA, 0x40), 1, "setting run clears everything but busy");
    assert_eq!(testbed.read(DMA, 0x48), 0, "and the count");
}

#[test]
fn xdma_narrow_or_unaligned_access_has_no_side_effects() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    let mut byte = [0];
    testbed.card.bar_read(DMA, 0x44, &mut byte);
    assert_eq!(byte, [0b110]);
    let mut crooked = [0; 4];
    testbed.card.bar_read(DMA, 0x42, &mut crooked);
    assert_eq!(crooked, [0, 0, 0b110, 0]);
    assert_eq!(testbed.read(DMA, 0x40), 0b110, "nothing was cleared");
    testbed.card.bar_write(DMA, 0x40, &[0xFF], &mut testbed.host);
    assert_eq!(testbed.read(DMA, 0x40), 0b110, "a byte write is dropped");
    assert_eq!(testbed.card.faults().iter().next_back().unwrap().kind, FaultKind::BadAccess);
    let mut wide = [0; 8];
    testbed.card.bar_read(DMA, 0x40, &mut wide);
    assert_eq!(wide, [0b110, 0, 0, 0, 0b110, 0, 0, 0], "eight bytes are two dwords");
    assert_eq!(testbed.read(DMA, 0x40), 0, "the second of which clears");
}

/// `reg_rw /dev/xdma0_user A b V`: AXI4-Lite has byte strobes, and registers without side effects accept single bytes.
#[test]
fn user_bar_narrow_write_reaches_plain_register() {
    use fpga_firmware::generated::{cdma, ni};
    let mut testbed = CardTestbed::new();
    let at = u64::from(ni::BLOCK_OFFSET + ni::INCARNATION);
    testbed.write(USER, at, 0x4433_2211);
    let mut expected = [0x11, 0x22, 0x33, 0x44];
    for width in [1, 2, 3] {
        for place in 0..=4 - width {
            let new: Vec<u8> =
                (0..width).map(|index| (0x50 + 16 * width + 4 * place + index) as u8).collect();
            testbed.card.bar_write(USER, at + place as u64, &new, &mut testbed.host);
            expected[place..place + width].copy_from_slice(&new);
            assert_eq!(testbed.read(USER, at), u32::from_le_bytes(expected), "{width} at {place}");
        }
    }
    assert!(testbed.card.faults().is_empty());
    // Registers with side effects, read-only dwords, slaves without strobes, and accesses that cross into such a dword: the write has no
    // effect and is logged.
    let control = u64::from(ni::BLOCK_OFFSET + ni::CONTROL);
    let copier = u64::from(cdma::BLOCK_OFFSET + 0x18);
    let crooked = u64::from(ni::BLOCK_OFFSET + ni::INCARNATION) + 2;
    assert_eq!(ni::INCARNATION + 4, ni::CONTROL, "the following reads have effects");
    for (noted, (at, width)) in (1..).zip([(control, 1), (0, 2), (copier, 1), (crooked, 4)]) {
        let dword = at & !3;
        let before = [testbed.read(USER, dword), testbed.read(USER, dword + 4)];
        testbed.card.bar_write(USER, at, &[0xFF; 4][..width], &mut testbed.host);
        assert_eq!([testbed.read(USER, dword), testbed.read(USER, dword + 4)], before, "{at:#x}");
        let faults = testbed.card.faults();
        assert_eq!((faults.len(), faults.iter().next_back().unwrap().kind), (noted, FaultKind::BadAccess));
    }
}

#[test]
fn xdma_status_recording_is_gated_by_control() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 0, 0x1);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 0);
    assert_eq!(testbed.read(DMA, 0x48), 1);
}

#[test]
fn xdma_writeback_has_count_at_flagged_descriptor() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64, 64, 64], STOP | COMPLETED);
    testbed.write(DMA, 0x88, WRITEBACK as u32);
    testbed.write(DMA, 0x8C, 0);
    testbed.start(H2C0, DESCRIPTORS, 2, START_POLL);
    testbed.run();
    assert_eq!(testbed.host.get_word(WRITEBACK), 3);
    assert_eq!(testbed.card.counters().writebacks, 1, "unflagged descriptors write nothing back");
    assert!(testbed.host.interrupts.is_empty());
}

#[test]
fn xdma_documented_writeback_rule_needs_enable_bit() {
    let mut description = small();
    description.xdma.completed_writeback = WritebackRule::FlagAndEnable;
    let mut testbed = CardTestbed::with(description);
    chain(&mut testbed, &[64], STOP | COMPLETED);
    testbed.write(DMA, 0x88, WRITEBACK as u32);
    testbed.start(H2C0, DESCRIPTORS, 0, START_POLL);
    testbed.run();
    assert_eq!(testbed.host.get_word(WRITEBACK), 0);
    testbed.write(DMA, 0x0C, 1);
    testbed.start(H2C0, DESCRIPTORS, 0, START_POLL | 1 << 2);
    testbed.run();
    assert_eq!(testbed.host.get_word(WRITEBACK), 1);
}

#[test]
fn xdma_bad_magic_stops_after_good_descriptors() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64, 64, 64], STOP | COMPLETED);
    testbed.host.put(DESCRIPTORS + 64, &[0; 4]);
    testbed.write(DMA, 0x88, WRITEBACK as u32);
    testbed.start(H2C0, DESCRIPTORS, 2, START_POLL);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 1 << 4);
    assert_eq!(testbed.read(DMA, 0x48), 2);
    assert_eq!(testbed.host.get_word(WRITEBACK), 1 << 31 | 2, "the write-back shows the error");
}

#[test]
fn xdma_prefetched_descriptors_ignore_later_edits() {
    let mut testbed = CardTestbed::new();
    testbed.host.put(DATA, &[0xAA; 128]);
    chain(&mut testbed, &[64, 64], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 1, START_INTERRUPT);
    assert!(testbed.step(), "the fetch of both");
    // Too late: this edit would break the chain if the engine saw it.
    testbed.host.put(DESCRIPTORS, &[0; 64]);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 2);
    assert_eq!(testbed.memory(0, 128), [0xAA; 128]);
}

#[test]
fn xdma_adjacency_zero_fetches_each_descriptor() {
    let mut testbed = CardTestbed::new();
    for index in 0..4_u64 {
        let at = DESCRIPTORS + 0x1000 * index;
        let flags = if index == 3 { STOP | COMPLETED } else { 0 };
        testbed.host.descriptor(at, MAGIC | flags, 16, DATA, 16 * index, at + 0x1000);
    }
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 4);
    assert_eq!(testbed.card.counters().descriptor_fetches, 4);
}

#[test]
fn xdma_last_fetched_descriptor_sizes_next_fetch() {
    let mut testbed = CardTestbed::new();
    // Two blocks of 3 and 2; inner counts zero, as one driver leaves them.
    for (index, (at, adjacent)) in
        [(0, 0), (32, 0), (64, 1), (0x2000, 0), (0x2020, 0)].into_iter().enumerate()
    {
        let next = if index == 2 { DESCRIPTORS + 0x2000 } else { 0 };
        let flags = if index == 4 { STOP } else { 0 };
        testbed.host.descriptor(
            DESCRIPTORS + at,
            MAGIC | adjacent << 8 | flags,
            8,
            DATA,
            8 * index as u64,
            next,
        );
    }
    testbed.start(H2C0, DESCRIPTORS, 2, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 5);
    let fetches: Vec<_> = testbed.host.reads.iter().filter(|(_, length)| *length % 32 == 0).collect();
    assert_eq!(fetches, [&(DESCRIPTORS, 96), &(DESCRIPTORS + 0x2000, 64)]);
}

#[test]
fn xdma_block_across_4_kib_is_magic_error() {
    let mut testbed = CardTestbed::new();
    let first = DESCRIPTORS + 0x1000 - 64;
    for index in 0..3_u64 {
        let flags = if index == 2 { STOP } else { 0 };
        testbed.host.descriptor(
            first + 32 * index,
            MAGIC | flags,
            8,
            DATA,
            8 * index,
            first + 32 * (index + 1),
        );
    }
    testbed.start(H2C0, first, 2, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 1 << 4);
    assert_eq!(testbed.read(DMA, 0x48), 2, "descriptors before the boundary run");
    assert!(testbed.card.faults().iter().any(|fault| fault.kind == FaultKind::BlockCrossesPage));
}

#[test]
fn xdma_without_bus_master_nothing_leaves_card() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64], STOP);
    testbed.card.set_command(true, false);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 1 << 19);
    assert!(testbed.host.reads.is_empty());
}

#[test]
fn xdma_clear_run_stops_after_descriptor_in_flight() {
    let mut testbed = CardTestbed::new();
    testbed.host.put(DATA, &[0x55; 0x3_0000]);
    chain(&mut testbed, &[0x2_0000, 64], STOP | COMPLETED);
    let control = START_INTERRUPT | 1 << 6;
    testbed.start(H2C0, DESCRIPTORS, 1, control);
    testbed.step();
    testbed.step();
    testbed.write(DMA, 0x0C, 1);
    assert_eq!(testbed.read(DMA, 0x40) & 1, 1, "still busy");
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 1, "the one in flight, not the next");
    assert_eq!(testbed.read(DMA, 0x40), 1 << 6, "idle after run was cleared");
    assert_eq!(testbed.memory(0x1_FFFF, 2), [0x55, 0]);
    testbed.write(DMA, 0x08, 1);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 2, "a new run starts over");
}

#[test]
fn xdma_clear_run_of_stopped_engine_records_nothing() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[64], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT | 1 << 6);
    testbed.run();
    testbed.write(DMA, 0x0C, 1);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x44), 0b110);
}

#[test]
fn xdma_set_run_before_idle_starts_new_chain_afterwards() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[0x2_0000], STOP | COMPLETED);
    testbed.host.descriptor(0x10_9000, MAGIC | STOP | COMPLETED, 8, DATA, 0x3_0000, 0);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.step();
    testbed.step();
    testbed.write(DMA, 0x0C, 1);
    testbed.start(H2C0, 0x10_9000, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 1);
    assert_eq!(testbed.read(DMA, 0x40), 0b110);
}

#[test]
fn xdma_zero_length_descriptor_completes() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed, &[0, 8, 0], STOP | COMPLETED);
    testbed.start(H2C0, DESCRIPTORS, 2, START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x48), 3);
}
