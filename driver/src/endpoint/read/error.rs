//! How reads fail.

use fpga_firmware::NodeId;
use fpga_protocol::sender;
use fpga_registers::CardAddr;

use super::super::{EndpointError, SendError};
use super::SLOTS;
use crate::error::TransferFailed;
use crate::name::CardName;

/// Why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// The caller withdrew it.
    #[error(
        "the read of {length} bytes from node {node} was cancelled; what is in its place may be a part of them"
    )]
    Cancelled {
        /// The node that was asked.
        node: NodeId,
        /// Bytes asked for.
        length: u64,
    },
    /// The request did not arrive.
    #[error("the request to read failed: {0}")]
    Request(sender::TransferError),
    /// It did, and the answer is missing.
    #[error(
        "node {node} took the request to read {length} bytes and did not answer within {waited_ms} ms; look whether its endpoint is polled, or give the read a longer deadline"
    )]
    NoAnswer {
        /// The node that was asked.
        node: NodeId,
        /// Bytes asked for.
        length: u64,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
}

/// A read was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// What is asked for is not inside what may be read.
    #[error(
        "{card}: {length} bytes at offset {offset} are not inside the {readable} bytes that node {node} lets read; ask for less"
    )]
    Range {
        /// Which card.
        card: CardName,
        /// The node asked.
        node: NodeId,
        /// First byte in the readable range.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes that may be read.
        readable: u64,
    },
    /// Another read under way goes to the same place.
    #[error(
        "{card}: a read of {length} bytes to {to} overlaps one that is under way; wait for it, or read to another place"
    )]
    Overlap {
        /// Which card.
        card: CardName,
        /// First byte.
        to: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// Back-pressure.
    #[error("{card}: {SLOTS} reads are under way; wait for one to end")]
    Full {
        /// Which card.
        card: CardName,
    },
    /// The request, or its answer, cannot go by the scheme asked for.
    #[error("the request to read: {0}")]
    Send(#[from] SendError),
    /// The place to read to cannot be opened, or the request cannot be put into card memory.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The request's own DMA failed.
    #[error(transparent)]
    Upload(#[from] TransferFailed),
    /// The request is not taken.
    #[error("{card}: {source}")]
    Sender {
        /// Which card.
        card: CardName,
        /// Why.
        source: sender::SubmitError,
    },
}
