//! Errors of transfers.

use core::fmt;

use fpga_pci::DmaBuffer;

use super::channel::ChannelError;
use super::located::{Error, ErrorKind, ErrorPlace, widen};
use super::submit::SubmitError;
use crate::advice::Advice;
use crate::fault::ChannelFault;

/// Reason why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The transfer was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine reported an error in this transfer or in an earlier one.
    #[error(transparent)]
    Fault(#[from] ChannelFault),
    /// The channel has failed, or the wait has ended.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The completion carries no buffer.
    #[error("this transfer's memory was kept by its submitter; there is no buffer to return")]
    NoBuffer,
}

impl ErrorKind for TransferError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Submit(error) => error.advice(),
            Self::Fault(error) => error.advice(),
            Self::Channel(error) => error.advice(),
            Self::NoBuffer => None,
        }
    }
}

widen! {
    SubmitError => TransferError,
    ChannelError => TransferError,
    ChannelFault => TransferError,
}

/// Failed blocking transfer.
#[derive(Debug)]
pub struct TransferFailed<E = Error<TransferError>> {
    /// Reason of the failure.
    pub error: E,
    /// The buffer. `None` if the card may still reach it and cannot be stopped, so that it is in quarantine; if the packet of a stream was
    /// not sent in time (`next_completion` returns its buffer); or if a buffer for packets is still posted
    /// ([`Error::is_timeout`]).
    pub buffer: Option<DmaBuffer>,
}

impl<E> TransferFailed<E> {
    /// Splits the failure into reason and buffer, for a caller that reports the reason and reuses the buffer.
    #[must_use]
    pub fn into_parts(self) -> (E, Option<DmaBuffer>) {
        (self.error, self.buffer)
    }
}

impl<K> TransferFailed<K> {
    /// Adds the place to the reason.
    pub(crate) fn at(self, place: impl FnOnce() -> ErrorPlace) -> TransferFailed<Error<K>> {
        TransferFailed { error: Error::new(self.error, place()), buffer: self.buffer }
    }
}

impl<E: fmt::Display> fmt::Display for TransferFailed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for TransferFailed<E> {}
