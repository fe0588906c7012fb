//! Memory of the transmit windows against an array of bytes, with random AXI bursts and strobes.

use std::path::PathBuf;

use fpga_ni_tests::{Model, sizes, start};

use crate::frames::{records, run};
use crate::random::Random;

/// Offset of the commit word.
const COMMIT_OFFSET: usize = 0x0fc0;

/// Parameters of a build.
#[derive(Clone, Copy)]
struct Build {
    bus: usize,
    packet_log2: usize,
    mask_bits: usize,
    windows: usize,
}

impl Build {
    fn program(self) -> Option<PathBuf> {
        let Self { bus, packet_log2, mask_bits, windows } = self;
        let model = Model {
            name: &format!("windows_{bus}_{windows}"),
            top: "ni_windows",
            files: &["ni_fifo.sv", "ni_windows.sv"],
            parameters: &[
                ("BUS", bus as u64),
                ("PACKET_LOG2", packet_log2 as u64),
                ("MASK_BITS", mask_bits as u64),
                ("WINDOWS", windows as u64),
            ],
            driver: "windows.cpp",
        };
        model.build().unwrap()
    }

    const fn width(self) -> usize {
        self.bus / 8
    }

    const fn payload(self) -> usize {
        self.mask_bits << self.packet_log2
    }

    const fn stride(self) -> usize {
        (0x1000 + self.payload()).next_power_of_two()
    }

    /// Whether the byte at `offset` in its window exists.
    fn is_memory(self, offset: usize) -> bool {
        (0..2048).contains(&offset)
            || (COMMIT_OFFSET..COMMIT_OFFSET + 4).contains(&offset)
            || (0x1000..0x1000 + self.payload()).contains(&offset)
    }
}

/// Memory as an array of bytes, and what the module has to report.
struct Expected {
    build: Build,
    bytes: Vec<u8>,
    input: Vec<u8>,
    records: Vec<(char, Vec<u8>)>,
}

impl Expected {
    fn write(&mut self, random: &mut Random, address: usize, size: u8, beats: usize, full: bool) {
        let width = self.build.width();
        self.input.push(b'W');
        self.burst(address, size, beats);
        let mut at = address;
        for _ in 0..beats {
            let first = at / width * width;
            let end = (at >> size << size) + (1 << size);
            let mut data = random.bytes(width);
            if random.one_in(3) {
                data[..4].fill(0);
            }
            let mut strobes = vec![0_u8; width / 8];
            for byte in at..end {
                if full || random.one_in(2) {
                    strobes[(byte - first) / 8] |= 1 << (byte % 8);
                    self.store(byte, data[byte - first]);
                }
            }
            if first % self.build.stride() == COMMIT_OFFSET && strobes[0] & 8 != 0 {
                let word = &self.bytes[first..first + 4];
                if word.iter().any(|byte| *byte != 0) {
                    let window = first / self.build.stride();
                    self.records.push(('K', vec![u8::try_from(window).unwrap()]));
                }
            }
            self.input.extend(&data);
            self.input.extend(&strobes);
            at = end;
        }
    }

    fn store(&mut self, address: usize, value: u8) {
        if self.build.is_memory(address % self.build.stride()) {
            self.bytes[address] = value;
        }
    }

    fn read(&mut self, address: usize, size: u8, beats: usize) {
        self.input.push(b'R');
        self.burst(address, size, beats);
        let width = self.build.width();
        let mut data = Vec::new();
        let mut at = address;
        for _ in 0..beats {
            let first = at / width * width;
            data.extend(&self.bytes[first..first + width]);
            at = (at >> size << size) + (1 << size);
        }
        self.records.push(('R', data));
    }

    fn fetch(&mut self, address: usize) {
        let width = self.build.width();
        let (window, offset) = (address / self.build.stride(), address % self.build.stride());
        self.input.extend([b'T', u8::try_from(window).unwrap()]);
        self.input.extend(u32::try_from(offset / width).unwrap().to_le_bytes());
        let first = address / width * width;
        self.records.push(('T', self.bytes[first..first + width].to_vec()));
    }

