//! Frames and transmit side in other front ends: Icarus Verilog, and Yosys with its checks; lint with the widths of the ports.

use std::process::Command;

use fpga_pci::testing::skipped_without;

/// Top module with the files below it, and the parameters of a small and of a large build.
const TOPS: [(&str, &[&str], [&str; 2]); 7] = [
    (
        "ni_rx",
        &["ni_fifo", "ni_crc32c", "ni_ranges", "ni_rx_length", "ni_rx_rules", "ni_rx_payload", "ni_rx"],
        ["BUS=64 PACKET_LOG2=12", "BUS=512 PACKET_LOG2=6"],
    ),
    ("ni_ethernet", &["ni_rx_length", "ni_ethernet"], ["BUS=128 NODES=8", "BUS=512 NODES=256"]),
    (
        "ni_tx",
        &["ni_fifo", "ni_crc32c", "ni_crc32c_end", "ni_tx"],
        ["BUS=128 ANSWERS=1", "BUS=256 ANSWERS=3"],
    ),
    (
        "ni_windows",
        &["ni_fifo", "ni_windows"],
        ["BUS=64 WINDOWS=3 MASK_BITS=32 PACKET_LOG2=7", "BUS=512 WINDOWS=1 MASK_BITS=32 PACKET_LOG2=6"],
    ),
    (
        "ni_transmit",
        &[
            "ni_fifo",
            "ni_ranges",
            "ni_transmit_check",
            "ni_transmit_header",
            "ni_transmit_report",
            "ni_transmit",
        ],
        ["BUS=64 WINDOWS=3 MASK_BITS=256 PACKET_LOG2=12", "BUS=512 WINDOWS=32 MASK_BITS=32 PACKET_LOG2=6"],
    ),
    ("ni_message_window", &["ni_message_window"], ["CONTEXTS=8 WINDOW=32", "CONTEXTS=64 WINDOW=128"]),
    ("ni_message_peers", &["ni_message_peers"], ["PEERS=16 CONTEXTS=4", "PEERS=1024 CONTEXTS=64"]),
];

/// Whether a program is installed.
fn has(program: &str, option: &str) -> bool {
    let found = Command::new(program).arg(option).output().is_ok();
    if !found {
        skipped_without(program, program);
    }
    found
}

/// Runs a command for each top and each of its builds; with its name, files, and the names and values of its parameters.
fn check(program: &str, arguments: impl Fn(&str, &[String], &[(&str, &str)]) -> Vec<String>) {
    for (top, files, builds) in TOPS {
        let files =
            ["ni_pkg"].iter().chain(files).map(|file| fpga_ni_tests::sources().join(format!("{file}.sv")));
        let files: Vec<String> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
        for build in builds {
            let parameters: Vec<_> = build.split(' ').map(|part| part.split_once('=').unwrap()).collect();
            let output = Command::new(program).args(arguments(top, &files, &parameters)).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{top} {build}: {errors}");
        }
    }
}

#[test]
fn verilator_has_no_warnings_in_any_build() {
    if !has("verilator", "--version") {
        return;
    }
    check("verilator", |top, files, parameters| {
        let mut arguments: Vec<String> =
            ["--lint-only", "-Wall", "--top-module", top].map(str::to_owned).into();
        arguments.extend(parameters.iter().map(|(name, value)| format!("-G{name}={value}")));
        arguments.extend(files.iter().cloned());
        arguments
    });
}

#[test]
fn icarus_elaborates_all_modules() {
    if !has("iverilog", "-V") {
        return;
    }
    check("iverilog", |top, files, parameters| {
        let mut arguments: Vec<String> = ["-g2012", "-t", "null", "-s", top].map(str::to_owned).into();
        arguments.extend(parameters.iter().map(|(name, value)| format!("-P{top}.{name}={value}")));
        arguments.extend(files.iter().cloned());
        arguments
    });
}

#[test]
#[ignore = "long: 13 s: Yosys elaborates each module in two sizes"]
fn yosys_finds_no_latch_loop_or_missing_driver() {
    if !has("yosys", "-V") {
        return;
    }
    check("yosys", |top, files, parameters| {
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| format!("-chparam {name} {value}")).collect();
        let script = format!(
            "read_verilog -sv {}; hierarchy -check -top {top} {}; proc; opt_clean; check -assert; select -assert-none t:$dlatch",
            files.join(" "),
            parameters.join(" ")
        );
        vec!["-q".to_owned(), "-p".to_owned(), script]
    });
}
