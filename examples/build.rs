//! Generates the typed bindings of the example `register_map`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fpga_register_map::bindings::build("maps/simulated-card.yaml")
}
