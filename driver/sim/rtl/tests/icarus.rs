//! The checker and the masters of `fpga_xdma` in Icarus Verilog, which has four states and no DPI: recorded commands, and a foreign master
//! and slave (cocotbext-axi). Without Icarus Verilog, or cocotb, the tests print that they are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use fpga_pci::testing::{skipped, skipped_without};
use fpga_registers::BarOffset;

use crate::checker::check_broken_rules;
use crate::simulator::{Simulation, read, rtl, write};

/// Sources of a bench with replay, relative to `firmware-bindings/rtl`.
const REPLAY: [&str; 4] =
    ["xdma/fpga_xdma.sv", "xdma/fpga_replay.sv", "reference/axi_ram.sv", "check/axi_checker.sv"];

/// Compiles the module `top` in `folder`. `None` without Icarus Verilog.
fn compile(folder: &Path, top: &str, sources: &[PathBuf]) -> Option<PathBuf> {
    let program = folder.join(format!("{top}.vvp"));
    let mut command = Command::new("iverilog");
    let output =
        command.args(["-g2012", "-DFPGA_REPLAY", "-s", top, "-o"]).arg(&program).args(sources).output();
    let Ok(output) = output else {
        skipped_without("iverilog", "iverilog");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn sources(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| rtl().join(name)).collect()
}

fn bench(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/icarus").join(name)
}

fn simulate(program: &Path, plusargs: &[String]) -> String {
    let output = Command::new("vvp").arg("-n").arg(program).args(plusargs).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Records transfers of several channels, unaligned and across 4 KiB, and register accesses. Returns the number of bursts; `None` without
/// Verilator.
fn record(path: &Path) -> Option<u64> {
    let simulation = Simulation::start(&["+pressure=5", &format!("+fpga_record={}", path.display())])?;
    let card = simulation.card();
    let registers = card.user_bar().unwrap();
    for (number, length) in [1_usize, 7, 32, 33, 4095, 4097, 12_000].into_iter().enumerate() {
        let number = u8::try_from(number).unwrap();
        let at = 0x2000 * u64::from(number) + 0xF01 + u64::from(number);
        let data: Vec<u8> = (0..length).map(|byte| u8::try_from(byte % 251).unwrap() ^ number).collect();
        write(&card, number % 2, at, &data);
        assert_eq!(read(&card, (number + 1) % 2, at, length), data);
        registers.write32(BarOffset::new(4), number.into()).unwrap();
        assert_eq!(registers.read32(BarOffset::new(0)).unwrap(), 0x4652_4546);
    }
    drop(card);
    Some(simulation.end_without_violations())
}

#[test]
fn icarus_checker_reports_each_broken_rule() {
    let folder = tempfile::tempdir().unwrap();
    let sources = sources(&["check/axi_checker.sv", "check/broken_master.sv"]);
    let Some(program) = compile(folder.path(), "broken_master", &sources) else { return };
    check_broken_rules(&simulate(&program, &[]));
}

#[test]
fn icarus_replay_gives_the_recorded_responses() {
    let folder = tempfile::tempdir().unwrap();
    let names = [&REPLAY[..], &["reference/reference_top.sv", "reference/reference_registers.sv"]].concat();
    let Some(program) = compile(folder.path(), "reference_top", &sources(&names)) else { return };
    let path = folder.path().join("record");
    let Some(bursts) = record(&path) else { return };
    for pressure in [0, 7, 8] {
        let plusargs = [format!("+fpga_replay={}", path.display()), format!("+pressure={pressure}")];
        let output = simulate(&program, &plusargs);
        assert!(output.contains(" events, 0 differences;"), "{output}");
        assert!(output.contains(&format!("axi_checker m_axi: 0 violations in {bursts} bursts")), "{output}");
    }
    // A response that is not that of the record.
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replacen("lite_response 46524546 0", "lite_response 46524547 0", 1);
    std::fs::write(&path, changed).unwrap();
    let output = simulate(&program, &[format!("+fpga_replay={}", path.display())]);
    assert!(
        output.contains("m_axil answers 46524546 with response 0, in the record 46524547 with 0"),
        "{output}"
    );
    assert!(output.contains(" events, 1 differences;"), "{output}");
}

#[test]
fn icarus_unknown_control_signals_are_named_and_simulation_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = sources(&REPLAY);
    sources.push(bench("unknown_bench.sv"));
    let Some(program) = compile(folder.path(), "unknown_bench", &sources) else { return };
    let path = folder.path().join("record");
    let data = |byte: &str| format!("{}{byte}", "0".repeat(62));
    let (first, second) = (data("aa"), data("bb"));
    let text = format!(
        "rtl-record 1\n1 2000 0 reset\n\
         200 0 0 aw 0 0 1000 0 5 1\n200 0 0 w 0 {first} ffffffff 1\n203 0 0 b 0 0 0\n\
         210 0 0 aw 0 1 2000 0 5 1\n210 0 0 w 0 {second} ffffffff 1\n213 0 0 b 0 1 0\n\
         220 0 0 ar 0 0 1000 0 5 1\n223 0 0 r 0 0 {first} 0 1\n"
    );
    std::fs::write(&path, text).unwrap();
    let run = |signal: &str| {
        let plusargs = [format!("+fpga_replay={}", path.display()), format!("+unknown={signal}")];
        simulate(&program, &[&plusargs[..], &["+fpga_replay_timeout=2000".to_owned()]].concat())
    };
    assert!(run("none").contains("axi_checker m_axi: 0 violations in 3 bursts"));
    let reports = [
        ("awready", "AW: READY is X or Z in cycle 6, address 0000000000002000"),
        ("rvalid", "R: VALID is X or Z in cycle 12, address 0000000000001000"),
        ("rresp", "R: a signal of the payload is X or Z in cycle 12, address 0000000000001000"),
    ];
    for (signal, report) in reports {
        let output = run(signal);
        assert!(output.contains(report), "{output}");
    }
    let output = run("rvalid");
    assert!(output.contains("(r) is not possible for 2000 cycles"), "{output}");
}

/// Runs a test bench of cocotb. `None` without Icarus Verilog, cocotb or cocotbext-axi.
fn cocotb(name: &str, folder: &Path, record: Option<&Path>) -> Option<()> {
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/python/bin/python");
    let python = if environment.exists() { environment } else { "python3".into() };
    let import = Command::new(&python).args(["-c", "import cocotb, cocotbext.axi"]).output();
    if !import.is_ok_and(|run| run.status.success()) {
        skipped("Python with cocotb and cocotbext-axi is not installed (cargo xtask python --build-only)");
        return None;
    }
    let output = Command::new(python)
        .arg(bench("run.py"))
        .arg(name)
        .arg(folder)
        .arg(rtl())
        .args(record)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("PASS=1 FAIL=0"), "{}\n{out}\n{errors}", output.status);
    Some(())
}

fn has_icarus() -> bool {
    let is_there = Command::new("iverilog").arg("-V").output().is_ok();
    if !is_there {
        skipped_without("iverilog", "iverilog");
    }
    is_there
}

#[test]
fn icarus_foreign_traffic_has_no_violations() {
    let folder = tempfile::tempdir().unwrap();
    if has_icarus() {
        cocotb("checker", folder.path(), None);
    }
}

#[test]
fn icarus_replay_at_foreign_slave_leaves_the_recorded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    if !has_icarus() || record(&path).is_none() {
        return;
    }
    cocotb("replay", folder.path(), Some(&path));
}
