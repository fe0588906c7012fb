//! The netlist of Yosys against the protocol engine: Yosys 0.23 drops constructs without a message, which the simulation of the sources
//! does not show.

use std::fmt::Write as _;
use std::process::Command;

use fpga_ni_tests::Model;
use fpga_pci::testing::skipped_without;

use super::{FILES, SMALL, random};

#[test]
#[ignore = "long: 60 s: Yosys reads the module, and Verilator its netlist"]
fn netlist_matches() {
    if Command::new("yosys").arg("-V").output().is_err() {
        return skipped_without("yosys", "yosys");
    }
    let folder = fpga_process::workspace_root().join("target/ni-netlist");
    std::fs::create_dir_all(&folder).unwrap();
    let netlist = folder.join("ni_receive.v");
    let sources = fpga_ni_tests::sources();
    let mut script = String::from("read_verilog -sv");
    for file in ["ni_pkg.sv"].iter().chain(FILES) {
        let _ = write!(script, " {}", sources.join(file).display());
    }
    script += "; chparam";
    for (name, value) in SMALL.parameters() {
        let _ = write!(script, " -set {name} {value}");
    }
    let _ = write!(
        script,
        " ni_receive; hierarchy -check -top ni_receive; proc; flatten; opt; memory_dff; memory_collect; opt; rename -top ni_receive; \
         check -assert; write_verilog -noattr {}",
        netlist.display()
    );
    let output = Command::new("yosys").args(["-q", "-p", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let model = Model {
        name: "receive-netlist",
        top: "ni_receive",
        files: &[netlist.to_str().unwrap()],
        parameters: &[],
        driver: "receive.cpp",
    };
    let Some(program) = model.build().unwrap() else { return };
    random(&program, SMALL, 50_000, 5);
}
