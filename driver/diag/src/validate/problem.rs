//! Problems found by a test, with their remedies.

use fpga_driver::errors::Cause;
use fpga_pci::Waited;
use fpga_pci::host::Status;
use fpga_pci::{DmaAllocError, InterruptError, MemoryError, MmioError};
use fpga_registers::xdma::ChannelStatus;
use fpga_registers::{CardAddr, Iova, quantity};

use super::pattern::Mismatch;
use fpga_driver::{Advice, CdmaError, ChannelError, ChannelName, Error, ResourceError, stream::StreamError};

/// Outcome of a test that ran to its end.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) status: Status,
    /// Finding, in one line.
    pub(super) text: String,
    /// Remedy.
    pub(super) advice: Option<Advice>,
}

impl Verdict {
    pub(super) fn pass(text: impl Into<String>) -> Self {
        Self { status: Status::Pass, text: text.into(), advice: None }
    }

    pub(super) fn warn(text: impl Into<String>) -> Self {
        Self { status: Status::Warn, text: text.into(), advice: None }
    }

    pub(super) fn fail(text: impl Into<String>) -> Self {
        Self { status: Status::Fail, text: text.into(), advice: None }
    }

    pub(super) fn skip(text: impl Into<String>) -> Self {
        Self { status: Status::Skip, text: text.into(), advice: None }
    }

    /// Adds what to do about the finding.
    pub(super) fn advise(self, advice: impl Into<Option<Advice>>) -> Self {
        Self { advice: advice.into(), ..self }
    }
}

/// Reason why a test did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum TestError {
    /// The test cannot run on this card.
    #[error("{0}")]
    Untested(String),
    /// The card does not answer.
    #[error("the card is gone (its registers read as all ones)")]
    Gone,
    #[error(transparent)]
    Mmio(MmioError),
    #[error(transparent)]
    Interrupt(InterruptError),
    #[error("no memory for the test: {0}")]
    Memory(DmaAllocError),
    #[error("the test's own memory: {0}")]
    Range(MemoryError),
    /// An engine stopped with error bits.
    #[error("{channel} stopped with an error: {what}{place}")]
    Engine { channel: ChannelName, what: String, place: EnginePosition },
    /// A run does not end. The engine was stopped.
    #[error(
        "{channel} did not finish within {waited} ({completed} of {posted} reported, status {status}); the \
         engine was stopped", posted = quantity(*posted, "descriptor"))]
    Slow { channel: ChannelName, waited: Waited, completed: u32, posted: u32, status: String },
    /// An engine does not stop.
    #[error(
        "{channel} does not stop ({waited}, status {status}): an AXI slave does not answer. Memory that the engine may still access stays quarantined{hint}"
    )]
    Stuck { channel: ChannelName, waited: Waited, status: String, hint: &'static str },
    /// An engine stopped before the end of its run without an error bit.
    #[error("{channel} stopped before the end of its run without an error bit (status {status})")]
    Silent { channel: ChannelName, status: String },
    /// Card memory could not be restored.
    #[error("{what} still hold test data and could not be restored: {why}")]
    Restore { what: String, why: String },
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error(transparent)]
    Cdma(Error<CdmaError>),
    #[error(transparent)]
    Resource(Error<ResourceError>),
    #[error(transparent)]
    Stream(Error<StreamError>),
}

/// Descriptor at which an engine stopped, as far as its count shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnginePosition(pub(super) Option<(u32, Iova, CardAddr, u32)>);

impl core::fmt::Display for EnginePosition {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some((index, host, card, length)) => {
                write!(f, " at descriptor {index} (host {host}, card {card}, {length} bytes)")
            }
            None => Ok(()),
        }
    }
}

impl TestError {
    /// Returns what to do about it.
    pub(super) fn advice(&self) -> Option<Advice> {
        match self {
            Self::Gone => Some(Advice::ResetBus),
            Self::Stuck { .. } => Some(Advice::ResetHungEngine),
            Self::Engine { .. } => Some(Advice::text(
                "check that card memory answers there: poisoned or unmapped address, the IOMMU's log, AER",
            )),
            Self::Mismatch(_) => Some(Advice::text("check card memory, its calibration and the data path")),
            Self::Mmio(error) => error.help().map(Advice::Text),
            Self::Cdma(error) => error.advice(),
            Self::Resource(error) => error.advice(),
            Self::Stream(error) => error.advice(),
            _ => None,
        }
    }
}

impl From<MmioError> for TestError {
    fn from(error: MmioError) -> Self {
        // A server that is slow, or whose connection has ended, tells nothing about the card.
        if matches!(error, MmioError::Gone { .. }) { Self::Gone } else { Self::Mmio(error) }
    }
}

fn is_gone(cause: &Cause) -> bool {
    matches!(cause.get(), Some(MmioError::Gone { .. }))
}

impl From<Error<CdmaError>> for TestError {
    fn from(error: Error<CdmaError>) -> Self {
        match &error.kind {
            CdmaError::Gone => Self::Gone,
            CdmaError::Cause(cause) if is_gone(cause) => Self::Gone,
            _ => Self::Cdma(error),
        }
    }
}

impl From<Error<StreamError>> for TestError {
    fn from(error: Error<StreamError>) -> Self {
        match &error.kind {
            StreamError::Channel(ChannelError::Gone { .. }) => Self::Gone,
            _ => Self::Stream(error),
        }
    }
}

impl From<DmaAllocError> for TestError {
    fn from(error: DmaAllocError) -> Self {
        Self::Memory(error)
    }
}

impl From<MemoryError> for TestError {
    fn from(error: MemoryError) -> Self {
        Self::Range(error)
    }
}

impl From<Error<ResourceError>> for TestError {
    fn from(error: Error<ResourceError>) -> Self {
        match &error.kind {
            ResourceError::Cause(cause) if is_gone(cause) => Self::Gone,
            _ => Self::Resource(error),
        }
    }
}

/// Formats the error bits as text.
pub(super) fn errors(channel: ChannelName, status: ChannelStatus) -> String {
    let words: Vec<&str> = status.errors(channel.direction).map(|error| error.description()).collect();
    words.join("; ")
}
