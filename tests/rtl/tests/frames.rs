//! Frames: the network port against the parser and the encoder of the protocol engine.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Child;

use fpga_firmware::event::{EventKind, FaultReason};
use fpga_firmware::wire::{Flags, Packet, WireError};
use fpga_ni_tests::{Model, sizes, start};

use crate::random::Random;

/// Sources of the receiving side.
pub(crate) const RX_FILES: [&str; 7] = [
    "ni_fifo.sv",
    "ni_crc32c.sv",
    "ni_ranges.sv",
    "ni_rx_length.sv",
    "ni_rx_rules.sv",
    "ni_rx_payload.sv",
    "ni_rx.sv",
];

/// Stages between the last beat of a frame and the offer of its packet.
const RX_CYCLES: usize = 4;

/// Runs a program with this input and returns its output.
pub(crate) fn run(mut child: Child, input: Vec<u8>) -> Vec<u8> {
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    let status = child.wait().unwrap();
    let _ = writer.join();
    assert!(status.success(), "the simulation ended with {status}");
    output
}

/// Record of a driver: its letter and its content.
pub(crate) type Record = (char, Vec<u8>);

/// Splits the output of a driver into records.
pub(crate) fn records(output: &[u8]) -> Vec<Record> {
    let mut rest = output;
    let mut records = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (content, after) = tail.split_at(length);
        records.push((char::from(head[0]), content.to_vec()));
        rest = after;
    }
    records
}

fn rx(bus: u64, packet_log2: u8) -> Option<PathBuf> {
    rx_of(&format!("rx_{bus}_{packet_log2}"), &fpga_ni_tests::sources(), bus, packet_log2)
}

/// The module of other sources.
pub(crate) fn rx_of(name: &str, folder: &Path, bus: u64, packet_log2: u8) -> Option<PathBuf> {
    let files = RX_FILES.map(|file| folder.join(file).to_str().unwrap().to_owned());
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let model = Model {
        name,
        top: "ni_rx",
        files: &files,
        parameters: &[("BUS", bus), ("PACKET_LOG2", packet_log2.into())],
        driver: "rx.cpp",
    };
    model.build().unwrap()
}

/// Frame and whether the interface is disabled when it arrives.
pub(crate) type Frame = (bool, Vec<u8>);

/// Probabilities, of 256, of the driver, and the planted fault that acts, if any.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) offer: u32,
    pub(crate) accept: u32,
    pub(crate) accept_fault: u32,
    pub(crate) reads: bool,
    pub(crate) plant: &'static str,
}

fn receive(program: &Path, packet_log2: u8, seed: u32, frames: &[Frame], pace: Pace) -> Vec<Record> {
    let mut input = Vec::new();
    for (disabled, frame) in frames {
        input.push(u8::from(*disabled));
        input.extend(u32::try_from(frame.len()).unwrap().to_le_bytes());
        input.extend(frame);
    }
    let arguments = [pace.offer, pace.accept, pace.accept_fault, pace.reads.into(), packet_log2.into()];
    let arguments: Vec<String> = [seed].iter().chain(&arguments).map(u32::to_string).collect();
    let plant = (!pace.plant.is_empty()).then_some(pace.plant);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(plant).collect();
    records(&run(start(program, seed, &arguments).unwrap(), input))
}

/// Verdict of the protocol engine: its letter, and what is handed on.
fn expected(frame: &[u8], packet_log2: u8) -> (char, Option<Vec<u8>>) {
    match Packet::parse(frame) {
        Err(error) if error.is_damage() => ('c', None),
        Err(WireError::Flags { found, .. }) if found.contains(Flags::TRIMMED) => ('t', None),
        Err(_) => ('b', None),
        Ok(packet) => {
            let header_length = HEADER_LENGTHS[usize::from(packet.kind().value()) - 1];
            let payload = &frame[header_length..frame.len() - 4];
            let mut handed = u16::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
            handed.extend(&frame[..header_length]);
            handed.resize(2 + 88, 0);
            handed.extend(&payload[..payload.len().min(1 << packet_log2)]);
            ('g', Some(handed))
        }
    }
}

/// Length of the header of each kind (docs/protocol/packets.md 3.1, less the checksum).
const HEADER_LENGTHS: [usize; 18] = [56, 88, 36, 36, 32, 48, 32, 32, 72, 36, 84, 40, 72, 64, 20, 32, 32, 20];

