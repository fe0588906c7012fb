//! Every state that two ends can reach: each state once.
//!
//! The network keeps what is in it as a set without order, so every order of arrival is tried; it may lose and double a few of
//! them, data or answers. Either end's timer fires when nothing is in flight, and a few times although something is.
//!
//! A hang is looked for where nothing is in flight: from each such state, a network that does nothing wrong any more has to
//! bring both ends to their end. Where time stands still, states do not differ by it: timers of no length may fire at any
//! time, which is more than any timer does. Where it passes, states that differ in nothing but the time of day are the same:
//! points of time are told apart by how far from now they are.
//!
//! # What is not looked at twice, and why nothing is missed
//!
//! * *A loss is put off until nothing else is in flight.* A packet that will be lost and is still under way changes nothing for
//!   anybody: arrivals do not depend on it. All that does is a timer that waits for silence, so the losses of a path can move up to
//!   the next such timer, where what is left in the network is what was lost.
//! * *A copy is made when its original arrives.* Until then two of a packet are no other than one.
//! * *Who may do more has done everything that others may.* A state that was seen with at least as many losses, copies and early
//!   timers left leads to all that it leads to with fewer. So one search with two losses and a copy is also those with one of them.
//! * *Behind completion packets are all alike.* Each of them makes whoever holds the end say "done". That a complete end takes
//!   none of them, its timers rest and it stays complete is asked of it, once for each state in which it becomes complete.

