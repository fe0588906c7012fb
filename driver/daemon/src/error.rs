//! Errors of sharing a card.

use fpga_driver::{Error, ResourceError, SubmitError};

/// Reasons why a card cannot be shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// A channel or memory is not available.
    #[error(transparent)]
    Resource(#[from] Error<ResourceError>),
    /// Memory cannot be registered with a channel.
    #[error(transparent)]
    Memory(#[from] Error<SubmitError>),
}
