//! Several cards, the network between them, and their common time.

use crate::dma::HostSide;
use crate::network::{DeliveryOrder, Network};
use crate::posted;
use crate::threaded::{Door, StartError, ThreadOptions, Worker};
use crate::transport::MockTransport;
use fpga_card::{Card, CardDescription, CardError};
use fpga_core::impair::OrderError;
use fpga_core::time::Nanos;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Virtual time that one unit of work takes, unless the builder says otherwise.
const UNIT_TIME: Nanos = Nanos::new(100);
/// Virtual time that passes when software polls and no card has anything to do.
const IDLE_TIME: Nanos = Nanos::new(1_000);
/// Units of work per [`fpga_pci::Transport::relax`].
const UNITS_PER_RELAX: u32 = 8;

/// How a card fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CardFailure {
    /// It works.
    None,
    /// It left the bus: accesses report [`fpga_pci::MmioError::Gone`], configuration space reads as all ones, it does
    /// nothing any more.
    Gone,
    /// Registers read as all ones and take no writes, but configuration space answers (lost memory decoding, a
    /// partial reconfiguration).
    AllOnes,
}

/// One card with its host side.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) card: Card,
    pub(crate) host: HostSide,
    pub(crate) failure: CardFailure,
    /// Counts resets, so that BARs opened before one are refused.
    pub(crate) generation: u32,
    pub(crate) opened: Weak<MockTransport>,
    /// How far posted writes have been applied, in a world with a thread.
    pub(crate) posted: posted::Reader,
}

impl Slot {
    /// What closing the device does: bus mastering goes first, so that afterwards nothing is left that could reach
    /// the memory.
    pub(crate) fn close(&mut self) {
        self.card.set_command(true, false);
        self.card.disable_msix();
        self.host.interrupts.clear();
        self.host.unmap_all();
    }
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) slots: Vec<Slot>,
    network: Network,
    pub(crate) now: Nanos,
    unit_time: Nanos,
    idle_time: Nanos,
    units_per_relax: u32,
    turn: usize,
}

/// The world, and the way to its thread if it has one.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) door: Option<Door>,
}

/// Cards, network and time. Clones are the same world.
///
/// Nothing happens by itself: work is done by [`World::step`], by [`World::step_until_idle`] and in the polling loops
/// of software ([`fpga_pci::Transport::relax`]), so a single-threaded run is the same every time. A world
/// [with a thread](WorldBuilder::threaded) works by itself, in real time.
#[derive(Clone, Debug)]
pub struct World {
    shared: Arc<Shared>,
    /// Ends the thread with the last handle.
    _worker: Option<Arc<Worker>>,
}

/// The state, locked. In a world with a thread this one is woken afterwards: there may be something to do.
pub(crate) struct Locked<'a> {
    guard: MutexGuard<'a, State>,
    // Dropped after the guard: the worker finds the lock free.
    _wake: Wake<'a>,
}

struct Wake<'a>(Option<&'a Door>);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        if let Some(door) = self.0 {
            door.wake();
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

/// Describes a [`World`].
#[derive(Debug)]
pub struct WorldBuilder {
    cards: Vec<CardDescription>,
    order: DeliveryOrder,
    unit_time: Nanos,
    idle_time: Nanos,
    units_per_relax: u32,
    thread: Option<ThreadOptions>,
}

/// Why a world cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A card cannot be built.
    #[error("card {card}: {problem}")]
    Card {
        /// Its number.
        card: usize,
        /// What is wrong.
        problem: CardError,
    },
    /// The delivery order cannot be.
    #[error("network: {0}")]
    Network(#[from] OrderError),
    /// Two cards have one node id, so that the network could not tell them apart.
    #[error("cards {first} and {second} both are node {node}; give every card its own ni.node_id")]
    DuplicateNode {
        /// The node id.
        node: u32,
        /// The first card.
        first: usize,
        /// The second card.
        second: usize,
    },
    /// The world's thread could not be started.
    #[error("the world's thread could not be started: {problem}")]
    Thread {
        /// What the system says.
        problem: String,
    },
    /// The world's thread could not be bound to a processor.
    #[error(
        "the world's thread cannot be bound to processor {cpu}: {problem}; choose one that exists and that this process may use"
    )]
    Pin {
        /// The processor asked for.
        cpu: usize,
        /// What the system says.
        problem: String,
    },
}

impl WorldBuilder {
    /// Adds a card.
    #[must_use]
    pub fn card(mut self, description: CardDescription) -> Self {
        self.cards.push(description);
        self
    }

    /// Adds `count` built-in cards whose node ids continue from the number of cards so far, plus one.
    #[must_use]
    pub fn cards(mut self, count: u32) -> Self {
        for _ in 0..count {
            let mut description = CardDescription::default();
            description.ni.node_id = u32::try_from(self.cards.len() + 1).unwrap_or(u32::MAX);
            self.cards.push(description);
        }
        self
    }

