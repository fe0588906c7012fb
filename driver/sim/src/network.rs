//! Several cards, the network between them, and their common time.

use crate::dma::RefusedAccesses;
use crate::hop::HopCounters;
use crate::link::{Link, LinkAddress, LinkCounters, LinkEvents};
use crate::observer::HostObserver;
use crate::served::ServerAlarm;
use crate::state::{CardFailure, State};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::threaded::{LockRequest, Shared, Worker, WorkerState};
use crate::time::TimeSpent;
use fpga_card::{Card, DesignPoll};
use fpga_firmware::NodeId;
use fpga_pci::lock;
use fpga_protocol::time::Nanos;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Time for which an expired timer that causes no work is ignored.
const STALE_TIMER_BACKOFF: Duration = Duration::from_millis(1);
/// Maximum number of rounds in which the lock is yielded to waiting threads.
const YIELD_ROUNDS: u32 = 128;
/// Sleep per round in the second half of the rounds.
const YIELD_PAUSE: Duration = Duration::from_micros(100);

/// Cards, network and time. Clones refer to the same simulated network.
///
/// Work is done only by [`SimNetwork::step`], by [`SimNetwork::step_until_idle`] and in the polling loops of software
/// ([`fpga_pci::Backend::relax`]), so a single-threaded run is repeatable. The exception is a simulated network with a thread of its own
/// ([`SimNetworkBuilder::threaded`](crate::SimNetworkBuilder::threaded)).
#[derive(Clone, Debug)]
pub struct SimNetwork {
    shared: Arc<Shared>,
    /// Stops the thread with the last handle.
    worker: Option<Arc<Worker>>,
}

impl SimNetwork {
    /// Returns whether this process has built the network.
    pub(crate) fn is_own(&self) -> bool {
        self.shared.process.is_current()
    }

    /// A simulated network with `state`, and the thread that drives it, if any.
    pub(crate) const fn new(shared: Arc<Shared>, worker: Option<Arc<Worker>>) -> Self {
        Self { shared, worker }
    }

    /// Returns whether the cards work on a thread of their own.
    #[must_use]
    pub fn is_threaded(&self) -> bool {
        self.worker.is_some()
    }

    /// Calls `access` with card `card`; `None` if there is no such card.
    pub fn with_card<T>(&self, card: usize, access: impl FnOnce(&mut Card) -> T) -> Option<T> {
        self.lock().slots.get_mut(card).map(|slot| access(&mut slot.card))
    }

    /// Returns the number of cards.
    #[must_use]
    pub fn card_count(&self) -> usize {
        self.lock().slots.len()
    }

    /// Lets card `card` continue after its design has responded ([`Card::wake_channels`]), and works like
    /// [`step_until_idle`](Self::step_until_idle), all on the calling thread: no other thread can begin that work. With a thread of its
    /// own, the simulated network only wakes the card.
    pub fn continue_card(&self, card: usize) {
        let mut state = self.lock();
        state.catch_up();
        if let Some(slot) = state.slots.get_mut(card) {
            slot.card.wake_channels();
        }
        while !self.is_threaded() && state.step() {}
        state.wake_servers();
    }

    /// Reports the events between card `card` and its host to `observer` from now on; `false` if there is no such card.
    pub fn observe(&self, card: usize, observer: Arc<dyn HostObserver>) -> bool {
        self.lock().slots.get_mut(card).map(|slot| slot.host.observer = Some(observer)).is_some()
    }

    /// Makes card `card` fail (or work again); `false` if there is no such card.
    pub fn fail(&self, card: usize, failure: CardFailure) -> bool {
        self.lock().slots.get_mut(card).map(|slot| slot.failure = failure).is_some()
    }

    /// Raises or lowers line `line` of card `card`'s user interrupts, as its user logic would ([`fpga_card::Card::set_user_interrupt`]);
    /// `false` if there is no such card, or no such line.
    pub fn set_user_interrupt(&self, card: usize, line: u8, asserted: bool) -> bool {
        let mut state = self.lock();
        state.catch_up();
        let Some(slot) = state.slots.get_mut(card) else { return false };
        let exists = slot.card.set_user_interrupt(line, asserted, &mut slot.host);
        state.wake_servers();
        exists
    }

