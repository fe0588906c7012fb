//! Errors of endpoints.

use fpga_pci::Waited;

use fpga_firmware::NodeId;
use fpga_firmware::event::EventError;
use fpga_firmware::generated::Scheme;
use fpga_firmware::window::WindowError;
use fpga_pci::{InterruptError, MemoryError, MmioError};
use fpga_protocol::sender;
use fpga_registers::cdma::Cdmasr;
use fpga_registers::{CardAddr, quantity};

use super::peers::Mismatch;
use crate::cdma::CdmaError;
use crate::error::{ChannelError, ResourceError, SubmitError, TransferError, TransferFailed};
use crate::fault::ChannelFault;
use crate::name::CardName;
use crate::range::CardRange;

/// Error of opening or driving an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The card has no network interface, or it was opened without one.
    #[error(
        "{card}: no network interface: the bitstream has none, or the subsystem ids of the card do not tell; if the design has one, say so (OpenOptions::network_interface)"
    )]
    NoInterface {
        /// Name of the card.
        card: CardName,
    },
    /// Sizes and thresholds in the options contradict each other.
    #[error("{card}: {source}")]
    Config {
        /// Name of the card.
        card: CardName,
        /// Reason.
        source: sender::ConfigError,
    },
    /// The NI does not support this scheme.
    #[error(
        "{card}: its network interface does not go by the scheme {scheme}, but by {known}; choose one of these, or load another build"
    )]
    Scheme {
        /// Name of the card.
        card: CardName,
        /// Requested scheme.
        scheme: Scheme,
        /// Supported schemes.
        known: SchemeList,
    },
    /// The NI has an op table, and the driver has one too: both would retransmit packets.
    #[error(
        "{card}: its network interface keeps the op table itself ({entries}), and so does this driver; load a build that leaves it to the driver",
        entries = quantity(*entries, "entry"),
    )]
    OpTable {
        /// Name of the card.
        card: CardName,
        /// Number of entries of the NI's op table.
        entries: u32,
    },
    /// The NI cannot run these schemes at the same time.
    #[error(
        "{card}: its network interface does not go by the schemes {schemes} at once, {reason}; open the endpoint with one of them (EndpointOptions::other_schemes), or load another build"
    )]
    Schemes {
        /// Name of the card.
        card: CardName,
        /// Requested schemes.
        schemes: SchemeList,
        /// Reason.
        reason: &'static str,
    },
    /// The scheme does not support the requested parameters.
    #[error(
        "{card}: the scheme {scheme} cannot have these parameters (EndpointOptions::tuning): a window is 1 to 128 packets, of Selective 512, samples are 1 to 256, and neither the time between two walks nor the requests before all is asked for can be 0"
    )]
    Tuning {
        /// Name of the card.
        card: CardName,
        /// Scheme.
        scheme: Scheme,
    },
    /// An option of the event ring or of the chain is out of range.
    #[error("{card}: {what} is {found}: {expected}")]
    Option {
        /// Name of the card.
        card: CardName,
        /// Name of the option.
        what: &'static str,
        /// Requested value.
        found: u64,
        /// Valid values.
        expected: &'static str,
    },
    /// The card's transmit windows violate the NI contract.
    #[error("{card}: the card reports transmit windows that cannot be ({reason}): the bitstream is damaged")]
    Windows {
        /// Name of the card.
        card: CardName,
        /// Reason.
        reason: &'static str,
    },
    /// A resource of the card could not be taken.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The CDMA engine failed.
    #[error(transparent)]
    Cdma(#[from] CdmaError),
    /// The CDMA engine halted while it filled a transmit window.
    #[error(
        "{card}: the CDMA chain that fills transmit windows stopped ({status}); a transfer's source may lie outside card memory, or be misaligned for a build without data realignment (then state EndpointOptions::source_alignment): drop the endpoint and open it again"
    )]
    Chain {
        /// Name of the card.
        card: CardName,
        /// Status register of the engine.
        status: Cdmasr,
    },
    /// Transmit windows were filled but not released by the NI.
    #[error(
        "{card}: {outstanding} transmit windows were not sent within {waited}; the network is blocked or the interface is stuck: drop the endpoint and open it again"
    )]
    WindowsStuck {
        /// Name of the card.
        card: CardName,
        /// Number of windows that the NI holds.
        outstanding: u32,
        /// Time without a released window, on the clock of the card.
        waited: Waited,
    },
    /// The channel that carries header blocks failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The DMA transfer of a header block, or of events in card memory, failed.
    #[error(
        "moving a packet header to the card, or events from it, failed: {0}; drop the endpoint and open it again, and if that does not help, check the card (`fpgactl validate`)"
    )]
    Upload(ChannelFault),
    /// The DMA transfer of a header block was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// Card memory could not be prepared.
    #[error(
        "preparing the endpoint's place in card memory: {0}; check it (EndpointOptions::chain), and open the endpoint again"
    )]
    Prepare(TransferError),
    /// The request of a read could not be fetched from card memory.
    #[error("fetching a request to read from card memory: {0}; drop the endpoint and open it again")]
    Fetch(TransferError),
    /// A window header contradicts itself. This is an error of this package.
    #[error(
        "{card}: a header that this driver made contradicts itself: {source}; report it, and open the endpoint again"
    )]
    Header {
        /// Name of the card.
        card: CardName,
        /// Contradiction.
        source: WindowError,
    },
    /// An entry of the event ring is invalid.
    #[error(
        "{card}: event {expected}: {source}; something else writes into the event ring, or the card is damaged: drop the endpoint and open it again"
    )]
    Event {
        /// Name of the card.
        card: CardName,
        /// Sequence number of the entry.
        expected: u32,
        /// Reason.
        source: EventError,
    },
    /// Events were lost: the ring overflowed.
    #[error(
        "{card}: events {expected} to before {found} are lost: the event ring of {entries} overflowed; poll more often or use a larger ring, and open the endpoint again",
        entries = quantity(*entries, "entry"),
    )]
    EventsLost {
        /// Name of the card.
        card: CardName,
        /// Expected sequence number.
        expected: u32,
        /// Sequence number found.
        found: u32,
        /// Number of entries of the ring.
        entries: u32,
    },
    /// The NI released a transmit window that it did not hold.
    #[error(
        "{card}: the interface released transmit window {index}, which it did not hold; the card is damaged: drop the endpoint and open it again"
    )]
    WindowNotInFlight {
        /// Name of the card.
        card: CardName,
        /// Index of the window.
        index: u16,
    },
    /// A region is not inside the memory that transfers may use.
    #[error(
        "{card}: region of {} at {} is empty or not inside the {} bytes at {} that transfers may use (Endpoint::usable_memory); choose a range there",
        quantity(range.length, "byte"), range.start, usable.length, usable.start
    )]
    RegionRange {
        /// Name of the card.
        card: CardName,
        /// Requested region.
        range: CardRange,
        /// Usable memory.
        usable: CardRange,
    },
    /// Every memory window of the card is in use.
    #[error("{card}: all {capacity} memory windows are open: close one first")]
    RegionsFull {
        /// Name of the card.
        card: CardName,
        /// Number of memory windows.
        capacity: usize,
    },
    /// Waiting for the event ring's interrupt failed.
    #[error(
        "{card}: waiting for the event ring's interrupt: {source}; open the endpoint before interrupts are enabled, and it does without"
    )]
    Interrupt {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: InterruptError,
    },
    /// The wait's deadline has passed. The transfer stays in flight.
    #[error(
        "{card}: the transfer has not ended after {waited}; wait longer, or look at the op table for the node that does not answer"
    )]
    TimedOut {
        /// Name of the card.
        card: CardName,
        /// Time waited.
        waited: Waited,
    },
    /// The wait's deadline has passed, and no transfer has arrived.
    #[error(
        "{card}: nothing has arrived after {waited}; wait longer, or look whether a peer was given a region to send to"
    )]
    NoArrival {
        /// Name of the card.
        card: CardName,
        /// Time waited.
        waited: Waited,
    },
    /// The node has not answered a query (HELLO).
    #[error(
        "{card}: node {node} has not said within {waited} what it can do; look whether its endpoint is open, whether packets get through, and whether it speaks this wire version"
    )]
    NoPeer {
        /// Name of the card.
        card: CardName,
        /// Queried node.
        node: NodeId,
        /// Time waited.
        waited: Waited,
    },
    /// The system's random number generator is not initialised yet.
    #[error(
        "{card}: the system has no random numbers yet, as may be shortly after it has started; wait until it has (`head -c1 /dev/random` returns then), give the machine a source of randomness, or state an incarnation (EndpointOptions) that no earlier life of this node had"
    )]
    NoRandomSource {
        /// Name of the card.
        card: CardName,
    },
    /// The system does not provide random numbers.
    #[error(
        "{card}: no random number from the system: {reason}; let the program call getrandom (a sandbox may forbid it), or state an incarnation (EndpointOptions) that no earlier life of this node had"
    )]
    Random {
        /// Name of the card.
        card: CardName,
        /// Reason.
        reason: String,
    },
    /// Host memory could not be used.
    #[error("{card}: host memory of the endpoint: {source}; drop the endpoint and open it again")]
    Memory {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: MemoryError,
    },
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: MmioError,
    },
}

