//! Sizes, addresses and durations as they are written on a command line, and as they are printed.
//!
//! Sizes are exact: `4KiB` is 4096, and what does not fit 64 bits is refused. There is no `4KB` and no `4k`: half of their
//! readers take them for 4000 bytes. Parsers of well-kept crates round through floating point or do not know hexadecimal,
//! so the one here is our own; durations are `humantime`'s.

mod format;
mod parse;

pub use format::{binary_size, gigabytes_per_second, micros, rate};
pub use parse::{UnitError, address, bit_rate, bytes, duration, offset, probability, word};
