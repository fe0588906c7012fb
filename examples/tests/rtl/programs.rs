//! Host programs that run against a model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_pci::testing::{skipped, skipped_without};

use crate::rtl::models::{Project, build, generate, library, project, work, write_changed};

/// Runs a host program on a model; returns what it prints.
fn run(command: &mut Command, model: &Path) -> String {
    // Cargo's contains the folder of an older library.
    let output =
        command.arg(format!("rtl:{}", model.display())).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{errors}", output.status);
    out.into_owned()
}

/// Host program in Rust: an example of this package. `cargo test` builds them, except if it is called with the name of a test.
fn rust_program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", env!("CARGO_PKG_NAME"), "--example", name]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the example {name} is not built");
    }
    program
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
    let said = run(&mut Command::new(rust_program("rtl_registers")), &model);
    assert!(said.starts_with("version 0x10002\n") && said.ends_with("down: from 0xffffffff\n"), "{said}");
}

/// Python with these packages: the environment of `cargo xtask python`, or the machine's.
fn python(packages: &str) -> Option<PathBuf> {
    let environment = project("../target/python/bin/python");
    let interpreter = if environment.exists() { environment } else { "python3".into() };
    let has_packages = |python: &PathBuf| {
        let import = format!("import {packages}");
        Command::new(python).args(["-c", &import]).output().is_ok_and(|run| run.status.success())
    };
    let found = Some(interpreter).filter(has_packages);
    if found.is_none() {
        skipped(format_args!("Python with {packages} is not installed (cargo xtask python --build-only)"));
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
    let Some(python) = python("numpy, fpga_rdma") else { return };
    let Some(model) = build(&parts) else { return };
    let host = project("rtl-scaler/host.py");
    let said = run(Command::new(python).arg(host).env("FPGA_RTL_SETTLE", "4096"), &model);
    assert_eq!(said, "1000 numbers times 3: last 2997\n1000 numbers times 65537: last 65471463\n");
}

/// Compiles the host program of `rtl-filter` with the static library of this build. `None` without a compiler.
fn filter_host() -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        skipped_without("cc", "gcc");
        return None;
    }
    let tests = std::env::current_exe().unwrap();
    let modified = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    let built = modified(&tests);
    let files = fs::read_dir(tests.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    // Other builds leave theirs: the newest one that is not newer than this program.
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libfpga-") && name.ends_with(".a") && modified(path) <= built
    };
    let archive = files.filter(is_archive).max_by_key(modified).unwrap();
    // A copy: the example compiles without the rest of the project.
    let (source, program) = (work("rtl-filter").join("host.c"), work("rtl-filter").join("host"));
    fs::copy(project("rtl-filter/host.c"), &source).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(project("../driver/bindings/c/include"))
        .arg(source)
        .arg(archive)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn rtl_filter_host_program_passes() {
    let parts = Project {
        name: "rtl-filter",
        sources: &["top.sv", "filter.sv"],
        map: Some("filter.yaml"),
        trace: false,
    };
    let Some(model) = build(&parts) else { return };
    let Some(program) = filter_host() else { return };
    let said = run(&mut Command::new(program), &model);
    let expected =
        "packet of 1 samples: right\npacket of 7 samples: right\npacket of 2000 samples: right\n3 packets\n";
    assert_eq!(said, expected);
}

#[test]
fn rtl_cocotb_test_bench_passes() {
    if Command::new("verilator").arg("--version").output().is_err() {
        return skipped_without("verilator", "verilator");
    }
    let Some(python) = python("cocotb, fpga_rdma") else { return };
    generate("rtl-cocotb", Some("sampler.yaml"), true);
    let folder = work("rtl-cocotb");
    write_changed(&folder.join("fpga_xdma.sv"), fpga_rtl::model::XDMA);
    let output = Command::new(python)
        .arg(project("rtl-cocotb/run.py"))
        .args([folder, library()])
        .env("FPGA_RTL_CARD", project("rtl-cocotb/card.yaml"))
        // The test bench is compiled for this folder by Python.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("PASS=1 FAIL=0"), "{}\n{out}\n{errors}", output.status);
}
