//! AXI4-Stream builds: packets through a loopback of FIFOs.

use std::path::PathBuf;
use std::time::Duration;

use fpga_driver::stream::C2hStreamOptions;
use fpga_driver::{C2hStream, Card, WaitOptions};

use crate::simulator::{Simulation, build};

const SOURCES: [&str; 4] =
    ["xdma/fpga_xdma.sv", "reference/stream_top.sv", "reference/stream_fifo.sv", "check/stream_checker.sv"];

/// Bytes of the FIFOs at 64 bits.
const FIFO: usize = 64 * 8;

fn loopback(bits: u32) -> Option<PathBuf> {
    build("stream_top", &SOURCES, &[&format!("-GDATA_WIDTH={bits}")], &format!("rtl-stream-{bits}"))
}

fn packet(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251 + seed * 31) % 256).unwrap()).collect()
}

fn receiver(card: &Card, channel: u8) -> C2hStream {
    card.c2h_stream_with(channel, C2hStreamOptions::default().buffers(32).buffer_size(1024)).unwrap()
}

fn options() -> WaitOptions {
    WaitOptions::default().timeout(Duration::from_secs(20))
}

/// Ends the simulation; every stream had no violation, and together they had `packets` packets.
fn end(simulation: Simulation, packets: u64) {
    let output = simulation.end();
    let mut found = 0;
    for line in output.lines().filter(|line| line.starts_with("stream_checker")) {
        assert!(line.contains(": 0 violations in "), "{output}");
        let count = line.rsplit_once(" beats, ").unwrap().1.split_once(' ').unwrap().0;
        found += count.parse::<u64>().unwrap();
    }
    assert_eq!(found, packets, "{output}");
    assert!(!output.contains("ERROR"), "{output}");
}

#[test]
fn packets_of_odd_lengths_keep_data_and_ends() {
    for (bits, plusarg) in [(64, "+pressure=0"), (64, "+pressure=3"), (256, "+pressure=4")] {
        let Some(program) = loopback(bits) else { return };
        let simulation = Simulation::run(&program, &[plusarg]);
        let card = simulation.card();
        assert!(card.info().xdma.stream);
        let mut sent = 0;
        for channel in 0..2 {
            let mut receiver = receiver(&card, channel);
            let mut sender = card.h2c_stream(channel).unwrap();
            // The card has buffers before any packet is sent.
            assert!(receiver.next_packet().unwrap().is_none());
            for length in [1, 7, 8, 9, 31, 32, 33, 64, 255, 1023, 1024, 1025, 4097, 9999] {
                let data = packet(length, sent);
                sender.send_with(card.buffer_from(&data).unwrap(), options()).unwrap();
                assert!(receiver.wait_packet(options()).unwrap().to_vec() == data, "{length} bytes");
                sent += 1;
            }
        }
        drop(card);
        end(simulation, sent as u64);
    }
}

#[test]
fn packets_in_flight_arrive_in_order() {
    for bits in [64, 256] {
        let Some(program) = loopback(bits) else { return };
        let simulation = Simulation::run(&program, &["+pressure=9"]);
        let card = simulation.card();
        let mut receivers = [receiver(&card, 0), receiver(&card, 1)];
        let mut senders = [card.h2c_stream(0).unwrap(), card.h2c_stream(1).unwrap()];
        let lengths = [5, 1500, 64, 3, 2048, 777, 1, 128];
        for (channel, sender) in senders.iter_mut().enumerate() {
            for (number, length) in lengths.into_iter().enumerate() {
                let data = packet(length, channel * 100 + number);
                sender.submit(card.buffer_from(&data).unwrap()).unwrap();
            }
            sender.poll().unwrap();
        }
        for (channel, receiver) in receivers.iter_mut().enumerate() {
            for (number, length) in lengths.into_iter().enumerate() {
                let data = receiver.wait_packet(options()).unwrap().to_vec();
                assert!(data == packet(length, channel * 100 + number), "{bits} bits, packet {number}");
            }
        }
        drop((receivers, senders));
        drop(card);
        end(simulation, 2 * lengths.len() as u64);
    }
}

#[test]
fn stream_without_buffers_stalls_its_sender() {
    let Some(program) = loopback(64) else { return };
    let simulation = Simulation::run(&program, &["+pressure=2"]);
    let card = simulation.card();
    let mut sender = card.h2c_stream(0).unwrap();
    let small = packet(FIFO / 2, 1);
    // It fits into the FIFO: the sender is done before any buffer is posted.
    sender.send_with(card.buffer_from(&small).unwrap(), options()).unwrap();
    let large = packet(10 * FIFO, 2);
    let short = WaitOptions::default().timeout(Duration::from_millis(300));
    let failed = sender.send_with(card.buffer_from(&large).unwrap(), short).unwrap_err();
    assert!(failed.buffer.is_none(), "{failed}");
    let mut receiver = receiver(&card, 0);
    assert!(receiver.wait_packet(options()).unwrap().to_vec() == small);
    assert!(receiver.wait_packet(options()).unwrap().to_vec() == large);
    drop((receiver, sender));
    drop(card);
    end(simulation, 2);
}

#[test]
fn reopened_receiver_gets_packet_that_was_sent_before() {
    let Some(program) = loopback(64) else { return };
    let simulation = Simulation::run(&program, &[]);
    for number in 0..3 {
        let card = simulation.card();
        let mut sender = card.h2c_stream(0).unwrap();
        let before = packet(FIFO / 4, number);
        sender.send_with(card.buffer_from(&before).unwrap(), options()).unwrap();
        // The buffers of the last receiver are gone with it: the packet waits in the design.
        let mut receiver = receiver(&card, 0);
        assert!(receiver.wait_packet(options()).unwrap().to_vec() == before);
        let after = packet(100, number + 10);
        sender.send_with(card.buffer_from(&after).unwrap(), options()).unwrap();
        assert!(receiver.wait_packet(options()).unwrap().to_vec() == after);
    }
    end(simulation, 6);
}
