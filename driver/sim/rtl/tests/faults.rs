//! Slaves that refuse or do not answer.

use std::time::{Duration, Instant};

use fpga_driver::recovery::{RecoveryLevel, RecoveryOptions};
use fpga_driver::{CardAddr, WaitOptions};
use fpga_registers::BarOffset;

use crate::simulator::{Simulation, read, write};

/// Ranges of the reference RAM: no slave, never answers, SLVERR.
const BEYOND: u64 = 1 << 20;
const SILENT: u64 = 0x4000_0000;
const REFUSED: u64 = 0x5000_0000;

/// H2C identifier register of channel 0 in the DMA BAR.
const IDENTIFIER: BarOffset = BarOffset::new(0);

#[test]
fn error_responses_end_transfer_with_typed_error() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let data = [0x5A; 10_000];
    for (at, word) in [(BEYOND, "decode"), (REFUSED, "slave")] {
        let mut h2c = card.h2c(0).unwrap();
        let failed = h2c.write(card.buffer_from(&data).unwrap(), CardAddr::new(at)).unwrap_err();
        assert!(failed.to_string().to_lowercase().contains(word), "{failed}");
        assert!(failed.buffer.is_some());
        let mut c2h = card.c2h(0).unwrap();
        let failed = c2h.read(card.buffer(4096).unwrap(), CardAddr::new(at)).unwrap_err();
        assert!(failed.to_string().to_lowercase().contains(word), "{failed}");
        drop((h2c, c2h));
        write(&card, 0, 0x123, &data);
        assert_eq!(read(&card, 0, 0x123, data.len()), data);
    }
    drop(card);
    simulation.end_without_violations();
}

#[test]
fn silent_slave_hangs_its_channel_until_reset() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let identifier = card.dma_bar().read32(IDENTIFIER).unwrap();
    let data = [0xA5; 5000];
    write(&card, 0, 0, &data);
    let mut h2c = card.h2c(0).unwrap();
    let options = WaitOptions::default().timeout(Duration::from_millis(300));
    let failed =
        h2c.write_with(card.buffer_from(&data).unwrap(), CardAddr::new(SILENT), options).unwrap_err();
    assert!(failed.buffer.is_none(), "the engine may still read it: {failed}");
    // Registers answer, and the other direction works.
    assert_eq!(card.dma_bar().read32(IDENTIFIER).unwrap(), identifier);
    assert_eq!(card.user_bar().unwrap().read32(BarOffset::new(0)).unwrap(), 0x4652_4546);
    assert_eq!(read(&card, 1, 0, data.len()), data);
    drop(h2c);
    card.recover(RecoveryLevel::Function).unwrap();
    drop(card);
    // The reset reaches the design.
    let card = simulation.card();
    write(&card, 0, 77, &data);
    assert_eq!(read(&card, 0, 77, data.len()), data);
    drop(card);
    simulation.end_without_violations();
}

#[test]
fn wrong_burst_length_is_reported_and_ends_transfer() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let mut c2h = card.c2h(0).unwrap();
    let failed = c2h.read(card.buffer(2048).unwrap(), CardAddr::new(0x6000_0000)).unwrap_err();
    assert!(failed.to_string().to_lowercase().contains("decode"), "{failed}");
    drop(c2h);
    write(&card, 0, 0x40, b"still here");
    assert_eq!(read(&card, 0, 0x40, 10), b"still here");
    drop(card);
    let output = simulation.end();
    assert!(
        output.contains("of the burst of C2h(0) at 0x60000000 has RLAST 1, but the burst has"),
        "{output}"
    );
}

#[test]
fn unknown_response_id_is_reported() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let mut h2c = card.h2c(0).unwrap();
    let options = WaitOptions::default().timeout(Duration::from_millis(300));
    let buffer = card.buffer_from(&[1; 100]).unwrap();
    let failed = h2c.write_with(buffer, CardAddr::new(0x7000_0000), options).unwrap_err();
    assert!(failed.buffer.is_none(), "the engine may still read it: {failed}");
    drop(h2c);
    card.recover(RecoveryLevel::Function).unwrap();
    drop(card);
    let card = simulation.card();
    write(&card, 0, 0x40, b"still here");
    assert_eq!(read(&card, 0, 0x40, 10), b"still here");
    drop(card);
    let output = simulation.end();
    assert!(output.contains("B response with id 15, which no outstanding burst has"), "{output}");
}

#[test]
fn reset_during_transfer_ends_it_with_error() {
    let Some(simulation) = Simulation::start(&["+reset_at=1000"]) else { return };
    let card = simulation.card();
    let mut h2c = card.h2c(0).unwrap();
    let options = WaitOptions::default().timeout(Duration::from_secs(2));
    let data = vec![7; 200_000];
    let failed = h2c.write_with(card.buffer_from(&data).unwrap(), CardAddr::ZERO, options).unwrap_err();
    assert!(!failed.to_string().is_empty());
    drop(h2c);
    let _ = card.recover(RecoveryLevel::Function);
    drop(card);
    let card = simulation.card();
    write(&card, 0, 0, &data);
    assert!(read(&card, 0, 0, data.len()) == data);
    drop(card);
    let output = simulation.end();
    assert!(output.contains("sys_rst_n is low: the card is reset"), "{output}");
}

#[test]
fn silent_register_reads_all_ones_after_timeout() {
    let Some(simulation) = Simulation::start(&["+fpga_read_timeout=5000"]) else { return };
    let card = simulation.card();
    let began = Instant::now();
    assert_eq!(card.user_bar().unwrap().read32(BarOffset::new(0x1000)).unwrap(), u32::MAX);
    assert!(began.elapsed() < Duration::from_secs(120));
    // DMA does not depend on the AXI-Lite master.
    write(&card, 0, 5, b"still here");
    assert_eq!(read(&card, 0, 5, 10), b"still here");
    drop(card);
    simulation.end();
}

#[test]
fn silent_register_has_a_completion_timeout_by_default() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let card = simulation.card();
    let user = card.user_bar().unwrap();
    assert_eq!(user.read32(BarOffset::new(0x1000)).unwrap(), u32::MAX);
    // Neither configuration space nor the DMA engine waits for the read that stays on the bus.
    assert_eq!(card.dma_bar().read32(BarOffset::new(0)).unwrap() >> 20, 0x1FC);
    write(&card, 0, 5, b"still here");
    assert_eq!(read(&card, 0, 5, 10), b"still here");
    drop(card);
    simulation.end();
}

/// While a read waits for the design, without limit here, the other accesses of the program are answered; a reset ends it.
#[test]
fn silent_register_holds_up_no_other_access() {
    let Some(simulation) = Simulation::start(&["+fpga_read_timeout=0"]) else { return };
    let card = simulation.card();
    std::thread::scope(|scope| {
        let silent = card.user_bar().unwrap();
        let read = scope.spawn(|| silent.read32(BarOffset::new(0x1000)));
        for round in 0..20 {
            assert_eq!(card.dma_bar().read32(IDENTIFIER).unwrap() >> 20, 0x1FC);
            write(&card, 0, round, b"still here");
            assert_eq!(self::read(&card, 0, round, 10), b"still here");
        }
        assert!(!read.is_finished());
        card.recover_with(&RecoveryOptions::default().at_least(RecoveryLevel::Function).force(true)).unwrap();
        // The handle is stale after the reset.
        let ended = read.join().unwrap();
        assert!(ended.is_err() || ended == Ok(u32::MAX), "{ended:?}");
    });
    drop(card);
    simulation.end();
}
