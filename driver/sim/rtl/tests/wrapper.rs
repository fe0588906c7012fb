//! Wrappers with the ports of the vendor's IP.

use std::process::Command;

use fpga_pci::testing::skipped_without;
use fpga_rtl::wrapper::{WrapperOptions, wrapper};
use fpga_sim::CardDescription;

use crate::simulator::rtl;

fn generated(board: &str, options: WrapperOptions) -> String {
    let card = CardDescription::builtin(board).unwrap();
    wrapper(&card, &WrapperOptions { module: "xdma_0".to_owned(), ..options }).unwrap()
}

/// Both bypasses: every kind of port.
fn complete() -> String {
    let options = WrapperOptions { descriptor_bypass: true, cfg_mgmt: true, ..WrapperOptions::default() };
    generated("default", options)
}

#[test]
fn wrapper_of_memory_mapped_card() {
    let options = WrapperOptions { user_interrupts: Some(2), ..WrapperOptions::default() };
    insta::assert_snapshot!("memory_mapped", generated("us-plus-x16-no-bypass", options));
}

#[test]
fn wrapper_of_stream_card() {
    insta::assert_snapshot!("stream", generated("us-plus-x8-stream", WrapperOptions::default()));
}

#[test]
fn wrapper_of_7_series_card_with_bypass_bar() {
    insta::assert_snapshot!("bypass_bar", generated("7-series-gen2-x8", WrapperOptions::default()));
}

/// A top level that connects every port of the wrapper by name to a wire of its own, as one that was made for the IP does.
fn top(wrapper: &str) -> String {
    let mut wires = String::new();
    let mut connections = Vec::new();
    for line in
        wrapper.lines().skip_while(|line| !line.starts_with("module")).take_while(|line| *line != ");")
    {
        let words: Vec<&str> = line.trim_end_matches(',').split_whitespace().collect();
        if let [_, "wire", range @ .., name] = words.as_slice() {
            wires += &format!("    wire {} {name};\n", range.concat());
            connections.push(format!("        .{name}({name})"));
        }
    }
    assert!(connections.len() > 30);
    format!("module top;\n{wires}    xdma_0 xdma_0_i (\n{}\n    );\nendmodule\n", connections.join(",\n"))
}

#[test]
fn verilator_accepts_top_level_with_wrapper() {
    if Command::new("verilator").arg("--version").output().is_err() {
        return skipped_without("verilator", "verilator");
    }
    let folder = tempfile::tempdir().unwrap();
    let stream = generated("us-plus-x8-stream", WrapperOptions::default());
    let sparse = generated("7-series-gen3-x8", WrapperOptions::default());
    for wrapper in [complete(), stream, sparse] {
        let (module, instance) = (folder.path().join("xdma_0.sv"), folder.path().join("top.sv"));
        std::fs::write(&instance, top(&wrapper)).unwrap();
        std::fs::write(&module, &wrapper).unwrap();
        // Width mismatches and missing pins are errors; the test's own wires have no drivers.
        let output = Command::new("verilator")
            .args([
                "--lint-only",
                "--timing",
                "-Wall",
                "-Wno-UNDRIVEN",
                "-Wno-UNUSED",
                "-Wno-PINCONNECTEMPTY",
            ])
            .args(["-Wno-DECLFILENAME", "-Wno-fatal", "--top-module", "top"])
            .args([&instance, &module, &rtl().join("xdma/fpga_xdma.sv")])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let faults = ["WIDTH", "PINMISSING", "PINNOTFOUND", "IMPLICIT", "MULTIDRIVEN"];
        let is_fault = |line: &&str| faults.iter().any(|fault| line.contains(&format!("Warning-{fault}")));
        let found: Vec<&str> =
            said.lines().filter(|line| !line.contains("fpga_xdma.sv")).filter(is_fault).collect();
        assert!(found.is_empty(), "{found:?}\n{wrapper}");
    }
}
