//! Error types, one enum per operation. Every message names the card and the remedy. The file is long because the errors of all channels
//! stand side by side, so that their wording agrees.

use fpga_firmware::identity::ReadError;
use fpga_pci::Waited;
use fpga_pci::vfio::VfioOpenError;
use fpga_pci::{BarError, ConfigError, DmaAccess, DmaAllocError, DmaBuffer, InterruptError, MmioError};
use fpga_registers::{CardAddr, Iova, quantity};
use fpga_ring::ring;
use fpga_vfio_user::VfioUserOpenError;

use crate::fault::ChannelFault;
use crate::name::{CardName, ChannelName};
use crate::silence::AllOnesCause;
use crate::spec::CardSpecError;

/// Error of opening a card. Nothing stays enabled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text names no card.
    #[error(transparent)]
    Spec(#[from] CardSpecError),
    /// The PCI function cannot be opened through VFIO.
    #[error(transparent)]
    Vfio(#[from] VfioOpenError),
    /// The vfio-user server cannot be used.
    #[error(transparent)]
    VfioUser(#[from] VfioUserOpenError),
    /// The simulated card cannot be built: its description cannot be read, or is wrong.
    #[error("{card}: {source}")]
    Simulated {
        /// Which card.
        card: String,
        /// Problem.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This program cannot simulate cards.
    #[error(
        "{card}: the program is built without simulated cards; name a PCI address or a vfio-user socket, or enable the feature `sim` of fpga-driver"
    )]
    NoSimulator {
        /// Which card.
        card: String,
    },
    /// Configuration space cannot be accessed.
    #[error("{card}: configuration space: {source}")]
    Config {
        /// Name of the card.
        card: String,
        /// Underlying error.
        source: ConfigError,
    },
    /// The card does not answer: every register reads as all ones.
    #[error(
        "{card}: every register reads as all ones: the card is gone, its link is down or memory decoding is off; check the slot and the power, try `fpgactl reset --level bus`, rescan the bus, then open it again"
    )]
    Gone {
        /// Name of the card.
        card: String,
    },
    /// No BAR is implemented.
    #[error(
        "{card}: the function has no memory BARs; after re-programming an FPGA remove the function and rescan the bus"
    )]
    NoBars {
        /// Name of the card.
        card: String,
    },
    /// A required BAR is missing.
    #[error(
        "{card}: BAR {index}, which is to be the {role} BAR, does not exist; `fpgactl info` lists the BARs, give the right one"
    )]
    BarAbsent {
        /// Name of the card.
        card: String,
        /// Role of the BAR.
        role: &'static str,
        /// BAR number.
        index: u8,
    },
    /// The card has no BAR for a role.
    #[error(
        "{card}: the card has no {role} BAR, which {needed_for} needs; build the bitstream with it, or do without"
    )]
    RoleAbsent {
        /// Name of the card.
        card: String,
        /// Role of the missing BAR.
        role: &'static str,
        /// Request that needs the BAR.
        needed_for: &'static str,
    },
    /// A BAR is smaller than its role requires.
    #[error(
        "{card}: BAR {index} has {size:#x} bytes, but a {role} BAR needs {needed:#x}; this is another BAR or another bitstream"
    )]
    BarTooSmall {
        /// Name of the card.
        card: String,
        /// Role of the BAR.
        role: &'static str,
        /// BAR number.
        index: u8,
        /// Size of the BAR in bytes.
        size: u64,
        /// Required size in bytes.
        needed: u64,
    },
    /// The DMA BAR cannot be determined; see [`BarRoles`](crate::BarRoles).
    #[error(
        "{card}: cannot tell which BAR holds the XDMA registers without touching user logic (no MSI-X table at 0x8000, not exactly one BAR of 64 KiB among {found:x?} as (number, size)); name it (OpenOptions::dma_bar)"
    )]
    DmaBarUnclear {
        /// Name of the card.
        card: String,
        /// Number and size in bytes of each BAR found.
        found: Vec<(u8, u64)>,
    },
    /// The BAR does not hold XDMA registers.
    #[error(
        "{card}: BAR {index} is no XDMA register BAR: it reads {irq:#010x} at 0x2000 and {config:#010x} at 0x3000 instead of 0x1fc2xxxx and 0x1fc3xxxx; QDMA cards use the same device ids, and the ids can be edited"
    )]
    NotXdma {
        /// Name of the card.
        card: String,
        /// BAR number.
        index: u8,
        /// Word at 0x2000.
        irq: u32,
        /// Word at 0x3000.
        config: u32,
    },
    /// The identity block reads as all ones on a card whose DMA engine answers.
    #[error("{card}: identity block of the network interface: {cause}")]
    UserLogic {
        /// Name of the card.
        card: String,
        /// Cause.
        cause: AllOnesCause,
    },
    /// The identity block does not match this software.
    #[error("{card}: {source}")]
    Identity {
        /// Name of the card.
        card: String,
        /// Mismatch or read error.
        source: ReadError<MmioError>,
    },
    /// A BAR could not be opened.
    #[error("{card}: {source}")]
    Bar {
        /// Name of the card.
        card: String,
        /// Underlying error.
        source: BarError,
    },
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Name of the card.
        card: String,
        /// Underlying error.
        source: MmioError,
    },
    /// Some register reads return all ones and some do not.
    #[error(
        "{card}: some register reads return all ones and some do not: XDMA cores of Vivado 2018 do that at every second read in some designs; rebuild the bitstream with 2019.1 or newer. If it did not do so before, its link is failing"
    )]
    UnsteadyReads {
        /// Name of the card.
        card: String,
    },
    /// A channel that was running before did not stop.
    #[error(
        "{card}: {channel} was running and did not become idle within {waited}; reset the card (`fpgactl reset --level bus`), then open it again"
    )]
    NotIdle {
        /// Name of the card.
        card: String,
        /// Name of the channel.
        channel: ChannelName,
        /// Timeout on the clock of the card.
        waited: Waited,
    },
}

