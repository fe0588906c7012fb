//! Host programs that run against a model.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rtl::models::{Project, build, project};

/// Runs a host program on a model; returns what it prints.
fn run(command: &mut Command, model: &Path) -> String {
    // Cargo's contains the folder of an older library.
    let output =
        command.arg(format!("rtl:{}", model.display())).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{errors}", output.status);
    out.into_owned()
}

#[test]
fn rtl_registers_host_program_passes() {
    let parts = Project {
        name: "rtl-registers",
        sources: &["top.sv", "counter.sv"],
        map: Some("counter.yaml"),
        trace: false,
    };
    let Some(model) = build(&parts) else { return };
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().and_then(Path::parent).unwrap().join("examples/rtl_registers");
    let said = run(&mut Command::new(program), &model);
    assert!(said.starts_with("version 0x10002\n") && said.ends_with("down: from 0xffffffff\n"), "{said}");
}

/// Python with numpy and the package `fpga_rdma`: the environment of `cargo xtask python`, or the machine's.
fn python() -> Option<PathBuf> {
    let environment = project("../target/python/bin/python");
    let interpreter = if environment.exists() { environment } else { "python3".into() };
    let has_package = |python: &PathBuf| {
        Command::new(python)
            .args(["-c", "import numpy, fpga_rdma"])
            .output()
            .is_ok_and(|run| run.status.success())
    };
    let found = Some(interpreter).filter(has_package);
    if found.is_none() {
        println!(
            "skipped: Python with numpy and fpga_rdma is not installed (cargo xtask python --build-only)"
        );
    }
    found
}

#[test]
fn rtl_scaler_host_program_passes() {
    let parts = Project {
        name: "rtl-scaler",
        sources: &["top.sv", "scaler.sv", "axi_bram.sv"],
        map: Some("scaler.yaml"),
        trace: false,
    };
    let Some(python) = python() else { return };
    let Some(model) = build(&parts) else { return };
    let host = project("rtl-scaler/host.py");
    let said = run(Command::new(python).arg(host).env("FPGA_RTL_SETTLE", "4096"), &model);
    assert_eq!(said, "1000 numbers times 3: last 2997\n1000 numbers times 65537: last 65471463\n");
}
