//! Search of all states that two ends can reach, each state once.
//!
//! The network holds an unordered set of packets and answers, so every order of arrival is tried. It may lose and duplicate a few of them.
//! Either end's timer fires when nothing is in flight, and a few times although packets are in flight.
//!
//! Hangs are checked in states with nothing in flight: from each of them, a network without faults must bring both ends to completion.
//! Where time stands still, it does not distinguish states: timers of zero length may fire at any time, which is more than any timer does.
//! Where time passes, states that differ only in absolute time are the same: points in time are compared relative to now.
//!
//! # States that are not searched twice, and why none is missed
//!
//! * *A loss is postponed until nothing else is in flight.* A packet that will be lost has no effect while it is in flight: arrivals do
//!   not depend on it. Only a timer that waits for an empty network depends on it. So the losses of a path can move to the next such
//!   timer, where the remaining packets in the network are the lost ones.
//! * *A copy is made when its original arrives.* Until then two copies of a packet are equivalent to one.
//! * *A larger budget covers a smaller one.* A state that was seen with at least as many remaining losses, copies and early timers reaches
//!   all states that it reaches with fewer. So one search with two losses and a copy includes those with one of them.
//! * *After completion all packets are equivalent.* Each of them makes the receiving end answer "done". Once for each state in which an
//!   end becomes complete, the search checks that it accepts no packet, sets no timer and stays complete.

use fpga_protocol::Nanos;
use fpga_protocol::scheme::{Answer, Disposition, MessageReceiver, MessageSender, Packet};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Faults of network and timers that remain on a path.
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
    /// Packets in the destination's memory: bit `i` is set if packet `i`'s payload is at its address. Payloads are always written by
    /// packet index.
    written: u32,
    /// Whether the sequence of a packet is the number of its round: the sending of the whole message.
    has_rounds: bool,
    /// Number of the current round, and the packets written by it.
    round: (u32, u32),
    left: FaultBudget,
    now: Nanos,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchResult {
    pub(crate) states: usize,
    /// Path ends at which both ends are done.
    pub(crate) finished: usize,
    /// States with nothing in flight from which a network without faults does not bring both ends to completion.
    pub(crate) hangs: usize,
    /// Completions, on either side, while a packet was missing.
    pub(crate) false_completions: usize,
    /// Writes after completion at either side, beyond the range, or repeated within one sending of the message.
    pub(crate) bad_writes: usize,
    /// Packets outside the message, packets with a wrong tail flag, and packets sent after the sender was done.
    pub(crate) bad_packets: usize,
    /// Complete ends that would accept a packet, or have a timer set.
    pub(crate) bad_ends: usize,
}

impl SearchResult {
    /// Numbers of violations; all must be 0.
    pub(crate) const fn faults(&self) -> [usize; 5] {
        [self.hangs, self.false_completions, self.bad_writes, self.bad_packets, self.bad_ends]
    }
}

/// Start of the clock. It is so large that no duration reaches half of it, so points in time and durations can be told apart.
const EPOCH: Nanos = Nanos::new(1 << 40);

/// Hasher with 64 bits: products of 128 bits, folded.
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
    /// 64-bit hash in place of the state: among a hundred million states, a collision hides a state in one run of four thousand. The
    /// remaining fault budget is not part of it.
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

    /// Sends everything that can be sent.
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
                if self.has_rounds && self.round.0 != packet.sequence {
                    self.round = (packet.sequence, 0);
                }
                let bit = 1_u32.checked_shl(packet.index).unwrap_or(0);
                found.bad_writes += usize::from(claimed || packet.index >= count || self.round.1 & bit != 0);
                self.round.1 |= bit;
                self.written |= bit;
                if self.receiver.is_complete() {
                    found.bad_ends += usize::from(!self.rests(count));
                }
            }
            // An end with a complete message answers every packet with "done".
            Disposition::Duplicate | Disposition::Dropped if complete => {
                while self.receiver.poll_answer().is_some() {}
                self.answers.push(Answer::Done);
            }
            _ => {}
        }
    }

    /// Whether a complete end accepts no packet that could still arrive: those in flight, and any packet sent now or later.
    fn rests(&self, count: u32) -> bool {
        let next = (0..count).map(|index| Packet {
            index,
            tail: index + 1 == count,
            sequence: if self.has_rounds { self.round.0 + 1 } else { u32::MAX / 4 },
        });
        self.receiver.poll_timeout().is_none()
            && self.data.iter().copied().chain(next).all(|packet| {
                let mut receiver = self.receiver.clone();
                let disposition = receiver.handle_packet(self.now, &packet);
                disposition != Disposition::Write
                    && receiver.is_complete()
                    && receiver.poll_timeout().is_none()
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

    /// Calls `each` with all possible successors, those after a fault first.
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
            // All packets in flight are lost, see the module documentation.
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

    /// Whether a network without faults brings both ends to completion.
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

/// Number of a budget among all budgets of up to two of each fault.
fn place_of(left: FaultBudget) -> u32 {
    u32::from(left.losses) * 9 + u32::from(left.copies) * 3 + u32::from(left.early)
}

/// Set of all budgets that cover `left`: a state seen with one of them need not be searched again.
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

/// Searches all states of a message of `count` packets, up to `most` states. The budget of each kind of fault is at most two.
/// `has_rounds`: packets carry the number of the message's round as their sequence.
pub(crate) fn explore<S, R>(
    sender: S,
    receiver: R,
    count: u32,
    has_rounds: bool,
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
        has_rounds,
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
