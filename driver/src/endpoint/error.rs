//! What can go wrong with an endpoint.

use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_firmware::event::EventError;
use fpga_firmware::generated::Scheme;
use fpga_firmware::window::WindowError;
use fpga_pci::{InterruptError, MemoryError, MmioError};
use fpga_protocol::sender;
use fpga_registers::CardAddr;
use fpga_registers::cdma::Cdmasr;

use super::peers::Mismatch;
use crate::cdma::CdmaError;
use crate::error::{ChannelError, ResourceError, SubmitError, TransferError, TransferFailed};
use crate::fault::ChannelFault;
use crate::name::CardName;
use crate::range::CardRange;

/// Opening or driving an endpoint failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The card has no network interface, or was opened without it.
    #[error(
        "{card}: no network interface: the bitstream has none, or the subsystem ids of the card do not tell; if the design has one, say so (OpenOptions::network_interface)"
    )]
    NoInterface {
        /// Which card.
        card: CardName,
    },
    /// Sizes and thresholds contradict each other.
    #[error("{card}: {source}")]
    Config {
        /// Which card.
        card: CardName,
        /// What is wrong.
        source: sender::ConfigError,
    },
    /// The interface does not go by this scheme.
    #[error(
        "{card}: its network interface does not go by the scheme {scheme}, but by {known}; choose one of these, or load another build"
    )]
    Scheme {
        /// Which card.
        card: CardName,
        /// The scheme asked for.
        scheme: Scheme,
        /// Those that there are.
        known: SchemeList,
    },
    /// The interface has an op table, too: packets would be sent again by both.
    #[error(
        "{card}: its network interface keeps the op table itself ({entries} entries), and so does this driver; load a build that leaves it to the driver"
    )]
    OpTable {
        /// Which card.
        card: CardName,
        /// Entries of the interface's.
        entries: u32,
    },
    /// The interface does not go by these schemes at once.
    #[error(
        "{card}: its network interface does not go by the schemes {schemes} at once, {reason}; open the endpoint with one of them (EndpointOptions::other_schemes), or load another build"
    )]
    Schemes {
        /// Which card.
        card: CardName,
        /// Those asked for.
        schemes: SchemeList,
        /// Why not.
        reason: &'static str,
    },
    /// A scheme cannot have the parameters that were asked for.
    #[error(
        "{card}: the scheme {scheme} cannot have these parameters (EndpointOptions::tuning): a window is 1 to 128 packets, of Selective 512, samples are 1 to 256, and neither the time between two walks nor the requests before all is asked for can be 0"
    )]
    Tuning {
        /// Which card.
        card: CardName,
        /// Which scheme.
        scheme: Scheme,
    },
    /// An option of the event ring or of the chain cannot be.
    #[error("{card}: {what} is {found}: {expected}")]
    Option {
        /// Which card.
        card: CardName,
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// What is possible.
        expected: &'static str,
    },
    /// The card's transmit windows cannot hold what the contract says.
    #[error("{card}: the card reports transmit windows that cannot be ({reason}): the bitstream is damaged")]
    Windows {
        /// Which card.
        card: CardName,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// Something of the card could not be taken.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The copy engine failed.
    #[error(transparent)]
    Cdma(#[from] CdmaError),
    /// The copy engine halted while it filled a window.
    #[error(
        "{card}: the CDMA chain that fills transmit windows stopped ({status}); a transfer's source may lie outside card memory, or be misaligned for a build without data realignment (then state EndpointOptions::source_alignment): drop the endpoint and open it again"
    )]
    Chain {
        /// Which card.
        card: CardName,
        /// Its status register.
        status: Cdmasr,
    },
    /// Windows were filled but are not given back.
    #[error(
        "{card}: {outstanding} transmit windows were not sent within {waited_ms} ms; the network is blocked or the interface is stuck: drop the endpoint and open it again"
    )]
    WindowsStuck {
        /// Which card.
        card: CardName,
        /// Windows in the NI's hands.
        outstanding: u32,
        /// How long nothing came back, in milliseconds.
        waited_ms: u64,
    },
    /// The channel that carries header blocks failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The transfer of a header block, or of events that are in card memory, failed.
    #[error(
        "moving a packet header to the card, or events from it, failed: {0}; drop the endpoint and open it again, and if that does not help, check the card (`fpgactl validate`)"
    )]
    Upload(ChannelFault),
    /// A header block's transfer was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// Card memory could not be prepared.
    #[error(
        "preparing the endpoint's place in card memory: {0}; check it (EndpointOptions::chain), and open the endpoint again"
    )]
    Prepare(TransferError),
    /// A request to read could not be fetched from card memory.
    #[error("fetching a request to read from card memory: {0}; drop the endpoint and open it again")]
    Fetch(TransferError),
    /// A window header contradicts itself: an error of this package.
    #[error(
        "{card}: a header that this driver made contradicts itself: {source}; report it, and open the endpoint again"
    )]
    Header {
        /// Which card.
        card: CardName,
        /// What contradicts.
        source: WindowError,
    },
    /// An entry of the event ring makes no sense.
    #[error(
        "{card}: event {expected}: {source}; something else writes into the event ring, or the card is damaged: drop the endpoint and open it again"
    )]
    Event {
        /// Which card.
        card: CardName,
        /// Sequence number of the entry.
        expected: u32,
        /// What is wrong with it.
        source: EventError,
    },
    /// Events were lost: the ring overflowed.
    #[error(
        "{card}: events {expected} to before {found} are lost: the event ring of {entries} entries overflowed; poll more often or use a larger ring, and open the endpoint again"
    )]
    EventsLost {
        /// Which card.
        card: CardName,
        /// The event that was due.
        expected: u32,
        /// The one that was found.
        found: u32,
        /// Entries of the ring.
        entries: u32,
    },
    /// The NI reports a window as free that was not in its hands.
    #[error(
        "{card}: the interface gives back transmit window {index}, which it did not have; the card is damaged: drop the endpoint and open it again"
    )]
    WindowNotInFlight {
        /// Which card.
        card: CardName,
        /// The window.
        index: u16,
    },
    /// A region is not inside the memory that transfers may use.
    #[error("{card}: region of {} bytes at {} is empty or not inside the {} bytes at {} that transfers may use (Endpoint::usable_memory); choose a range there", range.length, range.start, usable.length, usable.start)]
    RegionRange {
        /// Which card.
        card: CardName,
        /// The region asked for.
        range: CardRange,
        /// What there is.
        usable: CardRange,
    },
    /// Every memory window of the card is in use.
    #[error("{card}: all {capacity} memory windows are open: close one first")]
    RegionsFull {
        /// Which card.
        card: CardName,
        /// How many there are.
        capacity: usize,
    },
    /// A sleep that an interrupt should end failed.
    #[error(
        "{card}: waiting for the event ring's interrupt: {source}; open the endpoint before interrupts are enabled, and it does without"
    )]
    Interrupt {
        /// Which card.
        card: CardName,
        /// What failed.
        source: InterruptError,
    },
    /// The wait's deadline has passed; the transfer goes on.
    #[error(
        "{card}: the transfer has not ended after {waited:?}; wait longer, or look at the op table for the node that does not answer"
    )]
    TimedOut {
        /// Which card.
        card: CardName,
        /// How long was waited.
        waited: Duration,
    },
    /// The wait's deadline has passed, and nothing has arrived.
    #[error(
        "{card}: nothing has arrived after {waited:?}; wait longer, or look whether a peer was given a region to send to"
    )]
    NoArrival {
        /// Which card.
        card: CardName,
        /// How long was waited.
        waited: Duration,
    },
    /// A node was asked what it can do, and has not answered.
    #[error(
        "{card}: node {node} has not said within {waited:?} what it can do; look whether its endpoint is open, whether packets get through, and whether it speaks this wire version"
    )]
    NoPeer {
        /// Which card.
        card: CardName,
        /// The node.
        node: NodeId,
        /// How long was waited.
        waited: Duration,
    },
    /// The system has gathered no randomness yet.
    #[error(
        "{card}: the system has no random numbers yet, as may be shortly after it has started; wait until it has (`head -c1 /dev/random` returns then), give the machine a source of randomness, or state an incarnation (EndpointOptions) that no earlier life of this node had"
    )]
    NoRandomSource {
        /// Which card.
        card: CardName,
    },
    /// The system does not hand out random numbers.
    #[error(
        "{card}: no random number from the system: {reason}; let the program call getrandom (a sandbox may forbid it), or state an incarnation (EndpointOptions) that no earlier life of this node had"
    )]
    Random {
        /// Which card.
        card: CardName,
        /// Why.
        reason: String,
    },
    /// Host memory could not be used.
    #[error("{card}: host memory of the endpoint: {source}; drop the endpoint and open it again")]
    Memory {
        /// Which card.
        card: CardName,
        /// What failed.
        source: MemoryError,
    },
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Which card.
        card: CardName,
        /// What failed.
        source: MmioError,
    },
}

