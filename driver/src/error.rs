//! What can go wrong, one enum per operation. Every message names the card and says what to do.

use fpga_firmware::identity::ReadError;
use fpga_pci::{
    BarError, ConfigError, DmaAccess, DmaAllocError, DmaBuffer, InterruptError, MmioError, RegisteredMemory,
};
use fpga_registers::{CardAddr, Iova};
use fpga_ring::ring;

use crate::fault::ChannelFault;
use crate::name::{CardName, ChannelName};

/// Opening a card failed. Nothing is left enabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Configuration space could not be used.
    #[error("{card}: configuration space: {source}")]
    Config {
        /// Which card.
        card: String,
        /// What failed.
        source: ConfigError,
    },
    /// Nothing answers.
    #[error(
        "{card}: every register reads as all ones: the card is gone, its link is down or memory decoding is off; check the slot and the power, try `fpgactl reset --level bus`, rescan the bus, then open it again"
    )]
    Gone {
        /// Which card.
        card: String,
    },
    /// No BAR is implemented.
    #[error(
        "{card}: the function has no memory BARs; after re-programming an FPGA remove the function and rescan the bus"
    )]
    NoBars {
        /// Which card.
        card: String,
    },
    /// A BAR that is needed is not there.
    #[error(
        "{card}: there is no BAR {index} for the role of the {role} BAR; `fpgactl info` lists the BARs, give the right one"
    )]
    BarAbsent {
        /// Which card.
        card: String,
        /// What it was wanted for.
        role: &'static str,
        /// Its number.
        index: u8,
    },
    /// A role has no BAR.
    #[error(
        "{card}: the card has no {role} BAR, which {needed_for} needs; build the bitstream with it, or do without"
    )]
    RoleAbsent {
        /// Which card.
        card: String,
        /// Which BAR.
        role: &'static str,
        /// What was asked for.
        needed_for: &'static str,
    },
    /// A BAR is smaller than what has to be in it.
    #[error(
        "{card}: BAR {index} has {size:#x} bytes, but a {role} BAR needs {needed:#x}; this is another BAR or another bitstream"
    )]
    BarTooSmall {
        /// Which card.
        card: String,
        /// What it was wanted for.
        role: &'static str,
        /// Its number.
        index: u8,
        /// Its size in bytes.
        size: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// No rule names the DMA BAR.
    #[error(
        "{card}: cannot tell which BAR holds the XDMA registers without touching user logic (no MSI-X table at 0x8000, not exactly one BAR of 64 KiB among {found:x?} as (number, size)); name it (OpenOptions::dma_bar)"
    )]
    DmaBarUnclear {
        /// Which card.
        card: String,
        /// Number and size of the BARs there are.
        found: Vec<(u8, u64)>,
    },
    /// The BAR does not hold XDMA registers.
    #[error(
        "{card}: BAR {index} is no XDMA register BAR: it reads {irq:#010x} at 0x2000 and {config:#010x} at 0x3000 instead of 0x1fc2xxxx and 0x1fc3xxxx; QDMA cards use the same device ids, and the ids can be edited"
    )]
    NotXdma {
        /// Which card.
        card: String,
        /// BAR number.
        index: u8,
        /// Word at 0x2000.
        irq: u32,
        /// Word at 0x3000.
        config: u32,
    },
    /// The identity block does not belong to this software.
    #[error("{card}: {source}")]
    Identity {
        /// Which card.
        card: String,
        /// What does not fit.
        source: ReadError<MmioError>,
    },
    /// A BAR could not be opened.
    #[error("{card}: {source}")]
    Bar {
        /// Which card.
        card: String,
        /// What failed.
        source: BarError,
    },
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Which card.
        card: String,
        /// What failed.
        source: MmioError,
    },
    /// Some reads are answered with all ones.
    #[error(
        "{card}: some register reads return all ones and some do not: XDMA cores of Vivado 2018 do that at every second read in some designs; rebuild the bitstream with 2019.1 or newer. If it did not do so before, its link is failing"
    )]
    UnsteadyReads {
        /// Which card.
        card: String,
    },
    /// A channel was still busy from before and did not stop.
    #[error(
        "{card}: {channel} was running and did not become idle within {waited_ms} ms; reset the card (`fpgactl reset --level bus`), then open it again"
    )]
    NotIdle {
        /// Which card.
        card: String,
        /// Which channel.
        channel: ChannelName,
        /// How long it was given, in milliseconds.
        waited_ms: u64,
    },
}