/// The first difference between the module and the protocol engine.
pub(crate) fn check_frames(
    program: &Path,
    packet_log2: u8,
    seed: u32,
    frames: &[Frame],
    pace: Pace,
) -> Result<(), String> {
    let found = receive(program, packet_log2, seed, frames, pace);
    let of = |kind: char| found.iter().filter(move |record| record.0 == kind).map(|record| &record.1);
    let (mut verdicts, mut packets) = (of('V'), of('P'));
    let mut bad = 0;
    for (index, (_, frame)) in frames.iter().enumerate().filter(|(_, frame)| !frame.0) {
        let (verdict, handed) = expected(frame, packet_log2);
        let found = verdicts.next().map(|letter| char::from(letter[0]));
        if found != Some(verdict) {
            return Err(format!(
                "frame {index}: {found:?}, expected {verdict}: {:?} {frame:02x?}",
                Packet::parse(frame)
            ));
        }
        bad += usize::from(verdict == 'b');
        if let Some(handed) = handed {
            let found = packets.next().map(|record| record[8..].to_vec());
            if found.as_ref() != Some(&handed) {
                return Err(format!("frame {index}:\n{found:02x?}, expected\n{handed:02x?}"));
            }
        }
    }
    if verdicts.next().is_some() || packets.next().is_some() {
        return Err("more packets than frames".to_owned());
    }
    let faults: Vec<_> = of('F').collect();
    for fault in &faults {
        // A time in each, and nothing else that this kind of event does not use.
        let mut event = [0; 64];
        event[..2].copy_from_slice(&[EventKind::Fault.value(), FaultReason::BadPacket.value()]);
        event[48..56].copy_from_slice(&fault[48..56]);
        if **fault != event || event[48..56] == [0; 8] {
            return Err(format!("fault {fault:02x?}"));
        }
    }
    if faults.len() != bad {
        return Err(format!("{} faults, expected {bad}", faults.len()));
    }
    Ok(())
}

pub(crate) fn random_frames(seed: u64, packet_log2: u8, count: usize) -> Vec<Frame> {
    let mut random = Random::new(seed);
    (0..count).map(|_| (random.one_in(40), random.frame(packet_log2))).collect()
}

pub(crate) const FULL_PACE: Pace =
    Pace { offer: 256, accept: 256, accept_fault: 256, reads: true, plant: "" };
const SLOW_LINK: Pace = Pace { offer: 80, accept: 256, accept_fault: 256, reads: true, plant: "" };
const SLOW_RECEIVER: Pace = Pace { offer: 256, accept: 30, accept_fault: 40, reads: true, plant: "" };

#[test]
fn random_frames_parse_as_in_the_engine() {
    for (bus, packet_log2) in sizes(&[(64, 12), (512, 6)], &[(128, 6), (256, 9), (512, 10)]) {
        let Some(program) = rx(bus, packet_log2) else { return };
        for (seed, pace) in [(1, FULL_PACE), (2, SLOW_LINK), (3, SLOW_RECEIVER)] {
            let frames = random_frames(u64::from(seed) + bus, packet_log2, 1500);
            check_frames(&program, packet_log2, seed, &frames, pace)
                .unwrap_or_else(|error| panic!("bus {bus}, packet 2^{packet_log2}, seed {seed}: {error}"));
        }
    }
}

#[test]
fn receiving_takes_a_beat_per_cycle() {
    for (bus, packet_log2) in sizes(&[(64, 12), (512, 6)], &[(512, 10)]) {
        let Some(program) = rx(bus, packet_log2) else { return };
        let width = usize::try_from(bus / 8).unwrap();
        let mut random = Random::new(bus);
        let frames: Vec<Frame> = (0..200).map(|_| (false, random.packet(packet_log2))).collect();
        let found = receive(&program, packet_log2, 1, &frames, Pace { reads: false, ..FULL_PACE });
        let (_, cycles) = found.iter().find(|record| record.0 == 'C').unwrap();
        let cycles = u64::from_le_bytes(cycles.as_slice().try_into().unwrap());
        // Packets of one beat wait for a buffer: four of them are in the pipeline in turn.
        let beats: usize = frames.iter().map(|(_, frame)| frame.len().div_ceil(width) + 1).sum();
        assert!(cycles <= (beats + RX_CYCLES) as u64, "bus {bus}: {cycles} cycles for {beats} beats");
    }
}

/// Answer ports of the tested module.
const ANSWERS: u8 = 2;

/// Number of the port for frames.
const FRAME_PORT: u8 = 255;

fn tx(bus: u64) -> Option<PathBuf> {
    let model = Model {
        name: &format!("tx_{bus}"),
        top: "ni_tx",
        files: &["ni_fifo.sv", "ni_crc32c.sv", "ni_crc32c_end.sv", "ni_tx.sv"],
        parameters: &[("BUS", bus), ("ANSWERS", ANSWERS.into())],
        driver: "tx.cpp",
    };
    model.build().unwrap()
}

