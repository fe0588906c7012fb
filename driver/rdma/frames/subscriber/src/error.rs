//! Errors of joining and of the stream.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fpga_frames_wire::blocks::BlockError;
use fpga_frames_wire::{ArrivalError, OutOfSequence};

/// Invalid data of the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidData {
    /// A frame header or a status.
    Block(BlockError),
    /// A slot or a position.
    Arrival(ArrivalError),
    /// A frame number.
    Sequence(OutOfSequence),
    /// A frame at an address where no slot begins.
    Slot {
        /// Address of the transfer.
        address: u64,
        /// Length of the transfer in bytes.
        length: u64,
    },
}

impl fmt::Display for InvalidData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(error) => write!(f, "a block is invalid: {error}"),
            Self::Arrival(error) => error.fmt(f),
            Self::Sequence(error) => error.fmt(f),
            Self::Slot { address, length } => {
                write!(f, "{length} bytes arrived at {address:#x}, where no slot begins")
            }
        }
    }
}

impl Error for InvalidData {}

/// Reason why joining failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// An option has an impossible value.
    Option {
        /// The option.
        what: &'static str,
        /// Values that are possible.
        expected: &'static str,
    },
    /// The UDP socket cannot be used.
    Socket {
        /// Local address.
        local: SocketAddr,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// Connecting to the publisher failed, or the connection did.
    Connection {
        /// Address of the publisher.
        publisher: SocketAddr,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The publisher's answer is not a valid message.
    Message {
        /// Address of the publisher.
        publisher: SocketAddr,
        /// Reason.
        what: String,
    },
    /// The publisher refused the join.
    Refused {
        /// Number of the reason, for programs.
        reason: u16,
        /// Reason, for users.
        text: String,
    },
    /// The publisher's card does not answer on the link.
    NoLink {
        /// Node of the publisher.
        node: u32,
        /// Address of its link.
        link: SocketAddr,
    },
    /// The publisher's card does not use the registry scheme.
    Scheme {
        /// Node of the publisher.
        node: u32,
    },
    /// The slots exceed the memory limit.
    Memory {
        /// Length of all slots in bytes.
        needed: u64,
        /// Limit in bytes.
        limit: u64,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { what, expected } => write!(f, "{what} is out of range: give {expected}"),
            Self::Socket { local, cause } => {
                write!(
                    f,
                    "UDP socket at {local}: {cause}; give an address of this machine and an unused port"
                )
            }
            Self::Connection { publisher, cause } => {
                write!(
                    f,
                    "the connection to {publisher} failed: {cause}; check that a publisher listens there"
                )
            }
            Self::Message { publisher, what } => {
                write!(
                    f,
                    "invalid message from {publisher}: {what}; check address and version of the publisher"
                )
            }
            Self::Refused { text, .. } => write!(f, "the publisher refused the join: {text}"),
            Self::NoLink { node, link } => write!(
                f,
                "node {node} does not answer at {link}; check the address of the publisher's link, and that it accepts this peer"
            ),
            Self::Scheme { node } => {
                write!(f, "node {node} does not use the registry scheme; start the publisher with it")
            }
            Self::Memory { needed, limit } => {
                write!(
                    f,
                    "the slots need {needed} bytes, above the limit of {limit}; use fewer slots or raise the limit"
                )
            }
        }
    }
}

// The texts contain the cause, so `source` does not return it.
impl Error for JoinError {}

/// Reason why the stream failed. Frames that had arrived are returned first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The publisher has sent nothing for longer than its heartbeats allow. Reported once per period: the stream continues if the publisher
    /// does.
    Silent {
        /// Time without a packet.
        silence: Duration,
    },
    /// The publisher has removed this subscriber: it refuses its credits.
    Removed {
        /// Reason in the negative acknowledgement.
        reason: u8,
    },
    /// The publisher's card knows a later incarnation of this node and refuses credits of this one.
    Superseded {
        /// Newest incarnation that it knows.
        newest: u32,
    },
    /// The publisher did not accept the leave message in time. The subscriber has left in any case.
    TimedOut,
    /// The socket failed.
    Socket(io::ErrorKind),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { silence } => {
                write!(
                    f,
                    "the publisher has sent nothing for {silence:?}; check that it runs, and join again"
                )
            }
            Self::Removed { reason } => {
                write!(f, "the publisher has removed this subscriber (reason {reason}); join again")
            }
            Self::Superseded { newest } => write!(
                f,
                "the publisher knows incarnation {newest} of this node, which is later; join with a later one, or with another node number"
            ),
            Self::TimedOut => f.write_str("the publisher did not accept the leave message in time"),
            Self::Socket(kind) => write!(f, "the UDP socket failed: {kind}; join again"),
        }
    }
}

impl Error for StreamError {}
