//! `fpga_ni` beside a simulated card: the same registers, transmit windows and packets give the same packets, events and memory.
//!
//! A second simulated card is the peer: its packets go to both, in random order, some twice, some damaged. Times differ, so they are not
//! compared.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use fpga_card::{BarRole, Card, CardDescription, NoHost};
use fpga_firmware::generated::layout::{ack, event, hello};
use fpga_firmware::generated::{
    MEMORY_COMMIT_INSTALL, PacketKind, WindowKind, counters, escape, fault_log, memory, ni, registry,
};
use fpga_firmware::ids::OpNumber;
use fpga_firmware::window::{CommandFields, LinkFields, MAX_HEADER_BLOCK, WindowHeader};
use fpga_firmware::wire::{CRC_LENGTH, Flags};
use fpga_firmware::{NodeId, TransferId};
use fpga_ni_tests::{Model, sizes, start};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

pub(crate) const MEMORY: u32 = 0x10_0000;
pub(crate) const WINDOW_BASE: u32 = 0x10_0000;
const STRIDE: u32 = 0x8000;
pub(crate) const COMMIT_AT: u32 = 0xfc0;
const PAYLOAD_AT: u32 = 0x1000;
pub(crate) const RING: u32 = 0x8_0000;
pub(crate) const RING_ENTRIES: u32 = 4096;
pub(crate) const KEY: u32 = 0x1234_5678;
const CONTROL: u32 = ni::control::ENABLE | ni::control::EVENT_ENABLE | ni::control::PACKET_EVENTS;
pub(crate) const PACKET: u32 = 512;
const MAX_PACKETS: u32 = 32;
/// Fields of packets and events that depend on time, or on the capabilities of the build.
const EVENT_TIME: std::ops::Range<usize> = event::TIME..event::TIME + 8;
const ACK_DELAY: std::ops::Range<usize> = ack::DELAY..ack::DELAY + 2;
const HELLO_CAPABILITIES: std::ops::Range<usize> = hello::CAPABILITIES..hello::CAPABILITIES + 4;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Packet without checksum and without fields that depend on time.
fn comparable(frame: &[u8]) -> String {
    let mut packet = frame[..frame.len() - CRC_LENGTH].to_vec();
    match PacketKind::try_from(packet[1]) {
        Ok(PacketKind::Ack | PacketKind::Nack) => packet[ACK_DELAY].fill(0),
        Ok(PacketKind::Hello | PacketKind::HelloReply) => packet[HELLO_CAPABILITIES].fill(0),
        _ => {}
    }
    hex(&packet)
}

/// Card with memory and transmit windows in its bypass BAR.
pub(crate) struct SimulatedCard {
    card: Card,
    user: u8,
    bypass: u8,
    pub(crate) now: u64,
}

impl SimulatedCard {
    /// Creates a card that executes up to `commands` transfers itself.
    pub(crate) fn new(node: u32, commands: u32) -> Self {
        let text = format!(
            "schema_version: 3\nmemory: {{base: 0, size: {MEMORY:#x}}}\n\
             ni: {{node_id: {node}, commands: {commands}, event_push: false, window_base: {WINDOW_BASE:#x}}}\n"
        );
        let description = CardDescription::parse(std::path::Path::new("card.yaml"), &text).unwrap();
        let mut card = Card::new(description).unwrap();
        card.set_command(true, true);
        let bar = |role| card.bars().iter().find(|layout| layout.role == role).unwrap().index;
        let (user, bypass) = (bar(BarRole::User), bar(BarRole::Bypass));
        Self { card, user, bypass, now: 0 }
    }

    pub(crate) fn write(&mut self, at: u32, value: u32) {
        self.card.bar_write(self.user, at.into(), &value.to_le_bytes(), &mut NoHost);
        self.run();
    }

    pub(crate) fn read(&mut self, at: u32) -> u32 {
        let mut word = [0; 4];
        self.card.bar_read(self.user, at.into(), &mut word);
        u32::from_le_bytes(word)
    }

    /// Reads memory through the bypass BAR.
    pub(crate) fn peek(&mut self, at: u32, bytes: &mut [u8]) {
        self.card.bar_read(self.bypass, at.into(), bytes);
    }

