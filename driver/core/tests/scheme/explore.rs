//! Every state that two ends can reach: breadth first, each state once.
//!
//! The network keeps what is in it as a set without order, so every order of arrival is tried; it may lose and double a few of
//! them, data or answers. Timers fire when nothing is in flight, and a few times although something is.

use fpga_core::Nanos;
use fpga_core::scheme::{Answer, Fate, Incoming, Outgoing, Packet};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};

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
    /// States in which nothing can happen any more and something is missing.
    pub(crate) hangs: usize,
    /// Completions, on either side, while a packet was missing.
    pub(crate) false_completions: usize,
    /// Writes after completion, of packets that do not exist, or a second time.
    pub(crate) bad_writes: usize,
}

fn key(packet: &Packet) -> (u32, u8, u32) {
    (packet.index, packet.round, packet.sequence)
}

impl<S, R> State<S, R>
where
    S: Outgoing + Clone + Eq + Hash,
    R: Incoming + Clone + Eq + Hash,
{
    /// Sends what can be sent.
    fn settle(&mut self) {
        while let Some(packet) = self.sender.poll_packet(self.now) {
            self.data.push(packet);
        }
        self.data.sort_unstable_by_key(key);
        while let Some(answer) = self.receiver.poll_answer() {
            self.answers.push(answer);
        }
        self.answers.sort_unstable_by_key(|answer| format!("{answer:?}"));
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

    fn due(&self) -> Option<Nanos> {
        match (self.sender.poll_timeout(), self.receiver.poll_timeout()) {
            (Some(sender), Some(receiver)) => Some(sender.min(receiver)),
            (sender, receiver) => sender.or(receiver),
        }
    }

    fn fire(&mut self, due: Nanos) {
        self.now = self.now.max(due);
        self.sender.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
    }

    /// All states that can follow.
    fn next(&self, count: u32, found: &mut Found) -> Vec<Self> {
        let mut next = Vec::new();
        for (place, packet) in self.data.iter().enumerate() {
            if self.data[..place].contains(packet) {
                continue;
            }
            let mut state = self.clone();
            state.data.remove(place);
            state.arrive(*packet, count, found);
            next.push(state);
            if self.left.losses > 0 {
                let mut state = self.clone();
                state.data.remove(place);
                state.left.losses -= 1;
                next.push(state);
            }
            if self.left.copies > 0 {
                let mut state = self.clone();
                state.data.push(*packet);
                state.left.copies -= 1;
                next.push(state);
            }
        }
        for (place, answer) in self.answers.iter().enumerate() {
            if self.answers[..place].contains(answer) {
                continue;
            }
            let mut state = self.clone();
            state.answers.remove(place);
            state.sender.handle_answer(state.now, answer);
            next.push(state);
            if self.left.losses > 0 {
                let mut state = self.clone();
                state.answers.remove(place);
                state.left.losses -= 1;
                next.push(state);
            }
            if self.left.copies > 0 {
                let mut state = self.clone();
                state.answers.push(*answer);
                state.left.copies -= 1;
                next.push(state);
            }
        }
        let quiet = self.data.is_empty() && self.answers.is_empty();
        if let Some(due) = self.due()
            && (quiet || self.left.early > 0)
        {
            let mut state = self.clone();
            state.left.early -= u8::from(!quiet);
            state.fire(due);
            next.push(state);
        }
        for state in &mut next {
            state.settle();
        }
        next
    }
}

/// Tries everything with a message of `count` packets.
pub(crate) fn explore<S, R>(sender: S, receiver: R, count: u32, mischief: Mischief) -> Found
where
    S: Outgoing + Clone + Eq + Hash,
    R: Incoming + Clone + Eq + Hash,
{
    const MOST: usize = 5_000_000;
    let all = u32::MAX.checked_shr(32 - count).unwrap_or(0);
    let mut found = Found::default();
    // Hashes of 64 bits instead of states: among millions, a collision hides a state once in a million runs.
    let hasher = RandomState::new();
    let mut seen = HashSet::new();
    let mut first = State {
        sender,
        receiver,
        data: Vec::new(),
        answers: Vec::new(),
        written: 0,
        left: mischief,
        now: Nanos::ZERO,
    };
    first.settle();
    let mut level = vec![first];
    while !level.is_empty() {
        let mut following = Vec::new();
        for state in level {
            let done = state.sender.is_done();
            let claimed = done || state.receiver.is_complete();
            found.false_completions += usize::from(claimed && state.written != all);
            if done && state.data.is_empty() {
                found.finished += 1;
                continue;
            }
            let next = state.next(count, &mut found);
            if next.is_empty() {
                found.hangs += 1;
            }
            for state in next {
                if seen.insert(hasher.hash_one(&state)) {
                    following.push(state);
                }
            }
        }
        assert!(
            seen.len() < MOST,
            "no end in sight: {found:?} {:?}",
            following.first().map(|state| state.now)
        );
        level = following;
    }
    found.states = seen.len();
    found
}
