//! CDMA registers, driven directly as PG034 describes.

use crate::support::*;
use fpga_registers::CardAddr;

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

fn simple(bench: &mut CardTestbed, source: u64, destination: u64, length: u32) {
    for (at, value) in [
        (0x18, source as u32),
        (0x1C, (source >> 32) as u32),
        (0x20, destination as u32),
        (0x24, (destination >> 32) as u32),
        (0x28, length),
    ] {
        bench.write(USER, CDMA + at, value);
    }
}

fn descriptor(bench: &mut CardTestbed, at: u64, next: u64, source: u64, destination: u64, length: u32) {
    let mut bytes = Vec::new();
    bytes.extend(next.to_le_bytes());
    bytes.extend(source.to_le_bytes());
    bytes.extend(destination.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend([0; 4]);
    bench.poke(at, &bytes);
}

/// Three descriptors of 100 bytes, 0x1000 to 0x2000 on.
fn chain(bench: &mut CardTestbed) {
    for index in 0..3 {
        let at = CHAIN + 64 * index;
        descriptor(bench, at, at + 64, 0x1000 + 100 * index, 0x2000 + 100 * index, 100);
    }
}

fn start_sg(bench: &mut CardTestbed, control: u32, current: u64, tail: u64) {
    bench.write(USER, CR, control & !SG_MODE);
    bench.write(USER, CR, control | SG_MODE);
    bench.write(USER, CDMA + 0x08, current as u32);
    bench.write(USER, CDMA + 0x0C, (current >> 32) as u32);
    bench.write(USER, CDMA + 0x10, tail as u32);
    bench.write(USER, CDMA + 0x14, (tail >> 32) as u32);
}

fn state(bench: &CardTestbed, at: u64) -> u32 {
    u32::from_le_bytes(bench.memory(at + 0x1C, 4).try_into().expect("four bytes"))
}

#[test]
fn cdma_reset_values_match_pg034() {
    let mut bench = CardTestbed::new();
    assert_eq!(bench.read(USER, CR), 0x0001_0002);
    assert_eq!(bench.read(USER, SR), 0x0001_000A, "threshold 1, SG included, idle");
    for at in (0x08..=0x28).step_by(4) {
        assert_eq!(bench.read(USER, CDMA + at), 0);
    }
    let mut description = small();
    description.cdma.sg = false;
    let mut bench = CardTestbed::with(description);
    assert_eq!(bench.read(USER, SR), IDLE);
}

#[test]
fn cdma_simple_copy_moves_bytes() {
    let mut bench = CardTestbed::new();
    let data = pattern(300_000, 4);
    bench.poke(0x1_0003, &data);
    bench.write(USER, CR, IOC);
    simple(&mut bench, 0x1_0003, 0x20_0001, 300_000);
    assert_eq!(bench.read(USER, SR) & IDLE, 0);
    assert_eq!(bench.memory(0x20_0001, 16), [0; 16], "nothing happens before the next step");
    bench.run();
    assert_eq!(bench.memory(0x20_0001, data.len()), data);
    assert_eq!(bench.read(USER, SR) & (IDLE | IOC | 0x770), IDLE | IOC);
    bench.write(USER, SR, IOC);
    assert_eq!(bench.read(USER, SR) & IOC, 0, "write 1 to clear");
    assert_eq!(bench.card.counters().cdma_bytes, 300_000);
}

#[test]
fn cdma_copies_within_page_and_overlapping_backwards() {
    let mut bench = CardTestbed::new();
    let data = pattern(5000, 5);
    bench.poke(0x100, &data);
    simple(&mut bench, 0x100, 0x8000, 5000);
    bench.run();
    assert_eq!(bench.memory(0x8000, 5000), data);
    simple(&mut bench, 0x8000, 0x1_FF00, 5000);
    bench.run();
    assert_eq!(bench.memory(0x1_FF00, 5000), data);
}

#[test]
fn cdma_zero_byte_count_is_internal_error_until_reset() {
    let mut bench = CardTestbed::new();
    simple(&mut bench, 0, 0x100, 0);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x7770, 1 << 4 | ERROR);
    bench.write(USER, SR, 0x7770);
    assert_eq!(bench.read(USER, SR) & 0x7770, 1 << 4, "the error itself is not write-1-to-clear");
    simple(&mut bench, 0, 0x100, 16);
    bench.run();
    assert_eq!(bench.card.counters().cdma_descriptors, 0, "halted");
    bench.write(USER, CR, 1 << 2);
    assert_eq!(bench.read(USER, CR) & 1 << 2, 1 << 2, "reset in progress");
    bench.run();
    assert_eq!(bench.read(USER, CR), 0x0001_0002);
    assert_eq!(bench.read(USER, SR), 0x0001_000A);
    simple(&mut bench, 0, 0x100, 16);
    bench.run();
    assert_eq!(bench.card.counters().cdma_descriptors, 1);
}

