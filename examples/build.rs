//! Generates the typed bindings of the examples `register_map` and `rtl_registers`, and of a test.

use std::process::ExitCode;

fn main() -> ExitCode {
    for map in ["maps/simulated-card.yaml", "rtl-registers/counter.yaml", "tests/odd-names.yaml"] {
        let made = fpga_register_map::bindings::build(map);
        if made != ExitCode::SUCCESS {
            return made;
        }
    }
    ExitCode::SUCCESS
}
