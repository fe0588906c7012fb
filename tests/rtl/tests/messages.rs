//! `ni_message_receive` against `fpga_protocol::scheme::messages::Receiver` without adaptive timers: the same packets, commands and timeouts
//! give the same writes, answers, events, faults, counters and contexts, in the same order.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fpga_firmware::ids::Incarnation;
use fpga_ni_tests::Model;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::ReceiverConfig;
use fpga_protocol::scheme::receiver_window::ReceiverWindowConfig;

mod card;
mod directed;
mod faults;
mod lockstep;
mod packets;
mod traffic;

use lockstep::{Lockstep, RECEIVER};
use traffic::Traffic;

/// Files of the module, without the package.
pub(crate) const FILES: &[&str] = &[
    "ni_fifo.sv",
    "ni_message_receive.sv",
    "ni_message_contexts.sv",
    "ni_message_peers.sv",
    "ni_message_report.sv",
    "ni_message_shadow.sv",
    "ni_message_stream.sv",
    "ni_message_timers.sv",
    "ni_message_window.sv",
    "ni_receive_shadow.sv",
    "ni_inflight.sv",
    "ni_nodes.sv",
    "ni_access.sv",
    "ni_refusals.sv",
];

/// Sizes of the module.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    name: &'static str,
    bus: u64,
    packet_log2: u8,
    contexts: u32,
    /// Maximum window.
    window: u32,
    windows: u32,
    peers: u32,
}

/// Everything overflows often.
const SMALL: Sizes =
    Sizes { name: "messages-small", bus: 128, packet_log2: 6, contexts: 4, window: 32, windows: 4, peers: 8 };

const DEFAULT: Sizes = Sizes {
    name: "messages-default",
    packet_log2: 7,
    contexts: 64,
    window: 128,
    windows: 64,
    peers: 1024,
    ..SMALL
};

/// A packet is one beat.
const WIDE: Sizes = Sizes { name: "messages-wide", bus: 512, contexts: 8, window: 64, ..SMALL };

const NARROW: Sizes = Sizes { name: "messages-narrow", bus: 64, contexts: 8, window: 128, ..SMALL };

/// Settings of the scheme.
#[derive(Clone, Copy, Debug)]
struct Scheme {
    window: u32,
    credit: bool,
    patience: u8,
    round_trip: u64,
}

impl Scheme {
    const fn of(window: u32) -> Self {
        Self { window, credit: false, patience: 3, round_trip: 1000 }
    }

    fn arguments(self) -> [String; 4] {
        [
            format!("+window={}", self.window),
            format!("+credit={}", u8::from(self.credit)),
            format!("+patience={}", self.patience),
            format!("+round_trip={}", self.round_trip),
        ]
    }
}

impl Sizes {
    fn config(self, scheme: Scheme) -> ReceiverConfig {
        let rules = ReceiverWindowConfig {
            window: scheme.window,
            credit: scheme.credit,
            patience: scheme.patience,
            adaptive: false,
            ..ReceiverWindowConfig::new(Nanos::new(scheme.round_trip))
        };
        let mut config =
            ReceiverConfig::new(RECEIVER, Incarnation::new(0xCAFE), SchemeConfig::ReceiverWindow(rules));
        config.packet_size_log2 = self.packet_log2;
        config.contexts = self.contexts;
        config.peers = self.peers;
        config.windows = self.windows;
        config.silence = Nanos::new(300_000);
        config.lifetime = Nanos::new(60_000);
        config.tombstone = Nanos::new(360_000);
        config
    }

    fn build(self) -> Option<PathBuf> {
        self.build_files(self.name, FILES)
    }

    fn build_files(self, name: &str, files: &[&str]) -> Option<PathBuf> {
        let parameters = [
            ("BUS", self.bus),
            ("PACKET_LOG2", self.packet_log2.into()),
            ("CONTEXTS", self.contexts.into()),
            ("WINDOW", self.window.into()),
            ("MEMORY_WINDOWS", self.windows.into()),
            ("PEERS", self.peers.into()),
            ("NODES", self.peers.into()),
        ];
        let bench = fpga_process::workspace_root().join("tests/rtl/sv/messages_bench.sv");
        let files: Vec<&str> = files.iter().copied().chain(bench.to_str()).collect();
        let model = Model {
            name,
            top: "messages_bench",
            files: &files,
            parameters: &parameters,
            driver: "messages.cpp",
        };
        model.build().unwrap()
    }
}

/// Number of steps of the random tests: a packet, a command or a pause.
fn count() -> u64 {
    std::env::var("FPGA_RTL_PACKETS").map_or(20_000, |count| count.parse().unwrap())
}

fn random(program: &Path, sizes: Sizes, scheme: Scheme, steps: u64, seed: u32) {
    let begun = Instant::now();
    let config = sizes.config(scheme);
    let mut both = Lockstep::new(program, config, &scheme.arguments(), seed, 0);
    let mut traffic = Traffic::new(config, scheme.window, seed.into());
    Traffic::begin(&mut both);
    for number in 1..=steps {
        traffic.step(&mut both);
        if number % 1000 == 0 {
            both.sync();
        }
    }
    both.compare_contexts();
    both.sync();
    let rate = steps as f64 / begun.elapsed().as_secs_f64();
    println!("{}: {steps} steps, {} cycles, {rate:.0} steps/s", sizes.name, both.cycles());
    println!("{:?}", both.receiver.counters());
}

#[test]
fn random_small_tables_match() {
    let Some(program) = SMALL.build() else { return };
    for (seed, window) in [(1, 32), (2, 7), (3, 1)] {
        random(&program, SMALL, Scheme::of(window), count() / 3, seed);
    }
}

#[test]
fn random_small_tables_with_credit_match() {
    let Some(program) = SMALL.build() else { return };
    let scheme = Scheme { credit: true, patience: 1, ..Scheme::of(32) };
    random(&program, SMALL, scheme, count() / 2, 4);
}

#[test]
fn random_other_sizes_match() {
    let others = [
        (DEFAULT, Scheme::of(128), 5),
        (DEFAULT, Scheme { credit: true, ..Scheme::of(100) }, 6),
        (WIDE, Scheme { round_trip: 300, ..Scheme::of(64) }, 7),
        (NARROW, Scheme::of(128), 8),
    ];
    for (size, scheme, seed) in fpga_ni_tests::sizes(&[], &others) {
        let Some(program) = size.build() else { return };
        random(&program, size, scheme, count() / 4, seed);
    }
}

#[test]
#[ignore = "long: 90 s: a million steps of random traffic"]
fn random_million_steps_of_messages_match() {
    let Some(program) = SMALL.build() else { return };
    random(&program, SMALL, Scheme::of(32), 1_000_000, 9);
}