    fn burst(&mut self, address: usize, size: u8, beats: usize) {
        self.input.extend(u32::try_from(address).unwrap().to_le_bytes());
        self.input.push(size);
        self.input.extend(u16::try_from(beats).unwrap().to_le_bytes());
    }
}

/// Address of a burst: often near the commit word, or near the end of a part of the window.
fn address(random: &mut Random, build: Build) -> usize {
    let window = usize::try_from(random.within(0, build.windows as u64 - 1)).unwrap();
    let near = random.pick(&[0, 2048, COMMIT_OFFSET, COMMIT_OFFSET, 0x1000, 0x1000 + build.payload()]);
    let offset = if random.one_in(2) {
        (near + usize::try_from(random.within(0, 128)).unwrap()).saturating_sub(64)
    } else {
        usize::try_from(random.within(0, build.stride() as u64 - 1)).unwrap()
    };
    window * build.stride() + offset.min(build.stride() - 1)
}

fn operations(build: Build, seed: u64, count: usize) -> Expected {
    let mut random = Random::new(seed);
    let size = u8::try_from(build.width().ilog2()).unwrap();
    let total = build.stride() * build.windows;
    let mut expected = Expected { build, bytes: vec![0; total], input: Vec::new(), records: Vec::new() };
    // Memory has random content at first.
    for start in (0..total).step_by(256 * build.width()) {
        let beats = ((total - start) / build.width()).min(256);
        expected.write(&mut random, start, size, beats, true);
    }
    for _ in 0..count {
        let at = address(&mut random, build);
        let size = u8::try_from(random.within(0, size.into())).unwrap();
        let most = ((total - at) >> size).clamp(1, 256) as u64;
        let beats = if random.one_in(8) { random.within(1, most) } else { random.within(1, most.min(6)) };
        let beats = usize::try_from(beats).unwrap();
        match random.within(0, 3) {
            0 => expected.write(&mut random, at, size, beats, false),
            1 => expected.read(at, size, beats),
            _ => expected.fetch(at),
        }
    }
    expected
}

#[test]
fn random_accesses_equal_an_array() {
    let usual = [
        Build { bus: 64, packet_log2: 6, mask_bits: 32, windows: 3 },
        Build { bus: 512, packet_log2: 7, mask_bits: 48, windows: 1 },
    ];
    for build in sizes(&usual, &[Build { bus: 128, packet_log2: 9, mask_bits: 64, windows: 8 }]) {
        let Some(program) = build.program() else { return };
        for (seed, pace) in [(1, "256"), (2, "100")] {
            let expected = operations(build, u64::from(seed) + build.bus as u64, 3000);
            let output = run(start(&program, seed, &[&seed.to_string(), pace]).unwrap(), expected.input);
            let found = records(&output);
            for kind in ['K', 'R', 'T'] {
                let of = |records: &[(char, Vec<u8>)]| -> Vec<Vec<u8>> {
                    records.iter().filter(|record| record.0 == kind).map(|record| record.1.clone()).collect()
                };
                let (found, expected) = (of(&found), of(&expected.records));
                assert!(expected.len() > 8, "{kind}: {}", expected.len());
                let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                assert_eq!(
                    (first, found.len()),
                    (None, expected.len()),
                    "bus {}, seed {seed}: {kind}",
                    build.bus
                );
            }
        }
    }
}

#[test]
fn transmitter_waits_at_most_every_second_cycle() {
    let build = Build { bus: 64, packet_log2: 6, mask_bits: 32, windows: 3 };
    let Some(program) = build.program() else { return };
    let mut expected = operations(build, 1, 0);
    for _ in 0..100 {
        expected.read(0, 3, 256);
        for beat in 0..100 {
            expected.fetch(8 * beat);
        }
    }
    let found = records(&run(start(&program, 1, &["1", "256"]).unwrap(), expected.input));
    let (_, waited) = found.iter().find(|record| record.0 == 'C').unwrap();
    let waited = u64::from_le_bytes(waited.as_slice().try_into().unwrap());
    assert!((1000..=10_000).contains(&waited), "{waited} cycles of 10000 reads");
}
