//! Several instances of `fpga_xdma` in one simulation.

use std::process::Command;

use fpga_driver::Card;
use fpga_registers::BarOffset;

use crate::simulator::{REFERENCE, Simulation, build, read, write};

/// Registers of the reference top level.
const SCRATCH: BarOffset = BarOffset::new(4);
const CYCLES: BarOffset = BarOffset::new(0x14);

fn model() -> Option<std::path::PathBuf> {
    let sources = [&REFERENCE[..], &["reference/pair_top.sv"]].concat();
    build("pair_top", &sources, &[], "rtl-pair")
}

/// Works with two cards of one simulation, one after the other and both at once. Returns the cycles of both at the end.
fn run(clock: &str) -> Option<[u32; 2]> {
    let program = model()?;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("second");
    let mut simulation = Simulation::run(&program, &[clock, &format!("+fpga_socket.1={}", socket.display())]);
    simulation.wait_until_ready();
    let cards = [simulation.card(), Card::open(&format!("vfio-user:{}", socket.display())).unwrap()];
    assert_eq!(cards.each_ref().map(|card| card.info().xdma.h2c_channels), [1, 2]);
    for round in 0..10_u32 {
        for (number, card) in (0..).zip(&cards) {
            let data = vec![u8::try_from(round * 2 + number).unwrap(); 5000];
            write(card, 0, u64::from(round) * 0x2000, &data);
            let registers = card.user_bar().unwrap();
            registers.write32(SCRATCH, round * 2 + number).unwrap();
            // The write is posted: without a read, the other card's operations begin meanwhile.
            assert_eq!(registers.read32(SCRATCH).unwrap(), round * 2 + number);
        }
        for (number, card) in (0..).zip(&cards) {
            let data = read(card, 0, u64::from(round) * 0x2000, 5000);
            assert!(data.iter().all(|byte| u32::from(*byte) == round * 2 + number));
            assert_eq!(card.user_bar().unwrap().read32(SCRATCH).unwrap(), round * 2 + number);
        }
    }
    let cycles = cards.each_ref().map(|card| card.user_bar().unwrap().read32(CYCLES).unwrap());
    std::thread::scope(|scope| {
        for (number, card) in (0..).zip(&cards) {
            scope.spawn(move || {
                let data = vec![number; 20_000];
                for _ in 0..10 {
                    write(card, 0, 0x1_0003, &data);
                    assert!(read(card, 0, 0x1_0003, data.len()) == data);
                }
            });
        }
    });
    drop(cards);
    simulation.end_without_violations();
    Some(cycles)
}

#[test]
fn two_cards_of_one_simulation_work() {
    let Some(cycles) = run("+fpga_clock=locked") else { return };
    // The host waits for each operation: the same cycles, in whichever thread.
    assert_eq!(run("+fpga_clock=locked"), Some(cycles));
    run("+fpga_clock=free");
}

#[test]
fn silent_slave_of_one_card_does_not_stop_the_other() {
    let Some(program) = model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("second");
    let mut simulation = Simulation::run(&program, &[&format!("+fpga_socket.1={}", socket.display())]);
    simulation.wait_until_ready();
    let mut hung = crate::bars::Client::connect(simulation.socket());
    hung.begin_read(crate::bars::USER, 0x1000, 4);
    let card = Card::open(&format!("vfio-user:{}", socket.display())).unwrap();
    write(&card, 1, 0x77, &[9; 3000]);
    assert_eq!(read(&card, 0, 0x77, 3000), [9; 3000]);
    drop((card, hung));
    simulation.end();
}

#[test]
fn second_instance_without_socket_is_refused() {
    let Some(program) = model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("+fpga_socket={}", folder.path().join("card").display());
    let output = Command::new(&program).arg(socket).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("instance 1 of fpga_xdma has no socket"), "{text}");
}
