//! The way of a card's frames: into the network of its simulated network, or to other partitions.

use super::cpu::Binding;
use super::wire::{Outgoing, Traffic, Wire};
use crate::in_flight::{FramesInFlight, Sent};
use fpga_card::Card;
use fpga_protocol::time::Nanos;
use std::sync::Arc;

/// Where the frames of a simulated network's cards go.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per simulated network")]
pub(crate) enum Frames {
    /// The network between the cards of this simulated network.
    Path(FramesInFlight),
    /// The network between partitions.
    Port(Port),
}

impl Frames {
    /// Takes frames that card `sender` has to send while there is space.
    #[inline]
    pub(crate) fn fill(&mut self, sender: usize, card: &mut Card, now: Nanos) {
        if card.can_send(now) {
            self.take_from(sender, card, now);
        }
    }

    fn take_from(&mut self, sender: usize, card: &mut Card, now: Nanos) {
        match self {
            Self::Path(path) => path.fill(sender, card, now),
            Self::Port(port) => port.fill(card, now),
        }
    }

    /// Returns the next frame that is due, and the number of its owner.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Sent> {
        match self {
            Self::Path(path) => path.next(now),
            Self::Port(port) => port.next(now),
        }
    }

    /// Takes the buffer of a delivered frame of another partition; returns one of a card of this simulated network.
    pub(crate) fn take_back(&mut self, owner: usize, frame: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Path(_) => Some(frame),
            Self::Port(port) => {
                port.traffic.used.push((owner, frame));
                None
            }
        }
    }

    pub(crate) fn next_when_idle(&mut self) -> Option<Sent> {
        match self {
            Self::Path(path) => path.next_when_idle(),
            Self::Port(_) => None,
        }
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        match self {
            Self::Path(path) => path.next_deadline(),
            Self::Port(port) => port.traffic.arrivals.front().map(|(at, _)| *at),
        }
    }

    pub(crate) fn is_timed(&self) -> bool {
        match self {
            Self::Path(path) => path.is_timed(),
            Self::Port(port) => port.timed,
        }
    }

    /// Returns whether frames are on the way.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Path(path) => path.is_busy(),
            Self::Port(port) => {
                port.in_flight || !port.traffic.arrivals.is_empty() || !port.traffic.sent.is_empty()
            }
        }
    }

    /// Returns whether a frame would leave at once and unchanged.
    pub(crate) fn is_bypassable(&self) -> bool {
        match self {
            Self::Path(path) => path.is_bypassable(),
            Self::Port(_) => false,
        }
    }

    pub(crate) fn count_undeliverable(&mut self) {
        match self {
            Self::Path(path) => path.undeliverable += 1,
            Self::Port(port) => port.wire.with_path(|path| path.undeliverable += 1),
        }
    }

    /// Calls `access` with the network.
    pub(crate) fn with_path<T>(&mut self, access: impl FnOnce(&mut FramesInFlight) -> T) -> T {
        match self {
            Self::Path(path) => access(path),
            Self::Port(port) => port.wire.with_path(access),
        }
    }

    /// Returns the number of the first card, in the order in which cards were added.
    pub(crate) const fn first_card(&self) -> usize {
        match self {
            Self::Path(_) => 0,
            Self::Port(port) => port.number,
        }
    }
}

/// A partition's end of the common network.
#[derive(Debug)]
pub(crate) struct Port {
    wire: Arc<Wire>,
    number: usize,
    timed: bool,
    traffic: Traffic,
    /// Number of frames that may be sent until the next exchange.
    room: usize,
    /// Whether the network had frames at the last exchange.
    in_flight: bool,
    /// Whether a frame was delivered or sent since the last exchange.
    active: bool,
    binding: Binding,
}

impl Port {
    pub(super) fn new(wire: &Arc<Wire>, number: usize, timed: bool) -> Self {
        Self {
            wire: Arc::clone(wire),
            number,
            timed,
            traffic: Traffic::default(),
            room: wire.room(),
            in_flight: false,
            active: false,
            binding: Binding::default(),
        }
    }

    fn fill(&mut self, card: &mut Card, now: Nanos) {
        while card.can_send(now)
            && self.traffic.sent.len() < self.room
            && let Some((frame, at)) = card.take_frame_at(now)
        {
            self.traffic.sent.push(Outgoing { taken: now, at, frame });
        }
    }

    fn next(&mut self, now: Nanos) -> Option<Sent> {
        self.traffic.arrivals.front().filter(|(at, _)| *at <= now)?;
        self.active = true;
        self.traffic.arrivals.pop_front().map(|(_, sent)| sent)
    }

    /// Exchanges frames with the other partitions and returns the next horizon. `idle`: no work of the card is in progress; `until`: time
    /// before which the partition does nothing unless a frame arrives.
    pub(crate) fn exchange(&mut self, idle: bool, until: Nanos, horizon: Nanos) -> Nanos {
        let idle = idle && !self.active && self.traffic.sent.is_empty() && self.traffic.arrivals.is_empty();
        self.active = false;
        let next = self.wire.exchange(self.number, &mut self.traffic, idle, until);
        (self.room, self.in_flight) = (next.room, next.in_flight);
        self.binding.follow(next.cpu);
        next.horizon.max(horizon)
    }

    /// Disconnects the partition.
    pub(super) fn leave(&mut self) {
        self.binding.end();
        self.wire.leave(self.number, &mut self.traffic);
    }

    /// Returns buffers of the card that were delivered or lost.
    pub(crate) fn give_back(&mut self, card: &mut Card) {
        self.traffic.returned.drain(..).for_each(|frame| card.recycle_frame(frame));
    }
}