    /// Raises line `line` of card `card`'s user interrupts until it is acknowledged
    /// ([`fpga_card::Card::pulse_user_interrupt`]). Returns whether it has been acknowledged; `None` if there is no such
    /// card, or no such line.
    pub fn pulse_user_interrupt(&self, card: usize, line: u8) -> Option<bool> {
        self.lock().pulse_user_interrupt(card, line)
    }

    /// As [`pulse_user_interrupt`](Self::pulse_user_interrupt), unless another thread works on the cards for all of `limit`: a card that
    /// waits for its host's memory. Returns `false` in that case.
    pub fn pulse_user_interrupt_within(&self, card: usize, line: u8, limit: Duration) -> bool {
        let Some(mut state) = self.lock_within(limit) else { return false };
        state.pulse_user_interrupt(card, line);
        true
    }

    /// Inserts card `card` into its slot again after it has left the bus ([`CardFailure::Gone`], or a planned removal). It then works in
    /// its power-on state, without its memory content. Returns `false` if there is no such card.
    pub fn replug(&self, card: usize) -> bool {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(card) else { return false };
        slot.card.replug();
        slot.failure = CardFailure::None;
        true
    }

    /// Does one unit of work: of a card, or the delivery of one frame. Returns whether there was any. A connected partition does no work
    /// beyond the time up to which it can work without the others.
    ///
    /// With a thread of its own the simulated network needs no steps: this does nothing and returns `false`.
    pub fn step(&self) -> bool {
        !self.is_threaded() && self.lock().step()
    }

    /// Works until there is nothing to do at the current time; timers do not count. Returns the number of units.
    ///
    /// With a thread of its own: waits until the thread has found nothing to do after all earlier actions of the calling thread, or has
    /// ended (a card panicked). Other threads that keep the cards busy may prolong the wait.
    pub fn step_until_idle(&self) -> u64 {
        let mut state = self.lock();
        if let Some(threaded) = &self.shared.threaded {
            let (rests, worked) = (threaded.idle_count(), state.worked);
            drop(state);
            threaded.wait_until_idle(rests);
            return self.lock().worked - worked;
        }
        let mut units = 0;
        while state.step() {
            units += 1;
        }
        units
    }

    /// Lets `span` pass and does the work that falls due. A connected partition waits for the others.
    ///
    /// With a thread of its own, or a link to other processes, time is real: this sleeps for `span`, then until there is nothing to do.
    pub fn advance(&self, span: Nanos) {
        if self.is_threaded() || self.shared.is_linked {
            // The caller asks for time to pass: nothing to wait for otherwise.
            std::thread::sleep(Duration::from(span));
            self.step_until_idle();
            return;
        }
        let mut state = self.lock();
        let end = state.now.saturating_add(span);
        loop {
            while state.step_until(end) {}
            if state.now >= end {
                break;
            }
            state.rest(end);
        }
    }

    /// Where the virtual time went since the simulated network was built; zero in real time.
    #[must_use]
    pub fn time_spent(&self) -> TimeSpent {
        self.lock().spent
    }