impl From<TransferFailed> for EndpointError {
    fn from(failed: TransferFailed) -> Self {
        Self::Prepare(failed.error)
    }
}

/// Set of schemes, printed by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SchemeList(
    /// Bit mask: bit n stands for scheme n.
    pub u32,
);

impl SchemeList {
    /// Empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with `scheme` added.
    #[must_use]
    pub const fn with(self, scheme: Scheme) -> Self {
        Self(self.0 | 1 << scheme.value())
    }

    /// Returns whether the set contains `scheme`.
    #[must_use]
    pub const fn contains(self, scheme: Scheme) -> bool {
        self.0 >> scheme.value() & 1 != 0
    }

    /// Iterates over the known schemes in the set, by number.
    pub fn iter(self) -> impl Iterator<Item = Scheme> {
        Scheme::ALL.iter().copied().filter(move |scheme| self.contains(*scheme))
    }

    /// Returns whether the set contains a message scheme, under which the card sends transfers by itself.
    pub(super) const fn has_messages(self) -> bool {
        self.0 & !Self::NONE.with(Scheme::Registry).0 != 0
    }
}

impl FromIterator<Scheme> for SchemeList {
    fn from_iter<I: IntoIterator<Item = Scheme>>(schemes: I) -> Self {
        schemes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl core::fmt::Display for SchemeList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut names = self.iter();
        match names.next() {
            None => f.write_str("none that is known"),
            Some(first) => {
                write!(f, "{first}")?;
                names.try_for_each(|name| write!(f, ", {name}"))
            }
        }
    }
}