    pub(crate) fn poke(&mut self, at: u32, bytes: &[u8]) {
        self.card.bar_write(self.bypass, at.into(), bytes, &mut NoHost);
    }

    pub(crate) fn run(&mut self) {
        self.now += 1_000;
        while self.card.step(Nanos::new(self.now), &mut NoHost) {
            self.now += 100;
        }
    }

    pub(crate) fn receive(&mut self, frame: &[u8]) {
        self.run();
        self.card.receive_frame(Nanos::new(self.now), frame);
        self.run();
    }

    pub(crate) fn frames(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.card.take_frame()).collect()
    }
}

/// The card that the module is compared with, its peer, and the operations for the module.
struct Script {
    card: SimulatedCard,
    peer: SimulatedCard,
    rng: Pcg64,
    text: String,
    /// Outputs: packets, then values of registers with their address.
    packets: Vec<String>,
    registers: Vec<(u32, u32)>,
    /// Packets of the peer that have not arrived.
    network: Vec<Vec<u8>>,
    transfer: u32,
}

impl Script {
    fn new(seed: u64) -> Self {
        let mut script = Self {
            card: SimulatedCard::new(1, 0),
            peer: SimulatedCard::new(2, 0),
            rng: Pcg64::seed_from_u64(seed),
            text: String::new(),
            packets: Vec::new(),
            registers: Vec::new(),
            network: Vec::new(),
            transfer: 0,
        };
        script.peer.write(ni::BLOCK_OFFSET + ni::INCARNATION, 0x77);
        script.peer.write(ni::BLOCK_OFFSET + ni::CONTROL, ni::control::ENABLE);
        // Nothing times out: the clocks differ.
        for (register, value) in [
            (ni::INCARNATION, 0x55),
            (ni::ESCAPE_TIMEOUT_US, 100_000_000),
            (ni::REGISTRY_TIMEOUT_US, 100_000_000),
            (ni::PACKET_LIFETIME_US, 100_000_000),
            (ni::EVENT_RING_BASE_LOW, RING),
            (ni::EVENT_RING_SIZE, RING_ENTRIES),
            (ni::CONTROL, CONTROL),
        ] {
            script.write(ni::BLOCK_OFFSET + register, value);
        }
        for (register, value) in [
            (memory::INDEX, 3),
            (memory::SOURCE_NODE, 2),
            (memory::BASE_LOW, 0x1000),
            (memory::LENGTH_LOW, RING - 0x1000),
            (memory::KEY_LOW, KEY),
            (memory::PERMISSIONS, 1),
            (memory::COMMIT, MEMORY_COMMIT_INSTALL),
        ] {
            script.write(memory::BLOCK_OFFSET + register, value);
        }
        script
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.rng.next_u32() % limit
    }

    fn write(&mut self, at: u32, value: u32) {
        self.card.write(at, value);
        writeln!(self.text, "W {at:x} {value:x}\ns").unwrap();
        self.collect();
    }

    fn read(&mut self, at: u32) {
        let value = self.card.read(at);
        self.registers.push((at, value));
        writeln!(self.text, "R {at:x}").unwrap();
    }

    /// Packets of the card, which the module has to send, too; they also go to the peer.
    fn collect(&mut self) {
        for frame in self.card.frames() {
            self.packets.push(comparable(&frame));
            self.peer.receive(&frame);
        }
        self.network.extend(self.peer.frames());
    }

