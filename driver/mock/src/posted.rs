//! Posted register writes on their way to a card that runs in a thread of its own.
//!
//! As on PCI Express: a writer does not wait, writes of one thread arrive in order, and whoever reads afterwards finds
//! them done. A bounded ring of slots, many writers, one reader. The reader looks at one cache line, which nobody touches
//! unless something is posted.

use crossbeam::utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes on their way at once; further writers wait, as for flow-control credits of a link.
const CAPACITY: u64 = 256;
/// The reader tells writers how far it is after so many writes at the latest.
const TELL_EVERY: u64 = 32;
/// Largest offset in a BAR that a slot holds.
pub(crate) const LAST_OFFSET: u64 = (1 << 29) - 4;

/// One write: where it goes, then its value under a stamp that says in which round of the ring it was written.
#[derive(Debug, Default)]
struct Slot {
    /// Generation 63:32, BAR 31:29, offset 28:0.
    place: AtomicU64,
    /// Round 63:32 (from 1), value 31:0. Stored last.
    stamped: AtomicU64,
}

/// A posted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) generation: u32,
    pub(crate) bar: u8,
    pub(crate) offset: u64,
    pub(crate) value: u32,
}

/// The writers' side, and the slots.
#[derive(Debug)]
pub(crate) struct Posted {
    slots: Box<[Slot]>,
    /// Slots handed out to writers. The reader does not look at it in passing.
    tail: CachePadded<AtomicU64>,
    /// Slots that the reader is done with.
    freed: CachePadded<AtomicU64>,
}

/// The reader's place in the ring; it lives with what the writes are applied to.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    head: u64,
    told: u64,
}

const fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The stamp of ticket `number`.
const fn round(number: u64) -> u32 {
    low(number / CAPACITY + 1)
}

impl Posted {
    pub(crate) fn new() -> Self {
        let mut slots = Vec::new();
        slots.resize_with(usize::try_from(CAPACITY).unwrap_or(0), Slot::default);
        Self {
            slots: slots.into_boxed_slice(),
            tail: CachePadded::new(AtomicU64::new(0)),
            freed: CachePadded::new(AtomicU64::new(0)),
        }
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(number % CAPACITY).ok()?)
    }

    /// Posts a write whose offset is at most [`LAST_OFFSET`]. Where all slots are taken, `wait` is called until one is free; it
    /// says false when there is no reader any more.
    pub(crate) fn push(&self, write: Write, mut wait: impl FnMut() -> bool) {
        let number = self.tail.fetch_add(1, Ordering::Relaxed);
        while number - self.freed.load(Ordering::Acquire) >= CAPACITY {
            if !wait() {
                return;
            }
        }
        let place =
            u64::from(write.generation) << 32 | u64::from(write.bar & 7) << 29 | write.offset & 0x1FFF_FFFF;
        if let Some(slot) = self.slot(number) {
            slot.place.store(place, Ordering::Relaxed);
            let stamped = u64::from(round(number)) << 32 | u64::from(write.value);
            // Everything that the writer stored before, descriptors in memory among it, is visible to who sees the stamp.
            slot.stamped.store(stamped, Ordering::Release);
        }
    }

    /// Slots handed out so far.
    pub(crate) fn issued(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// The next write, if it has arrived.
    #[inline]
    pub(crate) fn pop(&self, reader: &mut Reader) -> Option<Write> {
        let slot = self.slot(reader.head)?;
        let stamped = slot.stamped.load(Ordering::Acquire);
        if low(stamped >> 32) != round(reader.head) {
            self.tell(reader);
            return None;
        }
        let place = slot.place.load(Ordering::Relaxed);
        reader.head += 1;
        if reader.head - reader.told >= TELL_EVERY {
            self.tell(reader);
        }
        let [.., top] = low(place).to_le_bytes();
        Some(Write {
            generation: low(place >> 32),
            bar: top >> 5,
            offset: place & 0x1FFF_FFFF,
            value: low(stamped),
        })
    }

    #[inline]
    fn tell(&self, reader: &mut Reader) {
        if reader.told != reader.head {
            reader.told = reader.head;
            self.freed.store(reader.head, Ordering::Release);
        }
    }

    /// Whether the reader has taken everything that was handed out up to `issued`.
    pub(crate) const fn is_past(reader: &Reader, issued: u64) -> bool {
        reader.head >= issued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u32) -> Write {
        Write {
            generation: value ^ 0x5555,
            bar: (value % 6) as u8,
            offset: u64::from(value % 1000) * 4,
            value,
        }
    }

    #[test]
    fn what_goes_in_comes_out_in_order_round_after_round() {
        let posted = Posted::new();
        let mut reader = Reader::default();
        assert_eq!(posted.pop(&mut reader), None);
        for n in 0..10_000 {
            posted.push(write(n), || unreachable!("there is room"));
            if n % 3 == 0 {
                posted.push(write(n + 1_000_000), || unreachable!("there is room"));
                assert_eq!(posted.pop(&mut reader), Some(write(n)));
                assert_eq!(posted.pop(&mut reader), Some(write(n + 1_000_000)));
            } else {
                assert_eq!(posted.pop(&mut reader), Some(write(n)));
            }
            assert_eq!(posted.pop(&mut reader), None);
            assert!(Posted::is_past(&reader, posted.issued()));
        }
        let last = Write { generation: u32::MAX, bar: 5, offset: LAST_OFFSET, value: u32::MAX };
        posted.push(last, || unreachable!("there is room"));
        assert_eq!(posted.pop(&mut reader), Some(last));
    }

    #[test]
    fn a_writer_waits_for_room_and_gives_up_without_a_reader() {
        let posted = Posted::new();
        for n in 0..256 {
            posted.push(write(n), || unreachable!("there is room"));
        }
        let mut asked = 0;
        posted.push(write(256), || {
            asked += 1;
            asked < 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    fn writers_keep_their_own_order() {
        const EACH: u32 = 20_000;
        let posted = Posted::new();
        let mut reader = Reader::default();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let posted = &posted;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let write = Write { generation: writer, bar: 0, offset: 0, value: n };
                        posted.push(write, || {
                            std::thread::yield_now();
                            true
                        });
                    }
                });
            }
            let mut next = [0; 3];
            while next.iter().sum::<u32>() < 3 * EACH {
                let Some(write) = posted.pop(&mut reader) else {
                    std::thread::yield_now();
                    continue;
                };
                let expected = &mut next[write.generation as usize];
                assert_eq!(write.value, *expected);
                *expected += 1;
            }
        });
    }
}
