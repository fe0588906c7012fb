//! The network between partitions, and the barrier at which they exchange frames.

use super::cpu::Cpus;
use crate::in_flight::{CAPACITY, FramesInFlight, Sent};
use fpga_pci::lock;
use fpga_protocol::time::Nanos;
use fpga_registers::bytes::u32_at;
use fpga_registers::invariant::DebugExpect as _;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum time for which a thread with a CPU of its own waits for the others without a sleep: longer than one needs to wake up.
const PATIENCE: Duration = Duration::from_micros(100);
/// Number of checks between two reads of the clock.
const CHECKS: u32 = 32;
/// Number of buffers kept for duplicates of frames.
const SPARES: usize = 8;
/// Part of the lookahead after which an unreliable deadline of the network is tried again.
const RETRIES: u64 = 8;

/// Values that a partition shows to the others; their meaning is the program's.
pub type Board = [u64; 4];

/// A frame sent since the last exchange.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Time at which the port took it, which orders the frames of several cards.
    pub(super) taken: Nanos,
    /// Time at which it reaches the network.
    pub(super) at: Nanos,
    pub(super) frame: Vec<u8>,
}

/// Frames between a partition and the network. The buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Sent since the last exchange.
    pub(super) sent: Vec<Outgoing>,
    /// For the partition's card, with the times of their delivery, in that order.
    pub(super) arrivals: VecDeque<(Nanos, Sent)>,
    /// Buffers of delivered frames, for their owners.
    pub(super) used: Vec<Sent>,
    /// Buffers of the partition's card that were delivered or lost.
    pub(super) returned: Vec<Vec<u8>>,
}

/// Result of an exchange for a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) horizon: Nanos,
    /// Number of frames that it may send until the next exchange.
    pub(super) room: usize,
    /// Whether the network has frames.
    pub(super) in_flight: bool,
    /// CPU of its thread.
    pub(super) cpu: Option<usize>,
}

/// The common network of partitions.
///
/// On a common CPU ([`Cpus`]), the partitions' threads take turns: a thread that waits at the horizon wakes one that has work to do before it,
/// and the last one to arrive works on without waking another. With a CPU each, they wait for each other without a sleep, if it is short.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<WireState>,
    /// Number of exchanges; readable without the lock.
    round: AtomicU64,
    /// Start of a partition's turn.
    turns: Box<[Condvar]>,
    /// Whether each thread has a CPU of its own; written with the lock held.
    are_apart: AtomicBool,
    lookahead: Nanos,
}

#[derive(Debug)]
struct WireState {
    path: FramesInFlight,
    members: Vec<Member>,
    /// Start of the next span.
    horizon: Nanos,
    cpus: Cpus,
    /// Frames of one exchange, to be sorted: time, sender, number.
    offered: Vec<(Nanos, usize, usize, Outgoing)>,
    spares: Vec<Sent>,
}

/// A partition, seen from the network.
#[derive(Debug, Default)]
struct Member {
    node: u32,
    present: bool,
    arrived: bool,
    /// Whether the thread waits on its condition variable.
    sleeps: bool,
    idle: bool,
    /// Time before which the partition does nothing unless a frame arrives.
    until: Nanos,
    board: Board,
    /// The board as the others see it, and whether the partition is connected.
    shown: (Board, bool),
    traffic: Traffic,
}

impl Wire {
    pub(super) fn new(path: FramesInFlight, nodes: Vec<u32>, lookahead: Nanos) -> Self {
        let cpus = Cpus::new(nodes.len());
        let members = nodes.into_iter().map(|node| Member { node, ..Member::default() }).collect();
        let state =
            WireState { path, members, horizon: Nanos::ZERO, cpus, offered: Vec::new(), spares: Vec::new() };
        let turns = state.members.iter().map(|_| Condvar::new()).collect();
        Self {
            state: Mutex::new(state),
            round: AtomicU64::new(0),
            turns,
            are_apart: AtomicBool::new(false),
            lookahead,
        }
    }

    pub(super) fn with_path<T>(&self, access: impl FnOnce(&mut FramesInFlight) -> T) -> T {
        access(&mut lock(&self.state).path)
    }

    /// Returns the number of frames that each partition may send until the next exchange.
    pub(super) fn room(&self) -> usize {
        lock(&self.state).room()
    }

