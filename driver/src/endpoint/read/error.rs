//! Errors of reads.

use fpga_firmware::NodeId;
use fpga_pci::Waited;
use fpga_protocol::sender;
use fpga_registers::{CardAddr, quantity};

use super::super::{EndpointError, SendError};
use super::SLOTS;
use crate::error::TransferFailed;
use crate::name::CardName;

/// Reason why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// The caller withdrew the read.
    #[error(
        "the read of {length} from node {node} was cancelled; what is in its place may be a part of them",
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
    Request(sender::TransferError),
    /// The request arrived, but the answer did not.
    #[error(
        "node {node} took the request to read {length} and did not answer within {waited}; look whether its endpoint is polled, or give the read a longer deadline",
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
        "{card}: the range of {length} at offset {offset} is not inside the {readable} that node {node} lets read; ask for less",
        length = quantity(*length, "byte"),
        readable = quantity(*readable, "byte"),
    )]
    Range {
        /// Name of the card.
        card: CardName,
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
        "{card}: a read of {length} to {to} overlaps one in progress; wait for that read, or read to another destination",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// Name of the card.
        card: CardName,
        /// First destination address.
        to: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// All read slots are in use (back-pressure).
    #[error("{card}: {SLOTS} reads are in progress; wait for one to end")]
    Full {
        /// Name of the card.
        card: CardName,
    },
    /// The request or its answer cannot use the requested scheme.
    #[error("the request to read: {0}")]
    Send(#[from] SendError),
    /// The destination cannot be opened as a region, or the request cannot be written to card memory.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The DMA transfer of the request failed.
    #[error(transparent)]
    Upload(#[from] TransferFailed),
    /// The sender refused the request.
    #[error("{card}: {source}")]
    Sender {
        /// Name of the card.
        card: CardName,
        /// Reason.
        source: sender::SubmitError,
    },
}
