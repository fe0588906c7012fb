//! Errors of the packages below: opaque, with what users distinguish.

use core::fmt;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;

use fpga_firmware::identity::IdentityReadError;
use fpga_pci::vfio::VfioOpenError;
use fpga_pci::{
    BarError, ConfigSpaceError, DmaAllocError, DmaMapError, InterruptError, MemoryError, MmioError,
    OtherProcess, ParsePciAddressError, ResetError, ServerError,
};
use fpga_ring::{RefusalReason, cdma_ring, ring};
use fpga_vfio_user::VfioUserOpenError;

use CauseClass::{Argument, Gone, InUse, Memory, Range, Refused, Reset, TimedOut};

use super::located::ErrorKind;
use crate::advice::Advice;

/// Error of a package below: its text, its class and its advice. Its type is not part of this API; a program that depends on that package
/// as well can look at it ([`get`](Self::get)).
#[derive(Clone)]
pub struct Cause(Arc<Known<dyn StdError + Send + Sync>>);

struct Known<E: ?Sized> {
    class: CauseClass,
    advice: Option<Advice>,
    names_place: bool,
    error: E,
}

/// Class of a [`Cause`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CauseClass {
    /// The card does not answer, or the connection to the process that serves it has ended.
    Gone,
    /// The card was reset since the handle was taken.
    Reset,
    /// The process that serves the card has not answered in time. The connection stays open.
    TimedOut,
    /// Another process has opened the card.
    OtherProcess,
    /// An offset or a length is not inside the BAR or the memory, or is not aligned.
    Range,
    /// An argument or an option has an impossible value.
    Argument,
    /// The memory or the resource is in use already.
    InUse,
    /// Memory, or addresses for it, are used up.
    Memory,
    /// The card, the build or the scheme cannot do it.
    Unsupported,
    /// The system, the card's server or the card refused a request.
    Refused,
}

impl Cause {
    /// Creates the cause of an error, for packages on top of this one.
    pub fn new(
        class: CauseClass,
        advice: Option<Advice>,
        error: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Known { class, advice, names_place: false, error }))
    }

    /// Returns the class of the error.
    #[must_use]
    pub fn class(&self) -> CauseClass {
        self.0.class
    }

    /// Returns what to do about the error; `None` if there is nothing to advise.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        self.0.advice.clone()
    }

    /// Returns the error itself if it is of type `E`, of the package where it arose.
    #[must_use]
    pub fn get<E: StdError + 'static>(&self) -> Option<&E> {
        self.0.error.downcast_ref()
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.error, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.error, f)
    }
}

/// By class and text.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.0.class == other.0.class && self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.error.source()
    }
}

impl ErrorKind for Cause {
    fn advice(&self) -> Option<Advice> {
        self.advice()
    }

    fn names_place(&self) -> bool {
        self.0.names_place
    }
}

/// Errors that become a [`Cause`].
pub(crate) trait LowerError: StdError + Send + Sync + 'static {
    /// Whether the text names the card.
    const NAMES_PLACE: bool = false;

    fn classify(&self) -> Classified;
}

pub(crate) type Classified = (CauseClass, Option<Advice>);

impl<E: LowerError> From<E> for Cause {
    fn from(error: E) -> Self {
        let (class, advice) = error.classify();
        Self(Arc::new(Known { class, advice, names_place: E::NAMES_PLACE, error }))
    }
}

/// Converts errors of the packages below into a variant `Cause` of each kind.
macro_rules! with_cause {
    ($($kind:ty),* $(,)?) => {
        $(impl<E: $crate::error::LowerError> From<E> for $kind {
            fn from(error: E) -> Self {
                Self::Cause(error.into())
            }
        })*
    };
}

pub(crate) use with_cause;

fn text(help: Option<Cow<'static, str>>) -> Option<Advice> {
    help.map(Advice::Text)
}