    fn header(&mut self, destination: u32) -> (WindowHeader, Vec<u8>) {
        self.transfer += 1;
        let packets = 1 + self.below(MAX_PACKETS);
        let length = (packets - 1) * PACKET + 1 + self.below(PACKET);
        // Some are outside of the memory window.
        let base = if self.below(10) == 0 { 0x800 } else { 0x1000 + self.below(0x6_0000) };
        let notify = if self.below(2) == 0 { Flags::NOTIFY_RECEIVER } else { Flags::NONE };
        let silent = if self.below(4) == 0 { Flags::SILENT } else { Flags::NONE };
        let header = WindowHeader {
            sequence: self.transfer,
            flags: notify.with(silent),
            destination: NodeId::new(destination),
            transfer: TransferId::new(self.transfer),
            oldest_live: TransferId::new(1),
            segment: 0,
            segment_count: 1,
            segment_length: length,
            base: CardAddr::new(base.into()),
            key: u64::from(KEY) + u64::from(self.below(20) == 0),
            transfer_base: CardAddr::new(base.into()),
            transfer_length: length.into(),
            first_packet: 0,
            packet_count: u16::try_from(packets).unwrap(),
            packet_size_log2: 9,
            kind: WindowKind::Data,
            segment_packets: u16::try_from(packets).unwrap(),
            tries: 1,
            path: self.below(256).to_le_bytes()[0],
            path_list: false,
            command: CommandFields::NONE,
            link: LinkFields::NONE,
        };
        let payload = (0..length).map(|at| (at * 3 + self.transfer).to_le_bytes()[0]).collect();
        (header, payload)
    }

    /// Writes of a window: header block, payload, commit word.
    fn window(header: &WindowHeader, payload: &[u8], window: u32, commit: u32) -> Vec<(u32, Vec<u8>)> {
        let at = WINDOW_BASE + window * STRIDE;
        let ops: Vec<_> = (0..header.packet_count).map(|slot| OpNumber::from_parts(slot, 7)).collect();
        let mut block = [0; MAX_HEADER_BLOCK];
        let length = header.encode(&ops, &[], &mut block).unwrap();
        vec![
            (at, block[..length].to_vec()),
            (at + PAYLOAD_AT, payload.to_vec()),
            (at + COMMIT_AT, commit.to_le_bytes().to_vec()),
        ]
    }

    /// The peer sends a segment into the network.
    fn peer_sends(&mut self) {
        let (header, payload) = self.header(1);
        for (at, bytes) in Self::window(&header, &payload, 0, header.sequence) {
            self.peer.poke(at, &bytes);
        }
        self.peer.run();
        self.network.extend(self.peer.frames());
    }

    /// Card and module send a segment from a transmit window.
    fn card_sends(&mut self) {
        let (header, payload) = self.header(2);
        let window = self.below(8);
        // Some headers are torn.
        let commit = header.sequence + u32::from(self.below(8) == 0);
        for (at, bytes) in Self::window(&header, &payload, window, commit) {
            self.card.poke(at, &bytes);
            writeln!(self.text, "x {at:x} {}", hex(&bytes)).unwrap();
        }
        self.card.run();
        self.text.push_str("s\n");
        self.collect();
    }

    /// A packet arrives; some stay in the network as well, some are damaged.
    fn deliver(&mut self) {
        let Some(last) = u32::try_from(self.network.len()).unwrap().checked_sub(1) else { return };
        let index = self.below(last + 1) as usize;
        let mut frame = match self.below(12) {
            0 => self.network[index].clone(),
            _ => self.network.swap_remove(index),
        };
        if self.below(60) == 0 {
            let at = self.below(u32::try_from(frame.len()).unwrap()) as usize;
            frame[at] ^= 4;
        }
        self.card.receive(&frame);
        writeln!(self.text, "f {}\ns", hex(&frame)).unwrap();
        self.collect();
    }

    fn consume(&mut self) {
        let produced = self.card.read(ni::BLOCK_OFFSET + ni::EVENT_PRODUCED);
        self.write(ni::BLOCK_OFFSET + ni::EVENT_CONSUMED, produced);
    }

    fn compare_registers(&mut self) {
        for block in [ni::BLOCK_OFFSET, counters::BLOCK_OFFSET] {
            (block..block + 0x100).step_by(4).for_each(|at| self.read(at));
        }
        for (block, count, ages) in [
            (registry::BLOCK_OFFSET, 64, [registry::AGE_US, registry::AGE_US]),
            (escape::BLOCK_OFFSET, 64, [escape::AGE_US, escape::AGE_US]),
            (memory::BLOCK_OFFSET, 17, [memory::COMMIT, memory::COMMIT]),
            (fault_log::BLOCK_OFFSET, 64, [fault_log::TIME_LOW, fault_log::TIME_HIGH]),
        ] {
            for index in 0..count {
                self.write(block, index);
                for at in (block..block + 0x90).step_by(4) {
                    if !ages.contains(&(at - block)) {
                        self.read(at);
                    }
                }
            }
        }
    }