/// Error of taking a resource of a card (a channel, the CDMA engine, memory, interrupts).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The channel number is too high.
    #[error("{card}: channel {channel} does not exist; the card has {}", channel.others(*available))]
    NoSuchChannel {
        /// Name of the card.
        card: CardName,
        /// Requested channel.
        channel: ChannelName,
        /// Number of channels in this direction.
        available: u8,
    },
    /// The user interrupt number is too high.
    #[error(
        "{card}: there is no user interrupt {line}; the card has {available}, numbered 0 to {}: name one of those",
        available.saturating_sub(1)
    )]
    NoSuchUserInterrupt {
        /// Name of the card.
        card: CardName,
        /// Requested line.
        line: u8,
        /// Number of user interrupts.
        available: u8,
    },
    /// Another owner in this process holds the resource.
    #[error("{card}: {what} is in use; it has one owner at a time: drop the other handle first")]
    InUse {
        /// Name of the card.
        card: CardName,
        /// Resource.
        what: String,
    },
    /// The card was opened for inspection only ([`OpenOptions::observe`](crate::OpenOptions::observe)).
    #[error(
        "{card}: the card was opened for inspection only (OpenOptions::observe): channels and interrupts cannot be used; open it without that option"
    )]
    Observed {
        /// Name of the card.
        card: CardName,
    },
    /// The card has no such resource, or the driver did not search for it.
    #[error("{card}: {what} is not there: {reason}")]
    Absent {
        /// Name of the card.
        card: CardName,
        /// Resource.
        what: &'static str,
        /// Reason and remedy.
        reason: &'static str,
    },
    /// The engine still runs for an earlier owner that could not stop it.
    #[error(
        "{card}: {channel} is still busy with what an earlier owner could not stop; reset the card (`fpgactl reset --level bus`)"
    )]
    Busy {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The channels are AXI4-Stream and have no card addresses.
    #[error(
        "{card}: the channels are AXI4-Stream, there are no card addresses; take them as streams (Card::h2c_stream, Card::c2h_stream; `fpgactl dma` without --addr), or use a bitstream with memory-mapped channels"
    )]
    Stream {
        /// Name of the card.
        card: CardName,
    },
    /// The channels are memory mapped and have no packets.
    #[error(
        "{card}: the channels are memory mapped, not AXI4-Stream; take them by Card::h2c and Card::c2h (`fpgactl dma` with --addr), or use a bitstream with streams"
    )]
    NotStream {
        /// Name of the card.
        card: CardName,
    },
    /// The buffer options of a C2H stream are invalid.
    #[error(
        "{card}: {buffers} stream buffers of {size}: give a power of two from 2 to 65536 of them, each a multiple of 64 bytes (PG195) of at most 64 MiB",
        size = quantity(*size, "byte"),
    )]
    StreamBuffers {
        /// Name of the card.
        card: CardName,
        /// Requested number of buffers.
        buffers: u32,
        /// Requested size of each buffer in bytes.
        size: usize,
    },
    /// The card does not support descriptor credit mode.
    #[error(
        "{card}: {channel} does not support descriptor credit mode (its bit at 0x6020 stays 0); use batch mode, the default"
    )]
    CreditModeUnsupported {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The ring options are invalid.
    #[error("{card}: {source}")]
    Ring {
        /// Name of the card.
        card: CardName,
        /// Reason.
        source: ring::ConfigError,
    },
    /// DMA memory cannot be allocated.
    #[error("{card}: {source}")]
    Memory {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: DmaAllocError,
    },
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: MmioError,
    },
    /// Interrupts cannot be set up.
    #[error("{card}: {source}")]
    Interrupt {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: InterruptError,
    },
}

