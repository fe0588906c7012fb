//! Register writes on their way to a card: a bounded queue that many threads put into and one takes out of.
//!
//! A posted write on PCIe leaves the CPU and is forgotten; here it is one store into a slot. A slot is one word that
//! holds the whole write and a lap bit that tells a new one from the one that was there a lap ago, so that whoever takes
//! out polls this slot alone, and its cache line changes only when something is posted. The ticket counter is touched
//! by producers only, and how far the slots were emptied is told now and then.

use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam::utils::CachePadded;

/// Slots that share two cache lines.
const LINE: usize = if cfg!(loom) { 2 } else { 16 };
/// Such pairs of lines.
const LINES: usize = if cfg!(loom) { 1 } else { 16 };
/// Writes that are on their way at once at most.
pub(crate) const CAPACITY: u64 = (LINE * LINES) as u64;
/// Emptied slots that are given back together.
const BATCH: u64 = if CAPACITY < 4 { 1 } else { CAPACITY / 4 };

/// Bits of the register's number (offset divided by 4) in a word.
const OFFSET_BITS: u32 = 22;
/// Bits of the generation in a word.
const GENERATION_BITS: u32 = 6;
const OFFSET_SHIFT: u32 = 32;
const BAR_SHIFT: u32 = OFFSET_SHIFT + OFFSET_BITS;
const GENERATION_SHIFT: u32 = BAR_SHIFT + 3;
const LAP_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;

/// A posted write of 32 bits, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostedWrite(u64);

impl PostedWrite {
    /// `None` if it cannot be told in one word: far into a large BAR.
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

    /// Whether it was posted through a BAR of this generation. Few bits are enough: a reset takes the queue's content
    /// first, so what is found there afterwards is at most one reset old.
    pub(crate) fn is_of(self, generation: u32) -> bool {
        let difference = self.0 >> GENERATION_SHIFT ^ u64::from(generation);
        difference.trailing_zeros() >= GENERATION_BITS
    }
}

/// The lap bit of a ticket's slot once it is filled. Slots start out as filled in the lap before the first.
fn lap(ticket: u64) -> u64 {
    u64::from((ticket / CAPACITY).is_multiple_of(2)) << LAP_SHIFT
}

/// What only those touch who put in.
#[derive(Debug)]
struct Producers {
    /// The next ticket.
    tail: AtomicU64,
    /// What `released` was when one of them looked last, which they do when that is not enough: its line is elsewhere, and
    /// who looked at every write would wait for it after every release.
    known: AtomicU64,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct PostedQueue {
    producers: CachePadded<Producers>,
    /// Tickets below this one plus the capacity may be used.
    released: CachePadded<AtomicU64>,
    slots: [CachePadded<[AtomicU64; LINE]>; LINES],
}

/// Where the side that takes out is. There is one for each queue.
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

    /// Puts a write at the end. It can be taken out when this returns, by whoever learns of it from this thread too.
    ///
    /// A thread never waits between having a ticket and filling its slot: who waits for the slot waits for a few
    /// instructions (or for the operating system to let them go on).
    #[inline]
    pub(crate) fn post(&self, write: PostedWrite) -> Result<(), Full> {
        let Producers { tail, known } = &*self.producers;
        let mut ticket = tail.load(Ordering::Relaxed);
        loop {
            // What the slot held was taken out before it was released: whoever learned of that passes it on.
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

    /// Tickets handed out so far: at least those of all writes that this thread knows of.
    #[inline]
    pub(crate) fn tickets(&self) -> u64 {
        self.producers.tail.load(Ordering::Relaxed)
    }

    /// Takes the next write out.
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
    /// Tickets taken out.
    #[inline]
    pub(crate) const fn taken(&self) -> u64 {
        self.head
    }
}

#[cfg(test)]
mod tests;
