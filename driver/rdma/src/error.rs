//! Errors of endpoints.

use fpga_pci::Waited;

use fpga_firmware::NodeId;
use fpga_firmware::generated::Scheme;
use fpga_pci::MmioError;
use fpga_protocol::sender;
use fpga_registers::cdma::Cdmasr;
use fpga_registers::{CardAddr, quantity};

use super::mismatch::Mismatch;
use super::schemes::SchemeList;
use fpga_driver::errors::{Cause, CauseClass, ChannelFault, ErrorKind};
use fpga_driver::{
    Advice, CardRange, CdmaError, ChannelError, Error, ResourceError, SubmitError, TransferError,
    TransferFailed,
};

/// Error of opening or driving an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The card has no network interface, or it was opened without one.
    #[error("no network interface: the bitstream has none, or the subsystem ids of the card do not show it")]
    NoInterface,
    /// Sizes and thresholds in the options contradict each other.
    #[error(transparent)]
    Config(Cause),
    /// The NI does not support this scheme.
    #[error("the network interface does not support the scheme {scheme}; it supports {known}")]
    Scheme {
        /// Requested scheme.
        scheme: Scheme,
        /// Supported schemes.
        known: SchemeList,
    },
    /// The NI has an op table, and the driver has one too: both would retransmit packets.
    #[error(
        "the network interface keeps the op table itself ({entries}), and so does this driver",
        entries = quantity(*entries, "entry"),
    )]
    OpTable {
        /// Number of entries of the NI's op table.
        entries: u32,
    },
    /// The NI cannot run these schemes at the same time.
    #[error("the network interface does not support the schemes {schemes} at once, {reason}")]
    Schemes {
        /// Requested schemes.
        schemes: SchemeList,
        /// Reason.
        reason: &'static str,
    },
    /// The scheme does not support the requested parameters.
    #[error("the scheme {scheme} does not support these parameters")]
    Tuning {
        /// Scheme.
        scheme: Scheme,
    },
    /// An option of the event ring or of the chain is out of range.
    #[error("{what} is {found}: {expected}")]
    Option {
        /// Name of the option.
        what: &'static str,
        /// Requested value.
        found: u64,
        /// Valid values.
        expected: &'static str,
    },
    /// The card's transmit windows violate the NI contract.
    #[error("the card reports impossible transmit windows ({reason}): the bitstream is damaged")]
    Windows {
        /// Reason.
        reason: &'static str,
    },
    /// The card's receive tables are larger than any build's.
    #[error("the card reports {found} {what}, and no build has more than 65535: the bitstream is damaged")]
    Tables {
        /// Entries of the table.
        what: &'static str,
        /// Reported number.
        found: u32,
    },
    /// A resource of the card could not be taken.
    #[error(transparent)]
    Resource(#[from] Error<ResourceError>),
    /// The CDMA engine failed.
    #[error(transparent)]
    Cdma(#[from] Error<CdmaError>),
    /// The CDMA engine halted while it filled a transmit window.
    #[error(
        "the CDMA chain that fills transmit windows stopped ({status}): a source lies outside card memory, or is not aligned for a build without data realignment"
    )]
    Chain {
        /// Status register of the engine.
        status: Cdmasr,
    },
    /// Transmit windows were filled but not released by the NI.
    #[error(
        "{outstanding} transmit windows were not sent within {waited}: the network is blocked or the interface is stuck"
    )]
    WindowsStuck {
        /// Number of windows that the NI holds.
        outstanding: u32,
        /// Time without a released window, on the clock of the card.
        waited: Waited,
    },
    /// The channel that carries header blocks failed.
    #[error(transparent)]
    Channel(#[from] Error<ChannelError>),
    /// The DMA transfer of a header block, or of events in card memory, failed.
    #[error("moving a packet header to the card, or events from it, failed: {0}")]
    Upload(Error<ChannelFault>),
    /// The DMA transfer of a header block was refused.
    #[error(transparent)]
    Submit(#[from] Error<SubmitError>),
    /// Card memory could not be prepared.
    #[error("preparing the endpoint's place in card memory failed: {0}")]
    Prepare(Error<TransferError>),
    /// The request of a read could not be fetched from card memory.
    #[error("fetching a request to read from card memory failed: {0}")]
    Fetch(Error<TransferError>),
    /// A window header contradicts itself. This is an error of this package.
    #[error("a header that this driver made contradicts itself: {0}")]
    Header(Cause),
    /// An entry of the event ring is invalid.
    #[error("event {expected}: {cause}: something else writes into the event ring, or the card is damaged")]
    Event {
        /// Sequence number of the entry.
        expected: u32,
        /// Reason.
        cause: Cause,
    },
    /// Events were lost: the ring overflowed.
    #[error(
        "events {expected} to before {found} are lost: the event ring of {entries} overflowed",
        entries = quantity(*entries, "entry"),
    )]
    EventsLost {
        /// Expected sequence number.
        expected: u32,
        /// Sequence number found.
        found: u32,
        /// Number of entries of the ring.
        entries: u32,
    },
    /// The NI released a transmit window that it did not hold.
    #[error("the interface released transmit window {index}, which it did not hold: the card is damaged")]
    WindowNotInFlight {
        /// Index of the window.
        index: u16,
    },
    /// A region is not inside the memory that transfers may use.
    #[error(
        "region of {} at {} is empty or not inside the {} bytes at {} that transfers may use",
        quantity(range.length, "byte"), range.start, usable.length, usable.start
    )]
    RegionRange {
        /// Requested region.
        range: CardRange,
        /// Usable memory.
        usable: CardRange,
    },
    /// Every memory window of the card is in use.
    #[error("all {capacity} memory windows are open")]
    RegionsFull {
        /// Number of memory windows.
        capacity: usize,
    },
    /// Waiting for the event ring's interrupt failed.
    #[error("waiting for the event ring's interrupt failed: {0}")]
    Interrupt(Cause),
    /// The wait's deadline has passed. The transfer stays in flight.
    #[error("the transfer has not ended after {waited}")]
    TimedOut {
        /// Time waited.
        waited: Waited,
    },
    /// The wait's deadline has passed, and no transfer has arrived.
    #[error("nothing has arrived after {waited}")]
    NoArrival {
        /// Time waited.
        waited: Waited,
    },
    /// The wait was cancelled ([`Endpoint::set_cancellation`](super::Endpoint::set_cancellation)). Transfers stay in flight.
    #[error("the wait was cancelled after {waited}")]
    Cancelled {
        /// Time waited.
        waited: Waited,
    },
    /// The node has not answered a query (HELLO).
    #[error("node {node} has not answered a query (HELLO) within {waited}")]
    NoPeer {
        /// Queried node.
        node: NodeId,
        /// Time waited.
        waited: Waited,
    },
    /// The system's random number generator is not initialised yet.
    #[error("the system has no random numbers yet, as shortly after its start")]
    NoRandomSource,
    /// The system does not provide random numbers.
    #[error("no random number from the system: {reason} (a sandbox may forbid getrandom)")]
    Random {
        /// Reason.
        reason: String,
    },
    /// Host memory could not be used.
    #[error("host memory of the endpoint: {0}")]
    Memory(Cause),
    /// A register access failed.
    #[error(transparent)]
    Cause(Cause),
}

