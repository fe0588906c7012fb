//! Registers of a design of your own, described in a YAML file: by name while the program runs, and as types when it is built.
//!
//!     cargo run -p fpga-examples --example register_map
#![forbid(unsafe_code)]

use std::error::Error;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, CardAddr};
use fpga_register_map::{RegisterMap, Registers};

// Made by build.rs of maps/simulated-card.yaml.
include!(concat!(env!("OUT_DIR"), "/simulated_card.rs"));

use simulated_card::{Mode, copier};

const MAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/maps/simulated-card.yaml");

fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::builder().cards(1).build()?;
    let card = Card::open(network.backend(0))?;
    let bar = card.user_bar().ok_or("this card has no user BAR")?;

    let mut buffer = card.buffer(4096)?;
    buffer.fill(0x5A);
    card.h2c(0)?.write(buffer, CardAddr::new(0x1000))?;

    // By name: what is written to a field leaves the rest of its register alone, and values have names.
    let map = RegisterMap::load(MAP.as_ref())?;
    let registers = Registers::new(&map, bar);
    registers.set("copier.control.mode", "simple")?;
    registers.write("copier.source_low", 0x1000)?;
    registers.write("copier.destination_low", 0x8000)?;
    registers.write("copier.length", 4096)?; // This starts it.

    // By type: a field has a method, and what the map does not allow does not compile.
    let status = loop {
        let status = copier::STATUS.read(bar, copier::BASE)?;
        if status.idle() {
            break status;
        }
        network.step();
    };
    println!("copier.status = {status}");
    assert!(status.ended() && !status.decode_error());
    copier::STATUS.write(bar, copier::BASE, copier::Status::default().with_ended(true))?;
    assert_eq!(copier::CONTROL.read(bar, copier::BASE)?.mode(), Ok(Mode::Simple));
    assert_eq!(registers.read("copier.status.ended")?, 0);

    let copy = card.c2h(0)?.read(card.buffer(4096)?, CardAddr::new(0x8000))?;
    assert!(copy.to_vec().iter().all(|byte| *byte == 0x5A));

    // What the map knows, it says before anything is accessed.
    for wrong in ["copier.contrl", "registry.mask"] {
        println!("{}", registers.read(wrong).err().ok_or("there is no such register")?);
    }
    println!("{}", registers.set("settings.scheme", "fastest").err().ok_or("there is no such scheme")?);
    Ok(())
}
