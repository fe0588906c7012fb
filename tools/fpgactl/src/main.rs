//! Command line for FPGA cards: see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    fpgactl::main(std::env::args_os())
}