/// Sends packets through their ports. Returns the frames, the ports in the order of their service, and the cycles.
fn send(
    program: &Path,
    seed: u32,
    packets: &[(u8, Vec<u8>)],
    pace: [u32; 3],
) -> (Vec<Vec<u8>>, Vec<u8>, u64) {
    let mut input = Vec::new();
    for (port, packet) in packets {
        let header = HEADER_LENGTHS[usize::from(packet[1]) - 1];
        let payload = packet.len() - 4 - header;
        input.extend([*port, u8::try_from(header).unwrap()]);
        input.extend(u16::try_from(payload).unwrap().to_le_bytes());
        input.extend(&packet[..packet.len() - 4]);
    }
    let arguments: Vec<String> =
        [seed].iter().chain(&pace).chain(&[ANSWERS.into()]).map(u32::to_string).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut frames, mut order, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, content) in records(&run(start(program, seed, &arguments).unwrap(), input)) {
        match kind {
            'M' => frames.push(content),
            'T' => order.push(content[0]),
            _ => counts.push(u64::from_le_bytes(content.try_into().unwrap())),
        }
    }
    assert_eq!(counts[0], packets.len() as u64, "counted packets");
    (frames, order, counts[1])
}

fn random_packets(seed: u64, packet_log2: u8, count: usize) -> Vec<(u8, Vec<u8>)> {
    let mut random = Random::new(seed);
    let mut packets = Vec::new();
    while packets.len() < count {
        let packet = random.packet(packet_log2);
        let has_payload = packet.len() - 4 > HEADER_LENGTHS[usize::from(packet[1]) - 1];
        let port = if has_payload || random.one_in(4) { FRAME_PORT } else { random.pick(&[0, 1]) };
        packets.push((port, packet));
    }
    packets
}

#[test]
fn sent_frames_equal_those_of_the_encoder() {
    for (bus, packet_log2) in sizes(&[(64, 12), (512, 8)], &[(128, 7), (256, 6)]) {
        let Some(program) = tx(bus) else { return };
        for (seed, pace) in [(1, [256, 256, 256]), (2, [20, 90, 256]), (3, [200, 200, 90])] {
            let packets = random_packets(u64::from(seed) + bus, packet_log2, 1200);
            let (frames, order, _) = send(&program, seed, &packets, pace);
            let port_of = |port: u8| if port == FRAME_PORT { ANSWERS } else { port };
            let mut queues: Vec<_> = (0..=ANSWERS)
                .map(|queue| packets.iter().filter(move |packet| port_of(packet.0) == queue))
                .collect();
            assert_eq!(frames.len(), order.len());
            for (index, (frame, port)) in frames.iter().zip(&order).enumerate() {
                let (_, packet) = queues[usize::from(*port)].next().unwrap();
                assert!(
                    frame == packet,
                    "bus {bus}, seed {seed}, frame {index}:\n{frame:02x?}, expected\n{packet:02x?}"
                );
            }
        }
    }
}

#[test]
fn sending_takes_a_beat_per_cycle_in_turns() {
    for bus in [64, 512] {
        let Some(program) = tx(bus) else { return };
        let mut random = Random::new(bus);
        let mut packets = Vec::new();
        for _ in 0..100 {
            let (header, payload) = random.data(8, false);
            let mut buffer = vec![0; 1024];
            let length = header.encode(&payload, &mut buffer).unwrap();
            buffer.truncate(length);
            packets.push((FRAME_PORT, buffer.clone()));
            for port in 0..ANSWERS {
                let mut answer = random.bytes(36);
                answer[1] = 3;
                answer.extend(fpga_firmware::crc::crc32c(&answer).to_le_bytes());
                packets.push((port, answer));
            }
        }
        let (_, order, cycles) = send(&program, 1, &packets, [256, 256, 256]);
        let turns = usize::from(ANSWERS) + 1;
        // The last packets of a port come alone.
        for turn in order[..order.len() - turns].windows(turns) {
            let mut turn = turn.to_vec();
            turn.sort_unstable();
            assert_eq!(turn, (0..=ANSWERS).collect::<Vec<_>>(), "bus {bus}: {order:?}");
        }
        let width = usize::try_from(bus / 8).unwrap();
        let beats: usize = packets.iter().map(|(_, packet)| packet.len().div_ceil(width)).sum();
        // The driver offers the next packet of a port one cycle after the last one.
        let most = (beats + packets.len()) as u64;
        assert!(cycles <= most, "bus {bus}: {cycles} cycles for {beats} beats");
    }
}
