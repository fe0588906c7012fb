//! Refused requests.

use core::fmt;

/// A refused request with the reason `R`; returns the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal<T, R> {
    /// Reason.
    pub reason: R,
    /// Payload given to `submit`.
    pub payload: T,
}

// Implemented manually, so that a refusal of a payload without `Debug` can still be unwrapped and printed.
impl<T, R: fmt::Debug> fmt::Debug for Refusal<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T, R: fmt::Display> fmt::Display for Refusal<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T, R: fmt::Debug + fmt::Display> core::error::Error for Refusal<T, R> {}
