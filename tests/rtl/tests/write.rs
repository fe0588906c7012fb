//! `ni_write` against a byte array: random addresses and lengths, back-pressure, errors.

use std::fmt::Write as _;
use std::io::Write as _;

use fpga_ni_tests::{Model, start};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

const MEMORY: usize = 0x1_0000;
/// Bursts that begin here are answered with errors.
const ERRORS: std::ops::Range<usize> = 0xe000..0xf000;
/// Area of the events; payload is written below it.
const EVENTS_FROM: usize = 0xc000;

/// Write of one client.
struct Request {
    is_event: bool,
    address: usize,
    data: Vec<u8>,
}

/// Result of a run.
struct Run {
    /// `ok` or `error` for each payload write, and for each event.
    payload: Vec<String>,
    events: Vec<String>,
    cycles: u64,
    memory: Vec<u8>,
}

/// Builds the module for a bus of `bus` bits. `None` without Verilator.
fn build(bus: usize) -> Option<std::path::PathBuf> {
    let model = Model {
        name: &format!("write_{bus}"),
        top: "write_bench",
        files: &[
            "ni_fifo.sv",
            "ni_write.sv",
            "../check/axi_checker.sv",
            "../../../tests/rtl/sv/write_bench.sv",
        ],
        parameters: &[("BUS", bus as u64)],
        driver: "write.cpp",
    };
    model.build().unwrap()
}

fn run(program: &std::path::Path, bus: usize, seed: u32, percent: u32, requests: &[Request]) -> Run {
    let mut script = String::new();
    for request in requests {
        let (kind, length) =
            if request.is_event { ("e", String::new()) } else { ("p", request.data.len().to_string()) };
        write!(script, "{kind} {:x} {length} ", request.address).unwrap();
        request.data.iter().for_each(|byte| write!(script, "{byte:02x}").unwrap());
        script.push('\n');
    }
    let arguments =
        [bus / 8, seed as usize, percent as usize, MEMORY, ERRORS.start, ERRORS.end].map(|n| n.to_string());
    let mut child = start(program, seed, &arguments.each_ref().map(String::as_str)).unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("axi_checker m_axi: 0 violations"), "{text}");
    let mut run = Run { payload: Vec::new(), events: Vec::new(), cycles: 0, memory: Vec::new() };
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("p", result)) => run.payload.push(result.to_owned()),
            Some(("e", result)) => run.events.push(result.to_owned()),
            Some(("cycles", count)) => run.cycles = count.parse().unwrap(),
            Some(("memory", hex)) => {
                let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
                run.memory = (0..MEMORY).map(byte).collect();
            }
            _ => {}
        }
    }
    run
}

/// The byte array, and the expected responses of both clients. The bursts of a write end at each multiple of `block`; each is written or
/// refused as a whole.
fn model(requests: &[Request], bus: usize) -> (Vec<u8>, [Vec<String>; 2]) {
    let block = (256 * bus / 8).min(4096);
    let mut memory = vec![0; MEMORY];
    let mut responses = [Vec::new(), Vec::new()];
    for Request { is_event, address, data } in requests {
        let mut is_error = false;
        let mut at = *address;
        let mut left = &data[..];
        while !left.is_empty() {
            let (burst, rest) = left.split_at(left.len().min(block - at % block));
            if ERRORS.contains(&at) {
                is_error = true;
            } else {
                memory[at..at + burst.len()].copy_from_slice(burst);
            }
            at += burst.len();
            left = rest;
        }
        responses[usize::from(*is_event)].push(if is_error { "error" } else { "ok" }.to_owned());
    }
    (memory, responses)
}

fn random_requests(rng: &mut Pcg64, count: usize) -> Vec<Request> {
    let mut below = |limit: usize| rng.next_u32() as usize % limit;
    let mut requests = Vec::new();
    for number in 0..count {
        let is_event = below(3) == 0;
        // A few of each client begin or end in the area that answers with errors.
        let (address, length) = match (is_event, below(8)) {
            (true, 0) => (ERRORS.start + 64 * below(16), 64),
            (true, _) => (EVENTS_FROM + 64 * below(64), 64),
            (false, 0) => (ERRORS.start + below(0x1000), 1 + below(256)),
            (false, 1) => (below(EVENTS_FROM - 8192), 4096 + below(4096)),
            (false, 2) => (below(8) * 4096 + 4000 + below(96), 1 + below(200)),
            (false, 3) => (ERRORS.start - 1 - below(256), 1 + below(512)),
            (false, _) => (below(EVENTS_FROM - 4096), 1 + below(4096)),
        };
        let data = (0..length).map(|at| (at * 7 + number).to_le_bytes()[0]).collect();
        requests.push(Request { is_event, address, data });
    }
    requests
}

#[test]
fn write_random_requests_match_byte_array() {
    for bus in [64, 512] {
        let Some(program) = build(bus) else { return };
        for (seed, percent) in [(1, 100), (2, 70), (3, 30), (4, 90)] {
            let mut rng = Pcg64::seed_from_u64(seed.into());
            let requests = random_requests(&mut rng, 300);
            let run = run(&program, bus, seed, percent, &requests);
            let (memory, [payload, events]) = model(&requests, bus);
            assert_eq!(run.payload, payload, "bus {bus}, seed {seed}");
            assert_eq!(run.events, events, "bus {bus}, seed {seed}");
            let first = (0..MEMORY).find(|at| run.memory[*at] != memory[*at]);
            assert_eq!(first, None, "bus {bus}, seed {seed}: first different byte");
        }
    }
}

/// Without back-pressure a write takes the beats of its data, plus one if it is not aligned; a write of one beat takes two.
#[test]
fn write_without_back_pressure_has_no_gaps() {
    for bus in [64, 512] {
        let Some(program) = build(bus) else { return };
        for (address, length) in [(0x40, 4096_usize), (0x43, 2000), (0x80, 64), (0x81, 1)] {
            let requests: Vec<Request> =
                (0..100).map(|_| Request { is_event: false, address, data: vec![5; length] }).collect();
            let run = run(&program, bus, 1, 100, &requests);
            let bytes = bus / 8;
            let beats = (address % bytes + length).div_ceil(bytes).max(2) as u64;
            assert!(run.cycles <= 100 * beats + 12, "bus {bus}, length {length}: {} cycles", run.cycles);
        }
    }
}
