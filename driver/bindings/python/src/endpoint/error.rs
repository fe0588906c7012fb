//! Errors of endpoints as exception classes, and reasons of failed transfers.

use std::borrow::Cow;

use fpga_rdma::{EndpointError, ReadError, SendError, SendFailure};

use crate::error::{Class, Classify};

impl Classify for EndpointError {
    fn class(&self) -> Class {
        match self {
            Self::NoInterface
            | Self::Scheme { .. }
            | Self::Schemes { .. }
            | Self::Tuning { .. }
            | Self::OpTable { .. } => Class::UnsupportedError,
            Self::Config(_) | Self::Option { .. } | Self::RegionRange { .. } => Class::RangeError,
            Self::Resource(error) => error.kind.class(),
            Self::Channel(error) => error.kind.class(),
            Self::Submit(error) => error.kind.class(),
            Self::Prepare(error) | Self::Fetch(error) => error.kind.class(),
            Self::Cdma(error) => error.kind.class(),
            Self::Upload(_) | Self::Chain { .. } => Class::TransferFault,
            Self::Cause(cause) => Classify::class(cause),
            Self::RegionsFull { .. } => Class::RingFullError,
            Self::Memory(_) => Class::DmaMemoryError,
            Self::TimedOut { .. } | Self::NoArrival { .. } | Self::NoPeer { .. } => Class::TimedOutError,
            Self::WindowsStuck { .. } => Class::WedgedError,
            _ => Class::RefusedError,
        }
    }
}

impl Classify for SendError {
    fn class(&self) -> Class {
        match self {
            Self::Scheme { .. } => Class::UnsupportedError,
            Self::Peer { .. } => Class::RefusedError,
            Self::Cause(cause) => Classify::class(cause),
            _ if self.is_full() => Class::RingFullError,
            _ => Class::RangeError,
        }
    }
}

impl Classify for ReadError {
    fn class(&self) -> Class {
        match self {
            Self::Full => Class::RingFullError,
            Self::Overlap { .. } => Class::InUseError,
            Self::Send(error) => error.class(),
            Self::Endpoint(error) => error.class(),
            Self::Upload(error) => error.kind.class(),
            _ => Class::RangeError,
        }
    }
}

/// Reason of a failed transfer as a word, and the address that its message names.
pub(super) fn reason(failure: &SendFailure) -> (&'static str, u64) {
    let (word, address) = match failure {
        SendFailure::Unanswered { address, .. } => ("unanswered", address),
        SendFailure::Refused { address, .. } => ("refused", address),
        SendFailure::ReceiverNotReady { address, .. } => ("not-ready", address),
        SendFailure::Forgotten { address, .. } => ("forgotten", address),
        SendFailure::Scheme { address, .. } => ("scheme", address),
        SendFailure::NotTaken { address, .. } => ("not-taken", address),
        SendFailure::Deadline { address, .. } => ("deadline", address),
        SendFailure::Cancelled { address, .. } => ("cancelled", address),
        SendFailure::Superseded { address, .. } => ("superseded", address),
        _ => return ("failed", 0),
    };
    (word, address.get())
}

/// Advice about a failed transfer.
pub(super) fn advice(failure: &SendFailure) -> Option<Cow<'static, str>> {
    match failure {
        SendFailure::Superseded { .. } => Some(Cow::Borrowed(
            "close the endpoint and open it again without incarnation=...: it starts with a later one; check that no other node has this node id",
        )),
        other => other.help(),
    }
}
