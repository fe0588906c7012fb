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
//! There are two ways to determine the engine's progress. The status word of a descriptor ([`Ring::probe`] names it) is proof, since the
//! engine writes it after the data. The current-descriptor register needs no access to card memory, and is accepted only if it names a
//! posted descriptor.
//!
//! The payload `T` moves in at `submit` and is returned exactly once: in the [`Completion`], in the [`Refusal`], or by [`Ring::drain`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use fpga_registers::CardAddr;

mod batch;
mod config;
mod errors;

pub use batch::{Batch, DescriptorImage, DescriptorSlice, PendingDescriptor, Probe};
pub use config::{ConfigError, ENTRY_BYTES, LENGTH_BITS, MAX_ENTRIES, RingConfig};
pub use errors::{ProgressFault, Refusal, RefusalReason};

use fpga_registers::cast::{index, low32};

/// One copy within card memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEntry {
    /// Source address, as the engine addresses it.
    pub source: CardAddr,
    /// Destination address.
    pub destination: CardAddr,
    /// Length in bytes; empty segments are skipped.
    pub length: u64,
}

impl CopyEntry {
    /// Creates a copy of `length` bytes from `source` to `destination`.
    #[must_use]
    pub const fn new(source: CardAddr, destination: CardAddr, length: u64) -> Self {
        Self { source, destination, length }
    }
}

/// Identifies one submitted operation by its sequence number: a stale token never matches a later operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Creates the token of the operation with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Number of operations that were submitted to the ring before it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

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
/// Descriptors and operations are numbered by running 64-bit counts:
/// `freed <= completed <= posted <= published <= staged < freed + entries`. A ring index is the count's low bits.
#[derive(Debug)]
pub struct Ring<T> {
    config: RingConfig,
    entry_mask: u32,
    operation_mask: u32,
    max_length: u64,
    staged_entries: Box<[Staged]>,
    slots: Box<[Slot<T>]>,
    /// Descriptors of operations that were returned.
    freed: u64,
    /// Descriptors that the engine has finished.
    completed: u64,
    /// Descriptors up to the tail that was posted to the engine.
    posted: u64,
    /// Descriptors that are in card memory, or being written there.
    published: u64,
    staged: u64,
    /// Count that the currently polled status word proves.
    probe_end: u64,
    first_operation: u64,
    next_operation: u64,
    faulted: bool,
}

impl<T> Ring<T> {
    /// Allocates all memory that the ring needs.
    ///
    /// # Errors
    /// See [`RingConfig::validate`].
    pub fn new(config: RingConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let slots: Vec<_> =
            (0..config.operations).map(|_| Slot { payload: None, end: 0, length: 0, moved: 0 }).collect();
        Ok(Self {
            entry_mask: config.entries - 1,
            operation_mask: config.operations - 1,
            max_length: u64::from(config.max_descriptor_length()),
            staged_entries: alloc::vec![Staged::default(); index(config.entries)].into_boxed_slice(),
            slots: slots.into_boxed_slice(),
            freed: 0,
            completed: 0,
            posted: 0,
            published: 0,
            staged: 0,
            probe_end: 0,
            first_operation: 0,
            next_operation: 0,
            faulted: false,
            config,
        })
    }

    /// Configuration of the ring.
    #[must_use]
    pub const fn config(&self) -> &RingConfig {
        &self.config
    }

    /// Number of descriptors that can still be queued. One entry of the ring is never used.
    #[must_use]
    pub const fn free_entries(&self) -> u32 {
        self.entry_mask - low32(self.staged - self.freed)
    }

    /// Number of operations submitted since the ring was created: the number of the next one.
    #[must_use]
    pub const fn submitted(&self) -> u64 {
        self.next_operation
    }

    /// Number of operations returned since the ring was created.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.first_operation
    }

    /// Number of operations submitted and not yet returned.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        low32(self.next_operation - self.first_operation)
    }

    /// Number of descriptors that the engine has finished or that were drained, since the ring was created.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Number of descriptors that were posted to the engine and are not finished.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        low32(self.posted - self.completed)
    }

    /// Whether descriptors are queued that are not in card memory yet.
    #[must_use]
    pub const fn has_queued(&self) -> bool {
        self.staged != self.published
    }

    /// Whether a batch is published and not posted.
    #[must_use]
    pub const fn has_published(&self) -> bool {
        self.published != self.posted
    }

    /// Whether a [`ProgressFault`] has occurred: nothing more is accepted until [`Ring::drain`] has emptied the ring.
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

    /// Whether the ring would accept these segments now, apart from their alignment.
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
        if self.operations() > self.operation_mask {
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
                return Err(RefusalReason::AddressRange { start, length, address_bits });
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
        let number = self.next_operation;
        let slot = &mut self.slots[index(low32(number) & self.operation_mask)];
        slot.payload = Some(payload);
        slot.end = end;
        slot.length = length;
        slot.moved = moved;
        self.staged = end;
        self.next_operation += 1;
        Token(number)
    }

    /// Returns the oldest operation if all its descriptors have completed.
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<Completion<T>> {
        if self.first_operation == self.next_operation {
            return None;
        }
        let token = Token(self.first_operation);
        let slot = &mut self.slots[index(low32(token.0) & self.operation_mask)];
        if slot.end > self.completed {
            return None;
        }
        let payload = slot.payload.take()?;
        let descriptors = low32(slot.end - self.freed);
        let completion = Completion { token, payload, length: slot.length, descriptors };
        self.freed = slot.end;
        self.first_operation += 1;
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
        if ring.first_operation == ring.next_operation {
            ring.freed = ring.staged;
            ring.completed = ring.staged;
            ring.posted = ring.staged;
            ring.published = ring.staged;
            ring.probe_end = ring.staged;
            ring.faulted = false;
            return None;
        }
        let token = Token(ring.first_operation);
        let slot = &mut ring.slots[index(low32(token.0) & ring.operation_mask)];
        let (first, end, length, moved) = (ring.freed, slot.end, slot.length, slot.moved);
        let payload = slot.payload.take()?;
        let by_the_engine: u64 = (first..end.min(ring.completed))
            .map(|n| u64::from(ring.staged_entries[index(low32(n) & ring.entry_mask)].length))
            .sum();
        let completed_bytes = moved.saturating_add(by_the_engine);
        ring.freed = end;
        ring.first_operation += 1;
        Some(Drained { token, payload, length, completed_bytes, posted: first < ring.posted })
    }
}
