//! CDMA registers, driven directly as PG034 describes.

use crate::support::*;

const CDMA: u64 = 0x1000;
const CR: u64 = CDMA;
const SR: u64 = CDMA + 0x04;
const IDLE: u32 = 1 << 1;
const SG_MODE: u32 = 1 << 3;
const KEYHOLE_READ: u32 = 1 << 4;
const KEYHOLE_WRITE: u32 = 1 << 5;
const CYCLIC: u32 = 1 << 6;
const IOC: u32 = 1 << 12;
const DELAY: u32 = 1 << 13;
const ERROR: u32 = 1 << 14;
const CHAIN: u64 = 0x10_0000;

fn simple(testbed: &mut CardTestbed, source: u64, destination: u64, length: u32) {
    for (at, value) in [
        (0x18, source as u32),
        (0x1C, (source >> 32) as u32),
        (0x20, destination as u32),
        (0x24, (destination >> 32) as u32),
        (0x28, length),
    ] {
        testbed.write(USER, CDMA + at, value);
    }
}

fn descriptor(testbed: &mut CardTestbed, at: u64, next: u64, source: u64, destination: u64, length: u32) {
    let mut bytes = Vec::new();
    bytes.extend(next.to_le_bytes());
    bytes.extend(source.to_le_bytes());
    bytes.extend(destination.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend([0; 4]);
    testbed.poke(at, &bytes);
}

/// Three descriptors of 100 bytes, 0x1000 to 0x2000 on.
fn chain(testbed: &mut CardTestbed) {
    for index in 0..3 {
        let at = CHAIN + 64 * index;
        descriptor(testbed, at, at + 64, 0x1000 + 100 * index, 0x2000 + 100 * index, 100);
    }
}

fn start_sg(testbed: &mut CardTestbed, control: u32, current: u64, tail: u64) {
    testbed.write(USER, CR, control & !SG_MODE);
    testbed.write(USER, CR, control | SG_MODE);
    testbed.write(USER, CDMA + 0x08, current as u32);
    testbed.write(USER, CDMA + 0x0C, (current >> 32) as u32);
    testbed.write(USER, CDMA + 0x10, tail as u32);
    testbed.write(USER, CDMA + 0x14, (tail >> 32) as u32);
}

fn state(testbed: &CardTestbed, at: u64) -> u32 {
    u32::from_le_bytes(testbed.memory(at + 0x1C, 4).try_into().expect("four bytes"))
}

#[test]
fn cdma_reset_values_match_pg034() {
    let mut testbed = CardTestbed::new();
    assert_eq!(testbed.read(USER, CR), 0x0001_0002);
    assert_eq!(testbed.read(USER, SR), 0x0001_000A, "threshold 1, SG included, idle");
    for at in (0x08..=0x28).step_by(4) {
        assert_eq!(testbed.read(USER, CDMA + at), 0);
    }
    let mut description = small();
    description.cdma.sg = false;
    let mut testbed = CardTestbed::with(description);
    assert_eq!(testbed.read(USER, SR), IDLE);
}

#[test]
fn cdma_simple_copy_moves_bytes() {
    let mut testbed = CardTestbed::new();
    let data = pattern(300_000, 4);
    testbed.poke(0x1_0003, &data);
    testbed.write(USER, CR, IOC);
    simple(&mut testbed, 0x1_0003, 0x20_0001, 300_000);
    assert_eq!(testbed.read(USER, SR) & IDLE, 0);
    assert_eq!(testbed.memory(0x20_0001, 16), [0; 16], "nothing happens before the next step");
    testbed.run();
    assert_eq!(testbed.memory(0x20_0001, data.len()), data);
    assert_eq!(testbed.read(USER, SR) & (IDLE | IOC | 0x770), IDLE | IOC);
    testbed.write(USER, SR, IOC);
    assert_eq!(testbed.read(USER, SR) & IOC, 0, "write 1 to clear");
    assert_eq!(testbed.card.counters().cdma_bytes, 300_000);
}

#[test]
fn cdma_zero_byte_count_is_internal_error_until_reset() {
    let mut testbed = CardTestbed::new();
    simple(&mut testbed, 0, 0x100, 0);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & 0x7770, 1 << 4 | ERROR);
    testbed.write(USER, SR, 0x7770);
    assert_eq!(testbed.read(USER, SR) & 0x7770, 1 << 4, "the error itself is not write-1-to-clear");
    simple(&mut testbed, 0, 0x100, 16);
    testbed.run();
    assert_eq!(testbed.card.counters().cdma_descriptors, 0, "halted");
    testbed.write(USER, CR, 1 << 2);
    assert_eq!(testbed.read(USER, CR) & 1 << 2, 1 << 2, "reset in progress");
    testbed.run();
    assert_eq!(testbed.read(USER, CR), 0x0001_0002);
    assert_eq!(testbed.read(USER, SR), 0x0001_000A);
    simple(&mut testbed, 0, 0x100, 16);
    testbed.run();
    assert_eq!(testbed.card.counters().cdma_descriptors, 1);
}

