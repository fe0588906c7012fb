//! Rejected counts.

use fpga_registers::quantity;

/// An impossible completed count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountFault {
    /// The write-back's error bit; read the channel's status register for the cause.
    #[error(
        "the engine stopped with an error after {count} of the run",
        count = quantity(*count, "descriptor"),
    )]
    Engine {
        /// The completed count in the same word.
        count: u32,
    },
    /// Reserved bits are set; all ones means that the device is gone.
    #[error("{word:#010x} is not a completed count: the device is gone, or another writer overwrote it")]
    NotACount {
        /// The value found.
        word: u32,
    },
    /// More than was posted, or less than was reported before.
    #[error(
        "the device reports {reported} completed descriptors, but {known} were known and {posted} are posted"
    )]
    BeyondPosted {
        /// Count reported by the device.
        reported: u32,
        /// Previous count.
        known: u32,
        /// Descriptors in the run.
        posted: u32,
    },
}
