//! AXI4-Stream channels: packets from host memory to the card and from the card to host memory.
//!
//! The bitstream determines whether a card's channels are streams ([`XdmaInfo::stream`](crate::XdmaInfo::stream)).
//!
//! | To | Call |
//! |---|---|
//! | send a packet and wait | [`H2cStream::send`] |
//! | send a packet in parts | [`H2cStream::submit_part_at`], then `submit_at` for the last one |
//! | keep several packets in flight | [`H2cStream::submit`], `submit_at`, `submit_list`, then `poll` |
//! | receive packets as they arrive, without copying | [`C2hStream::next_packet`], [`C2hStream::wait_packet`] |
//! | receive one packet into a buffer | [`C2hStream::receive`] |
//! | receive bytes of a stream without packet ends | [`C2hStream::receive_part`] |
//! | keep several such buffers posted | [`C2hStream::post_part`], [`C2hStream::next_part`] |
//! | wait together with other descriptors | `arm`, `events` |
//!
//! # Back-pressure
//!
//! Nothing is dropped. A sender's ring fills up while the card takes nothing, and the card's stream stalls while no buffer is posted. The
//! engine of a stalled stream *cannot be stopped*: it first finishes its current descriptor (PG195), and stays busy until data arrives or
//! the card is reset. Consequences:
//!
//! * Both sides count it: [`SendStatistics`] for a sender that the card holds back, [`StreamStatistics::starved`] for a receiver that holds
//!   the card back.
//! * A wait that times out leaves its packet, or its buffers, posted.
//! * A channel that is dropped while no data arrives is stopped with the card's write flush timeout enabled, which closes a descriptor that
//!   has received data. An engine that is still busy after that is wedged, and its memory is quarantined.
//! * To end a stream in order, call [`C2hStream::stop`] while one more packet is still to come.
//! * A C2H channel that is dropped inside a packet keeps a mark of it in its registers. Its next owner, in this process or another one,
//!   discards the rest of that packet ([`StreamStatistics::discarded_bytes`]), so that its first packet is a whole one.
//! * A packet whose sending is interrupted by an error or an `abort` stays open in the card: the next packet continues it. Its completion
//!   has the number of bytes already sent ([`FaultPosition::bytes_done`](crate::errors::FaultPosition::bytes_done)).

mod error;
mod options;
mod packet;
mod parts;
mod posted;
mod receive;

use fpga_pci::{DmaBuffer, RegisteredMemory, SharedSlice};
use fpga_registers::CardAddr;

use crate::channel::{
    ChannelEvents, Completion, CompletionFuture, Engine, MemoryHandle, ScatterGatherEntry, Ticket,
    WaitOptions, common,
};
use crate::error::{At as _, ChannelError, Error, Refused, SubmitError, TransferFailed};
use crate::name::ChannelName;

pub use error::StreamError;
pub use fpga_ring::ring::PacketFault;
pub use options::C2hStreamOptions;
pub use packet::Packet;
pub use receive::{C2hStream, StreamPart, StreamStatistics};

/// Fragment of a packet that is gathered from several parts of registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketFragment {
    /// Handle of the memory.
    pub memory: MemoryHandle,
    /// Offset of the first byte in the memory.
    pub offset: usize,
    /// Length in bytes; empty fragments are skipped.
    pub length: usize,
}

/// Counters of a sending stream and of back-pressure by the card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendStatistics {
    /// Number of packets that have ended, successfully or not.
    pub packets: u64,
    /// Number of packets refused because the ring was full of packets that the card had not taken.
    pub refused: u64,
    /// Number of times that the card took nothing of the posted packets for a tenth of a second (polling), or for the maximum sleep of a
    /// wait: the receiver of its stream takes no data.
    pub still: u64,
}

/// Stream channel from host to card (H2C). Every transfer is a packet.
///
/// Packets are sent, and end, in submission order. `cancel` withdraws a packet whose sending has not begun.
#[derive(Debug)]
pub struct H2cStream(pub(crate) Engine);

common!(H2cStream);