    /// Virtual time; with a thread of its own, the time since the simulated network was built.
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.shared.threaded {
            Some(threaded) => threaded.elapsed(),
            None => Nanos::new(self.shared.now.load(Ordering::Acquire)),
        }
    }

    /// Returns the number of frames without an addressed card, of all partitions together.
    #[must_use]
    pub fn undeliverable_frames(&self) -> u64 {
        self.lock().network.with_path(|path| path.undeliverable)
    }

    /// Counters of the frames that cards of this simulated network have sent; of a partition: the cards of all partitions.
    #[must_use]
    pub fn network_counters(&self) -> fpga_netmodel::LinkCounters {
        self.lock().network.with_path(|path| *path.counters())
    }

    /// Changes the one-way delay of all frames that are sent from now on: cards whose network takes a new route.
    pub fn set_distance(&self, distance: Nanos) {
        self.lock().network.with_path(|path| path.set_distance(distance));
    }

    /// Counters of hop `number`, in the order in which hops were added; `None` if there is no such hop.
    #[must_use]
    pub fn hop_counters(&self, number: usize) -> Option<HopCounters> {
        self.lock().network.with_path(|path| path.hops.get(number).map(|hop| hop.counters))
    }

    /// Counters of the link to other processes; `None` without one.
    #[must_use]
    pub fn link_counters(&self) -> Option<LinkCounters> {
        self.lock().link.as_ref().map(Link::counters)
    }

    /// Records where a node is on the link, so that frames for it need not go to every peer. Returns `false` without a link, or if the link
    /// has no way to that address.
    pub fn locate(&self, node: NodeId, address: &LinkAddress) -> bool {
        self.lock().link.as_mut().is_some_and(|link| link.locate(node, address))
    }

    /// Payload of packets to a node that the link carries best, in bytes: those that fit datagrams of its path, or a few. `None`: all that cards
    /// have.
    #[must_use]
    pub fn payload_to(&self, node: NodeId) -> Option<u32> {
        self.lock().link.as_mut()?.payload_to(node)
    }

    /// Does some work of a linked network without a thread. Returns how long its owner may sleep if nothing is readable at
    /// [`link_events`](Self::link_events) before: zero if there is more work, `None` if nothing is due.
    pub fn rest(&self) -> Option<Duration> {
        let epoch = self.lock().epoch?;
        self.drive(Nanos::from(epoch.elapsed()), None)
    }

    /// Source of frames from other processes, for waiting.
    #[must_use]
    pub fn link_events(&self) -> Option<LinkEvents> {
        self.lock().link.as_ref().map(Link::events)
    }

    /// Returns the number of host memory bytes that card `card` can reach.
    #[must_use]
    pub fn mapped_bytes(&self, card: usize) -> u64 {
        self.lock().slots.get(card).map_or(0, |slot| slot.host.map.mapped_bytes())
    }

    /// Accesses of card `card` to host memory that its map refused, since the simulated network was built.
    #[must_use]
    pub fn refused_accesses(&self, card: usize) -> RefusedAccesses {
        self.lock().slots.get(card).map_or_else(RefusedAccesses::default, |slot| slot.host.map.refused())
    }

    /// Yields the state's lock to waiting threads: the thread that drives the network takes it repeatedly, and the system's lock is not
    /// fair. Returns at once if no thread waits, and after some milliseconds in any case.
    pub(crate) fn yield_lock(&self) {
        for round in 0..YIELD_ROUNDS {
            if self.shared.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            if round < YIELD_ROUNDS / 2 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(YIELD_PAUSE);
            }
        }
    }

    /// Lets other threads that work on the network wake the server of `alarm`.
    pub(crate) fn add_alarm(&self, alarm: &Arc<ServerAlarm>) {
        if !self.is_threaded() {
            self.lock().alarms.push(Arc::downgrade(alarm));
        }
    }

    /// From now on time is the system's: work lasts as long as it does here, unless a card's description asks for pacing.
    pub(crate) fn stop_virtual_time(&self) {
        for slot in &mut self.lock().slots {
            slot.card.set_pacing(false);
        }
    }

    /// Does some work of all cards at time `now`, for a caller that drives the network in real time; does nothing if the network has a
    /// thread. Returns how long the caller may sleep: zero, until a timer expires, or without limit (`None`).
    /// `alarm`: that of the caller, which other threads signal if their work needs it before then.
    pub(crate) fn drive(&self, now: Nanos, alarm: Option<&ServerAlarm>) -> Option<Duration> {
        if self.is_threaded() {
            return None;
        }
        let mut state = self.lock();
        state.now = state.now.max(now);
        if state.burst() > 0 {
            return Some(Duration::ZERO);
        }
        let until_look = match state.poll_designs() {
            DesignPoll::Idle => None,
            // The next call does the work of the response.
            DesignPoll::Responded | DesignPoll::Waiting(Duration::ZERO) => return Some(Duration::ZERO),
            DesignPoll::Waiting(time) => Some(time),
        };
        if state.link.as_mut().is_some_and(|link| !link.prepare_to_sleep()) {
            return Some(Duration::ZERO);
        }
        let deadline = state.next_deadline();
        if let Some(alarm) = alarm {
            alarm.sleeps_until(deadline);
        }
        let until_deadline = deadline.map(|deadline| match deadline.get().saturating_sub(state.now.get()) {
            // A deadline in the past that causes no work must not keep the caller awake.
            0 => STALE_TIMER_BACKOFF,
            rest => Duration::from_nanos(rest),
        });
        until_deadline.into_iter().chain(until_look).min()
    }

    /// Does the work of the network's thread if that thread sleeps or waits for a CPU. Returns whether there was any.
    pub(crate) fn work_for_thread(&self) -> bool {
        self.threaded().is_some_and(|threaded| threaded.work(&self.shared.state))
    }

    /// Works for `span` of virtual time. With a link to other processes time is real: the calling thread sleeps when there is nothing to
    /// do, until a frame arrives, a timer expires or `span` is over, and leaves the CPU to the other processes.
    pub(crate) fn pause(&self, span: Nanos) {
        if !self.is_linked() {
            self.rest_until(span, || false);
            return;
        }
        self.run_linked(span, None, || false);
    }

    /// Works in virtual time until `is_over`, or until `span` has passed; once, if time does not advance. The lock is free between two
    /// steps.
    pub(crate) fn rest_until(&self, span: Nanos, mut is_over: impl FnMut() -> bool) {
        let limit = self.now().saturating_add(span);
        while !is_over() {
            let (before, worked, now) = {
                let mut state = self.lock();
                let before = state.now;
                let worked = state.relax();
                (before, worked, state.now)
            };
            // An interrupt may have been sent although there was no work.
            if is_over() || now >= limit || now == before {
                return;
            }
            if !worked {
                self.lock().advance_to_next_event(before, limit);
            }
        }
    }

    /// Returns whether time is real and other processes take part.
    pub(crate) fn is_linked(&self) -> bool {
        let state = self.lock();
        state.epoch.is_some() && state.link.is_some()
    }

    /// Works in real time until `is_over`, until `beside` becomes readable, or until `span` is over.
    pub(crate) fn run_linked(
        &self,
        span: Nanos,
        beside: Option<BorrowedFd<'_>>,
        mut is_over: impl FnMut() -> bool,
    ) {
        let (epoch, events) = {
            let state = self.lock();
            let (Some(epoch), Some(link)) = (state.epoch, &state.link) else { return };
            (epoch, link.events())
        };
        let now = || Nanos::from(epoch.elapsed());
        let end = now().saturating_add(span);
        loop {
            let rest = self.drive(now(), None);
            let left = Duration::from(end.saturating_sub(now()));
            if is_over() || left.is_zero() {
                return;
            }
            match rest {
                Some(Duration::ZERO) => {}
                Some(rest) => events.wait(rest.min(left), beside),
                None => events.wait(left, beside),
            }
        }
    }

    /// Work that a polling loop does between two polls.
    pub(crate) fn relax(&self) {
        match self.threaded() {
            Some(threaded) if threaded.is_attended() => {
                if !threaded.work(&self.shared.state) {
                    fpga_pci::wait::spin();
                }
            }
            // The thread that the caller waits for needs this CPU.
            Some(threaded) if threaded.single_cpu => std::thread::yield_now(),
            Some(_) => fpga_pci::wait::spin(),
            None => {
                self.lock().relax();
            }
        }
    }

    /// Returns whether time is the system's: the network has a thread of its own, or shares its time with other processes.
    pub(crate) fn is_real_time(&self) -> bool {
        self.is_threaded() || self.shared.is_linked
    }

    /// State that the network shares with its thread, if it has one.
    pub(crate) fn threaded(&self) -> Option<&WorkerState> {
        self.shared.threaded.as_ref()
    }

    /// Locks the state after all earlier posted writes have been applied.
    pub(crate) fn lock(&self) -> StateGuard<'_> {
        let threaded = self.shared.threaded.as_ref();
        let pass = threaded.map(WorkerState::ask);
        let state = match self.shared.state.try_lock() {
            Ok(state) => state,
            // A panic of another test thread in the middle of a step leaves a usable, possibly inconsistent state.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.shared.waiting.fetch_add(1, Ordering::Relaxed);
                let state = lock(&self.shared.state);
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                state
            }
        };
        self.locked(state, pass)
    }

    /// As [`lock`](Self::lock); `None` if another thread has the lock for all of `limit`.
    fn lock_within(&self, limit: Duration) -> Option<StateGuard<'_>> {
        let began = Instant::now();
        let pass = self.shared.threaded.as_ref().map(WorkerState::ask);
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let state = loop {
            match self.shared.state.try_lock() {
                Ok(state) => break Some(state),
                Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if began.elapsed() >= limit => break None,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        state.map(|state| self.locked(state, pass))
    }

    fn locked<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        pass: Option<LockRequest<'a>>,
    ) -> StateGuard<'a> {
        if let Some(threaded) = &self.shared.threaded {
            threaded.apply_all(&mut state);
        }
        StateGuard { state, clock: &self.shared.now, _pass: pass }
    }
}

/// The state, locked. The fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    clock: &'a AtomicU64,
    _pass: Option<LockRequest<'a>>,
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.clock.store(self.state.now.get(), Ordering::Release);
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