    /// Connects all partitions at time `now`, and returns their first horizon.
    pub(super) fn join(&self, now: Nanos) -> Nanos {
        let mut state = lock(&self.state);
        for member in &mut state.members {
            member.present = true;
            member.arrived = false;
            member.board = Board::default();
            member.shown = (Board::default(), true);
        }
        state.horizon = now.saturating_add(self.lookahead);
        let round = self.round.fetch_add(1, Ordering::Release);
        state.cpus.begin(round);
        state.horizon
    }

    pub(super) fn show(&self, number: usize, board: Board) {
        if let Some(member) = lock(&self.state).members.get_mut(number) {
            member.board = board;
        }
    }

    /// Returns the number of exchanges so far.
    pub(super) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Copies the boards as they were at the last exchange.
    pub(super) fn copy_boards(&self, into: &mut Vec<(Board, bool)>) {
        into.clear();
        into.extend(lock(&self.state).members.iter().map(|member| member.shown));
    }

    /// Hands over the frames of partition `number` and waits for the others.
    pub(super) fn exchange(&self, number: usize, traffic: &mut Traffic, idle: bool, until: Nanos) -> Next {
        let mut state = lock(&self.state);
        let round = self.round.load(Ordering::Relaxed);
        let Some(member) = state.members.get_mut(number).filter(|member| member.present) else {
            // Disconnected meanwhile.
            return Next { horizon: Nanos::MAX, room: 0, in_flight: false, cpu: None };
        };
        member.take(traffic);
        (member.arrived, member.idle, member.until) = (true, idle, until);
        if state.is_complete() {
            self.finish_round(&mut state);
        } else {
            state = self.wait(state, number, round);
        }
        let (room, in_flight) = (state.room(), state.path.is_busy());
        let next = Next { horizon: state.horizon, room, in_flight, cpu: state.cpus.of(number) };
        if let Some(member) = state.members.get_mut(number) {
            member.give(traffic);
        }
        next
    }

