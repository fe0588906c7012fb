//! `ni_receive` against `fpga_protocol::receiver::Receiver`: the same packets, commands and timeouts give the same writes, answers, events,
//! faults, counters and table contents, in the same order.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_ni_tests::Model;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;

#[path = "../../../firmware-bindings/protocol/tests/bad_input.rs"]
mod bad_input;
pub(crate) mod common;
mod directed;
#[path = "../../../firmware-bindings/protocol/tests/errata.rs"]
mod errata;
mod errata_list;
#[path = "../../../firmware-bindings/protocol/tests/events.rs"]
mod events;
mod faults;
mod lockstep;
mod netlist;
#[path = "../../../firmware-bindings/protocol/tests/notices.rs"]
mod notices;
#[path = "recorded.rs"]
mod recorded;
mod traffic;
#[path = "../../../firmware-bindings/protocol/tests/trimmed.rs"]
mod trimmed;
#[path = "../../../firmware-bindings/protocol/tests/withdraw.rs"]
mod withdraw;

use lockstep::Lockstep;
use traffic::Traffic;

/// Files of the module, without the package.
pub(crate) const FILES: &[&str] = &[
    "ni_fifo.sv",
    "ni_receive.sv",
    "ni_receive_check.sv",
    "ni_receive_command.sv",
    "ni_receive_control.sv",
    "ni_receive_end.sv",
    "ni_receive_start.sv",
    "ni_receive_sweep.sv",
    "ni_receive_timer.sv",
    "ni_receive_write.sv",
    "ni_receive_report.sv",
    "ni_receive_shadow.sv",
    "ni_inflight.sv",
    "ni_notice_slots.sv",
    "ni_registry.sv",
    "ni_registry_cam.sv",
    "ni_registry_hash.sv",
    "ni_records.sv",
    "ni_senders.sv",
    "ni_transfers.sv",
    "ni_tombstones.sv",
    "ni_nodes.sv",
    "ni_access.sv",
    "ni_escape.sv",
    "ni_refusals.sv",
];

/// Sizes of the module.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    name: &'static str,
    bus: u64,
    packet_log2: u8,
    mask_bits: u16,
    entries: u32,
    hashed: bool,
    escape_slots: u16,
    windows: u32,
    sources: u16,
    transfers: u16,
    tombstones: u16,
    nodes: u32,
}

/// Everything overflows often.
const SMALL: Sizes = Sizes {
    name: "receive-small",
    bus: 128,
    packet_log2: 6,
    mask_bits: 32,
    entries: 16,
    hashed: false,
    escape_slots: 8,
    windows: 4,
    sources: 4,
    transfers: 8,
    tombstones: 4,
    nodes: 4,
};

const DEFAULT: Sizes = Sizes {
    name: "receive-default",
    bus: 128,
    packet_log2: 9,
    mask_bits: 32,
    entries: 64,
    hashed: false,
    escape_slots: 64,
    windows: 64,
    sources: 64,
    transfers: 128,
    tombstones: 128,
    nodes: 1024,
};

/// Four ways; sets are full although other entries are free.
const HASHED: Sizes = Sizes { name: "receive-hashed", hashed: true, ..SMALL };

const WIDE: Sizes = Sizes { name: "receive-wide", bus: 512, packet_log2: 7, mask_bits: 256, ..SMALL };

/// Sizes of the receiver tests of `fpga-protocol`.
const RECORDED: Sizes = Sizes {
    name: "receive-recorded",
    entries: 2,
    escape_slots: 8,
    windows: 2,
    sources: 2,
    transfers: 4,
    tombstones: 4,
    nodes: 1024,
    ..SMALL
};

impl Sizes {
    fn config(self) -> ReceiverConfig {
        let mut config = ReceiverConfig::new(NodeId::new(2), Incarnation::new(0xCAFE));
        config.packet_size_log2 = self.packet_log2;
        config.mask_bits = self.mask_bits;
        config.registry_entries = self.entries;
        config.hashed_registry = self.hashed;
        config.escape_slots = self.escape_slots;
        config.windows = self.windows;
        config.sources = self.sources;
        config.transfers = self.transfers;
        config.tombstones = self.tombstones;
        config.nodes = self.nodes;
        config.escape_timeout = Nanos::new(20_000);
        config.registry_timeout = Nanos::new(400_000);
        config.packet_lifetime = Nanos::new(60_000);
        config
    }

    fn parameters(self) -> [(&'static str, u64); 11] {
        [
            ("BUS", self.bus),
            ("PACKET_LOG2", self.packet_log2.into()),
            ("MASK_BITS", self.mask_bits.into()),
            ("ENTRIES", self.entries.into()),
            ("HASHED", self.hashed.into()),
            ("ESCAPE_SLOTS", self.escape_slots.into()),
            ("MEMORY_WINDOWS", self.windows.into()),
            ("SOURCES", self.sources.into()),
            ("TRANSFERS", self.transfers.into()),
            ("TOMBSTONES", self.tombstones.into()),
            ("NODES", self.nodes.into()),
        ]
    }

    fn build(self) -> Option<PathBuf> {
        self.build_files(self.name, FILES)
    }

    fn build_files(self, name: &str, files: &[&str]) -> Option<PathBuf> {
        let parameters = self.parameters();
        let model = Model { name, top: "ni_receive", files, parameters: &parameters, driver: "receive.cpp" };
        model.build().unwrap()
    }
}

/// Number of packets of the random tests.
fn packets() -> u64 {
    std::env::var("FPGA_RTL_PACKETS").map_or(80_000, |count| count.parse().unwrap())
}

fn random(program: &Path, sizes: Sizes, packets: u64, seed: u32) {
    let begun = Instant::now();
    let mut both = Lockstep::new(program, sizes.config(), seed, 0);
    let mut traffic = Traffic::new(sizes.config(), seed.into());
    traffic.begin(&mut both);
    for number in 1..=packets {
        traffic.step(&mut both);
        if number % 1000 == 0 {
            both.sync();
        }
    }
    both.compare_tables();
    both.sync();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{}: {packets} packets, {} cycles, {:.0} packets/s",
        sizes.name,
        both.cycles(),
        packets as f64 / seconds
    );
    println!("{:?}", both.receiver.counters());
}

#[test]
fn random_small_tables_match() {
    let Some(program) = SMALL.build() else { return };
    random(&program, SMALL, packets(), 1);
}

#[test]
fn random_default_sizes_match() {
    let Some(program) = DEFAULT.build() else { return };
    random(&program, DEFAULT, packets() / 8, 2);
}

#[test]
fn random_wide_mask_and_bus_match() {
    for wide in fpga_ni_tests::sizes(&[], &[WIDE]) {
        let Some(program) = wide.build() else { return };
        random(&program, wide, packets() / 8, 3);
    }
}

#[test]
fn random_hashed_registry_matches() {
    let Some(program) = HASHED.build() else { return };
    random(&program, HASHED, packets() / 4, 6);
}

#[test]
#[ignore = "long: 60 s: a million packets"]
fn random_million_packets_match() {
    let Some(program) = SMALL.build() else { return };
    random(&program, SMALL, 1_000_000, 4);
}