impl ErrorKind for EndpointError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::NoInterface => Advice::StateNetworkInterface,
            Self::Scheme { .. } | Self::Schemes { .. } => Advice::ChooseScheme,
            Self::OpTable { .. } => Advice::text("load a build that leaves the op table to the driver"),
            Self::Tuning { .. } => Advice::ChooseTuning,
            Self::Chain { .. } => Advice::StateSourceAlignment,
            Self::WindowsStuck { .. }
            | Self::Fetch(_)
            | Self::Header(_)
            | Self::Event { .. }
            | Self::WindowNotInFlight { .. }
            | Self::Memory(_) => Advice::ReopenEndpoint,
            Self::Upload(_) => Advice::TestCard,
            Self::Prepare(_) => Advice::PlaceChain,
            Self::EventsLost { .. } => Advice::EnlargeEventRing,
            Self::RegionRange { .. } => Advice::ChooseUsableRange,
            Self::RegionsFull { .. } => Advice::CloseRegion,
            Self::Interrupt(_) => Advice::OpenEndpointBeforeInterrupts,
            Self::TimedOut { .. } => {
                Advice::text("wait longer, or look at the op table for the node that does not answer")
            }
            Self::NoArrival { .. } => {
                Advice::text("wait longer, or check that a peer was given a region to send to")
            }
            Self::Cancelled { .. } => Advice::text("wait again"),
            Self::NoPeer { .. } => Advice::text(
                "check that its endpoint is open, that packets get through, and that it has the same wire version",
            ),
            Self::NoRandomSource | Self::Random { .. } => Advice::WaitForRandomNumbers,
            Self::Resource(error) => return error.advice(),
            Self::Cdma(error) => return error.advice(),
            Self::Channel(error) => return error.advice(),
            Self::Submit(error) => return error.advice(),
            Self::Cause(cause) => return cause.advice(),
            Self::Config(_) | Self::Option { .. } | Self::Windows { .. } | Self::Tables { .. } => {
                return None;
            }
        })
    }

    fn names_place(&self) -> bool {
        matches!(self, Self::Resource(_) | Self::Cdma(_) | Self::Channel(_) | Self::Submit(_))
    }
}