    /// In which order the network delivers.
    #[must_use]
    pub fn order(mut self, order: DeliveryOrder) -> Self {
        self.order = order;
        self
    }

    /// Virtual time of one unit of work, and of one polling round in which there was none.
    #[must_use]
    pub const fn time(mut self, unit: Nanos, idle: Nanos) -> Self {
        (self.unit_time, self.idle_time) = (unit, idle);
        self
    }

    /// Units of work that one call of `relax` does at most (at least 1).
    #[must_use]
    pub const fn units_per_relax(mut self, units: u32) -> Self {
        self.units_per_relax = if units == 0 { 1 } else { units };
        self
    }

    /// Lets the cards and the network work in a thread of their own, in real time: the same cards at the speed of the machine,
    /// no two runs the same. Without it nothing happens by itself, and every run can be repeated exactly.
    #[must_use]
    pub const fn threaded(mut self, options: ThreadOptions) -> Self {
        self.thread = Some(options);
        self
    }

    /// Builds the world.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(self) -> Result<World, BuildError> {
        for (second, description) in self.cards.iter().enumerate() {
            let node = description.ni.node_id;
            let earlier = self.cards.iter().take(second).position(|other| other.ni.node_id == node);
            if let Some(first) = earlier {
                return Err(BuildError::DuplicateNode { node, first, second });
            }
        }
        let mut slots = Vec::with_capacity(self.cards.len());
        for (number, description) in self.cards.into_iter().enumerate() {
            let card =
                Card::new(description).map_err(|problem| BuildError::Card { card: number, problem })?;
            slots.push(Slot {
                card,
                host: HostSide::default(),
                failure: CardFailure::None,
                generation: 0,
                opened: Weak::new(),
                posted: posted::Reader::default(),
            });
        }
        let state = State {
            slots,
            network: Network::new(&self.order)?,
            now: Nanos::ZERO,
            unit_time: self.unit_time,
            idle_time: self.idle_time,
            units_per_relax: self.units_per_relax,
            turn: 0,
        };
        let door = self.thread.map(|_| Door::new(state.slots.len()));
        let shared = Arc::new(Shared { state: Mutex::new(state), door });
        let started = self.thread.map(|options| Worker::start(&shared, options)).transpose();
        let worker = started.map_err(|error| match error {
            StartError::Thread(source) => BuildError::Thread { problem: source.to_string() },
            StartError::Pin { cpu, source } => BuildError::Pin { cpu, problem: source.to_string() },
        })?;
        Ok(World { shared, _worker: worker.map(Arc::new) })
    }
}

impl World {
    /// Starts a description without cards; the network delivers in order.
    #[must_use]
    pub const fn builder() -> WorldBuilder {
        WorldBuilder {
            cards: Vec::new(),
            order: DeliveryOrder::InOrder,
            unit_time: UNIT_TIME,
            idle_time: IDLE_TIME,
            units_per_relax: UNITS_PER_RELAX,
            thread: None,
        }
    }

    /// Whether the world works by itself, in a thread of its own.
    #[must_use]
    pub fn is_threaded(&self) -> bool {
        self.shared.door.is_some()
    }

    pub(crate) fn door(&self) -> Option<&Door> {
        self.shared.door.as_ref()
    }

    /// Opens card `card`: memory decoding is switched on, bus mastering off, as vfio-pci leaves a device. While a
    /// transport of the card lives, the same one is returned; when it is dropped, its mappings and interrupts go.
    ///
    /// # Panics
    /// If there is no such card: a mistake of the program that built the world.
    #[must_use]
    #[expect(clippy::expect_used, reason = "documented: the caller's own card number")]
    pub fn transport(&self, card: usize) -> Arc<MockTransport> {
        let mut state = self.lock();
        let slot = state.slots.get_mut(card).expect("card number below the number of cards");
        if let Some(opened) = slot.opened.upgrade() {
            return opened;
        }
        // The last user may have let go just now, and not come round to closing it.
        slot.close();
        let name = format!("mock:{card}");
        let opened = Arc::new(MockTransport::new(self.clone(), card, name));
        slot.opened = Arc::downgrade(&opened);
        opened
    }

    /// Calls `look` with card `card`; `None` if there is no such card.
    pub fn with_card<T>(&self, card: usize, look: impl FnOnce(&mut Card) -> T) -> Option<T> {
        self.lock().slots.get_mut(card).map(|slot| look(&mut slot.card))
    }

    /// Number of cards.
    #[must_use]
    pub fn card_count(&self) -> usize {
        self.lock().slots.len()
    }

    /// Makes card `card` fail (or work again); `false` if there is no such card.
    pub fn fail(&self, card: usize, failure: CardFailure) -> bool {
        self.lock().slots.get_mut(card).map(|slot| slot.failure = failure).is_some()
    }