#[test]
fn cdma_byte_count_has_build_width() {
    let mut description = small();
    description.cdma.max_length_bits = 23;
    let mut testbed = CardTestbed::with(description);
    simple(&mut testbed, 0, 0x100, 0xFFFF_FFFF);
    assert_eq!(testbed.read(USER, CDMA + 0x28), 0x7F_FFFF);
}

#[test]
fn cdma_sg_chain_runs_and_continues() {
    let mut testbed = CardTestbed::new();
    let data = pattern(300, 6);
    testbed.poke(0x1000, &data);
    chain(&mut testbed);
    start_sg(&mut testbed, IOC, CHAIN, CHAIN + 64);
    testbed.run();
    assert_eq!(testbed.memory(0x2000, 200), &data[..200], "up to the tail");
    assert_eq!(
        [state(&testbed, CHAIN), state(&testbed, CHAIN + 64), state(&testbed, CHAIN + 128)],
        [1 << 31, 1 << 31, 0]
    );
    assert_eq!(testbed.read(USER, SR) & (IDLE | 0x770), IDLE);
    assert_eq!(testbed.read(USER, CDMA + 0x08), CHAIN as u32 + 64, "CURDESC follows");
    // Writing CURDESC without a toggle has no effect: the engine continues with the next descriptor.
    testbed.write(USER, CDMA + 0x10, CHAIN as u32 + 128);
    assert_eq!(
        testbed.read(USER, SR) & IDLE,
        IDLE,
        "the low word does not start a build with wide addresses"
    );
    testbed.write(USER, CDMA + 0x14, 0);
    testbed.run();
    assert_eq!(testbed.memory(0x2000, 300), data);
    assert_eq!(testbed.card.counters().cdma_descriptors, 3);
}

#[test]
fn cdma_32_bit_build_starts_on_low_word() {
    let mut description = small();
    description.cdma.address_width = 32;
    let mut testbed = CardTestbed::with(description);
    testbed.poke(0x1000, &[9; 300]);
    chain(&mut testbed);
    testbed.write(USER, CR, SG_MODE);
    testbed.write(USER, CDMA + 0x08, CHAIN as u32);
    testbed.write(USER, CDMA + 0x0C, 7);
    assert_eq!(testbed.read(USER, CDMA + 0x0C), 0, "no high halves");
    testbed.write(USER, CDMA + 0x10, CHAIN as u32 + 128);
    testbed.run();
    assert_eq!(testbed.memory(0x2000, 300), [9; 300]);
}

#[test]
fn cdma_pointers_cleared_outside_sg_mode() {
    let mut testbed = CardTestbed::new();
    testbed.write(USER, CDMA + 0x08, 0x40);
    assert_eq!(testbed.read(USER, CDMA + 0x08), 0);
    testbed.write(USER, CR, SG_MODE);
    testbed.write(USER, CDMA + 0x08, 0x7F);
    assert_eq!(testbed.read(USER, CDMA + 0x08), 0x40, "bits 5:0 are zero");
    testbed.write(USER, CR, 0);
    assert_eq!(testbed.read(USER, CDMA + 0x08), 0);
}

#[test]
fn cdma_stale_descriptor_is_sg_internal_error() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed);
    testbed.poke(CHAIN + 64 + 0x1C, &(1_u32 << 31).to_le_bytes());
    start_sg(&mut testbed, ERROR, CHAIN, CHAIN + 128);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & 0x770, 1 << 8);
    assert_eq!(testbed.read(USER, CDMA + 0x08), CHAIN as u32 + 64, "CURDESC holds the failing one");
    assert_eq!(testbed.card.counters().cdma_descriptors, 1);
}

