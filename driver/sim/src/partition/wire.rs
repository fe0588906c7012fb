//! The network between partitions, and the barrier at which they exchange frames.

use crate::in_flight::{CAPACITY, FramesInFlight, Sent};
use fpga_pci::lock;
use fpga_protocol::time::Nanos;
use fpga_registers::bytes::u32_at;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Number of times that a thread checks for the others before it sleeps: some tens of microseconds, the usual difference between two
/// threads with a CPU each.
const SPINS: u32 = 2_000;
/// Number of waits in a row that end with a sleep, after which a thread sleeps at once.
const GIVE_UP_AFTER: u32 = 4;
/// Number of waits after that until one tries again whether the others have a CPU.
const PROBE_AFTER: u32 = 32;
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
    patience: Patience,
}

/// Result of an exchange for a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) horizon: Nanos,
    /// Number of frames that it may send until the next exchange.
    pub(super) room: usize,
    /// Whether the network has frames.
    pub(super) in_flight: bool,
}

/// The common network of partitions.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<WireState>,
    changed: Condvar,
    /// Number of exchanges; readable without the lock.
    round: AtomicU64,
    lookahead: Nanos,
    single_cpu: bool,
}

/// How long a thread checks for the others before it sleeps. If they share its CPU, with it or with other programs, checking only delays
/// them, and never finds them: after some sleeps in a row it sleeps at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Number of waits in a row that ended with a sleep.
    slept: u32,
}

impl Patience {
    const fn spins(self) -> u32 {
        if self.slept < GIVE_UP_AFTER || self.slept == GIVE_UP_AFTER + PROBE_AFTER { SPINS } else { 0 }
    }

    const fn learn(&mut self, slept: bool) {
        self.slept = match self.slept {
            _ if !slept => 0,
            slept if slept < GIVE_UP_AFTER + PROBE_AFTER => slept + 1,
            _ => GIVE_UP_AFTER,
        };
    }
}

#[derive(Debug)]
struct WireState {
    path: FramesInFlight,
    members: Vec<Member>,
    /// Start of the next span.
    horizon: Nanos,
    /// Number of threads that sleep: a wake-up is a system call.
    sleeping: u32,
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
        let members = nodes.into_iter().map(|node| Member { node, ..Member::default() }).collect();
        let state = WireState {
            path,
            members,
            horizon: Nanos::ZERO,
            sleeping: 0,
            offered: Vec::new(),
            spares: Vec::new(),
        };
        let single_cpu = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            round: AtomicU64::new(0),
            lookahead,
            single_cpu,
        }
    }

    pub(super) fn with_path<T>(&self, access: impl FnOnce(&mut FramesInFlight) -> T) -> T {
        access(&mut lock(&self.state).path)
    }

    /// Number of frames that each partition may send until the next exchange.
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
        self.round.fetch_add(1, Ordering::Release);
        state.horizon
    }

    pub(super) fn show(&self, number: usize, board: Board) {
        if let Some(member) = lock(&self.state).members.get_mut(number) {
            member.board = board;
        }
    }

    /// Number of exchanges so far.
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
            return Next { horizon: Nanos::MAX, room: 0, in_flight: false };
        };
        member.take(traffic);
        (member.arrived, member.idle, member.until) = (true, idle, until);
        let mut wakes = false;
        if state.is_complete() {
            wakes = self.finish_round(&mut state);
        } else {
            state = self.wait(state, round, &mut traffic.patience);
        }
        let next = Next { horizon: state.horizon, room: state.room(), in_flight: state.path.is_busy() };
        if let Some(member) = state.members.get_mut(number) {
            member.give(traffic);
        }
        drop(state);
        self.wake(wakes);
        next
    }

    /// Waits for the exchange after `round`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, WireState>,
        round: u64,
        patience: &mut Patience,
    ) -> MutexGuard<'a, WireState> {
        if !self.single_cpu {
            drop(state);
            for _ in 0..patience.spins() {
                if self.round.load(Ordering::Acquire) != round {
                    break;
                }
                std::hint::spin_loop();
            }
            state = lock(&self.state);
            patience.learn(self.round.load(Ordering::Relaxed) == round);
        }
        while self.round.load(Ordering::Relaxed) == round {
            state.sleeping += 1;
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.sleeping -= 1;
        }
        state
    }

    /// Disconnects a partition.
    pub(super) fn leave(&self, number: usize, traffic: &mut Traffic) {
        let mut state = lock(&self.state);
        let Some(member) = state.members.get_mut(number) else { return };
        member.take(traffic);
        (member.present, member.arrived) = (false, false);
        let wakes = state.is_complete() && self.finish_round(&mut state);
        drop(state);
        self.wake(wakes);
    }

    /// Wakes the sleeping threads. Without the lock: they would only wait for it.
    fn wake(&self, any: bool) {
        if any {
            self.changed.notify_all();
        }
    }

    /// Returns whether threads sleep.
    fn finish_round(&self, state: &mut WireState) -> bool {
        state.exchange(self.lookahead);
        self.round.fetch_add(1, Ordering::Release);
        state.sleeping > 0
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
    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.path.len()) / self.members.len().max(1)
    }

    /// Whether all connected partitions have arrived.
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
