//! Breadth-first search through the states of both ends and of the network between them.

use std::collections::{HashSet, VecDeque};
use std::ops::AddAssign;

use fpga_protocol::Nanos;

use crate::exhaustive::case::{Budget, Case, WirePacket};
use crate::exhaustive::machine::{Automaton, BuildIdentityHasher, PacketTable, Step, Stimulus, fingerprint};
use crate::exhaustive::receiver_machine::ReceiverMachine;
use crate::exhaustive::sender_machine::SenderMachine;

/// Maximum number of packets and answers in flight at the same time.
const MAX_IN_FLIGHT: usize = 24;
/// Maximum number of copies that stay in the network without limit.
const MAX_HELD: usize = 2;
const NOT_HELD: u16 = u16::MAX;
/// Longer than any path takes: a path that has not ended by then is a hang.
const END: Nanos = Nanos::from_secs(60);
/// Maximum time by which a timer expires before a packet in flight arrives. Twice this time is well below the packet lifetime.
const EARLY: Nanos = Nanos::from_millis(4);
/// Maximum number of states, limited by memory.
const MAX_STATES: usize = 60_000_000;

const START: u16 = u16::MAX;
const TIME_OUT: u16 = u16::MAX - 1;
const RESTARTS: u16 = u16::MAX - 2;
const RESTART: u16 = u16::MAX - 3;

/// Violated invariants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Paths that end without both ends having finished correctly, or do not end; and transfers given up.
    pub(crate) hangs: usize,
    /// Completions with a packet missing or with another transfer's bytes, and second completions.
    pub(crate) false_completions: usize,
    /// Writes outside the range, repeated writes, writes after completion, or of an earlier incarnation over those of a later one.
    pub(crate) bad_writes: usize,
}

impl AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.hangs += other.hangs;
        self.false_completions += other.false_completions;
        self.bad_writes += other.bad_writes;
    }
}

/// Result of a search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SearchResult {
    pub(crate) states: usize,
    /// States without successor.
    pub(crate) ends: usize,
    /// Number of states of each end alone.
    pub(crate) near: usize,
    pub(crate) far: usize,
    pub(crate) faults: Faults,
}

/// State numbers of both ends, and the packets in flight, by number and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    near: u32,
    far: u32,
    clock: u16,
    budget: Budget,
    on_the_way: u8,
    network: [u16; MAX_IN_FLIGHT],
    /// Copies that stay in the network without limit, in order; [`NOT_HELD`] is none.
    held: [u16; MAX_HELD],
}

impl State {
    fn network(&self) -> &[u16] {
        &self.network[..usize::from(self.on_the_way)]
    }

    fn add(&mut self, flight: u16) {
        let len = usize::from(self.on_the_way);
        let at = self.network().partition_point(|other| *other < flight);
        self.network.copy_within(at..len, at + 1);
        self.network[at] = flight;
        self.on_the_way += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = usize::from(self.on_the_way);
        self.network.copy_within(at + 1..len, at);
        self.network[len - 1] = 0;
        self.on_the_way -= 1;
    }
}

struct Search {
    case: Case,
    flights: PacketTable,
    near: Automaton<SenderMachine>,
    far: Automaton<ReceiverMachine>,
    times: Vec<Nanos>,
    seen: HashSet<u128, BuildIdentityHasher>,
    open: VecDeque<State>,
    found: SearchResult,
}

