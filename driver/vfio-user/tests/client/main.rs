//! The vfio-user client with servers: a correct one, faulty ones, and a foreign one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue has failed"
)]

mod client;
mod foreign_server;
mod hostile;
mod server;

use fpga_pci::lock;
use std::sync::{Mutex, MutexGuard};

/// File descriptors belong to the whole process: tests that count them, and those that open some, run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static SERIAL_LOCK: Mutex<()> = Mutex::new(());
    lock(&SERIAL_LOCK)
}

/// Returns the number of file descriptors that this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