    fn run(mut self, program: &std::path::Path, bus: usize, seed: u32, percent: usize) {
        writeln!(self.text, "m 0 {MEMORY:x}").unwrap();
        let arguments = [bus / 8, seed as usize, percent, MEMORY as usize].map(|n| n.to_string());
        let mut child = start(program, seed, &arguments.each_ref().map(String::as_str)).unwrap();
        let mut input = child.stdin.take().unwrap();
        let text = std::mem::take(&mut self.text);
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let output = String::from_utf8(output.stdout).unwrap();
        let of = |start: &str| -> Vec<String> {
            output.lines().filter_map(|line| Some(line.strip_prefix(start)?.to_owned())).collect()
        };
        // Events first: they say what happened.
        let mut found = bytes(&of("m ")[0]);
        let mut expected = vec![0; MEMORY as usize];
        self.card.peek(0, &mut expected);
        let ring = RING as usize;
        for entry in 0..RING_ENTRIES as usize {
            let at = ring + entry * event::LAYOUT_SIZE;
            for memory in [&mut found, &mut expected] {
                memory[at..at + event::LAYOUT_SIZE][EVENT_TIME].fill(0);
            }
            let range = at..at + event::LAYOUT_SIZE;
            assert_eq!(hex(&found[range.clone()]), hex(&expected[range]), "seed {seed}: event {entry}");
        }
        let packets: Vec<_> = of("o ").iter().map(|frame| comparable(&bytes(frame))).collect();
        for (number, (found, expected)) in packets.iter().zip(&self.packets).enumerate() {
            assert_eq!(found, expected, "seed {seed}: packet {number}");
        }
        assert_eq!(packets.len(), self.packets.len(), "seed {seed}");
        for (found, (at, expected)) in of("R ").iter().zip(&self.registers) {
            assert_eq!(*found, format!("{expected:x}"), "seed {seed}: register {at:#x}");
        }
        assert_eq!(
            (0..ring).find(|at| found[*at] != expected[*at]),
            None,
            "seed {seed}: first different byte"
        );
    }
}

/// Builds the module; `contexts`: receive contexts of messages.
pub(crate) fn build(bus: usize, contexts: u64) -> Option<PathBuf> {
    let folder = fpga_ni_tests::sources();
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sv") && name != "ni_pkg.sv")
        .collect();
    files.sort();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let model = Model {
        name: &format!("top_{bus}_{contexts}"),
        top: "fpga_ni",
        files: &files,
        parameters: &[
            ("BUS", bus as u64),
            ("PACKET_LOG2", 9),
            ("MESSAGE_CONTEXTS", contexts),
            ("MEMORY_WINDOWS", 16),
            ("WINDOW_BASE", WINDOW_BASE.into()),
            ("MEMORY_SIZE", MEMORY.into()),
        ],
        driver: "top.cpp",
    };
    model.build().unwrap()
}

fn compare(bus: usize, seed: u32, percent: usize) {
    let Some(program) = build(bus, 0) else { return };
    let mut script = Script::new(seed.into());
    for round in 0..60 {
        script.peer_sends();
        if round % 3 == 0 {
            script.card_sends();
        }
        if round % 7 == 0 {
            script.write(ni::BLOCK_OFFSET + ni::HELLO, 2);
        }
        if round % 25 == 24 {
            // Settings and memory windows stay.
            script.write(ni::BLOCK_OFFSET + ni::CONTROL, CONTROL | ni::control::RESET);
        }
        for _ in 0..script.below(30) {
            script.deliver();
        }
        script.consume();
    }
    script.compare_registers();
    script.run(&program, bus, seed, percent);
}

#[test]
fn ni_beside_simulated_card_has_same_packets_events_and_memory() {
    for (bus, seed, percent) in sizes(&[(512, 1, 100), (512, 2, 60)], &[(64, 3, 80)]) {
        compare(bus, seed, percent);
    }
}
