//! `fpga_ni` as receiver of messages of a simulated card, which executes transfers itself, over a network with losses and disorder.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout};

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::layout::event;
use fpga_firmware::generated::{
    MEMORY_COMMIT_INSTALL, Outcome, Scheme, WindowKind, counters, memory, ni, registry,
};
use fpga_firmware::window::{CommandFields, LinkFields, MAX_HEADER_BLOCK, WindowHeader};
use fpga_firmware::wire::Flags;
use fpga_firmware::{NodeId, TransferId};
use fpga_registers::CardAddr;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::top::{COMMIT_AT, KEY, MEMORY, RING, RING_ENTRIES, SimulatedCard, WINDOW_BASE, build, bytes, hex};

const SOURCE: u32 = 0x1_0000;
const TARGET: u32 = 0x2_0003;
const ROUND_TRIP_NS: u32 = 20_000;
const ENABLE: u32 = ni::control::ENABLE | ni::control::EVENT_ENABLE;
/// Packets that may overtake each other.
const DISORDER: usize = 6;

/// The simulated module.
struct Module {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    text: String,
    frames: Vec<Vec<u8>>,
}

impl Module {
    fn start(program: &std::path::Path, bus: usize, percent: usize) -> Self {
        let arguments = [bus / 8, 1, percent, MEMORY as usize].map(|n| n.to_string());
        let mut child = fpga_ni_tests::start(program, 1, &arguments.each_ref().map(String::as_str)).unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output).lines();
        Self { child, input, output, text: String::new(), frames: Vec::new() }
    }

    fn write(&mut self, at: u32, value: u32) {
        write!(self.text, "W {at:x} {value:x}\ns\n").unwrap();
    }

    /// Executes the operations up to here, and returns the line that begins with `mark`.
    fn execute(&mut self, mark: &str) -> String {
        self.input.write_all(self.text.as_bytes()).unwrap();
        self.text.clear();
        loop {
            let line = self.output.next().unwrap().unwrap();
            if let Some(frame) = line.strip_prefix("o ") {
                self.frames.push(bytes(frame));
            } else if let Some(value) = line.strip_prefix(mark) {
                return value.to_owned();
            }
        }
    }

    fn read(&mut self, at: u32) -> u32 {
        writeln!(self.text, "R {at:x}").unwrap();
        u32::from_str_radix(&self.execute("R "), 16).unwrap()
    }

    fn peek(&mut self, at: u32, length: u32) -> Vec<u8> {
        writeln!(self.text, "m {at:x} {length:x}").unwrap();
        bytes(&self.execute("m "))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packets in one direction: some are lost, some arrive twice, and some overtake others.
struct Network {
    rng: Pcg64,
    packets: Vec<Vec<u8>>,
    /// Losses and duplicates, each per 1000 packets.
    per_mille: u32,
}

impl Network {
    fn new(seed: u64, per_mille: u32) -> Self {
        Self { rng: Pcg64::seed_from_u64(seed), packets: Vec::new(), per_mille }
    }

    fn chance(&mut self) -> bool {
        self.rng.next_u32() % 1000 < self.per_mille
    }

    fn send(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) {
        for packet in packets {
            if self.chance() {
                continue;
            }
            if self.chance() {
                self.packets.push(packet.clone());
            }
            self.packets.push(packet);
        }
    }

    fn arrive(&mut self) -> Option<Vec<u8>> {
        let count = self.packets.len().min(if self.per_mille == 0 { 1 } else { DISORDER });
        let index = self.rng.next_u32() as usize % count.max(1);
        (count != 0).then(|| self.packets.remove(index))
    }
}

/// Registers that both nodes have alike.
fn settings(ring: u32, incarnation: u32, credit: bool) -> Vec<(u32, u32)> {
    [
        (ni::INCARNATION, incarnation),
        (ni::REGISTRY_TIMEOUT_US, 1_000_000),
        (ni::PACKET_LIFETIME_US, 1000),
        (ni::SCHEME, Scheme::ReceiverWindow.value()),
        (ni::ROUND_TRIP_NS, ROUND_TRIP_NS),
        (ni::CONGESTION, u32::from(credit)),
        (ni::EVENT_RING_BASE_LOW, ring),
        (ni::EVENT_RING_SIZE, RING_ENTRIES),
        (ni::CONTROL, ENABLE),
    ]
    .map(|(register, value)| (ni::BLOCK_OFFSET + register, value))
    .into()
}

/// Events of a ring, by its bytes.
fn events(ring: &[u8]) -> Vec<Event> {
    let (entries, _) = ring.as_chunks::<{ event::LAYOUT_SIZE }>();
    entries.iter().map_while(|entry| Event::decode(entry).ok()).collect()
}

/// One transfer of `length` bytes.
fn transfer(bus: usize, length: u32, per_mille: u32, credit: bool) {
    let Some(program) = build(bus, 64) else { return };
    let mut module = Module::start(&program, bus, 70);
    let mut sender = SimulatedCard::new(2, 16);
    for (at, value) in settings(RING, 7, credit) {
        module.write(at, value);
        sender.write(at, value);
    }
    for (register, value) in [
        (memory::INDEX, 3),
        (memory::SOURCE_NODE, 2),
        (memory::BASE_LOW, TARGET),
        (memory::LENGTH_LOW, length),
        (memory::KEY_LOW, KEY),
        (memory::PERMISSIONS, 1),
        (memory::COMMIT, MEMORY_COMMIT_INSTALL),
    ] {
        module.write(memory::BLOCK_OFFSET + register, value);
    }
    assert_eq!(module.read(ni::BLOCK_OFFSET + ni::SCHEMES), 3);
    assert_eq!(module.read(ni::BLOCK_OFFSET + ni::SCHEME), 1);
    let data: Vec<u8> = (0..length).map(|at| (at.wrapping_mul(7) ^ at >> 8).to_le_bytes()[0]).collect();
    sender.poke(SOURCE, &data);
    let header = WindowHeader {
        sequence: 1,
        flags: Flags::NONE,
        destination: NodeId::new(1),
        transfer: TransferId::new(1),
        oldest_live: TransferId::new(1),
        segment: 0,
        segment_count: 0,
        segment_length: 0,
        base: CardAddr::new(SOURCE.into()),
        key: KEY.into(),
        transfer_base: CardAddr::new(TARGET.into()),
        transfer_length: length.into(),
        first_packet: 0,
        packet_count: 0,
        packet_size_log2: 9,
        kind: WindowKind::Command,
        segment_packets: 0,
        tries: 0,
        path: 0,
        path_list: false,
        command: CommandFields { number: 1, ..CommandFields::NONE },
        link: LinkFields::NONE,
    };
    let mut block = [0; MAX_HEADER_BLOCK];
    let used = header.encode(&[], &[], &mut block).unwrap();
    sender.poke(WINDOW_BASE, &block[..used]);
    sender.poke(WINDOW_BASE + COMMIT_AT, &1_u32.to_le_bytes());

    let (mut forth, mut back) = (Network::new(1, per_mille), Network::new(2, per_mille));
    let mut ring = vec![0; RING_ENTRIES as usize * event::LAYOUT_SIZE];
    for step in 0.. {
        sender.run();
        forth.send(sender.frames());
        match forth.arrive() {
            Some(frame) => writeln!(module.text, "f {}", hex(&frame)).unwrap(),
            None => writeln!(module.text, "w 400").unwrap(),
        }
        module.text.push_str("s\n");
        module.read(ni::BLOCK_OFFSET + ni::STATUS);
        back.send(module.frames.drain(..));
        if let Some(frame) = back.arrive() {
            sender.receive(&frame);
        }
        if step % 64 == 0 {
            sender.peek(RING, &mut ring);
            let sent = events(&ring)
                .into_iter()
                .find(|event| event.kind == EventKind::Sent && event.reason != Outcome::Progress.value());
            if let Some(sent) = sent {
                assert_eq!(sent.reason, Outcome::Done.value());
                println!("{step} steps, {} packets repeated", sent.count);
                break;
            }
        }
        assert!(step < 100_000, "the transfer does not end");
    }
    assert!(module.peek(TARGET, length) == data);
    let found = module.peek(RING, RING_ENTRIES * u32::try_from(event::LAYOUT_SIZE).unwrap());
    let notices: Vec<_> =
        events(&found).into_iter().filter(|event| event.kind == EventKind::Notice).collect();
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].address.get(), notices[0].length), (TARGET.into(), length.into()));
    assert_eq!(module.read(registry::BLOCK_OFFSET + registry::OCCUPANCY), 0);
    let counter = |module: &mut Module, register| module.read(counters::BLOCK_OFFSET + register);
    let completions = counter(&mut module, counters::COMPLETIONS);
    assert_eq!(completions, counter(&mut module, counters::REGISTRATIONS));
    assert_eq!(counter(&mut module, counters::VIOLATIONS), 0);
    assert!(completions >= length.div_ceil(256 << 9));
}

#[test]
fn transfer_of_simulated_card_arrives() {
    transfer(512, 100_000, 0, true);
}

#[test]
fn transfer_of_simulated_card_arrives_despite_loss_and_disorder() {
    for (bus, length, credit) in fpga_ni_tests::sizes(&[(512, 300_001, true)], &[(64, 100_003, false)]) {
        transfer(bus, length, 20, credit);
    }
}
