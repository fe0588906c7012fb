//! Timers for the entries of a fixed table: a hierarchical wheel with nanosecond resolution.
//!
//! Eleven levels of 64 slots cover 64 bits of time. A deadline is at the level of the highest bit in which it differs
//! from the time that the wheel has reached, in the slot selected by its six bits of that level. When the wheel reaches
//! the slot's time, its timers move to lower levels; they expire from level 0. Starting a timer, stopping it and
//! finding the next deadline are O(1), independent of the number of timers, and a timer moves at most ten times.
//!
//! Most timers of a sender never expire, and most are restarted soon: the next packet reuses the entry of the
//! acknowledged one. Therefore stopping only clears the deadline, and restarting with a later deadline only writes it.
//! A slot may contain timers without a deadline, or with a later one; they are found when the wheel reaches the slot.
//! This costs at most one check per started timer, and both operations touch one cache line: no element of the array
//! crosses a line.
//!
//! With a million timers that line comes from memory, and so does every line of an expiring slot. For this reason the
//! timers of a slot are not linked with each other, where each would have to be loaded before the next is known. They
//! are stored in chunks of one cache line with fifteen numbers each: the timers of a chunk are loaded together, with
//! overlapping accesses.
//!
//! State per timer: 128 bits (the deadline, and the position of its number), and 34 2/15 bits of a chunk with many
//! timers; [`Timers::BYTES_PER_TIMER`] is asserted. Up to 754 timers have a chunk each, because each may be in another
//! slot.
//!
//! Up to [`Timers::MAX_UNLISTED`] timers need no lists ([`Timers::compact`]): the timers themselves take no more cache lines than a search in
//! the lists would. Each of them stores its slot and its position there, and a search goes over all of them. Timers
//! expire in the same order as with lists. A simulator of thousands of nodes with one transfer each needs this.

use alloc::boxed::Box;

use crate::time::Nanos;
use fpga_registers::cast::{index, low32};

/// Value for "no timer" and "no chunk".
const NONE: u32 = u32::MAX;
/// Bits of time that one level resolves.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const SLOT_MASK: u64 = (1 << BITS) - 1;
/// Number of levels, sufficient for 64 bits of time.
const LEVELS: usize = 11;
/// Deadline of a stopped timer.
const STOPPED: u64 = u64::MAX;
/// Slot of a timer that is in no slot.
const OUTSIDE: u16 = u16::MAX;
/// Timer numbers per chunk: together with the link to the next chunk they fill one cache line.
const TIMERS_PER_CHUNK: usize = 15;

/// Fields that starting and stopping a timer touch.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Timer {
    /// Deadline; [`STOPPED`] if the timer does not run. Never earlier than the time of its slot.
    deadline: u64,
    /// Chunk that contains its number; `line`: position in the chunk.
    chunk: u32,
    line: u16,
    /// Slot, numbered level by level; [`OUTSIDE`] if it is in none.
    slot: u16,
}

const IDLE: Timer = Timer { deadline: STOPPED, chunk: NONE, line: 0, slot: OUTSIDE };

/// Timers of one slot.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct TimerChunk {
    timers: [u32; TIMERS_PER_CHUNK],
    /// Next chunk of the slot, or of the free list.
    next: u32,
}

const BLANK: TimerChunk = TimerChunk { timers: [NONE; TIMERS_PER_CHUNK], next: NONE };

/// List of a slot. All its chunks but the first are full.
#[derive(Clone, Copy, Debug)]
struct TimerSlot {
    /// Start time; undefined while the slot is empty.
    begin: u64,
    /// First chunk.
    chunk: u32,
    /// Number of timers in the first chunk.
    lines: u32,
}

const EMPTY: TimerSlot = TimerSlot { begin: 0, chunk: NONE, lines: 0 };

/// Timer wheel; see the module documentation. Timers are numbered from 0.
#[derive(Clone, Debug)]
pub struct Timers {
    timers: Box<[Timer]>,
    chunks: Box<[TimerChunk]>,
    /// First chunk of the free list.
    blank: u32,
    /// Slots, level by level; empty if there are so few timers that they need no lists.
    slots: Box<[TimerSlot]>,
    /// Per level, a bit for every slot that is not empty. All of them are ahead: the lowest one is the next.
    occupied: [u64; LEVELS],
    /// Time before which all slots are empty.
    reached: u64,
    running: u32,
}

