//! Names of the routines that copy more than 128 bytes.

use core::fmt;
use core::str::FromStr;

/// Size of the pages behind shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// The system's normal pages.
    #[default]
    Normal,
    /// Pages of 2 MiB or more, or normal ones that the kernel was advised to replace by such pages.
    Huge,
}

impl PageKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Normal, Self::Huge];

    /// Name in reports: `normal` or `huge`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Huge => "huge",
        }
    }
}

/// Routine that copies more than 128 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyRoutine {
    /// Words of 8 bytes: the only routine on machines other than x86-64.
    Words,
    /// Registers of 16 bytes.
    Sse2,
    /// Registers of 32 bytes.
    Avx2,
    /// Registers of 64 bytes.
    Avx512,
    /// The string instruction, executed by microcode.
    RepMovsb,
    /// Registers of 32 bytes; the stores bypass the caches.
    Avx2Streaming,
    /// Registers of 64 bytes; the stores bypass the caches.
    Avx512Streaming,
}

impl CopyRoutine {
    /// All routines, on any machine.
    pub const ALL: [Self; 7] = [
        Self::Words,
        Self::Sse2,
        Self::Avx2,
        Self::Avx512,
        Self::RepMovsb,
        Self::Avx2Streaming,
        Self::Avx512Streaming,
    ];

    /// Name in reports and in the variable `FPGA_COPY`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Sse2 => "sse2",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::RepMovsb => "rep-movsb",
            Self::Avx2Streaming => "avx2-streaming",
            Self::Avx512Streaming => "avx512-streaming",
        }
    }

    /// Returns whether its stores bypass the caches and are not ordered before later stores.
    #[must_use]
    pub const fn is_streaming(self) -> bool {
        matches!(self, Self::Avx2Streaming | Self::Avx512Streaming)
    }

    /// Returns whether this machine has its instructions.
    #[must_use]
    #[inline]
    pub fn is_available(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return match self {
            Self::Words => false,
            Self::Sse2 | Self::RepMovsb => true,
            // The macro detects the feature once per process and caches the result.
            Self::Avx2 | Self::Avx2Streaming => std::arch::is_x86_feature_detected!("avx2"),
            Self::Avx512 | Self::Avx512Streaming => std::arch::is_x86_feature_detected!("avx512f"),
        };
        #[cfg(any(miri, not(target_arch = "x86_64")))]
        return matches!(self, Self::Words);
    }
}

impl fmt::Display for CopyRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not one of a routine of this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" is not a copy routine of this machine; use one of {}", available())]
pub struct UnknownRoutine {
    name: String,
}

/// Names of the routines of this machine.
fn available() -> String {
    let names: Vec<_> = CopyRoutine::ALL
        .into_iter()
        .filter(|routine| routine.is_available())
        .map(CopyRoutine::name)
        .collect();
    names.join(", ")
}

impl FromStr for CopyRoutine {
    type Err = UnknownRoutine;

    fn from_str(name: &str) -> Result<Self, UnknownRoutine> {
        let found = Self::ALL.into_iter().find(|routine| routine.name() == name && routine.is_available());
        found.ok_or_else(|| UnknownRoutine { name: name.to_owned() })
    }
}