#[test]
fn cdma_failing_descriptor_is_marked() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed);
    descriptor(&mut testbed, CHAIN + 64, CHAIN + 128, 0x1000, 64 << 20, 100);
    start_sg(&mut testbed, ERROR, CHAIN, CHAIN + 128);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & 0x770, 1 << 6);
    assert_eq!(state(&testbed, CHAIN + 64), 1 << 30);
    descriptor(&mut testbed, CHAIN, CHAIN + 64, 0x1000, 0x2000, 0);
    testbed.write(USER, CR, 1 << 2);
    testbed.run();
    start_sg(&mut testbed, ERROR, CHAIN, CHAIN);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & 0x770, 1 << 4);
    assert_eq!(state(&testbed, CHAIN), 1 << 28);
}

#[test]
fn cdma_chain_outside_memory_is_sg_decode_error() {
    let mut testbed = CardTestbed::new();
    start_sg(&mut testbed, ERROR, 1 << 40, 1 << 40);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & 0x770, 1 << 10);
}

/// PG034, TAILDESC: a write while the engine runs moves its end; a write while it is idle lets it continue behind its last descriptor.
/// Above 32 address bits the write of the high word counts; an engine that has reached the new tail by then is started once more than
/// intended.
#[test]
fn cdma_taildesc_write_at_any_moment_continues_chain() {
    const GUARD: u64 = CHAIN + 64 * 4;
    let (mut moved, mut continued, mut overtaken) = (0, 0, 0);
    for width in [32, 40] {
        for (before, between) in (0..12).flat_map(|before| (0..12).map(move |between| (before, between))) {
            let mut description = small();
            description.cdma.address_width = width;
            let mut testbed = CardTestbed::with(description);
            for index in 0..4 {
                let at = CHAIN + 64 * index;
                descriptor(
                    &mut testbed,
                    at,
                    at + 64,
                    0x1000 + 0x100 * index,
                    0x2_0000 + 0x100 * index,
                    0x100,
                );
            }
            testbed.poke(0x1000, &pattern(0x400, 3));
            testbed.poke(GUARD + 0x1C, &(1_u32 << 31).to_le_bytes());
            let narrow = width == 32;
            start_sg(&mut testbed, ERROR, CHAIN, CHAIN + 64);
            for _ in 0..before {
                testbed.step();
            }
            let at_rest = testbed.read(USER, SR) & IDLE != 0;
            testbed.write(USER, CDMA + 0x10, (CHAIN + 64 * 3) as u32);
            for _ in 0..between {
                testbed.step();
            }
            let reached = testbed.read(USER, SR) & IDLE != 0;
            testbed.write(USER, CDMA + 0x14, 0);
            testbed.run();
            let what = format!("{width} bits, {before} and {between} steps");
            assert_eq!(testbed.card.counters().cdma_descriptors, 4, "{what}: each once");
            assert_eq!(testbed.memory(0x2_0000, 0x400), pattern(0x400, 3), "{what}");
            let (errors, current) = (testbed.read(USER, SR) & 0x770, testbed.read(USER, CDMA + 0x08));
            assert_ne!(testbed.read(USER, SR) & IDLE, 0, "{what}");
            if reached && !at_rest && !narrow {
                assert_eq!((errors, current), (1 << 8, GUARD as u32), "{what}: the guard stops it");
                overtaken += 1;
            } else {
                assert_eq!((errors, current), (0, (CHAIN + 64 * 3) as u32), "{what}: it stops at the tail");
                *(if at_rest { &mut continued } else { &mut moved }) += 1;
            }
        }
    }
    assert!(moved > 0 && continued > 0 && overtaken > 0, "{moved} {continued} {overtaken}");
}

#[test]
fn cdma_taildesc_write_while_running_moves_stop() {
    let mut testbed = CardTestbed::new();
    testbed.poke(0x1000, &[3; 300]);
    chain(&mut testbed);
    descriptor(&mut testbed, CHAIN, CHAIN + 64, 0x1000, 0x2000, 100);
    start_sg(&mut testbed, 0, CHAIN, CHAIN);
    testbed.write(USER, CDMA + 0x10, CHAIN as u32 + 128);
    testbed.write(USER, CDMA + 0x14, 0);
    testbed.run();
    assert_eq!(testbed.card.counters().cdma_descriptors, 3);
}