/// Searches all reachable states.
pub(crate) fn search(case: Case) -> SearchResult {
    let mut search = Search {
        case,
        flights: PacketTable::default(),
        near: Automaton::new(),
        far: Automaton::new(),
        times: vec![Nanos::ZERO],
        seen: HashSet::default(),
        open: VecDeque::new(),
        found: SearchResult::default(),
    };
    let (near, far) =
        (search.near.number(SenderMachine::new(&case)), search.far.number(ReceiverMachine::new(&case)));
    let empty = State {
        near,
        far,
        clock: 0,
        budget: case.budget,
        on_the_way: 0,
        network: [0; MAX_IN_FLIGHT],
        held: [NOT_HELD; MAX_HELD],
    };
    let first = search.near(empty, 0, (START, Stimulus::Begins));
    search.follow(first);
    while let Some(state) = search.open.pop_front() {
        search.successors(&state);
    }
    let Search { found, seen, near, far, .. } = search;
    SearchResult { states: seen.len(), near: near.len(), far: far.len(), ..found }
}

impl Search {
    fn follow(&mut self, state: State) {
        if self.seen.insert(fingerprint(&state)) {
            self.open.push_back(state);
            assert!(self.seen.len() < MAX_STATES, "no end in sight: {:?}", self.found);
        }
    }

    /// Number of a point in time.
    fn clock(&mut self, now: Nanos) -> u16 {
        let at = self.times.iter().position(|time| *time == now).unwrap_or_else(|| {
            self.times.push(now);
            self.times.len() - 1
        });
        u16::try_from(at).unwrap()
    }

    /// Successor of `state` after this stimulus for the sender.
    fn near(&mut self, mut state: State, clock: u16, happening: (u16, Stimulus)) -> State {
        let Self { case, flights, near, far, times, found, .. } = self;
        let now = times[usize::from(clock)];
        let Step { next, sent, ended, faults } =
            near.step(case, flights, state.near, (clock, now), happening);
        state.near = *next;
        state.clock = clock;
        sent.iter().for_each(|flight| state.add(*flight));
        found.faults += *faults;
        let (ended, incarnation) = (*ended, near.get(state.near).incarnation());
        for transfer in (0..case.transfers).filter(|transfer| ended >> transfer & 1 != 0) {
            let all = far.get(state.far).has_all(case, (incarnation, transfer));
            found.faults.false_completions += usize::from(!all);
        }
        state
    }

    /// Successor of `state` after this stimulus for the receiver.
    fn far(&mut self, mut state: State, clock: u16, happening: (u16, Stimulus)) -> State {
        let Self { case, flights, far, times, found, .. } = self;
        let now = times[usize::from(clock)];
        let Step { next, sent, faults, .. } = far.step(case, flights, state.far, (clock, now), happening);
        state.far = *next;
        state.clock = clock;
        sent.iter().for_each(|flight| state.add(*flight));
        found.faults += *faults;
        state
    }

    fn arrive(&mut self, mut state: State, at: usize) -> State {
        let number = state.network[at];
        let flight = self.flights.get(number);
        state.remove(at);
        let happening = (number, Stimulus::Arrives(flight));
        match flight {
            WirePacket::Data { .. } | WirePacket::Arrival { .. } => self.far(state, state.clock, happening),
            _ => self.near(state, state.clock, happening),
        }
    }

