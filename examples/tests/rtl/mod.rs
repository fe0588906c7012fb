//! The examples with RTL: built as `fpgactl rtl` does, and run by their host programs. Without Verilator the tests print that they are
//! skipped, and pass.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

mod bug;
mod models;
mod ni;
mod programs;
mod skeleton;

/// Ends a program that a test has started.
struct KillGuard(std::process::Child);

impl Drop for KillGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
