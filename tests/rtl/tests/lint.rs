//! Static checks of all modules.

use std::process::Command;

use fpga_pci::testing::skipped_without;

/// SystemVerilog files of the network interface, package first.
fn files() -> Vec<std::path::PathBuf> {
    let folder = fpga_ni_tests::sources();
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "sv" || end == "v")).collect();
    files.sort_by_key(|path| (!path.ends_with("ni_pkg.sv"), path.clone()));
    files
}

#[test]
fn verilator_has_no_warnings() {
    if Command::new("verilator").arg("--version").output().is_err() {
        return skipped_without("verilator", "verilator");
    }
    // Modules that no other one uses are tops.
    let options = ["--lint-only", "-Wall", "-Wno-MULTITOP"];
    let output = Command::new("verilator").args(options).args(files()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
