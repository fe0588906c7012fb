//! Register writes in flight to a card: a bounded queue with many producers and one consumer.
//!
//! A posted write on PCIe leaves the CPU without a completion; here it is one store into a slot. A slot is one word that holds the whole
//! write and a lap bit that distinguishes a new write from the one a lap ago. The consumer polls this slot alone, and its cache line
//! changes only when a write is posted. Only producers access the ticket counter, and the consumer publishes its position only after a
//! batch.

use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam::utils::CachePadded;

/// Slots in a pair of cache lines.
const LINE: usize = if cfg!(loom) { 2 } else { 16 };
/// Number of such pairs.
const LINES: usize = if cfg!(loom) { 1 } else { 16 };
/// Maximum number of writes in flight.
pub(crate) const CAPACITY: u64 = (LINE * LINES) as u64;
/// Number of drained slots that are released together.
const BATCH: u64 = if CAPACITY < 4 { 1 } else { CAPACITY / 4 };

/// Bits of the register's number (offset divided by 4) in a word.
const OFFSET_BITS: u32 = 22;
/// Bits of the generation in a word.
const GENERATION_BITS: u32 = 6;
const OFFSET_SHIFT: u32 = 32;
const BAR_SHIFT: u32 = OFFSET_SHIFT + OFFSET_BITS;
const GENERATION_SHIFT: u32 = BAR_SHIFT + 3;
const LAP_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;

/// A posted 32-bit write, encoded for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostedWrite(u64);

impl PostedWrite {
    /// Returns `None` if the write does not fit one word: its offset is far into a large BAR.
    #[inline]
    pub(crate) fn new(bar: u8, offset: u64, value: u32, generation: u32) -> Option<Self> {
        let register = offset >> 2;
        if register >> OFFSET_BITS != 0 || bar > 7 {
            return None;
        }
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        Some(Self(
            generation << GENERATION_SHIFT
                | u64::from(bar) << BAR_SHIFT
                | register << OFFSET_SHIFT
                | u64::from(value),
        ))
    }

    pub(crate) const fn bar(self) -> u8 {
        (self.0 >> BAR_SHIFT).to_le_bytes()[0] & 7
    }

    pub(crate) const fn offset(self) -> u64 {
        (self.0 >> OFFSET_SHIFT & ((1 << OFFSET_BITS) - 1)) << 2
    }

    pub(crate) const fn value(self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        [a, b, c, d]
    }

    /// Whether it was posted through a BAR of this generation. Few bits are enough: a reset drains the queue first, so a write found
    /// afterwards is at most one reset old.
    pub(crate) fn is_of(self, generation: u32) -> bool {
        let difference = self.0 >> GENERATION_SHIFT ^ u64::from(generation);
        difference.trailing_zeros() >= GENERATION_BITS
    }
}

/// Lap bit of a ticket's slot once it is filled. Slots start as filled in the lap before the first.
fn lap(ticket: u64) -> u64 {
    u64::from((ticket / CAPACITY).is_multiple_of(2)) << LAP_SHIFT
}

/// Fields that only producers access.
#[derive(Debug)]
struct Producers {
    /// The next ticket.
    tail: AtomicU64,
    /// Value of `released` at the last read by a producer. Producers read `released` again only when this value is not sufficient: its
    /// cache line belongs to the consumer, and reading it at every write would cost a cache miss after every release.
    known: AtomicU64,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct PostedQueue {
    producers: CachePadded<Producers>,
    /// Tickets below this value plus the capacity may be used.
    released: CachePadded<AtomicU64>,
    slots: [CachePadded<[AtomicU64; LINE]>; LINES],
}

/// Position of the consumer. There is one per queue.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    head: u64,
    released: u64,
}

/// No slot is free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl PostedQueue {
    pub(crate) fn new() -> Self {
        Self {
            producers: CachePadded::new(Producers { tail: AtomicU64::new(0), known: AtomicU64::new(0) }),
            released: CachePadded::new(AtomicU64::new(0)),
            slots: std::array::from_fn(|_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)))),
        }
    }

    #[inline]
    fn slot(&self, ticket: u64) -> &AtomicU64 {
        let index = (ticket % CAPACITY) as usize;
        &self.slots[index / LINE][index % LINE]
    }

    /// Appends a write. It can be taken when this returns, also by threads that learn of it from this thread.
    ///
    /// A thread never waits between getting a ticket and filling its slot: a consumer that waits for the slot waits for a few instructions
    /// (or for the operating system to schedule that thread).
    #[inline]
    pub(crate) fn post(&self, write: PostedWrite) -> Result<(), Full> {
        let Producers { tail, known } = &*self.producers;
        let mut ticket = tail.load(Ordering::Relaxed);
        loop {
            // The slot's content was taken before the slot was released; a thread that has seen the release makes this visible to the next
            // one.
            if ticket >= known.load(Ordering::Acquire) + CAPACITY {
                let released = self.released.load(Ordering::Acquire);
                known.fetch_max(released, Ordering::Release);
                if ticket >= released + CAPACITY {
                    return Err(Full);
                }
            }
            match tail.compare_exchange_weak(ticket, ticket + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => ticket = now,
            }
        }
        self.slot(ticket).store(write.0 | lap(ticket), Ordering::Release);
        Ok(())
    }

    /// Returns the number of tickets assigned so far: at least those of all writes that this thread knows of.
    #[inline]
    pub(crate) fn tickets(&self) -> u64 {
        self.producers.tail.load(Ordering::Relaxed)
    }

    /// Takes the next write from the queue.
    #[inline]
    pub(crate) fn take(&self, cursor: &mut Cursor) -> Option<PostedWrite> {
        let word = self.slot(cursor.head).load(Ordering::Acquire);
        if word & 1 << LAP_SHIFT != lap(cursor.head) {
            return None;
        }
        cursor.head += 1;
        if cursor.head - cursor.released >= BATCH {
            cursor.released = cursor.head;
            self.released.store(cursor.head, Ordering::Release);
        }
        Some(PostedWrite(word & !(1 << LAP_SHIFT)))
    }
}

impl Cursor {
    /// Returns the number of tickets taken.
    #[inline]
    pub(crate) const fn taken(&self) -> u64 {
        self.head
    }
}

#[cfg(test)]
mod tests;
