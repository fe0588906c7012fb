//! Timers for the entries of a fixed table: a hierarchical wheel to the nanosecond.
//!
//! Eleven levels of 64 slots cover 64 bits of time. A deadline lies at the level of the highest bit in which it differs from
//! the time that the wheel has reached, in the slot that its six bits there name; when that slot's time comes, its timers
//! move to lower levels, and from level 0 they run out. So starting and stopping a timer, and the time until the next, are
//! O(1) whatever the number of timers, and a timer moves at most ten times in its life.
//!
//! Most timers of a sender never run out, and most are started again soon: the next packet takes the acknowledged one's
//! place. Therefore stopping only clears the deadline, and starting again later only writes the new one. What lies in a slot
//! without a deadline, or with a later one, is found when the slot's time comes. This costs one look per started timer at
//! most, and keeps both operations to one cache line: of the array that they touch no element lies in two lines.
//!
//! With a million timers that line comes from memory, and so does every one that a slot's time asks for. What is in a slot is
//! therefore not linked from timer to timer, where each would have to arrive before the next is known, but written down in
//! chunks of a cache line, fifteen numbers each: the timers of a chunk are asked for together, and memory answers at once.
//!
//! State per timer: 128 bits (the deadline, and where its number is written), and 34 2/15 bits of a chunk where there are many;
//! [`Timers::BYTES_PER_TIMER`] is asserted. Up to 754 timers have a chunk each, because each may be in another slot.

use alloc::boxed::Box;

use crate::time::Nanos;
use fpga_registers::cast::{index, low32};

/// "No timer", "no chunk".
const NONE: u32 = u32::MAX;
/// Bits of time that one level resolves.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const SLOT_MASK: u64 = (1 << BITS) - 1;
/// Enough for 64 bits of time.
const LEVELS: usize = 11;
/// Not running.
const STOPPED: u64 = u64::MAX;
/// In no slot.
const OUTSIDE: u16 = u16::MAX;
/// Numbers on a chunk: with the link to the next one a line of the cache.
const TIMERS_PER_CHUNK: usize = 15;

/// What starting and stopping touch.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Timer {
    /// [`STOPPED`] if it does not run. Never earlier than the slot that it is in.
    deadline: u64,
    /// The chunk that it is written on, and where there.
    chunk: u32,
    line: u16,
    /// The slot, level by level; [`OUTSIDE`] if it is in none.
    slot: u16,
}

const IDLE: Timer = Timer { deadline: STOPPED, chunk: NONE, line: 0, slot: OUTSIDE };

/// Timers of one slot.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct TimerChunk {
    timers: [u32; TIMERS_PER_CHUNK],
    /// The slot's next chunk; of a chunk that is not in use, the next such one.
    next: u32,
}

const BLANK: TimerChunk = TimerChunk { timers: [NONE; TIMERS_PER_CHUNK], next: NONE };

/// A slot's list. All its chunks are full but the first.
#[derive(Clone, Copy, Debug)]
struct TimerSlot {
    /// When its time comes; of no meaning while it is empty.
    begin: u64,
    /// The first chunk.
    chunk: u32,
    /// Timers on that.
    lines: u32,
}

const EMPTY: TimerSlot = TimerSlot { begin: 0, chunk: NONE, lines: 0 };

/// The wheel; see the module's description. Timers are named by number, from 0.
#[derive(Clone, Debug)]
pub struct Timers {
    timers: Box<[Timer]>,
    chunks: Box<[TimerChunk]>,
    /// The first chunk that is not in use.
    blank: u32,
    /// Level by level.
    slots: Box<[TimerSlot]>,
    /// Per level, a bit for every slot that is not empty. They all lie ahead: the first is the next.
    occupied: [u64; LEVELS],
    /// All slots before this time are empty.
    reached: u64,
    running: u32,
}

impl Timers {
    /// Memory of one timer of very many, rounded up: itself and its line of a chunk. Of few, see [`Timers::memory`].
    pub const BYTES_PER_TIMER: usize = Self::BYTES + size_of::<TimerChunk>().div_ceil(TIMERS_PER_CHUNK);
    /// Of which it has so many by itself.
    pub(crate) const BYTES: usize = size_of::<Timer>();
    /// Bytes of a chunk, and of the beginning of a slot's list.
    pub(crate) const LIST_BYTES: [usize; 2] = [size_of::<TimerChunk>(), size_of::<TimerSlot>()];

    /// `count` timers, none of them running. Everything is allocated here. The last number, `u32::MAX`, names none.
    #[must_use]
    pub fn new(count: u32) -> Self {
        // In each slot one chunk is not full, and none is blank.
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

    /// Sheets that there are, and beginnings of lists: what there is beside the timers themselves.
    pub(crate) const fn chunk_count(&self) -> [u64; 2] {
        [self.chunks.len() as u64, self.slots.len() as u64]
    }

    /// Bytes of all of it.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        let [chunks, slots] = self.chunk_count();
        let [chunk, slot] = Self::LIST_BYTES;
        self.timers.len() as u64 * Self::BYTES as u64 + chunks * chunk as u64 + slots * slot as u64
    }

