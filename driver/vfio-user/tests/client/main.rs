//! The vfio-user client against servers: a good one, bad ones, and one by strangers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod client;
mod foreign_server;
mod hostile;
mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// File descriptors are the whole process's: tests that count them, and those that open some, go one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static SERIAL_LOCK: Mutex<()> = Mutex::new(());
    SERIAL_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many file descriptors this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
