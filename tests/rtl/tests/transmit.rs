//! Transmit windows against `WindowHeader`: frames, events and faults of random and of broken headers.

use std::collections::HashSet;

use fpga_firmware::NodeId;
use fpga_firmware::event::{EventKind, FaultReason};
use fpga_firmware::window::{WindowHeader, WindowKind};
use fpga_registers::CardAddr;

use crate::scenario::{Build, COMMIT_OFFSET, Scenario, event};

/// Windows one after the other, in random order of the windows: many with broken headers.
pub(crate) fn random_windows(build: Build, seed: u64, count: usize) -> Scenario {
    let mut scenario = Scenario::new(build, seed);
    let mut busy = HashSet::new();
    for _ in 0..count {
        let window = usize::try_from(scenario.random.within(0, build.windows as u64 - 1)).unwrap();
        if !busy.insert(window) {
            scenario.drain();
            busy.clear();
            busy.insert(window);
        }
        let header = scenario.any_header();
        let (mut block, payload) = scenario.block(&header);
        let mut word = header.sequence;
        match scenario.random.within(0, 15) {
            0 => word ^= 1 << scenario.random.within(0, 31),
            1..5 => scenario.random.change(&mut block[..128]),
            5 => {
                scenario.random.change(&mut block[..128]);
                scenario.random.change(&mut block[..128]);
            }
            6 => {
                let last = block.len() - 1;
                block[last] ^= 1;
            }
            _ => {}
        }
        scenario.fill(window, &block, &payload);
        scenario.commit(window, word);
    }
    scenario.drain();
    scenario
}

pub(crate) const BUILDS: [Build; 4] = [
    Build { bus: 64, packet_log2: 7, mask_bits: 32, windows: 3 },
    Build { bus: 128, packet_log2: 6, mask_bits: 64, windows: 32 },
    Build { bus: 256, packet_log2: 8, mask_bits: 32, windows: 1 },
    Build { bus: 512, packet_log2: 9, mask_bits: 32, windows: 8 },
];

#[test]
fn random_windows_send_the_packets_of_the_engine() {
    for build in fpga_ni_tests::sizes(&[BUILDS[0], BUILDS[3]], &[BUILDS[1], BUILDS[2]]) {
        let Some(program) = build.default_program() else { return };
        for (seed, pace, reports, host_reads) in [(1, 256, 256, 0), (2, 120, 30, 100)] {
            let mut scenario = random_windows(build, u64::from(seed) + build.bus as u64, 500);
            let mut input = vec![b'P'];
            input.extend(u16::try_from(pace).unwrap().to_le_bytes());
            scenario.input.splice(0..0, input);
            let result = scenario.run(&program, seed, reports, host_reads);
            result.unwrap_or_else(|error| panic!("bus {}, seed {seed}: {error}", build.bus));
        }
    }
}

#[test]
fn busy_and_disabled_windows_refuse_commits() {
    let build = BUILDS[0];
    let Some(program) = build.default_program() else { return };
    let mut scenario = Scenario::new(build, 5);
    for round in 0..20 {
        // The port accepts nothing: the first window stays in progress, the second one queued.
        scenario.set_pace(0);
        for window in [0, 1] {
            let header = loop {
                let header = scenario.header(WindowKind::Data);
                if header.packet_count > 8
                    && header.packet_size_log2 == build.packet_log2
                    && header.packet_count < 30
                {
                    break header;
                }
            };
            let (block, payload) = scenario.block(&header);
            scenario.fill(window, &block, &payload);
            scenario.commit(window, header.sequence);
        }
        scenario.wait(200);
        for window in [1, 0] {
            let word = scenario.memory[window][COMMIT_OFFSET..COMMIT_OFFSET + 4].to_vec();
            scenario.write(window, COMMIT_OFFSET, &word);
            scenario.wait(20);
            let reason = FaultReason::WindowBusy.value();
            scenario.faults.push(event(EventKind::Fault, reason, window, [0; 3], 0));
        }
        // Disabled in progress: windows continue later, commits are ignored.
        scenario.set_enable(false);
        scenario.write(2, COMMIT_OFFSET, &7_u32.to_le_bytes());
        scenario.set_pace(256);
        scenario.wait(if round % 2 == 0 { 3000 } else { 10 });
        scenario.set_enable(true);
        scenario.drain();
        scenario.commit(2, 0);
    }
    // Without a node number, valid windows are refused.
    scenario.set_node(NodeId::ANY.get());
    let header = scenario.header(WindowKind::Arrival);
    let (block, payload) = scenario.block(&header);
    scenario.fill(0, &block, &payload);
    scenario.commit(0, header.sequence);
    scenario.drain();
    scenario.run(&program, 1, 256, 0).unwrap();
}

#[test]
fn packet_takes_its_beats_and_four_cycles() {
    for build in fpga_ni_tests::sizes(&[BUILDS[0], BUILDS[3]], &[BUILDS[1], BUILDS[2]]) {
        let Some(program) = build.default_program() else { return };
        for path_list in [false, true] {
            let mut scenario = Scenario::new(build, 9);
            let size = 1_u64 << build.packet_log2;
            let count = build.mask_bits as u64;
            let (base, transfer_base, transfer_length, segment, segment_count) =
                scenario.random.segment(count * size);
            let header = WindowHeader {
                base: CardAddr::new(base),
                transfer_base: CardAddr::new(transfer_base),
                transfer_length,
                segment,
                segment_count,
                segment_length: u32::try_from(count * size).unwrap(),
                segment_packets: u16::try_from(count).unwrap(),
                first_packet: 0,
                packet_count: u16::try_from(count).unwrap(),
                packet_size_log2: build.packet_log2,
                path_list,
                ..scenario.header(WindowKind::Data)
            };
            let (block, payload) = scenario.block(&header);
            scenario.fill(0, &block, &payload);
            scenario.commit(0, header.sequence);
            scenario.drain();
            let found = scenario.run(&program, 1, 256, 0).unwrap();
            let ends: Vec<u64> = found
                .iter()
                .filter(|record| record.0 == 'M')
                .map(|record| u64::from_le_bytes(*record.1.first_chunk().unwrap()))
                .collect();
            let width = build.bus as u64 / 8;
            // Header and checksum take more than four beats of a narrow port.
            let frame = (56 + size + 4).div_ceil(width);
            let most = (size.div_ceil(width) + 4).max(frame);
            let slowest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(slowest <= most, "bus {}: {slowest} cycles, expected at most {most}", build.bus);
        }
    }
}
