//! Description of a simulated network, and how it is built.

use crate::error::SimNetworkError;
use crate::fabric::Fabric;
use crate::hop::SimHop;
use crate::in_flight::FramesInFlight;
use crate::link::{Link, WRAPPER_LENGTH};
use crate::network::SimNetwork;
use crate::partition::port::Frames;
use crate::state::{Slot, State};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::threaded::{Shared, ThreadOptions, Worker, WorkerState};
use crate::time::TimeSpent;
use fpga_card::{Card, CardDescription, Design};
use fpga_firmware::wire::{CRC_LENGTH, START_HEADER_LENGTH};
use fpga_netmodel::Impairments;
use fpga_protocol::time::Nanos;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Default virtual time of one poll.
const POLL_TIME: Nanos = Nanos::new(50);
/// Maximum virtual time of one poll when no card has anything to do.
const IDLE_TIME: Nanos = Nanos::new(1_000);
/// Units of work per [`fpga_pci::Backend::relax`].
const UNITS_PER_RELAX: u32 = 8;

/// A card's description, and the design behind its AXI ports.
pub(crate) type CardToBuild = (CardDescription, DesignPlace);

/// Design outside the model.
#[derive(Debug)]
pub(crate) enum DesignPlace {
    /// There is none.
    Absent,
    /// Behind all addresses.
    Instead(Arc<dyn Design>),
    /// Behind those without memory or a window.
    Beyond(Arc<dyn Design>),
}

/// Describes a [`SimNetwork`].
#[derive(Debug)]
pub struct SimNetworkBuilder {
    cards: Vec<CardToBuild>,
    impairments: Impairments,
    hops: Vec<SimHop>,
    fabric: Option<Box<dyn Fabric>>,
    seed: u64,
    unit_time: Nanos,
    idle_time: Nanos,
    units_per_relax: u32,
    thread: Option<ThreadOptions>,
    link: Option<Link>,
}

impl SimNetworkBuilder {
    /// Adds a card.
    #[must_use]
    pub fn card(mut self, description: CardDescription) -> Self {
        self.cards.push((description, DesignPlace::Absent));
        self
    }

    /// Adds a card with `design` behind its AXI ports ([`Card::with_design`]).
    #[must_use]
    pub fn card_with_design(mut self, description: CardDescription, design: Arc<dyn Design>) -> Self {
        self.cards.push((description, DesignPlace::Instead(design)));
        self
    }

    /// Adds a card with `design` beyond its own memory and network interface ([`Card::with_design_beyond`]).
    #[must_use]
    pub fn card_with_design_beyond(mut self, description: CardDescription, design: Arc<dyn Design>) -> Self {
        self.cards.push((description, DesignPlace::Beyond(design)));
        self
    }

    /// Adds `count` built-in cards whose node ids continue from the number of cards so far, plus one.
    #[must_use]
    pub fn cards(mut self, count: u32) -> Self {
        for _ in 0..count {
            let mut description = CardDescription::default();
            description.ni.node_id = u32::try_from(self.cards.len() + 1).unwrap_or(u32::MAX);
            self.cards.push((description, DesignPlace::Absent));
        }
        self
    }

    /// Sets the impairments of the network; an [`Order`](fpga_netmodel::Order) of delivery alone is enough. Default: none, all frames
    /// arrive as sent.
    #[must_use]
    pub fn impairments(mut self, impairments: impl Into<Impairments>) -> Self {
        self.impairments = impairments.into();
        self
    }

    /// Adds a hop in front of one card, before the impairments. Frames pass the hops of a card in the order in which they were added.
    #[must_use]
    pub fn hop(mut self, hop: SimHop) -> Self {
        self.hops.push(hop);
        self
    }

    /// Replaces the impairments and hops by a network of the caller.
    #[must_use]
    pub fn fabric(mut self, fabric: Box<dyn Fabric>) -> Self {
        self.fabric = Some(fabric);
        self
    }

    /// Sets the seed of all random choices of the network: the same seed gives the same run. Default 0.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the virtual time of one poll by software, and its maximum if no card has anything to do: such a poll ends with the next event.
    #[must_use]
    pub const fn time(mut self, poll: Nanos, idle: Nanos) -> Self {
        (self.unit_time, self.idle_time) = (poll, idle);
        self
    }

    /// Sets the maximum number of units of work per call of `relax` (at least 1).
    #[must_use]
    pub const fn units_per_relax(mut self, units: u32) -> Self {
        self.units_per_relax = if units == 0 { 1 } else { units };
        self
    }

    /// Gives the simulated network a thread of its own: its cards work by themselves, as real ones do.
    ///
    /// The model is the same: every access of a card goes through the live IOMMU map, and descriptors, fault hooks and access log are as
    /// without a thread. Differences:
    ///
    /// * Time is the system's monotonic clock since the simulated network was built; [`time`](Self::time) and
    ///   [`units_per_relax`](Self::units_per_relax) have no effect. Runs are not repeatable.
    /// * 32-bit register writes are posted: they return before the card has executed them. Any other access of the same thread happens
    ///   after them. When a thread writes faster than the card executes, writes block.
    /// * Interrupts are waited for on the event descriptor.
    /// * [`SimNetwork::step`], [`SimNetwork::step_until_idle`] and [`SimNetwork::advance`] wait instead of doing work.
    ///
    /// The thread ends when the last handle of the simulated network (clone, backend, BAR) is dropped; the drop waits for it.
    #[must_use]
    pub const fn threaded(mut self, options: ThreadOptions) -> Self {
        self.thread = Some(options);
        self
    }

