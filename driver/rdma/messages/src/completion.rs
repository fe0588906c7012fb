//! Ends of operations.

use crate::address::PeerId;
use crate::request::Token;
use std::sync::Arc;

/// Kind of a completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A message was sent.
    Send,
    /// A message was received.
    Receive,
    /// A peer's memory was written.
    Write,
    /// A peer's memory was read.
    Read,
    /// An atomic operation was executed.
    Atomic,
    /// A peer has written to this side's memory: with immediate data, or in any way if
    /// [`MessengerOptions::reports_access`](crate::MessengerOptions::reports_access) is set. Has no token.
    RemoteWrite,
    /// A peer has read this side's memory; only if [`MessengerOptions::reports_access`](crate::MessengerOptions::reports_access) is set. Has
    /// no token.
    RemoteRead,
}

/// End of one operation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Token of the request.
    pub token: Token,
    /// Kind of the operation.
    pub kind: CompletionKind,
    /// Whether the message has a tag.
    pub is_tagged: bool,
    /// Length of the data in bytes; of a received message that was cut, the received part.
    pub length: u64,
    /// Bytes of a received message that did not fit into the buffer ([`Failure::Truncated`]).
    pub cut: u64,
    /// Address of the received data.
    pub address: u64,
    /// Tag of a received message.
    pub tag: u64,
    /// Immediate data of the peer.
    pub immediate: Option<u64>,
    /// Sender of a received message, or the peer that accessed this side's memory. It may be a peer that was not added.
    pub source: Option<PeerId>,
    /// Key of the region that a peer has accessed.
    pub key: Option<u64>,
    /// The buffer for several messages takes no further ones.
    pub is_last: bool,
    /// Result.
    pub result: Result<(), Failure>,
}

/// Reason why an operation has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The message is longer than the buffer.
    #[error("the message is longer than the receive buffer: post a buffer of the sender's length")]
    Truncated,
    /// The operation was cancelled.
    #[error("the operation was cancelled")]
    Cancelled,
    /// No message matches.
    #[error("no message that matches has arrived")]
    NoMessage,
    /// The peer does not answer.
    #[error(
        "{address} does not answer: its process has ended, the network between the cards is down, or its link has another key"
    )]
    Unreachable {
        /// Address of the peer.
        address: Arc<str>,
    },
    /// The peer has closed its end of the session.
    #[error("{address} has closed its endpoint: what was in progress with it has not ended")]
    Closed {
        /// Address of the peer.
        address: Arc<str>,
    },
    /// The peer has started again since it was connected.
    #[error("{address} was started again: what was in progress with its earlier process is lost")]
    Restarted {
        /// Address of the peer.
        address: Arc<str>,
    },
    /// The peer has no region with that key, or the range or the access is outside of it.
    #[error("{address} refuses the access: no registered memory has this key, range and permission")]
    KeyRefused {
        /// Address of the peer.
        address: Arc<str>,
    },
    /// The peer does not support the atomic operation.
    #[error("{address} does not support this atomic operation for this data type")]
    NotSupported {
        /// Address of the peer.
        address: Arc<str>,
    },
    /// This side's card has no memory, or no memory window, for a further peer.
    #[error(
        "no session with {address}: the card has memory and memory windows for {peers} peers, which are all in use: \
         use a card with a larger ni.memory_windows, or fewer peers"
    )]
    TooManyPeers {
        /// Address of the peer.
        address: Arc<str>,
        /// Maximum number of peers.
        peers: usize,
    },
    /// The endpoint of this side's card has failed.
    #[error("the card has failed: {text}")]
    Card {
        /// The driver's error.
        text: Arc<str>,
    },
}
