//! Problems found by a test, with their remedies.

use fpga_pci::Waited;
use fpga_pci::{DmaAllocError, MemoryError, MmioError};
use fpga_registers::xdma::ChannelStatus;
use fpga_registers::{CardAddr, Iova, quantity};

use super::pattern::Mismatch;
use fpga_driver::CdmaError;
use fpga_driver::ChannelName;
use fpga_driver::StreamError;
use fpga_driver::{ChannelError, ResourceError};

/// Outcome of a test that ran to its end.
#[derive(Debug)]
pub(super) enum Verdict {
    Pass(String),
    Warn(String),
    Fail(String),
    Skip(String),
}

/// Reason why a test did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum TestError {
    /// The test cannot run on this card.
    #[error("{0}")]
    Untested(String),
    /// The card does not answer.
    #[error(
        "the card is gone (its registers read as all ones): check slot and power; `fpgactl reset --level bus` recovers a card \
         whose configuration space still answers, otherwise rescan the bus"
    )]
    Gone,
    #[error(transparent)]
    Mmio(MmioError),
    #[error("no memory for the test: {0}")]
    Memory(#[from] DmaAllocError),
    #[error("the test's own memory: {0}")]
    Range(#[from] MemoryError),
    /// An engine stopped with error bits.
    #[error(
        "{channel} stopped with an error: {what}{place}; check that card memory answers there (poisoned or unmapped address, \
         IOMMU log, AER)"
    )]
    Engine { channel: ChannelName, what: String, place: EnginePosition },
    /// A run does not end. The engine was stopped.
    #[error(
        "{channel} did not finish within {waited} ({completed} of {posted} reported, status {status}); the \
         engine was stopped", posted = quantity(*posted, "descriptor"))]
    Slow { channel: ChannelName, waited: Waited, completed: u32, posted: u32, status: String },
    /// An engine does not stop.
    #[error(
        "{channel} does not stop ({waited}, status {status}): an AXI slave does not answer; reset the card with \
         `fpgactl reset --level bus`. Memory that the engine may still access stays quarantined{hint}"
    )]
    Stuck { channel: ChannelName, waited: Waited, status: String, hint: &'static str },
    /// An engine stopped before the end of its run without an error bit.
    #[error("{channel} stopped before the end of its run without an error bit (status {status})")]
    Silent { channel: ChannelName, status: String },
    /// Card memory could not be restored.
    #[error("{what} still hold test data and could not be restored: {why}")]
    Restore { what: String, why: String },
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    #[error(transparent)]
    Cdma(CdmaError),
    #[error(transparent)]
    Resource(ResourceError),
    #[error(transparent)]
    Stream(StreamError),
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

impl From<MmioError> for TestError {
    fn from(error: MmioError) -> Self {
        if error.is_gone() { Self::Gone } else { Self::Mmio(error) }
    }
}

impl From<CdmaError> for TestError {
    fn from(error: CdmaError) -> Self {
        match error {
            CdmaError::Gone { .. } => Self::Gone,
            CdmaError::Mmio { source, .. } if source.is_gone() => Self::Gone,
            error => Self::Cdma(error),
        }
    }
}

impl From<StreamError> for TestError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Channel(ChannelError::Gone { .. }) => Self::Gone,
            error => Self::Stream(error),
        }
    }
}

impl From<ResourceError> for TestError {
    fn from(error: ResourceError) -> Self {
        match error {
            ResourceError::Mmio { source, .. } if source.is_gone() => Self::Gone,
            error => Self::Resource(error),
        }
    }
}

/// Formats the error bits as text.
pub(super) fn errors(channel: ChannelName, status: ChannelStatus) -> String {
    let words: Vec<&str> = status.errors(channel.direction).map(|error| error.description()).collect();
    words.join("; ")
}