/// Taking something of a card (a channel, the CDMA engine, memory, interrupts) failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The card has fewer channels.
    #[error("{card}: there is no channel {channel}; the card has {}", channel.others(*available))]
    NoSuchChannel {
        /// Which card.
        card: CardName,
        /// What was asked for.
        channel: ChannelName,
        /// How many there are.
        available: u8,
    },
    /// The card has no such user interrupt.
    #[error(
        "{card}: there is no user interrupt {line}; the card has {available}, numbered 0 to {}: name one of those",
        available.saturating_sub(1)
    )]
    NoSuchUserInterrupt {
        /// Which card.
        card: CardName,
        /// What was asked for.
        line: u8,
        /// How many there are.
        available: u8,
    },
    /// Somebody in this process holds it.
    #[error("{card}: {what} is in use; it has one owner at a time: drop the other handle first")]
    InUse {
        /// Which card.
        card: CardName,
        /// What.
        what: String,
    },
    /// The card was opened for a look.
    #[error(
        "{card}: the card was opened to be looked at (OpenOptions::observe): nothing of it can be taken or set up; open it without"
    )]
    Observed {
        /// Which card.
        card: CardName,
    },
    /// The card has none, or it was not looked for.
    #[error("{card}: {what} is not there: {reason}")]
    Absent {
        /// Which card.
        card: CardName,
        /// What.
        what: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// The engine still runs for an owner that could not stop it.
    #[error(
        "{card}: {channel} is still busy with what an earlier owner could not stop; reset the card (`fpgactl reset --level bus`)"
    )]
    Busy {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// The channels are AXI4-Stream: there are no card addresses.
    #[error(
        "{card}: the channels are AXI4-Stream, there are no card addresses; take them as streams (Card::h2c_stream, Card::c2h_stream; `fpgactl dma` without --addr), or use a bitstream with memory-mapped channels"
    )]
    Stream {
        /// Which card.
        card: CardName,
    },
    /// The channels are memory mapped: there are no packets.
    #[error(
        "{card}: the channels are memory mapped, not AXI4-Stream; take them by Card::h2c and Card::c2h (`fpgactl dma` with --addr), or use a bitstream with streams"
    )]
    NotStream {
        /// Which card.
        card: CardName,
    },
    /// The buffers of a C2H stream cannot be.
    #[error(
        "{card}: {buffers} stream buffers of {size} bytes: give a power of two from 2 to 65536 of them, each a multiple of 64 bytes (PG195) of at most 64 MiB"
    )]
    StreamBuffers {
        /// Which card.
        card: CardName,
        /// Buffers asked for.
        buffers: u32,
        /// Bytes of each.
        size: usize,
    },
    /// Descriptor credit mode does not take.
    #[error(
        "{card}: {channel} does not take descriptor credit mode (its bit at 0x6020 stays 0); use stop runs, the default"
    )]
    CreditModeUnsupported {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// The option cannot be used.
    #[error("{card}: {source}")]
    Ring {
        /// Which card.
        card: CardName,
        /// What is wrong with the ring's shape.
        source: ring::ConfigError,
    },
    /// No DMA memory.
    #[error("{card}: {source}")]
    Memory {
        /// Which card.
        card: CardName,
        /// What failed.
        source: DmaAllocError,
    },
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Which card.
        card: CardName,
        /// What failed.
        source: MmioError,
    },
    /// Interrupts could not be set up.
    #[error("{card}: {source}")]
    Interrupt {
        /// Which card.
        card: CardName,
        /// What failed.
        source: InterruptError,
    },
}

/// A transfer was not taken. The buffer comes back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    pub error: SubmitError,
    /// The buffer that was handed in, untouched.
    pub buffer: DmaBuffer,
}

impl Refused {
    /// Whether this is back-pressure: the ring is full, and the same submission works once something has completed.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.error.is_full()
    }
}

/// Memory was not attached. It comes back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RegisterRefused {
    /// Why.
    pub error: SubmitError,
    /// The memory that was handed in.
    pub area: RegisteredMemory,
}

/// Why a transfer was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The ring does not take it.
    #[error("{card} {channel}: {source}")]
    Ring {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// Why.
        source: ring::RefusalReason,
    },
    /// The buffer is of another card's memory.
    #[error(
        "{card} {channel}: the buffer belongs to another card, which this one cannot reach; take it from this card (Card::buffer)"
    )]
    ForeignBuffer {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// The memory is mapped so that the device may not do what the channel would.
    #[error(
        "{card} {channel}: the memory is mapped for the device as {access:?}, and this channel needs {needed:?}; map it with that access, or with Both"
    )]
    NoAccess {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// What the channel needs.
        needed: DmaAccess,
        /// What the memory is mapped with.
        access: DmaAccess,
    },
    /// It is not inside the card's memory.
    #[error(
        "{card} {channel}: {length} bytes at card address {start} are not inside the card's memory, {memory_start} to {memory_last}; choose an address there, `fpgactl info` shows it"
    )]
    CardMemory {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// First card address.
        start: CardAddr,
        /// Bytes.
        length: u64,
        /// First address of the memory.
        memory_start: CardAddr,
        /// Its last address.
        memory_last: CardAddr,
    },
    /// The handle names no memory of this channel.
    #[error(
        "{card} {channel}: no such memory is attached to this channel; attach it first, each channel has its own"
    )]
    NotRegistered {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// Not inside the attached memory.
    #[error("{card} {channel}: {length} bytes from offset {offset} are not inside the attached {size} bytes")]
    MemoryRange {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// First byte asked for.
        offset: usize,
        /// Bytes asked for.
        length: usize,
        /// Bytes there are.
        size: usize,
    },
    /// Two elements of a list have the same destination.
    #[error(
        "{card} {channel}: elements of the list overlap at their destination: {length} bytes at {second:#x} begin inside the element at {first:#x}; the result would depend on the engine's order, so give each byte one source"
    )]
    Overlap {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// Where the earlier element begins: a card address for H2C, a device address for C2H.
        first: u64,
        /// Where the later one begins.
        second: u64,
        /// Bytes of the later one.
        length: u64,
    },
    /// A fixed-address channel moves whole beats of the data path.
    #[error(
        "{card} {channel}: {length} bytes between {host} and fixed card address {start} are not whole beats: addresses and length must be multiples of {width} bytes, the width of the data path"
    )]
    Misaligned {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// Host address.
        host: Iova,
        /// Card address.
        start: CardAddr,
        /// Bytes.
        length: u64,
        /// Bytes of a beat.
        width: u64,
    },
    /// The channel cannot be used any more.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