    /// One unit of work: of a card, or the delivery of one frame. Returns whether there was any. (In a world with a thread this
    /// is one more that does a unit.)
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// Works until nothing is left to do at once; timers do not count. Returns the number of units.
    pub fn step_until_idle(&self) -> u64 {
        let mut state = self.lock();
        let mut units = 0;
        while state.step() {
            units += 1;
        }
        units
    }

    /// Lets `span` pass, and everything that it brings happen. In a world with a thread this sleeps.
    pub fn advance(&self, span: Nanos) {
        if self.is_threaded() {
            std::thread::sleep(Duration::from_nanos(span.get()));
            return;
        }
        let mut state = self.lock();
        let end = state.now.saturating_add(span);
        loop {
            while state.now < end && state.step() {}
            match state.next_deadline() {
                // A deadline in the past that brings no work must not hold time up.
                Some(deadline) if deadline > state.now && deadline < end => state.now = deadline,
                _ => break,
            }
        }
        state.now = state.now.max(end);
        while state.step() {}
    }

    /// Virtual time; in a world with a thread, the time since it was made.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.door().map_or_else(|| self.lock().now, Door::now)
    }

    /// Frames that no card was addressed by.
    #[must_use]
    pub fn undeliverable(&self) -> u64 {
        self.lock().network.undeliverable
    }

    /// Bytes of host memory that card `card` can reach.
    #[must_use]
    pub fn mapped_bytes(&self, card: usize) -> u64 {
        self.lock().slots.get(card).map_or(0, |slot| slot.host.mapped_bytes())
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        let Shared { state, door } = &*self.shared;
        let guard = match door {
            Some(door) => door.lock(state),
            // A panic of another test thread in the middle of a step leaves a usable, if odd, world.
            None => state.lock().unwrap_or_else(PoisonError::into_inner),
        };
        Locked { guard, _wake: Wake(door.as_ref()) }
    }
}

impl State {
    pub(crate) fn relax(&mut self) {
        for _ in 0..self.units_per_relax {
            if !self.step() {
                self.now = self.now.saturating_add(self.idle_time);
                return;
            }
        }
    }

    fn step(&mut self) -> bool {
        let participants = self.slots.len() + 1;
        for _ in 0..participants {
            let participant = self.turn;
            self.turn = (self.turn + 1) % participants;
            let worked = match self.slots.get_mut(participant) {
                Some(slot) if slot.failure == CardFailure::Gone => false,
                Some(slot) => {
                    let worked = slot.card.step(self.now, &mut slot.host);
                    self.network.fill(participant, &mut slot.card, self.now);
                    worked
                }
                None => match self.network.next(self.now) {
                    Some((sender, frame)) => {
                        self.deliver(sender, frame);
                        true
                    }
                    None => false,
                },
            };
            if worked {
                self.now = self.now.saturating_add(self.unit_time);
                return true;
            }
        }
        // Frames that wait for company would wait in vain.
        let Some((sender, frame)) = self.network.next_at_rest() else { return false };
        self.deliver(sender, frame);
        self.now = self.now.saturating_add(self.unit_time);
        true
    }

    /// Up to `units` of work of every card, and up to `frames` delivered: what the world's thread does between two looks at what
    /// others want. Returns whether there was anything to do.
    #[inline]
    pub(crate) fn burst(&mut self, units: u32, frames: u32) -> bool {
        let now = self.now;
        let mut worked = false;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.failure != CardFailure::Gone {
                worked |= slot.card.work(now, &mut slot.host, units) > 0;
                self.network.fill(number, &mut slot.card, now);
            }
        }
        for _ in 0..frames {
            let next = self.network.next(now);
            // Frames that wait for company would wait in vain.
            let next = if worked { next } else { next.or_else(|| self.network.next_at_rest()) };
            let Some((sender, frame)) = next else { break };
            self.deliver(sender, frame);
            worked = true;
        }
        worked
    }

    fn deliver(&mut self, sender: usize, frame: Vec<u8>) {
        let destination = destination(&frame);
        let receiver =
            self.slots.iter_mut().enumerate().find(|(_, slot)| Some(slot.card.node_id()) == destination);
        match receiver {
            Some((number, slot)) if slot.failure != CardFailure::Gone => {
                slot.card.receive_frame(self.now, &frame);
                self.network.fill(number, &mut slot.card, self.now);
            }
            _ => self.network.undeliverable += 1,
        }
        if let Some(slot) = self.slots.get_mut(sender) {
            slot.card.recycle_frame(frame);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.slots.iter().filter_map(|slot| slot.card.next_deadline()).min()
    }
}

/// Destination node: the third word of every packet's header.
fn destination(frame: &[u8]) -> Option<u32> {
    let bytes = frame.get(8..12)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}
