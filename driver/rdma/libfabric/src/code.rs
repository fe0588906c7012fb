//! Error codes of libfabric.

pub(crate) use crate::sys::Code;
use crate::sys::*;
use core::ffi::{CStr, c_int};
use fpga_messages::{Failure, PostError};

impl From<&Failure> for Code {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Truncated => ETRUNC,
            Failure::Cancelled => ECANCELED,
            Failure::NoMessage => ENOMSG,
            Failure::Unreachable { .. } => EHOSTUNREACH,
            Failure::Closed { .. } => ESHUTDOWN,
            Failure::Restarted { .. } => ECONNRESET,
            Failure::KeyRefused { .. } => EKEYREJECTED,
            Failure::NotSupported { .. } => EOPNOTSUPP,
            Failure::TooManyPeers { .. } => ENOMEM,
            Failure::Card { .. } => EIO,
            _ => EOTHER,
        }
    }
}

impl From<PostError> for Code {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Full => EAGAIN,
            PostError::UnknownPeer { .. } | PostError::Invalid { .. } => EINVAL,
            PostError::Failed(failure) => Self::from(&failure),
            _ => EOTHER,
        }
    }
}

/// Text of the provider's error number, for programs that have no text of the error any more.
pub(crate) fn c_text(number: c_int) -> &'static CStr {
    match Code::new(number) {
        ETRUNC => c"the message is longer than the receive buffer",
        ECANCELED => c"the operation was cancelled",
        ENOMSG => c"no message that matches has arrived",
        EHOSTUNREACH => c"the peer does not answer",
        ESHUTDOWN => c"the peer has closed its endpoint",
        ECONNRESET => c"the peer was started again",
        EKEYREJECTED => c"the peer has no registered memory with this key, range and permission",
        EOPNOTSUPP => c"the peer does not support the operation",
        ENOMEM => c"the card has no memory or memory window for a further peer",
        EIO => c"the card has failed",
        _ => c"unknown error",
    }
}
