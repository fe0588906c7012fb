//! One channel's descriptor ring: memory logic only.
//!
//! Nothing here accesses a register, and only the descriptor format depends on the hardware. The caller owns the memory
//! ([`DescriptorMemory`]), writes the registers that a [`Run`] or a [`CreditGrant`] names, and passes back the completed count that the
//! device reports.
//!
//! [`Ring::submit`] queues descriptors in private memory. They reach device-visible memory only when they are posted, so the device can
//! neither prefetch an incomplete descriptor nor see one beyond the posted ones. There are two ways to post:
//!
//! *Batch mode*: [`Ring::start_run`] posts everything queued as one run that ends in a Stop descriptor. The next run starts when
//! [`Ring::is_running`] returns false.
//!
//! *Credit mode*: [`Ring::post_credits`] posts everything queued as credits of a run that never stops (PG195, descriptor credit mode):
//! descriptors are linked in a circle and the engine fetches as many as it has credits for.
//!
//! In both modes [`Ring::complete`] processes the device's count, and [`Ring::pop_without_payload`] and [`Ring::poll_completion`] return
//! finished operations in order. Order of calls: any number of `submit`; `start_run` or `post_credits`, then a barrier, then the doorbell;
//! `complete` after each read of the count; `pop_without_payload` and `poll_completion` until neither returns anything.
//!
//! A payload `T` (for example an owned DMA buffer) moves in at `submit` and is returned exactly once: in the [`Completion`], in the
//! [`Refusal`], or by [`Ring::drain`] after a failure. Operations without one ([`Ring::submit_without_payload`]) are only counted.
//!
//! # Positions
//!
//! A position is a running 64-bit count of descriptors since the ring was created; its low bits are the ring entry. The descriptors below
//! a position are those in the table. `freed <= completed <= run_end <= staged <= freed + entries`.
//!
//! | Position | Descriptors below it | Moved by |
//! |---|---|---|
//! | `freed` | belong to operations that were returned: their entries are free | `pop_without_payload`, `poll_completion` |
//! | `written_back` | reported by the write-back word (`<= completed`, because the register may be ahead of the word) | `complete_writeback`; to `run_start` at the start of a run |
//! | `completed` | reported as complete by the word or the register | the `complete` functions |
//! | `run_start` | posted before the current run; the device's counts are relative to it (`<= completed`) | `start_run`, first `post_credits` of a run |
//! | `run_end` | posted to the device | `start_run`, `post_credits` |
//! | `staged` | queued in private memory | the `submit` functions |
//!
//! [`Ring::halt`] moves `run_end`, `run_start` and `written_back` back to `completed`; [`Ring::drain`] moves all positions to `staged`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fpga_registers::{CardAddr, Iova};

mod config;
mod errors;
mod packets;
mod reap;
mod run;
mod spans;
mod withdraw;

pub use config::{
    CardSide, CompletionPolicy, MAX_CREDITS, MAX_DESCRIPTOR_LENGTH, MAX_ENTRIES, REPORT_BYTES, RingConfig,
    RingConfigError,
};
pub use errors::CountFault;
pub use packets::{MetadataMemory, PacketFault, PacketSpan, Packets};
pub use reap::Drain;
pub use run::{CreditGrant, PendingDescriptor, Run};
pub use spans::SgEntry;
pub use withdraw::WithdrawError;

pub use crate::ranges::HostRange;
pub use crate::{Refusal, RefusalReason, Token};

use crate::operations::Operations;
use config::PAGE;
use spans::{DescriptorSpans, total_length};

use fpga_registers::cast::{index, low32};

/// Memory that holds descriptors and that the device reads: entry `index` is 32 bytes at `base + 32 x index`.
///
/// The words are the descriptor's 32-bit words in pairs, the first of each pair in the low half: control and length,
/// source, destination, next. An implementation makes them visible to the device in little-endian order before the
/// doorbell; it may use two 16-byte stores. It must ignore an index outside its memory rather than panic; the ring
/// never produces one.
pub trait DescriptorMemory {
    /// Stores descriptor `index`.
    fn write(&mut self, index: u32, words: [u64; 4]);
}

/// A transfer between host memory and the card's side of the channel.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Host buffer as the device addresses it, in order. Touching ranges are merged.
    pub host: &'a [HostRange],
    /// First card address; ignored by streams.
    pub card: CardAddr,
}

