//! Accesses without a response whose client disconnects.

use fpga_driver::Card;
use fpga_registers::BarOffset;

use crate::bars::{BYPASS, Client, USER};
use crate::cdma;
use crate::simulator::{Simulation, read, write};

/// Registers of the reference top level: ID; one that answers after a write to [`RELEASE`]; one that never answers.
const ID: BarOffset = BarOffset::new(0);
const LATE: u64 = 0x20;
const RELEASE: u64 = 0xF_F000;
const SILENT: u64 = 0x1000;

/// Checks that transfers, which do not depend on the AXI-Lite master, work.
fn transfers_work(card: &Card) {
    let data = [0xC3; 3000];
    write(card, 0, 0x321, &data);
    assert_eq!(read(card, 1, 0x321, data.len()), data);
    assert_eq!(card.dma_bar().read32(BarOffset::new(0)).unwrap() >> 20, 0x1FC);
}

#[test]
fn next_client_is_served_after_hung_register_read() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let mut client = Client::connect(simulation.socket());
    client.begin_read(USER, SILENT, 4);
    drop(client);
    let card = simulation.card();
    transfers_work(&card);
    // A reset ends the access on the bus.
    drop(card);
    Client::connect(simulation.socket()).reset();
    let card = simulation.card();
    assert_eq!(card.user_bar().unwrap().read32(ID).unwrap(), 0x4652_4546);
    drop(card);
    let output = simulation.end();
    assert!(output.contains("has disconnected without the response"), "{output}");
    assert!(!output.contains("late response"), "{output}");
}

#[test]
fn late_response_to_disconnected_client_is_dropped_and_counted() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    for _ in 0..2 {
        let mut client = Client::connect(simulation.socket());
        client.begin_read(USER, LATE, 4);
        drop(client);
        let card = simulation.card();
        write(&card, 0, RELEASE, &[1; 64]);
        // The next access gets its own response.
        assert_eq!(card.user_bar().unwrap().read32(ID).unwrap(), 0x4652_4546);
        transfers_work(&card);
        drop(card);
        Client::connect(simulation.socket()).reset();
    }
    let output = simulation.end();
    assert_eq!(output.matches("late response to").count(), 2, "{output}");
    assert!(output.contains("dropped=2"), "{output}");
}

#[test]
fn next_client_is_served_after_hung_bypass_access() {
    let folder = tempfile::tempdir().unwrap();
    let description = folder.path().join("card.yaml");
    // The first 4 KiB of the BAR never answer.
    let text = "schema_version: 3\nbars: {bypass: {size: 0x4000000, width: 64, card_address: 0x40000000}}\n\
                xdma: {data_width: 256, h2c_channels: 1, c2h_channels: 1}\nmemory: {size: 0x10000}\n";
    std::fs::write(&description, text).unwrap();
    let card_file = format!("+fpga_card={}", description.display());
    let Some(simulation) = cdma::start_with(256, &[&card_file]) else { return };
    for is_write in [false, true] {
        let mut client = Client::connect(simulation.socket());
        if is_write {
            client.begin_write(BYPASS, 0x40, &[1; 4]);
        } else {
            client.begin_read(BYPASS, 0x40, 4);
        }
        drop(client);
        let mut client = Client::connect(simulation.socket());
        assert_eq!(client.read(USER, 0, 4), 0x4652_4546_u32.to_le_bytes());
        client.reset();
        // No slave at this address: all ones, but an answer.
        assert_eq!(client.read(BYPASS, 0x1000, 4), [0xFF; 4]);
    }
    simulation.end();
}
