//! Command line for FPGA cards.

fn main() {}