impl Timers {
    /// Bytes per timer with many timers, rounded up: the timer and its position in a chunk. With few timers, see
    /// [`Timers::memory`].
    pub const BYTES_PER_TIMER: usize = Self::BYTES + size_of::<TimerChunk>().div_ceil(TIMERS_PER_CHUNK);
    /// Bytes of the timer itself.
    pub(crate) const BYTES: usize = size_of::<Timer>();
    /// Bytes of a chunk, and of a slot's list.
    pub(crate) const LIST_BYTES: [usize; 2] = [size_of::<TimerChunk>(), size_of::<TimerSlot>()];

    /// Maximum number of timers that need no lists: a chunk of them, so that each slot would have one chunk.
    pub const MAX_UNLISTED: u32 = low32(TIMERS_PER_CHUNK as u64);

    /// Like [`Timers::new`], but without lists for at most [`Timers::MAX_UNLISTED`] timers.
    #[must_use]
    pub fn compact(count: u32) -> Self {
        if count > Self::MAX_UNLISTED {
            return Self::new(count);
        }
        Self {
            timers: alloc::vec![IDLE; index(count)].into_boxed_slice(),
            chunks: Box::default(),
            blank: NONE,
            slots: Box::default(),
            occupied: [0; LEVELS],
            reached: 0,
            running: 0,
        }
    }

    /// Creates `count` stopped timers and allocates all memory. The last number, `u32::MAX`, does not name a timer.
    #[must_use]
    pub fn new(count: u32) -> Self {
        // In each slot only one chunk is not full, and none is empty.
        let count = index(count);
        let chunks = count.min(count / TIMERS_PER_CHUNK + LEVELS * SLOTS);
        let mut blank: Box<[TimerChunk]> = alloc::vec![BLANK; chunks].into_boxed_slice();
        for (next, chunk) in (1..).zip(blank.iter_mut()) {
            chunk.next = if index(next) < chunks { next } else { NONE };
        }
        Self {
            timers: alloc::vec![IDLE; count].into_boxed_slice(),
            chunks: blank,
            blank: if chunks == 0 { NONE } else { 0 },
            slots: alloc::vec![EMPTY; LEVELS * SLOTS].into_boxed_slice(),
            occupied: [0; LEVELS],
            reached: 0,
            running: 0,
        }
    }

    /// Returns the number of chunks and of slots: the memory beside the timers themselves.
    pub(crate) const fn chunk_count(&self) -> [u64; 2] {
        [self.chunks.len() as u64, self.slots.len() as u64]
    }

