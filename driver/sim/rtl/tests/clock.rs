//! Period of the clock, and simulated time against wall-clock time.

use std::process::Command;
use std::time::Instant;

use fpga_registers::BarOffset;

use crate::simulator::{Simulation, reference};

/// Register of the reference top level: clock cycles since reset.
const CYCLES: BarOffset = BarOffset::new(0x14);
/// Simulated time that may be made up for, in cycles per ratio of 1: 10 ms.
const BEHIND_NS: f64 = 10e6;

/// However fast the machine, simulated time is not ahead: cycles take at least their time.
#[test]
fn ratio_limits_simulated_time() {
    for (ratio, period) in [(0.0001, 4.0), (0.0004, 16.0)] {
        let plusargs = [
            "+fpga_clock=free".to_owned(),
            format!("+fpga_ratio={ratio}"),
            format!("+fpga_period={}", period * 1000.0),
        ];
        let Some(simulation) = Simulation::start(&plusargs.each_ref().map(String::as_str)) else { return };
        let card = simulation.card();
        let bar = card.user_bar().unwrap();
        let began = Instant::now();
        let first = bar.read32(CYCLES).unwrap();
        let mut passed = 0;
        while passed < 5000 {
            passed = bar.read32(CYCLES).unwrap() - first;
            #[expect(clippy::cast_precision_loss, reason = "less than a minute")]
            let wall = began.elapsed().as_nanos() as f64;
            let most = ratio * (wall + BEHIND_NS) / period + 1.0;
            assert!(f64::from(passed) <= most, "{passed} cycles in {wall} ns, at most {most}");
        }
        drop(card);
        simulation.end();
    }
}

#[test]
fn smallest_ratio_does_not_delay_end() {
    let plusargs = ["+fpga_clock=free", "+fpga_ratio=1e-9"];
    let Some(simulation) = Simulation::start(&plusargs) else { return };
    // A cycle takes 4 s.
    let output = simulation.end();
    assert!(output.contains("the simulation has ended"), "{output}");
}

#[test]
fn wrong_clock_options_are_refused() {
    let Some(program) = reference(256, 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("+fpga_socket={}", folder.path().join("card").display());
    for (plusargs, message) in [
        (&["+fpga_clock=free", "+fpga_ratio=0"][..], "option ratio: `0` is not a ratio from 1e-9 to 1000"),
        (&["+fpga_ratio=0.1"], "give +fpga_clock=free too"),
        (&["+fpga_period=5"], "option period: `5` is not an even number of ps"),
        (&["+fpga_trace_from=now"], "option trace_from: `now` is not `cycle:N`"),
        (&["+fpga_trace_from=dma"], "need +fpga_trace=FILE"),
    ] {
        let mut command = Command::new(&program);
        let output = command.arg(&socket).args(plusargs).env_remove("LD_LIBRARY_PATH").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!output.status.success() && text.contains(message), "{plusargs:?}: {text}");
    }
}