#[test]
fn cdma_bad_address_is_decode_or_slave_error() {
    let mut bench = CardTestbed::new();
    simple(&mut bench, 64 << 20, 0, 16);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 6);
    bench.write(USER, CR, 1 << 2);
    bench.run();
    bench.card.poison(CardAddr::new(0x5000), 64);
    simple(&mut bench, 0, 0x4FF0, 64);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 5);
}

#[test]
fn cdma_without_dre_unaligned_is_refused() {
    let mut description = small();
    description.cdma.dre = false;
    let mut bench = CardTestbed::with(description);
    simple(&mut bench, 64, 0x1000, 100);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 0);
    simple(&mut bench, 8, 0x1000, 100);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 4);
}

#[test]
fn cdma_byte_count_has_build_width() {
    let mut description = small();
    description.cdma.max_length_bits = 23;
    let mut bench = CardTestbed::with(description);
    simple(&mut bench, 0, 0x100, 0xFFFF_FFFF);
    assert_eq!(bench.read(USER, CDMA + 0x28), 0x7F_FFFF);
}

#[test]
fn cdma_sg_chain_runs_and_continues() {
    let mut bench = CardTestbed::new();
    let data = pattern(300, 6);
    bench.poke(0x1000, &data);
    chain(&mut bench);
    start_sg(&mut bench, IOC, CHAIN, CHAIN + 64);
    bench.run();
    assert_eq!(bench.memory(0x2000, 200), &data[..200], "up to the tail");
    assert_eq!(
        [state(&bench, CHAIN), state(&bench, CHAIN + 64), state(&bench, CHAIN + 128)],
        [1 << 31, 1 << 31, 0]
    );
    assert_eq!(bench.read(USER, SR) & (IDLE | 0x770), IDLE);
    assert_eq!(bench.read(USER, CDMA + 0x08), CHAIN as u32 + 64, "CURDESC follows");
    // Writing CURDESC without a toggle has no effect: the engine continues with the next descriptor.
    bench.write(USER, CDMA + 0x10, CHAIN as u32 + 128);
    assert_eq!(bench.read(USER, SR) & IDLE, IDLE, "the low word does not start a build with wide addresses");
    bench.write(USER, CDMA + 0x14, 0);
    bench.run();
    assert_eq!(bench.memory(0x2000, 300), data);
    assert_eq!(bench.card.counters().cdma_descriptors, 3);
}

#[test]
fn cdma_32_bit_build_starts_on_low_word() {
    let mut description = small();
    description.cdma.address_width = 32;
    let mut bench = CardTestbed::with(description);
    bench.poke(0x1000, &[9; 300]);
    chain(&mut bench);
    bench.write(USER, CR, SG_MODE);
    bench.write(USER, CDMA + 0x08, CHAIN as u32);
    bench.write(USER, CDMA + 0x0C, 7);
    assert_eq!(bench.read(USER, CDMA + 0x0C), 0, "no high halves");
    bench.write(USER, CDMA + 0x10, CHAIN as u32 + 128);
    bench.run();
    assert_eq!(bench.memory(0x2000, 300), [9; 300]);
}

