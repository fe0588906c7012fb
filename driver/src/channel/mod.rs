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
//! | wait for one of them | `wait` |
//! | await one of them | `completion` (a `Future`) |

mod engine;
mod future;
mod recover;

use core::time::Duration;

use fpga_pci::DmaBuffer;
use fpga_registers::CardAddr;

use crate::error::{ChannelError, Refused, TransferError, TransferFailed};
use crate::fault::ChannelFault;
use crate::name::ChannelName;

pub(crate) use engine::{Engine, Payload};
pub use future::CompletionFuture;

/// Names a submitted transfer of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// A transfer that has ended.
#[derive(Debug)]
pub struct Completion {
    /// What `submit` returned.
    pub ticket: Ticket,
    /// Bytes moved, or why not.
    pub outcome: Result<u64, ChannelFault>,
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
            (Err(fault), buffer) => Err(TransferFailed { error: fault.into(), buffer }),
            // Transfers of memory that its submitter kept stay inside this package.
            (Ok(_), None) => Err(TransferFailed { error: TransferError::NoBuffer, buffer: None }),
        }
    }
}

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WaitMode {
    /// Read the completed count that the engine writes to host memory: no register access, lowest latency, one busy core.
    #[default]
    Poll,
    /// Sleep until the channel's interrupt. Needs [`Card::enable_interrupts`](crate::Card::enable_interrupts).
    Interrupt,
}

/// Options of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitOptions {
    /// How to wait.
    pub mode: WaitMode,
    /// How long at most.
    pub timeout: Duration,
}

impl Default for WaitOptions {
    /// Polling, 10 s: the limit that users of the vendor's driver know.
    fn default() -> Self {
        Self { mode: WaitMode::Poll, timeout: Duration::from_secs(10) }
    }
}

impl WaitOptions {
    /// Waits by `mode`.
    #[must_use]
    pub const fn mode(mut self, mode: WaitMode) -> Self {
        self.mode = mode;
        self
    }

    /// Waits at most `timeout`.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Shape of a channel's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// Descriptors in the ring: a power of two, 2 to 65536. Default 1024.
    pub descriptors: u32,
    /// Transfers in flight at most: a power of two. Default 256.
    pub transfers: u32,
    /// Longest descriptor in bytes, a multiple of 4 KiB. 4096 avoids the quirk of IP builds that mishandle several blocks
    /// of longer ones, at the price of one descriptor per page. Default: the longest there is.
    pub max_descriptor_length: u32,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            descriptors: 1024,
            transfers: 256,
            max_descriptor_length: fpga_core::ring::MAX_DESCRIPTOR_LENGTH,
        }
    }
}

impl ChannelOptions {
    /// A ring of `descriptors` entries.
    #[must_use]
    pub const fn descriptors(mut self, descriptors: u32) -> Self {
        self.descriptors = descriptors;
        self
    }

    /// At most `transfers` in flight.
    #[must_use]
    pub const fn transfers(mut self, transfers: u32) -> Self {
        self.transfers = transfers;
        self
    }

    /// Descriptors of at most `bytes`.
    #[must_use]
    pub const fn max_descriptor_length(mut self, bytes: u32) -> Self {
        self.max_descriptor_length = bytes;
        self
    }
}

macro_rules! channel {
    ($(#[$doc:meta])* $name:ident, $blocking:ident, $(#[$blocking_doc:meta])* ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub(crate) Engine);

        impl $name {
            /// Direction and number.
            #[must_use]
            pub fn name(&self) -> ChannelName {
                self.0.name()
            }

            /// Queues a transfer of the whole buffer. The engine starts with the next [`poll`](Self::poll), so that
            /// transfers queued together run together; waiting polls.
            ///
            /// # Errors
            /// [`Refused`] carries the buffer back. A full ring is back-pressure: poll, then submit again.
            pub fn submit(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<Ticket, Refused> {
                self.0.submit_buffer(buffer, card)
            }

            /// Starts what is queued and takes up what is done. Returns how many transfers ended.
            ///
            /// In the good case this reads one word of host memory; registers are written only to start a run.
            ///
            /// # Errors
            /// [`ChannelError`] if the channel as a whole cannot go on. A transfer's own failure is in its
            /// [`Completion`].
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

            /// Waits until `ticket`'s transfer has ended.
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

            /// Stops the engine, waits until it is idle and ends everything in flight as aborted. The channel can be used again.
            ///
            /// # Errors
            /// [`ChannelError::Wedged`] if the engine does not become idle: what it may still reach is quarantined.
            pub fn abort(&mut self) -> Result<usize, ChannelError> {
                self.0.abort()
            }

            $(#[$blocking_doc])*
            ///
            /// # Errors
            /// [`TransferFailed`] carries the buffer back unless the card may still reach it.
            pub fn $blocking(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<DmaBuffer, TransferFailed> {
                self.0.blocking(buffer, card, WaitOptions::default())
            }
        }
    };
}

channel! {
    /// Host to card.
    H2cChannel, write,
    /// Writes the buffer's bytes to card memory at `card` and waits until they are there.
}

channel! {
    /// Card to host.
    C2hChannel, read,
    /// Fills the buffer with the bytes of card memory at `card`.
}
