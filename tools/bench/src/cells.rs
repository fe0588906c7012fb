//! Parameters of runs: size, direction, ring mode and CPUs.

use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::placement::PlacementLatencies;

/// Size of an operation in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let shift = match unit {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            _ => return Err(format!("\"{text}\" is not a size; write 64, 4KiB or 1MiB")),
        };
        let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
        // Limited by the peer's working set.
        bytes
            .filter(|bytes| (1..=16 << 20).contains(bytes))
            .map(Self)
            .ok_or_else(|| format!("\"{text}\" is outside of 1 to 16MiB"))
    }
}

/// Size with a binary unit: `64 B`, `4 KiB`.
pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Transfer direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    H2c,
    C2h,
}

impl Direction {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::H2c => "h2c",
            Self::C2h => "c2h",
        }
    }
}

/// Ring mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ring {
    /// Circular ring in credit mode
    Credit,
    /// Batch mode: each batch ends in a Stop descriptor
    Stop,
}

impl Ring {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Stop => "stop",
        }
    }
}

/// Parameters that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) ring: Ring,
    pub(crate) size: u64,
    pub(crate) direction: Direction,
}

/// Parameters common to all runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) cpus: [usize; 2],
    pub(crate) depth: u32,
    pub(crate) seconds: Option<f64>,
    pub(crate) limits: PlacementLatencies,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_parses_units() {
        for (text, bytes) in
            [("64", 64), ("512B", 512), ("4KiB", 4096), ("1MiB", 1 << 20), ("16MiB", 16 << 20)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "0", "4KB", "17MiB", "KiB", "99999999999999999999", "99999999999999999MiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn size_text_has_binary_unit() {
        for (bytes, text) in
            [(1, "1 B"), (1000, "1000 B"), (4096, "4 KiB"), (1 << 20, "1 MiB"), (1536 << 10, "1536 KiB")]
        {
            assert_eq!(size_text(bytes), text);
        }
    }
}