#[test]
fn cdma_pointers_cleared_outside_sg_mode() {
    let mut bench = CardTestbed::new();
    bench.write(USER, CDMA + 0x08, 0x40);
    assert_eq!(bench.read(USER, CDMA + 0x08), 0);
    bench.write(USER, CR, SG_MODE);
    bench.write(USER, CDMA + 0x08, 0x7F);
    assert_eq!(bench.read(USER, CDMA + 0x08), 0x40, "bits 5:0 are zero");
    bench.write(USER, CR, 0);
    assert_eq!(bench.read(USER, CDMA + 0x08), 0);
}

#[test]
fn cdma_stale_descriptor_is_sg_internal_error() {
    let mut bench = CardTestbed::new();
    chain(&mut bench);
    bench.poke(CHAIN + 64 + 0x1C, &(1_u32 << 31).to_le_bytes());
    start_sg(&mut bench, ERROR, CHAIN, CHAIN + 128);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 8);
    assert_eq!(bench.read(USER, CDMA + 0x08), CHAIN as u32 + 64, "CURDESC holds the failing one");
    assert_eq!(bench.card.counters().cdma_descriptors, 1);
}

#[test]
fn cdma_failing_descriptor_is_marked() {
    let mut bench = CardTestbed::new();
    chain(&mut bench);
    descriptor(&mut bench, CHAIN + 64, CHAIN + 128, 0x1000, 64 << 20, 100);
    start_sg(&mut bench, ERROR, CHAIN, CHAIN + 128);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 6);
    assert_eq!(state(&bench, CHAIN + 64), 1 << 30);
    descriptor(&mut bench, CHAIN, CHAIN + 64, 0x1000, 0x2000, 0);
    bench.write(USER, CR, 1 << 2);
    bench.run();
    start_sg(&mut bench, ERROR, CHAIN, CHAIN);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 4);
    assert_eq!(state(&bench, CHAIN), 1 << 28);
}

#[test]
fn cdma_chain_outside_memory_is_sg_decode_error() {
    let mut bench = CardTestbed::new();
    start_sg(&mut bench, ERROR, 1 << 40, 1 << 40);
    bench.run();
    assert_eq!(bench.read(USER, SR) & 0x770, 1 << 10);
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
            let mut bench = CardTestbed::with(description);
            for index in 0..4 {
                let at = CHAIN + 64 * index;
                descriptor(&mut bench, at, at + 64, 0x1000 + 0x100 * index, 0x2_0000 + 0x100 * index, 0x100);
            }
            bench.poke(0x1000, &pattern(0x400, 3));
            bench.poke(GUARD + 0x1C, &(1_u32 << 31).to_le_bytes());
            let narrow = width == 32;
            start_sg(&mut bench, ERROR, CHAIN, CHAIN + 64);
            for _ in 0..before {
                bench.step();
            }
            let at_rest = bench.read(USER, SR) & IDLE != 0;
            bench.write(USER, CDMA + 0x10, (CHAIN + 64 * 3) as u32);
            for _ in 0..between {
                bench.step();
            }
            let reached = bench.read(USER, SR) & IDLE != 0;
            bench.write(USER, CDMA + 0x14, 0);
            bench.run();
            let what = format!("{width} bits, {before} and {between} steps");
            assert_eq!(bench.card.counters().cdma_descriptors, 4, "{what}: each once");
            assert_eq!(bench.memory(0x2_0000, 0x400), pattern(0x400, 3), "{what}");
            let (errors, current) = (bench.read(USER, SR) & 0x770, bench.read(USER, CDMA + 0x08));
            assert_ne!(bench.read(USER, SR) & IDLE, 0, "{what}");
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
    let mut bench = CardTestbed::new();
    bench.poke(0x1000, &[3; 300]);
    chain(&mut bench);
    descriptor(&mut bench, CHAIN, CHAIN + 64, 0x1000, 0x2000, 100);
    start_sg(&mut bench, 0, CHAIN, CHAIN);
    bench.write(USER, CDMA + 0x10, CHAIN as u32 + 128);
    bench.write(USER, CDMA + 0x14, 0);
    bench.run();
    assert_eq!(bench.card.counters().cdma_descriptors, 3);
}

