//! Errors of messages.

use fpga_registers::quantity;

use super::{Command, MAX_MESSAGE};

/// Reason why a message is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Neither a request nor a reply.
    #[error("a message is neither request nor reply (flags {flags:#x}): the peer does not speak vfio-user")]
    Type {
        /// The header's flags.
        flags: u32,
    },
    /// The size is out of range.
    #[error(
        "{command} message of {size}; messages have 16 to {MAX_MESSAGE} bytes",
        size = quantity(*size, "byte"),
    )]
    Size {
        /// Command of the message.
        command: Command,
        /// Size in the header.
        size: u32,
    },
    /// Fewer or more bytes than the message consists of.
    #[error(
        "{command} message with {got} after its header where {expected} belong",
        got = quantity(*got, "byte"),
    )]
    Length {
        /// Command of the message.
        command: Command,
        /// Expected (minimum) number of bytes after the header.
        expected: usize,
        /// Actual number of bytes.
        got: usize,
    },
    /// A count in the message does not match its data, or exceeds a limit.
    #[error("{command} message counts {count} where {got} came with it or are allowed")]
    Count {
        /// Command of the message.
        command: Command,
        /// The count in the message.
        count: u64,
        /// Maximum or expected count.
        got: u64,
    },
    /// Flags that contradict each other, or unknown flags.
    #[error("{command} message with flags {flags:#x}, which exclude each other or are not known")]
    Flags {
        /// Command of the message.
        command: Command,
        /// Its flags.
        flags: u32,
    },
    /// The capabilities are not the expected JSON object.
    #[error("the peer's capabilities are not the JSON object that the protocol describes (column {column})")]
    Capabilities {
        /// Column of the error, from 1; 0 if there is no particular position.
        column: usize,
    },
    /// A chain of capabilities that leaves the message or is circular.
    #[error("a region's chain of capabilities leaves the message or does not advance at byte {at}")]
    Chain {
        /// Offset of the capability in the message's body.
        at: u32,
    },
}
