//! DMA channels: host memory to card memory and back.
//!
//! A channel has one owner, who also polls it: it is `Send`, not `Sync`, takes no lock and starts no thread. Buffers move
//! in with [`H2cChannel::submit`] and come back exactly once: in the [`Completion`], in the refusal, or, where the
//! engine cannot be shown to be idle, in the card's quarantine.
//!
//! | To | Call |
//! |---|---|
//! | move one buffer and wait | [`H2cChannel::write`], [`C2hChannel::read`] |
//! | keep several in flight | `submit` ..., then `poll` and `next_completion` |
//! | many small transfers from memory that stays | `attach`, then `submit_at` ..., `poll`, `ended` |
//! | scattered memory as one transfer | `submit_list` |
//! | wait for one of them | `wait`, `wait_ended` |
//! | await one of them | `completion` (a `Future`) |
//! | wait for several channels, or with other descriptors | `arm`, `events` (a file descriptor) |
//! | give up | `cancel` (one transfer), `abort` (the channel), [`Card::recover`](crate::Card::recover) (the card) |

mod engine;
mod future;
mod options;
mod post;
mod recover;
mod registered;
mod wait;

use fpga_pci::{DmaBuffer, RegisteredMemory, SharedSlice};
use fpga_registers::CardAddr;

use crate::error::{ChannelError, Refused, RegisterRefused, SubmitError, TransferError, TransferFailed};
use crate::fault::ChannelFault;
use crate::name::ChannelName;

pub(crate) use engine::{Engine, Payload, Side};
pub use future::CompletionFuture;
pub use options::{ChannelOptions, RunMode, WaitMode, WaitOptions};
pub use registered::{MemoryHandle, ScatterGatherEntry};
pub use wait::ChannelEvents;

/// Names a submitted transfer of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// A transfer that has ended.
#[derive(Debug)]
pub struct Completion {
    /// What `submit` returned.
    pub ticket: Ticket,
    /// Bytes moved, or why not. (Boxed: completions are moved around at high rates, faults are not.)
    pub outcome: Result<u64, Box<ChannelFault>>,
    /// The buffer. `None` if the card may still reach it: it is in quarantine then.
    pub buffer: Option<DmaBuffer>,
}

impl Completion {
    /// The buffer of a transfer that went well.
    ///
    /// # Errors
    /// [`TransferFailed`] with the fault, and with the buffer unless it is in quarantine.
    pub fn into_buffer(self) -> Result<DmaBuffer, TransferFailed> {
        match (self.outcome, self.buffer) {
            (Ok(_), Some(buffer)) => Ok(buffer),
            (Err(fault), buffer) => Err(TransferFailed { error: TransferError::Fault(*fault), buffer }),
            // Transfers of memory that its submitter kept stay inside this package.
            (Ok(_), None) => Err(TransferFailed { error: TransferError::NoBuffer, buffer: None }),
        }
    }
}