impl SubmitError {
    /// Whether this is back-pressure: the ring is full, and the same submission works once something has completed.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Ring { source: ring::RefusalReason::Full { .. }, .. })
    }
}

/// Microseconds as people say them.
pub(crate) fn waited(us: u64) -> String {
    let span = core::time::Duration::from_micros(us);
    match us {
        0..10_000 => format!("{us} µs"),
        10_000..10_000_000 => format!("{} ms", span.as_millis()),
        _ => format!("{} s", span.as_secs()),
    }
}

/// A channel as a whole cannot go on, or a wait ended without its transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The card does not answer any more. What was posted is quarantined.
    #[error(
        "{card} {channel}: the card is gone (all registers read as ones); {quarantined} buffers that it may still reach are kept out of use: reopen the card when it is back"
    )]
    Gone {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// Buffers put aside.
        quarantined: usize,
    },
    /// The engine does not become idle. What was posted is quarantined.
    #[error(
        "{card} {channel}: the engine did not become idle within {waited_ms} ms (status {status}); {quarantined} buffers that it may still reach are kept out of use: reset the card (`fpgactl reset --level bus`)"
    )]
    Wedged {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// How long it was given, in milliseconds.
        waited_ms: u64,
        /// The status register, decoded.
        status: String,
        /// Buffers put aside.
        quarantined: usize,
    },
    /// The wait's deadline has passed. The transfer goes on: wait again, or abort.
    #[error(
        "{card} {channel}: not complete after {} (status {status}, {completed} of {posted} descriptors of the run done); wait longer, or abort the channel",
        waited(*waited_us)
    )]
    TimedOut {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// How long was waited, in microseconds.
        waited_us: u64,
        /// The status register, decoded.
        status: String,
        /// The card's completed count.
        completed: u32,
        /// Descriptors of the run.
        posted: u32,
    },
    /// The ticket's completion was handed out before, or it belongs to another channel.
    #[error("{card} {channel}: this ticket's completion has been taken, or it is another channel's")]
    UnknownTicket {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// A part of the packet is in the card already. It stays in flight.
    #[error(
        "{card} {channel}: a part of this packet has been sent; without the rest the next packet would continue it: let it end, or abort the channel"
    )]
    PacketStarted {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// The handle names no memory of this channel.
    #[error("{card} {channel}: no such memory is attached to this channel")]
    NotRegistered {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// A transfer of the memory is in flight.
    #[error(
        "{card} {channel}: a transfer of this memory is in flight; wait for it, or cancel it, before detaching"
    )]
    MemoryInUse {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// Interrupts were asked for but are not enabled.
    #[error(
        "{card} {channel}: interrupts are not enabled; call Card::enable_interrupts before taking the channel, or wait by polling"
    )]
    NoInterrupt {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
    },
    /// Waiting for the interrupt failed.
    #[error("{card} {channel}: {source}")]
    Interrupt {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// What failed.
        source: InterruptError,
    },
    /// A register access failed.
    #[error("{card} {channel}: {source}")]
    Mmio {
        /// Which card.
        card: CardName,
        /// Which channel.
        channel: ChannelName,
        /// What failed.
        source: MmioError,
    },
}

/// A blocking transfer failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct TransferFailed {
    /// Why.
    pub error: TransferError,
    /// The buffer; `None` if the card may still reach it, in which case it is in quarantine. (A stream's packet that was not sent in
    /// time stays in flight, and its buffer comes back by `next_completion`.)
    pub buffer: Option<DmaBuffer>,
}

impl TransferFailed {
    /// Why, and the buffer: for a caller that reports the one and goes on with the other.
    #[must_use]
    pub fn into_parts(self) -> (TransferError, Option<DmaBuffer>) {
        (self.error, self.buffer)
    }
}

/// Why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// It was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine reported an error in this transfer or before it.
    #[error(transparent)]
    Fault(#[from] ChannelFault),
    /// The channel cannot go on.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The completion carries no buffer.
    #[error("this transfer's memory was kept by its submitter; there is no buffer to give back")]
    NoBuffer,
}