/// Refused call. It returns the value that it took.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused<T, E = SubmitError> {
    /// Reason of the refusal.
    pub error: E,
    /// Value that the call took, unchanged: buffer, memory or channels.
    pub payload: T,
}

impl<T> Refused<T> {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.error.is_full()
    }
}

/// Reason why a transfer was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The ring refused the transfer.
    #[error("{card} {channel}: {source}")]
    Ring {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Reason.
        source: ring::RefusalReason,
    },
    /// The buffer belongs to another card.
    #[error(
        "{card} {channel}: the buffer belongs to another card, which this one cannot reach; take it from this card (Card::buffer)"
    )]
    ForeignBuffer {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The memory's DMA mapping does not permit the access that the channel needs.
    #[error(
        "{card} {channel}: the memory is mapped for the device as {access:?}, and this channel needs {needed:?}; map it with that access, or with Both"
    )]
    NoAccess {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Access that the channel needs.
        needed: DmaAccess,
        /// Access that the mapping permits.
        access: DmaAccess,
    },
    /// The range is not inside the card's memory.
    #[error(
        "{card} {channel}: the range of {length} at card address {start} is not inside the card's memory, {memory_start} to {memory_last}; choose an address there, `fpgactl info` shows it",
        length = quantity(*length, "byte"),
    )]
    CardMemory {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// First card address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// First address of the card's memory.
        memory_start: CardAddr,
        /// Last address of the card's memory.
        memory_last: CardAddr,
    },
    /// The handle does not name memory registered with this channel.
    #[error(
        "{card} {channel}: no such memory is attached to this channel; attach it first, each channel has its own"
    )]
    NotRegistered {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The range is not inside the registered memory.
    #[error(
        "{card} {channel}: the range of {length} from offset {offset} is not inside the registered {size}",
        length = quantity(*length, "byte"),
        size = quantity(*size, "byte"),
    )]
    MemoryRange {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Offset of the first requested byte.
        offset: usize,
        /// Requested length in bytes.
        length: usize,
        /// Size of the memory in bytes.
        size: usize,
    },
    /// Two entries of a scatter-gather list overlap at their destination.
    #[error(
        "{card} {channel}: elements of the list overlap at their destination: the one of {length} at {second:#x} begins inside the one at {first:#x}; the result would depend on the engine's order, so give each byte one source",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Start of the earlier entry: a card address for H2C, a device address (IOVA) for C2H.
        first: u64,
        /// Start of the later entry.
        second: u64,
        /// Length of the later entry in bytes.
        length: u64,
    },
    /// Addresses or length of a fixed-address transfer are not whole beats of the data path.
    #[error(
        "{card} {channel}: a transfer of {length} between {host} and fixed card address {start} is not a whole number of beats: addresses and length must be multiples of {width}, the width of the data path",
        length = quantity(*length, "byte"),
        width = quantity(*width, "byte"),
    )]
    Misaligned {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Host address.
        host: Iova,
        /// Card address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// Size of a beat in bytes.
        width: u64,
    },
    /// The channel has failed and cannot be used.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

impl SubmitError {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Ring { source: ring::RefusalReason::Full { .. }, .. })
    }
}

