//! `ni_registers` against the registers of a simulated card with the same parameters: reset values, random writes, faults.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use fpga_card::{BarRole, Card, CardDescription, NoHost};
use fpga_firmware::generated::{BlockType, Capabilities, escape, fault_log, memory, ni, registry};
use fpga_firmware::identity;
use fpga_ni_tests::{Model, start};
use fpga_protocol::time::Nanos;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// Card with the parameters of the module. It has link feedback, which the module does not have.
const CARD: &str =
    "schema_version: 3\nmemory: {base: 0, size: 0x100000}\nni: {commands: 0, event_push: false}\n";
const MEMORY: u64 = 0x10_0000;
const MEMORY_WINDOWS: u32 = 16;
/// Bytes of each block that are compared; no block has registers behind them.
const COMPARED: u32 = 0x100;
const BLOCKS: [u32; 5] = [
    ni::BLOCK_OFFSET,
    registry::BLOCK_OFFSET,
    escape::BLOCK_OFFSET,
    memory::BLOCK_OFFSET,
    fault_log::BLOCK_OFFSET,
];
const COUNTERS: u32 = fpga_firmware::generated::counters::BLOCK_OFFSET;

/// Simulated card, and the operations for the module with the expected outputs.
struct Script {
    card: Card,
    bar: u8,
    now: u64,
    text: String,
    expected: Vec<(String, String)>,
}

impl Script {
    fn new() -> Self {
        let description = CardDescription::parse(std::path::Path::new("card.yaml"), CARD).unwrap();
        let mut card = Card::new(description).unwrap();
        card.set_command(true, true);
        let bar = card.bars().iter().find(|layout| layout.role == BarRole::User).unwrap().index;
        Self { card, bar, now: 0, text: String::new(), expected: Vec::new() }
    }

