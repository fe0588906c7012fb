//! AXI4-Stream channels: packets from host memory into the card, and from the card into host memory.
//!
//! What a card's channels are is decided when its bitstream is built ([`XdmaInfo::stream`](crate::XdmaInfo::stream)).
//!
//! | To | Call |
//! |---|---|
//! | send a packet and wait | [`H2cStream::send`] |
//! | keep several packets in flight | [`H2cStream::submit`], `submit_at`, `submit_list`, then `poll` |
//! | receive packets as they come, without copying | [`C2hStream::next_packet`], [`C2hStream::wait_packet`] |
//! | receive one packet into a buffer | [`C2hStream::receive`] |
//! | wait with other descriptors | `arm`, `events` |
//!
//! # Back-pressure
//!
//! Nothing is dropped on the way: a sender's ring fills up while the card takes nothing, and while no buffer is posted the card's
//! stream stands still. The engine of a stream that stands still *cannot be stopped*: it finishes the descriptor in flight first
//! (PG195), and stays busy until data comes, or until the card is reset. So
//!
//! * it is counted on both sides: [`SendStatistics`] of a sender that is held back, [`StreamStatistics::starved`] of a receiver that
//!   holds the card back;
//! * a wait that runs out of time leaves its packet, or its buffers, posted;
//! * a channel that is dropped while nothing arrives is tried to be stopped with the card's write flush timeout on, which closes a
//!   descriptor that has received something; what is still busy after that is wedged, and its memory is kept out of use for good;
//! * to end a stream in order, [`C2hStream::stop`] it while one more packet is to come;
//! * a packet that an error or an `abort` ended in the middle of being sent stays open in the card: what is sent next continues it.
//!   Its completion tells how much had gone ([`FaultPosition::bytes_done`](crate::FaultPosition::bytes_done)).

mod error;
mod options;
mod packet;
mod receive;

use fpga_pci::{DmaBuffer, RegisteredMemory, SharedSlice};
use fpga_registers::CardAddr;

use crate::channel::{
    ChannelEvents, Completion, CompletionFuture, Engine, MemoryHandle, ScatterGatherEntry, Ticket,
    WaitOptions, common,
};
use crate::error::{ChannelError, Refused, RegisterRefused, SubmitError, TransferFailed};
use crate::name::ChannelName;

pub use error::{ReceiveFailed, StreamError};
pub use fpga_ring::ring::PacketFault;
pub use options::C2hStreamOptions;
pub use packet::Packet;
pub use receive::{C2hStream, StreamStatistics};

/// A part of a packet that is gathered from several places: bytes of attached memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketFragment {
    /// Which memory.
    pub memory: MemoryHandle,
    /// First byte in it.
    pub offset: usize,
    /// Bytes; empty parts are skipped.
    pub length: usize,
}

/// What a stream has sent, and how the card has held it back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendStatistics {
    /// Packets that have ended, however they did.
    pub packets: u64,
    /// Packets that were refused because the ring was full of packets that the card had not taken.
    pub refused: u64,
    /// How often the card had taken nothing of what was posted for a tenth of a second (polling), or for as long as a wait
    /// sleeps: nobody at the other end of its stream takes anything.
    pub still: u64,
}

/// Host to card: every transfer is a packet.
///
/// Packets leave in the order in which they were submitted, and end in it. `cancel` takes back a packet that has not begun.
#[derive(Debug)]
pub struct H2cStream(pub(crate) Engine);

common!(H2cStream);

impl H2cStream {
    /// What was sent, and how the card has held it back.
    #[must_use]
    pub const fn statistics(&self) -> SendStatistics {
        let pressure = self.0.pressure();
        SendStatistics { packets: self.0.ended(), refused: pressure.refused, still: pressure.still }
    }

    /// Queues the whole buffer as one packet. The engine starts with the next [`poll`](Self::poll); waiting polls.
    ///
    /// # Errors
    /// [`Refused`] carries the buffer back. A full ring is back-pressure: poll, then submit again. A packet has at least one byte.
    pub fn submit(&mut self, buffer: DmaBuffer) -> Result<Ticket, Refused> {
        self.0.submit_buffer(buffer, CardAddr::ZERO)
    }

    /// Queues `length` bytes from `offset` on of attached memory as one packet: the way for small packets at high rates.
    ///
    /// Success is only counted ([`ended`](Self::ended), [`has_ended`](Self::has_ended)); a packet that fails or is cancelled makes
    /// a [`Completion`] without buffer. Nothing is allocated or locked, no register is touched.
    ///
    /// # Errors
    /// [`SubmitError`]; a full ring is back-pressure ([`SubmitError::is_full`]): poll, then submit again.
    #[inline]
    pub fn submit_at(
        &mut self,
        memory: MemoryHandle,
        offset: usize,
        length: usize,
    ) -> Result<Ticket, SubmitError> {
        self.0.submit_at(memory, offset, length, CardAddr::ZERO)
    }

    /// Queues a packet that is gathered from several parts, counted as by [`submit_at`](Self::submit_at). Parts that touch are one;
    /// the length of every part but the last must be a multiple of the data path's width
    /// ([`XdmaInfo::data_width`](crate::XdmaInfo::data_width); PG195, `invalid_length`).
    ///
    /// # Errors
    /// As `submit_at`; [`RefusalReason::PartialBeat`](fpga_ring::ring::RefusalReason::PartialBeat). Nothing is queued then.
    pub fn submit_list(&mut self, parts: &[PacketFragment]) -> Result<Ticket, SubmitError> {
        self.0.submit_list(parts.iter().map(|part| {
            let PacketFragment { memory, offset, length } = *part;
            ScatterGatherEntry { memory, offset, length, card: CardAddr::ZERO }
        }))
    }

    /// Sends the buffer's bytes as one packet and waits until the card has taken them.
    ///
    /// # Errors
    /// As [`send_with`](Self::send_with).
    pub fn send(&mut self, buffer: DmaBuffer) -> Result<DmaBuffer, TransferFailed> {
        self.0.blocking(buffer, CardAddr::ZERO, WaitOptions::default())
    }

    /// As [`send`](Self::send), waiting as `options` say.
    ///
    /// # Errors
    /// [`TransferFailed`] carries the buffer back unless the card may still reach it. A packet that is not sent in time stays in
    /// flight, and its buffer comes back by [`next_completion`](Self::next_completion).
    pub fn send_with(
        &mut self,
        buffer: DmaBuffer,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        self.0.blocking(buffer, CardAddr::ZERO, options)
    }
}
