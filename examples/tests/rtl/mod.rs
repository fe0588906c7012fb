//! The examples with RTL: built as `fpgactl rtl` does, and run by their host programs. Without Verilator the tests print that they are
//! skipped, and pass.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

mod bug;
mod models;
mod programs;
mod skeleton;