    fn read_card(&mut self, at: u32) -> u32 {
        let mut bytes = [0; 4];
        self.card.bar_read(self.bar, at.into(), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn read(&mut self, at: u32) {
        let value = self.read_card(at);
        writeln!(self.text, "R {at:x}").unwrap();
        self.expected.push((format!("read of {at:#x}"), format!("R {value:x}")));
    }

    /// Writes `bytes` bytes from the lowest on.
    fn write(&mut self, at: u32, value: u32, bytes: usize) {
        self.card.bar_write(self.bar, at.into(), &value.to_le_bytes()[..bytes], &mut NoHost);
        for _ in 0..100 {
            self.now += 10_000;
            self.card.step(Nanos::new(self.now), &mut NoHost);
        }
        writeln!(self.text, "W {at:x} {value:x} {:x}\ns", (1 << bytes) - 1).unwrap();
        let is_whole = bytes == 4 || is_plain(at);
        self.expected.push((
            format!("write of {value:#x} to {at:#x}, {bytes} bytes"),
            format!("W {}", if is_whole { 0 } else { 2 }),
        ));
    }

    /// Compares all readable words of a block. Times differ.
    fn compare(&mut self, block: u32) {
        for at in (block..block + COMPARED).step_by(4) {
            let is_time = at == fault_log::BLOCK_OFFSET + fault_log::TIME_LOW
                || at == fault_log::BLOCK_OFFSET + fault_log::TIME_HIGH;
            if !is_time {
                self.read(at);
            }
        }
    }

    fn run(&self, program: &std::path::Path, seed: u32, percent: u32) {
        let arguments =
            [u64::from(seed), percent.into(), MEMORY, MEMORY_WINDOWS.into()].map(|n| n.to_string());
        let mut child = start(program, seed, &arguments.each_ref().map(String::as_str)).unwrap();
        let mut input = child.stdin.take().unwrap();
        let text = self.text.clone();
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let found = String::from_utf8(output.stdout).unwrap();
        let mut last_write = "";
        for (found, (operation, expected)) in found.lines().zip(&self.expected) {
            assert_eq!(found, expected, "seed {seed}: {operation}, after {last_write}");
            if operation.starts_with('w') {
                last_write = operation;
            }
        }
        assert_eq!(found.lines().count(), self.expected.len(), "seed {seed}");
    }
}

fn is_plain(at: u32) -> bool {
    matches!(
        at.wrapping_sub(ni::BLOCK_OFFSET),
        ni::NODE_ID
            | ni::INCARNATION
            | ni::THRESHOLD
            | ni::ESCAPE_TIMEOUT_US
            | ni::REGISTRY_TIMEOUT_US
            | ni::PACKET_LIFETIME_US
            | ni::GIVE_UP_US
    )
}

fn build() -> Option<PathBuf> {
    let model = Model {
        name: "registers",
        top: "registers_bench",
        files: &[
            "ni_fifo.sv",
            "ni_arbiter.sv",
            "ni_write.sv",
            "ni_events.sv",
            "ni_faults.sv",
            "ni_counters.sv",
            "ni_identity.sv",
            "ni_settings.sv",
            "ni_shadows.sv",
            "ni_registers.sv",
            "../../../tests/rtl/sv/registers_bench.sv",
        ],
        parameters: &[],
        driver: "registers.cpp",
    };
    model.build().unwrap()
}

#[test]
fn registers_after_reset_match_card() {
    let Some(program) = build() else { return };
    let mut script = Script::new();
    let of_this_build = [
        BlockType::Identity,
        BlockType::Cdma,
        BlockType::Ni,
        BlockType::Counters,
        BlockType::Registry,
        BlockType::Escape,
        BlockType::Memory,
        BlockType::FaultLog,
    ];
    let blocks: Vec<_> = identity::usual_blocks()
        .into_iter()
        .filter(|block| block.block_type().is_some_and(|block| of_this_build.contains(&block)))
        .collect();
    let capabilities = Capabilities::PACKET_EVENTS.with(Capabilities::FAULT_LOG);
    let mut words = identity::encode(1, capabilities, &blocks);
    words.resize(0x100, 0);
    for (number, word) in words.iter().enumerate() {
        writeln!(script.text, "R {:x}", 4 * number).unwrap();
        script.expected.push((format!("identity word {number}"), format!("R {word:x}")));
    }
    BLOCKS.iter().chain([&COUNTERS]).for_each(|block| script.compare(*block));
    script.run(&program, 1, 100);
}

/// Values that meet or miss the rules of the settings.
fn value(rng: &mut Pcg64, at: u32) -> u32 {
    let special = [0, 1, 2, 3, 4, 5, 64, 128, 129, 256, 512, 513, 4096, 4097, 0x1_0000, 0x1_0001, u32::MAX];
    match at {
        // CONTROL, with RESET now and then.
        0x2008 => [0, 1, 4, 5, 8, 0xd, 0xf, 2, 7, u32::MAX][rng.next_u32() as usize % 10],
        // The base of the event ring: in memory, unaligned, or beyond memory.
        0x2080 => [0, 0x40, 0x8000, 0x20, 0xf_ff00][rng.next_u32() as usize % 5],
        0x2084 => u32::from(rng.next_u32().is_multiple_of(4)),
        // No link feedback in the module.
        0x20e4 => rng.next_u32() & !1,
        0x6000 => rng.next_u32() % 20,
        0x6024 => rng.next_u32() % 4,
        _ if rng.next_u32().is_multiple_of(3) => rng.next_u32() >> (rng.next_u32() % 32),
        _ => special[rng.next_u32() as usize % special.len()],
    }
}

#[test]
fn registers_after_random_writes_match_card() {
    let Some(program) = build() else { return };
    for (seed, percent) in [(1, 100), (2, 50), (3, 80)] {
        let mut rng = Pcg64::seed_from_u64(seed.into());
        let mut script = Script::new();
        // No ring yet: EVENT_ENABLE is refused, ENABLE is not.
        script.write(ni::BLOCK_OFFSET + ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE, 4);
        script.compare(ni::BLOCK_OFFSET);
        for _ in 0..500 {
            for _ in 0..1 + rng.next_u32() % 4 {
                let block = BLOCKS[[0, 0, 0, 1, 2, 3, 3, 4][rng.next_u32() as usize % 8]];
                let at = block + rng.next_u32() % (COMPARED / 4) * 4;
                let bytes =
                    if rng.next_u32().is_multiple_of(10) { 1 + rng.next_u32() as usize % 3 } else { 4 };
                let value = value(&mut rng, at);
                // The module has no network: a HELLO would count a packet only at the card.
                let is_hello = at == ni::BLOCK_OFFSET + ni::HELLO && value != u32::MAX;
                if !is_hello && at != ni::BLOCK_OFFSET + ni::EVENT_CONSUMED {
                    script.write(at, value, bytes);
                }
            }
            let is_enabled =
                script.read_card(ni::BLOCK_OFFSET + ni::CONTROL) & ni::control::EVENT_ENABLE != 0;
            if is_enabled && rng.next_u32().is_multiple_of(3) {
                // Consume all or some events. The card would write the counted faults into a ring that is off; the module does not.
                let at = ni::BLOCK_OFFSET + ni::EVENT_PRODUCED;
                let produced = script.read_card(at);
                script.write(
                    ni::BLOCK_OFFSET + ni::EVENT_CONSUMED,
                    produced.wrapping_sub(rng.next_u32() % 2),
                    4,
                );
            }
            BLOCKS.iter().chain([&COUNTERS]).for_each(|block| script.compare(*block));
        }
        for entry in 0..66 {
            script.write(fault_log::BLOCK_OFFSET + fault_log::INDEX, entry, 4);
            script.compare(fault_log::BLOCK_OFFSET);
        }
        script.run(&program, seed, percent);
    }
}