/// Refused transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The source is not inside the card memory.
    #[error(
        "{card}: source of {length} at {start} is not inside the card's memory ({} bytes at {}); choose a range there",
        memory.length, memory.start,
        length = quantity(*length, "byte"),
    )]
    SourceRange {
        /// Name of the card.
        card: CardName,
        /// First source address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// Usable memory.
        memory: CardRange,
    },
    /// The source address does not have the alignment that the CDMA engine needs.
    #[error(
        "{card}: source at {start} is not a multiple of {alignment}, which a copy engine without data realignment needs; copy it to such an address first (Cdma::set_bounce_channels), or lay it out so",
        alignment = quantity(*alignment, "byte"),
    )]
    SourceAlignment {
        /// Name of the card.
        card: CardName,
        /// First source address.
        start: CardAddr,
        /// Width of the engine's data path in bytes.
        alignment: u32,
    },
    /// The destination is not inside the region.
    #[error(
        "{card}: the range of {length} at offset {offset} is not inside the {region} that node {node} has opened; send less, or let it open more",
        length = quantity(*length, "byte"),
        region = quantity(*region, "byte"),
    )]
    TargetRange {
        /// Name of the card.
        card: CardName,
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
        "{card}: source and destination overlap in a transfer of {length} from {source_start} to {destination} of the same card: a resend would read what has been overwritten; use the copy engine (Cdma), or other addresses",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// Name of the card.
        card: CardName,
        /// First source address.
        source_start: CardAddr,
        /// First destination address.
        destination: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// The endpoint was opened without this scheme.
    #[error(
        "{card}: a transfer by the scheme {scheme}: this endpoint goes by {on}; name one of these, or open it with that one too (EndpointOptions::other_schemes)"
    )]
    Scheme {
        /// Name of the card.
        card: CardName,
        /// Requested scheme.
        scheme: Scheme,
        /// Schemes of the endpoint.
        on: SchemeList,
    },
    /// The node has reported that it cannot receive the transfer.
    #[error("{card}: node {node} {mismatch}, or ask it again if it was restarted (Endpoint::wait_peer)")]
    Peer {
        /// Name of the card.
        card: CardName,
        /// Receiving node.
        node: NodeId,
        /// Difference between transfer and node.
        mismatch: Mismatch,
    },
    /// The sender refused the transfer.
    #[error("{card}: {source}")]
    Sender {
        /// Name of the card.
        card: CardName,
        /// Reason.
        source: sender::SubmitError,
    },
}
