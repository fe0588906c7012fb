//! Netlists of Yosys against the protocol engine: Yosys 0.23 drops constructs without a message, which the simulation of the sources
//! does not show. The word netlist has the memories and operators of the sources; the LUT netlist is what would be placed: LUTs with six
//! inputs and flip-flops, memories included.

use std::fmt::Write as _;
use std::process::Command;

use fpga_ni_tests::Model;
use fpga_pci::testing::skipped_without;

use super::{FILES, HASHED, SMALL, Sizes, random};

const WORDS: &str = "proc; flatten; opt; memory_dff; memory_collect; opt";

const LUTS: &str = "synth -flatten -lut 6; opt_clean -purge";

/// Synthesises `ni_receive` by the commands `passes`, and gives its netlist `packets` random packets beside the engine.
fn netlist_matches(name: &str, sizes: Sizes, passes: &str, packets: u64) {
    if Command::new("yosys").arg("-V").output().is_err() {
        return skipped_without("yosys", "yosys");
    }
    let folder = fpga_process::workspace_root().join("target/ni-netlist");
    std::fs::create_dir_all(&folder).unwrap();
    let netlist = folder.join(format!("{name}.v"));
    let sources = fpga_ni_tests::sources();
    let mut script = String::from("read_verilog -sv");
    for file in ["ni_pkg.sv"].iter().chain(FILES) {
        let _ = write!(script, " {}", sources.join(file).display());
    }
    script += "; chparam";
    for (name, value) in sizes.parameters() {
        let _ = write!(script, " -set {name} {value}");
    }
    let _ = write!(
        script,
        " ni_receive; hierarchy -check -top ni_receive; {passes}; rename -top ni_receive; check -assert; write_verilog -noattr {}",
        netlist.display()
    );
    let output = Command::new("yosys").args(["-q", "-p", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let model = Model {
        name: &format!("receive-netlist-{name}"),
        top: "ni_receive",
        files: &[netlist.to_str().unwrap()],
        parameters: &[],
        driver: "receive.cpp",
    };
    let Some(program) = model.build().unwrap() else { return };
    random(&program, sizes, packets, 5);
}

#[test]
#[ignore = "long: 60 s: Yosys reads the module, and Verilator its netlist"]
fn word_netlist_matches() {
    netlist_matches("words", SMALL, WORDS, 50_000);
}

#[test]
#[ignore = "long: 60 s: Yosys reads the module, and Verilator its netlist"]
fn word_netlist_of_hashed_registry_matches() {
    netlist_matches("words-hashed", HASHED, WORDS, 50_000);
}

#[test]
#[ignore = "long: 600 s: Yosys synthesises the module, and Verilator compiles its LUTs"]
fn lut_netlist_matches() {
    netlist_matches("luts", SMALL, LUTS, 10_000);
}

#[test]
#[ignore = "long: 600 s: Yosys synthesises the module, and Verilator compiles its LUTs"]
fn lut_netlist_of_hashed_registry_matches() {
    netlist_matches("luts-hashed", HASHED, LUTS, 10_000);
}
