//! Each end as an automaton: its states are numbered, and each reaction of a state is computed once.
//!
//! A packet changes only one end, so the ends have far fewer states than both together; a combined state is two numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use fpga_protocol::Nanos;

use crate::exhaustive::case::{Case, WirePacket};
use crate::exhaustive::search::Faults;

/// Stimulus for an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stimulus {
    /// The sender may send its transfers.
    Begins,
    Arrives(WirePacket),
    /// The requested timeout expires.
    TimeOut,
    Restarts,
    Dies,
}

/// Reaction of an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) sent: Vec<WirePacket>,
    /// Transfers that ended at the sender, one bit each.
    pub(crate) ended: u8,
    pub(crate) faults: Faults,
}

/// A state machine under search.
pub(crate) trait Machine: Clone + Hash {
    /// Time of the next timer. Where timers may fire early, it is part of the state: firing changes it.
    fn due(&self) -> Option<Nanos>;

    fn happen(&mut self, case: &Case, now: Nanos, happening: Stimulus) -> Reaction;
}

/// Packets by number: a network is a list of numbers. The numbers are small, because there are many networks.
#[derive(Default)]
pub(crate) struct PacketTable {
    all: Vec<WirePacket>,
    numbers: HashMap<WirePacket, u16>,
}

impl PacketTable {
    pub(crate) fn number(&mut self, flight: WirePacket) -> u16 {
        *self.numbers.entry(flight).or_insert_with(|| {
            self.all.push(flight);
            u16::try_from(self.all.len() - 1).unwrap()
        })
    }

    pub(crate) fn get(&self, number: u16) -> WirePacket {
        self.all[usize::from(number)]
    }
}

/// Step of an end: its next state, the packets it sends, and the faults found.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) next: u32,
    pub(crate) sent: Box<[u16]>,
    pub(crate) ended: u8,
    pub(crate) faults: Faults,
}

/// Hasher for numbers that are hashes already, or equally well distributed.
#[derive(Clone, Copy, Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("numbers alone");
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15;
        self.0 = fold(product);
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = fold(number);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
const fn fold(number: u128) -> u64 {
    number as u64 ^ (number >> 64) as u64
}

pub(crate) type BuildIdentityHasher = BuildHasherDefault<IdentityHasher>;

/// Hash of a state, 128 bits.
pub(crate) fn fingerprint(value: &impl Hash) -> u128 {
    let half = |salt: u64| {
        let mut hasher = std::hash::DefaultHasher::new();
        salt.hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    };
    u128::from(half(1)) << 64 | u128::from(half(2))
}

/// States of an end found so far, and their known steps.
pub(crate) struct Automaton<E> {
    states: Vec<E>,
    due: Vec<Option<Nanos>>,
    numbers: HashMap<u128, u32, BuildIdentityHasher>,
    /// Steps by state, time and stimulus.
    steps: HashMap<u64, u32, BuildIdentityHasher>,
    known: Vec<Step>,
}

impl<E: Machine> Automaton<E> {
    pub(crate) fn new() -> Self {
        Self {
            states: Vec::new(),
            due: Vec::new(),
            numbers: HashMap::default(),
            steps: HashMap::default(),
            known: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn get(&self, state: u32) -> &E {
        &self.states[state as usize]
    }

    pub(crate) fn due(&self, state: u32) -> Option<Nanos> {
        self.due[state as usize]
    }

    pub(crate) fn number(&mut self, end: E) -> u32 {
        let Self { states, due, numbers, .. } = self;
        *numbers.entry(fingerprint(&end)).or_insert_with(|| {
            due.push(end.due());
            states.push(end);
            u32::try_from(states.len() - 1).unwrap()
        })
    }

    /// Step of an end in `state` at `now`, which is time number `clock`, with this stimulus.
    pub(crate) fn step(
        &mut self,
        case: &Case,
        flights: &mut PacketTable,
        state: u32,
        (clock, now): (u16, Nanos),
        happening: (u16, Stimulus),
    ) -> &Step {
        let (number, happening) = happening;
        let key = u64::from(state) << 32 | u64::from(clock) << 16 | u64::from(number);
        let at = match self.steps.get(&key) {
            Some(&at) => at,
            None => {
                let mut end = self.get(state).clone();
                let Reaction { sent, ended, faults } = end.happen(case, now, happening);
                let sent = sent.into_iter().map(|flight| flights.number(flight)).collect();
                let next = self.number(end);
                let at = u32::try_from(self.known.len()).unwrap();
                self.known.push(Step { next, sent, ended, faults });
                self.steps.insert(key, at);
                at
            }
        };
        &self.known[at as usize]
    }
}
