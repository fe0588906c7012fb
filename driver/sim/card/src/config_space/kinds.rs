//! Kinds of errors on the link.

use serde::Deserialize;

macro_rules! errors {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $bit:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $bit,)* }

        impl $name {
            /// All variants, in bit order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub(super) const fn bit(self) -> u32 {
                1 << self as u8
            }
        }
    };
}

errors! {
    /// Uncorrectable error; the values are bit numbers of the AER status register (PCIe 7.8.4.2).
    UncorrectableError {
        /// Data link protocol error.
        DataLinkProtocol = 4,
        /// The link went down unexpectedly.
        SurpriseDown = 5,
        /// A packet with poisoned data arrived.
        PoisonedTlp = 12,
        /// Flow control protocol error.
        FlowControl = 13,
        /// A completion timed out.
        CompletionTimeout = 14,
        /// The function answered with completer abort.
        CompleterAbort = 15,
        /// A completion without an outstanding request.
        UnexpectedCompletion = 16,
        /// More data arrived than the credits allowed.
        ReceiverOverflow = 17,
        /// A malformed packet.
        MalformedTlp = 18,
        /// Wrong end-to-end check sum (ECRC).
        Ecrc = 19,
        /// A request that the function does not support.
        UnsupportedRequest = 20,
    }
}

errors! {
    /// Correctable error; the values are bit numbers of the AER status register (PCIe 7.8.4.5).
    CorrectableError {
        /// Error at the receiver.
        Receiver = 0,
        /// A transaction packet with a wrong check sum.
        BadTlp = 6,
        /// A link packet with a wrong check sum.
        BadDllp = 7,
        /// The replay counter rolled over.
        ReplayRollover = 8,
        /// The replay timer expired.
        ReplayTimeout = 12,
        /// An uncorrectable error that is reported as advisory.
        AdvisoryNonFatal = 13,
    }
}

/// An error on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PciError {
    /// Corrected by hardware.
    Correctable(CorrectableError),
    /// Not corrected; the severity register says whether it is fatal.
    Uncorrectable(UncorrectableError),
}

/// Completion without data to a request of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadCompletion {
    UnsupportedRequest,
    CompleterAbort,
    Poisoned,
}

impl BadCompletion {
    pub(crate) const ALL: [Self; 3] = [Self::UnsupportedRequest, Self::CompleterAbort, Self::Poisoned];
}
