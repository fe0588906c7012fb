//! Cost of the model per clock cycle, against a top level without it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::simulator::{REFERENCE, build};

/// Top levels: name, and value of parameter `PART`.
const PARTS: [(&str, u32); 3] = [("counter", 0), ("fpga_xdma, idle", 1), ("reference_top, idle", 2)];

/// Variable with the number of rounds; without it, a short run only checks that the top levels work.
const ROUNDS: &str = "FPGA_RTL_COST";

/// Time of `cycles` cycles, with the start of the program.
fn time(program: &Path, cycles: u64) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg(format!("+fpga_socket={}", folder.path().join("card").display()));
    command.args(["+fpga_clock=free".to_owned(), format!("+cycles={cycles}")]);
    let began = Instant::now();
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let passed = began.elapsed();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(&format!("cycles {cycles}")), "{text}");
    passed
}

/// Smallest, median and largest value.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

#[test]
fn model_cost_per_cycle_is_measured() {
    let programs = PARTS.map(|(_, part)| -> Option<PathBuf> {
        let sources = [&REFERENCE[..], &["reference/cost_top.sv"]].concat();
        build("cost_top", &sources, &[&format!("-GPART={part}")], &format!("rtl-cost-{part}"))
    });
    let [Some(counter), Some(xdma), Some(reference)] = programs else { return };
    let rounds: Option<usize> = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok());
    let cycles: u64 = if rounds.is_some() { 2_000_000 } else { 20_000 };
    let mut nanoseconds = [const { Vec::new() }; 3];
    // Alternately: the load of the machine concerns all of them.
    for _ in 0..rounds.unwrap_or(1).max(1) {
        for (program, into) in [&counter, &xdma, &reference].into_iter().zip(&mut nanoseconds) {
            let passed = time(program, cycles).saturating_sub(time(program, 1));
            #[expect(clippy::cast_precision_loss, reason = "some seconds")]
            into.push(passed.as_nanos() as f64 / cycles as f64);
        }
    }
    let base = nanoseconds[0].clone();
    for ((name, _), values) in PARTS.iter().zip(nanoseconds) {
        let ratios = values.iter().zip(&base).map(|(value, base)| value / base).collect();
        let ([least, middle, most], [low, ratio, high]) = (spread(values), spread(ratios));
        println!(
            "{name:20} {:>9.0} cycles/s, {middle:6.1} ns per cycle ({least:.1} to {most:.1}), ratio {ratio:.2} ({low:.2} to {high:.2})",
            1e9 / middle
        );
    }
}