impl From<TransferFailed> for EndpointError {
    fn from(failed: TransferFailed) -> Self {
        Self::Prepare(failed.error)
    }
}

/// Schemes by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SchemeList(
    /// Bit n: the scheme n.
    pub u32,
);

impl SchemeList {
    /// Of none.
    pub const NONE: Self = Self(0);

    /// This one, too.
    #[must_use]
    pub const fn with(self, scheme: Scheme) -> Self {
        Self(self.0 | 1 << scheme.value())
    }

    /// Whether it is one of them.
    #[must_use]
    pub const fn contains(self, scheme: Scheme) -> bool {
        self.0 >> scheme.value() & 1 != 0
    }

    /// Those of them that are known, by their numbers.
    pub fn iter(self) -> impl Iterator<Item = Scheme> {
        Scheme::ALL.iter().copied().filter(move |scheme| self.contains(*scheme))
    }

    /// Whether any of them is one by which the card makes transfers.
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

/// A transfer was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The source is not inside card memory.
    #[error("{card}: source of {length} bytes at {start} is not inside the card's memory ({} bytes at {}); choose a range there", memory.length, memory.start)]
    SourceRange {
        /// Which card.
        card: CardName,
        /// First byte.
        start: CardAddr,
        /// Bytes.
        length: u64,
        /// The memory.
        memory: CardRange,
    },
    /// The source does not begin where the copy engine can read.
    #[error(
        "{card}: source at {start} is not a multiple of {alignment} bytes, which a copy engine without data realignment needs; copy it to such an address first (Cdma::set_bounce_channels), or lay it out so"
    )]
    SourceAlignment {
        /// Which card.
        card: CardName,
        /// First byte.
        start: CardAddr,
        /// Bytes of the engine's data path.
        alignment: u32,
    },
    /// The destination is not inside the region.
    #[error(
        "{card}: {length} bytes at offset {offset} are not inside the {region} bytes that node {node} has opened; send less, or let it open more"
    )]
    TargetRange {
        /// Which card.
        card: CardName,
        /// The receiving node.
        node: NodeId,
        /// First byte in the region.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// The transfer would change its own source while it may still have to be read again.
    #[error(
        "{card}: {length} bytes from {source_start} to {destination} of the same card overlap: a resend would read what has been overwritten; use the copy engine (Cdma), or other addresses"
    )]
    Overlap {
        /// Which card.
        card: CardName,
        /// First byte of the source.
        source_start: CardAddr,
        /// First byte of the destination.
        destination: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// The endpoint was not opened with this scheme.
    #[error(
        "{card}: a transfer by the scheme {scheme}: this endpoint goes by {on}; name one of these, or open it with that one too (EndpointOptions::other_schemes)"
    )]
    Scheme {
        /// Which card.
        card: CardName,
        /// The scheme asked for.
        scheme: Scheme,
        /// Those that are on.
        on: SchemeList,
    },
    /// The node has said that it cannot take it.
    #[error("{card}: node {node} {mismatch}, or ask it again if it was restarted (Endpoint::meet)")]
    Peer {
        /// Which card.
        card: CardName,
        /// The receiving node.
        node: NodeId,
        /// What does not fit.
        mismatch: Mismatch,
    },
    /// The sender does not take it.
    #[error("{card}: {source}")]
    Sender {
        /// Which card.
        card: CardName,
        /// Why.
        source: sender::SubmitError,
    },
}
