//! Messages for people, on standard error, as the library writes its own. `FI_LOG_LEVEL` selects them: warnings are the default.

use core::fmt::Arguments;
use std::io::Write as _;
use std::sync::OnceLock;

/// Levels of `FI_LOG_LEVEL`, from the most important one.
const LEVELS: [&str; 5] = ["warn", "trace", "prov", "info", "debug"];

fn level() -> usize {
    static LEVEL: OnceLock<usize> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var("FI_LOG_LEVEL") {
        Ok(name) => LEVELS.iter().position(|level| name.eq_ignore_ascii_case(level)).map_or(0, |at| at + 1),
        Err(_) => 1,
    })
}

/// Writes a line by one call: launchers mix those of several processes.
fn line(text: Arguments<'_>) {
    let line = format!("libfabric:{}:fpga: {text}\n", std::process::id());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes a warning.
pub(crate) fn warn(text: Arguments<'_>) {
    if level() >= 1 {
        line(text);
    }
}

/// Writes a message for the search of a cause: why hints are refused, for example.
pub(crate) fn info(text: Arguments<'_>) {
    if level() >= 4 {
        line(text);
    }
}
