//! DMA channels between host memory and card memory.
//!
//! A channel has one owner, which also polls it: it is `Send`, not `Sync`, takes no lock and starts no thread. Buffers move in with
//! [`H2cChannel::submit`] and come back exactly once: in the [`Completion`], in the refusal, or, if the engine cannot be confirmed idle,
//! they stay in the card's quarantine.
//!
//! | To | Call |
//! |---|---|
//! | move one buffer and wait | [`H2cChannel::write`], [`C2hChannel::read`] |
//! | keep several in flight | `submit` ..., then `poll` and `next_completion` |
//! | do many small transfers from registered memory | `register_memory`, then `submit_at` ..., `poll`, `ended` |
//! | transfer scattered memory as one transfer | `submit_list` |
//! | wait for one transfer | `wait`, `wait_ended` |
//! | await one transfer | `completion` (a `Future`) |
//! | wait for several channels, or together with other descriptors | `arm`, `events` (a file descriptor) |
//! | stop early | `cancel` (one transfer), `abort` (the channel), [`Card::recover`](crate::Card::recover) (the card) |

mod direction;
mod engine;
mod future;
mod line;
mod memory;
mod options;
mod post;
mod recover;
mod registered;
mod wait;

use core::marker::PhantomData;

use fpga_pci::{DmaBuffer, RegisteredMemory, SharedSlice};
use fpga_registers::CardAddr;

use crate::error::{
    At as _, ChannelError, Error, ErrorPlace, Refused, SubmitError, TransferError, TransferFailed,
};
use crate::fault::ChannelFault;
use crate::name::ChannelName;

pub use direction::{AnyDirection, C2h, FromCard, H2c, ToCard};
pub(crate) use engine::{Engine, Side};
pub(crate) use future::CompletionFuture;
pub use memory::{MemoryHandle, ScatterGatherEntry};
pub use options::{Cancellation, ChannelOptions, RunMode, WaitMode, WaitOptions};
pub use wait::ChannelEvents;

/// Identifier of a submitted transfer of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Returns the number of the transfer: 0 for the first of a channel. For bindings to other languages.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Creates the ticket of a number that [`number`](Self::number) returned.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Completion of a transfer.
#[derive(Debug)]
pub struct Completion {
    /// Ticket that `submit` returned.
    pub ticket: Ticket,
    /// Bytes moved, or the fault. (Boxed: completions are moved at high rates, faults are not.)
    pub outcome: Result<u64, Box<Error<ChannelFault>>>,
    /// Buffer of the transfer. `None` if the card may still reach it: it is in quarantine then.
    pub buffer: Option<DmaBuffer>,
}

impl Completion {
    /// Returns the buffer of a successful transfer.
    ///
    /// # Errors
    /// [`TransferFailed`] with the fault, and with the buffer unless the buffer is in quarantine.
    pub fn into_buffer(self) -> Result<DmaBuffer, TransferFailed> {
        match (self.outcome, self.buffer) {
            (Ok(_), Some(buffer)) => Ok(buffer),
            (Err(fault), buffer) => Err(TransferFailed { error: (*fault).widen(), buffer }),
            // Transfers of memory that the submitter keeps are handled inside this package.
            (Ok(_), None) => {
                let error = Error::new(TransferError::NoBuffer, ErrorPlace::unnamed());
                Err(TransferFailed { error, buffer: None })
            }
        }
    }
}

