//! The RTL that `fpgactl rtl registers` writes, in a test bench of its own.

use std::fs;
use std::process::Command;

use fpga_pci::testing::skipped_without;
use fpga_register_map::{RegisterMap, rtl};

use crate::rtl::models::{project, work};

#[test]
fn rtl_skeleton_has_every_access() {
    if Command::new("verilator").arg("--version").output().is_err() {
        return skipped_without("verilator", "verilator");
    }
    let folder = work("rtl-skeleton");
    fs::create_dir_all(&folder).unwrap();
    let map = RegisterMap::load(&project("tests/rtl/skeleton.yaml")).unwrap();
    let source = folder.join("kinds.sv");
    fs::write(&source, rtl::skeleton(&map, "kinds").unwrap()).unwrap();
    let output = Command::new("verilator")
        // All of Verilator's warnings about the generated module are errors; the bench has its own style.
        .args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "--top-module", "kinds"])
        .arg(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new("verilator")
        .args(["--binary", "--timing", "-Wno-lint", "--top-module", "bench", "-j", "2", "-CFLAGS", "-O0"])
        .args(["-MAKEFLAGS", "OPT_FAST=-O0", "-o", "bench", "--Mdir"])
        .args([&folder.join("obj"), &source, &project("tests/rtl/skeleton.sv")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(folder.join("obj/bench")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("all right"), "{said}");
}
