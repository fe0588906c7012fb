//! Errors of defaults files.

use std::path::PathBuf;

/// Reasons why a defaults file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] fpga_input::InputError),
    /// Not YAML, an unknown key, or an invalid value.
    #[error("configuration file {}:{line}:{column}: key `{key}`: {message}", file.display())]
    Invalid {
        /// File name.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Dotted key; `.` for the whole file.
        key: String,
        /// Description of the error.
        message: String,
    },
}
