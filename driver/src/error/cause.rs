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
use fpga_ring::{cdma_ring, ring};
use fpga_vfio_user::VfioUserOpenError;

use super::located::ErrorKind;
use crate::advice::Advice;
use crate::owner::OwnerStartError;
use crate::simulation::SimulationError;
use crate::spec::CardSpecError;

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
trait LowerError: StdError + Send + Sync + 'static {
    fn class(&self) -> CauseClass {
        CauseClass::Refused
    }

    fn advice(&self) -> Option<Advice>;

    /// Whether the text names the card.
    fn names_place(&self) -> bool {
        false
    }
}

impl<E: LowerError> From<E> for Cause {
    fn from(error: E) -> Self {
        let (class, advice, names_place) = (error.class(), error.advice(), error.names_place());
        Self(Arc::new(Known { class, advice, names_place, error }))
    }
}

/// Converts errors of the packages below into a variant `Cause` of each kind.
macro_rules! with_cause {
    ($($kind:ty),* $(,)?) => {
        $(impl<E: LowerError> From<E> for $kind {
            fn from(error: E) -> Self {
                Self::Cause(error.into())
            }
        })*
    };
}

with_cause!(
    super::ChannelError,
    super::OpenError,
    super::ResourceError,
    crate::cdma::CdmaError,
    crate::cdma::CdmaRingError,
    crate::recovery::RecoveryError,
    crate::recovery::RecoveryStepError,
    crate::user_interrupt::UserInterruptError,
);

fn text(help: Option<Cow<'static, str>>) -> Option<Advice> {
    help.map(Advice::Text)
}

/// Advice of a server that has not answered, else that of the package.
fn of_server(server: &ServerError, help: Option<Cow<'static, str>>) -> Option<Advice> {
    if server.is_timed_out() { Some(Advice::AllowSlowServer) } else { text(help) }
}

impl LowerError for ServerError {
    fn class(&self) -> CauseClass {
        match self {
            Self::TimedOut { .. } => CauseClass::TimedOut,
            error if error.is_disconnected() => CauseClass::Gone,
            _ => CauseClass::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        of_server(self, self.help())
    }
}

impl LowerError for OtherProcess {
    fn class(&self) -> CauseClass {
        CauseClass::OtherProcess
    }

    fn advice(&self) -> Option<Advice> {
        Some(Advice::text(self.help()))
    }
}

impl LowerError for MmioError {
    fn class(&self) -> CauseClass {
        match self {
            Self::OutOfRange { .. } | Self::Misaligned { .. } => CauseClass::Range,
            Self::Gone { .. } => CauseClass::Gone,
            Self::Stale { .. } => CauseClass::Reset,
            Self::Server { source, .. } => source.class(),
            Self::OtherProcess(_) => CauseClass::OtherProcess,
            _ => CauseClass::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Stale { .. } => Some(Advice::DropCard),
            Self::Server { source, .. } => source.advice(),
            _ => text(self.help()),
        }
    }
}

impl LowerError for ConfigSpaceError {
    fn class(&self) -> CauseClass {
        match self {
            Self::Gone => CauseClass::Gone,
            Self::Server { source, .. } => source.class(),
            _ => CauseClass::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Server { source, .. } => source.advice(),
            _ => text(self.help()),
        }
    }
}

impl LowerError for InterruptError {
    fn class(&self) -> CauseClass {
        match self {
            Self::Server { source, .. } => source.class(),
            Self::OtherProcess(_) => CauseClass::OtherProcess,
            _ => CauseClass::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Server { source, .. } => source.advice(),
            _ => text(self.help()),
        }
    }
}

impl LowerError for DmaAllocError {
    fn class(&self) -> CauseClass {
        match self {
            Self::BadRequest { .. } | Self::NotWholePages { .. } => CauseClass::Argument,
            Self::AlreadyMapped { .. } => CauseClass::InUse,
            Self::OtherProcess(_) => CauseClass::OtherProcess,
            _ => CauseClass::Memory,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Map(DmaMapError::Server { source, .. }) => of_server(source, self.help()),
            _ => text(self.help()),
        }
    }
}

impl LowerError for VfioOpenError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::WrongDriver { address, .. } => Some(Advice::BindToVfio(*address)),
            _ => text(self.help()),
        }
    }

    fn names_place(&self) -> bool {
        true
    }
}

impl LowerError for VfioUserOpenError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Server { source, .. }
            | Self::Config(ConfigSpaceError::Server { source, .. })
            | Self::Interrupts(InterruptError::Server { source, .. }) => of_server(source, self.help()),
            _ => text(self.help()),
        }
    }

    fn names_place(&self) -> bool {
        true
    }
}

impl LowerError for OwnerStartError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Program { .. } => Some(Advice::InstallOwner),
            Self::Folder { .. } | Self::NotPrivate { .. } => {
                Some(Advice::text("set XDG_RUNTIME_DIR to a folder that only you can open"))
            }
            Self::Locked { .. } | Self::NotReady { .. } => Some(Advice::AllowSlowServer),
            // Its message includes help.
            Self::Ended { .. } => None,
        }
    }
}

impl LowerError for SimulationError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::NotBuilt { folder } => Some(Advice::BuildSimulation(folder.clone())),
            Self::Folder(error) => error.advice(),
            _ => None,
        }
    }
}

impl LowerError for IdentityReadError<MmioError> {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Refused(error) => error.help().map(Advice::text),
            _ => None,
        }
    }
}

/// Errors of the class and with the advice that their package gives.
macro_rules! lower_errors {
    ($($error:ty: $class:ident, $advice:expr;)*) => {
        $(impl LowerError for $error {
            fn class(&self) -> CauseClass {
                CauseClass::$class
            }

            fn advice(&self) -> Option<Advice> {
                ($advice as fn(&Self) -> Option<Advice>)(self)
            }
        })*
    };
}

lower_errors! {
    BarError: Refused, |error| text(error.help());
    ResetError: Refused, |error| text(error.help());
    CardSpecError: Argument, |_| Some(Advice::NameCard);
    ParsePciAddressError: Argument, |_| Some(Advice::NameCard);
    MemoryError: Range, |error| text(error.help());
    ring::RingConfigError: Argument, |_| None;
    ring::CountFault: Refused, |_| None;
    ring::RefusalReason: Range, |error| {
        matches!(error, ring::RefusalReason::TooManyDescriptors { .. }).then_some(Advice::SplitTransfer)
    };
    cdma_ring::CdmaRingConfigError: Argument, |_| None;
    cdma_ring::ProgressFault: Refused, |_| None;
    cdma_ring::CdmaRefusalReason: Range, |error| {
        matches!(error, cdma_ring::CdmaRefusalReason::TooManyDescriptors { .. }).then_some(Advice::SplitTransfer)
    };
}
