//! `ni_ethernet`: packets in frames and frames with packets, at random sizes and back-pressure.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;

use fpga_firmware::wire::PacketKind;
use fpga_ni_tests::{Model, sizes, start};

use crate::random::Random;

const MAC: [u8; 6] = [0xAA, 0, 0, 0, 0, 2];
const BROADCAST: [u8; 6] = [0xFF; 6];
const ETHERTYPE: [u8; 2] = [0x88, 0xB5];
const MIN_FRAME: usize = 60;
/// Bytes in front of the packet.
const FRONT: usize = 16;
/// Entries of the address table: fewer than nodes, so that they displace each other.
const ENTRIES: u32 = 8;
const NODES: u64 = 12;

fn frame(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut bytes = [&destination[..], &source, &ETHERTYPE, &[0; 2], packet].concat();
    bytes.resize(bytes.len().max(MIN_FRAME), 0);
    bytes
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind][..], &u32::try_from(content.len()).unwrap().to_le_bytes(), content].concat()
}

/// Outputs by kind, in order.
fn outputs(bytes: &[u8]) -> HashMap<u8, Vec<Vec<u8>>> {
    let (mut found, mut rest) = (HashMap::<u8, Vec<Vec<u8>>>::new(), bytes);
    while let [kind, a, b, c, d, content @ ..] = rest {
        let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap();
        found.entry(*kind).or_default().push(content[..length].to_vec());
        rest = &content[length..];
    }
    found
}

/// A packet of any kind between two nodes, except MESSAGE_DATA whose frame would be padded.
fn packet(random: &mut Random, source: u32, destination: u32) -> Vec<u8> {
    let mut bytes = random.packet(9);
    while bytes[1] == PacketKind::MessageData as u8 && bytes.len() < MIN_FRAME - FRONT {
        bytes = random.packet(9);
    }
    bytes[4..8].copy_from_slice(&source.to_le_bytes());
    bytes[8..12].copy_from_slice(&destination.to_le_bytes());
    bytes
}

/// Address of a node.
fn address(node: u32) -> [u8; 6] {
    [2, 0, 0, 0, 1, node.to_le_bytes()[0]]
}

fn run(bus: u64, seed: u32, percent: u32) {
    let name = format!("ethernet_{bus}");
    let model = Model {
        name: &name,
        top: "ni_ethernet",
        files: &["ni_ethernet.sv", "ni_rx_length.sv"],
        parameters: &[("BUS", bus), ("NODES", ENTRIES.into())],
        driver: "ethernet.cpp",
    };
    let Some(program) = model.build().unwrap() else { return };
    let mut random = Random::new(seed.into());
    let (mut input, mut to_mac, mut to_ni, mut ignored) = (Vec::new(), Vec::new(), Vec::new(), 0_u32);
    // Node in each entry of the table.
    let mut table = BTreeMap::new();
    for _ in 0..300 {
        // Frames first: a packet that meets one under way would go to the old or to the new address.
        for _ in 0..random.within(0, 3) {
            let node = u32::try_from(random.within(0, NODES - 1)).unwrap();
            let bytes = packet(&mut random, node, 1);
            let to = if random.one_in(4) { BROADCAST } else { MAC };
            let mut bytes_of_frame = frame(to, address(node), &bytes);
            match random.within(0, 7) {
                0 => bytes_of_frame[13] ^= 1,
                1 => bytes_of_frame[5] ^= if to == MAC { 1 } else { 0xFE },
                2 => bytes_of_frame.truncate(FRONT),
                _ => {
                    table.insert(node % ENTRIES, node);
                    to_ni.push(bytes);
                    input.extend(record(b'F', &bytes_of_frame));
                    continue;
                }
            }
            ignored += 1;
            input.extend(record(b'F', &bytes_of_frame));
        }
        input.extend(record(b'S', &[]));
        for _ in 0..random.within(0, 3) {
            let node = u32::try_from(random.within(0, NODES - 1)).unwrap();
            let bytes = packet(&mut random, 1, node);
            let is_known = table.get(&(node % ENTRIES)) == Some(&node);
            to_mac.push(frame(if is_known { address(node) } else { BROADCAST }, MAC, &bytes));
            input.extend(record(b'P', &bytes));
        }
        // At the same time, frames from nodes whose addresses are known.
        for node in table.values().copied().take(usize::try_from(random.within(0, 3)).unwrap()) {
            let bytes = packet(&mut random, node, 1);
            input.extend(record(b'F', &frame(MAC, address(node), &bytes)));
            to_ni.push(bytes);
        }
        input.extend(record(b'S', &[]));
    }
    input.extend(record(b'S', &[]));
    let arguments = [seed.to_string(), (bus / 8).to_string(), percent.to_string()];
    let mut child = start(&program, seed, &arguments.each_ref().map(String::as_str)).unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || pipe.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let mut found = outputs(&output.stdout);
    let mut compare = |kind: u8, expected: &[Vec<u8>]| {
        let found = found.remove(&kind).unwrap_or_default();
        for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found, expected, "{} {number}, bus {bus}, seed {seed}", char::from(kind));
        }
        assert_eq!(found.len(), expected.len());
    };
    compare(b'T', &to_mac);
    compare(b'R', &to_ni);
    compare(b'I', &[ignored.to_le_bytes().to_vec()]);
}

#[test]
fn ethernet_frames_and_packets_match() {
    for bus in sizes(&[128], &[256, 512]) {
        for (seed, percent) in [(1, 100), (2, 50)] {
            run(bus, seed, percent);
        }
    }
}
