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
//! most, and keeps both operations to one cache line: what they touch is in an array of its own, of which no element lies in two
//! lines. What only moves touch is in another one, a third of the whole, because a slot's timers are found by following links,
//! one after the other, and the nearer the memory that these are in, the shorter each wait. The deadlines on the way do not wait
//! for each other.
//!
//! State per timer: 192 bits (the place and the deadline, two links); [`Timers::BYTES_PER_TIMER`] is asserted.

use alloc::boxed::Box;

use crate::cast::{index, low32};
use crate::time::Nanos;

/// "No timer".
const NONE: u32 = u32::MAX;
/// Bits of time that one level resolves.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const SLOT_MASK: u64 = (1 << BITS) - 1;
/// Enough for 64 bits of time.
const LEVELS: usize = 11;
/// Not running, or not in the wheel.
const NEVER: u64 = u64::MAX;

/// What starting and stopping touch.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Times {
    /// The time by which it was put where it is; [`NEVER`] if it is in no slot. Never later than the deadline.
    place: u64,
    /// [`NEVER`] if it does not run.
    deadline: u64,
}

/// Neighbours in the slot.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    previous: u32,
    next: u32,
}

const IDLE: Times = Times { place: NEVER, deadline: NEVER };
const ALONE: Neighbours = Neighbours { previous: NONE, next: NONE };

/// The wheel; see the module's description. Timers are named by number, from 0.
#[derive(Clone, Debug)]
pub struct Timers {
    times: Box<[Times]>,
    neighbours: Box<[Neighbours]>,
    /// First timer of every slot, level by level.
    slots: Box<[u32]>,
    /// Per level, a bit for every slot that is not empty. They all lie ahead: the first is the next.
    occupied: [u64; LEVELS],
    /// All slots before this time are empty.
    reached: u64,
    running: u32,
}

impl Timers {
    /// Memory of one timer.
    pub const BYTES_PER_TIMER: usize = size_of::<Times>() + size_of::<Neighbours>();

    /// `count` timers, none of them running. Everything is allocated here. The last number, `u32::MAX`, names none.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            times: alloc::vec![IDLE; index(count)].into_boxed_slice(),
            neighbours: alloc::vec![ALONE; index(count)].into_boxed_slice(),
            slots: alloc::vec![NONE; LEVELS * SLOTS].into_boxed_slice(),
            occupied: [0; LEVELS],
            reached: 0,
            running: 0,
        }
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
        self.times.get(index(timer)).map_or(Nanos::MAX, |times| Nanos::new(times.deadline))
    }

    /// Starts `timer`, or moves its deadline. [`Nanos::MAX`] stops it.
    #[inline]
    pub fn start(&mut self, timer: u32, deadline: Nanos) {
        let Some(times) = self.times.get_mut(index(timer)) else { return };
        let deadline = deadline.get();
        self.running += u32::from(times.deadline == NEVER);
        self.running -= u32::from(deadline == NEVER);
        times.deadline = deadline;
        if times.place == NEVER {
            self.enter(timer, deadline);
        } else if deadline < times.place {
            self.leave(timer);
            self.enter(timer, deadline);
        }
    }

    /// Stops `timer`, whether it runs or not.
    #[inline]
    pub fn stop(&mut self, timer: u32) {
        if let Some(times) = self.times.get_mut(index(timer))
            && times.deadline != NEVER
        {
            times.deadline = NEVER;
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
            while let Some(timer) = self.take(at) {
                let times = &mut self.times[index(timer)];
                let deadline = times.deadline;
                if deadline == NEVER {
                    continue;
                }
                // Only a slot of level 0 can hold what has run out; one above is emptied in one go, because what is left in
                // it would not be found where it belongs from now on.
                if deadline <= self.reached && at < SLOTS {
                    times.deadline = NEVER;
                    self.running -= 1;
                    return Some(timer);
                }
                self.enter(timer, deadline);
            }
        }
        None
    }

    /// The first slot that is not empty, and when it begins.
    #[inline]
    fn first(&self) -> Option<(usize, u64)> {
        // The lowest level that has any: levels lie behind each other in time.
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        let slot = self.occupied.get(level)?.trailing_zeros();
        let shift = u32::try_from(level).ok()? * BITS;
        // What lies above this level's bits is common to the slot and the time reached.
        let above = self
            .reached
            .checked_shr(shift + BITS)
            .and_then(|high| high.checked_shl(shift + BITS))
            .unwrap_or(0);
        Some((level * SLOTS + index(slot), above | u64::from(slot) << shift))
    }

    /// The slot of `time`, seen from the time reached.
    #[inline]
    fn slot_of(&self, time: u64) -> usize {
        let differing = time ^ self.reached;
        // Zero differs in "bit 0": level 0.
        let level = (63 - (differing | 1).leading_zeros()) / BITS;
        let slot = low32(time >> (level * BITS) & SLOT_MASK);
        index(level) * SLOTS + index(slot)
    }

    #[inline]
    fn enter(&mut self, timer: u32, deadline: u64) {
        if deadline == NEVER {
            return;
        }
        let place = deadline.max(self.reached);
        let at = self.slot_of(place);
        let head = core::mem::replace(&mut self.slots[at], timer);
        if head == NONE {
            self.occupied[at / SLOTS] |= 1 << (at % SLOTS);
        } else {
            self.neighbours[index(head)].previous = timer;
        }
        self.neighbours[index(timer)] = Neighbours { previous: NONE, next: head };
        self.times[index(timer)].place = place;
    }

    /// Takes a timer out of the slot that it is in.
    fn leave(&mut self, timer: u32) {
        let Neighbours { previous, next } = self.neighbours[index(timer)];
        if previous == NONE {
            let at = self.slot_of(self.times[index(timer)].place);
            self.slots[at] = next;
            if next == NONE {
                self.occupied[at / SLOTS] &= !(1 << (at % SLOTS));
            }
        } else {
            self.neighbours[index(previous)].next = next;
        }
        if next != NONE {
            self.neighbours[index(next)].previous = previous;
        }
        self.times[index(timer)].place = NEVER;
    }

    /// Takes the first timer out of slot `at`.
    fn take(&mut self, at: usize) -> Option<u32> {
        let timer = self.slots[at];
        if timer == NONE {
            return None;
        }
        let next = self.neighbours[index(timer)].next;
        self.slots[at] = next;
        if next == NONE {
            self.occupied[at / SLOTS] &= !(1 << (at % SLOTS));
        } else {
            self.neighbours[index(next)].previous = NONE;
        }
        self.times[index(timer)].place = NEVER;
        Some(timer)
    }
}

const _: () = assert!(Timers::BYTES_PER_TIMER * 8 == 192, "the module's description says 192 bits");

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
        fn agrees_with_a_map(begin in prop_oneof![Just(0u64), any::<u64>().prop_map(|n| n >> 1)],
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
        fn next_leads_to_every_timer(spans in prop::collection::vec(span(), 1..60)) {
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
    fn what_is_out_of_range_is_ignored() {
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