/// A finished or withdrawn operation.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<T> {
    /// Token that `submit` returned.
    pub token: Token,
    /// Payload given to `submit`; `None` for an operation without payload.
    pub payload: Option<T>,
    /// Requested bytes. On a C2H stream the metadata write-backs contain the received bytes.
    pub length: u64,
    /// Ring entry of the operation's first descriptor.
    pub first_index: u32,
    /// Number of its descriptors that were executed.
    pub descriptors: u32,
    /// Whether it was [withdrawn](Ring::withdraw): descriptors that had not been executed were dropped.
    pub withdrawn: bool,
}

/// Operation removed from a failed ring.
#[derive(Debug, PartialEq, Eq)]
pub struct Drained<T> {
    /// Token that `submit` returned.
    pub token: Token,
    /// Payload given to `submit`; `None` for an operation without payload.
    pub payload: Option<T>,
    /// Requested bytes.
    pub length: u64,
    /// Number of bytes whose descriptors the device had reported as complete.
    pub completed_bytes: u64,
    /// Whether the device may have seen the operation. If so, its memory must not be reused until the engine is known to be idle.
    pub posted: bool,
}

/// A queued descriptor. Three words, so that queueing needs three stores.
#[derive(Clone, Copy, Debug, Default)]
struct Staged {
    host: u64,
    card: u64,
    /// Length in bits 63:32, as in the descriptor; bit 0: last descriptor of the operation; bit 1: its packet continues after it.
    shape: u64,
}

impl Staged {
    const LENGTH: u64 = 0xFFFF_FFFF << 32;
    const ENDS_OPERATION: u64 = 1;
    const CONTINUES_PACKET: u64 = 1 << 1;

    #[inline]
    const fn length(self) -> u32 {
        low32(self.shape >> 32)
    }
}

/// Kind of an operation, which determines its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OperationKind {
    /// Only counted.
    #[default]
    Plain,
    /// Its payload is in the slot of the same number.
    Payload,
    /// Dropped by request; may have a payload.
    Withdrawn,
}

/// Length above which quirk 1 applies, in bytes.
const LONG: u64 = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Operation {
    length: u64,
    descriptors: u32,
    kind: OperationKind,
}

/// Descriptor ring of one channel; see the module's description.
///
/// The fields that count descriptors are positions; see the table in the module's description.
#[derive(Debug)]
pub struct Ring<T> {
    config: RingConfig,
    shape: run::DescriptorTemplate,
    entry_mask: u32,
    /// Maximum descriptor length, for the first test of every request.
    longest: u64,
    staged_entries: Box<[Staged]>,
    operations: Operations<Operation>,
    /// Payload of each slot of the operations.
    payloads: Box<[Option<T>]>,
    freed: u64,
    completed: u64,
    written_back: u64,
    run_start: u64,
    run_end: u64,
    staged: u64,
    /// Whether a run of a circular ring (credit mode) is in progress.
    open: bool,
    /// In credit mode: control word of each entry without length and report bits. Blocks are fixed parts of the ring there.
    templates: Box<[u64]>,
    /// Operations from this number on have no payload and one descriptor: they need no individual check.
    irregular_until: u64,
    /// Count after the last queued descriptor above 4 KiB.
    long_until: u64,
    /// Whether the run of the circular ring began with a descriptor above 4 KiB: it then has no blocks of adjacent descriptors (quirk 1).
    single_descriptor_blocks: bool,
    faulted: bool,
}

impl<T> Ring<T> {
    /// Allocates all memory that the ring needs.
    ///
    /// # Errors
    /// See [`RingConfig::validate`].
    pub fn new(config: RingConfig) -> Result<Self, RingConfigError> {
        config.validate()?;
        let payloads: Vec<_> = (0..config.operations).map(|_| None).collect();
        Ok(Self {
            shape: run::DescriptorTemplate::new(&config),
            entry_mask: config.entries - 1,
            longest: u64::from(config.max_descriptor_length),
            staged_entries: alloc::vec![Staged::default(); config.entries as usize].into_boxed_slice(),
            operations: Operations::new(config.operations, Operation::default),
            payloads: payloads.into_boxed_slice(),
            freed: 0,
            completed: 0,
            written_back: 0,
            run_start: 0,
            run_end: 0,
            staged: 0,
            open: false,
            templates: run::templates(&config),
            irregular_until: 0,
            long_until: 0,
            single_descriptor_blocks: false,
            faulted: false,
            config,
        })
    }

    /// Configuration of the ring.
    #[must_use]
    pub const fn config(&self) -> &RingConfig {
        &self.config
    }

    /// Returns the number of descriptors that can still be queued.
    #[must_use]
    pub const fn free_entries(&self) -> u32 {
        self.config.entries - low32(self.staged - self.freed)
    }

    /// Entry of the next descriptor; the [`free_entries`](Self::free_entries) from there on belong to the host.
    #[must_use]
    pub const fn next_entry(&self) -> u32 {
        low32(self.staged) & self.entry_mask
    }

