//! Every state that two ends can reach: each state once.
//!
//! The network keeps what is in it as a set without order, so every order of arrival is tried; it may lose and double a few of
//! them, data or answers. Either end's timer fires when nothing is in flight, and a few times although something is.
//!
//! A hang is looked for where nothing is in flight: from each such state, a network that does nothing wrong any more has to
//! bring both ends to their end. Where time stands still, states do not differ by it: timers of no length may fire at any
//! time, which is more than any timer does. Where it passes, states that differ in nothing but the time of day are the same:
//! points of time are told apart by how far from now they are.

use fpga_core::Nanos;
use fpga_core::scheme::{Answer, Fate, Incoming, Outgoing, Packet};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What the network and the clock may do on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mischief {
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
    written: u32,
    left: Mischief,
    now: Nanos,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) states: usize,
    /// Ends of paths at which both ends are done.
    pub(crate) finished: usize,
    /// States without anything in flight from which a good network does not bring both ends to their end.
    pub(crate) hangs: usize,
    /// Completions, on either side, while a packet was missing.
    pub(crate) false_completions: usize,
    /// Writes after completion, of packets that do not exist, or a second time.
    pub(crate) bad_writes: usize,
}

/// When the clock begins: so late that no span of time is as long as half of it, and a number says which of both it is.
const EPOCH: Nanos = Nanos::new(1 << 40);

/// Sixty-four bits of a state: products of 128 bits, folded.
#[derive(Clone, Copy, Default)]
struct Folded {
    hash: u64,
    now: u64,
}

impl Folded {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xA076_1D64_78BD_642F_u128;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let folded = product as u64 ^ (product >> 64) as u64;
        self.hash = folded.rotate_left(23).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
}

impl Hasher for Folded {
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
    S: Outgoing + Clone + Eq + Hash,
    R: Incoming + Clone + Eq + Hash,
{
    /// Hashes of 64 bits instead of states: among millions, a collision hides a state once in a million runs.
    fn hashed(&self) -> u64 {
        let mut hasher = Folded { hash: 0, now: self.now.get() };
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Sends what can be sent.
    fn settle(&mut self) {
        while let Some(packet) = self.sender.poll_packet(self.now) {
            self.data.push(packet);
        }
        self.data.sort_unstable();
        while let Some(answer) = self.receiver.poll_answer() {
            self.answers.push(answer);
        }
        self.answers.sort_unstable();
    }

    fn arrive(&mut self, packet: Packet, count: u32, found: &mut Found) {
        let complete = self.receiver.is_complete();
        match self.receiver.handle_packet(self.now, &packet) {
            Fate::Write => {
                let bit = 1 << packet.index;
                found.bad_writes += usize::from(complete || packet.index >= count);
                self.written |= bit;
            }
            // Whoever holds a complete message says so as often as it is asked.
            Fate::Duplicate | Fate::Dropped if complete => {
                while self.receiver.poll_answer().is_some() {}
                self.answers.push(Answer::Done);
            }
            _ => {}
        }
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

    /// Calls `each` with all states that can follow.
    fn next(&self, count: u32, found: &mut Found, each: &mut impl FnMut(Self)) {
        let mut follow = |mut state: Self| {
            state.settle();
            each(state);
        };
        for (place, packet) in self.data.iter().enumerate() {
            if place > 0 && self.data[place - 1] == *packet {
                continue;
            }
            let mut state = self.clone();
            state.data.remove(place);
            state.arrive(*packet, count, found);
            follow(state);
            if self.left.losses > 0 {
                let mut state = self.clone();
                state.data.remove(place);
                state.left.losses -= 1;
                follow(state);
            }
            if self.left.copies > 0 {
                let mut state = self.clone();
                state.data.push(*packet);
                state.left.copies -= 1;
                follow(state);
            }
        }
        for (place, answer) in self.answers.iter().enumerate() {
            if place > 0 && self.answers[place - 1] == *answer {
                continue;
            }
            let mut state = self.clone();
            state.answers.remove(place);
            state.sender.handle_answer(state.now, answer);
            follow(state);
            if self.left.losses > 0 {
                let mut state = self.clone();
                state.answers.remove(place);
                state.left.losses -= 1;
                follow(state);
            }
            if self.left.copies > 0 {
                let mut state = self.clone();
                state.answers.push(*answer);
                state.left.copies -= 1;
                follow(state);
            }
        }
        let quiet = self.is_quiet();
        if quiet || self.left.early > 0 {
            for fire in [Self::fire_sender, Self::fire_receiver] {
                let mut state = self.clone();
                state.left.early -= u8::from(!quiet);
                if fire(&mut state) {
                    follow(state);
                }
            }
        }
    }

    /// Whether a network that does nothing wrong brings both ends to their end.
    fn ends_well(&self, count: u32) -> bool {
        const ROUNDS: usize = 200;
        let mut state = self.clone();
        let mut ignored = Found::default();
        for _ in 0..ROUNDS {
            state.settle();
            if state.sender.is_done() {
                return true;
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
                state.arrive(packet, count, &mut ignored);
            }
        }
        false
    }
}

/// Tries everything with a message of `count` packets, up to `most` states.
pub(crate) fn explore<S, R>(sender: S, receiver: R, count: u32, mischief: Mischief, most: usize) -> Found
where
    S: Outgoing + Clone + Eq + Hash,
    R: Incoming + Clone + Eq + Hash,
{
    let all = u32::MAX.checked_shr(32 - count).unwrap_or(0);
    let mut found = Found::default();
    let mut seen: HashSet<u64, BuildHasherDefault<Folded>> = HashSet::default();
    let mut first = State {
        sender,
        receiver,
        data: Vec::new(),
        answers: Vec::new(),
        written: 0,
        left: mischief,
        now: EPOCH,
    };
    first.settle();
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        let done = state.sender.is_done();
        let claimed = done || state.receiver.is_complete();
        found.false_completions += usize::from(claimed && state.written != all);
        if done && state.data.is_empty() {
            found.finished += 1;
            continue;
        }
        found.hangs += usize::from(state.is_quiet() && !state.ends_well(count));
        state.next(count, &mut found, &mut |state| {
            if seen.insert(state.hashed()) {
                open.push(state);
            }
        });
        assert!(seen.len() < most, "no end in sight: {found:?} {:?}", open.last().map(|state| state.now));
    }
    found.states = seen.len();
    found
}
