//! Sizes, addresses and durations: parsing from the command line, and printing.
//!
//! Sizes are exact: `4KiB` is 4096, and values above 64 bits are refused. `4KB` and `4k` are not accepted: many readers take them
//! for 4000 bytes. The parsers of maintained crates round through floating point or do not accept hexadecimal, so this module has its own;
//! durations use `humantime`.

mod format;
mod parse;

pub use format::{binary_size, gigabytes_per_second, micros, rate};
pub use parse::{UnitError, address, bit_rate, bytes, duration, offset, probability, word};