#[test]
fn cdma_cyclic_chain_runs_until_reset() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed);
    descriptor(&mut testbed, CHAIN + 128, CHAIN, 0x1000, 0x3000, 4);
    start_sg(&mut testbed, CYCLIC, CHAIN, 0x50);
    for _ in 0..100 {
        assert!(testbed.step(), "Cmplt does not stop a cyclic chain");
    }
    assert!(testbed.card.counters().cdma_descriptors > 50);
    testbed.write(USER, CR, 1 << 2);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & (IDLE | 0x770), IDLE);
}

#[test]
fn cdma_threshold_and_delay_interrupts() {
    let mut testbed = CardTestbed::new();
    chain(&mut testbed);
    // Two descriptors per interrupt, delay of 4 ticks of 500 ns.
    start_sg(&mut testbed, IOC | DELAY | 2 << 16 | 4 << 24, CHAIN, CHAIN + 128);
    assert_eq!(testbed.read(USER, SR) >> 16 & 0xFF, 2);
    testbed.step();
    assert_eq!(testbed.read(USER, SR) & (IOC | 0xFF_0000), 1 << 16, "one more to go");
    testbed.step();
    assert_eq!(testbed.read(USER, SR) & (IOC | 0xFF_0000), IOC | 2 << 16, "fires and reloads");
    testbed.write(USER, SR, IOC);
    testbed.run();
    assert_eq!(testbed.read(USER, SR) & (IOC | DELAY), 0, "one remains");
    let deadline = testbed.card.next_deadline().expect("the delay timer runs");
    testbed.now = deadline.get();
    testbed.step();
    assert_eq!(testbed.read(USER, SR) & (IOC | DELAY), DELAY, "the timer covers the remaining ones");
    assert_eq!(testbed.card.next_deadline(), None);
    testbed.write(USER, CR, 0);
    assert_eq!(testbed.read(USER, SR) & DELAY, 0, "cleared with SGMode");
}

#[test]
fn cdma_introut_is_level_on_user_interrupt() {
    let mut description = small();
    description.interrupts.cdma_user_irq = 3;
    let mut testbed = CardTestbed::with(description);
    testbed.write(DMA, 0x2004, 1 << 3);
    testbed.write(DMA, 0x2080, 0x0B00_0000);
    testbed.write(USER, CR, IOC);
    simple(&mut testbed, 0, 0x100, 16);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x2048), 1 << 3);
    assert_eq!(testbed.host.interrupts, [11]);
    testbed.run();
    assert_eq!(testbed.host.interrupts, [11], "one message per edge");
    testbed.write(USER, SR, IOC);
    assert_eq!(testbed.read(DMA, 0x2048), 0);
    // Masked while it fires, then unmasked: the interrupt is not lost.
    testbed.write(DMA, 0x200C, 1 << 3);
    simple(&mut testbed, 0, 0x100, 16);
    testbed.run();
    assert_eq!(testbed.host.interrupts, [11]);
    testbed.write(DMA, 0x2008, 1 << 3);
    assert_eq!(testbed.host.interrupts, [11, 11]);
}

#[test]
fn cdma_keyhole_address_stays() {
    let mut testbed = CardTestbed::new();
    let data = pattern(192, 7);
    testbed.poke(0x1000, &data);
    testbed.write(USER, CR, KEYHOLE_WRITE);
    simple(&mut testbed, 0x1000, 0x2000, 192);
    testbed.run();
    assert_eq!(testbed.memory(0x2000, 64), &data[128..]);
    assert_eq!(testbed.memory(0x2040, 64), [0; 64]);
    testbed.write(USER, CR, KEYHOLE_READ);
    simple(&mut testbed, 0x1000, 0x3000, 192);
    testbed.run();
    assert_eq!(testbed.memory(0x3000, 192), data[..64].repeat(3));
}

#[test]
fn cdma_registers_are_fixed_while_busy() {
    let mut testbed = CardTestbed::new();
    simple(&mut testbed, 0, 0x100, 16);
    testbed.write(USER, CDMA + 0x18, 0x99);
    assert_eq!(testbed.read(USER, CDMA + 0x18), 0);
    testbed.run();
    testbed.write(USER, CDMA + 0x18, 0x99);
    assert_eq!(testbed.read(USER, CDMA + 0x18), 0x99);
}