/// What channels of every kind have.
macro_rules! common {
    ($name:ident) => {
        impl $name {
            /// Direction and number.
            #[must_use]
            pub fn name(&self) -> ChannelName {
                self.0.name()
            }

            /// Attaches memory to the channel: [`submit_at`](Self::submit_at) transfers parts of it. It stays the channel's until it is
            /// [detached](Self::deregister_memory) or the channel is dropped, and goes into quarantine where the engine cannot be shown to have
            /// stopped.
            ///
            /// # Errors
            /// [`RegisterRefused`] carries it back: it is another card's, or the channel cannot be used any more.
            pub fn register_memory(
                &mut self,
                area: RegisteredMemory,
            ) -> Result<MemoryHandle, RegisterRefused> {
                self.0.register_memory(area)
            }

            /// The bytes of attached memory; `None` if it is not attached.
            #[must_use]
            pub fn memory(&self, memory: MemoryHandle) -> Option<SharedSlice<'_>> {
                self.0.registered(memory)
            }

            /// Gives attached memory back.
            ///
            /// # Errors
            /// [`ChannelError::MemoryInUse`] while a transfer of it is in flight, [`ChannelError::NotRegistered`].
            pub fn deregister_memory(
                &mut self,
                memory: MemoryHandle,
            ) -> Result<RegisteredMemory, ChannelError> {
                self.0.deregister_memory(memory)
            }

            /// Starts what is queued and takes up what is done. Returns how many transfers ended.
            ///
            /// In the good case this reads one word of host memory; registers are written only to start a run, or to release a
            /// batch.
            ///
            /// # Errors
            /// [`ChannelError`] if the channel as a whole cannot go on. A transfer's own failure is in its
            /// [`Completion`].
            #[inline]
            pub fn poll(&mut self) -> Result<usize, ChannelError> {
                self.0.poll()
            }

            /// The oldest transfer that has ended and was not handed out.
            #[must_use]
            pub fn next_completion(&mut self) -> Option<Completion> {
                self.0.next_completion()
            }

            /// Transfers submitted and not ended.
            #[must_use]
            pub fn in_flight(&self) -> u32 {
                self.0.in_flight()
            }

            /// Transfers that have ended since the channel was taken. They end in the order in which they were submitted.
            #[must_use]
            #[inline]
            pub const fn ended(&self) -> u64 {
                self.0.ended()
            }

            /// Whether `ticket`'s transfer had ended when the channel was polled last.
            #[must_use]
            #[inline]
            pub const fn has_ended(&self, ticket: Ticket) -> bool {
                self.0.has_ended(ticket)
            }

            /// Waits until `ticket`'s transfer, and so every one before it, has ended. Completions stay to be taken by
            /// [`next_completion`](Self::next_completion): there is one for every transfer with a buffer, and for every failure.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn wait_ended(&mut self, ticket: Ticket, options: WaitOptions) -> Result<(), ChannelError> {
                self.0.wait_ended(ticket, options)
            }

            /// Waits until `ticket`'s transfer has ended, and takes its completion. (Transfers of attached memory make none; see
            /// [`wait_ended`](Self::wait_ended).)
            ///
            /// # Errors
            /// [`ChannelError::TimedOut`] leaves the transfer in flight: wait again or [`abort`](Self::abort).
            pub fn wait(&mut self, ticket: Ticket, options: WaitOptions) -> Result<Completion, ChannelError> {
                self.0.wait(ticket, options)
            }

            /// `ticket`'s completion as a future. It polls the channel whenever it is polled and asks to be polled again, so any
            /// executor will do. Dropping it leaves the transfer in flight; its buffer comes back by
            /// [`next_completion`](Self::next_completion).
            pub fn completion(&mut self, ticket: Ticket) -> CompletionFuture<'_> {
                CompletionFuture::new(&mut self.0, ticket)
            }

            /// To be called in a loop that polls: a spin-loop hint on hardware; lets a card inside this thread take a step.
            pub fn relax(&self) {
                self.0.relax();
            }

            /// Takes one transfer back, wherever it is: queued, or posted (the engine is stopped between two descriptors, and the
            /// others are queued again). It ends in its turn, as aborted. False: it had ended already.
            ///
            /// # Errors
            /// [`ChannelError::UnknownTicket`]; [`ChannelError::Wedged`] if the engine does not become idle.
            pub fn cancel(&mut self, ticket: Ticket) -> Result<bool, ChannelError> {
                self.0.cancel(ticket)
            }

            /// The channel's interrupt as a file descriptor.
            ///
            /// # Errors
            /// [`ChannelError::NoInterrupt`] if interrupts were not enabled when the channel was taken.
            pub fn events(&self) -> Result<ChannelEvents, ChannelError> {
                self.0.events()
            }

            /// Lets the engine send interrupts, until [`disarm`](Self::disarm) or the end of a wait. To be called again after each
            /// one; see [`ChannelEvents`].
            ///
            /// # Errors
            /// [`ChannelError::NoInterrupt`].
            pub fn arm(&mut self) -> Result<(), ChannelError> {
                self.0.arm()
            }

            /// Stops interrupts.
            ///
            /// # Errors
            /// [`ChannelError::Mmio`].
            pub fn disarm(&mut self) -> Result<(), ChannelError> {
                self.0.disarm()
            }

            /// Stops the engine, waits until it is idle and ends everything in flight as aborted. The channel can be used again.
            ///
            /// # Errors
            /// [`ChannelError::Wedged`] if the engine does not become idle: what it may still reach is quarantined.
            pub fn abort(&mut self) -> Result<usize, ChannelError> {
                self.0.abort()
            }
        }
    };
}
pub(crate) use common;