    /// Returns the bytes of the whole wheel.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        let [chunks, slots] = self.chunk_count();
        let [chunk, slot] = Self::LIST_BYTES;
        self.timers.len() as u64 * Self::BYTES as u64 + chunks * chunk as u64 + slots * slot as u64
    }

    /// Returns the number of running timers.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    /// Returns the deadline of `timer`; [`Nanos::MAX`] if it does not run.
    #[inline]
    #[must_use]
    pub fn deadline(&self, timer: u32) -> Nanos {
        self.timers.get(index(timer)).map_or(Nanos::MAX, |timer| Nanos::new(timer.deadline))
    }

    /// Starts `timer`, or changes its deadline. [`Nanos::MAX`] stops it.
    #[inline]
    pub fn start(&mut self, timer: u32, deadline: Nanos) {
        let Some(entry) = self.timers.get_mut(index(timer)) else { return };
        let deadline = deadline.get();
        self.running += u32::from(entry.deadline == STOPPED);
        self.running -= u32::from(deadline == STOPPED);
        entry.deadline = deadline;
        let slot = entry.slot;
        if slot == OUTSIDE {
            self.insert(timer, deadline);
        } else if deadline < self.begin_of(usize::from(slot)) {
            self.remove(timer);
            self.insert(timer, deadline);
        }
    }

    /// Stops `timer`; no effect on a stopped one.
    #[inline]
    pub fn stop(&mut self, timer: u32) {
        if let Some(entry) = self.timers.get_mut(index(timer))
            && entry.deadline != STOPPED
        {
            entry.deadline = STOPPED;
            self.running -= 1;
        }
    }

    /// Returns a lower bound of the next deadline; `None` if no timer runs. It may be early, because of timers that
    /// were stopped or changed, or that are more than 64 ns away; [`Timers::expired`] then finds no timer and corrects
    /// it.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        if self.running == 0 {
            return None;
        }
        self.first().map(|(_, time)| Nanos::new(time))
    }

    /// Returns the next timer whose deadline has passed; it is stopped. `None` ends the pass.
    pub fn expired(&mut self, now: Nanos) -> Option<u32> {
        let now = now.get();
        while self.running != 0 {
            let (at, time) = self.first()?;
            if time > now {
                // All slots lie beyond `now` and keep their positions.
                self.reached = self.reached.max(now);
                return None;
            }
            self.reached = self.reached.max(time);
            // Only a slot of level 0 holds expired timers. A slot of a higher level is emptied completely, because
            // timers that stay in it would not be found from now on.
            if at >= SLOTS {
                self.redistribute(at);
                continue;
            }
            while let Some(timer) = self.take(at) {
                let deadline = self.timers[index(timer)].deadline;
                if deadline > self.reached {
                    self.insert(timer, deadline);
                } else {
                    self.timers[index(timer)].deadline = STOPPED;
                    self.running -= 1;
                    return Some(timer);
                }
            }
        }
        None
    }

    /// Returns the first slot that is not empty, and its start time.
    #[inline]
    fn first(&self) -> Option<(usize, u64)> {
        let at = if self.slots.is_empty() {
            let slots = self.timers.iter().map(|timer| timer.slot);
            usize::from(slots.min().filter(|slot| *slot != OUTSIDE)?)
        } else {
            // The lowest level with an occupied slot: levels follow each other in time.
            let level = self.occupied.iter().position(|slots| *slots != 0)?;
            level * SLOTS + index(self.occupied.get(level)?.trailing_zeros())
        };
        Some((at, self.begin_of(at)))
    }

    /// Returns the start time of a slot that is not empty. It is computed, because the slot itself is rarely in a cache.
    #[inline]
    fn begin_of(&self, at: usize) -> u64 {
        // All bits above those of the level are those of the time reached, which never passes a slot that is not empty.
        let shift = low32((at / SLOTS) as u64) * BITS;
        let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        let begin = self.reached & above | ((at % SLOTS) as u64) << shift;
        debug_assert!(self.slots.get(at).is_none_or(|slot| slot.begin == begin), "a slot has passed");
        begin
    }

    /// Returns the slot of `time`, relative to the time reached, and its start time.
    #[inline]
    fn slot_of(&self, time: u64) -> (usize, u64) {
        let differing = time ^ self.reached;
        // Equal times: treated as a difference in bit 0, which is level 0.
        let level = (63 - (differing | 1).leading_zeros()) / BITS;
        let shift = level * BITS;
        let slot = low32(time >> shift & SLOT_MASK);
        (index(level) * SLOTS + index(slot), time >> shift << shift)
    }

    #[inline]
    fn insert(&mut self, timer: u32, deadline: u64) {
        if deadline == STOPPED {
            return;
        }
        let (at, begin) = self.slot_of(deadline.max(self.reached));
        if self.slots.is_empty() {
            let line = self.timers.iter().filter(|other| usize::from(other.slot) == at).count();
            #[expect(clippy::cast_possible_truncation, reason = "fifteen timers, 704 slots")]
            let entry = Timer { deadline, chunk: NONE, line: line as u16, slot: at as u16 };
            self.timers[index(timer)] = entry;
            return;
        }
        let slot = &mut self.slots[at];
        if slot.chunk == NONE || index(slot.lines) == TIMERS_PER_CHUNK {
            let chunk = self.blank;
            self.blank = core::mem::replace(&mut self.chunks[index(chunk)].next, slot.chunk);
            *slot = TimerSlot { begin, chunk, lines: 0 };
            self.occupied[at / SLOTS] |= 1 << (at % SLOTS);
        }
        let line = slot.lines;
        slot.lines += 1;
        self.chunks[index(slot.chunk)].timers[index(line)] = timer;
        #[expect(clippy::cast_possible_truncation, reason = "fifteen lines, 704 slots")]
        let entry = Timer { deadline, chunk: slot.chunk, line: line as u16, slot: at as u16 };
        self.timers[index(timer)] = entry;
    }

    /// Removes a timer from its slot. The last timer of the first chunk takes its position: only that chunk is not
    /// full.
    fn remove(&mut self, timer: u32) {
        let Timer { chunk, line, slot, .. } = self.timers[index(timer)];
        let Some(last) = self.take(usize::from(slot)) else { return };
        if last != timer {
            if let Some(chunk) = self.chunks.get_mut(index(chunk)) {
                chunk.timers[usize::from(line)] = last;
            }
            let entry = &mut self.timers[index(last)];
            (entry.chunk, entry.line, entry.slot) = (chunk, line, slot);
            self.timers[index(timer)].slot = OUTSIDE;
        }
    }

    /// Removes one timer from slot `at`: the last one of its first chunk.
    fn take(&mut self, at: usize) -> Option<u32> {
        if self.slots.is_empty() {
            let own = (0..).zip(self.timers.iter_mut()).filter(|(_, timer)| usize::from(timer.slot) == at);
            let (number, timer) = own.max_by_key(|(_, timer)| timer.line)?;
            timer.slot = OUTSIDE;
            return Some(number);
        }
        let slot = &mut self.slots[at];
        if slot.chunk == NONE {
            return None;
        }
        slot.lines -= 1;
        let timer = self.chunks[index(slot.chunk)].timers[index(slot.lines)];
        if slot.lines == 0 {
            self.drop_chunk(at);
        }
        self.timers[index(timer)].slot = OUTSIDE;
        Some(timer)
    }

    /// Frees the first chunk of slot `at`; the next one, which is full, becomes the first.
    fn drop_chunk(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        let next = core::mem::replace(&mut self.chunks[index(slot.chunk)].next, self.blank);
        self.blank = core::mem::replace(&mut slot.chunk, next);
        #[expect(clippy::cast_possible_truncation, reason = "fifteen")]
        let full = TIMERS_PER_CHUNK as u32;
        slot.lines = full;
        if next == NONE {
            self.occupied[at / SLOTS] &= !(1 << (at % SLOTS));
        }
    }

    /// Moves the timers of slot `at`, whose time has come, to their new slots. It works chunk by chunk, so that the
    /// memory accesses overlap.
    fn redistribute(&mut self, at: usize) {
        if self.slots.is_empty() {
            return self.redistribute_unlisted(at);
        }
        loop {
            let TimerSlot { chunk, lines, .. } = self.slots[at];
            if chunk == NONE {
                break;
            }
            let TimerChunk { timers, .. } = self.chunks[index(chunk)];
            self.drop_chunk(at);
            let mut deadlines = [STOPPED; TIMERS_PER_CHUNK];
            for (timer, deadline) in timers.iter().zip(&mut deadlines).take(index(lines)) {
                *deadline = self.timers[index(*timer)].deadline;
            }
            for (timer, deadline) in timers.iter().zip(deadlines).take(index(lines)) {
                self.timers[index(*timer)].slot = OUTSIDE;
                self.insert(*timer, deadline);
            }
        }
    }

    /// Like [`Self::redistribute`], without lists: in order of the positions in the slot.
    fn redistribute_unlisted(&mut self, at: usize) {
        let mut own = [NONE; TIMERS_PER_CHUNK];
        for (number, timer) in (0..).zip(self.timers.iter_mut()) {
            if usize::from(timer.slot) == at {
                timer.slot = OUTSIDE;
                own[usize::from(timer.line)] = number;
            }
        }
        for number in own.into_iter().filter(|number| *number != NONE) {
            let deadline = self.timers[index(number)].deadline;
            self.insert(number, deadline);
        }
    }
}