/// Methods that all kinds of channels share.
macro_rules! common {
    ($($implementation:tt)*) => {
        impl $($implementation)* {
            /// Returns direction and number of the channel.
            #[must_use]
            pub fn name(&self) -> ChannelName {
                self.0.name()
            }

            /// Registers memory with the channel, so that [`submit_at`](Self::submit_at) can transfer parts of it. The channel owns it
            /// until it is [deregistered](Self::deregister_memory) or the channel is dropped. The memory is quarantined if the engine
            /// cannot be confirmed idle.
            ///
            /// # Errors
            /// [`Refused`] returns the memory: it belongs to another card, or the channel has failed.
            pub fn register_memory(
                &mut self,
                area: RegisteredMemory,
            ) -> Result<MemoryHandle, Refused<RegisteredMemory>> {
                self.0.register_memory(area).map_err(|refused| refused.at(|| self.0.place()))
            }

            /// Returns the bytes of registered memory; `None` if it is not registered with this channel.
            #[must_use]
            pub fn memory(&self, memory: MemoryHandle) -> Option<SharedSlice<'_>> {
                self.0.registered(memory)
            }

            /// Deregisters memory and returns it.
            ///
            /// # Errors
            /// [`ChannelError::MemoryInUse`] while a transfer of it is in flight, [`ChannelError::NotRegistered`].
            pub fn deregister_memory(
                &mut self,
                memory: MemoryHandle,
            ) -> Result<RegisteredMemory, Error<ChannelError>> {
                self.0.deregister_memory(memory).at(|| self.0.place())
            }

            /// Starts queued transfers and collects completed ones. Returns the number of transfers that ended.
            ///
            /// Normally reads one word of host memory. Registers are written only to start a run or to release a batch.
            ///
            /// # Errors
            /// [`ChannelError`] if the channel as a whole has failed. The failure of a single transfer is in its [`Completion`].
            #[inline]
            pub fn poll(&mut self) -> Result<usize, Error<ChannelError>> {
                self.0.poll().at(|| self.0.place())
            }

            /// Notes that the program has slept since the last poll: the next poll that finds nothing reads the clock, and the status
            /// register if nothing has ended for long. For loops whose polls are rare; without it, they detect a removed card late.
            pub fn note_sleep(&mut self) {
                self.0.force_stall_check();
            }

            /// Returns the oldest completion that was not taken yet.
            #[must_use]
            #[inline]
            pub fn next_completion(&mut self) -> Option<Completion> {
                self.0.next_completion()
            }

            /// Returns the number of transfers that were submitted and have not ended.
            #[must_use]
            pub fn in_flight(&self) -> u32 {
                self.0.in_flight()
            }

            /// Returns the number of transfers that have ended since the channel was taken. Transfers end in submission order.
            #[must_use]
            #[inline]
            pub const fn ended(&self) -> u64 {
                self.0.ended()
            }

            /// Returns whether `ticket`'s transfer had ended at the last poll of the channel.
            #[must_use]
            #[inline]
            pub const fn has_ended(&self, ticket: Ticket) -> bool {
                self.0.has_ended(ticket)
            }

            /// Waits until `ticket`'s transfer, and so every earlier one, has ended. Completions remain available by
            /// [`next_completion`](Self::next_completion): one for every transfer with a buffer, and one for every failure.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn wait_ended(
                &mut self,
                ticket: Ticket,
                options: WaitOptions,
            ) -> Result<(), Error<ChannelError>> {
                self.0.wait_ended(ticket, options).at(|| self.0.place())
            }

            /// As [`wait_ended`](Self::wait_ended), until `pause` returns true: then it returns the time waited so far, and the transfer is
            /// in flight. `pause` is called after each poll that has not ended the wait, so it has to be quick. For programs whose threads
            /// share a channel: a thread that waits lets others have it. Returns `None` if the transfer has ended.
            ///
            /// # Errors
            /// As [`wait`](Self::wait).
            pub fn wait_ended_unless(
                &mut self,
                ticket: Ticket,
                options: WaitOptions,
                pause: &mut dyn FnMut() -> bool,
            ) -> Result<Option<fpga_pci::Waited>, Error<ChannelError>> {
                self.0.wait_ended_unless(ticket, options, pause).at(|| self.0.place())
            }

            /// Waits until `ticket`'s transfer has ended, and takes its completion. Successful transfers of registered memory have no
            /// completion; use [`wait_ended`](Self::wait_ended) for them.
            ///
            /// # Errors
            /// [`ChannelError::TimedOut`] leaves the transfer in flight: wait again, or [`abort`](Self::abort).
            pub fn wait(
                &mut self,
                ticket: Ticket,
                options: WaitOptions,
            ) -> Result<Completion, Error<ChannelError>> {
                self.0.wait(ticket, options).at(|| self.0.place())
            }

            /// Returns `ticket`'s completion as a future. It polls the channel whenever it is polled, and requests another poll, so any
            /// executor works. Dropping it leaves the transfer in flight; [`next_completion`](Self::next_completion) returns the buffer
            /// then.
            pub fn completion(
                &mut self,
                ticket: Ticket,
            ) -> impl Future<Output = Result<Completion, Error<ChannelError>>> + '_ {
                CompletionFuture::new(&mut self.0, ticket)
            }

            /// Relaxes in a polling loop: a spin-loop hint on hardware; lets a simulated card in this thread take a step.
            pub fn relax(&self) {
                self.0.relax();
            }

            /// Cancels one transfer, whether queued or posted. For a posted one, the engine is stopped between two descriptors, and the
            /// other transfers are queued again. The transfer ends in order, as aborted. Returns false if it had already ended.
            ///
            /// # Errors
            /// [`ChannelError::UnknownTicket`]; [`ChannelError::Wedged`] if the engine does not become idle.
            pub fn cancel(&mut self, ticket: Ticket) -> Result<bool, Error<ChannelError>> {
                self.0.cancel(ticket).at(|| self.0.place())
            }

            /// As [`cancel`](Self::cancel), without waiting for the engine: `None` while it finishes its current descriptor; call it again
            /// until it returns a value. Meanwhile polls start no transfer. `limit`: time for the engine to stop, since the first call.
            /// A packet of a stream is withdrawn only if the engine does not have it yet.
            ///
            /// # Errors
            /// As [`cancel`](Self::cancel); [`ChannelError::PacketStarted`] on a stream.
            pub fn try_cancel(
                &mut self,
                ticket: Ticket,
                limit: core::time::Duration,
            ) -> Result<Option<bool>, Error<ChannelError>> {
                self.0.try_cancel(ticket, limit).at(|| self.0.place())
            }

            /// As [`abort`](Self::abort), without waiting for the engine: `None` while it finishes its current descriptor; call it again
            /// until it returns a value. `limit` is as for [`try_cancel`](Self::try_cancel). A stream's engine is waited for.
            ///
            /// # Errors
            /// As [`abort`](Self::abort).
            pub fn try_abort(
                &mut self,
                limit: core::time::Duration,
            ) -> Result<Option<usize>, Error<ChannelError>> {
                self.0.try_abort(limit).at(|| self.0.place())
            }

            /// Returns whether the engine was told to stop, by [`try_cancel`](Self::try_cancel), [`try_abort`](Self::try_abort) or a blocking
            /// call that was cancelled, and is not known to be idle yet. After such a call, polls see when it is; the next copy
            /// ([`bulk`](crate::bulk)), [`abort`](Self::abort) and dropping the channel wait for it.
            #[must_use]
            pub fn is_stopping(&self) -> bool {
                self.0.is_stopping()
            }

            /// Returns the channel's interrupt as a file descriptor.
            ///
            /// # Errors
            /// [`ChannelError::NoInterrupt`] if interrupts were not enabled when the channel was taken.
            pub fn events(&self) -> Result<ChannelEvents, Error<ChannelError>> {
                self.0.events().at(|| self.0.place())
            }

            /// Enables interrupts of the engine until [`disarm`](Self::disarm) or the end of a wait. Call it again after each interrupt;
            /// see [`ChannelEvents`].
            ///
            /// # Errors
            /// [`ChannelError::NoInterrupt`].
            pub fn arm(&mut self) -> Result<(), Error<ChannelError>> {
                self.0.arm().at(|| self.0.place())
            }

            /// Disables interrupts of the engine.
            ///
            /// # Errors
            /// [`ChannelError::Cause`].
            pub fn disarm(&mut self) -> Result<(), Error<ChannelError>> {
                self.0.disarm().at(|| self.0.place())
            }

            /// Stops the engine, waits until it is idle, and ends everything in flight as aborted. The channel can be used again. Returns
            /// the number of transfers that ended.
            ///
            /// # Errors
            /// [`ChannelError::Wedged`] if the engine does not become idle: memory that it may still reach is quarantined.
            pub fn abort(&mut self) -> Result<usize, Error<ChannelError>> {
                self.0.abort().at(|| self.0.place())
            }
        }
    };
}
pub(crate) use common;