macro_rules! channel {
    (
        $(#[$doc:meta])* $name:ident,
        $blocking:ident, $(#[$blocking_doc:meta])*
        $with:ident, $(#[$with_doc:meta])*
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub(crate) Engine);

        common!($name);

        impl $name {
            /// Checks that `length` bytes at `card` lie in the card's memory, for a caller that moves them in several transfers: none of
            /// them is made if the last one could not be. Where the size of the memory is not known
            /// ([`CardInfo::ni`](crate::CardInfo::ni) is `None`, no [`OpenOptions::card_memory`](crate::OpenOptions::card_memory)), only the end of the address space is a limit, and a transfer beyond the
            /// memory fails when the card reports it.
            ///
            /// # Errors
            /// [`SubmitError::CardMemory`]; [`SubmitError::Ring`] for a range that ends beyond the address space;
            /// [`SubmitError::Misaligned`] on a channel with a fixed address.
            pub fn check_range(&self, card: CardAddr, length: u64) -> Result<(), SubmitError> {
                self.0.check_range(card, length)
            }

            /// Queues a transfer of the whole buffer. The engine starts with the next [`poll`](Self::poll), so that
            /// transfers queued together run together; waiting polls.
            ///
            /// # Errors
            /// [`Refused`] carries the buffer back. A full ring is back-pressure: poll, then submit again.
            pub fn submit(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<Ticket, Refused> {
                self.0.submit_buffer(buffer, card)
            }

            /// Queues a transfer of `length` bytes from `offset` on of attached memory: the way for small transfers at high rates.
            ///
            /// Success is only counted ([`ended`](Self::ended), [`has_ended`](Self::has_ended)); a transfer that fails or is
            /// cancelled makes a [`Completion`] without buffer. Nothing is allocated or locked, no register is touched.
            ///
            /// # Errors
            /// [`SubmitError`]; a full ring is back-pressure ([`SubmitError::is_full`]): poll, then submit again.
            #[inline]
            pub fn submit_at(
                &mut self,
                memory: MemoryHandle,
                offset: usize,
                length: usize,
                card: CardAddr,
            ) -> Result<Ticket, SubmitError> {
                self.0.submit_at(memory, offset, length, card)
            }

            /// Queues a scatter-gather list as one transfer, counted as by [`submit_at`](Self::submit_at). Empty pieces are
            /// skipped; neighbours that touch on both sides share a descriptor.
            ///
            /// # Errors
            /// As `submit_at`; [`SubmitError::Overlap`] if two pieces have the same destination. Nothing is queued then.
            pub fn submit_list(&mut self, pieces: &[ScatterGatherEntry]) -> Result<Ticket, SubmitError> {
                self.0.submit_list(pieces.iter().copied())
            }

            $(#[$blocking_doc])*
            ///
            /// # Errors
            /// [`TransferFailed`] carries the buffer back unless the card may still reach it.
            pub fn $blocking(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<DmaBuffer, TransferFailed> {
                self.0.blocking(buffer, card, WaitOptions::default())
            }

            $(#[$with_doc])*
            ///
            /// # Errors
            /// [`TransferFailed`] carries the buffer back unless the card may still reach it. When the time is up the transfer is
            /// cancelled.
            pub fn $with(
                &mut self,
                buffer: DmaBuffer,
                card: CardAddr,
                options: WaitOptions,
            ) -> Result<DmaBuffer, TransferFailed> {
                self.0.blocking(buffer, card, options)
            }
        }
    };
}

channel! {
    /// Host to card.
    H2cChannel, write,
    /// Writes the buffer's bytes to card memory at `card` and waits until they are there.
    write_with,
    /// As [`write`](Self::write), waiting as `options` say.
}

channel! {
    /// Card to host.
    C2hChannel, read,
    /// Fills the buffer with the bytes of card memory at `card`.
    read_with,
    /// As [`read`](Self::read), waiting as `options` say.
}
