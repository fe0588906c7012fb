//! One channel's descriptor ring: memory logic only.
//!
//! Nothing here touches a register or knows the hardware beyond the descriptor format. The caller owns the
//! memory ([`DescriptorMemory`]), writes the registers that a [`Run`] names, and feeds back the completed count
//! that the device reports.
//!
//! *Stop runs*: [`Ring::submit`] queues descriptors in private memory, [`Ring::start_run`] publishes everything
//! queued as one run that ends in a Stop descriptor, [`Ring::complete`] takes the device's count, and
//! [`Ring::poll_completion`] hands the payloads back. The next run starts when [`Ring::is_running`] turns false.
//! Descriptors reach device-visible memory only in `start_run`, so the device can neither prefetch a
//! half-written one nor see one beyond the run's end.
//!
//! Order of calls: any number of `submit`; `start_run`, then a barrier, then the doorbell; `complete` whenever a
//! count was read; `poll_completion` until `None`.
//!
//! The payload `T` (an owned DMA buffer, say) moves in at `submit` and comes back exactly once: in the
//! [`Completion`], in the [`Refusal`], or from [`Ring::drain`] after a failure.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fpga_registers::CardAddr;

mod config;
mod errors;
mod pieces;
mod run;

pub use config::{CardSide, ConfigError, MAX_DESCRIPTOR_LENGTH, MAX_ENTRIES, Report, RingConfig};
pub use errors::{CountFault, Refusal, RefusalReason};
pub use pieces::HostRange;
pub use run::{PendingDescriptor, Run};

use config::{COUNT_MASK, PAGE};
use pieces::Pieces;

use crate::cast::{index, low32};

/// Memory that holds descriptors and that the device reads: entry `index` is 32 bytes at `base + 32 x index`.
///
/// An implementation makes the words visible to the device in little-endian order before the doorbell; it may
/// use two 16-byte stores. It must ignore an index outside its memory rather than panic; the ring never
/// produces one.
pub trait DescriptorMemory {
    /// Stores descriptor `index`.
    fn write(&mut self, index: u32, words: [u32; 8]);
}

/// Names one submitted operation: slot and generation, so that a stale token never matches a later operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    slot: u32,
    generation: u32,
}

impl Token {
    /// The operation slot, below [`RingConfig::operations`].
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// How often the slot had been used before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// A transfer between host memory and the card's side of the channel.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The host buffer as the device addresses it, in order. Touching ranges merge.
    pub host: &'a [HostRange],
    /// First card address; ignored by streams.
    pub card: CardAddr,
}

/// An operation that the device has finished.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<T> {
    /// What `submit` returned.
    pub token: Token,
    /// What was handed in.
    pub payload: T,
    /// Bytes asked for. On a C2H stream the metadata write-backs tell how many came.
    pub length: u64,
    /// Ring entry of the operation's first descriptor.
    pub first_index: u32,
    /// Descriptors it took.
    pub descriptors: u32,
}

/// An operation taken out of a failed ring.
#[derive(Debug, PartialEq, Eq)]
pub struct Drained<T> {
    /// What `submit` returned.
    pub token: Token,
    /// What was handed in.
    pub payload: T,
    /// Bytes asked for.
    pub length: u64,
    /// Bytes whose descriptors the device had reported as complete.
    pub completed_bytes: u64,
    /// Whether the device may have seen it. If so, the payload may be reused only once the engine is known to be
    /// idle; otherwise it must be kept out of circulation.
    pub posted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Staged {
    host: u64,
    card: u64,
    length: u32,
    ends_operation: bool,
}

#[derive(Debug)]
struct Slot<T> {
    payload: Option<T>,
    /// Count after its last descriptor; its first follows the operation before.
    end: u64,
    length: u64,
}

/// The descriptor ring of one channel; see the module's description.
///
/// Descriptors and operations are numbered by running 64-bit counts: `freed <= completed <= run_end <= staged`.
/// A ring index is the count's low bits, an operation's generation its high bits.
#[derive(Debug)]
pub struct Ring<T> {
    config: RingConfig,
    entry_mask: u32,
    operation_mask: u32,
    staged_entries: Box<[Staged]>,
    slots: Box<[Slot<T>]>,
    /// Descriptors of operations that were handed back.
    freed: u64,
    /// Descriptors that the device reported.
    completed: u64,
    run_start: u64,
    run_end: u64,
    staged: u64,
    first_operation: u64,
    next_operation: u64,
    faulted: bool,
}

impl<T> Ring<T> {
    /// Allocates everything the ring will ever need.
    ///
    /// # Errors
    /// See [`RingConfig::validate`].
    pub fn new(config: RingConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let slots: Vec<_> =
            (0..config.operations).map(|_| Slot { payload: None, end: 0, length: 0 }).collect();
        Ok(Self {
            entry_mask: config.entries - 1,
            operation_mask: config.operations - 1,
            staged_entries: alloc::vec![Staged::default(); config.entries as usize].into_boxed_slice(),
            slots: slots.into_boxed_slice(),
            freed: 0,
            completed: 0,
            run_start: 0,
            run_end: 0,
            staged: 0,
            first_operation: 0,
            next_operation: 0,
            faulted: false,
            config,
        })
    }

