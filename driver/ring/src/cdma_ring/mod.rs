//! Descriptor ring of the card-internal copy engine (AXI CDMA, scatter-gather mode, PG034): memory logic only.
//!
//! Descriptors are in card memory, linked in a fixed circle, so an append modifies only free entries. Nothing here accesses a register or
//! card memory: the caller writes the slices of a [`Batch`] to card memory by any path that it has, writes the tail-descriptor register,
//! and passes back the engine's reports.
//!
//! | Step | Call | Then |
//! |---|---|---|
//! | queue | [`Ring::submit`], any number | |
//! | make descriptors | [`Ring::publish`] | write the batch's slices to card memory, verify their arrival |
//! | post | [`Ring::post`] | write the tail register: low word, then high word |
//! | progress | [`Ring::complete_status`] or [`Ring::complete_current`] | [`Ring::poll_completion`] until `None` |
//! | failure | reset the engine, [`Ring::drain`], [`Ring::guard`] | start the engine at [`Ring::start_address`] |
//!
//! # Positions
//!
//! A position is a running 64-bit count of descriptors since the ring was created; its low bits are the ring entry. The descriptors below
//! a position are those in the table. `freed <= completed <= posted <= published <= staged < freed + entries`.
//!
//! | Position | Descriptors below it | Moved by |
//! |---|---|---|
//! | `freed` | belong to operations that were returned: their entries are free | `poll_completion` |
//! | `completed` | finished by the engine | the `complete` functions |
//! | `probe_end` | proved complete by the status word that is polled (`<= posted`); at most `completed` if none is polled | `probe` |
//! | `posted` | up to the tail register's descriptor: the engine may execute them | `post` |
//! | `published` | in card memory, or being written there | `publish` |
//! | `staged` | queued in private memory | the `submit` functions |
//!
//! [`Ring::drain`] moves all positions to `staged`.
//!
//! # Progress
//!
//! There are two ways to determine the engine's progress. The status word of a descriptor ([`Ring::probe`] names it) is proof, since the
//! engine writes it after the data. The current-descriptor register needs no access to card memory, and is accepted only if it names a
//! posted descriptor.
//!
//! The payload `T` moves in at `submit` and is returned exactly once: in the [`Completion`], in the [`Refusal`], or by [`Ring::drain`].

use alloc::boxed::Box;

mod batch;
mod config;
mod errors;

pub use batch::{Batch, DescriptorImage, DescriptorSlice, PendingDescriptor, Probe};
pub use config::{CdmaRingConfigError, ENTRY_BYTES, LENGTH_BITS, MAX_ENTRIES, RingConfig};
pub use errors::ProgressFault;

pub use crate::ranges::CopyEntry;
pub use crate::{Refusal, RefusalReason, Token};

use crate::operations::Operations;

use fpga_registers::cast::{index, low32};

/// An operation that the engine has finished.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<T> {
    /// Token that `submit` returned.
    pub token: Token,
    /// Payload given to `submit`.
    pub payload: T,
    /// Number of bytes copied.
    pub length: u64,
    /// Number of descriptors used.
    pub descriptors: u32,
}

/// Operation removed from a ring by a drain.
#[derive(Debug, PartialEq, Eq)]
pub struct Drained<T> {
    /// Token that `submit` returned.
    pub token: Token,
    /// Payload given to `submit`.
    pub payload: T,
    /// Requested bytes.
    pub length: u64,
    /// Bytes that were moved before, or whose descriptors are known to be complete.
    pub completed_bytes: u64,
    /// Whether the operation was posted to the engine: unless the engine was reset since, it may still write to the destination.
    pub posted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Staged {
    source: u64,
    destination: u64,
    length: u32,
}

#[derive(Debug)]
struct Slot<T> {
    payload: Option<T>,
    /// Count after its last descriptor; its first one follows the previous operation.
    end: u64,
    length: u64,
    /// Bytes of these that were moved before by other means.
    moved: u64,
}

/// Descriptor ring of one copy engine; see the module's description.
///
/// The fields that count descriptors are positions; see the table in the module's description.
#[derive(Debug)]
pub struct Ring<T> {
    config: RingConfig,
    entry_mask: u32,
    max_length: u64,
    staged_entries: Box<[Staged]>,
    operations: Operations<Slot<T>>,
    freed: u64,
    completed: u64,
    posted: u64,
    published: u64,
    staged: u64,
    probe_end: u64,
    faulted: bool,
}

impl<T> Ring<T> {
    /// Allocates all memory that the ring needs.
    ///
    /// # Errors
    /// See [`RingConfig::validate`].
    pub fn new(config: RingConfig) -> Result<Self, CdmaRingConfigError> {
        config.validate()?;
        Ok(Self {
            entry_mask: config.entries - 1,
            max_length: u64::from(config.max_descriptor_length()),
            staged_entries: alloc::vec![Staged::default(); index(config.entries)].into_boxed_slice(),
            operations: Operations::new(config.operations, || Slot {
                payload: None,
                end: 0,
                length: 0,
                moved: 0,
            }),
            freed: 0,
            completed: 0,
            posted: 0,
            published: 0,
            staged: 0,
            probe_end: 0,
            faulted: false,
            config,
        })
    }