use fpga_protocol::Nanos;
use fpga_protocol::scheme::{Answer, Disposition, MessageReceiver, MessageSender, Packet};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What the network and the clock may do on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FaultBudget {
    pub(crate) losses: u8,
    pub(crate) copies: u8,
    pub(crate) early: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State<S, R> {
    sender: S,
    receiver: R,
    data: Vec<Packet>,
    answers: Vec<Answer>,
    /// What the destination's memory holds: bit `i`, if packet `i`'s payload is at its place. Where else would it be: whoever carries
    /// packets writes by their numbers.
    written: u32,
    /// The same of this sending of the message alone, and which one it is.
    round: (u8, u32),
    left: FaultBudget,
    now: Nanos,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchResult {
    pub(crate) states: usize,
    /// Ends of paths at which both ends are done.
    pub(crate) finished: usize,
    /// States without anything in flight from which a good network does not bring both ends to their end.
    pub(crate) hangs: usize,
    /// Completions, on either side, while a packet was missing.
    pub(crate) false_completions: usize,
    /// Writes after completion on either side, beyond the range, or of what this sending of the message has written before.
    pub(crate) bad_writes: usize,
    /// Packets that the message does not have, that say wrongly whether they are its tail, or that leave a sender that is done.
    pub(crate) bad_packets: usize,
    /// Complete ends that would take a packet, or wait for something.
    pub(crate) bad_ends: usize,
}

impl SearchResult {
    /// What must never be.
    pub(crate) const fn faults(&self) -> [usize; 5] {
        [self.hangs, self.false_completions, self.bad_writes, self.bad_packets, self.bad_ends]
    }
}

/// When the clock begins: so late that no span of time is as long as half of it, and a number says which of both it is.
const EPOCH: Nanos = Nanos::new(1 << 40);

/// Sixty-four bits of a state: products of 128 bits, folded.
#[derive(Clone, Copy, Default)]
struct StateHash {
    hash: u64,
    now: u64,
}

impl StateHash {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xA076_1D64_78BD_642F_u128;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let folded = product as u64 ^ (product >> 64) as u64;
        self.hash = folded.rotate_left(23).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
}

impl Hasher for StateHash {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.fold(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.fold(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        let is_time = word >= EPOCH.get() / 2 && word != u64::MAX;
        self.fold(if is_time { word.wrapping_sub(self.now) ^ 1 << 62 } else { word });
    }
}

impl<S, R> State<S, R>
where
    S: MessageSender + Clone + Eq + Hash,
    R: MessageReceiver + Clone + Eq + Hash,
{
    /// Hashes of 64 bits instead of states: among a hundred million, a collision hides a state in one run of four thousand. What
    /// may still go wrong is no part of it.
    fn hashed(&self) -> u64 {
        let mut hasher = StateHash { hash: 0, now: self.now.get() };
        self.sender.hash(&mut hasher);
        (&self.answers, self.written).hash(&mut hasher);
        if self.receiver.is_complete() {
            self.data.len().hash(&mut hasher);
            u64::MAX.hash(&mut hasher);
        } else {
            (&self.receiver, &self.data, self.round).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Sends what can be sent.
    fn settle(&mut self, count: u32, found: &mut SearchResult) {
        let was_done = self.sender.is_done();
        while let Some(packet) = self.sender.poll_packet(self.now) {
            let exists = packet.index < count && packet.tail == (packet.index + 1 == count);
            found.bad_packets += usize::from(was_done || !exists);
            self.data.push(packet);
        }
        self.data.sort_unstable();
        while let Some(answer) = self.receiver.poll_answer() {
            self.answers.push(answer);
        }
        self.answers.sort_unstable();
    }

    fn arrive(&mut self, packet: Packet, count: u32, found: &mut SearchResult) {
        let complete = self.receiver.is_complete();
        let claimed = complete || self.sender.is_done();
        match self.receiver.handle_packet(self.now, &packet) {
            Disposition::Write => {
                if self.round.0 != packet.round {
                    self.round = (packet.round, 0);
                }
                let bit = 1_u32.checked_shl(packet.index).unwrap_or(0);
                found.bad_writes += usize::from(claimed || packet.index >= count || self.round.1 & bit != 0);
                self.round.1 |= bit;
                self.written |= bit;
                if self.receiver.is_complete() {
                    found.bad_ends += usize::from(!self.rests(count));
                }
            }
            // Whoever holds a complete message says so as often as it is asked.
            Disposition::Duplicate | Disposition::Dropped if complete => {
                while self.receiver.poll_answer().is_some() {}
                self.answers.push(Answer::Done);
            }
            _ => {}
        }
    }

    /// Whether a complete end takes nothing that could still come: what is in flight, and any packet sent now or again.
    fn rests(&self, count: u32) -> bool {
        let next = (0..count).map(|index| Packet {
            index,
            tail: index + 1 == count,
            round: self.round.0.wrapping_add(1),
            sequence: u32::MAX / 4,
        });
        self.receiver.poll_timeout().is_none()
            && self.data.iter().copied().chain(next).all(|packet| {
                let mut receiver = self.receiver.clone();
                let fate = receiver.handle_packet(self.now, &packet);
                fate != Disposition::Write && receiver.is_complete() && receiver.poll_timeout().is_none()
            })
    }

    fn is_quiet(&self) -> bool {
        self.data.is_empty() && self.answers.is_empty()
    }

    fn fire_sender(&mut self) -> bool {
        let due = self.sender.poll_timeout();
        self.now = due.map_or(self.now, |due| self.now.max(due));
        let _ = self.sender.handle_timeout(self.now);
        due.is_some()
    }

    fn fire_receiver(&mut self) -> bool {
        let due = self.receiver.poll_timeout();
        self.now = due.map_or(self.now, |due| self.now.max(due));
        self.receiver.handle_timeout(self.now);
        due.is_some()
    }

    /// Calls `each` with all states that can follow, those in which something went wrong first.
    fn next(&self, count: u32, found: &mut SearchResult, each: &mut impl FnMut(Self)) {
        let quiet = self.is_quiet();
        if quiet || self.left.early > 0 {
            for fire in [Self::fire_sender, Self::fire_receiver] {
                let mut state = self.clone();
                state.left.early -= u8::from(!quiet);
                if fire(&mut state) {
                    state.settle(count, found);
                    each(state);
                }
            }
        }
        let flying = self.data.len() + self.answers.len();
        if !quiet && flying <= usize::from(self.left.losses) {
            let mut state = self.clone();
            state.data.clear();
            state.answers.clear();
            // As many as the list above lets pass.
            state.left.losses -= u8::try_from(flying).unwrap_or(0);
            each(state);
        }
        for copies in (0..=self.left.copies.min(1)).rev() {
            let first = |place: usize, same: bool| place == 0 || !same;
            for (place, packet) in self.data.iter().enumerate() {
                if first(place, place > 0 && self.data[place - 1] == *packet) {
                    let mut state = self.clone();
                    if copies == 0 {
                        state.data.remove(place);
                    }
                    state.left.copies -= copies;
                    state.arrive(*packet, count, found);
                    state.settle(count, found);
                    each(state);
                }
            }
            for (place, answer) in self.answers.iter().enumerate() {
                if first(place, place > 0 && self.answers[place - 1] == *answer) {
                    let mut state = self.clone();
                    if copies == 0 {
                        state.answers.remove(place);
                    }
                    state.left.copies -= copies;
                    state.sender.handle_answer(state.now, answer);
                    state.settle(count, found);
                    each(state);
                }
            }
        }
    }

    /// Whether a network that does nothing wrong brings both ends to their end.
    fn completes(&self, count: u32) -> bool {
        const ROUNDS: usize = 200;
        let mut state = self.clone();
        let mut found = SearchResult::default();
        for _ in 0..ROUNDS {
            state.settle(count, &mut found);
            if state.sender.is_done() {
                return state.receiver.is_complete() && found == SearchResult::default();
            }
            if state.is_quiet() {
                let (sender, receiver) = (state.fire_sender(), state.fire_receiver());
                if !sender && !receiver {
                    return false;
                }
            } else if state.data.is_empty() {
                let answer = state.answers.remove(0);
                state.sender.handle_answer(state.now, &answer);
            } else {
                let packet = state.data.remove(0);
                state.arrive(packet, count, &mut found);
            }
        }
        false
    }
}

/// Which of all budgets of up to two of each a state was seen with.
fn place_of(left: FaultBudget) -> u32 {
    u32::from(left.losses) * 9 + u32::from(left.copies) * 3 + u32::from(left.early)
}

/// All budgets that a state may have been seen with so that `left` brings nothing new.
fn at_least(left: FaultBudget) -> u32 {
    let mut all = 0;
    for losses in left.losses..=2 {
        for copies in left.copies..=2 {
            for early in left.early..=2 {
                all |= 1 << place_of(FaultBudget { losses, copies, early });
            }
        }
    }
    all
}

/// Tries everything with a message of `count` packets, up to `most` states. Of each kind of mischief there may be two at most.
pub(crate) fn explore<S, R>(
    sender: S,
    receiver: R,
    count: u32,
    mischief: FaultBudget,
    most: usize,
) -> SearchResult
where
    S: MessageSender + Clone + Eq + Hash,
    R: MessageReceiver + Clone + Eq + Hash,
{
    let all = u32::MAX.checked_shr(32 - count).unwrap_or(0);
    let mut found = SearchResult::default();
    let mut seen: HashMap<u64, u32, BuildHasherDefault<StateHash>> = HashMap::default();
    let mut first = State {
        sender,
        receiver,
        data: Vec::new(),
        answers: Vec::new(),
        written: 0,
        round: (0, 0),
        left: mischief,
        now: EPOCH,
    };
    first.settle(count, &mut found);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        let (done, complete) = (state.sender.is_done(), state.receiver.is_complete());
        found.false_completions += usize::from((done || complete) && state.written != all);
        if done && (complete || state.data.is_empty()) {
            found.finished += 1;
            continue;
        }
        found.hangs += usize::from(state.is_quiet() && !state.completes(count));
        state.next(count, &mut found, &mut |state| {
            let budgets = seen.entry(state.hashed()).or_default();
            if *budgets & at_least(state.left) == 0 {
                *budgets |= 1 << place_of(state.left);
                open.push(state);
            }
        });
        assert!(seen.len() < most, "no end in sight: {found:?} {:?}", open.last().map(|state| state.now));
    }
    found.states = seen.len();
    found
}