    /// Returns the number of operations submitted and not yet returned.
    #[must_use]
    #[inline]
    pub const fn operations(&self) -> u32 {
        self.operations.len()
    }

    /// Returns the number of operations submitted since the ring was created: the number of the next one.
    #[must_use]
    #[inline]
    pub const fn submitted(&self) -> u64 {
        self.operations.submitted()
    }

    /// Returns the number of operations returned since the ring was created; those below this number have ended.
    #[must_use]
    #[inline]
    pub const fn ended(&self) -> u64 {
        self.operations.ended()
    }

    /// Returns whether descriptors are posted that have not been reported as complete.
    #[must_use]
    #[inline]
    pub const fn is_running(&self) -> bool {
        self.completed != self.run_end
    }

    /// Returns whether a run of a circular ring is in progress: the engine may be active although nothing is posted.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Descriptors posted in the current or last run: the final value of the completed-count register, modulo 2^32.
    #[must_use]
    pub const fn run_descriptors(&self) -> u32 {
        low32(self.run_end - self.run_start)
    }

    /// Returns whether descriptors are queued that are not posted yet.
    #[must_use]
    #[inline]
    pub const fn has_queued(&self) -> bool {
        self.staged != self.run_end
    }

    /// Returns whether a [`CountFault`] has occurred: nothing more is accepted until [`Ring::drain`] has emptied the ring.
    #[must_use]
    pub const fn is_faulted(&self) -> bool {
        self.faulted
    }

    /// Queues one operation. The device does not see it before it is posted.
    ///
    /// One descriptor covers one contiguous range of addresses; a range longer than the configured limit is split at page boundaries.
    ///
    /// # Errors
    /// The payload is returned in a [`Refusal`], and the ring is unchanged: [`RefusalReason::Full`] is back-pressure (complete an
    /// operation, then submit again); the others are permanent.
    #[inline]
    pub fn submit<P: Into<T>>(&mut self, request: Request<'_>, payload: P) -> Result<Token, Refusal<P>> {
        let queued = match *request.host {
            [range] => self.stage_one(range, request.card),
            _ => self.stage_segments(self.consecutive(request)),
        };
        match queued {
            Ok((length, end)) => Ok(self.record_with(length, end, payload.into())),
            Err(reason) => Err(Refusal { reason, payload }),
        }
    }

    /// Queues one operation without payload, which is only counted when it completes: see [`Ring::pop_without_payload`].
    ///
    /// # Errors
    /// Same as [`Ring::submit`].
    #[inline]
    pub fn submit_without_payload(
        &mut self,
        host: HostRange,
        card: CardAddr,
    ) -> Result<Token, RefusalReason> {
        let (length, end) = self.stage_one(host, card)?;
        Ok(self.record(length, end, OperationKind::Plain))
    }

    /// As [`submit_without_payload`](Ring::submit_without_payload), of bytes after which their packet continues (H2C AXI-ST): the last
    /// descriptor has no EOP.
    ///
    /// # Errors
    /// Same as [`Ring::submit`]; [`RefusalReason::PartialBeat`] if the length is not whole beats.
    pub fn submit_packet_part(&mut self, host: HostRange) -> Result<Token, RefusalReason> {
        if let CardSide::StreamOut { beat } = self.config.card_side
            && !host.length.is_multiple_of(beat.into())
        {
            return Err(RefusalReason::PartialBeat { length: low32(host.length), beat });
        }
        let (length, end) = self.stage_one(host, CardAddr::new(0))?;
        let last = index(low32(end.wrapping_sub(1)) & self.entry_mask);
        self.staged_entries[last].shape |= Staged::CONTINUES_PACKET;
        Ok(self.record(length, end, OperationKind::Plain))
    }

    /// Queues a scatter-gather list as one operation: every segment has its own card address. Empty segments are skipped; neighbours that
    /// touch on both sides are merged.
    ///
    /// # Errors
    /// Same as [`Ring::submit`]; the payload is returned.
    pub fn submit_segments(
        &mut self,
        segments: impl Iterator<Item = SgEntry> + Clone,
        payload: Option<T>,
    ) -> Result<Token, (RefusalReason, Option<T>)> {
        match self.stage_segments(segments) {
            Ok((length, end)) => Ok(match payload {
                Some(payload) => self.record_with(length, end, payload),
                None => self.record(length, end, OperationKind::Plain),
            }),
            Err(reason) => Err((reason, payload)),
        }
    }

