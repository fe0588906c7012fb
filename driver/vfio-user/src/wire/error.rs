//! What can be wrong with a message.

use super::{Command, MAX_MESSAGE};

/// A message that does not say what it has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Neither a request nor a reply.
    #[error("a message is neither request nor reply (flags {flags:#x}): the peer does not speak vfio-user")]
    Type {
        /// The header's flags.
        flags: u32,
    },
    /// A size that cannot be.
    #[error("{command} message of {size} bytes; messages have 16 to {MAX_MESSAGE} bytes")]
    Size {
        /// What the message asks for.
        command: Command,
        /// What its header gives as its size.
        size: u32,
    },
    /// Fewer or more bytes than the message consists of.
    #[error("{command} message with {got} bytes after its header where {expected} belong")]
    Length {
        /// What the message asks for.
        command: Command,
        /// Bytes after the header that the message should have (at least).
        expected: usize,
        /// Bytes that it has.
        got: usize,
    },
    /// A count in the message that does not match the bytes that came with it, or that exceeds a limit.
    #[error("{command} message counts {count} where {got} came with it or are allowed")]
    Count {
        /// What the message asks for.
        command: Command,
        /// The count in the message.
        count: u64,
        /// What it could be at most, or has to be.
        got: u64,
    },
    /// Flags that contradict each other, or that nobody knows.
    #[error("{command} message with flags {flags:#x}, which exclude each other or are not known")]
    Flags {
        /// What the message asks for.
        command: Command,
        /// Its flags.
        flags: u32,
    },
    /// Capabilities that are not the JSON object they should be.
    #[error("the peer's capabilities are not the JSON object that the protocol describes (column {column})")]
    Capabilities {
        /// Where reading failed, from 1; 0 if at no particular place.
        column: usize,
    },
    /// A chain of capabilities that leaves the message or runs in a circle.
    #[error("a region's chain of capabilities leaves the message or does not advance at byte {at}")]
    Chain {
        /// Offset of the capability in the message's body.
        at: u32,
    },
}