    /// Timers that run.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    /// When `timer` runs out; [`Nanos::MAX`] if it does not run.
    #[inline]
    #[must_use]
    pub fn deadline(&self, timer: u32) -> Nanos {
        self.timers.get(index(timer)).map_or(Nanos::MAX, |timer| Nanos::new(timer.deadline))
    }

    /// Starts `timer`, or moves its deadline. [`Nanos::MAX`] stops it.
    #[inline]
    pub fn start(&mut self, timer: u32, deadline: Nanos) {
        let Some(entry) = self.timers.get_mut(index(timer)) else { return };
        let deadline = deadline.get();
        self.running += u32::from(entry.deadline == STOPPED);
        self.running -= u32::from(deadline == STOPPED);
        entry.deadline = deadline;
        match self.slots.get(usize::from(entry.slot)) {
            None => self.insert(timer, deadline),
            Some(slot) if deadline < slot.begin => {
                self.remove(timer);
                self.insert(timer, deadline);
            }
            Some(_) => {}
        }
    }

    /// Stops `timer`, whether it runs or not.
    #[inline]
    pub fn stop(&mut self, timer: u32) {
        if let Some(entry) = self.timers.get_mut(index(timer))
            && entry.deadline != STOPPED
        {
            entry.deadline = STOPPED;
            self.running -= 1;
        }
    }

    /// A time before which no timer runs out; `None` if none runs. It may be early, because of timers that were stopped or
    /// moved, or that lie further away than 64 ns; [`Timers::expired`] then finds nothing and corrects it.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        if self.running == 0 {
            return None;
        }
        self.first().map(|(_, time)| Nanos::new(time))
    }

    /// One timer after another whose deadline has come; it does not run any more then. `None` ends the pass.
    pub fn expired(&mut self, now: Nanos) -> Option<u32> {
        let now = now.get();
        while self.running != 0 {
            let (at, time) = self.first()?;
            if time > now {
                // Nothing lies between: every slot stays where it is.
                self.reached = self.reached.max(now);
                return None;
            }
            self.reached = self.reached.max(time);
            // Only a slot of level 0 can hold what has run out; one above is emptied in one go, because what is left in it
            // would not be found where it belongs from now on.
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

    /// The first slot that is not empty, and when it begins.
    #[inline]
    fn first(&self) -> Option<(usize, u64)> {
        // The lowest level that has any: levels lie behind each other in time.
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        let at = level * SLOTS + index(self.occupied.get(level)?.trailing_zeros());
        Some((at, self.slots.get(at)?.begin))
    }

    /// The slot of `time`, seen from the time reached, and when it begins.
    #[inline]
    fn slot_of(&self, time: u64) -> (usize, u64) {
        let differing = time ^ self.reached;
        // Zero differs in "bit 0": level 0.
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

    /// Takes a timer out of the slot that it is in. The last of the first chunk takes its place: only that one is not full.
    fn remove(&mut self, timer: u32) {
        let Timer { chunk, line, slot, .. } = self.timers[index(timer)];
        let Some(last) = self.take(usize::from(slot)) else { return };
        if last != timer {
            self.chunks[index(chunk)].timers[usize::from(line)] = last;
            let entry = &mut self.timers[index(last)];
            (entry.chunk, entry.line, entry.slot) = (chunk, line, slot);
            self.timers[index(timer)].slot = OUTSIDE;
        }
    }

    /// Takes one timer out of slot `at`: the last on its first chunk.
    fn take(&mut self, at: usize) -> Option<u32> {
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

    /// The first chunk of slot `at` is blank again; the next, which is full, is the first.
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

    /// The timers of slot `at`, whose time has come, to where they belong from now on: chunk by chunk, so that what is in memory is
    /// asked for before the first answer is needed.
    fn redistribute(&mut self, at: usize) {
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
}

const _: () = assert!(
    size_of::<Timer>() * 8 == 128 && size_of::<TimerChunk>() == 64,
    "the module's description says so"
);

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

    /// Spans of every order of magnitude.
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
        /// Against a plain map: exactly those run out whose deadline has come, none twice, none early, and the next is never
        /// announced too late; also with deadlines in the past and a start far from zero.
        #[test]
        fn timers_match_map(begin in prop_oneof![Just(0u64), any::<u64>().prop_map(|n| n >> 1)],
                             steps in prop::collection::vec(step(), 1..300)) {
            let mut timers = Timers::new(12);
            let mut map = BTreeMap::new();
            let mut now = begin;
            for step in steps {
                match step {
                    Step::Start(timer, span) => {
                        // One in two even before now.
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

        /// Whoever sleeps until `next` each time wakes a bounded number of times per timer, and misses none.
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