    /// Writes the request's descriptors to private memory beyond `staged`, which does not change: a request that does not fit has no
    /// effect. Returns the request's length and the count after its last descriptor.
    #[inline]
    fn stage_one(&mut self, host: HostRange, card: CardAddr) -> Result<(u64, u64), RefusalReason> {
        // Fast path: nearly every request is one range that one descriptor covers.
        let start = host.start.get();
        let fits = host.length.wrapping_sub(1) < self.longest - start % PAGE
            && start.max(card.get()) <= u64::MAX - u64::from(MAX_DESCRIPTOR_LENGTH)
            && self.staged - self.freed <= u64::from(self.entry_mask)
            && !self.operations.is_full()
            && !self.faulted;
        if !fits {
            return self.stage_segments(core::iter::once(SgEntry { host, card }));
        }
        let at = index(low32(self.staged) & self.entry_mask);
        let shape = host.length << 32 | Staged::ENDS_OPERATION;
        self.staged_entries[at] = Staged { host: start, card: card.get(), shape };
        if host.length > LONG {
            self.long_until = self.staged + 1;
        }
        Ok((host.length, self.staged + 1))
    }

    /// Yields the request's ranges with the card address of each.
    fn consecutive<'a>(&self, request: Request<'a>) -> impl Iterator<Item = SgEntry> + Clone + use<'a, T> {
        let moves = self.card_moves();
        request.host.iter().scan(request.card.get(), move |card, range| {
            let segment = SgEntry { host: *range, card: CardAddr::new(*card) };
            if moves {
                // A request that exceeds the address space is refused at the segment that reaches its end.
                *card = card.saturating_add(range.length);
            }
            Some(segment)
        })
    }

    const fn sends_packets(&self) -> bool {
        matches!(self.config.card_side, CardSide::StreamOut { .. })
    }

    const fn card_moves(&self) -> bool {
        matches!(self.config.card_side, CardSide::Memory)
    }

    #[inline(never)]
    fn stage_segments(
        &mut self,
        segments: impl Iterator<Item = SgEntry> + Clone,
    ) -> Result<(u64, u64), RefusalReason> {
        if self.faulted {
            return Err(RefusalReason::Faulted);
        }
        let length = total_length(segments.clone(), self.card_moves())?;
        if self.operations.is_full() {
            return Err(RefusalReason::Full { needed: 1, free: 0 });
        }
        let pieces = DescriptorSpans::new(
            segments,
            self.config.max_descriptor_length,
            self.card_moves(),
            !self.sends_packets(),
        );
        let limit = self.freed + u64::from(self.config.entries);
        let mut end = self.staged;
        let mut before = None;
        for piece in pieces.clone() {
            if let (CardSide::StreamOut { beat }, Some(length)) =
                (self.config.card_side, before.replace(piece.length))
                && length % beat != 0
            {
                return Err(RefusalReason::PartialBeat { length, beat });
            }
            if end == limit {
                let needed = pieces.count() as u64;
                return Err(if needed > u64::from(self.config.entries) {
                    RefusalReason::TooManyDescriptors { needed, usable: self.config.entries }
                } else {
                    RefusalReason::Full { needed: low32(needed), free: self.free_entries() }
                });
            }
            let shape = u64::from(piece.length) << 32;
            self.staged_entries[index(low32(end) & self.entry_mask)] =
                Staged { host: piece.host, card: piece.card, shape };
            end += 1;
        }
        let last = index(low32(end.wrapping_sub(1)) & self.entry_mask);
        self.staged_entries[last].shape |= Staged::ENDS_OPERATION;
        if (self.staged..end).any(|count| u64::from(self.entry(count).length()) > LONG) {
            self.long_until = end;
        }
        Ok((length, end))
    }

    #[inline]
    fn record(&mut self, length: u64, end: u64, kind: OperationKind) -> Token {
        let descriptors = low32(end - self.staged);
        if descriptors != 1 || kind != OperationKind::Plain {
            self.irregular_until = self.operations.submitted() + 1;
        }
        let token = self.operations.push(Operation { length, descriptors, kind });
        self.staged = end;
        token
    }

    #[inline]
    fn record_with(&mut self, length: u64, end: u64, payload: T) -> Token {
        let token = self.record(length, end, OperationKind::Payload);
        self.payloads[self.operations.index(token.number())] = Some(payload);
        token
    }

    fn entry(&self, count: u64) -> Staged {
        self.staged_entries[index(low32(count) & self.entry_mask)]
    }

    fn bytes_between(&self, first: u64, end: u64) -> u64 {
        (first..end).map(|count| u64::from(self.entry(count).length())).sum()
    }

    const fn base(&self) -> Iova {
        self.config.base
    }
}
