//! Errors of cards.

use fpga_protocol::receiver::ReceiverConfigError;
use fpga_registers::CardAddr;

use crate::validate::Problem;

/// Error of building a card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CardError {
    /// A value of the description is invalid.
    #[error("key `{}`: {_0}", _0.key())]
    Description(Problem),
    /// The operating system refuses to map card memory of this size.
    #[error(
        "key `memory.size`: cannot map {size:#x} bytes ({reason}), which may exceed the address space limit of this process"
    )]
    Memory {
        /// Bytes requested.
        size: u64,
        /// Error of the operating system.
        reason: std::io::ErrorKind,
    },
    /// The receiver cannot be built with these sizes.
    #[error("section `ni`: {_0}")]
    Receiver(ReceiverConfigError),
}

impl From<ReceiverConfigError> for CardError {
    fn from(error: ReceiverConfigError) -> Self {
        Self::Receiver(error)
    }
}

impl From<Problem> for CardError {
    fn from(error: Problem) -> Self {
        Self::Description(error)
    }
}

/// Card address without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("card address {at} is outside card memory and the transmit windows of the card description")]
pub struct NoSuchAddress {
    /// The address.
    pub at: CardAddr,
}
