//! AXI ports of `fpga_ni` in Icarus Verilog, with masters, memory, stream source and sink of cocotbext-axi (`tests/cocotb`).

use std::path::Path;
use std::process::Command;

use fpga_pci::testing::{skipped, skipped_without};

#[test]
fn ports_work_with_foreign_masters_and_memory() {
    if Command::new("iverilog").arg("-V").output().is_err() {
        return skipped_without("iverilog", "iverilog");
    }
    let root = fpga_process::workspace_root();
    let environment = root.join("target/python/bin/python");
    let python = if environment.exists() { environment } else { "python3".into() };
    let import = Command::new(&python).args(["-c", "import cocotb, cocotbext.axi"]).output();
    if !import.is_ok_and(|run| run.status.success()) {
        return skipped(
            "Python with cocotb and cocotbext-axi is not installed (cargo xtask python --build-only)",
        );
    }
    let output = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cocotb/run.py"))
        .args([root.join("target/ni-ports"), fpga_ni_tests::sources()])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("PASS=3 FAIL=0"), "{}\n{out}\n{errors}", output.status);
}