const _: () =
    assert!(size_of::<Timer>() * 8 == 128 && size_of::<TimerChunk>() == 64, "documented in the module");

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Start(u32, u64),
        Stop(u32),
        Pass(u64),
    }

    /// Spans of all orders of magnitude.
    fn span() -> impl Strategy<Value = u64> {
        (0u32..40, any::<u64>()).prop_map(|(bits, any)| any & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u32..12, span()).prop_map(|(timer, span)| Step::Start(timer, span)),
            2 => (0u32..12).prop_map(Step::Stop),
            3 => span().prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// Compares with a plain map: exactly the timers whose deadline has passed expire, none twice and none early,
        /// and the next deadline is never returned too late; also with deadlines in the past and a start far from zero.
        #[test]
        fn timers_match_map(lists: bool, begin in prop_oneof![Just(0u64), any::<u64>().prop_map(|n| n >> 1)],
                             steps in prop::collection::vec(step(), 1..300)) {
            let mut timers = if lists { Timers::new(12) } else { Timers::compact(12) };
            let mut map = BTreeMap::new();
            let mut now = begin;
            for step in steps {
                match step {
                    Step::Start(timer, span) => {
                        // Every second deadline lies before now.
                        let deadline = if timer & 1 == 0 { now + span } else { now.saturating_sub(span & 1023) };
                        timers.start(timer, Nanos::new(deadline));
                        map.insert(timer, deadline);
                    }
                    Step::Stop(timer) => {
                        timers.stop(timer);
                        map.remove(&timer);
                    }
                    Step::Pass(span) => {
                        now += span;
                        let mut due: Vec<u32> = map.iter().filter(|(_, at)| **at <= now).map(|(n, _)| *n).collect();
                        map.retain(|_, at| *at > now);
                        let mut found: Vec<u32> = core::iter::from_fn(|| timers.expired(Nanos::new(now))).collect();
                        found.sort_unstable();
                        due.sort_unstable();
                        prop_assert_eq!(found, due);
                        prop_assert!(timers.next().is_none_or(|at| at > Nanos::new(now)));
                    }
                }
                prop_assert_eq!(timers.running() as usize, map.len());
                match map.values().min() {
                    None => prop_assert_eq!(timers.next(), None),
                    Some(first) => prop_assert!(timers.next().unwrap() <= Nanos::new((*first).max(now))),
                }
                for timer in 0..12 {
                    let deadline = map.get(&timer).map_or(Nanos::MAX, |at| Nanos::new(*at));
                    prop_assert_eq!(timers.deadline(timer), deadline);
                }
            }
        }

        /// Few timers, which have no lists, give the same times and the same order as with lists.
        #[test]
        fn timers_without_lists_match_those_with_lists(begin in prop_oneof![Just(0u64), any::<u64>().prop_map(|n| n >> 1)],
                                                        steps in prop::collection::vec(step(), 1..300)) {
            let (mut few, mut listed) = (Timers::compact(12), Timers::new(12));
            let mut now = begin;
            for step in steps {
                for timers in [&mut few, &mut listed] {
                    match step {
                        Step::Start(timer, span) => {
                            let deadline = if timer & 1 == 0 { now + span } else { now.saturating_sub(span & 1023) };
                            timers.start(timer, Nanos::new(deadline));
                        }
                        Step::Stop(timer) => timers.stop(timer),
                        Step::Pass(_) => {}
                    }
                }
                if let Step::Pass(span) = step {
                    now += span;
                    loop {
                        let (found, expected) = (few.expired(Nanos::new(now)), listed.expired(Nanos::new(now)));
                        prop_assert_eq!(found, expected);
                        if found.is_none() {
                            break;
                        }
                    }
                }
                prop_assert_eq!(few.next(), listed.next());
            }
        }

        /// A caller that sleeps until `next` each time wakes a bounded number of times per timer, and misses none.
        #[test]
        fn timers_next_deadline_reaches_every_timer_in_bounded_wakes(spans in prop::collection::vec(span(), 1..60)) {
            let mut timers = Timers::new(60);
            for (timer, span) in (0..).zip(&spans) {
                timers.start(timer, Nanos::new(*span));
            }
            let (mut found, mut wakes) = (0, 0);
            while let Some(at) = timers.next() {
                wakes += 1;
                while let Some(timer) = timers.expired(at) {
                    prop_assert_eq!(spans[timer as usize], at.get());
                    found += 1;
                }
            }
            prop_assert_eq!(found, spans.len());
            prop_assert!(wakes <= spans.len() * LEVELS);
        }
    }

    #[test]
    fn timers_out_of_range_number_is_ignored() {
        let mut timers = Timers::new(1);
        timers.start(1, Nanos::ZERO);
        timers.start(u32::MAX, Nanos::ZERO);
        timers.stop(7);
        assert_eq!((timers.running(), timers.expired(Nanos::MAX)), (0, None));
        timers.start(0, Nanos::MAX);
        assert_eq!(timers.running(), 0);
        timers.start(0, Nanos::new(u64::MAX - 1));
        assert_eq!(timers.expired(Nanos::MAX), Some(0));
    }
}
