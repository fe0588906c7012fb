//! Descriptor bypass: the design loads the descriptors of both channels.

use std::time::{Duration, Instant};

use fpga_registers::BarOffset;

use crate::simulator::{Simulation, build};

const SOURCES: [&str; 3] = ["xdma/fpga_xdma.sv", "reference/descriptor_top.sv", "reference/axi_ram.sv"];

/// Control, status and count of the H2C channel; those of the C2H channel are `C2H` higher.
const CONTROL: u64 = 0x04;
const COUNT: u64 = 0x48;
const C2H: u64 = 0x1000;
/// Completed, and Stop.
const COMPLETED: u32 = 1 << 1;
const STOP: u32 = 1 << 0;

#[test]
fn loaded_descriptors_move_data_both_ways() {
    let Some(program) = build("descriptor_top", &SOURCES, &[], "rtl-descriptors") else { return };
    let simulation = Simulation::run(&program, &[]);
    let card = simulation.card();
    let data: Vec<u8> = (0..9000_u32).map(|at| at.to_le_bytes()[0].wrapping_mul(3)).collect();
    let (from, into) = (card.buffer_from(&data).unwrap(), card.buffer(data.len()).unwrap());
    let user = card.user_bar().unwrap();
    let load = |source: u64, destination: u64, length: u32, control: u32| {
        for (offset, value) in [(0, source), (8, destination)] {
            user.write32(BarOffset::new(offset), u32::try_from(value & 0xFFFF_FFFF).unwrap()).unwrap();
            user.write32(BarOffset::new(offset + 4), u32::try_from(value >> 32).unwrap()).unwrap();
        }
        user.write32(BarOffset::new(0x10), length).unwrap();
        user.write32(BarOffset::new(0x14), control).unwrap();
    };
    let wait = |channel: u64, count: u32| {
        let began = Instant::now();
        while card.dma_bar().read32(BarOffset::new(channel + COUNT)).unwrap() != count {
            assert!(began.elapsed() < Duration::from_secs(120), "channel {channel:#x}, descriptor {count}");
        }
    };
    let (source, destination) = (from.iova().get(), into.iova().get());
    // Loaded before the run: the port is not ready until software sets Run.
    load(source, 0x100, 5000, COMPLETED);
    assert_eq!(user.read32(BarOffset::new(0x18)).unwrap(), 0);
    card.dma_bar().write32(BarOffset::new(CONTROL), 1).unwrap();
    wait(0, 1);
    load(source + 5000, 0x100 + 5000, 4000, COMPLETED | STOP);
    wait(0, 2);
    card.dma_bar().write32(BarOffset::new(C2H + CONTROL), 1).unwrap();
    load(0x100, destination, 1234, COMPLETED | 1 << 16);
    load(0x100 + 1234, destination + 1234, 9000 - 1234, COMPLETED | 1 << 16);
    wait(C2H, 2);
    let mut read = vec![0; data.len()];
    into.read(0, &mut read).unwrap();
    assert!(read == data);
    assert_eq!(user.read32(BarOffset::new(0x18)).unwrap(), 4);
    drop((from, into));
    drop(card);
    let output = simulation.end();
    assert!(!output.contains("ERROR"), "{output}");
}