    /// The configuration it was built with.
    #[must_use]
    pub const fn config(&self) -> &RingConfig {
        &self.config
    }

    /// Descriptors that can still be queued.
    #[must_use]
    pub const fn free_entries(&self) -> u32 {
        self.config.entries - low32(self.staged - self.freed)
    }

    /// Operations that were submitted and not handed back yet.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        low32(self.next_operation - self.first_operation)
    }

    /// Whether a run is posted whose last descriptor has not been reported.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.completed != self.run_end
    }

    /// Whether descriptors are queued that no run covers yet.
    #[must_use]
    pub const fn has_queued(&self) -> bool {
        self.staged != self.run_end
    }

    /// Whether a [`CountFault`] was seen: nothing more is accepted until [`Ring::drain`] has emptied the ring.
    #[must_use]
    pub const fn is_faulted(&self) -> bool {
        self.faulted
    }

    /// Queues one operation. The device does not see it before [`Ring::start_run`].
    ///
    /// One descriptor covers one contiguous run of addresses; a run longer than the configured limit is cut on
    /// page boundaries.
    ///
    /// # Errors
    /// The payload comes back in a [`Refusal`], and the ring is as before: [`RefusalReason::Full`] is
    /// back-pressure (complete something, then submit again); the others are permanent.
    #[inline]
    pub fn submit(&mut self, request: Request<'_>, payload: T) -> Result<Token, Refusal<T>> {
        match self.stage(request) {
            Ok(length) => Ok(self.record(length, payload)),
            Err(reason) => Err(Refusal { reason, payload }),
        }
    }

    /// Writes the request's descriptors to private memory beyond `staged`, which stays where it is: a request that
    /// does not fit leaves no trace. Returns the request's length and the count after its last descriptor.
    #[inline]
    fn stage(&mut self, request: Request<'_>) -> Result<(u64, u64), RefusalReason> {
        // Nearly every request is one range that one descriptor covers: tested first, without the cutting.
        if let [range] = *request.host {
            let longest = u64::from(self.config.max_descriptor_length) - range.start.get() % PAGE;
            let fits = range.length.wrapping_sub(1) < longest
                && range.start.get() <= u64::MAX - u64::from(MAX_DESCRIPTOR_LENGTH)
                && request.card.get() <= u64::MAX - u64::from(MAX_DESCRIPTOR_LENGTH)
                && self.staged - self.freed <= u64::from(self.entry_mask)
                && self.operations() <= self.operation_mask
                && !self.faulted;
            if fits {
                let at = index(low32(self.staged) & self.entry_mask);
                self.staged_entries[at] = Staged {
                    host: range.start.get(),
                    card: request.card.get(),
                    length: low32(range.length),
                    ends_operation: true,
                };
                return Ok((range.length, self.staged + 1));
            }
        }
        self.stage_pieces(request)
    }

    #[inline(never)]
    fn stage_pieces(&mut self, request: Request<'_>) -> Result<(u64, u64), RefusalReason> {
        if self.faulted {
            return Err(RefusalReason::Faulted);
        }
        if self.operations() > self.operation_mask {
            return Err(RefusalReason::Full { needed: 1, free: 0 });
        }
        let length = total_length(request.host)?;
        let step = matches!(self.config.card_side, CardSide::Memory);
        let mut card = request.card.get();
        if step && card.checked_add(length).is_none() {
            return Err(RefusalReason::CardAddress { start: request.card, length });
        }
        let limit = self.freed + u64::from(self.config.entries);
        let mut end = self.staged;
        for piece in Pieces::new(request.host, self.config.max_descriptor_length) {
            if end == limit {
                return Err(self.no_room(request.host));
            }
            self.staged_entries[index(low32(end) & self.entry_mask)] =
                Staged { host: piece.start, card, length: piece.length, ends_operation: false };
            if step {
                card += u64::from(piece.length);
            }
            end += 1;
        }
        self.staged_entries[index(low32(end.wrapping_sub(1)) & self.entry_mask)].ends_operation = true;
        Ok((length, end))
    }

    #[inline]
    fn record(&mut self, (length, end): (u64, u64), payload: T) -> Token {
        let token = self.token(self.next_operation);
        let slot = &mut self.slots[index(token.slot)];
        slot.payload = Some(payload);
        slot.end = end;
        slot.length = length;
        self.staged = end;
        self.next_operation += 1;
        token
    }

    #[cold]
    fn no_room(&self, host: &[HostRange]) -> RefusalReason {
        let needed = Pieces::new(host, self.config.max_descriptor_length).count() as u64;
        if needed > u64::from(self.config.entries) {
            return RefusalReason::TooManyDescriptors { needed, entries: self.config.entries };
        }
        RefusalReason::Full { needed: low32(needed), free: self.free_entries() }
    }

    /// Takes the poll-mode write-back word: error in bit 31, completed count in 23:0 (PG195).
    ///
    /// # Errors
    /// As [`Ring::complete`]; also an error bit, or a bit that the hardware never sets (all ones: the device is
    /// gone).
    #[inline]
    pub fn complete_writeback(&mut self, word: u32) -> Result<u32, CountFault> {
        if word & !COUNT_MASK != 0 {
            self.faulted = true;
            return Err(if word & !COUNT_MASK == 1 << 31 {
                CountFault::Engine { count: word & COUNT_MASK }
            } else {
                CountFault::NotACount { word }
            });
        }
        self.complete(word)
    }

    /// Takes the device's completed count, relative to the start of the run, and returns how many descriptors
    /// that newly finishes. Only the low 24 bits exist; the same count twice is no news.
    ///
    /// After a fault, the count from the channel's register may be given once more so that what did finish is
    /// handed back as finished.
    ///
    /// # Errors
    /// [`CountFault`] when the count is not one that the posted run can produce. Nothing is marked complete, and
    /// the ring accepts nothing more until it has been drained.
    #[inline]
    pub fn complete(&mut self, count: u32) -> Result<u32, CountFault> {
        if count & !COUNT_MASK != 0 {
            self.faulted = true;
            return Err(CountFault::NotACount { word: count });
        }
        let known = low32(self.completed - self.run_start);
        // Modulo 2^24: a count that went backwards shows as a huge step forwards and is refused below.
        let step = count.wrapping_sub(known) & COUNT_MASK;
        if u64::from(step) > self.run_end - self.completed {
            self.faulted = true;
            return Err(CountFault::BeyondPosted {
                reported: count,
                known,
                posted: low32(self.run_end - self.run_start),
            });
        }
        self.completed += u64::from(step);
        Ok(step)
    }

    /// The oldest operation whose descriptors have all completed.
    #[inline]
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<Completion<T>> {
        if self.first_operation == self.next_operation {
            return None;
        }
        let token = self.token(self.first_operation);
        let slot = &mut self.slots[index(token.slot)];
        if slot.end > self.completed {
            return None;
        }
        let payload = slot.payload.take()?;
        let completion = Completion {
            token,
            payload,
            length: slot.length,
            first_index: low32(self.freed) & self.entry_mask,
            descriptors: low32(slot.end - self.freed),
        };
        self.freed = slot.end;
        self.first_operation += 1;
        Some(completion)
    }

    /// Takes every operation out, oldest first, finished or not. Once the iterator is exhausted the ring is empty,
    /// no run is posted and the fault is cleared; what is left in a dropped iterator stays in the ring.
    ///
    /// Call it when the engine is known to be idle, or to quarantine what [`Drained::posted`] marks.
    pub fn drain(&mut self) -> Drain<'_, T> {
        self.faulted = true;
        Drain { ring: self }
    }

    #[inline]
    fn token(&self, operation: u64) -> Token {
        let shift = self.operation_mask.trailing_ones();
        Token { slot: low32(operation) & self.operation_mask, generation: low32(operation >> shift) }
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
            ring.run_start = ring.staged;
            ring.run_end = ring.staged;
            ring.faulted = false;
            return None;
        }
        let token = ring.token(ring.first_operation);
        let slot = &mut ring.slots[index(token.slot)];
        let (first, end, length) = (ring.freed, slot.end, slot.length);
        let payload = slot.payload.take()?;
        let completed_bytes = (first..end.min(ring.completed))
            .map(|n| u64::from(ring.staged_entries[index(low32(n) & ring.entry_mask)].length))
            .sum();
        ring.freed = end;
        ring.first_operation += 1;
        Some(Drained { token, payload, length, completed_bytes, posted: first < ring.run_end })
    }
}

/// Bytes in all ranges; every range must end inside the address space.
#[inline]
fn total_length(host: &[HostRange]) -> Result<u64, RefusalReason> {
    let mut length = 0u64;
    for range in host {
        let ends_inside = range.start.get().checked_add(range.length).is_some();
        length = match length.checked_add(range.length) {
            Some(sum) if ends_inside => sum,
            _ => return Err(RefusalReason::HostAddress { range: *range }),
        };
    }
    if length == 0 { Err(RefusalReason::Empty) } else { Ok(length) }
}