/// Error of a channel as a whole, or a wait that ended without its transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The card does not answer. Posted buffers are quarantined.
    #[error(
        "{card} {channel}: the card is gone (all registers read as ones); quarantined, because it may still reach them: {quarantined}; reopen the card when it is back",
        quarantined = quantity(*quarantined, "buffer"),
    )]
    Gone {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Number of quarantined buffers.
        quarantined: usize,
    },
    /// The engine does not become idle. Posted buffers are quarantined.
    #[error(
        "{card} {channel}: the engine did not become idle within {waited} (status {status}); quarantined, because it may still reach them: {quarantined}; reset the card (`fpgactl reset --level bus`)",
        quarantined = quantity(*quarantined, "buffer"),
    )]
    Wedged {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Timeout on the clock of the card.
        waited: Waited,
        /// Decoded status register.
        status: String,
        /// Number of quarantined buffers.
        quarantined: usize,
    },
    /// The wait's deadline has passed. The transfer stays in flight: wait again, or abort.
    #[error(
        "{card} {channel}: not complete after {waited} (status {status}, {completed} of {posted} of the run done); wait longer, or abort the channel",
        posted = quantity(*posted, "descriptor"))]
    TimedOut {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Time waited.
        waited: Waited,
        /// Decoded status register.
        status: String,
        /// Completed descriptor count of the engine.
        completed: u32,
        /// Descriptors posted in this run.
        posted: u32,
    },
    /// The wait was cancelled ([`WaitOptions::cancel`](crate::WaitOptions::cancel)). The transfer stays in flight: wait again, or abort.
    #[error("{card} {channel}: the wait was cancelled after {waited}; wait again, or abort the channel")]
    Cancelled {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Time waited.
        waited: Waited,
    },
    /// The ticket's completion was already taken, or the ticket belongs to another channel.
    #[error("{card} {channel}: this ticket's completion has been taken, or it is another channel's")]
    UnknownTicket {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// Part of the packet has already been sent to the card. The packet stays in flight.
    #[error(
        "{card} {channel}: a part of this packet has been sent; without the rest the next packet would continue it: let it end, or abort the channel"
    )]
    PacketStarted {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The handle does not name memory registered with this channel.
    #[error("{card} {channel}: no such memory is attached to this channel")]
    NotRegistered {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// A transfer of the memory is in flight.
    #[error(
        "{card} {channel}: a transfer of this memory is in flight; wait for it, or cancel it, before detaching"
    )]
    MemoryInUse {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// The wait needs interrupts, which are not enabled.
    #[error(
        "{card} {channel}: interrupts are not enabled; call Card::enable_interrupts before taking the channel, or wait by polling"
    )]
    NoInterrupt {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
    },
    /// Waiting for the interrupt failed.
    #[error("{card} {channel}: {source}")]
    Interrupt {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Underlying error.
        source: InterruptError,
    },
    /// A register access failed.
    #[error("{card} {channel}: {source}")]
    Mmio {
        /// Name of the card.
        card: CardName,
        /// Name of the channel.
        channel: ChannelName,
        /// Underlying error.
        source: MmioError,
    },
}

/// Failed blocking transfer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct TransferFailed<E = TransferError> {
    /// Reason of the failure.
    pub error: E,
    /// The buffer. `None` if the card may still reach it and cannot be stopped, so that it is in quarantine; if the packet of a stream was
    /// not sent in time (`next_completion` returns its buffer); or if a buffer for packets is still posted
    /// ([`StreamError::is_timeout`](crate::StreamError::is_timeout)).
    pub buffer: Option<DmaBuffer>,
}

impl<E> TransferFailed<E> {
    /// Splits the failure into reason and buffer, for a caller that reports the reason and reuses the buffer.
    #[must_use]
    pub fn into_parts(self) -> (E, Option<DmaBuffer>) {
        (self.error, self.buffer)
    }
}

/// Reason why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The transfer was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine reported an error in this transfer or in an earlier one.
    #[error(transparent)]
    Fault(#[from] ChannelFault),
    /// The channel has failed, or the wait has ended.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The completion carries no buffer.
    #[error("this transfer's memory was kept by its submitter; there is no buffer to return")]
    NoBuffer,
}