/// Channel between host memory and card memory.
///
/// [`H2cChannel`] and [`C2hChannel`] are the types of one direction. Programs that handle both alike take channels by
/// [`Card::channel`](crate::Card::channel), or [convert](Self::into_any) them.
#[derive(Debug)]
pub struct Channel<D = AnyDirection>(pub(crate) Engine, PhantomData<fn() -> D>);

/// Channel from host to card (H2C).
pub type H2cChannel = Channel<H2c>;
/// Channel from card to host (C2H).
pub type C2hChannel = Channel<C2h>;

common!(<D> Channel<D>);

impl<D> Channel<D> {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self(engine, PhantomData)
    }

    /// Returns the channel as one of any direction.
    #[must_use]
    pub fn into_any(self) -> Channel {
        Channel::new(self.0)
    }

    /// Checks that `length` bytes at `card` lie in the card's memory. For callers that move them in several transfers: no transfer
    /// is started if the last one would be refused. If the size of the memory is not known ([`CardInfo::ni`](crate::CardInfo::ni)
    /// is `None` and [`OpenOptions::card_memory`](crate::OpenOptions::card_memory) is not set), only the end of the address space
    /// is a limit, and a transfer beyond the memory fails when the card reports it.
    ///
    /// # Errors
    /// [`SubmitError::CardMemory`]; [`SubmitError::Cause`] for a range that ends beyond the address space;
    /// [`SubmitError::Misaligned`] on a channel with a fixed address.
    pub fn check_range(&self, card: CardAddr, length: u64) -> Result<(), Error<SubmitError>> {
        self.0.check_range(card, length).at(|| self.0.place())
    }

    /// Queues a transfer of the whole buffer. The engine starts with the next [`poll`](Self::poll), so that transfers queued
    /// together run together. Waits poll as well.
    ///
    /// # Errors
    /// [`Refused`] returns the buffer. A full ring is back-pressure: poll, then submit again.
    pub fn submit(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<Ticket, Refused<DmaBuffer>> {
        self.0.submit_buffer(buffer, card).map_err(|refused| refused.at(|| self.0.place()))
    }

    /// Queues a transfer of `length` bytes of registered memory, starting at `offset`: for small transfers at high rates.
    ///
    /// A success is only counted ([`ended`](Self::ended), [`has_ended`](Self::has_ended)). A transfer that fails or is cancelled
    /// has a [`Completion`] without buffer. The call allocates nothing, takes no lock and accesses no register.
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
    ) -> Result<Ticket, Error<SubmitError>> {
        self.0.submit_at(memory, offset, length, card).at(|| self.0.place())
    }

    /// Queues a scatter-gather list as one transfer, counted as by [`submit_at`](Self::submit_at). Empty entries are skipped.
    /// Neighbouring entries that are adjacent on both sides share a descriptor.
    ///
    /// # Errors
    /// As `submit_at`; [`SubmitError::Overlap`] if two entries overlap at their destination. Nothing is queued then.
    pub fn submit_list(&mut self, pieces: &[ScatterGatherEntry]) -> Result<Ticket, Error<SubmitError>> {
        self.0.submit_list(pieces.iter().copied()).at(|| self.0.place())
    }

    /// Moves the buffer's bytes in the channel's direction and waits until the transfer has ended. On timeout the transfer is cancelled.
    ///
    /// # Errors
    /// [`TransferFailed`] returns the buffer unless the card may still reach it.
    pub fn transfer(
        &mut self,
        buffer: DmaBuffer,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        self.0.blocking(buffer, card, options)
    }
}

/// Blocking transfers under the name that fits the direction.
macro_rules! blocking {
    ($direction:ident, $blocking:ident, $(#[$blocking_doc:meta])* $with:ident, $(#[$with_doc:meta])*) => {
        impl Channel<$direction> {
            $(#[$blocking_doc])*
            ///
            /// # Errors
            /// [`TransferFailed`] returns the buffer unless the card may still reach it.
            pub fn $blocking(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<DmaBuffer, TransferFailed> {
                self.0.blocking(buffer, card, WaitOptions::default())
            }

            $(#[$with_doc])*
            ///
            /// # Errors
            /// [`TransferFailed`] returns the buffer unless the card may still reach it. On timeout the transfer is cancelled.
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

blocking! {
    H2c, write,
    /// Writes the buffer's bytes to card memory at `card` and waits until the transfer has ended.
    write_with,
    /// As [`write`](Self::write), with wait options.
}

blocking! {
    C2h, read,
    /// Fills the buffer with the bytes of card memory at `card`, and waits until the transfer has ended.
    read_with,
    /// As [`read`](Self::read), with wait options.
}
