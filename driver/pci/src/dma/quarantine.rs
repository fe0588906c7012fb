//! Records of memory that must never be used again.

use core::fmt;

use fpga_registers::{Iova, quantity};

/// Reason why a buffer cannot be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuarantineReason {
    /// The engine was stopped but did not report idle.
    IdleNotConfirmed,
    /// The reset that should have made the device idle failed.
    ResetFailed,
    /// The device no longer answers; it may return and continue.
    DeviceGone,
    /// The transfer's owner was dropped while the device worked on it.
    Dropped,
    /// The system refused to unmap it: the device could still reach it.
    UnmapRefused,
}

impl fmt::Display for QuarantineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IdleNotConfirmed => "the engine was stopped but did not report idle",
            Self::ResetFailed => "the reset of the device failed",
            Self::DeviceGone => "the device does not answer",
            Self::UnmapRefused => "the system refused to unmap it",
            Self::Dropped => "its transfer was abandoned while the device worked on it",
        })
    }
}

/// One buffer in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuarantineRecord {
    /// First address as the device sees it.
    pub iova: Iova,
    /// Length in bytes.
    pub length: usize,
    /// Reason.
    pub reason: QuarantineReason,
    /// Time in the backend's nanoseconds ([`Backend::now`](crate::Backend::now)).
    pub at: u64,
}

impl fmt::Display for QuarantineRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", quantity(self.length, "byte"), self.iova, self.reason)
    }
}
