//! AXI CDMA: copies inside the RAM of a top level with two engines.

use std::time::Duration;

use fpga_driver::{CardAddr, Cdma, CdmaRing, CdmaRingOptions, DescriptorPath, WaitOptions};
use fpga_registers::BarOffset;
use fpga_registers::cdma::Cdmasr;

use crate::simulator::{Simulation, build, read, write};

const SOURCES: [&str; 9] = [
    "xdma/fpga_xdma.sv",
    "cdma/fpga_cdma.sv",
    "reference/cdma_top.sv",
    "reference/card_engines.sv",
    "reference/axi_crossbar.sv",
    "reference/axi_widen.sv",
    "reference/axi_ram.sv",
    "reference/reference_registers.sv",
    "check/axi_checker.sv",
];

/// Offsets in the user BAR: with DRE and scatter-gather, and with neither.
pub(crate) const FULL: BarOffset = BarOffset::new(0x4000);
const PLAIN: BarOffset = BarOffset::new(0x8000);
/// Ranges of the RAM model: no slave, SLVERR.
const BEYOND: CardAddr = CardAddr::new(1 << 20);
const REFUSED: CardAddr = CardAddr::new(0x5000_0000);
/// Descriptors of a ring.
const DESCRIPTORS: CardAddr = CardAddr::new(0xF_0000);

pub(crate) fn start(bits: u32, plusarg: &str) -> Option<Simulation> {
    start_with(bits, &[plusarg])
}

pub(crate) fn start_with(bits: u32, plusargs: &[&str]) -> Option<Simulation> {
    let width = format!("-GDATA_WIDTH={bits}");
    Some(Simulation::run(&build("cdma_top", &SOURCES, &[&width], &format!("rtl-cdma-{bits}"))?, plusargs))
}

fn data(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 13 + at / 253 + seed * 71) % 256).unwrap()).collect()
}

fn options() -> WaitOptions {
    WaitOptions::default().timeout(Duration::from_secs(20))
}

#[test]
fn simple_copies_match_reference() {
    for (bits, plusarg) in [(64, "+pressure=1"), (256, "+pressure=2")] {
        let Some(simulation) = start(bits, plusarg) else { return };
        let card = simulation.card();
        let mut ram = data(0x2_0000, 1);
        write(&card, 0, 0, &ram);
        let mut cdma = card.cdma_at(FULL).unwrap();
        for (from, to, length) in
            [(0, 0x1_0000, 4096), (1, 0x8003, 1), (3, 0x9005, 9999), (0x7FF, 0x1_4001, 70)]
        {
            cdma.copy(CardAddr::new(from as u64), CardAddr::new(to as u64), length as u64).unwrap();
            ram.copy_within(from..from + length, to);
        }
        assert!(read(&card, 0, 0, ram.len()) == ram);
        drop((cdma, card));
        simulation.end_without_violations();
    }
}

#[test]
fn ring_copies_match_reference() {
    let Some(simulation) = start(256, "+pressure=4") else { return };
    let card = simulation.card();
    let mut ram = data(0x4_0000, 2);
    write(&card, 0, 0, &ram);
    card.enable_interrupts().unwrap();
    for interrupt in [None, Some(0)] {
        let cdma = card.cdma_at(FULL).unwrap();
        let path = DescriptorPath::channel(card.h2c(0).unwrap());
        let mut ring_options = CdmaRingOptions::new(DESCRIPTORS);
        (ring_options.descriptors, ring_options.copies, ring_options.user_interrupt) = (16, 8, interrupt);
        let mut ring: CdmaRing<usize> =
            cdma.into_ring(path, ring_options).unwrap_or_else(|refused| panic!("{}", refused.error));
        // More copies than the ring has descriptors.
        for number in 0..24 {
            let (from, to, length) = (number * 1001, 0x2_0000 + number * 3001, 1 + number * 97);
            let ticket = ring
                .copy(CardAddr::new(from as u64), CardAddr::new(to as u64), length as u64, number)
                .unwrap();
            ram.copy_within(from..from + length, to);
            if number % 5 == 4 || number == 23 {
                ring.wait(ticket, options()).unwrap();
            }
        }
        let (cdma, _path, _) = ring.close();
        drop(cdma);
    }
    assert!(read(&card, 0, 0, ram.len()) == ram);
    drop(card);
    simulation.end_without_violations();
}

#[test]
fn error_responses_end_in_status_bits() {
    let Some(simulation) = start(256, "+pressure=0") else { return };
    let card = simulation.card();
    let bytes = data(5000, 3);
    write(&card, 0, 0, &bytes);
    let mut cdma: Cdma = card.cdma_at(FULL).unwrap();
    for (from, to, word) in [
        (BEYOND, CardAddr::new(0), "decode"),
        (CardAddr::new(0), REFUSED, "slave"),
        (REFUSED, CardAddr::new(0x1000), "slave"),
    ] {
        let failed = cdma.copy(from, to, 1000).unwrap_err();
        assert!(failed.to_string().to_lowercase().contains(word), "{failed}");
        // The engine was reset and works.
        cdma.copy(CardAddr::new(0), CardAddr::new(0x4000), 5000).unwrap();
        assert!(read(&card, 0, 0x4000, bytes.len()) == bytes);
    }
    drop(cdma);
    // Descriptors beyond the RAM.
    let registers = card.user_bar().unwrap();
    let at = |offset: u64| BarOffset::new(FULL.get() + offset);
    for (offset, value) in [(0x00, 0x1_0008), (0x08, 0x40_0000), (0x0C, 0), (0x10, 0x40_0000), (0x14, 0)] {
        registers.write32(at(offset), value).unwrap();
    }
    let mut status = Cdmasr::from_bits(0);
    while !status.sg_decode_error() {
        status = Cdmasr::from_bits(registers.read32(at(4)).unwrap());
    }
    assert!(status.idle() && status.error_irq(), "{status:?}");
    drop(card);
    simulation.end_without_violations();
}

#[test]
fn engine_without_realignment_refuses_misaligned_address() {
    let Some(simulation) = start(256, "+pressure=0") else { return };
    let card = simulation.card();
    let bytes = data(5000, 4);
    write(&card, 0, 0, &bytes);
    let mut cdma = card.cdma_at(PLAIN).unwrap();
    assert!(!cdma.status().unwrap().sg_included());
    // Aligned addresses, any length.
    cdma.copy(CardAddr::new(0), CardAddr::new(0x4000), 4999).unwrap();
    assert!(read(&card, 0, 0x4000, 4999) == bytes[..4999]);
    let failed = cdma.copy(CardAddr::new(4), CardAddr::new(0x4000), 100).unwrap_err();
    assert!(failed.to_string().to_lowercase().contains("internal"), "{failed}");
    cdma.copy(CardAddr::new(32), CardAddr::new(0x8000), 100).unwrap();
    drop((cdma, card));
    simulation.end_without_violations();
}
