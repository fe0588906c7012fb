//! Kernel interface for binding: files whose writes have effects.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Executes writes to sysfs. Tests have their own implementation, which can be late, refuse, and act by itself.
pub(super) trait Kernel {
    /// Writes `text` to the file at `path` in one call.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Lets other processes run before attempt `turn + 1` of a step that failed.
    fn pause(&self, turn: u32);
}

/// The running kernel.
#[derive(Debug)]
pub(super) struct System;

impl Kernel for System {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // Neither created nor truncated: sysfs attributes support neither.
        OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn pause(&self, turn: u32) {
        // 1, 2, 4 ... 64 ms: a deferred probe, or udev's rules, need some of them.
        std::thread::sleep(Duration::from_millis(1 << turn.min(6)));
    }
}
