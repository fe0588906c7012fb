//! Errors of reads.

use fpga_firmware::NodeId;
use fpga_pci::Waited;
use fpga_protocol::sender;
use fpga_registers::{CardAddr, quantity};

use super::super::{EndpointError, SendError};
use super::SLOTS;
use fpga_driver::errors::ErrorKind;
use fpga_driver::{Advice, Error, TransferError};

/// Reason why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// The caller withdrew the read.
    #[error(
        "the read of {length} from node {node} was cancelled; its destination may hold a part of it",
        length = quantity(*length, "byte"),
    )]
    Cancelled {
        /// Node that owns the data.
        node: NodeId,
        /// Requested length in bytes.
        length: u64,
    },
    /// The request did not arrive.
    #[error("the request to read failed: {0}")]
    Request(sender::SendFailure),
    /// The request arrived, but the answer did not.
    #[error(
        "node {node} took the request to read {length} and did not answer within {waited}",
        length = quantity(*length, "byte"),
    )]
    NoAnswer {
        /// Node that owns the data.
        node: NodeId,
        /// Requested length in bytes.
        length: u64,
        /// Time waited, on the clock of the card.
        waited: Waited,
    },
}

/// Refused read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The requested bytes are not inside the readable range.
    #[error(
        "the range of {length} at offset {offset} is not inside the {readable} that node {node} lets read",
        length = quantity(*length, "byte"),
        readable = quantity(*readable, "byte"),
    )]
    Range {
        /// Node that owns the data.
        node: NodeId,
        /// Offset of the first byte in the readable range.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Size of the readable range in bytes.
        readable: u64,
    },
    /// The destination overlaps that of another read in progress.
    #[error(
        "a read of {length} to {to} overlaps one in progress",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// First destination address.
        to: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// All read slots are in use (back-pressure).
    #[error("{SLOTS} reads are in progress")]
    Full,
    /// The request was refused: it or its answer cannot use the requested scheme, the sender is full, or the card does not answer.
    #[error("the request to read: {0}")]
    Send(SendError),
    /// The destination cannot be opened as a region, or the request cannot be written to card memory.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The DMA transfer of the request failed.
    #[error(transparent)]
    Upload(#[from] Error<TransferError>),
}

impl ErrorKind for ReadError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Range { .. } => Advice::text("request a range inside it"),
            Self::Overlap { .. } => Advice::text("wait for that read, or read to another destination"),
            Self::Full => Advice::WaitForRead,
            Self::Send(error) => return error.advice(),
            Self::Endpoint(error) => return error.advice(),
            Self::Upload(error) => return error.advice(),
        })
    }

    fn names_place(&self) -> bool {
        match self {
            Self::Endpoint(error) => error.names_place(),
            Self::Upload(_) => true,
            _ => false,
        }
    }
}

impl From<SendError> for ReadError {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}