    /// Connects this simulated network with those of other processes: frames for nodes that are not here leave through `link`, after the
    /// impairments of this network. Time is real then, with or without a thread.
    #[must_use]
    pub fn link(mut self, link: impl Into<Link>) -> Self {
        self.link = Some(link.into());
        self
    }

    /// Builds the simulated network.
    ///
    /// # Errors
    /// [`SimNetworkError`].
    pub fn build(mut self) -> Result<SimNetwork, SimNetworkError> {
        self.check_nodes()?;
        let cards = self.take_cards();
        let slots = cards.into_iter().enumerate().map(|(number, card)| self.slot(number, card));
        let slots = slots.collect::<Result<_, _>>()?;
        let path = self.take_path()?;
        self.assemble(slots, Frames::Path(path))
    }

    pub(crate) const fn is_real_time(&self) -> bool {
        self.thread.is_some() || self.link.is_some()
    }

    pub(crate) fn take_cards(&mut self) -> Vec<CardToBuild> {
        std::mem::take(&mut self.cards)
    }

    pub(crate) fn take_path(&mut self) -> Result<FramesInFlight, SimNetworkError> {
        let (impairments, hops) = (std::mem::take(&mut self.impairments), std::mem::take(&mut self.hops));
        Ok(FramesInFlight::new(impairments, hops, self.seed)?.with_fabric(self.fabric.take()))
    }

    /// Checks that node ids differ.
    pub(crate) fn check_nodes(&self) -> Result<(), SimNetworkError> {
        for (second, (description, _)) in self.cards.iter().enumerate() {
            let node = description.ni.node_id;
            let earlier = self.cards.iter().take(second).position(|(other, _)| other.ni.node_id == node);
            if let Some(first) = earlier {
                return Err(SimNetworkError::DuplicateNode { node, first, second });
            }
        }
        Ok(())
    }

    pub(crate) fn slot(
        &self,
        number: usize,
        (description, design): CardToBuild,
    ) -> Result<Slot, SimNetworkError> {
        if let Some(link) = &self.link {
            check_mtu(number, description.ni.packet_size, link)?;
        }
        let card = match design {
            DesignPlace::Absent => Card::new(description),
            DesignPlace::Instead(design) => Card::with_design(description, design),
            DesignPlace::Beyond(design) => Card::with_design_beyond(description, design),
        };
        let mut card = card.map_err(|problem| SimNetworkError::Card { card: number, problem })?;
        if !self.is_real_time() {
            card.set_pacing(true);
        }
        Ok(Slot::new(card))
    }

    pub(crate) fn assemble(
        &mut self,
        slots: Vec<Slot>,
        network: Frames,
    ) -> Result<SimNetwork, SimNetworkError> {
        let link = self.link.take();
        let state = State {
            slots,
            network,
            epoch: link.is_some().then(Instant::now),
            link,
            now: Nanos::ZERO,
            horizon: Nanos::MAX,
            spent: TimeSpent::default(),
            unit_time: self.unit_time,
            idle_time: self.idle_time,
            units_per_relax: self.units_per_relax,
            turn: 0,
            inbox: Vec::new(),
            worked: 0,
            alarms: Vec::new(),
            #[cfg(test)]
            panics: false,
        };
        let threaded = self.thread.map(|options| WorkerState::new(state.slots.len(), options));
        let shared = Arc::new(Shared {
            threaded,
            waiting: AtomicU32::new(0),
            now: AtomicU64::new(0),
            is_linked: state.epoch.is_some(),
            state: Mutex::new(state),
            process: fpga_pci::Process::current(),
        });
        let worker = match self.thread {
            Some(options) => Some(Arc::new(Worker::start(&shared, options)?)),
            None => None,
        };
        Ok(SimNetwork::new(shared, worker))
    }
}

impl SimNetwork {
    /// Starts a description without cards; the network delivers all frames in order.
    #[must_use]
    pub fn builder() -> SimNetworkBuilder {
        SimNetworkBuilder {
            cards: Vec::new(),
            impairments: Impairments::default(),
            hops: Vec::new(),
            fabric: None,
            seed: 0,
            unit_time: POLL_TIME,
            idle_time: IDLE_TIME,
            units_per_relax: UNITS_PER_RELAX,
            thread: None,
            link: None,
        }
    }
}

/// Checks that frames of `packet` bytes of payload fit the link's datagrams.
fn check_mtu(card: usize, packet: u32, link: &Link) -> Result<(), SimNetworkError> {
    let frame = START_HEADER_LENGTH + CRC_LENGTH + usize::try_from(packet).unwrap_or(usize::MAX / 2);
    let largest = link.largest_frame();
    if frame <= largest {
        return Ok(());
    }
    let (datagram, largest) = (frame + WRAPPER_LENGTH, largest + WRAPPER_LENGTH);
    Err(SimNetworkError::Mtu { card, packet, datagram, largest, mtu: link.mtu() })
}