impl H2cStream {
    /// Returns the counters of the stream.
    #[must_use]
    pub const fn statistics(&self) -> SendStatistics {
        let pressure = self.0.pressure();
        SendStatistics { packets: self.0.ended(), refused: pressure.refused, still: pressure.still }
    }

    /// Queues the whole buffer as one packet. The engine starts with the next [`poll`](Self::poll). Waits poll as well.
    ///
    /// # Errors
    /// [`Refused`] returns the buffer. A full ring is back-pressure: poll, then submit again. A packet has at least one byte.
    pub fn submit(&mut self, buffer: DmaBuffer) -> Result<Ticket, Refused<DmaBuffer>> {
        self.0.submit_buffer(buffer, CardAddr::ZERO).map_err(|refused| refused.at(|| self.0.place()))
    }

    /// Queues `length` bytes of registered memory, starting at `offset`, as one packet: for small packets at high rates.
    ///
    /// A success is only counted ([`ended`](Self::ended), [`has_ended`](Self::has_ended)). A packet that fails or is cancelled has a
    /// [`Completion`] without buffer. The call allocates nothing, takes no lock and accesses no register.
    ///
    /// # Errors
    /// [`SubmitError`]; a full ring is back-pressure ([`SubmitError::is_full`]): poll, then submit again.
    #[inline]
    pub fn submit_at(
        &mut self,
        memory: MemoryHandle,
        offset: usize,
        length: usize,
    ) -> Result<Ticket, Error<SubmitError>> {
        self.0.submit_at(memory, offset, length, CardAddr::ZERO).at(|| self.0.place())
    }

    /// Queues a packet that is gathered from several fragments, counted as by [`submit_at`](Self::submit_at). Adjacent fragments are
    /// merged. The length of every fragment except the last must be a multiple of the data path's width
    /// ([`XdmaInfo::data_width`](crate::XdmaInfo::data_width); PG195, `invalid_length`).
    ///
    /// # Errors
    /// As `submit_at`; [`RefusalReason::PartialBeat`](fpga_ring::ring::RefusalReason::PartialBeat). Nothing is queued then.
    pub fn submit_list(&mut self, parts: &[PacketFragment]) -> Result<Ticket, Error<SubmitError>> {
        let parts = parts.iter().map(|part| {
            let PacketFragment { memory, offset, length } = *part;
            ScatterGatherEntry { memory, offset, length, card: CardAddr::ZERO }
        });
        self.0.submit_list(parts).at(|| self.0.place())
    }

    /// Queues `length` bytes of registered memory, starting at `offset`, after which their packet continues: for packets that are longer
    /// than a buffer, or that have no end. The next submission continues the packet, and [`submit_at`](Self::submit_at) ends it.
    ///
    /// # Errors
    /// As `submit_at`; [`RefusalReason::PartialBeat`](fpga_ring::ring::RefusalReason::PartialBeat): only a part that ends its packet may
    /// have another length than a multiple of the data path's width.
    pub fn submit_part_at(
        &mut self,
        memory: MemoryHandle,
        offset: usize,
        length: usize,
    ) -> Result<Ticket, Error<SubmitError>> {
        self.0.submit_packet_part(memory, offset, length).at(|| self.0.place())
    }

    /// Sends the buffer's bytes as one packet and waits until the card has taken them.
    ///
    /// # Errors
    /// As [`send_with`](Self::send_with).
    pub fn send(&mut self, buffer: DmaBuffer) -> Result<DmaBuffer, TransferFailed> {
        self.0.blocking(buffer, CardAddr::ZERO, WaitOptions::default())
    }

    /// As [`send`](Self::send), with wait options.
    ///
    /// # Errors
    /// [`TransferFailed`] returns the buffer unless the card may still reach it. A packet that is not sent in time stays in flight, and
    /// [`next_completion`](Self::next_completion) returns its buffer.
    pub fn send_with(
        &mut self,
        buffer: DmaBuffer,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        self.0.blocking(buffer, CardAddr::ZERO, options)
    }
}
