//! Errors: a kind (what failed), a place (where), and advice (what to do).
//!
//! Each operation has an enum of kinds. A kind has values, and no name of a card or a channel: [`Error`] adds the place once, where the call
//! returns to the user. [`Error::advice`] is data, which a front end renders in its own words.
//!
//! `Display` of a kind and of an [`Error`] is one line with the complete cause, so `source()` does not return the cause again.

mod cause;
mod channel;
mod located;
mod open;
mod resource;
mod submit;
mod transfer;

pub use cause::{Cause, CauseClass};
pub(crate) use cause::{Classified, LowerError, with_cause};
pub use channel::ChannelError;
pub(crate) use located::widen;
pub use located::{At, CardPart, Error, ErrorKind, ErrorPlace};
pub use open::OpenError;
pub use resource::ResourceError;
pub use submit::{Refused, SubmitError};
pub use transfer::{TransferError, TransferFailed};
