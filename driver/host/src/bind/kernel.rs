//! The kernel's side of binding: files that are written to, and that act.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Who carries out what is written to sysfs. Tests have one of their own, which can be late, refuse, and do things by itself.
pub(super) trait Kernel {
    /// Writes `text` to the file at `path` in one call.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Lets others get on, before turn `turn + 1` of something that did not work out.
    fn pause(&self, turn: u32);
}

/// The running kernel.
#[derive(Debug)]
pub(super) struct System;

impl Kernel for System {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // Not to be made if it is not there, and not to be cut: attributes are neither.
        OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn pause(&self, turn: u32) {
        // 1, 2, 4 ... 64 ms: a probe that was deferred, or udev's rules, take some of them.
        std::thread::sleep(Duration::from_millis(1 << turn.min(6)));
    }
}
