//! Errors of the packages below, which the driver's errors contain as opaque causes.

use std::error::Error;

use fpga_driver::errors::CdmaRingError;
use fpga_driver::{ChannelError, OpenError, ResourceError, SubmitError};

/// Kind of an error of the driver that may be an error of a package below.
pub trait Lower {
    /// Returns that error, if it is of type `E`.
    fn lower<E: Error + 'static>(&self) -> Option<&E>;
}

macro_rules! lower {
    ($($kind:ty),* $(,)?) => {
        $(impl Lower for $kind {
            fn lower<E: Error + 'static>(&self) -> Option<&E> {
                match self {
                    Self::Cause(cause) => cause.get(),
                    _ => None,
                }
            }
        })*
    };
}

lower!(ChannelError, OpenError, ResourceError, SubmitError, CdmaRingError);
