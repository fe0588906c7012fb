//! Data, registers and interrupts.

use std::process::Command;
use std::time::Duration;

use fpga_registers::BarOffset;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use crate::simulator::{Simulation, read, reference, write};

/// Bytes of the reference RAM.
const RAM: usize = 1 << 20;

/// Registers of the reference top level.
const ID: BarOffset = BarOffset::new(0x00);
const SCRATCH: BarOffset = BarOffset::new(0x04);
const INTERRUPT: BarOffset = BarOffset::new(0x08);
const CLEAR: BarOffset = BarOffset::new(0x0C);
const ACKNOWLEDGED: BarOffset = BarOffset::new(0x10);
const CYCLES: BarOffset = BarOffset::new(0x14);

/// Random transfers on both channels, compared with a copy of the RAM.
fn random_transfers(plusargs: &[&str], count: u32) {
    if let Some(simulation) = Simulation::start(plusargs) {
        transfer_at_random(simulation, count);
    }
}

fn transfer_at_random(simulation: Simulation, count: u32) {
    let card = simulation.card();
    let mut random = Pcg64Mcg::new(7);
    let mut below = |limit: usize| usize::try_from(random.next_u64() % limit as u64).unwrap();
    let mut ram = vec![0; RAM];
    // RAM without a reset: its content is defined from here on.
    write(&card, 0, 0, &ram);
    for number in 0..count {
        let length = 1 + match below(4) {
            0 => below(64),
            1 => below(5000),
            2 => 4095,
            _ => below(100_000),
        };
        let at = below(RAM - length);
        let channel = u8::from(below(2) == 1);
        if below(2) == 0 {
            let data: Vec<u8> = (0..length).map(|_| u8::try_from(below(256)).unwrap()).collect();
            ram[at..at + length].copy_from_slice(&data);
            write(&card, channel, at as u64, &data);
        } else {
            let data = read(&card, channel, at as u64, length);
            assert!(data == ram[at..at + length], "transfer {number}: {length} bytes at {at:#x}");
        }
    }
    assert!(read(&card, 0, 0, RAM) == ram);
    drop(card);
    simulation.end_without_violations();
}

/// Bursts of random lengths and alignments, with random back-pressure: as many as `FPGA_RTL_BURSTS` says, or a sample.
#[test]
fn random_bursts_violate_no_rule() {
    let wanted = std::env::var("FPGA_RTL_BURSTS").map_or(20_000, |count| count.parse::<u64>().unwrap());
    let Some(simulation) = Simulation::start(&["+pressure=12"]) else { return };
    let began = std::time::Instant::now();
    let card = simulation.card();
    let mut random = Pcg64Mcg::new(23);
    let mut below = |limit: usize| usize::try_from(random.next_u64() % limit as u64).unwrap();
    let mut bursts = 0;
    let buffer = vec![0x3C; 64 * 1024];
    let mut h2c = card.h2c(0).unwrap();
    let mut c2h = card.c2h(1).unwrap();
    let mut memory = [card.buffer_from(&buffer).unwrap(), card.buffer(buffer.len()).unwrap()].map(Some);
    while bursts < wanted {
        let length = 1 + if below(4) == 0 { below(64) } else { below(buffer.len()) };
        let at = below(RAM - length) as u64;
        bursts += 2 * ((at + length as u64 - 1) / 4096 - at / 4096 + 1);
        let [from, into] = memory.each_mut().map(|place| place.take().unwrap());
        let (mut from, mut into) = (from, into);
        from.set_len(length).unwrap();
        into.set_len(length).unwrap();
        let at = fpga_driver::CardAddr::new(at);
        memory = [h2c.write(from, at).unwrap(), c2h.read(into, at).unwrap()].map(Some);
    }
    drop((memory, h2c, c2h, card));
    let found = simulation.end_without_violations();
    println!("{found} bursts in {:.1} s", began.elapsed().as_secs_f64());
    assert!(found >= wanted);
}

#[test]
fn random_transfers_match_reference() {
    random_transfers(&[], 60);
}

#[test]
fn random_transfers_with_back_pressure_match_reference() {
    random_transfers(&["+pressure=1"], 20);
}

#[test]
fn random_transfers_with_free_clock_match_reference() {
    random_transfers(&["+fpga_clock=free", "+pressure=2"], 20);
}

#[test]
fn random_transfers_match_reference_at_other_widths() {
    for (bits, channels) in [(64, 2), (512, 4)] {
        let Some(program) = reference(bits, channels) else { return };
        let simulation = Simulation::run(&program, &["+pressure=3"]);
        assert_eq!(u32::from(simulation.card().info().xdma.h2c_channels), channels);
        transfer_at_random(simulation, 20);
    }
}

#[test]
fn missing_socket_ends_simulation_with_message() {
    let Some(program) = reference(256, 2) else { return };
    let output = Command::new(program).env_remove("LD_LIBRARY_PATH").output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("help: give +fpga_socket=PATH"), "{text}");
}

#[test]
fn registers_keep_written_values() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let user = card.user_bar().unwrap();
    assert_eq!(user.read32(ID).unwrap(), 0x4652_4546);
    for value in [0, 0x1234_5678, u32::MAX] {
        user.write32(SCRATCH, value).unwrap();
        assert_eq!(user.read32(SCRATCH).unwrap(), value);
    }
    // An address that no register has: DECERR, which the host sees as all ones.
    assert_eq!(user.read32(BarOffset::new(0x800)).unwrap(), u32::MAX);
    drop(card);
    simulation.end();
}

#[test]
fn user_interrupt_arrives_and_is_acknowledged() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let user = card.user_bar().unwrap();
    let interrupts = card.user_interrupts(&[0, 3]).unwrap();
    for round in 1..=3 {
        user.write32(INTERRUPT, 1 << 3).unwrap();
        assert_eq!(interrupts.wait(Duration::from_secs(10)).unwrap(), [(3, 1)]);
        user.write32(CLEAR, 1 << 3).unwrap();
        interrupts.iter().for_each(|interrupt| interrupt.rearm().unwrap());
        assert_eq!(user.read32(ACKNOWLEDGED).unwrap(), round);
    }
    assert_eq!(user.read32(INTERRUPT).unwrap(), 0);
    drop(interrupts);
    drop(card);
    simulation.end();
}

#[test]
fn locked_clock_repeats_run_exactly() {
    let run = || {
        let simulation = Simulation::start(&["+pressure=5"])?;
        let card = simulation.card();
        let user = card.user_bar().unwrap();
        let data: Vec<u8> = (0..70_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut cycles = Vec::new();
        for length in [1, 5000, 70_000] {
            write(&card, 0, 3, &data[..length]);
            cycles.push(user.read32(CYCLES).unwrap());
            assert_eq!(read(&card, 1, 3, length), data[..length]);
            user.write32(SCRATCH, 1).unwrap();
            cycles.push(user.read32(CYCLES).unwrap());
        }
        drop(card);
        simulation.end();
        Some(cycles)
    };
    let Some(first) = run() else { return };
    assert_eq!(run().unwrap(), first);
}