    /// Waits for the exchange after `round`.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, WireState>,
        number: usize,
        round: u64,
    ) -> MutexGuard<'a, WireState> {
        self.pass_turn(state, number);
        if self.are_apart.load(Ordering::Relaxed) {
            self.spin(round);
        }
        let mut state = lock(&self.state);
        while self.round.load(Ordering::Relaxed) == round {
            let Some(turn) = self.turns.get(number) else { break };
            state.set_sleeps(number, true);
            state = turn.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.set_sleeps(number, false);
        }
        state
    }

    /// Waits for the exchange after `round` without a sleep, if it happens soon.
    fn spin(&self, round: u64) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            for _ in 0..CHECKS {
                if self.round.load(Ordering::Acquire) != round {
                    return;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Wakes the next partition after `number` that has not arrived and sleeps: the exchange that it waited for has happened.
    fn pass_turn(&self, state: MutexGuard<'_, WireState>, number: usize) {
        let members = state.members.iter().enumerate();
        let mut next = members.cycle().skip(number + 1).take(state.members.len());
        let next = next.find(|(_, member)| member.present && !member.arrived);
        let next = next.filter(|(_, member)| member.sleeps).map(|(next, _)| next);
        // Without the lock: the woken thread would only wait for it.
        drop(state);
        if let Some(turn) = next.and_then(|next| self.turns.get(next)) {
            turn.notify_one();
        }
    }

    /// Disconnects a partition.
    pub(super) fn leave(&self, number: usize, traffic: &mut Traffic) {
        let mut state = lock(&self.state);
        let Some(member) = state.members.get_mut(number).debug_expect("a partition of the wire") else {
            return;
        };
        member.take(traffic);
        (member.present, member.arrived) = (false, false);
        if state.is_complete() {
            self.finish_round(&mut state);
        }
        self.pass_turn(state, number);
    }

    fn finish_round(&self, state: &mut WireState) {
        state.exchange(self.lookahead);
        state.cpus.review(self.round.load(Ordering::Relaxed));
        let are_apart = state.cpus.are_apart();
        self.are_apart.store(are_apart, Ordering::Relaxed);
        if are_apart {
            let sleepers = self.turns.iter().zip(&state.members).filter(|(_, member)| member.sleeps);
            sleepers.for_each(|(turn, _)| turn.notify_one());
        }
        self.round.fetch_add(1, Ordering::Release);
    }
}

impl Member {
    /// Takes what a partition hands over.
    fn take(&mut self, traffic: &mut Traffic) {
        self.traffic.sent.append(&mut traffic.sent);
        self.traffic.used.append(&mut traffic.used);
    }

    /// Hands over what a partition receives.
    fn give(&mut self, traffic: &mut Traffic) {
        traffic.arrivals.append(&mut self.traffic.arrivals);
        traffic.returned.append(&mut self.traffic.returned);
    }
}

impl WireState {
    fn set_sleeps(&mut self, number: usize, sleeps: bool) {
        if let Some(member) = self.members.get_mut(number) {
            member.sleeps = sleeps;
        }
    }

    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.path.len()) / self.members.len().max(1)
    }

    /// Returns whether all connected partitions have arrived.
    fn is_complete(&self) -> bool {
        let mut present = self.members.iter().filter(|member| member.present).peekable();
        present.peek().is_some() && present.all(|member| member.arrived)
    }

    /// Takes the frames of a span into the network, and delivers those of the next one.
    fn exchange(&mut self, lookahead: Nanos) {
        let start = self.horizon;
        let mut end = start.saturating_add(lookahead);
        self.return_buffers();
        let idle = self.offer();
        self.deliver_between(start, end, lookahead);
        let is_silent = |state: &Self| state.members.iter().all(|member| member.traffic.arrivals.is_empty());
        if idle && is_silent(self) {
            while let Some(sent) = self.path.next_when_idle() {
                self.deliver(start, sent);
            }
        }
        if is_silent(self) {
            // No partition acts before this time: the span is longer.
            let present = self.members.iter().filter(|member| member.present);
            let acts = present.map(|member| member.until).chain(self.path.next_deadline()).min();
            let longer = acts.unwrap_or(start).max(start).saturating_add(lookahead);
            self.deliver_between(end, longer, lookahead);
            end = longer;
        }
        for member in &mut self.members {
            member.arrived = false;
            member.shown = (member.board, member.present);
        }
        self.horizon = end;
    }

    /// Delivers the frames that are due from `start` on, and before `end`.
    fn deliver_between(&mut self, start: Nanos, end: Nanos, lookahead: Nanos) {
        let mut now = start;
        while now < end {
            while let Some(sent) = self.path.next(now) {
                self.deliver(now, sent);
            }
            // A deadline may be too early, and cause nothing.
            let retry = now.saturating_add(Nanos::new(lookahead.get().div_ceil(RETRIES)));
            now = match self.path.next_deadline() {
                Some(deadline) if deadline > now => deadline,
                Some(_) => retry,
                None => break,
            };
        }
    }

    /// Offers the frames of all partitions to the network, in the order of time and of card. Returns whether there was nothing in progress.
    fn offer(&mut self) -> bool {
        let mut idle = true;
        for (sender, member) in self.members.iter_mut().enumerate() {
            idle &= !member.present || member.idle;
            for (number, sent) in member.traffic.sent.drain(..).enumerate() {
                self.offered.push((sent.taken, sender, number, sent));
            }
        }
        self.offered.sort_unstable_by_key(|(taken, sender, number, _)| (*taken, *sender, *number));
        for (_, sender, _, Outgoing { at, frame, .. }) in self.offered.drain(..) {
            // Buffer for a duplicate of the frame.
            let mut spare = self.spares.pop();
            if let Some(lost) = self.path.accept(at, (sender, frame), &mut spare) {
                give_back(&mut self.members, lost);
            }
            self.spares.extend(spare);
        }
        idle
    }

    fn deliver(&mut self, at: Nanos, sent: Sent) {
        let node = u32_at(&sent.1, 8);
        let receiver = self.members.iter_mut().find(|member| Some(member.node) == node && member.present);
        match receiver {
            Some(member) => member.traffic.arrivals.push_back((at, sent)),
            None => {
                self.path.undeliverable += 1;
                give_back(&mut self.members, sent);
            }
        }
    }

    /// Returns the buffers of delivered frames to their cards.
    fn return_buffers(&mut self) {
        for number in 0..self.members.len() {
            let Some(mut used) =
                self.members.get_mut(number).map(|member| std::mem::take(&mut member.traffic.used))
            else {
                continue;
            };
            for sent in used.drain(..) {
                if self.spares.len() < SPARES {
                    self.spares.push(sent);
                } else {
                    give_back(&mut self.members, sent);
                }
            }
            if let Some(member) = self.members.get_mut(number) {
                member.traffic.used = used;
            }
        }
    }
}

/// Returns a buffer to its card.
fn give_back(members: &mut [Member], (owner, frame): Sent) {
    if let Some(member) = members.get_mut(owner) {
        member.traffic.returned.push(frame);
    }
}