    /// Follows all possible successors.
    fn successors(&mut self, state: &State) {
        let Budget { losses, copies, restarts, deaths, late, early, trims } = state.budget;
        self.deliver_held(state);
        for (at, number) in state.network().iter().enumerate() {
            if at > 0 && state.network[at - 1] == *number {
                continue;
            }
            let flight = self.flights.get(*number);
            if !self.must_wait(state, flight) {
                let next = self.arrive(*state, at);
                self.follow(next);
            }
            if losses > 0 {
                let mut next = *state;
                next.remove(at);
                next.budget.losses -= 1;
                self.follow(next);
            }
            if let Some(trimmed) = flight.trim().filter(|_| trims > 0) {
                let mut next = *state;
                next.remove(at);
                next.add(self.flights.number(trimmed));
                next.budget.trims -= 1;
                self.follow(next);
            }
            if copies > 0 && (flight.is_start() || !self.case.starts_last) {
                let mut next = *state;
                next.add(*number);
                next.budget.copies -= 1;
                self.follow(next);
            }
        }
        if late > 0 {
            self.hold_copies(state);
        }
        if restarts > 0 {
            let mut next = self.near(*state, state.clock, (RESTARTS, Stimulus::Restarts));
            next.budget.restarts -= 1;
            self.follow(next);
        }
        if deaths > 0 {
            let mut next = self.near(*state, state.clock, (RESTART, Stimulus::Dies));
            next.budget.deaths -= 1;
            self.follow(next);
        }
        let quiet = state.network().is_empty();
        if !quiet && early == 0 {
            return;
        }
        let (near, far) = (self.near.due(state.near), self.far.due(state.far));
        let now = self.times[usize::from(state.clock)];
        let due = near.into_iter().chain(far).min().filter(|due| *due < END);
        match due {
            Some(due) if quiet || due <= now.saturating_add(EARLY) => {
                let clock = self.clock(due.max(now));
                let mut next = *state;
                next.budget.early -= u8::from(!quiet);
                if near.is_some_and(|near| near <= due) {
                    next = self.near(next, clock, (TIME_OUT, Stimulus::TimeOut));
                }
                if far.is_some_and(|far| far <= due) {
                    next = self.far(next, clock, (TIME_OUT, Stimulus::TimeOut));
                }
                // A fired timer that leaves the state unchanged is a hang.
                self.found.faults.hangs += usize::from(next == *state);
                self.follow(next);
            }
            _ if quiet => self.end(state),
            _ => {}
        }
    }

    /// Delivers each held packet of which the receiver has written data of a later incarnation.
    fn deliver_held(&mut self, state: &State) {
        for (at, number) in state.held.iter().enumerate().filter(|(_, number)| **number != NOT_HELD) {
            let flight = self.flights.get(*number);
            let (WirePacket::Data { name, .. } | WirePacket::Arrival { name }) = flight else { continue };
            if !self.far.get(state.far).has_later(&self.case, name.0) {
                continue;
            }
            let mut next = *state;
            next.held[at] = NOT_HELD;
            next.held.sort_unstable();
            let next = self.far(next, state.clock, (*number, Stimulus::Arrives(flight)));
            self.follow(next);
        }
    }

    /// Copies each packet of the sender in flight to the held ones.
    fn hold_copies(&mut self, state: &State) {
        for number in state.network() {
            let is_packet =
                matches!(self.flights.get(*number), WirePacket::Data { .. } | WirePacket::Arrival { .. });
            let Some(place) = state.held.iter().position(|held| *held == NOT_HELD).filter(|_| is_packet)
            else {
                continue;
            };
            let mut next = *state;
            next.held[place] = *number;
            next.held.sort_unstable();
            next.budget.late -= 1;
            self.follow(next);
        }
    }

    /// Whether a first packet has to wait for all other packets of its incarnation (`starts_last`).
    fn must_wait(&self, state: &State, flight: WirePacket) -> bool {
        let WirePacket::Data { name: (incarnation, _), packet: 0, .. } = flight else { return false };
        self.case.starts_last
            && state.network().iter().any(|other| match self.flights.get(*other) {
                WirePacket::Data { name, packet, .. } => packet != 0 && name.0 == incarnation,
                _ => false,
            })
    }

    /// Checks a state without successor.
    fn end(&mut self, state: &State) {
        let (near, far) = (self.near.get(state.near), self.far.get(state.far));
        let (wanted, ended) = near.ended(&self.case);
        let well = near.is_idle() && ended == wanted && far.is_clean(&self.case);
        let incarnation = near.incarnation();
        let whole = (0..self.case.transfers)
            .filter(|transfer| wanted >> transfer & 1 != 0)
            .all(|transfer| far.is_whole(&self.case, (incarnation, transfer)));
        self.found.ends += 1;
        self.found.faults.hangs += usize::from(!well);
        self.found.faults.false_completions += usize::from(well && !whole);
    }
}
