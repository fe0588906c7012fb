//! Rejected progress reports.

use fpga_registers::CardAddr;
use fpga_registers::cdma::SgStatus;

/// Impossible progress, or a report that the engine has halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressFault {
    /// Error bits in a descriptor's status word: the engine has halted there.
    #[error("the engine halted at descriptor {index}: {status}")]
    Descriptor {
        /// Ring entry.
        index: u32,
        /// Status word.
        status: SgStatus,
    },
    /// Reserved bits are set; all ones means that the device is gone.
    #[error(
        "{word:#010x} is not a descriptor status: the device is gone, or another master wrote to the descriptor"
    )]
    NotAStatus {
        /// The value found.
        word: u32,
    },
    /// The current-descriptor register does not name a posted descriptor.
    #[error("the current-descriptor register holds {address}, which is not a posted descriptor")]
    NotPosted {
        /// Value of the register.
        address: CardAddr,
    },
}