    /// Configuration of the ring.
    #[must_use]
    pub const fn config(&self) -> &RingConfig {
        &self.config
    }

    /// Returns the number of descriptors that can still be queued. One entry of the ring is never used.
    #[must_use]
    pub const fn free_entries(&self) -> u32 {
        self.entry_mask - low32(self.staged - self.freed)
    }

    /// Returns the number of operations submitted since the ring was created: the number of the next one.
    #[must_use]
    pub const fn submitted(&self) -> u64 {
        self.operations.submitted()
    }

    /// Returns the number of operations returned since the ring was created.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.operations.ended()
    }

    /// Returns the number of operations submitted and not yet returned.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        self.operations.len()
    }

    /// Returns the number of descriptors that the engine has finished or that were drained, since the ring was created.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of descriptors that were posted to the engine and are not finished.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        low32(self.posted - self.completed)
    }

    /// Returns whether descriptors are queued that are not in card memory yet.
    #[must_use]
    pub const fn has_queued(&self) -> bool {
        self.staged != self.published
    }

    /// Returns whether a batch is published and not posted.
    #[must_use]
    pub const fn has_published(&self) -> bool {
        self.published != self.posted
    }

    /// Returns whether a [`ProgressFault`] has occurred: nothing more is accepted until [`Ring::drain`] has emptied the ring.
    #[must_use]
    pub const fn is_faulted(&self) -> bool {
        self.faulted
    }

    /// Queues one operation: its segments in order, long ones split. The engine does not see it before [`Ring::post`].
    ///
    /// # Errors
    /// The payload is returned in a [`Refusal`], and the ring is unchanged: [`RefusalReason::Full`] is back-pressure (complete an
    /// operation, then submit again); the others are permanent.
    pub fn submit(&mut self, segments: &[CopyEntry], payload: T) -> Result<Token, Refusal<T>> {
        self.submit_rest(segments, 0, payload)
    }

    /// Queues the rest of an operation of which `moved` bytes were moved by other means, because a build without realignment cannot move
    /// them. If nothing remains to be copied, the operation still completes in order.
    ///
    /// # Errors
    /// Same as [`submit`](Self::submit).
    pub fn submit_rest(
        &mut self,
        segments: &[CopyEntry],
        moved: u64,
        payload: T,
    ) -> Result<Token, Refusal<T>> {
        match self.stage(segments, moved) {
            Ok((length, end)) => Ok(self.record(length.saturating_add(moved), end, moved, payload)),
            Err(reason) => Err(Refusal { reason, payload }),
        }
    }

    /// Returns whether the ring would accept these segments now, apart from their alignment.
    ///
    /// # Errors
    /// Same as [`submit`](Self::submit).
    pub fn admits(&self, segments: &[CopyEntry]) -> Result<(), RefusalReason> {
        self.fits(segments, 0, false)
    }

    /// Writes the descriptors to private memory beyond `staged`, which does not change: a request that does not fit has no effect. Returns
    /// the total bytes and the count after the last descriptor.
    fn stage(&mut self, segments: &[CopyEntry], moved: u64) -> Result<(u64, u64), RefusalReason> {
        self.fits(segments, moved, !self.config.realignment)?;
        let length = segments.iter().fold(0_u64, |length, segment| length.saturating_add(segment.length));
        let mut end = self.staged;
        for segment in segments {
            let (mut source, mut destination) = (segment.source.get(), segment.destination.get());
            let mut remaining = segment.length;
            while remaining != 0 {
                let taken = remaining.min(self.max_length);
                let at = index(low32(end) & self.entry_mask);
                self.staged_entries[at] = Staged { source, destination, length: low32(taken) };
                // The last byte of both ranges was checked; the address after it may wrap.
                source = source.wrapping_add(taken);
                destination = destination.wrapping_add(taken);
                remaining -= taken;
                end += 1;
            }
        }
        Ok((length, end))
    }

    /// Checks for free space and valid segments.
    fn fits(&self, segments: &[CopyEntry], moved: u64, aligned: bool) -> Result<(), RefusalReason> {
        if self.faulted {
            return Err(RefusalReason::Faulted);
        }
        let mut needed = 0_u64;
        for segment in segments.iter().filter(|segment| segment.length != 0) {
            self.check(segment, aligned)?;
            needed = needed.saturating_add(segment.length.div_ceil(self.max_length));
        }
        if needed == 0 && moved == 0 {
            return Err(RefusalReason::Empty);
        }
        if needed > u64::from(self.entry_mask) {
            return Err(RefusalReason::TooManyDescriptors { needed, usable: self.entry_mask });
        }
        let free = self.free_entries();
        if needed > u64::from(free) {
            return Err(RefusalReason::Full { needed: low32(needed), free });
        }
        if self.operations.is_full() {
            return Err(RefusalReason::Full { needed: 1, free: 0 });
        }
        Ok(())
    }

    fn check(&self, segment: &CopyEntry, aligned: bool) -> Result<(), RefusalReason> {
        let length = segment.length;
        for start in [segment.source, segment.destination] {
            let inside =
                start.get().checked_add(length - 1).is_some_and(|last| last <= self.config.last_address());
            if !inside {
                let address_bits = self.config.address_bits;
                return Err(RefusalReason::CardAddress { start, length, address_bits });
            }
            if aligned && !start.is_aligned_to(u64::from(self.config.data_bytes)) {
                return Err(RefusalReason::Misaligned { address: start, alignment: self.config.data_bytes });
            }
        }
        let (source, destination) = (segment.source.get(), segment.destination.get());
        if source.abs_diff(destination) < length {
            return Err(RefusalReason::Overlap { segment: *segment });
        }
        let (base, bytes) = (self.config.base.get(), self.config.bytes());
        if destination <= base + (bytes - 1) && base <= destination + (length - 1) {
            return Err(RefusalReason::DescriptorMemory { segment: *segment });
        }
        Ok(())
    }

    fn record(&mut self, length: u64, end: u64, moved: u64, payload: T) -> Token {
        self.staged = end;
        self.operations.push(Slot { payload: Some(payload), end, length, moved })
    }

    /// Bytes of the descriptors from position `first` to `end`.
    fn bytes_between(&self, first: u64, end: u64) -> u64 {
        (first..end).map(|n| u64::from(self.staged_entries[index(low32(n) & self.entry_mask)].length)).sum()
    }

    /// Returns the oldest operation if all its descriptors have completed.
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<Completion<T>> {
        let token = self.operations.oldest()?;
        let slot = self.operations.slot_mut(token.number());
        if slot.end > self.completed {
            return None;
        }
        let payload = slot.payload.take()?;
        let descriptors = low32(slot.end - self.freed);
        let completion = Completion { token, payload, length: slot.length, descriptors };
        self.freed = slot.end;
        self.operations.remove(1);
        Some(completion)
    }

    /// Removes every operation, oldest first, finished or not. Once the iterator is exhausted the ring is empty, nothing is posted and the
    /// fault is cleared; operations remaining in a dropped iterator stay in the ring.
    ///
    /// Call it after the engine has been reset. Before the engine starts again, overwrite old descriptors in card memory: [`Ring::guard`].
    pub const fn drain(&mut self) -> Drain<'_, T> {
        self.faulted = true;
        Drain { ring: self }
    }
}

/// See [`Ring::drain`].
#[derive(Debug)]
pub struct Drain<'a, T> {
    ring: &'a mut Ring<T>,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = Drained<T>;

    fn next(&mut self) -> Option<Drained<T>> {
        let ring = &mut *self.ring;
        let Some(token) = ring.operations.oldest() else {
            ring.freed = ring.staged;
            ring.completed = ring.staged;
            ring.posted = ring.staged;
            ring.published = ring.staged;
            ring.probe_end = ring.staged;
            ring.faulted = false;
            return None;
        };
        let slot = ring.operations.slot_mut(token.number());
        let (first, end, length, moved) = (ring.freed, slot.end, slot.length, slot.moved);
        let payload = slot.payload.take()?;
        let completed_bytes = moved.saturating_add(ring.bytes_between(first, end.min(ring.completed)));
        ring.freed = end;
        ring.operations.remove(1);
        Some(Drained { token, payload, length, completed_bytes, posted: first < ring.posted })
    }
}