/// Class of an error of the card's server, with advice if it has not answered, else with that of the error around it.
fn of_server(server: &ServerError, help: Option<Cow<'static, str>>) -> Classified {
    let class = match server {
        ServerError::TimedOut { .. } => TimedOut,
        error if error.is_disconnected() => Gone,
        _ => Refused,
    };
    (class, if server.is_timed_out() { Some(Advice::AllowSlowServer) } else { text(help) })
}

/// Errors with the match that classifies them.
macro_rules! lower_errors {
    ($($error:ty => $classify:expr;)*) => {
        $(impl LowerError for $error {
            fn classify(&self) -> Classified {
                ($classify as fn(&Self) -> Classified)(self)
            }
        })*
    };
}

lower_errors! {
    ServerError => |error| of_server(error, error.help());
    OtherProcess => |error| (CauseClass::OtherProcess, Some(Advice::text(error.help())));
    MmioError => |error| match error {
        MmioError::OutOfRange { .. } | MmioError::Misaligned { .. } => (Range, text(error.help())),
        MmioError::Gone { .. } => (Gone, text(error.help())),
        MmioError::Stale { .. } => (Reset, Some(Advice::DropCard)),
        MmioError::Server { source, .. } => of_server(source, error.help()),
        MmioError::OtherProcess(other) => other.classify(),
        _ => (Refused, text(error.help())),
    };
    ConfigSpaceError => |error| match error {
        ConfigSpaceError::Gone => (Gone, text(error.help())),
        ConfigSpaceError::Server { source, .. } => of_server(source, error.help()),
        _ => (Refused, text(error.help())),
    };
    InterruptError => |error| match error {
        InterruptError::Server { source, .. } => of_server(source, error.help()),
        InterruptError::OtherProcess(other) => other.classify(),
        _ => (Refused, text(error.help())),
    };
    DmaAllocError => |error| match error {
        DmaAllocError::BadRequest { .. } | DmaAllocError::NotWholePages { .. } => (Argument, text(error.help())),
        DmaAllocError::AlreadyMapped { .. } => (InUse, text(error.help())),
        DmaAllocError::OtherProcess(other) => other.classify(),
        DmaAllocError::Map(DmaMapError::Server { source, .. }) => (Memory, of_server(source, error.help()).1),
        _ => (Memory, text(error.help())),
    };
    BarError => |error| (Refused, text(error.help()));
    ResetError => |error| (Refused, text(error.help()));
    MemoryError => |error| (Range, text(error.help()));
    IdentityReadError<MmioError> => |error| (Refused, match error {
        IdentityReadError::Refused(error) => error.help().map(Advice::text),
        _ => None,
    });
    ParsePciAddressError => |_| (Argument, Some(Advice::NameCard));
    ring::RingConfigError => |_| (Argument, None);
    ring::CountFault => |_| (Refused, None);
    RefusalReason => |error| {
        let split = matches!(error, RefusalReason::TooManyDescriptors { .. });
        (Range, if split { Some(Advice::SplitTransfer) } else { error.help().map(Advice::text) })
    };
    cdma_ring::CdmaRingConfigError => |_| (Argument, None);
    cdma_ring::ProgressFault => |_| (Refused, None);
}

impl LowerError for VfioOpenError {
    const NAMES_PLACE: bool = true;

    fn classify(&self) -> Classified {
        match self {
            Self::WrongDriver { address, .. } => (Refused, Some(Advice::BindToVfio(*address))),
            _ => (Refused, text(self.help())),
        }
    }
}

impl LowerError for VfioUserOpenError {
    const NAMES_PLACE: bool = true;

    fn classify(&self) -> Classified {
        match self {
            Self::Server { source, .. }
            | Self::Config(ConfigSpaceError::Server { source, .. })
            | Self::Interrupts(InterruptError::Server { source, .. }) => of_server(source, self.help()),
            _ => (Refused, text(self.help())),
        }
    }
}