#[test]
fn cdma_cyclic_chain_runs_until_reset() {
    let mut bench = CardTestbed::new();
    chain(&mut bench);
    descriptor(&mut bench, CHAIN + 128, CHAIN, 0x1000, 0x3000, 4);
    start_sg(&mut bench, CYCLIC, CHAIN, 0x50);
    for _ in 0..100 {
        assert!(bench.step(), "Cmplt does not stop a cyclic chain");
    }
    assert!(bench.card.counters().cdma_descriptors > 50);
    bench.write(USER, CR, 1 << 2);
    bench.run();
    assert_eq!(bench.read(USER, SR) & (IDLE | 0x770), IDLE);
}

#[test]
fn cdma_threshold_and_delay_interrupts() {
    let mut bench = CardTestbed::new();
    chain(&mut bench);
    // Two descriptors per interrupt, delay of 4 ticks of 500 ns.
    start_sg(&mut bench, IOC | DELAY | 2 << 16 | 4 << 24, CHAIN, CHAIN + 128);
    assert_eq!(bench.read(USER, SR) >> 16 & 0xFF, 2);
    bench.step();
    assert_eq!(bench.read(USER, SR) & (IOC | 0xFF_0000), 1 << 16, "one more to go");
    bench.step();
    assert_eq!(bench.read(USER, SR) & (IOC | 0xFF_0000), IOC | 2 << 16, "fires and reloads");
    bench.write(USER, SR, IOC);
    bench.run();
    assert_eq!(bench.read(USER, SR) & (IOC | DELAY), 0, "one remains");
    let deadline = bench.card.next_deadline().expect("the delay timer runs");
    bench.now = deadline.get();
    bench.step();
    assert_eq!(bench.read(USER, SR) & (IOC | DELAY), DELAY, "the timer covers the remaining ones");
    assert_eq!(bench.card.next_deadline(), None);
    bench.write(USER, CR, 0);
    assert_eq!(bench.read(USER, SR) & DELAY, 0, "cleared with SGMode");
}

#[test]
fn cdma_introut_is_level_on_user_interrupt() {
    let mut description = small();
    description.interrupts.cdma_user_irq = 3;
    let mut bench = CardTestbed::with(description);
    bench.write(DMA, 0x2004, 1 << 3);
    bench.write(DMA, 0x2080, 0x0B00_0000);
    bench.write(USER, CR, IOC);
    simple(&mut bench, 0, 0x100, 16);
    bench.run();
    assert_eq!(bench.read(DMA, 0x2048), 1 << 3);
    assert_eq!(bench.host.interrupts, [11]);
    bench.run();
    assert_eq!(bench.host.interrupts, [11], "one message per edge");
    bench.write(USER, SR, IOC);
    assert_eq!(bench.read(DMA, 0x2048), 0);
    // Masked while it fires, then unmasked: the interrupt is not lost.
    bench.write(DMA, 0x200C, 1 << 3);
    simple(&mut bench, 0, 0x100, 16);
    bench.run();
    assert_eq!(bench.host.interrupts, [11]);
    bench.write(DMA, 0x2008, 1 << 3);
    assert_eq!(bench.host.interrupts, [11, 11]);
}

#[test]
fn cdma_keyhole_address_stays() {
    let mut bench = CardTestbed::new();
    let data = pattern(192, 7);
    bench.poke(0x1000, &data);
    bench.write(USER, CR, KEYHOLE_WRITE);
    simple(&mut bench, 0x1000, 0x2000, 192);
    bench.run();
    assert_eq!(bench.memory(0x2000, 64), &data[128..]);
    assert_eq!(bench.memory(0x2040, 64), [0; 64]);
    bench.write(USER, CR, KEYHOLE_READ);
    simple(&mut bench, 0x1000, 0x3000, 192);
    bench.run();
    assert_eq!(bench.memory(0x3000, 192), data[..64].repeat(3));
}

#[test]
fn cdma_registers_are_fixed_while_busy() {
    let mut bench = CardTestbed::new();
    simple(&mut bench, 0, 0x100, 16);
    bench.write(USER, CDMA + 0x18, 0x99);
    assert_eq!(bench.read(USER, CDMA + 0x18), 0);
    bench.run();
    bench.write(USER, CDMA + 0x18, 0x99);
    assert_eq!(bench.read(USER, CDMA + 0x18), 0x99);
}