impl SendError {
    /// Returns whether this is back-pressure: the same transfer is accepted after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Destinations { .. })
    }

    /// Refusal of the sender.
    pub(super) fn of(error: sender::CommandError) -> Self {
        let (class, advice) = match error {
            sender::CommandError::Full { capacity } => return Self::Full { capacity },
            sender::CommandError::Destinations { capacity, node } => {
                return Self::Destinations { capacity, node };
            }
            sender::CommandError::TooLong { .. } => (CauseClass::Range, Some(Advice::SplitTransfer)),
            sender::CommandError::Notify => (CauseClass::Unsupported, Some(Advice::ChooseNotification)),
            sender::CommandError::Scheme { .. } => (CauseClass::Unsupported, Some(Advice::OpenWithScheme)),
            _ => (CauseClass::Range, None),
        };
        Self::Cause(Cause::new(class, advice, error))
    }
}

impl From<MmioError> for SendError {
    fn from(error: MmioError) -> Self {
        Self::Cause(error.into())
    }
}

impl From<MmioError> for EndpointError {
    fn from(error: MmioError) -> Self {
        Self::Cause(error.into())
    }
}

impl ErrorKind for SendError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::SourceRange { .. } => Advice::ChooseUsableRange,
            Self::SourceAlignment { .. } => Advice::text("copy the data to an aligned address first"),
            Self::TargetRange { .. } => Advice::text("send less, or let the node open a larger region"),
            Self::Overlap { .. } => Advice::UseCopyEngine,
            Self::Scheme { .. } => Advice::OpenWithScheme,
            Self::Peer { mismatch, .. } => return Some(mismatch.advice()),
            Self::Full { .. } | Self::Destinations { .. } => Advice::TakeCompletions,
            Self::Cause(cause) => return cause.advice(),
        })
    }
}

impl From<TransferFailed> for EndpointError {
    fn from(failed: TransferFailed) -> Self {
        Self::Prepare(failed.error)
    }
}

/// Refused transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The source is not inside the card memory.
    #[error(
        "source of {length} at {start} is not inside the card's memory ({} bytes at {})",
        memory.length, memory.start,
        length = quantity(*length, "byte"),
    )]
    SourceRange {
        /// First source address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// Usable memory.
        memory: CardRange,
    },
    /// The source address does not have the alignment that the CDMA engine needs.
    #[error(
        "source at {start} is not a multiple of {alignment}, which a copy engine without data realignment needs",
        alignment = quantity(*alignment, "byte"),
    )]
    SourceAlignment {
        /// First source address.
        start: CardAddr,
        /// Width of the engine's data path in bytes.
        alignment: u32,
    },
    /// The destination is not inside the region.
    #[error(
        "the range of {length} at offset {offset} is not inside the {region} that node {node} has opened",
        length = quantity(*length, "byte"),
        region = quantity(*region, "byte"),
    )]
    TargetRange {
        /// Receiving node.
        node: NodeId,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Size of the region in bytes.
        region: u64,
    },
    /// Source and destination overlap, so the transfer would change data that a retransmission may read again.
    #[error(
        "source and destination overlap in a transfer of {length} from {source_start} to {destination} of the same card: a retransmission would read overwritten data",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// First source address.
        source_start: CardAddr,
        /// First destination address.
        destination: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// The endpoint was opened without this scheme.
    #[error("the endpoint was opened without the scheme {scheme}; it has {on}")]
    Scheme {
        /// Requested scheme.
        scheme: Scheme,
        /// Schemes of the endpoint.
        on: SchemeList,
    },
    /// The node has reported that it cannot receive the transfer.
    #[error("node {node} {mismatch}")]
    Peer {
        /// Receiving node.
        node: NodeId,
        /// Difference between transfer and node.
        mismatch: Mismatch,
    },
    /// Back-pressure: no more transfers fit.
    #[error("all {capacity} transfer slots are in use")]
    Full {
        /// Number of transfers that fit.
        capacity: u32,
    },
    /// Back-pressure: too many nodes have transfers.
    #[error("transfers to {capacity} nodes are in progress: none to node {node} can begin")]
    Destinations {
        /// Maximum number of nodes.
        capacity: u32,
        /// Node that exceeds it.
        node: NodeId,
    },
    /// The sender refused the transfer, and will do so again; or the card does not answer, or was opened by another process.
    #[error(transparent)]
    Cause(Cause),
}
