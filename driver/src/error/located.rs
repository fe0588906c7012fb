//! Error with its place, and the traits of kinds.

use core::fmt;

use crate::advice::Advice;
use crate::name::{CardName, ChannelName};

/// Kind of an error, with its values.
pub trait ErrorKind: std::error::Error {
    /// Returns what to do about it; `None` if the problem leaves nothing to advise.
    fn advice(&self) -> Option<Advice>;

    /// Returns whether `Display` of this kind names the place already: the kind wraps an error that has one.
    fn names_place(&self) -> bool {
        false
    }
}

/// Error of an operation: what failed (`kind`), and where (`place`).
///
/// ```
/// use fpga_driver::{ChannelError, Error, WaitOptions};
///
/// fn is_late(error: &Error<ChannelError>) -> bool {
///     matches!(error.kind, ChannelError::TimedOut { .. })
/// }
/// ```
///
/// `{}` writes the problem in one line. `{:#}` adds the [advice](Self::advice) in a second line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error<K> {
    /// Kind of the failure, with its values.
    pub kind: K,
    /// Place of the failure.
    pub place: ErrorPlace,
}

impl<K> Error<K> {
    /// Creates the error of a kind at a place.
    pub const fn new(kind: K, place: ErrorPlace) -> Self {
        Self { kind, place }
    }

    /// Returns the error with its kind converted. The place stays.
    pub fn map<L>(self, convert: impl FnOnce(K) -> L) -> Error<L> {
        Error { kind: convert(self.kind), place: self.place }
    }

    /// Returns the error as one of a wider kind.
    pub fn widen<L: From<K>>(self) -> Error<L> {
        self.map(L::from)
    }
}

impl<K: ErrorKind> Error<K> {
    /// Returns what to do about the error, as data; `None` if there is nothing to advise.
    pub fn advice(&self) -> Option<Advice> {
        self.kind.advice()
    }
}

impl<K: ErrorKind> fmt::Display for Error<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.names_place() {
            write!(f, "{}", self.kind)?;
        } else {
            write!(f, "{}: {}", self.place, self.kind)?;
        }
        match self.advice() {
            Some(advice) if f.alternate() => write!(f, "\nhelp: {advice}"),
            _ => Ok(()),
        }
    }
}

impl<K: ErrorKind> std::error::Error for Error<K> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

/// Place of an error: the card, and its part. `Display` writes `0000:65:00.0 h2c0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ErrorPlace {
    card: CardName,
    part: CardPart,
}

/// Part of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CardPart {
    /// The card as a whole.
    Card,
    /// A DMA channel.
    Channel(ChannelName),
    /// The CDMA engine.
    Cdma,
    /// The CDMA engine's descriptor ring.
    CdmaRing,
    /// A line of the user interrupts.
    UserInterrupt(u8),
    /// The network interface and its endpoint.
    Endpoint,
}

impl ErrorPlace {
    pub(crate) const fn new(card: CardName, part: CardPart) -> Self {
        Self { card, part }
    }

    /// Place of an error that concerns no card.
    pub(crate) fn unnamed() -> Self {
        Self::new("".into(), CardPart::Card)
    }

    /// Returns the name of the card; empty if the text that was to name a card did not.
    #[must_use]
    pub fn card(&self) -> &str {
        &self.card
    }

    /// Returns the place of a part of the same card.
    #[must_use]
    pub fn of_part(self, part: CardPart) -> Self {
        Self { part, ..self }
    }

    /// Returns the part of the card.
    #[must_use]
    pub const fn part(&self) -> CardPart {
        self.part
    }
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.card)?;
        match self.part {
            CardPart::Card | CardPart::Endpoint => Ok(()),
            CardPart::Channel(channel) => write!(f, " {channel}"),
            CardPart::Cdma => f.write_str(" CDMA"),
            CardPart::CdmaRing => f.write_str(" CDMA ring"),
            CardPart::UserInterrupt(line) => write!(f, ": user interrupt {line}"),
        }
    }
}

/// Adds the place to the kind of an error, where a call returns to the user.
pub trait At<T, K> {
    /// Returns the result with the place at its error.
    ///
    /// # Errors
    /// The kind of `self`, with its place.
    fn at(self, place: impl FnOnce() -> ErrorPlace) -> Result<T, Error<K>>;
}

impl<T, K> At<T, K> for Result<T, K> {
    #[inline]
    fn at(self, place: impl FnOnce() -> ErrorPlace) -> Result<T, Error<K>> {
        self.map_err(|kind| Error::new(kind, place()))
    }
}

/// Conversions of [`Error`]s by `?`, as those of their kinds.
macro_rules! widen {
    ($($from:ty => $to:ty),* $(,)?) => {
        $(impl From<$crate::error::Error<$from>> for $crate::error::Error<$to> {
            fn from(error: $crate::error::Error<$from>) -> Self {
                error.widen()
            }
        })*
    };
}
pub(crate) use widen;
